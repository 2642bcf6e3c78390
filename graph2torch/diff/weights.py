"""Two graphs' constants, held against each other pair by pair: bit-equal, or how far apart, or the same in another form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from graph2torch.graph import Array
from graph2torch.judge.figures import as_bfloat16, max_ulps, pieces, same_bits

Relation = Literal[
    "differs", "transposed", "rounded to float16", "rounded to bfloat16", "the same numbers in another type", "reshaped", "another shape", "zero of the other sign"
]  # fmt: skip
GLANCE = 64  # numbers that are looked at first


@dataclass(frozen=True, slots=True)
class Weight:
    """A pair of constants whose bits differ.

    a, b:      their names in the two graphs
    place:     what they are, where the graph was recognised: "hidden layer 2: weight"; else ""
    relation:  what b is to a; "rounded to …" also if a is what was rounded (`rounded` says which)
    differing: elements whose bits differ, of `of`; of those that both have, if the shapes are others
    max_abs:   largest |a − b|; inf if one has a NaN or an infinity where the other has another number
    max_rel:   largest |a − b| / |a|, where a isn't 0
    max_ulps:  largest distance in units in the last place of their type; None if the types are not one float type
    values:    the numbers themselves, where each has one
    """

    a: str
    b: str
    place: str
    relation: Relation
    a_shape: tuple[int, ...]
    b_shape: tuple[int, ...]
    a_dtype: str
    b_dtype: str
    differing: int
    of: int
    max_abs: float
    max_rel: float
    max_ulps: int | None
    rounded: Literal["", "a", "b"] = ""
    values: tuple[float, float] | None = None

    @property
    def relative(self) -> bool:
        """Whether `max_rel` says something: not where all that differs is 0 in a."""
        return bool(self.max_rel) or not self.max_abs


@dataclass(frozen=True, slots=True)
class Weights:
    """Constants that are used in the same place, and those that are not.

    compared, equal: pairs in all, and those whose bits, type and shape are the same; numbers, equal_numbers: elements in them
    differing:       the other pairs, in a's order
    removed, added:  constants that are used in one graph only
    renamed:         pairs of initializers under different names
    merged:          a name in b, and the several in a that it stands for; split: the other way round
    moved:           pairs of which one is an initializer and the other a node's value
    """

    compared: int
    equal: int
    numbers: int
    equal_numbers: int
    differing: tuple[Weight, ...]
    removed: tuple[str, ...]
    added: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    merged: tuple[tuple[str, tuple[str, ...]], ...]
    split: tuple[tuple[str, tuple[str, ...]], ...]
    moved: tuple[tuple[str, str], ...]


def compare_weights(
    pairs: Sequence[tuple[str, str]],
    a: Mapping[str, Array],
    b: Mapping[str, Array],
    initializers: tuple[Mapping[str, Array], Mapping[str, Array]],
    place: Callable[[str], str] = lambda _: "",
) -> Weights:
    """The constants `a` and `b` of two canonical graphs, `pairs` of which are used in the same place.

    initializers: the two files' own, which tells those from constants that are nodes; place: what a constant of a is
    """
    differing = [compare(x, y, a[x], b[y], place(x)) for x, y in pairs if not same_bits(a[x], b[y])]
    unequal = {(w.a, w.b) for w in differing}
    partners: tuple[dict[str, list[str]], dict[str, list[str]]] = ({}, {})
    for x, y in pairs:
        partners[0].setdefault(x, []).append(y)
        partners[1].setdefault(y, []).append(x)
    both = [(x, y) for x, y in pairs if x in initializers[0] and y in initializers[1]]
    return Weights(
        compared=len(pairs),
        equal=len(pairs) - len(differing),
        numbers=sum(a[x].size for x, _ in pairs),
        equal_numbers=sum(a[x].size for x, y in pairs if (x, y) not in unequal),
        differing=tuple(differing),
        removed=tuple(x for x in a if x not in partners[0]),
        added=tuple(y for y in b if y not in partners[1]),
        renamed=tuple((x, y) for x, y in both if x != y),
        merged=_several(partners[1], initializers[0], initializers[1]),
        split=_several(partners[0], initializers[1], initializers[0]),
        moved=tuple((x, y) for x, y in pairs if (x in initializers[0]) != (y in initializers[1])),
    )


def _several(
    partners: Mapping[str, Iterable[str]], theirs: Mapping[str, Array], own: Mapping[str, Array]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Initializers that have several initializers as partners."""
    found = {name: tuple(p for p in others if p in theirs) for name, others in partners.items() if name in own}
    return tuple((name, others) for name, others in found.items() if len(others) > 1)


def compare(x: str, y: str, a: Array, b: Array, place: str = "") -> Weight:
    """Two constants, of any types and shapes, whose bits differ."""
    relation, rounded = _relation(a, b)
    one, two = (a, b.reshape(a.shape)) if relation == "reshaped" else (a, b.T) if relation == "transposed" else _common(a, b)
    differing, apart, relative = _distance(one, two)
    ulps = max_ulps(one, two) if one.size and one.dtype == two.dtype else None
    return Weight(
        x, y, place, relation, a.shape, b.shape, a.dtype.name, b.dtype.name, differing, one.size, apart, relative, ulps, rounded,
        (a.item(), b.item()) if a.size == b.size == 1 else None,
    )  # fmt: skip


def _relation(a: Array, b: Array) -> tuple[Relation, Literal["", "a", "b"]]:
    if a.dtype == b.dtype:
        if a.ndim == b.ndim == 2 and a.shape == b.shape[::-1] and same_bits(np.ascontiguousarray(a.T), b):
            return "transposed", ""
        if a.shape != b.shape:
            return ("reshaped" if a.size == b.size and a.tobytes() == b.tobytes() else "another shape"), ""
        if a.dtype.kind == "f" and np.array_equal(a, b, equal_nan=True):
            return "zero of the other sign", ""
    elif a.shape != b.shape:
        return "another shape", ""
    with np.errstate(all="ignore"):
        if _to_half(a, b):
            return "rounded to float16", "b"
        if _to_half(b, a):
            return "rounded to float16", "a"
        if _to_bfloat(a, b):
            return "rounded to bfloat16", "b"
        if _to_bfloat(b, a):
            return "rounded to bfloat16", "a"
        if a.dtype != b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == b.dtype.kind == "f"):
            return "the same numbers in another type", ""
    return "differs", ""


def _to_half(a: Array, b: Array) -> bool:
    """Whether b is what rounding a to float16 makes of it, and a is no float16 itself."""
    if a.dtype.kind != "f" or b.dtype.kind != "f" or a.dtype == np.float16:
        return False
    return _rounded(a, b, lambda x: x.astype(np.float16).astype(b.dtype))


def _to_bfloat(a: Array, b: Array) -> bool:
    """Whether b is a rounded to bfloat16 (to nearest, ties to even), both held as finite float32."""
    if a.dtype != np.float32 or b.dtype != np.float32:
        return False
    return _rounded(a, b, as_bfloat16) and bool(np.isfinite(a).all())


def _rounded(a: Array, b: Array, rounding: Callable[[Array], Array]) -> bool:
    """Whether `rounding` makes b of a, and changes it by more than an accident would; most others are told apart at once."""
    x, y = a.reshape(-1), b.reshape(-1)
    return all(same_bits(rounding(x[:end]), y[:end]) for end in (GLANCE, x.size)) and _far(a, b)


def _far(a: Array, b: Array) -> bool:
    """Whether they are apart by more than a few units in the last place, as rounding to half the bits leaves them."""
    ulps = max_ulps(a, b)
    return ulps is None or ulps > 16


def _common(a: Array, b: Array) -> tuple[Array, Array]:
    """The leading part of both that both have, where the numbers of dimensions are the same; else nothing of either."""
    if a.shape == b.shape:
        return a, b
    if a.ndim != b.ndim:
        return a.reshape(-1)[:0], b.reshape(-1)[:0]
    part = tuple(slice(min(m, n)) for m, n in zip(a.shape, b.shape, strict=True))
    return a[part], b[part]


def _distance(a: Array, b: Array) -> tuple[int, float, float]:
    """Elements whose bits (or, across types, numbers) differ; the largest absolute and relative distance."""
    differing, furthest, relative = 0, 0.0, 0.0
    for x, y in pieces(a, b):
        if a.dtype == b.dtype:
            bits = f"u{a.dtype.itemsize}"
            differing += int(np.count_nonzero(np.ascontiguousarray(x).view(bits) != np.ascontiguousarray(y).view(bits)))
        else:
            differing += int(np.count_nonzero(x != y))
        with np.errstate(all="ignore"):
            one, two = x.astype(np.float64), y.astype(np.float64)
            apart = np.where((one == two) | (np.isnan(one) & np.isnan(two)), 0.0, np.abs(one - two))
            apart[~np.isfinite(apart)] = np.inf
            parts = np.where((apart == 0) | (one == 0), 0.0, apart / np.abs(one))
            parts[~np.isfinite(parts)] = np.inf
        furthest, relative = max(furthest, float(apart.max())), max(relative, float(parts.max()))
    return differing, furthest, relative
