"""ReLU, after the dense layer of ML-Agents' resnet encoder."""

from dataclasses import replace

from graph2torch.match import Match
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = "ReLU (x) => (y) { y = Relu (x) }"

EXAMPLE = "relu (float[batch, n] x) => (float[batch, n] y) { y = Relu (x) }"
NEAR_MISS = "clip (float[batch, n] x) => (float[batch, n] y) { y = Clip <min = 0.0> (x) }"


def lift(match: Match) -> Block:
    return block_of(match, Expression("torch.relu(x)"))


def describe(block: Block, place: Place) -> Block:
    return replace(block, role=f"activation of the encoder of {place.source or 'the observations'}")
