"""Observations that are made up. The quick tier: ordinary, extreme, zeros of both signs, subnormal, huge, not finite.

The deep tier adds what is likely to tell two graphs apart: more batches, the edges at which a normaliser clips, masks
that leave one option, none or several equal ones, buffers from empty to full, memory fed back for many steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from graph2torch.act.contract import Input
from graph2torch.graph import Array, ValueInfo
from graph2torch.spec import Block, Expression, PolicySpec

SEED = 20240611  # of what is made up, unless another is asked for
# (batch, kind of observations): the quick tier, run by every build
QUICK = (
    (1, "ordinary"),
    (3, "ordinary"),
    (16, "ordinary"),
    (3, "extreme"),
    (2, "zero"),
    (2, "minus zero"),
    (3, "subnormal"),
    (4, "huge"),
    (5, "not finite"),
)
TORCH_KINDS = frozenset({"ordinary", "zero", "minus zero", "subnormal"})

BATCHES = (1, 2, 3, 7, 16, 64, 257)  # of ordinary observations in the deep tier
LARGE = (64, 257)  # left out where the values inside would be too many
STEPS = 64  # of a sequence in which the memory is fed back
ROWS = 64  # of a sample or a file that are run at once
SCALES = {"saturating": 1e4, "far saturating": 1e8, "largest": 3e38}


@dataclass(frozen=True)
class Case:
    """One run of every side on the same inputs.

    label:   for people, and what its noise is seeded with
    kind:    what its observations are
    feed:    input's name → array
    torch:   whether the torch module is held against onnxruntime on it: where values are so large or so odd that
             rounding alone decides, it isn't
    noise:   "wide": 8 times as wide as drawn, so that samples reach their bounds; "edge": so that they fall beside them
    carried: the memory comes from the case before, each side's from its own
    """

    label: str
    kind: str
    feed: Mapping[str, Array]
    torch: bool = True
    noise: Literal["ordinary", "wide", "edge"] = "ordinary"
    carried: bool = False


def quick(inputs: Sequence[ValueInfo], seed: int) -> Iterator[Case]:
    for batch, kind in QUICK:
        rng = np.random.default_rng([seed, batch, *kind.encode()])
        feed = {i.name: observation(i, batch, kind, rng) for i in inputs}
        yield Case(f"batch {batch} {kind}", kind, feed, kind in TORCH_KINDS, "wide" if kind == "extreme" else "ordinary")


def like(samples: Sequence[Mapping[str, Array]], seed: int) -> Iterator[Case]:
    for number, sample in enumerate(samples):
        yield Case(f"sample {number}", "ordinary", dict(sample))
        for _, kind in QUICK:
            label = f"like sample {number}, {kind}"
            rng = np.random.default_rng([seed, number, *kind.encode()])
            values = {k: ValueInfo(k, v.dtype, v.shape) for k, v in sample.items() if v.dtype.kind == "f" and v.size}
            if values:
                feed = dict(sample) | {k: observation(value, 1, kind, rng) for k, value in values.items()}
                yield Case(label, kind, feed, kind in TORCH_KINDS, "wide" if kind == "extreme" else "ordinary")


def observation(value: ValueInfo, batch: int, kind: str, rng: np.random.Generator) -> Array:
    """An input of `kind` for one declared input; free sizes are `batch`. Integers are 0 or 1."""
    shape = [size if isinstance(size, int) else batch for size in value.shape]
    if value.dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(value.dtype)
    x = rng.standard_normal(shape)
    if "mask" in value.name:
        x = np.ones(shape) if kind == "ordinary" else (rng.random(shape) < 0.6).astype(np.float64)
    elif kind == "not finite" and x.size:
        flat = x.reshape(x.shape[0], -1) if x.ndim > 1 else x.reshape(1, -1)
        flat[0::4] = np.nan
        flat[1::4, :1], flat[2::4, -1:] = np.inf, -np.inf
    else:
        x *= {"ordinary": 2.0, "extreme": 60.0, "zero": 0.0, "minus zero": -0.0, "subnormal": 1e-40, "huge": 1e20}.get(kind, 1.0)
        if kind == "minus zero":
            x = np.full(shape, -0.0)
    with np.errstate(over="ignore"):  # 1e20 is infinite in float16
        return x.astype(value.dtype)


# ---------------------------------------------------------------------------------------------- the deep tier
def deep(spec: PolicySpec, seed: int, batches: Sequence[int] = BATCHES) -> Iterator[Case]:
    """What the deep tier tries besides the quick one. A policy without rows (an input of fixed or no size) gets its own size each time."""
    maker = Maker(spec, seed)
    yield from quick(spec.graph.inputs, seed)
    for batch in batches:
        yield maker.case(f"batch {batch}, ordinary again", "ordinary", batch)
    yield maker.case("samples beside their bounds", "sample bounds", 16, noise="edge")
    for kind, scale in SCALES.items():
        yield maker.case(kind, kind, 7, scale=scale, torch=False, noise="wide")
    yield maker.case("every feature the same", "equal", 7, change=_all_equal)
    yield maker.case("one number not finite", "not finite", 9, change=_one_not_finite, torch=False)
    yield from maker.normaliser_edges()
    yield from maker.masks()
    yield from maker.buffers()
    yield from maker.sequence()


def samples_of(spec: PolicySpec, count: int, seed: int) -> Iterator[Case]:
    """`count` random observations: each row of its own scale, with a random mask that allows something, and random memory."""
    maker = Maker(spec, seed)
    step = batch_of(spec.inputs) or ROWS
    for start in range(0, count, step):
        rows = min(step, count - start)
        label = f"samples {start + 1} to {start + rows}"
        yield maker.case(label, "sample", rows, change=_scaled, masked=True)


def ordinary(spec: PolicySpec, seed: int, cases: int = 8) -> Iterator[Case]:
    """Ordinary observations, ROWS in a case or as many as the graph takes, with random masks that allow something and random memory."""
    maker, rows = Maker(spec, seed), batch_of(spec.inputs) or ROWS
    for number in range(cases):
        yield maker.case(f"ordinary {number}", "ordinary", rows, masked=True)


def rows_of(given: Mapping[str, Array], inputs: Sequence[Input]) -> Iterator[Case]:
    """Observations of a file, [n, …] for every input, some rows at a time."""
    step = batch_of(inputs) or ROWS
    total = len(next(iter(given.values())))
    for start in range(0, total, step):
        part = {name: array[start : start + step] for name, array in given.items()}
        rows = len(next(iter(part.values())))
        yield Case(f"rows {start + 1} to {start + rows} of the file", "given", part)


def batch_of(inputs: Sequence[Input]) -> int | None:
    """The number of rows that the inputs take, where it is fixed."""
    return next((i.shape[0] for i in inputs if i.shape and isinstance(i.shape[0], int)), None)


class Maker:
    """Cases for one policy: ordinary observations with something changed."""

    def __init__(self, spec: PolicySpec, seed: int) -> None:
        self.spec, self.seed = spec, seed
        self.inputs = {i.name: i for i in spec.inputs}

    def rng(self, label: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, *label.encode()])

    def case(
        self,
        label: str,
        kind: str,
        rows: int,
        *,
        scale: float = 2.0,
        change: Change | None = None,
        torch: bool = True,
        noise: Literal["ordinary", "wide", "edge"] = "ordinary",
        masked: bool = False,
        given: Mapping[str, Array] | None = None,
        carried: bool = False,
    ) -> Case:
        """Observations with a standard deviation of `scale`, then changed. `given`: inputs that are known already, by name."""
        rng = self.rng(label)
        feed: dict[str, Array] = {}
        for value in self.spec.graph.inputs:
            kind_of = self.inputs[value.name].kind
            if given and value.name in given:
                feed[value.name] = given[value.name]
                continue
            x: Numbers = observation(value, rows, "ordinary", rng)
            if x.dtype.kind == "f" and kind_of == "observation" and x.ndim and "mask" not in value.name:
                x = (np.clip(x.astype(np.float64) / 2 * scale, -scale, scale) if scale > 1e38 else x * (scale / 2)).astype(x.dtype)
                x = x if change is None or not x.size else np.ascontiguousarray(change(x, rng), dtype=x.dtype)
            elif kind_of == "memory":
                x = np.tanh(x)
            elif masked and kind_of == "mask":
                x = self.allowing(rng, len(x), value.name).astype(x.dtype)
            feed[value.name] = x
        return Case(label, kind, feed, torch, noise, carried)

    def rows(self, wanted: int, name: str) -> int:
        """As many rows of an input as are wanted, or as it takes."""
        first = self.inputs[name].shape[0]
        return first if isinstance(first, int) else wanted

    # ------------------------------------------------------------------------------------------ normalisers
    def normaliser_edges(self) -> Iterator[Case]:
        """Numbers that a normaliser takes to ±5, and their neighbours up to 2 units in the last place away."""
        for block in self.spec.blocks:
            place = self.origin(block) if block.statistics else None
            if place is None:
                continue
            name, start, stop = place
            mean, std = self.statistics(block)
            label = f"edges of the normaliser {block.name}"
            rng = self.rng(label)
            rows = self.rows(32, name)
            side = rng.choice([-5.0, 5.0], (rows, len(mean)))
            x = (mean.astype(np.float64) + side * std.astype(np.float64)).astype(np.float32)
            x = nudged(x, rng.integers(-2, 3, x.shape))
            base = self.case(label, "normaliser edges", rows)
            whole = base.feed[name].copy()
            whole[:, start:stop] = x
            yield Case(label, "normaliser edges", dict(base.feed) | {name: whole})

    def statistics(self, block: Block) -> tuple[Array, Array]:
        """Mean and standard deviation of a normaliser, as the graph has them."""
        found, constants = block.statistics, self.spec.graph.constants
        assert found is not None
        if found.std is not None:
            return constants[found.mean], constants[found.std]
        assert found.variance is not None and found.steps is not None
        return constants[found.mean], np.sqrt(constants[found.variance] / constants[found.steps].astype(np.float32))

    def origin(self, block: Block) -> tuple[str, int, int | None] | None:
        """The input that a block reads, and which of its columns; None if it is made of something else."""
        value = block.reads[0]
        makers = {output: b for b in self.spec.blocks for output in b.outputs}
        if value in self.inputs:
            return value, 0, None
        maker = makers.get(value)
        if maker and isinstance(maker.code, Expression) and maker.reads[0] in self.inputs and (columns := _columns(maker.code.text)):
            return maker.reads[0], *columns
        return None

    # ------------------------------------------------------------------------------------------ masks
    def branches(self, name: str) -> list[tuple[int, int]]:
        """Where each branch stands among the options of a mask."""
        width = self.inputs[name].shape[-1]
        assert isinstance(width, int)
        found = [c for b in self.spec.blocks if isinstance(b.code, Expression) and b.reads == (name,) and (c := _columns(b.code.text))]
        parts = sorted({(start, width if stop is None else min(stop, width)) for start, stop in found})
        return parts if parts and parts[0][0] == 0 and parts[-1][1] == width else [(0, width)]

    def allowing(self, rng: np.random.Generator, rows: int, name: str) -> Array:
        """Random masks that leave an option in each branch."""
        parts = self.branches(name)
        mask = (rng.random((rows, parts[-1][1])) < 0.5).astype(np.float64)
        for start, stop in parts if parts[-1][1] else ():
            mask[np.arange(rows), rng.integers(start, stop, rows)] = 1
        return mask

    def masks(self) -> Iterator[Case]:
        for name, given in self.inputs.items():
            if given.kind != "mask" or len(given.shape) != 2 or not isinstance(given.shape[1], int) or not given.shape[1]:
                continue
            parts, width = self.branches(name), given.shape[1]
            most = self.rows(max(stop - start for start, stop in parts), name)
            single = np.zeros((most, width))
            for start, stop in parts:
                single[np.arange(most), start + np.arange(most) % (stop - start)] = 1
            two = single.copy()
            for start, stop in parts:
                two[np.arange(most), start + (1 + np.arange(most)) % (stop - start)] = 1
            rng = self.rng(f"mask {name}")
            made = {
                "a single option": single,
                "two options": two,
                "no option": np.zeros((self.rows(4, name), width)),
                "no option, minus zero": np.full((self.rows(4, name), width), -0.0),
                "random": self.allowing(rng, self.rows(32, name), name),
                "neither 0 nor 1": rng.random((self.rows(4, name), width)),
                "1 or just below": rng.choice([np.float32(1), np.nextafter(np.float32(1), np.float32(0))], (self.rows(16, name), width)),
            }
            for what, mask in made.items():
                label = f"mask with {what}" if "option" in what else f"mask {what}"
                yield self.case(label, "mask", len(mask), given={name: mask.astype(given.dtype)}, torch="no option" not in what)
            zeros = {i.name: np.zeros_like(observation(i, 4, "zero", rng)) for i in self.spec.graph.inputs} | {
                name: made["no option"].astype(given.dtype)
            }
            if self.rows(4, name) == 4:
                yield Case("no option, all zero", "mask", zeros, torch=False)

    # ------------------------------------------------------------------------------------------ buffers
    def buffers(self) -> Iterator[Case]:
        """Lists of entities, filled up with zeros: full, partly, empty, rows missing in between, and as small as what counts as zeros."""
        found = {
            name: i.shape[1]
            for name, i in self.inputs.items()
            if i.kind == "observation" and len(i.shape) == 3 and isinstance(i.shape[1], int) and isinstance(i.shape[2], int)
        }
        if not found:
            return
        for what in ("full", "filled from the front", "empty", "with gaps", "one entity", "almost padding"):
            label = f"buffer {what}"
            base = self.case(label, "buffer", 16)
            feed = dict(base.feed)
            for name, entities in found.items():
                rng = self.rng(f"{label} {name}")
                x = base.feed[name].copy()
                rows = len(x)
                there = {
                    "full": np.ones((rows, entities), bool),
                    "filled from the front": np.arange(entities)[None] < rng.integers(0, entities + 1, rows)[:, None],
                    "empty": np.zeros((rows, entities), bool),
                    "with gaps": rng.random((rows, entities)) < 0.5,
                    "one entity": np.arange(entities)[None] == rng.integers(0, entities, rows)[:, None],
                }.get(what, np.ones((rows, entities), bool))
                x[~there] = 0
                if what == "almost padding":  # a sum of squares of 0.01 is where ML-Agents' padding begins
                    length = np.sqrt((x.astype(np.float64) ** 2).sum(2, keepdims=True)) + 1e-30
                    x = nudged((0.1 * x / length).astype(x.dtype), rng.integers(-2, 3, x.shape))
                feed[name] = x
            yield Case(label, "buffer", feed, torch=what != "almost padding")

    # ------------------------------------------------------------------------------------------ memory
    def sequence(self) -> Iterator[Case]:
        """Many steps, each with the memory that the step before gave."""
        fed = [i for i in self.inputs.values() if i.kind == "memory" and i.next]
        if not fed:
            return
        first = {i.name: np.zeros([3 if not isinstance(d, int) else d for d in i.shape], i.dtype) for i in fed}
        for step in range(1, STEPS + 1):
            yield self.case(f"step {step} of a sequence", "sequence", 3, given=first, carried=step > 1)


Numbers: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Change: TypeAlias = "Callable[[Numbers, np.random.Generator], Numbers]"


def _columns(text: str) -> tuple[int, int | None] | None:
    """Of `x[:, 3:5]`."""
    found = re.fullmatch(r"x\[:, (\d+):(\d*)\]", text)
    return (int(found[1]), int(found[2]) if found[2] else None) if found else None


def _all_equal(x: Numbers, _: np.random.Generator) -> Numbers:
    """Each row's first number everywhere in it."""
    return np.broadcast_to(x.reshape(len(x), -1)[:, :1].reshape(len(x), *[1] * (x.ndim - 1)), x.shape)


def nudged(x: Numbers, ulps: Numbers) -> Numbers:
    """Each number moved by so many units in the last place."""
    x = x.copy()
    for step in range(int(np.abs(ulps).max(initial=0))):
        toward = np.where(ulps > step, np.inf, np.where(ulps < -step, -np.inf, x)).astype(x.dtype)
        x = np.nextafter(x, toward)
    return x


def _one_not_finite(x: Numbers, rng: np.random.Generator) -> Numbers:
    """A NaN or an infinity in one place of each row."""
    flat = x.reshape(len(x), -1).copy()
    if flat.size:
        flat[np.arange(len(x)), rng.integers(0, flat.shape[1], len(x))] = np.resize(np.array([np.nan, np.inf, -np.inf], x.dtype), len(x))
    changed: Numbers = flat.reshape(x.shape)
    return changed


def _scaled(x: Numbers, rng: np.random.Generator) -> Numbers:
    """Each row of its own size, from 0.001 to 30 times the ordinary one."""
    scaled: Numbers = x * 10 ** rng.uniform(-3, 1.5, (len(x), *[1] * (x.ndim - 1)))
    return scaled
