"""The action of a Q-network: the option of the highest value, a forbidden one counting as 0 (ML-Agents' DQN example).

Where all values are negative, that prefers a forbidden option; the graph does so, and so does this.
"""

from dataclasses import replace

from graph2torch.match import Match
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = """GreedyAction (q, mask) => (action) {
    m = Mul (q, mask)
    action = ArgMax <axis = 1> (m)
}"""

EXAMPLE = "greedy (float[batch, n] q, float[batch, n] mask) => (int64[batch, 1] y) { m = Mul (q, mask) y = ArgMax <axis = 1> (m) }"
NEAR_MISS = (
    "flat (float[batch, n] q, float[batch, n] mask) => (int64[batch] y) { m = Mul (q, mask) y = ArgMax <axis = 1, keepdims = 0> (m) }"
)


def lift(match: Match) -> Block:
    return block_of(match, Expression("(q * mask).argmax(1, keepdim=True)"))


def describe(block: Block, place: Place) -> Block:
    return replace(block, role="head: option of the highest value that the mask leaves")
