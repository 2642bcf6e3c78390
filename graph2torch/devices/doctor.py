"""What this machine can do: versions and whether they fit, devices, CANN, onnxruntime's providers, and what to do about what is wrong.

Nothing that may be broken is imported here: torch and onnxruntime are tried in processes of their own.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from graph2torch import __version__
from graph2torch.text import printable

from .cann import Cann, find
from .device import thread_count, usable_cpus
from .kinds import KINDS, parse
from .probe import TIME_OUT, Status, explain, probe, probe_all
from .providers import CPU, Provider, examine_providers

PACKAGES = ("torch", "torch_npu", "onnx", "onnxruntime", "onnx-graphsurgeon", "numpy", "safetensors")
BROKEN = frozenset({"import-failed", "version-mismatch", "device-failed", "wrong-result", "crashed", "timed-out"})


@dataclass(frozen=True)
class Package:
    """An installed package (version "" if it isn't), the oldest version that graph2torch takes ("" if any), and whether it fits."""

    name: str
    version: str
    oldest: str
    fits: bool


@dataclass(frozen=True)
class Examination:
    """What was found.

    machine:   of the operating system, Python and the processor: texts; processors that may be used, threads that torch gets
    devices:   of every kind, the one asked for among them
    providers: of onnxruntime
    problems:  each with what to do about it: on the CPU, or with a device that is there but doesn't work, or that was asked for
    healthy:   whether everything works on the CPU
    asked:     the device asked for, "" if none was
    """

    machine: Mapping[str, str | int]
    packages: tuple[Package, ...]
    devices: tuple[Status, ...]
    cann: Cann
    providers: tuple[Provider, ...]
    problems: tuple[str, ...]
    healthy: bool
    asked: str = ""

    @property
    def usable(self) -> bool:
        """Whether the device asked for works; without one, whether the CPU does."""
        return next(s.ready for s in self.devices if s.device == (self.asked or "cpu"))

    @property
    def exit_status(self) -> int:
        return 3 if self.asked and not self.usable else 0 if self.healthy else 2


def examine(device: str | None = None, timeout: float = TIME_OUT) -> Examination:
    """Looks at everything; a step that hangs is given up after `timeout` seconds. Raises DeviceError if `device` is no device's name."""
    wanted = parse(device) if device is not None else None
    own = [(kind, 0) for kind in KINDS.values() if not kind.package]
    others = [(kind, 0) for kind in KINDS.values() if kind.package]
    devices = [*probe_all(own, timeout), *(probe(kind, index, timeout) for kind, index in others)]
    asked = ""
    if wanted is not None:
        kind, index = wanted
        asked = next((s.device for s in devices if s.device in (kind.type, f"{kind.type}:{index}")), "")
        if not asked:
            devices.append(probe(kind, index, timeout))
            asked = devices[-1].device
    packages = examine_packages()
    providers, broken = examine_providers(timeout)
    problems = [_misfit(p) for p in packages if not p.fits]
    if several := runtimes():
        problems.append(
            f"{' and '.join(several)} are installed together and overwrite each other: uninstall all but one, and install that again."
        )
    judge = next((p for p in providers if p.name == CPU), None)
    if broken or judge is None or not judge.obtained:
        reason = broken or (judge.detail if judge else f"it lists no {CPU}")
        problems.append(
            f"onnxruntime, which judges every build, doesn't work on the CPU ({reason}): `pip install --force-reinstall onnxruntime`."
        )
    cpu = next(s for s in devices if s.device == "cpu")
    if not cpu.ready:
        problems.append(f"torch doesn't work on the CPU: {explain(cpu)}")
    healthy = not problems
    problems += [
        f"{s.device}: {explain(s)}" for s in devices if s.device != "cpu" and (s.state in BROKEN or (s.device == asked and not s.ready))
    ]
    return Examination(_machine(), packages, tuple(devices), find(), tuple(providers), tuple(problems), healthy, asked)


def report(found: Examination) -> dict[str, Any]:
    """The examination as JSON."""
    return {
        "graph2torch": __version__,
        "healthy": found.healthy,
        "asked": found.asked or None,
        "usable": found.usable,
        "machine": dict(found.machine),
        "packages": [asdict(p) for p in found.packages],
        "devices": [{**asdict(s), "versions": dict(s.versions), "message": explain(s)} for s in found.devices],
        "cann": asdict(found.cann) | {"active": found.cann.active},
        "onnxruntime": [asdict(p) for p in found.providers],
        "problems": list(found.problems),
    }


def examine_packages() -> tuple[Package, ...]:
    """The packages that figures depend on, with what graph2torch's own metadata asks of them, where it is installed."""
    oldest = _oldest()
    return tuple(_package(name, oldest.get(_plain(name), "")) for name in PACKAGES)


def _package(name: str, oldest: str) -> Package:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if name == "onnxruntime" and (others := runtimes(1)):
            return _package(others[0], oldest)
        return Package(name, "", oldest, not oldest)
    return Package(name, printable(version, 40), oldest, _numbers(version) >= _numbers(oldest))


def _misfit(package: Package) -> str:
    there = f"{package.name} {package.version} is installed" if package.version else f"{package.name} is not installed"
    return f"{there}, and {package.oldest} or newer is needed: `pip install '{package.name}>={package.oldest}'`."


def runtimes(least: int = 2) -> list[str]:
    """Installed builds of onnxruntime (onnxruntime, onnxruntime-gpu, …), if there are `least` or more; they all write the same files."""
    names = {_plain(d.metadata["Name"] or "") for d in importlib.metadata.distributions(name=None)}
    found = sorted(
        n for n in names if re.fullmatch(r"onnxruntime(-(gpu|cann|directml|openvino|rocm|migraphx|qnn|training|training-cpu))?", n)
    )
    return found if len(found) >= least else []


def _oldest() -> dict[str, str]:
    """Name → the oldest version, of the requirements written `name>=version`."""
    try:
        wanted = importlib.metadata.requires("graph2torch") or []
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that isn't installed
        return {}
    found = (re.match(r"([\w.-]+)\s*>=\s*([\d.]+)\s*$", text) for text in wanted)
    return {_plain(m[1]): m[2] for m in found if m}


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _numbers(version: str) -> tuple[int, ...]:
    """The release of a version, without trailing zeros: 2.13.0+cpu → (2, 13)."""
    release = re.match(r"[\d.]*", version)
    numbers = [int(part) for part in (release[0] if release else "").split(".") if part]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _machine() -> dict[str, str | int]:
    return {
        "system": printable(platform.platform(), 80),
        "python": platform.python_version(),
        "processor": _processor(),
        "processors": usable_cpus(),
        "threads": thread_count(),
    }


def _processor() -> str:
    """What the processor calls itself, printable; "" if nothing tells."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        text = ""
    name = re.search(r"(?m)^model name\s*:\s*(.+)$", text)
    return printable(name[1].strip() if name else platform.processor() or platform.machine(), 80)
