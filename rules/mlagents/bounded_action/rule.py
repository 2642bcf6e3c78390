"""Continuous action as the environment gets it: clip(x, ±3) / 3, so within ±1."""

from dataclasses import replace

from graph2torch.match import Match
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = """BoundedAction (x) => (y) {
    lo = Constant <value = float {-3.0}> ()
    hi = Constant <value = float {3.0}> ()
    three = Constant <value = float {3.0}> ()
    c = Clip (x, lo, hi)
    y = Div (c, three)
}"""

EXAMPLE = """bounded (float[batch, n] x) => (float[batch, n] y) {
    three = Constant <value = float {3.0}> () c = Clip <min = -3.0, max = 3.0> (x) y = Div (c, three) }"""
NEAR_MISS = """five (float[batch, n] x) => (float[batch, n] y) {
    three = Constant <value = float {3.0}> () c = Clip <min = -5.0, max = 5.0> (x) y = Div (c, three) }"""


def lift(match: Match) -> Block:
    return block_of(match, Expression("torch.clamp(x, -3, 3) / 3"))


def describe(block: Block, place: Place) -> Block:
    drawn = "gaussian_sample" in place.makers
    return replace(block, label="sampled" if drawn else "", role=f"head: {'sampled' if drawn else 'deterministic'} actions within ±1")
