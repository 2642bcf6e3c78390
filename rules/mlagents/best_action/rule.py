"""The deterministic action of a discrete branch: its likeliest option, the first of several equally likely ones."""

from dataclasses import replace

from graph2torch.match import Match
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = "BestAction (p) => (action) { action = ArgMax <axis = 1> (p) }"

EXAMPLE = "best (float[batch, n] p) => (int64[batch, 1] y) { y = ArgMax <axis = 1, keepdims = 1> (p) }"
NEAR_MISS = (
    "flat (float[batch, n] p) => (int64[batch] y) { y = ArgMax <axis = 1, keepdims = 0> (p) }",
    "rows (float[batch, n] p) => (int64[1, n] y) { y = ArgMax <axis = 0> (p) }",
)


def lift(match: Match) -> Block:
    return block_of(match, Expression("p.argmax(1, keepdim=True)"))


def describe(block: Block, place: Place) -> Block:
    return replace(block, role=f"head: likeliest option of branch {place.number}")
