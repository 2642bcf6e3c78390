"""A sample of a discrete branch: an option drawn by its probability.

ML-Agents calls `torch.multinomial(p, 1)`, which is exported as Log and Multinomial without a seed. The layer looks where
a uniform number falls among the cumulated probabilities: at the first option whose sum exceeds it, so never at one of
probability 0. That number is the caller's or one drawn on the CPU, so a seed means the same on every device, and policies
whose weights have gone NaN give option 0, as in onnxruntime, where `torch.multinomial` raises an error. Exported, it is
`torch.multinomial`, and so the graph's own operator.
"""

from dataclasses import replace

from graph2torch.match import Match
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = """DrawAction (p) => (action) {
    log_p = Log (p)
    action = Multinomial <dtype = 7> (log_p)
}"""

EXAMPLE = "draw (float[batch, n] x) => (int64[batch, 1] y) { p = Softmax <axis = 1> (x) l = Log (p) y = Multinomial <dtype = 7, sample_size = 1> (l) }"
MAKERS = ("softmax",)
NEAR_MISS = (
    "two (float[batch, n] x) => (int64[batch, 2] y) { l = Log (x) y = Multinomial <dtype = 7, sample_size = 2> (l) }",
    "small (float[batch, n] x) => (int32[batch, 1] y) { l = Log (x) y = Multinomial <dtype = 6, sample_size = 1> (l) }",
    "seeded (float[batch, n] x) => (int64[batch, 1] y) { l = Log (x) y = Multinomial <dtype = 7, sample_size = 1, seed = 1.0> (l) }",
)


def lift(match: Match) -> Block:
    return block_of(match, Expression("draw(p, u)", draws=(("u", ""),)))


def describe(block: Block, place: Place) -> Block:
    return replace(block, role=f"head: sampled action of branch {place.turn}")
