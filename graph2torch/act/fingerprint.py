"""A fingerprint of an action sequence, to see whether two machines agree: one of the bits, and one that rounding does not change.

exact     sha256 over the actions in order, continuous before discrete, each [steps, agents, …] in C order: float32 and int64,
          little endian
tolerant  K = 8 numbers: round(2¹⁴ · Σⱼ s(k, j) · a(j) / √N) over all N actions a in that order, s = ±1 by bit k of word j of the noise
          with seed, agent and step 0 in draw 2³² − 1. Two agree if none of the numbers differs by more than 1.

Why not a hash of rounded actions: some action always lies near an edge of rounding, and then everything differs. Each of the 8 is
a sum with random signs, which moves by as much as the actions do on average (root mean square): 1e-5 moves it by 0.16 of its
unit, and float32's rounding by a hundredth of that. What it can't see: one action of N that is off by less than about √N / 2¹⁴
(0.003 for N = 2,688), or all that are off by less than about 6e-5. A discrete action that rounding turned into another one is
seen, as it must be.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from . import philox

if TYPE_CHECKING:
    from graph2torch.graph import Array

COUNT = 8
UNIT = 2.0**-14
TOLERANT = re.compile(rf"t([+-]\d{{1,18}}){{{COUNT}}}")
EXACT = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Fingerprint:
    """exact: 64 hexadecimal digits; tolerant: `t` and 8 signed numbers, "" if some action is not finite; numbers: how many actions."""

    exact: str
    tolerant: str
    numbers: int

    def agrees(self, expected: str) -> bool:
        """Whether `expected`, an exact or a tolerant fingerprint, is this one."""
        if not TOLERANT.fullmatch(expected) or not self.tolerant:
            return expected == self.exact
        mine, theirs = (list(map(int, re.findall(r"[+-]\d+", text))) for text in (self.tolerant, expected))
        return all(abs(a - b) <= 1 for a, b in zip(mine, theirs, strict=True))


def fingerprint(actions: Mapping[str, Array]) -> Fingerprint:
    """Of actions by name, each [steps, agents, …], in the order of the mapping."""
    arrays = [np.ascontiguousarray(a, "<f4" if a.dtype.kind == "f" else "<i8") for a in actions.values()]
    exact = hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()
    flat = np.concatenate([a.astype(np.float64).reshape(-1) for a in arrays]) if arrays else np.zeros(0)
    if not np.isfinite(flat).all():
        return Fingerprint(exact, "", flat.size)
    zero = np.zeros(1, np.int64)
    word = philox.words(0, zero, zero, philox.LIMIT - 1, flat.size)[0]
    sums = [float(np.sum(np.where(word >> np.uint64(k) & np.uint64(1), flat, -flat))) for k in range(COUNT)]
    return Fingerprint(exact, "t" + "".join(f"{round(x / max(flat.size, 1) ** 0.5 / UNIT):+d}" for x in sums), flat.size)
