"""Log-probabilities of a discrete branch, what ML-Agents 1.x gave as its action: log(p + 1e-7), or log(p)."""

from dataclasses import replace

from graph2torch.match import Match
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = (
    """LogProbability (p) => (y) {
        tiny = Constant <value = float {1e-7}> ()
        s = Add (p, tiny)
        y = Log (s)
    }""",
    "LogOfProbability (p) => (y) { y = Log (p) }",
)

EXAMPLE = (
    "tiny (float[batch, n] x) => (float[batch, n] y) { p = Softmax <axis = 1> (x) t = Constant <value = float {1e-7}> () s = Add (p, t) y = Log (s) }",
    "plain (float[batch, n] x) => (float[batch, n] y) { p = Softmax <axis = 1> (x) y = Log (p) }",
)
MAKERS = ("softmax",)
NEAR_MISS = ("exponential (float[batch, n] p) => (float[batch, n] y) { y = Exp (p) }",)


def lift(match: Match) -> Block:
    return block_of(match, Expression("torch.log(p + 1e-7)" if "tiny" in match.pattern.constants else "torch.log(p)"))


def describe(block: Block, place: Place) -> Block:
    label = place.outputs[0] if place.outputs else ""
    if not label and "softmax" not in place.readers:
        label = "log_p" if place.turns == 1 else f"log_p_{place.turn}"
    return replace(block, label=label, role=f"head: log-probabilities of the options of branch {place.turn}")
