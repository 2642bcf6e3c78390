"""A sample of the Gaussian policy, before it is bounded: mu + z · sigma with z standard normal.

ML-Agents calls `torch.randn_like(mu)`, which is exported as RandomNormalLike without a seed. The noise is drawn on the
CPU whatever the device, so that a seed means the same everywhere; moving a CPU tensor would export a Cast, hence the if.
"""

from dataclasses import replace

from graph2torch.match import Match
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = """GaussianSample (mu, sigma) => (sample) {
    z = RandomNormalLike (mu)
    scaled = Mul (z, sigma)
    sample = Add (mu, scaled)
}"""

EXAMPLE = (
    "sample (float[batch, n] mu, float[batch, n] sigma) => (float[batch, n] y) { z = RandomNormalLike <dtype = 1> (mu) s = Mul (z, sigma) y = Add (mu, s) }",
    "commuted (float[batch, n] mu, float[batch, n] sigma) => (float[batch, n] y) { z = RandomNormalLike (mu) s = Mul (sigma, z) y = Add (s, mu) }",
)
NEAR_MISS = (
    "wide (float[batch, n] mu, float[batch, n] sigma) => (float[batch, n] y) { z = RandomNormalLike <scale = 2.0> (mu) s = Mul (z, sigma) y = Add (mu, s) }",
    "minus (float[batch, n] mu, float[batch, n] sigma) => (float[batch, n] y) { z = RandomNormalLike (mu) s = Mul (z, sigma) y = Sub (mu, s) }",
)


DRAW = "torch.randn_like(mu) if mu.is_cpu else torch.randn(mu.shape).to(mu.device)"


def lift(match: Match) -> Block:
    return block_of(match, Expression("mu + z * sigma", draws=(("z", DRAW),)))


def describe(block: Block, place: Place) -> Block:
    return replace(block, role="head: sampled actions, not yet bounded")
