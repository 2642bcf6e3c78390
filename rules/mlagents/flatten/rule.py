"""An image's features in one row, between the convolutions and the dense layer of a visual encoder."""

from dataclasses import replace

import numpy as np

from graph2torch.match import Match, Refusal
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = "Flatten (x, shape) => (y) { y = Reshape (x, shape) }"
CONSTANTS = ("shape",)

EXAMPLE = (
    "flatten (float[batch, 2, 3, 4] x) => (float[batch, 24] y) { shape = Constant <value = int64[2] {-1, 24}> () y = Reshape (x, shape) }"
)
NEAR_MISS = (
    "pixels (float[batch, 2, 3, 4] x) => (float[batch, 6, 4] y) { shape = Constant <value = int64[3] {-1, 6, 4}> () y = Reshape (x, shape) }",
    "batch (float[batch, 2, 3, 4] x) => (float[batch, 24] y) { shape = Constant <value = int64[2] {0, -1}> () y = Reshape (x, shape) }",
)


def check(match: Match) -> Refusal | None:
    shape = match.constant("shape")
    if shape.shape != (2,) or shape.dtype != np.int64 or shape[0] != -1 or shape[1] < 1:
        return Refusal(f"its new shape is {shape.reshape(-1)[:8].tolist()}, not one row of features an agent", match.nodes[0])
    return None


def lift(match: Match) -> Block:
    return block_of(match, Expression(f"x.reshape(-1, {match.constant('shape')[1]})"))


def describe(block: Block, place: Place) -> Block:
    return replace(block, role=f"encoder of {place.source or 'the observations'}: features in one row")
