"""Goal conditioning: a hidden layer whose weights are made from the goal by a network of their own, then SiLU.

ML-Agents' `ConditionalEncoder` makes its last hidden layer a `HyperNetwork`: two Linear + SiLU layers, a layer norm without
parameters and a third Linear turn the goal observations into the layer's weight; its bias is an ordinary parameter. The other
hidden layers, if there are any, are plain ones.
"""

from dataclasses import replace

import numpy as np

from graph2torch.match import Match, Refusal
from graph2torch.spec import Block, Module, Parameter, Place, block_of

PATTERNS = """HyperNetwork (x, goal, weight_0, bias_0, weight_2, bias_2, weight_5, bias_5, shape, bias) => (y) {
    two = Constant <value = float {2.0}> ()
    epsilon = Constant <value = float {1e-5}> ()
    last = Constant <value = int64[1] {-1}> ()
    one = Constant <value = int64[1] {1}> ()
    a = Gemm <transB = 1> (goal, weight_0, bias_0)
    a_gate = Sigmoid (a)
    a_silu = Mul (a, a_gate)
    b = Gemm <transB = 1> (a_silu, weight_2, bias_2)
    b_gate = Sigmoid (b)
    b_silu = Mul (b, b_gate)
    mean = ReduceMean (b_silu, last)
    centred = Sub (b_silu, mean)
    squares = Pow (centred, two)
    variance = ReduceMean (squares, last)
    raised = Add (variance, epsilon)
    deviation = Sqrt (raised)
    normed = Div (centred, deviation)
    flat = Gemm <transB = 1> (normed, weight_5, bias_5)
    weight = Reshape (flat, shape)
    row = Unsqueeze (x, one)
    product = MatMul (row, weight)
    squeezed = Squeeze (product, one)
    z = Add (squeezed, bias)
    gate = Sigmoid (z)
    y = Mul (z, gate)
}"""
LAYERS = (0, 2, 5)  # of the hypernet, those with parameters
CONSTANTS = ("weight_0", "bias_0", "weight_2", "bias_2", "weight_5", "bias_5", "shape", "bias")

_BODY = """
    two = Constant <value = float {2.0}> () epsilon = Constant <value = float {1e-5}> ()
    a = Gemm <transB = 1> (goal, weight_0, bias_0) a_gate = Sigmoid (a) a_silu = Mul (a, a_gate)
    b = Gemm <transB = 1> (a_silu, weight_2, bias_2) b_gate = Sigmoid (b) b_silu = Mul (b, b_gate)
    mean = ReduceMean <axes = [-1]> (b_silu) centred = Sub (b_silu, mean) squares = Pow (centred, two)
    variance = ReduceMean <axes = [-1]> (squares) raised = Add (variance, epsilon) deviation = Sqrt (raised)
    again = Sub (b_silu, mean) normed = Div (again, deviation)
    flat = Gemm <transB = 1> (normed, weight_5, bias_5) shape = Constant <value = int64[3] {-1, 3, 4}> ()
    weight = Reshape (flat, shape) row = Unsqueeze <axes = [1]> (x) product = MatMul (row, weight)
    squeezed = Squeeze <axes = [1]> (product) z = Add (squeezed, bias) gate = Sigmoid (z) y = Mul (z, gate)"""
_INPUTS = """float[batch, 3] x, float[batch, g] goal, float[h, g] weight_0, float[h] bias_0, float[h, h] weight_2, float[h] bias_2,
    float[12, h] weight_5, float[12] bias_5, float[4] bias"""
EXAMPLE = f"hyper ({_INPUTS}) => (float[batch, 4] y) {{ {_BODY} }}"
NEAR_MISS = (
    f"epsilon ({_INPUTS}) => (float[batch, 4] y) {{ {_BODY.replace('1e-5', '1e-6')} }}",
    f"one_agent ({_INPUTS}) => (float[batch, 4] y) {{ {_BODY.replace('-1, 3, 4', '1, 3, 4')} }}",
    f"wide ({_INPUTS}) => (float[batch, 4] y) {{ {_BODY.replace('-1, 3, 4', '-1, 4, 3')} }}",
    f"ungated ({_INPUTS}) => (float[batch, 4] y) {{ {_BODY.replace('Mul (z, gate)', 'Mul (gate, gate)')} }}",
)


def check(match: Match) -> Refusal | None:
    shape = match.constant("shape").tolist()
    if len(shape) != 3 or shape[0] != -1 or min(shape[1:]) < 1:
        return Refusal(f"it makes weights of the shape {shape}, not [-1, inputs, outputs]", match.nodes[14])
    _, inputs, outputs = shape
    hidden, goal = (*match.constant("weight_0").shape, 0)[:2]
    wanted: dict[str, tuple[int, ...]] = {
        "weight_0": (hidden, goal),
        "weight_2": (hidden, hidden),
        "weight_5": (inputs * outputs, hidden),
    }
    wanted |= {name.replace("weight", "bias"): size[:1] for name, size in wanted.items()} | {"bias": (outputs,)}
    for name, size in wanted.items():
        array = match.constant(name)
        if array.shape != size or array.dtype != np.float32:
            return Refusal(f"its {name} is {array.dtype} {list(array.shape)}, not float32 {list(size)}", match.nodes[14])
    return None


def lift(match: Match) -> Block:
    _, inputs, outputs = match.constant("shape").tolist()
    hidden, goal = match.constant("weight_0").shape
    keys = {f"{kind}_{i}": f"hypernet.{i}.{kind}" for i in LAYERS for kind in ("weight", "bias")} | {"bias": "bias"}
    parameters = tuple(Parameter(key, match.values[name], key=key) for name, key in keys.items())
    return block_of(match, Module("HyperNetwork", (inputs, outputs, goal, hidden)), parameters)


def describe(block: Block, place: Place) -> Block:
    prefixes = tuple(f"network_body._body_endoder.layers.{2 * i}" for i in range(10))
    return replace(block, name="hyper_network", role="hidden layer whose weights are made from the goal", prefixes=prefixes)
