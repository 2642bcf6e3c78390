"""Embedding of the entities of a buffer sensor: Linear + SiLU over each, with the agent's own encoding beside it if there is one.

ML-Agents' `EntityEmbedding`. A linear layer over a list is a MatMul with the transposed weight, then Add; the agent's encoding is
repeated once an entity. With several buffers torch exports equal repetitions once, so they are shared.
"""

from dataclasses import replace

import numpy as np

from graph2torch.graph import Graph
from graph2torch.match import Match, Refusal
from graph2torch.spec import Block, Module, Parameter, Place, block_of

_REST = """
        both = Concat <axis = 2> (repeated, entities)
        product = MatMul (both, weight)
        z = Add (product, bias)
        gate = Sigmoid (z)
        y = Mul (z, gate)
    }"""
PATTERNS = (
    """EntityEmbedding (x_self, entities, row_shape, more, weight, bias) => (y) {
        row = Reshape (x_self, row_shape)
        repeated = Concat <axis = 1> (row, more)"""
    + _REST,
    """EntityEmbeddingOfOne (x_self, entities, row_shape, weight, bias) => (y) {
        repeated = Reshape (x_self, row_shape)"""
    + _REST,
    """EntityEmbeddingAlone (entities, weight, bias) => (y) {
        product = MatMul (entities, weight)
        y = Add (product, bias)
    }""",
)
CONSTANTS = ("row_shape", "weight", "bias")
VARIADIC = "more"
SHARED = ("row", "repeated")

_EXAMPLE_REST = "both = Concat <axis = 2> (rows, e) p = MatMul (both, weight) z = Add (bias, p) g = Sigmoid (z) y = Mul (z, g)"
_ROW = "shape = Constant <value = int64[3] {-1, 1, 3}> () row = Reshape (x, shape)"
_SELF = "float[batch, 3] x, float[batch, 2, 4] e, float[7, m] weight, float[m] bias"
EXAMPLE = (
    f"embedding ({_SELF}) => (float[batch, 2, m] y) {{ {_ROW} rows = Concat <axis = 1> (row, row) {_EXAMPLE_REST} }}",
    f"""one ({_SELF.replace("2, 4", "1, 4")}) => (float[batch, 1, m] y) {{ {_ROW} rows = Concat <axis = 1> (row) {_EXAMPLE_REST} }}""",
    "alone (float[batch, 2, n] e, float[n, m] weight, float[m] bias) => (float[batch, 2, m] y) { p = MatMul (e, weight) y = Add (bias, p) }",
)
NEAR_MISS = (
    f"turned ({_SELF}) => (float[batch, 2, m] y) {{ {_ROW.replace('-1, 1, 3', '1, -1, 3')} rows = Concat <axis = 1> (row, row) {_EXAMPLE_REST} }}",
    f"two_selves ({_SELF}) => (float[batch, 2, m] y) {{ {_ROW} o = Neg (row) rows = Concat <axis = 1> (row, o) {_EXAMPLE_REST} }}",
    f"kept ({_SELF}) => (float[batch, 2, m] y, float[batch, 2, 7] both) {{ {_ROW} rows = Concat <axis = 1> (row, row) {_EXAMPLE_REST} }}",
    "vector (float[batch, n] x, float[n, m] weight, float[m] bias) => (float[batch, m] y) { p = MatMul (x, weight) y = Add (p, bias) }",
    "narrow (float[batch, 2, n] e, float[n, m] weight, float[1] bias) => (float[batch, 2, m] y) { p = MatMul (e, weight) y = Add (p, bias) }",
)


def check(match: Match) -> Refusal | None:
    weight, bias = match.constant("weight"), match.constant("bias")
    here = match.nodes[-2]
    if weight.ndim != 2 or bias.shape != weight.shape[1:] or weight.dtype != np.float32 or bias.dtype != np.float32:
        return Refusal(f"the weight is {weight.dtype} {list(weight.shape)}, the bias {bias.dtype} {list(bias.shape)}", here)
    if "row_shape" not in match.values:
        return None if _rank(match.graph, match.values["entities"]) == 3 else Refusal("what it reads may be no list of entities", here)
    row, shape = match.values["row" if "row" in match.values else "repeated"], match.constant("row_shape").tolist()
    if len(shape) != 3 or shape[:2] != [-1, 1] or not 0 < shape[2] < weight.shape[0]:
        return Refusal(f"the agent's encoding gets the shape {shape}, not one row of fewer than {weight.shape[0]} numbers", match.nodes[0])
    if any(value != row for value in match.rest):
        return Refusal("it repeats several values, not the agent's encoding alone", match.nodes[1])
    return None


def _rank(graph: Graph, value: str) -> int:
    """How many axes a value has, where that is easily told; 0 where it isn't."""
    for given in graph.inputs:
        if given.name == value:
            return len(given.shape)
    maker = graph.producers.get(value)
    if maker is not None and maker.op == "Reshape" and maker.inputs[1] in graph.constants:
        return graph.constants[maker.inputs[1]].size
    return 0


def lift(match: Match) -> Block:
    inputs, size = match.constant("weight").shape
    alone = "row_shape" not in match.values
    names = ("weight", "bias") if alone else ("seq_layers.0.weight", "seq_layers.0.bias")
    weight = Parameter(names[0], match.values["weight"], key=names[0], transform="transposed")
    bias = Parameter(names[1], match.values["bias"], key=names[1])
    if alone:
        return block_of(match, Module("nn.Linear", (inputs, size)), (weight, bias))
    x_self = int(match.constant("row_shape")[2])
    arguments = (x_self, inputs - x_self, len(match.rest) + 1, size)
    block = block_of(match, Module("EntityEmbedding", arguments), (weight, bias))
    return replace(block, inputs=tuple(pair for pair in block.inputs if pair[0] != "more"))


def describe(block: Block, place: Place) -> Block:
    assert isinstance(block.code, Module)
    source = place.origins["entities"]
    number = replace(place, source=source).observation
    name = f"entity_embedding_{number}" if number and place.siblings > 1 else "entity_embedding"
    alone = block.code.class_name == "nn.Linear"
    encoder = f"processors.{number}.self_ent_encoder" + (".seq_layers.{n}" if alone else "")
    return replace(
        block,
        name=name,
        sequence=name if alone else "",
        role=f"embedding of the entities of {source or 'a buffer'}",
        prefixes=tuple(f"network_body.{middle}{encoder}" for middle in ("observation_encoder.", "")),
    )
