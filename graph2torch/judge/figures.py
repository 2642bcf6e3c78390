"""How far two arrays are from each other: by bits, absolutely, in units in the last place (ULP), by angle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graph2torch.graph import Array

TOLERANCE = 1e-5
_INTEGERS = {2: np.int16, 4: np.int32, 8: np.int64}
PIECE = 2**15  # numbers that are looked at together: what is computed with them stays in the cache


@dataclass(frozen=True, slots=True)
class Figures:
    """How far an output is from its reference, over everything tried. Floats; for integers `differing` counts."""

    output: str
    compared: int
    differing: int
    max_abs: float
    max_ulps: int | None
    cosine: float | None
    reference_max: float

    def within(self, tolerance: float = TOLERANCE) -> bool:
        return bool(self.max_abs <= tolerance * max(1.0, self.reference_max))


def finite(entry: Mapping[str, Any]) -> dict[str, Any]:
    """`entry` as JSON can hold it: numbers that are not finite become words."""
    return {k: str(v) if isinstance(v, float) and not np.isfinite(v) else v for k, v in entry.items()}


class Tally:
    def __init__(self, name: str) -> None:
        self.name, self.compared, self.differing, self.max_abs, self.ulps, self.top = name, 0, 0, 0.0, 0, 0.0
        self.dot, self.norms = 0.0, [0.0, 0.0]
        self.comparable = True

    def add(self, a: Array, b: Array) -> None:
        if a.shape != b.shape or a.dtype != b.dtype:
            self.compared += a.size
            self.differing += max(a.size, 1)
            self.max_abs = float("inf")
            self.comparable = False
            return
        same = different_bits(a, b)
        self.compared += a.size
        self.differing += int(same.sum())
        if not a.size:
            self.compared += 1  # empty, and equally so
            return
        x, y = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
        if not np.array_equal(np.isnan(x), np.isnan(y)):
            self.max_abs = float("inf")
        finite = np.isfinite(x) & np.isfinite(y)
        if (x[~finite & ~np.isnan(x)] != y[~finite & ~np.isnan(x)]).any():
            self.max_abs = float("inf")
        x, y = x[finite], y[finite]
        self.max_abs = max(self.max_abs, float(np.max(np.abs(x - y), initial=0.0)))
        self.top = max(self.top, float(np.max(np.abs(x), initial=0.0)))
        with np.errstate(over="ignore"):
            self.dot += float(x @ y)
            self.norms[0] += float(x @ x)
            self.norms[1] += float(y @ y)
        far = max_ulps(np.where(np.isfinite(a), a, 0), np.where(np.isfinite(a), b, 0)) if a.dtype == np.float32 else None
        self.ulps = max(self.ulps, far or 0)

    def figures(self) -> Figures:
        scale = (self.norms[0] * self.norms[1]) ** 0.5
        cosine = min(1.0, self.dot / scale) if self.comparable and 0 < scale < float("inf") else None
        return Figures(self.name, self.compared, self.differing, self.max_abs, self.ulps if self.comparable else None, cosine, self.top)


def joined(a: Tally, b: Tally) -> Figures:
    """The figures over what either has counted."""
    both = Tally(a.name)
    both.compared, both.differing = a.compared + b.compared, a.differing + b.differing
    both.max_abs, both.ulps, both.top = max(a.max_abs, b.max_abs), max(a.ulps, b.ulps), max(a.top, b.top)
    both.dot, both.norms = a.dot + b.dot, [x + y for x, y in zip(a.norms, b.norms, strict=True)]
    both.comparable = a.comparable and b.comparable
    return both.figures()


def different_bits(a: Array, b: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where two arrays of one type and shape differ bit by bit; NaN equals NaN whatever its payload."""
    if a.dtype.kind != "f":
        return np.asarray(a != b)
    bits = f"u{a.dtype.itemsize}"
    differ = np.ascontiguousarray(a).view(bits) != np.ascontiguousarray(b).view(bits)
    return np.asarray(differ & ~(np.isnan(a) & np.isnan(b))).reshape(a.shape)


def same_bits(a: Array, b: Array) -> bool:
    """Same type, shape and bits (−0 is not 0, and a NaN equals only its own bits)."""
    return a.dtype == b.dtype and a.shape == b.shape and all(x.tobytes() == y.tobytes() for x, y in pieces(a, b))


def pieces(a: Array, b: Array) -> Iterator[tuple[Array, Array]]:
    """Two arrays of one shape, flat, piece by piece."""
    x, y = a.reshape(-1), b.reshape(-1)
    for start in range(0, x.size, PIECE):
        yield x[start : start + PIECE], y[start : start + PIECE]


def as_bfloat16(x: Array) -> Array:
    """float32 rounded to bfloat16 (to nearest, ties to even) and held as float32 again; NaN aside."""
    bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def max_ulps(a: Array, b: Array) -> int | None:
    """The largest distance in units in the last place of one float type; None for other types, and if a NaN is among them."""
    if a.dtype != b.dtype or a.dtype.kind != "f" or np.isnan(a).any() or np.isnan(b).any():
        return None
    unsigned, largest = f"u{a.dtype.itemsize}", 0
    for one, two in pieces(a, b):
        x, y = _ordered(one), _ordered(two)
        apart = np.maximum(x, y).view(unsigned) - np.minimum(x, y).view(unsigned)  # modulo 2ⁿ: right for numbers of either sign
        largest = max(largest, int(apart.max()))
    return largest


def _ordered(a: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.signedinteger[Any]]]:
    """Floats as integers in the same order, neighbours one apart, −0 equal to 0."""
    bits = np.ascontiguousarray(a).view(_INTEGERS[a.dtype.itemsize])
    return np.where(bits < 0, np.iinfo(bits.dtype).min - bits, bits)
