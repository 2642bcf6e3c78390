"""The layout of a buffer sensor that ML-Agents 0.2x exported: features and entities swapped, then read as if they were not.

Those versions exported for an inference engine whose tensors have the features before the entities, so the graph turns each buffer
round before it uses it.
"""

from dataclasses import replace

import numpy as np

from graph2torch.match import Match, Refusal
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = """EntityLayout (x, shape) => (y) {
    t = Transpose <perm = [0, 2, 1]> (x)
    y = Reshape (t, shape)
}"""
CONSTANTS = ("shape",)

EXAMPLE = """turned (float[batch, 4, 3] x) => (float[batch, 4, 3] y) {
    t = Transpose <perm = [0, 2, 1]> (x) shape = Constant <value = int64[3] {-1, 4, 3}> () y = Reshape (t, shape) }"""
NEAR_MISS = (
    EXAMPLE.replace("turned", "batch").replace("[0, 2, 1]", "[1, 0, 2]"),
    EXAMPLE.replace("turned", "flat")
    .replace("int64[3] {-1, 4, 3}", "int64[2] {-1, 12}")
    .replace("(float[batch, 4, 3] y)", "(float[batch, 12] y)"),
)


def check(match: Match) -> Refusal | None:
    shape = match.constant("shape")
    if shape.shape != (3,) or shape[0] != -1 or min(shape[1:]) < 1 or shape.dtype != np.int64:
        return Refusal(f"its new shape is {shape.reshape(-1)[:8].tolist()}, not [-1, entities, features]", match.nodes[1])
    return None


def lift(match: Match) -> Block:
    _, entities, features = match.constant("shape").tolist()
    return block_of(match, Expression(f"x.transpose(2, 1).reshape(-1, {entities}, {features})"))


def describe(block: Block, place: Place) -> Block:
    return replace(block, label=f"entities{place.suffix}", role=f"entities of {place.source or 'the buffer'}, turned round")
