"""A policy on a device: what it gives there against the same module on the CPU, and against the original in onnxruntime.

No two kinds of hardware round matrix products alike, so on a device equal means within a tolerance; whether the bits are
the same as well is counted.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import onnx

from graph2torch.errors import DeviceError, UnsupportedGraph
from graph2torch.graph import Array
from graph2torch.judge.figures import TOLERANCE, Figures, Tally, finite
from graph2torch.judge.observations import like, quick
from graph2torch.judge.randomness import Drawn
from graph2torch.judge.reference import Reference
from graph2torch.judge.torchside import TorchSide, cannot
from graph2torch.spec import PolicySpec
from graph2torch.text import quoted

from .device import Device, exact
from .device import threads as on_threads


@dataclass(frozen=True)
class DeviceCheck:
    """Figures by output, on everything that onnxruntime ran of the original.

    switches:    what would shorten float32 (tf32, hf32 …), with the values that were in force
    environment: variables that keep what the device lacks from being computed on the CPU
    threads:     of torch, on the CPU
    """

    device: Device
    against_cpu: tuple[Figures, ...]
    against_original: tuple[Figures, ...]
    runs: tuple[str, ...]
    switches: Mapping[str, bool | str]
    environment: Mapping[str, str]
    threads: int
    tolerance: float = TOLERANCE

    @property
    def within(self) -> bool:
        """Whether every output is within tolerance · max(1, largest output) of both references."""
        return all(f.within(self.tolerance) for f in (*self.against_cpu, *self.against_original))

    def told(self) -> dict[str, Any]:
        """The facts for a report; a simulated device is called so."""
        status = self.device.status
        return {
            "name": self.device.name,
            "model": status.model,
            "simulated": status.simulated,
            "versions": dict(status.versions),
            "within": self.within,
            "tolerance": self.tolerance,
            "against_cpu": [finite(asdict(f)) for f in self.against_cpu],
            "against_original": [finite(asdict(f)) for f in self.against_original],
            "runs": list(self.runs),
            "precision": dict(self.switches),
            "environment": dict(self.environment),
            "threads": self.threads,
        }


def check_on_device(
    original: onnx.ModelProto,
    module: Any,
    spec: PolicySpec,
    device: Device,
    seed: int,
    samples: Sequence[Mapping[str, Array]] = (),
    tolerance: float = TOLERANCE,
    threads: int | None = None,
) -> DeviceCheck:
    """Runs a copy of `module` on `device`, `module` itself on the CPU, and `original` in onnxruntime, on the same inputs and noise.

    samples: inputs that are known to make sense; what is made up is then like them
    threads: of torch on the CPU, by default one

    Raises DeviceError if the device can't run the policy or would do so in another precision, and UnsupportedGraph if
    onnxruntime ran the original on nothing.
    """
    refuse_float64(module, spec, device)
    reference = Reference(original, spec, seed)
    choices = reference.choices
    names = [o.name for o in spec.outputs]
    against_cpu, against_original = ({name: Tally(name) for name in names} for _ in range(2))
    runs: list[str] = []
    with exact(device) as switches, on_threads(threads) as count:
        here, there = TorchSide(module, spec), TorchSide(moved(module, device), spec, device.name)
        for case in like(samples, seed) if samples else quick(spec.graph.inputs, seed):
            answer = reference.answer(case) if case.torch else None
            if answer is None:
                continue
            sides = here.outputs(case.feed, answer.by_value), there.outputs(case.feed, answer.by_value)
            for name, a, b, c in zip(names, answer.outputs, *sides, strict=True):
                against_cpu[name].add(b, _settled(answer.noise, choices, name, b, c))
                against_original[name].add(a, _settled(answer.noise, choices, name, a, c))
            runs.append(case.label)
    if not runs:
        raise UnsupportedGraph(
            f"Nothing could be compared on {device.name}: onnxruntime ran the original on none of the inputs tried. Nothing is called equal that was not looked at."
        )
    environment = {name: os.environ.get(name, "") for name in device.kind.environment}
    return DeviceCheck(
        device,
        tuple(t.figures() for t in against_cpu.values()),
        tuple(t.figures() for t in against_original.values()),
        tuple(runs),
        dict(switches),
        environment,
        count,
        tolerance,
    )


def moved(module: Any, device: Device) -> Any:
    """A copy of the module on the device. Raises DeviceError if it can't be had there."""
    try:
        there = copy.deepcopy(module).to(device.torch)
        device.synchronise()
    except Exception as error:
        raise cannot(device.name, "hold this policy", error) from None
    return there


def _settled(noise: Drawn, choices: Mapping[str, Sequence[str]], name: str, a: Array, b: Array) -> Array:
    """Of two options that are equally good within the tolerance, either may be called the better one."""
    return noise.settle(choices[name], a, b) if name in choices else b


def refuse_float64(module: Any, spec: PolicySpec, device: Device) -> None:
    """DeviceError if the policy computes in float64 and the device would make float32 of it."""
    if device.kind.float64:
        return
    for what in _doubles(module, spec):
        raise DeviceError(
            f"The policy can't be compared on {device.name}: {what} is float64, which a device of this kind makes float32 of. Leave --device out."
        )


def _doubles(module: Any, spec: PolicySpec) -> Iterable[str]:
    yield from (f"the input {quoted(i.name)}" for i in spec.inputs if i.dtype == "float64")
    state = (*module.named_parameters(), *module.named_buffers())
    yield from (f"the tensor {quoted(name)}" for name, t in state if str(t.dtype) == "torch.float64")
    yield from (f"what {node} makes" for node in spec.graph.nodes if node.attributes.get("to") == onnx.TensorProto.DOUBLE)
