"""Numbers as json can write them."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from graph2torch.graph import Array

Found: TypeAlias = dict[str, Any]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]


def number(value: Any) -> float | str:
    """As json can write it: what is not finite becomes a text."""
    number = float(value)
    return number if math.isfinite(number) else str(number)


def numbers(array: Array) -> list[float | int | bool | str]:
    return [number(x) if isinstance(x, float) else x for x in array.reshape(-1).tolist()]


def extent(array: Array, median: bool = False, average: bool = False) -> Found:
    """Smallest and largest (and median or mean) of the finite numbers; None where there is none."""
    finite = array[np.isfinite(array)].astype(np.float64)
    found: Found = {"min": number(finite.min()) if finite.size else None}
    if median:
        found["median"] = number(_median(finite)) if finite.size else None
    if average:
        found["mean"] = number(finite.mean()) if finite.size else None
    return {**found, "max": number(finite.max()) if finite.size else None}


def _median(numbers: npt.NDArray[np.float64]) -> float:
    """As np.median, which imports numpy.ma for it: a tenth of the whole inspection."""
    ordered = np.sort(numbers)
    return float(ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2


def described(array: Array, **more: object) -> Found:
    return {**more, "shape": list(array.shape), "dtype": array.dtype.name, "numbers": array.size}


def largest(a: Floats, b: Floats, where: npt.NDArray[np.bool_]) -> float | str | None:
    """Largest |a − b| where `where`; None if that is nowhere."""
    apart = np.abs(a.astype(np.float64) - b.astype(np.float64))[where]
    return number(apart.max()) if apart.size else None
