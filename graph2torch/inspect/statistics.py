"""A normaliser's statistics: which columns hardly vary, what is odd, and how far other formulas would be off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graph2torch.bind import roots
from graph2torch.graph import Array
from graph2torch.text import printable

from .numbers import Floats, Found, extent, largest, number

CLIP = 5.0  # the normaliser's bounds
NARROW = 0.005  # a std below NARROW · max(1, |mean|) clips what is off the mean by 2.5 % of that
CONSTANT = 1e-3  # relative room for rounding when a column is called constant
VARIANCE_LIMIT = 1e12  # per step: a std of a million
EPS = 1e-5  # what the naive formulas add, as batch normalisation does
GRID = tuple(k / 2 for k in range(-12, 13))  # observations tried: mean + k · std


def saturating(mean: Floats, std: Floats, constant: Iterable[int] = ()) -> Found:
    """Columns in which hardly anything but the mean stays within the clip.

    A column is listed if std < NARROW · max(1, |mean|), or if it is one of `constant`. ML-Agents starts with a variance
    of 1, so a column that never changes keeps a std of about sqrt((1 + mean²) / steps), however far that shrinks.
    """
    narrow = np.flatnonzero(std < NARROW * np.maximum(1.0, np.abs(mean)))
    never = frozenset(constant)
    columns = [
        {
            "column": i,
            "mean": number(mean[i]),
            "std": number(std[i]),
            "clipped_beyond": number(CLIP * float(std[i])),
            "constant": i in never,
        }
        for i in sorted({*narrow.tolist(), *never})
    ]
    threshold = f"std < {NARROW} · max(1, |mean|)" + (", or constant in training" if never else "")
    return {"saturating": columns, "threshold": threshold}


@dataclass(frozen=True)
class TrainedNormalizer:
    """A normaliser's tensors: mean [n], variance [n] (a sum over all steps) and the steps, one number."""

    name: str
    mean: Floats
    variance: Floats
    steps: int

    @property
    def std(self) -> Floats:
        return roots(self.variance, np.asarray(self.steps))["double"].astype(np.float32)

    def constant(self) -> list[int]:
        """Columns that held one value c throughout training.

        From mean 0 and variance 1 at step 1, N times c leads to a mean of c · N / (N + 1) and to a variance of
        1 + c² · N / (N + 1), which is 1 + mean² · (N + 1) / N; any change of the observation adds to it.
        """
        if self.steps <= 1:
            return []
        with np.errstate(all="ignore"):
            least = 1 + self.mean.astype(np.float64) ** 2 * self.steps / (self.steps - 1)
            held = (self.variance >= 0) & (self.variance <= least * (1 + CONSTANT))
        return [int(i) for i in np.flatnonzero(held)]


def trained_normalizers(tensors: Mapping[str, Array]) -> Iterator[TrainedNormalizer]:
    suffix = ".running_variance"
    for key, variance, same in distinct(tensors):
        prefix = key.removesuffix(suffix)
        mean, steps = tensors.get(f"{prefix}.running_mean"), tensors.get(f"{prefix}.normalization_steps")
        if same is not None or prefix == key or mean is None or steps is None:
            continue
        if variance.ndim == 1 and mean.shape == variance.shape and steps.size == 1 and variance.dtype.kind == mean.dtype.kind == "f":
            with np.errstate(all="ignore"):
                count = int(steps.astype(np.int64).reshape(()))
            yield TrainedNormalizer(prefix, mean.astype(np.float32), variance.astype(np.float32), count)


def distinct(tensors: Mapping[str, Array]) -> Iterator[tuple[str, Array, str | None]]:
    """Each tensor with the earlier name of the same memory, if it has one: ML-Agents registers its encoders twice."""
    seen: dict[tuple[object, ...], str] = {}
    for name, array in tensors.items():
        place = (array.__array_interface__["data"][0], array.shape, array.dtype.str)
        earlier = seen.setdefault(place, name) if array.size else name
        yield name, array, None if earlier == name else earlier


def trained(n: TrainedNormalizer) -> Found:
    with np.errstate(all="ignore"):
        variance = n.variance / np.float32(n.steps)
    return {
        "name": n.name,
        "features": n.mean.size,
        "steps": n.steps,
        "mean": extent(n.mean),
        "running_variance": extent(n.variance),
        "variance": extent(variance),
        "std": extent(n.std, median=True),
        **saturating(n.mean, n.std, n.constant()),
    }


def faults(n: TrainedNormalizer) -> Iterator[str]:
    """What is odd in a normaliser's statistics, columns named."""
    where = f"{printable(n.name)}.running_variance"
    with np.errstate(all="ignore"):
        negative, huge = np.flatnonzero(n.variance < 0), np.flatnonzero(n.variance / np.float64(n.steps) > VARIANCE_LIMIT)
    if negative.size:
        yield f"{where}: negative in {listed(negative, n.variance)}; its square root is NaN"
    if huge.size:
        yield f"{where}: more than {VARIANCE_LIMIT:.0e} a step in {listed(huge, n.variance)}; whatever is observed there becomes nearly 0"
    if n.steps == 1:
        yield f"{printable(n.name)}.normalization_steps is 1: it was never updated, so mean 0 and std 1 are where it started, not statistics"
    elif n.steps < 1:
        yield f"{printable(n.name)}.normalization_steps is {n.steps:,}; it counts from 1"
    if never := n.constant():
        columns = listed(np.asarray(never), n.std, "std ")
        yield f"{where}: {columns} never changed in training; any other value is clipped to ±{CLIP:g} once it is {CLIP:g} std away"


def listed(indices: npt.NDArray[np.intp], values: Floats, label: str = "", limit: int = 6) -> str:
    """`columns 3 (-1.5), 4 (-2) and 7 more`: the first `limit` by number and value."""
    shown = ", ".join(f"{i} ({label}{values[i]:.4g})" for i in indices[:limit].tolist())
    more = f" and {indices.size - limit} more" if indices.size > limit else ""
    return f"column{'s' if indices.size > 1 else ''} {shown}{more}"


def formula_errors(mean: Floats, std: Floats, variance: Floats, steps: int) -> list[Found]:
    """How far off the normalised observations would be, had the std been computed otherwise.

    mean, std: [n], as the graph has them; variance: [n] and steps: as the checkpoint has them.

    The observations are mean + k · std, rounded to float32, for every column and every k of GRID (−6 … 6 in halves). The
    reference is (x − mean) / std in float32 with the graph's std. Each formula's own std replaces the graph's, also in
    float32; "float16 statistics" holds mean, variance, steps and observations in float16 and computes there. Given for
    each formula:

    std:         largest |its std − the graph's|
    before_clip: largest |its normalised observation − the reference|
    after_clip:  the same, both clipped to ±5
    not_finite:  normalised observations that are NaN or infinite where the reference is a number
    of:          normalised observations compared
    overflowed:  statistics that became infinite by the conversion to float16

    Errors are over the finite numbers only; None where there is none.
    """
    with np.errstate(all="ignore"):
        total, count = variance.astype(np.float32), np.float32(steps)
        half_mean, half_total, half_count = mean.astype(np.float16), total.astype(np.float16), count.astype(np.float16)
        candidates: list[tuple[str, str, Floats, Floats]] = [
            ("right", "sqrt(running_variance / normalization_steps)", mean, np.sqrt(total / count)),
            ("naive, with eps", f"sqrt(running_variance + {EPS:g})", mean, np.sqrt(total + np.float32(EPS))),
            ("naive", "sqrt(running_variance)", mean, np.sqrt(total)),
            (
                "divided, with eps",
                f"sqrt(running_variance / normalization_steps + {EPS:g})",
                mean,
                np.sqrt(total / count + np.float32(EPS)),
            ),
            ("float16 statistics", "sqrt(running_variance / normalization_steps), in float16", half_mean, np.sqrt(half_total / half_count)),
        ]
        overflowed = sum(
            int((np.isinf(half) & np.isfinite(full)).sum()) for half, full in ((half_mean, mean), (half_total, total), (half_count, count))
        )
        observations = (mean + np.outer(GRID, std.astype(np.float64))).astype(np.float32)
        reference = (observations - mean) / std
        usable = np.isfinite(reference)
        found: list[Found] = []
        for name, formula, center, scale in candidates:
            given = (observations.astype(center.dtype) - center) / scale
            finite = usable & np.isfinite(given)
            found.append(
                {
                    "name": name,
                    "formula": formula,
                    "std": largest(scale, std, np.isfinite(scale) & np.isfinite(std)),
                    "before_clip": largest(given, reference, finite),
                    "after_clip": largest(given.clip(-CLIP, CLIP), reference.clip(-CLIP, CLIP), finite),
                    "not_finite": int((usable & ~finite).sum()),
                    "of": int(usable.sum()),
                    "overflowed": overflowed if center.dtype == np.float16 else 0,
                }
            )
    return found
