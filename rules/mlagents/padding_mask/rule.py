"""Which entities of a buffer sensor are padding: 1 where the sum of an entity's squares is below 0.01.

Buffers are filled up with zeros to a fixed number of entities. ML-Agents' `get_zero_entities_mask` tells them by the sum; torch 1.7
compared it in float64.
"""

from dataclasses import replace

from graph2torch.match import Match
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = (
    """PaddingMask (entities) => (padding) {
        two = Constant <value = float {2.0}> ()
        features = Constant <value = int64[1] {2}> ()
        limit = Constant <value = float {0.01}> ()
        squares = Pow (entities, two)
        size = ReduceSum <keepdims = 0> (squares, features)
        small = Less (size, limit)
        padding = Cast <to = 1> (small)
    }""",
    """PaddingMaskDouble (entities) => (padding) {
        two = Constant <value = float {2.0}> ()
        features = Constant <value = int64[1] {2}> ()
        limit = Constant <value = double {0.01}> ()
        squares = Pow (entities, two)
        size = ReduceSum <keepdims = 0> (squares, features)
        exact = Cast <to = 11> (size)
        small = Less (exact, limit)
        padding = Cast <to = 1> (small)
    }""",
)

_SQUARES = "two = Constant <value = float {2.0}> () q = Pow (x, two) s = ReduceSum <axes = [2], keepdims = 0> (q)"
_FLOAT = "limit = Constant <value = float {0.01}> ()"
_MASK = "b = Less (s, limit) y = Cast <to = 1> (b)"
EXAMPLE = (
    f"mask (float[batch, 4, n] x) => (float[batch, 4] y) {{ {_SQUARES} {_FLOAT} {_MASK} }}",
    f"""double (float[batch, 4, n] x) => (float[batch, 4] y) {{
        {_SQUARES} limit = Constant <value = double {{0.01}}> () d = Cast <to = 11> (s) b = Less (d, limit) y = Cast <to = 1> (b) }}""",
)
NEAR_MISS = (
    f"limit (float[batch, 4, n] x) => (float[batch, 4] y) {{ {_SQUARES} {_FLOAT.replace('0.01', '0.1')} {_MASK} }}",
    f"entities (float[batch, 4, n] x) => (float[batch, n] y) {{ {_SQUARES.replace('[2]', '[1]')} {_FLOAT} {_MASK} }}",
    f"there (float[batch, 4, n] x) => (float[batch, 4] y) {{ {_SQUARES} {_FLOAT} {_MASK.replace('s, limit', 'limit, s')} }}",
)


def lift(match: Match) -> Block:
    double = ".double()" if match.pattern.name == "PaddingMaskDouble" else ""
    return block_of(match, Expression(f"((entities**2).sum(2){double} < 0.01).float()"))


def describe(block: Block, place: Place) -> Block:
    return replace(block, label=f"padding{place.suffix}", role=f"which entities of {place.source or 'the buffer'} are padding")
