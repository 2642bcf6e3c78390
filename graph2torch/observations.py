"""Observations that are made up: ordinary, extreme, zeros of both signs, subnormal, huge, not finite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from .graph import Array, ValueInfo

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
TORCH_KINDS = ("ordinary", "zero", "minus zero", "subnormal")


def quick(inputs: Sequence[ValueInfo], seed: int) -> Iterable[tuple[str, str, dict[str, Array]]]:
    for batch, kind in QUICK:
        label = f"batch {batch} {kind}"
        rng = np.random.default_rng([seed, batch, *kind.encode()])
        yield label, kind, {i.name: observation(i, batch, kind, rng) for i in inputs}


def like(samples: Sequence[Mapping[str, Array]], seed: int) -> Iterable[tuple[str, str, dict[str, Array]]]:
    for number, sample in enumerate(samples):
        yield f"sample {number}", "ordinary", dict(sample)
        for _, kind in QUICK:
            label = f"like sample {number}, {kind}"
            rng = np.random.default_rng([seed, number, *kind.encode()])
            values = {k: ValueInfo(k, v.dtype, v.shape) for k, v in sample.items() if v.dtype.kind == "f" and v.size}
            if values:
                yield label, kind, dict(sample) | {k: observation(value, 1, kind, rng) for k, value in values.items()}


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
    return x.astype(value.dtype)
