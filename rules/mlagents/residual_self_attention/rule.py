"""Residual self-attention over the entities of buffer sensors, and the mean of those that are not padding.

ML-Agents' `ResidualSelfAttention`: a layer norm without parameters, four heads whose scores are divided by the root of the
embedding's size (not the head's) and set to -1e6 where an entity is padding, a residual, a second norm, and the masked mean. Its
keys are lowered and raised by one, which keeps old inference engines from joining two transposes; it rounds, so it is kept. It is done
in place, on a transposed view: torch's dynamo exporter turns the keys to and fro for it, which changes nothing.
"""

from dataclasses import replace

import numpy as np

from graph2torch.match import Match, Refusal
from graph2torch.spec import Block, Module, Parameter, Place, block_of

_PATTERN = """ResidualSelfAttention (x, padding, fc_q_weight, fc_q_bias, fc_k_weight, fc_k_bias, fc_v_weight, fc_v_bias, fc_out_weight,
        fc_out_bias, split_q, split_k, split_v, join, mask, column, root) => (y) {
    one = Constant <value = float {1.0}> ()
    two = Constant <value = float {2.0}> ()
    epsilon = Constant <value = float {1e-5}> ()
    tiny = Constant <value = float {1e-7}> ()
    never = Constant <value = float {-1000000.0}> ()
    last = Constant <value = int64[1] {-1}> ()
    first = Constant <value = int64[1] {1}> ()
    mean_1 = ReduceMean (x, last)
    centred_1 = Sub (x, mean_1)
    squares_1 = Pow (centred_1, two)
    variance_1 = ReduceMean (squares_1, last)
    raised_1 = Add (variance_1, epsilon)
    deviation_1 = Sqrt (raised_1)
    normed = Div (centred_1, deviation_1)
    q_product = MatMul (normed, fc_q_weight)
    q = Add (q_product, fc_q_bias)
    k_product = MatMul (normed, fc_k_weight)
    k = Add (k_product, fc_k_bias)
    v_product = MatMul (normed, fc_v_weight)
    v = Add (v_product, fc_v_bias)
    q_split = Reshape (q, split_q)
    k_split = Reshape (k, split_k)
    v_split = Reshape (v, split_v)
    query = Transpose <perm = [0, 2, 1, 3]> (q_split)
    k_heads = Transpose <perm = [0, 2, 1, 3]> (k_split)
    value = Transpose <perm = [0, 2, 1, 3]> (v_split)
    k_lowered = Sub (k_heads, one)
    k_raised = Add (k_lowered, one)
    key = Transpose <perm = [0, 1, 3, 2]> (k_raised)
    products = MatMul (query, key)
    hidden = Reshape (padding, mask)
    seen = Sub (one, hidden)
    masked = Mul (seen, products)
    scaled = Div (masked, root)
    floor = Mul (hidden, never)
    scores = Add (scaled, floor)
    weights = Softmax <axis = 3> (scores)
    weighted = MatMul (weights, value)
    by_entity = Transpose <perm = [0, 2, 1, 3]> (weighted)
    attended = Reshape (by_entity, join)
    out_product = MatMul (attended, fc_out_weight)
    out = Add (out_product, fc_out_bias)
    residual = Add (out, normed)
    mean_2 = ReduceMean (residual, last)
    centred_2 = Sub (residual, mean_2)
    squares_2 = Pow (centred_2, two)
    variance_2 = ReduceMean (squares_2, last)
    raised_2 = Add (variance_2, epsilon)
    deviation_2 = Sqrt (raised_2)
    renormed = Div (centred_2, deviation_2)
    there = Sub (one, padding)
    there_column = Reshape (there, column)
    kept = Mul (renormed, there_column)
    total = ReduceSum <keepdims = 0> (kept, first)
    number = ReduceSum (there, first)
    count = Add (number, tiny)
    y = Div (total, count)
}"""
_IN_PLACE = """k_back = Transpose <perm = [0, 2, 1, 3]> (k_lowered)
    k_same = Reshape (k_back, split_k_2)
    k_there = Transpose <perm = [0, 2, 1, 3]> (k_same)
    k_raised = Add (k_there, one)
    k_turned = Transpose <perm = [0, 2, 1, 3]> (k_raised)
    k_whole = Reshape (k_turned, split_k_3)
    key = Transpose <perm = [0, 2, 3, 1]> (k_whole)"""
PATTERNS = (
    _PATTERN,
    _PATTERN.replace("ResidualSelfAttention", "ResidualSelfAttentionInPlace")
    .replace("split_v,", "split_v, split_k_2, split_k_3,")
    .replace("k_raised = Add (k_lowered, one)\n    key = Transpose <perm = [0, 1, 3, 2]> (k_raised)", _IN_PLACE),
)
PARTS = ("fc_q", "fc_k", "fc_v", "fc_out")
SPLITS = ("split_q", "split_k", "split_v", "split_k_2", "split_k_3")
CONSTANTS = (*(f"{part}_{kind}" for part in PARTS for kind in ("weight", "bias")), *SPLITS, "join", "mask", "column", "root")

_INPUTS = """float[batch, 3, 8] x, float[batch, 3] padding, float[8, 8] fc_q_weight, float[8] fc_q_bias, float[8, 8] fc_k_weight,
    float[8] fc_k_bias, float[8, 8] fc_v_weight, float[8] fc_v_bias, float[8, 8] fc_out_weight, float[8] fc_out_bias"""
_BODY = """
    one = Constant <value = float {1.0}> () two = Constant <value = float {2.0}> () epsilon = Constant <value = float {1e-5}> ()
    tiny = Constant <value = float {1e-7}> () never = Constant <value = float {-1000000.0}> ()
    root = Constant <value = float {2.828427125}> () split = Constant <value = int64[4] {-1, 3, 4, 2}> ()
    join = Constant <value = int64[3] {-1, 3, 8}> () mask = Constant <value = int64[4] {-1, 1, 1, 3}> ()
    column = Constant <value = int64[3] {-1, 3, 1}> ()
    m = ReduceMean <axes = [-1]> (x) c = Sub (x, m) s = Pow (c, two) w = ReduceMean <axes = [-1]> (s) e = Add (w, epsilon)
    d = Sqrt (e) again = Sub (x, m) n = Div (again, d)
    qp = MatMul (n, fc_q_weight) q = Add (fc_q_bias, qp) kp = MatMul (n, fc_k_weight) k = Add (kp, fc_k_bias)
    vp = MatMul (n, fc_v_weight) v = Add (fc_v_bias, vp)
    qs = Reshape (q, split) ks = Reshape (k, split) vs = Reshape (v, split)
    qh = Transpose <perm = [0, 2, 1, 3]> (qs) kh = Transpose <perm = [0, 2, 1, 3]> (ks) vh = Transpose <perm = [0, 2, 1, 3]> (vs)
    kl = Sub (kh, one) kr = Add (kl, one) kt = Transpose <perm = [0, 1, 3, 2]> (kr) qk = MatMul (qh, kt)
    hidden = Reshape (padding, mask) seen = Sub (one, hidden) masked = Mul (seen, qk) scaled = Div (masked, root)
    floor = Mul (hidden, never) scores = Add (scaled, floor) a = Softmax <axis = 3> (scores) av = MatMul (a, vh)
    at = Transpose <perm = [0, 2, 1, 3]> (av) aj = Reshape (at, join) op = MatMul (aj, fc_out_weight) o = Add (fc_out_bias, op)
    r = Add (o, n) m2 = ReduceMean <axes = [-1]> (r) c2 = Sub (r, m2) s2 = Pow (c2, two) w2 = ReduceMean <axes = [-1]> (s2)
    e2 = Add (w2, epsilon) d2 = Sqrt (e2) n2 = Div (c2, d2)
    there = Sub (one, padding) rows = Reshape (there, column) kept = Mul (n2, rows)
    total = ReduceSum <axes = [1], keepdims = 0> (kept) number = ReduceSum <axes = [1], keepdims = 1> (there)
    count = Add (number, tiny) y = Div (total, count)"""
_BODY_IN_PLACE = _BODY.replace(
    "kr = Add (kl, one) kt = Transpose <perm = [0, 1, 3, 2]> (kr)",
    """kb = Transpose <perm = [0, 2, 1, 3]> (kl) kg = Reshape (kb, split) kf = Transpose <perm = [0, 2, 1, 3]> (kg) kr = Add (kf, one)
    ku = Transpose <perm = [0, 2, 1, 3]> (kr) kw = Reshape (ku, split) kt = Transpose <perm = [0, 2, 3, 1]> (kw)""",
)
EXAMPLE = tuple(
    f"{name} ({_INPUTS}) => (float[batch, 8] y) {{ {body} }}" for name, body in (("attention", _BODY), ("in_place", _BODY_IN_PLACE))
)
NEAR_MISS = tuple(
    f"{name} ({_INPUTS}) => (float[batch, 8] y) {{ {_BODY} }}".replace(old, new)
    for name, old, new in (
        ("head_root", "2.828427125", "1.41421356"),
        ("one_agent", "-1, 3, 4, 2", "1, 3, 4, 2"),
        ("join", "-1, 3, 8", "-1, 8, 3"),
        ("three_heads", "-1, 3, 4, 2", "-1, 3, 8, 3"),
        ("mask", "-1000000.0", "-10000.0"),
        ("swapped", "MatMul (qh, kt)", "MatMul (kh, kt)"),
        ("unnormed_residual", "Add (o, n)", "Add (o, x)"),
        ("unmasked_mean", "Mul (n2, rows)", "Mul (n2, n2)"),
        ("one_bias", "float[8] fc_v_bias", "float[1] fc_v_bias"),
    )
)


def check(match: Match) -> Refusal | None:
    split = match.constant("split_q").tolist()
    if len(split) != 4 or split[0] != -1 or min(split[1:]) < 1:
        return Refusal(f"the heads have the shape {split}, not [-1, entities, heads, size]", match.nodes[13])
    _, entities, heads, part = split
    size = heads * part
    wanted = {name: split for name in SPLITS if name in match.values}
    wanted |= {"join": [-1, entities, size], "mask": [-1, 1, 1, entities], "column": [-1, entities, 1]}
    for name, shape in wanted.items():
        if match.constant(name).tolist() != shape:
            return Refusal(f"its shape {match.constant(name).tolist()} ({name}) is not {shape}", match.nodes[13])
    for part_name in PARTS:
        for name, shape in ((f"{part_name}_weight", (size, size)), (f"{part_name}_bias", (size,))):
            array = match.constant(name)
            if array.shape != shape or array.dtype != np.float32:
                return Refusal(f"its {name} is {array.dtype} {list(array.shape)}, not float32 {list(shape)}", match.nodes[13])
    root = match.constant("root")
    if root.size != 1 or root.dtype != np.float32 or root.item() != np.float32(size**0.5):
        return Refusal(f"the scores are divided by {root.reshape(-1)[:3].tolist()}, not by the root of the size {size}", match.nodes[-1])
    return None


def lift(match: Match) -> Block:
    _, entities, heads, size = match.constant("split_q").tolist()
    parameters = []
    for part in PARTS:
        weight, bias = f"{part}.weight", f"{part}.bias"
        parameters.append(Parameter(weight, match.values[f"{part}_weight"], key=weight, transform="transposed"))
        parameters.append(Parameter(bias, match.values[f"{part}_bias"], key=bias))
    return block_of(match, Module("ResidualSelfAttention", (heads * size, entities, heads)), tuple(parameters))


def describe(block: Block, place: Place) -> Block:
    prefixes = ("network_body.observation_encoder.rsa", "network_body.rsa")
    return replace(block, name="rsa", label="attended", role="residual self-attention over the entities", prefixes=prefixes)
