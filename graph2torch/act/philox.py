"""Noise that depends on nothing but its place: the same numbers on every machine, for every batch and in every order.

A number of a draw is found by its seed, agent, step, draw and place; nothing is kept between two of them.

    words   Philox 4×32 with 10 rounds (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3, SC 2011)
            key      seed mod 2³², seed div 2³²
            counter  place div 4, draw, step, agent
            a counter gives four words of 32 bits, for places 4k, 4k + 1, 4k + 2, 4k + 3
    uniform (word div 2⁸) / 2²⁴: float32 in [0, 1)
    normal  Φ⁻¹((word + ½) / 2³²) by algorithm AS 241, PPND16 (Wichura, Applied Statistics 37, 1988), rounded to float32

Everything is exact or made of float64's + − × ÷ √, which IEEE 754 rounds alike everywhere; the logarithm that AS 241 needs in
the tails is a series here, since no two mathematical libraries need agree on its last bit. Test vectors are in
docs/running.md and tests/act/test_philox.py.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = "npt.NDArray[np.uint64]"
Float32: TypeAlias = "npt.NDArray[np.float32]"
Float64: TypeAlias = "npt.NDArray[np.float64]"

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
LIMIT = 2**32  # of agents, steps, draws and places; the seed has twice as many bits
LN2 = 0.6931471805599453


def philox(seed: int, c0: Words, c1: Words, c2: Words, c3: Words) -> Words:
    """The four words of each counter, [..., 4] for counters that broadcast to [...]; every word is below 2³²."""
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(ROUNDS):
        product0, product1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (product1 >> HALF) ^ c1 ^ np.uint64(k0), product1 & LOW, (product0 >> HALF) ^ c3 ^ np.uint64(k1), product0 & LOW
        k0, k1 = (k0 + WEYL[0]) & 0xFFFFFFFF, (k1 + WEYL[1]) & 0xFFFFFFFF
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1)


def words(seed: int, agents: npt.NDArray[Any], steps: npt.NDArray[Any], draw: int, count: int) -> Words:
    """The first `count` words of a draw, [n, count], for n agents, each at a step of its own (both [n], below 2³²)."""
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    agents, steps = agents.astype(np.uint64)[:, None], steps.astype(np.uint64)[:, None]
    return philox(seed, blocks[None], np.full_like(blocks[None], draw), steps, agents).reshape(len(agents), -1)[:, :count]


def uniform(word: Words) -> Float32:
    """In [0, 1), in steps of 2⁻²⁴."""
    numbers: Float32 = (word >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24)
    return numbers


def normal(word: Words) -> Float32:
    """Standard normal, between −6.34 and 6.34."""
    p = (word.astype(np.float64) + 0.5) * 2.0**-32
    q = p - 0.5
    r = 0.180625 - q * q
    z = q * _polynomial(r, *CENTRAL[0]) / _polynomial(r, *CENTRAL[1])
    tail = np.abs(q) > 0.425
    if tail.any():
        r = np.sqrt(-_logarithm(np.minimum(p[tail], 1.0 - p[tail])))
        near, far = (_polynomial(r - start, *a) / _polynomial(r - start, *b) for start, (a, b) in ((1.6, NEAR), (5.0, FAR)))
        z[tail] = np.copysign(np.where(r <= 5.0, near, far), q[tail])
    return z.astype(np.float32)


def _polynomial(x: Float64, *coefficients: float) -> Float64:
    """By Horner, the highest power's coefficient first."""
    total = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total


def _logarithm(x: Float64) -> Float64:
    """ln x = e · ln 2 + 2 · artanh((m − 1) / (m + 1)) for x = m · 2ᵉ, m in [√½, √2)."""
    m, e = np.frexp(x)
    small = m < 0.7071067811865476
    m, e = np.where(small, 2.0 * m, m), e - small
    s = (m - 1.0) / (m + 1.0)
    return e * LN2 + 2.0 * s * _polynomial(s * s, *(1.0 / k for k in range(25, 0, -2)))


# Numerator and denominator for |p − ½| ≤ 0.425, for √(−ln p) ≤ 5 and beyond it, as in AS 241; the highest power first.
CENTRAL = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
NEAR = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip
FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)  # fmt: skip
