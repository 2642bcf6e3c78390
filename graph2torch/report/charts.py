"""Tensors and errors as numbers that can be drawn: histograms, the normaliser's statistics, errors on a logarithmic scale.

A tensor is looked at here and never gets into a page: a page holds some dozens of numbers of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from graph2torch.graph import Array

Floats = npt.NDArray[np.floating[Any]]

BINS = 48
COLUMNS = 2_000  # of a normaliser, that are drawn one by one
CLIP = 5.0  # the normaliser's bounds, in standard deviations


class Histogram(NamedTuple):
    """How a tensor's finite numbers lie between the smallest and the largest, in `BINS` bins of one width.

    path: SVG, the outline of the counts in a box of 192 × 48 pixels; zero: where 0 lies across it, None if outside
    odd:  how many numbers are NaN or infinite
    """

    size: int
    low: float
    high: float
    mean: float
    std: float
    zeros: int
    odd: int
    path: str
    zero: float | None


def histogram(array: Array, width: float = 192, height: float = 48) -> Histogram | None:
    """The histogram of a numeric tensor of any shape; None if it is empty or holds no finite number."""
    values = np.asarray(array, dtype=np.float64 if array.dtype.kind != "f" or array.dtype.itemsize > 4 else np.float32).reshape(-1)
    finite = np.isfinite(values)
    odd = int(values.size - np.count_nonzero(finite))
    if odd:
        values = values[finite]
    if not values.size:
        return None
    low, high = float(values.min()), float(values.max())
    mean, std = float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64))
    counts = np.zeros(BINS, dtype=np.int64)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scale = BINS / (high - low) if high > low else 0.0
        if math.isfinite(scale) and scale:
            places = np.minimum(((values - values.dtype.type(low)) * values.dtype.type(scale)).astype(np.int32), BINS - 1)
            counts += np.bincount(np.maximum(places, 0), minlength=BINS)[:BINS]
        else:  # one number, or so far apart that the width is no number
            counts[BINS // 2] = values.size
    top = int(counts.max())
    step = width / BINS
    path = [f"M0 {height:g}"]
    for count in counts.tolist():
        y = height - (max(height * count / top, 1.0) if count else 0.0)  # one number among many is seen as well
        path.append(f"V{y:.1f}h{step:g}")
    zero = None if not low <= 0 <= high or high == low else width * (0 - low) / (high - low)
    return Histogram(
        array.size, low, high, mean, std, int(values.size - np.count_nonzero(values)), odd, "".join(path) + f"V{height:g}Z", zero
    )


class Tick(NamedTuple):
    at: float
    label: str


class Statistics(NamedTuple):
    """A normaliser's columns in a drawing of `width` × `height` pixels: what the clip lets through, mean ± 5 std, and the mean.

    bands, means, constant: SVG paths; of constant columns there is no band
    linear:  the scale is linear; else it is asinh(value / unit): linear near 0, logarithmic beyond
    columns: mean and std of each column, to four digits
    never:   the columns that held one value throughout training
    """

    width: float
    height: float
    bands: str
    means: str
    constant: str
    ticks: tuple[Tick, ...]
    numbers: tuple[Tick, ...]
    linear: bool
    unit: float
    columns: tuple[tuple[float, float], ...]
    never: tuple[int, ...]
    total: int


def statistics(mean: Floats, std: Floats, never: Sequence[int], width: float = 960, height: float = 260) -> Statistics:
    """The drawing of mean and std [n], of at most `COLUMNS` columns; `never`: columns that never changed in training."""
    total = mean.size
    mean, std = (np.nan_to_num(x[:COLUMNS].astype(np.float64), nan=0.0, posinf=3e38, neginf=-3e38) for x in (mean, std))
    held = [i for i in never if i < mean.size]
    changes = np.ones(mean.size, dtype=bool)
    changes[held] = False
    moving = np.flatnonzero(changes)
    low, high = mean - CLIP * std, mean + CLIP * std
    reach = np.maximum(np.abs(low), np.abs(high))
    ordered = np.sort(reach[moving] if moving.size else reach)
    usual = float(ordered[ordered.size // 2]) if ordered.size else 1.0  # np.median would import numpy.ma, half the time of the page
    usual = usual if usual > 0 else 1.0
    linear = not reach.size or float(reach.max()) <= 8 * usual
    unit = 1.0 if linear else usual / 4

    def scaled(x: npt.ArrayLike) -> Floats:
        return np.asarray(x, dtype=np.float64) if linear else np.arcsinh(np.asarray(x, dtype=np.float64) / unit)

    ends = scaled([min(float(low.min(initial=0)), 0.0), max(float(high.max(initial=0)), 0.0)])
    span = float(ends[1] - ends[0]) or 1.0

    def down(x: npt.ArrayLike) -> Floats:
        return np.asarray(height - 12 - (height - 24) * (scaled(x) - ends[0]) / span)

    step = width / max(mean.size, 1)
    across = (np.arange(mean.size) + 0.5) * step
    top, bottom, centre = down(high), down(low), down(mean)
    bands = "".join(f"M{across[i]:.1f} {top[i]:.1f}V{bottom[i]:.1f}" for i in moving)
    means = "".join(f"M{across[i]:.1f} {centre[i]:.1f}h0" for i in moving)
    constant = "".join(f"M{across[i] - 3:.1f} {centre[i] - 3:.1f}l6 6m0 -6l-6 6" for i in held)
    every = max(1, math.ceil(mean.size / 12))
    every = next(n for n in (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000) if n >= every)
    numbers = tuple(Tick(round(float(across[i]), 1), str(i)) for i in range(0, mean.size, every))
    ticks = tuple(
        Tick(round(float(down(v)), 1), shortly(v)) for v in _marks(float(low.min(initial=0)), float(high.max(initial=0)), linear, unit)
    )
    columns = tuple((float(f"{m:.4g}"), float(f"{s:.4g}")) for m, s in zip(mean, std, strict=True))
    return Statistics(width, height, bands, means, constant, ticks, numbers, linear, unit, columns, tuple(held), total)


def _marks(low: float, high: float, linear: bool, unit: float) -> list[float]:
    """Round numbers in a range: about six, or 0 and powers of ten."""
    if linear:
        rough = (max(high, 0) - min(low, 0)) / 6 or 1.0
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * n for n in (1, 2, 2.5, 5, 10) if power * n >= rough)
        return [step * i for i in range(math.ceil(min(low, 0) / step), math.floor(max(high, 0) / step) + 1)]
    first, last = math.floor(math.log10(unit)) + 1, math.floor(math.log10(max(-low, high, unit)))
    every = max(1, (last - first + 1) // 4)
    powers = [10.0**p for p in range(first, last + 1, every)]
    if len(powers) < 3:
        powers = sorted({*powers, *(3 * p for p in (10.0 ** (first - 1), *powers)), 10.0 ** (first - 1)})
        powers = [p for p in powers if p > unit / 2]
    return [-p for p in powers if p <= -low] + [0.0] + [p for p in powers if p <= high]


def shortly(number: float, digits: int = 4) -> str:
    """A number for people: up to `digits` digits, a true minus."""
    if number == 0:
        return "0"
    if not math.isfinite(number):
        return {math.inf: "∞", -math.inf: "−∞"}.get(number, "NaN")
    text = (
        f"{number:.{digits}g}"
        if abs(number) < 10**6 and number != int(number)
        else f"{number:.4g}"
        if abs(number) >= 10**6
        else f"{number:g}"
    )
    if "e" in text:
        mantissa, _, exponent = text.partition("e")
        text = f"{float(text):g}" if 1 <= abs(number) < 10**6 else f"{mantissa}e{int(exponent)}"
    return text.replace("-", "−")


def exactly(number: float) -> str:
    """A single number as it is, as far as float32 tells it apart."""
    return f"{int(number):,}".replace("-", "−") if math.isfinite(number) and number == int(number) else shortly(number, 9)


class ErrorRow(NamedTuple):
    """An error on the scale: how far along, in percent; where its limit lies; None for an error of 0, which no logarithm has."""

    label: str
    module: str
    error: float
    at: float | None
    limit: float | None
    limit_at: float | None
    ulps: str
    differing: str
    largest: float
    within: bool
    block: int | None = None


class ErrorChart(NamedTuple):
    rows: tuple[ErrorRow, ...]
    ticks: tuple[Tick, ...]


class Measured(NamedTuple):
    """An error that was measured: its largest absolute value, and the most that it may be; what else is said about it."""

    label: str
    error: float
    limit: float | None
    ulps: str
    differing: str
    largest: float
    module: str = ""
    block: int | None = None


def error_chart(measured: Sequence[Measured]) -> ErrorChart | None:
    """Errors and their limits on one logarithmic scale of whole powers of ten, as percent of its width; None if there are none."""
    if not measured:
        return None
    known = [x for m in measured for x in (m.error, m.limit) if x is not None and 0 < x < math.inf]
    low = math.floor(math.log10(min(known))) if known else -7
    high = math.ceil(math.log10(max(known))) if known else 0
    high = max(high, low + 1)

    def at(x: float | None) -> float | None:
        if x is None or not x > 0:
            return None
        return 100.0 if x == math.inf else round(100 * (math.log10(x) - low) / (high - low), 2)

    every = max(1, math.ceil((high - low) / 6))
    ticks = tuple(Tick(round(100 * (p - low) / (high - low), 2), f"1e{p}".replace("-", "−")) for p in range(low, high + 1, every))
    rows = tuple(
        ErrorRow(
            m.label, m.module, m.error, at(m.error), m.limit, at(m.limit), m.ulps, m.differing, m.largest,
            m.limit is None or m.error <= m.limit, m.block,
        )
        for m in measured
    )  # fmt: skip
    return ErrorChart(rows, ticks)
