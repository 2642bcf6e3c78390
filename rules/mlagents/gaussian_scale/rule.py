"""Standard deviation of the Gaussian policy: exp(mu · 0 + log_sigma).

PPO and POCA train one log sigma an action, whatever the observation. ML-Agents' `GaussianDistribution` spreads it over
the batch by adding mu · 0, which keeps NaN and infinity of mu. Before 1.0 it was exp(log_sigma), one row for the batch.
"""

from dataclasses import replace

import numpy as np

from graph2torch.match import Match, Refusal
from graph2torch.spec import Block, Expression, Parameter, Place, block_of

PATTERNS = (
    """GaussianScale (mu, log_sigma) => (sigma) {
        zero = Constant <value = float {0.0}> ()
        z = Mul (mu, zero)
        s = Add (z, log_sigma)
        sigma = Exp (s)
    }""",
    "GaussianScaleOfOneRow (log_sigma) => (sigma) { sigma = Exp (log_sigma) }",
)
CONSTANTS = ("log_sigma",)

EXAMPLE = (
    """scale (float[batch, n] mu, float[1, n] log_sigma) => (float[batch, n] sigma) {
        zero = Constant <value = float {0.0}> () z = Mul (mu, zero) s = Add (z, log_sigma) sigma = Exp (s) }""",
    "row (float[1, n] log_sigma) => (float[1, n] sigma) { sigma = Exp (log_sigma) }",
)
NEAR_MISS = (
    """one (float[batch, n] mu, float[1, n] log_sigma) => (float[batch, n] sigma) {
        zero = Constant <value = float {1.0}> () z = Mul (mu, zero) s = Add (z, log_sigma) sigma = Exp (s) }""",
    "vector (float[n] log_sigma) => (float[n] sigma) { sigma = Exp (log_sigma) }",
)


def check(match: Match) -> Refusal | None:
    log_sigma = match.constant("log_sigma")
    if log_sigma.ndim != 2 or log_sigma.shape[0] != 1 or log_sigma.dtype != np.float32:
        return Refusal(
            f"log sigma has shape {list(log_sigma.shape)} and type {log_sigma.dtype}, not one float32 number an action", match.nodes[-1]
        )
    return None


def lift(match: Match) -> Block:
    log_sigma = Parameter("log_sigma", match.values["log_sigma"], key="log_sigma")
    return block_of(match, Expression("torch.exp(mu * 0 + log_sigma)" if "mu" in match.values else "torch.exp(log_sigma)"), (log_sigma,))


COMMENT = "NaN and infinity of mu stay, as in the original"


def describe(block: Block, place: Place) -> Block:
    role = "head: standard deviation of the actions, sigma"
    return replace(block, name="log_sigma", label="sigma", comment=COMMENT, role=role, prefixes=("action_model._continuous_distribution",))
