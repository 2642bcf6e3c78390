"""An image given by rows, columns and channels, turned to channels, rows and columns, as convolutions take it.

Unity's cameras give the former; ML-Agents' releases for torch before 1.0 turned it inside the graph.
"""

from dataclasses import replace

from graph2torch.match import Match
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = "ChannelsFirst (x) => (y) { y = Transpose <perm = [0, 3, 1, 2]> (x) }"

EXAMPLE = "image (float[batch, h, w, c] x) => (float[batch, c, h, w] y) { y = Transpose <perm = [0, 3, 1, 2]> (x) }"
NEAR_MISS = "last (float[batch, c, h, w] x) => (float[batch, h, w, c] y) { y = Transpose <perm = [0, 2, 3, 1]> (x) }"


def lift(match: Match) -> Block:
    return block_of(match, Expression("x.permute(0, 3, 1, 2)"))


def describe(block: Block, place: Place) -> Block:
    return replace(block, role=f"channels of {place.source or 'the image'} first")
