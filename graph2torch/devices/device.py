"""Where torch computes: `--device` resolved by one function, precision made comparable, threads decided.

A device that was asked for and isn't usable is an error (exit status 3); nothing is ever computed on the CPU instead.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graph2torch.errors import DeviceError
from graph2torch.text import one_line

from .kinds import Kind, parse
from .probe import TIME_OUT, Status, explain, probe

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Device:
    """A device that works.

    torch:  what tensors are moved to
    module: torch.cpu, torch.cuda, torch.npu …
    status: what the probe found; of the CPU, which isn't probed, no more than that it is ready
    """

    torch: torch.device
    module: Any
    kind: Kind
    status: Status

    @property
    def name(self) -> str:
        """ "cpu", "npu:0"."""
        return self.status.device

    @property
    def simulated(self) -> bool:
        return self.status.simulated

    def synchronise(self) -> None:
        """Waits until everything that was launched is done."""
        if hasattr(self.module, "synchronize"):
            self.module.synchronize()


def resolve(name: str, timeout: float = TIME_OUT) -> Device:
    """The device called `name` (cpu, npu, cuda, xpu, mps; cuda:1), after a process of its own has computed on it.

    Raises DeviceError if there is no such device or it doesn't work, or if the environment has torch compute on the CPU
    what the device can't.
    """
    kind, index = parse(name)
    if kind.type == "cpu":
        import torch

        return Device(torch.device("cpu"), torch.cpu, kind, Status("cpu", "ready", count=1))
    _no_fall_back(kind)
    status = probe(kind, index, timeout)
    if not status.ready:
        raise DeviceError(f"The device {status.device} can't be used: {explain(status)} Nothing was computed on the CPU instead.")
    import torch

    try:
        if kind.package:
            with _unheard():
                importlib.import_module(kind.package)
        device = torch.device(status.device)
        module = getattr(torch, kind.type)  # as torch.get_device_module, which torch 2.1 lacks
        if hasattr(module, "set_device"):
            module.set_device(index)
    except Exception as error:
        raise DeviceError(
            f"The device {status.device} worked in a process of its own, but not in this one ({one_line(str(error), 200)}). Nothing was computed on the CPU instead; start anew."
        ) from None
    return Device(device, module, kind, status)


def cpu() -> Device:
    return resolve("cpu")


def asked_for(device: Device | str | None) -> Device | None:
    """What a caller names or gives; None for the CPU, on which everything is computed anyway. Raises DeviceError, as `resolve`."""
    return None if device == "cpu" else resolve(device) if isinstance(device, str) else device


@contextmanager
def _unheard() -> Iterator[None]:
    """What a package prints to stdout while it is imported goes nowhere: stdout holds what the command prints, one JSON document perhaps."""
    try:
        sys.stdout.flush()
        kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    except OSError:  # there is no stdout
        yield
        return
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _no_fall_back(kind: Kind) -> None:
    """Sets the variables that make operators which the device lacks an error, while torch still looks at them."""
    for name, value in kind.environment.items():
        if name in kind.fixed and "torch" in sys.modules and os.environ.get(name, value) != value:
            raise DeviceError(
                f"{name} is {os.environ[name]!r}, with which torch computes on the CPU what {kind.type} can't; unset it and start again."
            )
        os.environ[name] = value


# ---------------------------------------------------------------------------------------------- precision
@contextmanager
def exact(device: Device) -> Iterator[Mapping[str, bool | str]]:
    """Whole float32 on `device`: tf32, hf32 and the like are off, and afterwards as before.

    Gives the switches with the values in force, as they are read back; one that this torch lacks is "absent". Raises
    DeviceError if one of them stays on.
    """
    import torch

    before: list[tuple[Any, str, Any]] = []
    force: dict[str, bool | str] = {}
    general = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        for path, value in device.kind.switches:
            owner, attribute = _owner(torch, path), path.rpartition(".")[2]
            if owner is None or not hasattr(owner, attribute):
                force[path] = "absent"
                continue
            before.append((owner, attribute, getattr(owner, attribute)))
            setattr(owner, attribute, value)
            force[path] = bool(getattr(owner, attribute))
            if force[path] != value:
                raise DeviceError(f"torch.{path} can't be set to {value} on {device.name}, so float32 would not be compared as it is.")
        yield {"float32_matmul_precision": torch.get_float32_matmul_precision(), **force}
    finally:
        for owner, attribute, value in reversed(before):
            setattr(owner, attribute, value)
        with suppress(RuntimeError):
            torch.set_float32_matmul_precision(general)


def _owner(torch: Any, path: str) -> Any:
    """What the last name of `path` is an attribute of; None where this torch has no such thing."""
    owner = torch
    for part in path.split(".")[:-1]:
        owner = getattr(owner, part, None)
    return owner


# ---------------------------------------------------------------------------------------------- threads
def usable_cpus() -> int:
    """The processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count(asked: int | None = None) -> int:
    """How many threads torch computes with: what was asked for, else one, since a policy's step is too small to share.

    Raises DeviceError for fewer than one or more than there are processors.
    """
    if asked is None:
        return 1
    if not 1 <= asked <= usable_cpus():
        raise DeviceError(f"{asked} threads can't be had: this process may use {usable_cpus()} processors; ask for 1 to {usable_cpus()}.")
    return asked


@contextmanager
def threads(asked: int | None = None) -> Iterator[int]:
    """torch on that many threads, see `thread_count`; gives the number."""
    import torch

    count, before = thread_count(asked), torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield count
    finally:
        torch.set_num_threads(before)
