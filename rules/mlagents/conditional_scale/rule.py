"""Standard deviation of SAC's Gaussian policy: exp(clip(log sigma, −20, 2)), log sigma a layer of its own."""

from dataclasses import replace

from graph2torch.match import Match
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = """ConditionalScale (log_sigma) => (sigma) {
    lo = Constant <value = float {-20.0}> ()
    hi = Constant <value = float {2.0}> ()
    c = Clip (log_sigma, lo, hi)
    sigma = Exp (c)
}"""

EXAMPLE = "scale (float[batch, n] x) => (float[batch, n] sigma) { c = Clip <min = -20.0, max = 2.0> (x) sigma = Exp (c) }"
NEAR_MISS = "wide (float[batch, n] x) => (float[batch, n] sigma) { c = Clip <min = -20.0, max = 20.0> (x) sigma = Exp (c) }"


def lift(match: Match) -> Block:
    return block_of(match, Expression("torch.exp(torch.clamp(log_sigma, -20, 2))"))


def describe(block: Block, place: Place) -> Block:
    return replace(block, label="sigma", role="head: standard deviation of the actions, sigma")
