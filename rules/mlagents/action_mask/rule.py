"""Options that the mask forbids: logits · mask − 1e8 · (1 − mask), ML-Agents' `CategoricalDistInstance` since 2.0.

The mask is 1 for an option that is allowed and 0 for one that isn't; the exporter writes 1 − mask as mask · −1 + 1.
"""

from dataclasses import replace

from graph2torch.match import Match
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = """ActionMask (logits, mask) => (y) {
    minus = Constant <value = float {-1.0}> ()
    one = Constant <value = float {1.0}> ()
    far = Constant <value = float {1e8}> ()
    negative = Mul (mask, minus)
    forbidden = Add (negative, one)
    kept = Mul (logits, mask)
    pushed = Mul (forbidden, far)
    y = Sub (kept, pushed)
}"""

EXAMPLE = """masked (float[batch, n] logits, float[batch, n] mask) => (float[batch, n] y) {
    minus = Constant <value = float {-1.0}> () one = Constant <value = float {1.0}> () far = Constant <value = float {1e8}> ()
    n = Mul (mask, minus) f = Add (n, one) k = Mul (logits, mask) p = Mul (f, far) y = Sub (k, p) }"""
NEAR_MISS = """nearer (float[batch, n] logits, float[batch, n] mask) => (float[batch, n] y) {
    minus = Constant <value = float {-1.0}> () one = Constant <value = float {1.0}> () far = Constant <value = float {1e7}> ()
    n = Mul (mask, minus) f = Add (n, one) k = Mul (logits, mask) p = Mul (f, far) y = Sub (k, p) }"""


def lift(match: Match) -> Block:
    return block_of(match, Expression("masked(logits, mask)"))


def describe(block: Block, place: Place) -> Block:
    return replace(block, role=f"head: logits of branch {place.number}, forbidden options pushed far down")
