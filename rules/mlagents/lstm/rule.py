"""One step of an LSTM, from the memory of the step before to the next one: ML-Agents' `LSTM` between body and heads.

The memory is [1, batch, 2 · hidden]: the hidden state, then the cell state, which ML-Agents slices and puts together
again. ONNX orders the gates input, output, forget, cell and has one bias tensor; torch orders them input, forget, cell,
output and has two.
"""

from dataclasses import replace

import numpy as np

from graph2torch.graph import Array
from graph2torch.match import Match, Refusal
from graph2torch.spec import Block, Module, Parameter, Place, Rearrangement, block_of

PATTERNS = """LSTM <size> (x, memory, weight, recurrence, bias, steps_shape, hidden_end, cell_start, cell_end, y_shape) => (y, next_memory) {
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    last = Constant <value = int64 {2}> ()
    steps = Reshape (x, steps_shape)
    hidden = Slice (memory, zero, hidden_end, last)
    cell = Slice (memory, cell_start, cell_end, last)
    sequence = Transpose <perm = [1, 0, 2]> (steps)
    directions, next_hidden, next_cell = LSTM <hidden_size: int = @size> (sequence, weight, recurrence, bias, , hidden, cell)
    outputs = Squeeze (directions, one)
    by_agent = Transpose <perm = [1, 0, 2]> (outputs)
    next_memory = Concat <axis = -1> (next_hidden, next_cell)
    y = Reshape (by_agent, y_shape)
}"""
CONSTANTS = ("weight", "recurrence", "bias", "steps_shape", "hidden_end", "cell_start", "cell_end", "y_shape")
RANGES = dict.fromkeys(("weight", "recurrence", "bias"), (-1.0, 1.0))

_OPERANDS = "float[batch, 3] x, float[1, batch, 4] memory, float[1, 8, 3] weight, float[1, 8, 2] recurrence, float[1, 16] bias"
_EXAMPLE = """ => (float[batch, 2] y, float[1, batch, 4] next) {
    steps_shape = Constant <value = int64[3] {-1, 1, 3}> ()
    y_shape = Constant <value = int64[2] {-1, 2}> ()
    steps = Reshape (x, steps_shape)
    h = Slice <starts = [0], ends = [2], axes = [2]> (memory)
    c = Slice <starts = [2], ends = [9223372036854775807], axes = [2]> (memory)
    sequence = Transpose <perm = [1, 0, 2]> (steps)
    directions, next_h, next_c = LSTM <hidden_size = 2> (sequence, weight, recurrence, bias, , h, c)
    outputs = Squeeze <axes = [1]> (directions)
    by_agent = Transpose <perm = [1, 0, 2]> (outputs)
    next = Concat <axis = -1> (next_h, next_c)
    y = Reshape (by_agent, y_shape) }"""
EXAMPLE = f"lstm ({_OPERANDS}) {_EXAMPLE}"
NEAR_MISS = (
    f"swapped ({_OPERANDS}) " + _EXAMPLE.replace(", , h, c)", ", , c, h)"),
    f"joined_otherwise ({_OPERANDS}) " + _EXAMPLE.replace("(next_h, next_c)", "(next_c, next_h)"),
    f"uneven ({_OPERANDS}) " + _EXAMPLE.replace("ends = [2]", "ends = [3]"),
    f"doubles ({_OPERANDS}) {_EXAMPLE}".replace("float", "double"),
    f"small ({_OPERANDS}) " + _EXAMPLE.replace("hidden_size = 2", "hidden_size = 1"),
    f"cut_short ({_OPERANDS}) " + _EXAMPLE.replace("9223372036854775807", "3"),
    f"coupled ({_OPERANDS}) " + _EXAMPLE.replace("hidden_size = 2", "hidden_size = 2, input_forget = 1"),
)


def check(match: Match) -> Refusal | None:
    node = next(n for n in match.nodes if n.op == "LSTM")
    size = match.attributes.get("size")
    weight, recurrence, bias = (match.constant(name) for name in ("weight", "recurrence", "bias"))
    if not isinstance(size, int) or size < 1 or weight.ndim != 3 or any(a.dtype != np.float32 for a in (weight, recurrence, bias)):
        return Refusal(f"its hidden_size is {size}, its weight {weight.dtype} of shape {list(weight.shape)}", node)
    features = weight.shape[2]
    shapes = [weight.shape, recurrence.shape, bias.shape]
    if shapes != [(1, 4 * size, features), (1, 4 * size, size), (1, 8 * size)]:
        return Refusal(f"its tensors have the shapes {shapes}, which a hidden size of {size} doesn't", node)
    for name, wanted in (("steps_shape", [-1, 1, features]), ("y_shape", [-1, size]), ("hidden_end", [size]), ("cell_start", [size])):
        if match.constant(name).tolist() != wanted:
            return Refusal(f"{name.replace('_', ' ')} is {match.constant(name).reshape(-1)[:8].tolist()}, not {wanted}", node)
    if match.constant("cell_end").size != 1 or match.constant("cell_end").item() < 2 * size:
        return Refusal("the cell state is not the memory's second half", node)
    return None


def _torch_order(gates: Array) -> Array:
    """From input, output, forget, cell to input, forget, cell, output."""
    return gates.reshape(4, -1, *gates.shape[1:])[[0, 2, 3, 1]].reshape(gates.shape)


GATES = "gates i, o, f, c → i, f, c, o"
PARAMETERS = (
    ("weight_ih_l0", "weight", Rearrangement(GATES, lambda w: _torch_order(w[0]))),
    ("weight_hh_l0", "recurrence", Rearrangement(GATES, lambda r: _torch_order(r[0]))),
    ("bias_ih_l0", "bias", Rearrangement(f"first half, {GATES}", lambda b: _torch_order(b[0, : b.size // 2]))),
    ("bias_hh_l0", "bias", Rearrangement(f"second half, {GATES}", lambda b: _torch_order(b[0, b.size // 2 :]))),
)


def lift(match: Match) -> Block:
    parameters = tuple(Parameter(name, match.values[value], key=name, transform=how) for name, value, how in PARAMETERS)
    features, size = match.constant("weight").shape[2], match.constant("recurrence").shape[2]
    return block_of(match, Module("LSTM", (features, size)), parameters)


def describe(block: Block, place: Place) -> Block:
    role = "memory: one step of an LSTM"
    return replace(block, name="lstm", label="x, memory", role=role, prefixes=("network_body.lstm.lstm", "network_body.lstm"))
