"""Observations that drive the mean of the actions to the bounds that it is clipped to, found by trying and halving.

No observation of a standard size may bring an action to its bound; a bound that is wrong would then go unnoticed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graph2torch.graph import Array

from .observations import Case, Maker, Numbers, batch_of
from .randomness import Bounded
from .torchside import TorchSide

TRIED = 4096  # observations; fewer where they are large
NUMBERS = 2**22  # of an observation in all that are tried, about
FEWEST = 64
HALVINGS = 24  # from a step as wide as the way to one of the last bit of a float32
ROWS = 64  # at most in a case


@dataclass(frozen=True)
class Bounds:
    """Cases at the bounds, and how many of all bounds of all actions the means that were tried went beyond."""

    cases: tuple[Case, ...]
    reached: int
    total: int


def reach_bounds(side: TorchSide, bounded: Sequence[Bounded], seed: int) -> Bounds:
    """Tries random observations from small to far too large, keeps those of the largest and smallest means, and halves from there.

    A mean that goes beyond a bound is brought beside it along the line to an ordinary observation.
    """
    spec = side.spec
    means = {b.mu: b.limits for b in bounded}
    observed = [i.name for i in spec.inputs if i.kind == "observation" and i.dtype == "float32" and i.shape]
    if not means or not observed or batch_of(spec.inputs) is not None:
        return Bounds((), 0, 0)
    maker = Maker(spec, seed)
    widest = max(maker.case("one", "search", 1).feed[name].size for name in observed)
    feed = maker.case("search for the bounds", "search", int(np.clip(NUMBERS // max(widest, 1), FEWEST, TRIED)), change=_any_size).feed
    cases: list[Case] = []
    reached = total = 0
    for number, (mu, limits) in enumerate(means.items()):
        found = side.inner([mu], feed)[0]
        if found.ndim != 2 or len(found) != len(feed[observed[0]]):
            continue
        found = np.nan_to_num(found.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        columns = np.arange(found.shape[1])
        ends = {"largest": found.argmax(0), "smallest": found.argmin(0)}
        rows = np.unique(np.concatenate(list(ends.values())))[:ROWS]
        cases.append(Case(f"largest and smallest means of draw {number + 1}", "head bounds", _rows(feed, rows), torch=False))
        still = int(np.abs(found).sum(1).argmin())
        for limit in limits:
            rows = ends["largest" if limit > 0 else "smallest"]
            beyond = (found[rows, columns] - limit) * np.sign(limit or 1) > 0
            reached, total = reached + int(beyond.sum()), total + beyond.size
            if beyond.any():
                place = columns[beyond][:ROWS]
                near = _halve(side, mu, feed, observed, still, rows[place], place, limit)
                cases.append(Case(f"means of draw {number + 1} beside {limit:g}", "head bounds", near, torch=False))
    return Bounds(tuple(cases), reached, total)


def _halve(
    side: TorchSide, mu: str, feed: Mapping[str, Array], observed: Sequence[str], still: int, far: Numbers, columns: Numbers, limit: float
) -> dict[str, Array]:
    """For each row of `far` an observation between it and the row `still` whose mean in `columns` is about the limit."""
    base, ends = _rows(feed, np.full(len(far), still)), _rows(feed, far)
    low, high = np.zeros(len(far)), np.ones(len(far))

    def between(t: Numbers) -> dict[str, Array]:
        mixed = dict(ends)
        for name in observed:
            way = t.reshape(-1, *[1] * (ends[name].ndim - 1))
            start, stop = base[name].astype(np.float64), ends[name].astype(np.float64)
            mixed[name] = (start + way * (stop - start)).astype(np.float32)
        return mixed

    for _ in range(HALVINGS):
        middle = (low + high) / 2
        found: Numbers = side.inner([mu], between(middle))[0][np.arange(len(far)), columns]
        beyond = (found - limit) * np.sign(limit or 1) > 0
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return between(high)


def _rows(feed: Mapping[str, Array], rows: Numbers) -> dict[str, Array]:
    return {name: np.ascontiguousarray(array[rows]) for name, array in feed.items()}


def _any_size(x: Numbers, rng: np.random.Generator) -> Numbers:
    """Each row of its own size, from 0.1 to 100 times the ordinary one: a normaliser's bounds are reached on the way."""
    scaled: Numbers = x * 10 ** rng.uniform(-1, 2, (len(x), *[1] * (x.ndim - 1)))
    return scaled
