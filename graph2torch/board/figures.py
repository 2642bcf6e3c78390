"""What a build or a verification found, as numbers with tags: each is one point of a curve over the steps of the training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graph2torch.judge.figures import Figures
from graph2torch.text import printable

if TYPE_CHECKING:
    from graph2torch.build import Build
    from graph2torch.devices.on_device import DeviceCheck
    from graph2torch.judge.deep import BlockFigures, Deep
    from graph2torch.judge.precision import PrecisionCheck
    from graph2torch.judge.sampling import Sampling
    from graph2torch.judge.verify import Level, Verification
    from graph2torch.spec import PolicySpec

LEVELS: tuple[Level, ...] = ("differs", "close", "bits", "graph", "bytes")  # by number, 0 to 4


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number (may be NaN or infinite) under a tag; TensorBoard shows the description beside it."""

    tag: str
    value: float
    description: str = ""


def of_build(made: Build) -> Iterator[Scalar]:
    """Level, the pair, how far torch is from onnxruntime by output, and another device or precision if one was asked for."""
    yield from _verification(made.verification, made.spec)
    if made.bindings.checkpoint is not None:
        apart = [b.disagreement for b in made.bindings.tensors if b.disagreement]
        yield Scalar("Pair/tensors that differ", len(apart), "tensors that graph and checkpoint hold with other numbers")
        yield Scalar("Pair/max abs", max((d.max_abs for d in apart), default=0.0), "the largest difference between them")
    yield from _elsewhere(made.precision, made.on_device)


def of_verification(found: Deep) -> Iterator[Scalar]:
    """The same of the deep tier, and block by block, the samples, and a memory fed back."""
    yield from _verification(found.verification, found.spec)
    yield from _blocks(found.blocks)
    if found.sampling is not None:
        yield from _sampling(found.sampling)
    if found.drift:
        what = f"torch against onnxruntime over {len(found.drift)} steps, each fed its own memory: the largest difference"
        yield Scalar("Memory/max abs", max(off for _, off in found.drift), what)
    yield from _elsewhere(found.precision, found.on_device)


def _verification(checked: Verification, spec: PolicySpec) -> Iterator[Scalar]:
    fixed = {o.name for o in spec.outputs if o.constant is not None}
    scale = ", ".join(f"{number} {level}" for number, level in enumerate(LEVELS))
    yield Scalar("Equality/level", LEVELS.index(checked.level), f"of rebuilt.onnx against the original: {scale}")
    yield Scalar("Equality/numbers compared", sum(f.compared for f in checked.rebuilt), "in onnxruntime, original against rebuilt.onnx")
    yield Scalar("Equality/numbers that differ", sum(f.differing for f in checked.rebuilt), "of those, by their bits")
    moving = [f for f in checked.module if f.differing or f.output not in fixed]  # what never changes and is right is no curve
    yield from _by_output("Torch", moving, "the torch module against the original in onnxruntime")


def _by_output(group: str, figures: Iterable[Figures], what: str) -> Iterator[Scalar]:
    """Three curves an output. What can't be told (the ulp of integers, the cosine of zeros) is left out."""
    for f in figures:
        name = printable(f.output, 60)
        yield Scalar(f"{group} max abs/{name}", f.max_abs, f"{what}: the largest difference")
        if f.max_ulps is not None:
            yield Scalar(f"{group} ulp/{name}", f.max_ulps, f"{what}: the largest difference in units in the last place")
        if f.cosine is not None:
            yield Scalar(f"{group} 1 - cosine/{name}", 1 - f.cosine, f"{what}: the angle between them")


def _blocks(blocks: Iterable[BlockFigures]) -> Iterator[Scalar]:
    """Numbered, since TensorBoard sorts tags by the alphabet."""
    for number, block in enumerate(blocks, 1):
        name = f"{number:02} {printable(f'{block.module}: {block.role}' if block.module else block.role, 80)}"
        what = "after this block, torch against onnxruntime, each having computed everything before it by itself"
        yield Scalar(f"Block max abs/{name}", block.figures.max_abs, f"{what}: the largest difference")
        if block.figures.max_ulps is not None:
            yield Scalar(f"Block ulp/{name}", block.figures.max_ulps, f"{what}: the largest difference in units in the last place")


def _sampling(sampling: Sampling) -> Iterator[Scalar]:
    yield Scalar("Samples/tests that failed", len(sampling.failed), f"of {len(sampling.tests)}; one fails below p = {sampling.level:.2g}")
    yield Scalar("Samples/forbidden options drawn", sum(sampling.forbidden.values()), "options of probability 0; must be 0")
    if sampling.tests:
        yield Scalar("Samples/smallest p", min(test.p for test in sampling.tests))


def _elsewhere(found: PrecisionCheck | None, on_device: DeviceCheck | None) -> Iterator[Scalar]:
    """Another precision and another device, where they were asked for."""
    if on_device is not None:
        name = on_device.device.name
        yield from _by_output(f"{name} against CPU", on_device.against_cpu, f"torch on {name} against torch on the CPU")
    if found is None:
        return
    yield from _by_output(f"{found.dtype} against float32", found.against_float32, f"with weights in {found.dtype}, against float32")
    yield Scalar(f"{found.dtype}/error", found.error, "the largest difference, as a share of max(1, largest output)")
    yield Scalar(f"{found.dtype}/discrete actions changed", found.changed, f"of {found.choices:,}")
