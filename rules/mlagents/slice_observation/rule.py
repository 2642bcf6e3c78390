"""One observation of several: ML-Agents before 2.0 gave all vector observations as one input and sliced it."""

from dataclasses import replace

import numpy as np

from graph2torch.match import Match, Refusal
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = "SliceObservation (x, starts, ends, axes) => (y) { y = Slice (x, starts, ends, axes) }"
CONSTANTS = ("starts", "ends", "axes")

EXAMPLE = (
    "first (float[batch, 7] x) => (float[batch, 3] y) { y = Slice <starts = [0], ends = [3], axes = [1]> (x) }",
    "rest (float[batch, 7] x) => (float[batch, 4] y) { y = Slice <starts = [3], ends = [7], axes = [1]> (x) }",
)
NEAR_MISS = (
    "rows (float[batch, 7] x) => (float[k, 7] y) { y = Slice <starts = [0], ends = [3], axes = [0]> (x) }",
    "corner (float[batch, 7] x) => (float[k, 3] y) { y = Slice <starts = [0, 0], ends = [2, 3], axes = [1, 0]> (x) }",
)


def check(match: Match) -> Refusal | None:
    if not all(np.array_equal(match.constant(name).shape, (1,)) for name in CONSTANTS):
        return Refusal("it slices several axes at once", match.nodes[0])
    if match.constant("axes")[0] != 1:
        return Refusal(f"it slices axis {match.constant('axes')[0]}, not the features", match.nodes[0])
    return None


def lift(match: Match) -> Block:
    start, end = int(match.constant("starts")[0]), int(match.constant("ends")[0])
    return block_of(match, Expression(f"x[:, {start}:{end}]" if end < 2**31 else f"x[:, {start}:]"))


def describe(block: Block, place: Place) -> Block:
    if place.source == "action_masks":
        return replace(block, role=f"mask of branch {place.turn}")
    columns = block.code.text.removeprefix("x[:, ").removesuffix("]") if isinstance(block.code, Expression) else ""
    return replace(block, role=f"columns {columns} of {place.source or 'several'}")
