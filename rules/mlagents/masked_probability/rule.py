"""Probabilities without the forbidden options: p · mask / sum(p · mask), ML-Agents' masks before 2.0.

Where the mask forbids everything, this is 0 / 0.
"""

from dataclasses import replace

from graph2torch.match import Match, Refusal
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = """MaskedProbability (p, mask, last, one) => (y) {
    kept = Mul (p, mask)
    total = ReduceSum <keepdims = 0> (kept, last)
    column = Unsqueeze (total, one)
    y = Div (kept, column)
}"""
CONSTANTS = ("last", "one")

EXAMPLE = """allowed (float[batch, n] p, float[batch, n] mask) => (float[batch, n] y) {
    k = Mul (p, mask) t = ReduceSum <axes = [-1], keepdims = 0> (k) c = Unsqueeze <axes = [1]> (t) y = Div (k, c) }"""
NEAR_MISS = """columns (float[batch, n] p, float[batch, n] mask) => (float[batch, n] y) {
    k = Mul (p, mask) t = ReduceSum <axes = [0], keepdims = 0> (k) c = Unsqueeze <axes = [0]> (t) y = Div (k, c) }"""


def check(match: Match) -> Refusal | None:
    axes = {name: match.constant(name).reshape(-1).tolist() for name in CONSTANTS}
    if axes != {"last": [-1], "one": [1]}:
        return Refusal(f"it sums over the axes {axes['last']} and puts back {axes['one']}, not the options'", match.nodes[1])
    return None


def lift(match: Match) -> Block:
    return block_of(match, Expression("allowed(p, mask)"))


def describe(block: Block, place: Place) -> Block:
    return replace(block, role=f"head: probabilities of the options that are allowed in branch {place.number}")
