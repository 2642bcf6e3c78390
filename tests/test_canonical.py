"""What the canonical form treats as equal is bit-equal in onnxruntime, with its optimiser on and off."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import helper

from graph2torch.canonical import OPERANDS, canonicalise
from graph2torch.graph import Graph, read_graph
from graph2torch.judge.figures import different_bits
from graph2torch.judge.isomorphism import COMMUTES, COMMUTES_WITH_TWO, align


def model_of(text: str, opset: int) -> onnx.ModelProto:
    return helper.make_model(onnx.parser.parse_graph(text), opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def canonical(model: onnx.ModelProto) -> Graph:
    return canonicalise(read_graph(model, "graph"))


def run(
    model: onnx.ModelProto, feed: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]], optimised: bool
) -> list[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    options = ort.SessionOptions()
    options.graph_optimization_level = (
        ort.GraphOptimizationLevel.ORT_ENABLE_ALL if optimised else ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(x) for x in session.run(None, feed)]


# two spellings of one meaning, each with its opset; x is [4, 6]
PAIRS = {
    "constant node and initializer": (
        ("g (float[b, 6] x) => (float[b, 6] y) { k = Constant <value = float {0.3}> () y = Mul (x, k) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) <float k = {0.3}> { y = Mul (x, k) }", 9),
    ),
    "identity of a value": (
        ("g (float[b, 6] x) => (float[b, 6] y) { i = Identity (x) j = Identity (i) y = Sigmoid (j) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { y = Sigmoid (x) }", 9),
    ),
    "identity of an initializer": (
        ("g (float[b, 6] x) => (float[b, 6] y) <float k = {0.7}> { i = Identity (k) y = Div (x, i) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) <float k = {0.7}> { y = Div (x, k) }", 9),
    ),
    "identity before an output": (
        ("g (float[b, 6] x) => (float[b, 6] y) { z = Exp (x) y = Identity (z) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { y = Exp (x) }", 9),
    ),
    "concat of one": (
        ("g (float[b, 6] x) => (float[b, 6] y) { c = Concat <axis = 1> (x) y = Sigmoid (c) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { y = Sigmoid (x) }", 9),
    ),
    "slice of the whole": (
        ("g (float[b, 6] x) => (float[b, 6] y) { s = Slice <starts = [0], ends = [6], axes = [1]> (x) y = Sigmoid (s) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { y = Sigmoid (x) }", 9),
    ),
    "clip's bounds as attributes and as operands": (
        ("g (float[b, 6] x) => (float[b, 6] y) { y = Clip <min = -5.0, max = 5.0> (x) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) <float lo = {-5.0}, float hi = {5.0}> { y = Clip (x, lo, hi) }", 13),
    ),
    "slice's bounds as attributes and as operands": (
        ("g (float[b, 6] x) => (float[b, 3] y) { y = Slice <starts = [2], ends = [5], axes = [1]> (x) }", 9),
        (
            "g (float[b, 6] x) => (float[b, 3] y) <int64[1] s = {2}, int64[1] e = {5}, int64[1] a = {1}, int64[1] k = {1}> { y = Slice (x, s, e, a, k) }",
            13,
        ),
    ),
    "operands swapped": (
        ("g (float[b, 6] x) => (float[b, 6] y) { s = Sigmoid (x) m = Mul (x, s) y = Add (m, x) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { s = Sigmoid (x) m = Mul (s, x) y = Add (x, m) }", 9),
    ),
    "a convolution's strides, pads and dilations": (
        (
            """g (float[b, 6] x) => (float[b, 1, 5] y) <float[1, 1, 2] w = {0.3, -0.7}> { u = Unsqueeze <axes = [1]> (x)
                y = Conv <kernel_shape = [2], strides = [1], pads = [0, 0], dilations = [1]> (u, w) }""",
            9,
        ),
        (
            "g (float[b, 6] x) => (float[b, 1, 5] y) <float[1, 1, 2] w = {0.3, -0.7}> { u = Unsqueeze <axes = [1]> (x) y = Conv <kernel_shape = [2]> (u, w) }",
            9,
        ),
    ),
    "a pool's dilations, new in opset 10": (
        (
            """g (float[b, 6] x) => (float[b, 1, 3] y) { u = Unsqueeze <axes = [1]> (x)
                y = MaxPool <kernel_shape = [2], strides = [2], pads = [0, 0], dilations = [1]> (u) }""",
            11,
        ),
        (
            "g (float[b, 6] x) => (float[b, 1, 3] y) { u = Unsqueeze <axes = [1]> (x) y = MaxPool <kernel_shape = [2], strides = [2]> (u) }",
            9,
        ),
    ),
    "attributes at their default": (
        ("g (float[b, 6] x) => (float[b, 6] y) { y = LeakyRelu <alpha = 0.01> (x) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { y = LeakyRelu (x) }", 9),
    ),
    "order of nodes": (
        ("g (float[b, 6] x) => (float[b, 6] y) { a = Exp (x) b = Sigmoid (x) y = Sub (a, b) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { b = Sigmoid (x) a = Exp (x) y = Sub (a, b) }", 9),
    ),
    "dead nodes": (
        ("g (float[b, 6] x) => (float[b, 6] y) { d = Exp (x) e = Neg (d) y = Sigmoid (x) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { y = Sigmoid (x) }", 9),
    ),
    "axes as attribute and as operand": (
        ("g (float[b, 6] x) => (float[b, 1, 6] y) { y = Unsqueeze <axes = [1]> (x) }", 9),
        ("g (float[b, 6] x) => (float[b, 1, 6] y) <int64[1] a = {1}> { y = Unsqueeze (x, a) }", 13),
    ),
    "clip with one bound": (
        ("g (float[b, 6] x) => (float[b, 6] y) { y = Clip <max = 5.0> (x) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) <float hi = {5.0}> { y = Clip (x, , hi) }", 13),
    ),
    "softmax's axis, written out since its default changed": (
        ("g (float[b, 6] x) => (float[b, 6] y) { y = Softmax <axis = -1> (x) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { y = Softmax (x) }", 13),
    ),
    "log softmax over the last axis, old and new": (
        ("g (float[b, 6] x) => (float[b, 6] y) { y = LogSoftmax (x) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { y = LogSoftmax <axis = 1> (x) }", 13),
    ),
    "pad's sizes and value as attributes and as operands": (
        ("g (float[b, 6] x) => (float[b, 9] y) { y = Pad <pads = [0, 1, 0, 2], value = 0.5> (x) }", 9),
        ("g (float[b, 6] x) => (float[b, 9] y) <int64[4] p = {0, 1, 0, 2}, float v = {0.5}> { y = Pad (x, p, v) }", 13),
    ),
    "how many TopK takes as attribute and as operand": (
        ("g (float[b, 6] x) => (float[b, 3] y, int64[b, 3] i) { y, i = TopK <axis = 1, k = 3> (x) }", 9),
        ("g (float[b, 6] x) => (float[b, 3] y, int64[b, 3] i) <int64[1] k = {3}> { y, i = TopK <axis = 1, largest = 1> (x, k) }", 11),
    ),
    "split's sizes as attribute and as operand": (
        ("g (float[b, 6] x) => (float[b, 2] y, float[b, 4] z) { y, z = Split <axis = 1, split = [2, 4]> (x) }", 9),
        ("g (float[b, 6] x) => (float[b, 2] y, float[b, 4] z) <int64[2] s = {2, 4}> { y, z = Split <axis = 1> (x, s) }", 13),
    ),
    "squeeze's axes as attribute and as operand": (
        ("g (float[b, 6] x) => (float[b, 6] y) { u = Unsqueeze <axes = [1]> (x) y = Squeeze <axes = [1]> (u) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) <int64[1] a = {1}> { u = Unsqueeze (x, a) y = Squeeze (u, a) }", 13),
    ),
    "slice's bounds in 32 and in 64 bits, its axes written out or not": (
        ("g (float[b, 6] x) => (float[b, 6] y) <int32[1] s = {1}, int32[1] e = {3}> { y = Slice (x, s, e) }", 13),
        ("g (float[b, 6] x) => (float[b, 6] y) <int64[1] s = {1}, int64[1] e = {3}, int64[1] a = {0}> { y = Slice (x, s, e, a) }", 13),
    ),
    "allowzero where no zero stands in the shape": (
        ("g (float[b, 6] x) => (float[b, 2, 3] y) <int64[3] s = {-1, 2, 3}> { y = Reshape <allowzero = 1> (x, s) }", 18),
        ("g (float[b, 6] x) => (float[b, 2, 3] y) <int64[3] s = {-1, 2, 3}> { y = Reshape (x, s) }", 18),
    ),
    "the same operator on the same operands once or twice": (
        ("g (float[b, 6] x) => (float[b, 6] y) { p = Exp (x) q = Exp (x) y = Sub (p, q) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { p = Exp (x) y = Sub (p, p) }", 9),
    ),
    "the same operator on equal small constants": (
        (
            "g (float[b, 6] x) => (float[b, 6] y) <float[1] k = {0.3}, float[1] l = {0.3}> { p = Mul (x, k) q = Mul (x, l) y = Div (p, q) }",
            9,
        ),
        ("g (float[b, 6] x) => (float[b, 6] y) <float[1] k = {0.3}> { p = Mul (x, k) y = Div (p, p) }", 9),
    ),
    **{
        f"{op} over one axis, as attribute and as operand": (
            (f"g (float[b, 6] x) => (float[b] y) {{ y = {op} <axes = [1], keepdims = 0> (x) }}", 11),
            (f"g (float[b, 6] x) => (float[b] y) <int64[1] a = {{1}}> {{ y = {op} <keepdims = 0> (x, a) }}", 18),
        )
        for op in sorted(op for op in OPERANDS if op.startswith("Reduce"))
    },
    **{
        f"the operands of {op}": (
            (f"g (float[b, 6] x) => (float[b, 6] y) {{ r = Reciprocal (x) y = {op} (x, r) }}", 13),
            (f"g (float[b, 6] x) => (float[b, 6] y) {{ r = Reciprocal (x) y = {op} (r, x) }}", 13),
        )
        for op in ("Add", "Mul", "Sum", "Mean")
    },
    "the operands of Equal": (
        ("g (float[b, 6] x) => (bool[b, 6] y) { r = Reciprocal (x) y = Equal (x, r) }", 13),
        ("g (float[b, 6] x) => (bool[b, 6] y) { r = Reciprocal (x) y = Equal (r, x) }", 13),
    ),
    **{
        f"the operands of {op}": (
            (f"g (float[b, 6] x) => (bool[b, 6] y) {{ p = Cast <to = 9> (x) r = Floor (x) q = Cast <to = 9> (r) y = {op} (p, q) }}", 13),
            (f"g (float[b, 6] x) => (bool[b, 6] y) {{ p = Cast <to = 9> (x) r = Floor (x) q = Cast <to = 9> (r) y = {op} (q, p) }}", 13),
        )
        for op in ("And", "Or", "Xor")
    },
}


@pytest.mark.parametrize("op", sorted(COMMUTES | COMMUTES_WITH_TWO))
def test_every_commutative_operator_has_a_pair(op: str) -> None:
    assert f"the operands of {op}" in PAIRS or op.startswith("Bitwise")


@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
def test_bitwise_operands_commute(op: str) -> None:
    one, two = (model_of(f"g (int32[b] x, int32[b] z) => (int32[b] y) {{ y = {op} ({operands}) }}", 18) for operands in ("x, z", "z, x"))
    assert align(canonical(one), canonical(two)).isomorphic
    x, z = np.random.default_rng(0).integers(-(2**31), 2**31, (2, 500)).astype(np.int32)
    for optimised in (True, False):
        assert np.array_equal(run(one, {"x": x, "z": z}, optimised)[0], run(two, {"x": x, "z": z}, optimised)[0])


SIGNED_ZEROS = np.asarray([0.0, -0.0, 0.0, -0.0] * 4, np.float32), np.asarray([-0.0, 0.0, 0.0, -0.0] * 4, np.float32)
THREE = np.asarray([1.0] * 4, np.float32), np.asarray([1e8] * 4, np.float32), np.asarray([-1e8] * 4, np.float32)


@pytest.mark.parametrize(
    ("op", "values"),
    [("Max", SIGNED_ZEROS), ("Min", SIGNED_ZEROS), ("Sum", (*THREE,)), ("Mean", (*THREE,))],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_does_not_commute_to_the_bit_is_not_taken_for_the_same(
    op: str, values: tuple[np.ndarray[tuple[int], np.dtype[np.float32]], ...]
) -> None:
    """Max and Min of 0 and −0, and sums of three: onnxruntime gives other bits for another order, so the order counts."""
    names = ["x", "z", "w"][: len(values)]
    given = ", ".join(f"float[n] {name}" for name in names)
    one, two = (model_of(f"g ({given}) => (float[n] y) {{ y = {op} ({', '.join(order)}) }}", 13) for order in (names, names[::-1]))
    feed: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]] = {k: np.asarray(v) for k, v in zip(names, values, strict=True)}
    assert different_bits(run(one, feed, False)[0], run(two, feed, False)[0]).any()
    assert not align(canonical(one), canonical(two)).isomorphic


@pytest.mark.parametrize("name", PAIRS)
def test_two_spellings_have_one_canonical_form_and_equal_bits(name: str) -> None:
    one, two = (model_of(*spelling) for spelling in PAIRS[name])
    assert align(canonical(one), canonical(two)).isomorphic, align(canonical(one), canonical(two)).refusal
    special = np.asarray(
        [[np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40], [5.0, -5.0, np.nextafter(np.float32(5), np.float32(6)), 1e20, -1e-45, 3.0]],
        np.float32,
    )
    random = (np.random.default_rng(0).standard_normal((200, 6)) * np.exp(np.random.default_rng(1).standard_normal((200, 6)) * 4)).astype(
        np.float32
    )
    for x in (special, random, random[:1]):
        for optimised in (True, False):
            a, b = run(one, {"x": x}, optimised), run(two, {"x": x}, optimised)
            assert not any(different_bits(p, q).any() for p, q in zip(a, b, strict=True))


# pairs that look alike but are not the same computation
DIFFERENT = {
    "another constant": (
        ("g (float[b, 6] x) => (float[b, 6] y) <float k = {0.3}> { y = Mul (x, k) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) <float k = {0.30000004}> { y = Mul (x, k) }", 9),
    ),
    "zero and minus zero": (
        ("g (float[b, 6] x) => (float[b, 6] y) <float k = {0.0}> { y = Add (x, k) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) <float k = {-0.0}> { y = Add (x, k) }", 9),
    ),
    "an addition of zero": (
        ("g (float[b, 6] x) => (float[b, 6] y) <float k = {0.0}> { y = Add (x, k) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { y = Identity (x) }", 9),
    ),
    "operands of a subtraction": (
        ("g (float[b, 6] x) => (float[b, 6] y) { s = Sigmoid (x) y = Sub (x, s) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { s = Sigmoid (x) y = Sub (s, x) }", 9),
    ),
    "an attribute": (
        ("g (float[b, 6] x) => (float[b, 6] y) { y = LeakyRelu <alpha = 0.01> (x) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { y = LeakyRelu <alpha = 0.02> (x) }", 9),
    ),
    "a slice of a part": (
        ("g (float[b, 6] x) => (float[b, 5] y) { s = Slice <starts = [0], ends = [5], axes = [1]> (x) y = Sigmoid (s) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { y = Sigmoid (x) }", 9),
    ),
    "a slice of an input whose size is free": (
        ("g (float[b, k] x) => (float[b, k] y) { s = Slice <starts = [0], ends = [6], axes = [1]> (x) y = Sigmoid (s) }", 9),
        ("g (float[b, k] x) => (float[b, k] y) { y = Sigmoid (x) }", 9),
    ),
    "one draw and two": (
        ("g (float[b, 6] x) => (float[b, 6] y) { r = RandomNormalLike (x) y = Sub (r, r) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { r = RandomNormalLike (x) s = RandomNormalLike (x) y = Sub (r, s) }", 9),
    ),
    "another operator": (
        ("g (float[b, 6] x) => (float[b, 6] y) { y = Sigmoid (x) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { y = Tanh (x) }", 9),
    ),
    "two arrays of one size": (
        ("g (int64[n] x) => (float[?] y, float[?] z) { y = ConstantOfShape <value = float[1] {1.0}> (x) z = Neg (y) }", 9),
        (
            "g (int64[n] x) => (float[?] y, float[?] z) { a = ConstantOfShape <value = int32[1] {1065353216}> (x) y = Cast <to = 1> (a) z = Neg (y) }",
            9,
        ),
    ),
    "halves and thirds": (
        ("g (float[b, 6] x) => (float[b, k] y) { y, z = Split <axis = 1> (x) }", 9),
        ("g (float[b, 6] x) => (float[b, k] y) { y, z, w = Split <axis = 1> (x) }", 9),
    ),
    "a default of 0 and −0": (
        ("g (float[b, 6] x) => (float[b, 6] y) { r = RandomNormalLike <mean = 0.0> (x) y = Sub (r, x) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { r = RandomNormalLike <mean = -0.0> (x) y = Sub (r, x) }", 9),
    ),
    "numbers drawn as doubles and as floats": (
        ("g (double[b, 6] x) => (double[b, 6] y) { r = RandomNormalLike (x) y = Cast <to = 11> (r) }", 9),
        ("g (double[b, 6] x) => (double[b, 6] y) { r = RandomNormalLike <dtype = 1> (x) y = Cast <to = 11> (r) }", 9),
    ),
    "numbers drawn as whole ones and as floats": (
        ("g (int64[b, 6] x) => (float[b, 6] y) { r = RandomNormalLike (x) y = Cast <to = 1> (r) }", 9),
        ("g (int64[b, 6] x) => (float[b, 6] y) { r = RandomNormalLike <dtype = 1> (x) y = Cast <to = 1> (r) }", 9),
    ),
    "the same, of what is computed": (
        ("g (int64[b, 6] x) => (float[b, 6] y) { a = Add (x, x) m = Abs (a) r = RandomNormalLike (m) y = Cast <to = 1> (r) }", 9),
        (
            "g (int64[b, 6] x) => (float[b, 6] y) { a = Add (x, x) m = Abs (a) r = RandomNormalLike <dtype = 1> (m) y = Cast <to = 1> (r) }",
            9,
        ),
    ),
    "softmax over all further axes, and over one": (
        ("g (float[b, 6, 2] x) => (float[b, 6, 2] y) { y = Softmax <axis = 1> (x) }", 9),
        ("g (float[b, 6, 2] x) => (float[b, 6, 2] y) { y = Softmax <axis = 1> (x) }", 13),
    ),
    "an operator that another opset defines otherwise": (
        ("g (float[b, 3, 2] x) => (float[b, 3, 2] y) { y = DFT (x) }", 17),
        ("g (float[b, 3, 2] x) => (float[b, 3, 2] y) { y = DFT (x) }", 20),
    ),
    "the type of an input": (
        ("g (int64[b, 6] x) => (float[b, 6] y) { y = Cast <to = 1> (x) }", 9),
        ("g (float[b, 6] x) => (float[b, 6] y) { y = Cast <to = 1> (x) }", 9),
    ),
    "the size of an input": (
        ("g (float[b, 6] x) => (float[b, k] y) { y = Exp (x) }", 9),
        ("g (float[b, 7] x) => (float[b, k] y) { y = Exp (x) }", 9),
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_computations_are_told_apart(name: str) -> None:
    one, two = (canonical(model_of(*spelling)) for spelling in DIFFERENT[name])
    assert not align(one, two).isomorphic
    assert not align(two, one).isomorphic


def test_every_canonical_node_remembers_the_files_nodes() -> None:
    text = "g (float[b, 6] x) => (float[b, 6] y) { k = Constant <value = float {0.3}> () i = Identity (k) c = Concat <axis = 1> (x) m = Mul (c, i) d = Exp (x) y = Identity (m) }"
    graph = canonical(model_of(text, 9))
    (node,) = graph.nodes
    assert (node.op, node.index, set(node.through)) == ("Mul", 3, {0, 1, 2})
    assert graph.through["y"] == (5,)
    assert graph.dead == (4,)


def test_an_overridable_initializer_is_told_from_a_constant() -> None:
    one = model_of("g (float[b, 6] x) => (float[b, 6] y) <float k = {0.3}> { y = Mul (x, k) }", 9)
    two = onnx.ModelProto.FromString(one.SerializeToString())
    two.graph.input.append(helper.make_tensor_value_info("k", onnx.TensorProto.FLOAT, []))
    assert canonical(two).overridable == {"k"}
    assert not align(canonical(one), canonical(two)).isomorphic


def operators(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def test_the_same_operator_on_the_same_operands_stands_once() -> None:
    graph = canonical(
        model_of(
            """twice (float[b, 3] x) => (float[b, 3] y, float[b, 3] z) {
            one = Constant <value = float {1.0}> ()
            other = Constant <value = float {1.0}> ()
            p = Sub (one, x)
            q = Sub (other, x)
            y = Mul (p, q)
            z = Mul (q, p)
        }""",
            9,
        )
    )
    assert operators(graph) == ["Sub", "Mul"]
    assert graph.results == ("y", "y")
    assert graph.names_of("q") == ("q", "p")
    assert not graph.dead
    assert set(graph.through["z"]) == {5, 3, 1}  # the second Mul, the second Sub that it reads, and the constant of that


def test_what_only_looks_the_same_stands_twice() -> None:
    graph = canonical(
        model_of(
            """apart (float[b, 3] x) => (float[b, 3] y, float[b, 3] z, float[b, 3] n, float[b, 3] m) {
            one = Constant <value = float {1.0}> ()
            two = Constant <value = float {2.0}> ()
            y = Sub (one, x)
            z = Sub (two, x)
            n = RandomNormalLike (x)
            m = RandomNormalLike (x)
        }""",
            9,
        )
    )
    assert operators(graph) == ["Sub", "Sub", "RandomNormalLike", "RandomNormalLike"]


def test_attributes_tell_operators_apart() -> None:
    graph = canonical(
        model_of("axes (float[b, 3] x) => (float[b, 3] y, float[b, 3] z) { y = Softmax <axis = 0> (x) z = Softmax <axis = 1> (x) }", 9)
    )
    assert operators(graph) == ["Softmax", "Softmax"]


def test_overridable_constants_are_not_compared_by_value() -> None:
    text = (
        "given (float[b, 1] x) => (float[b, 1] y, float[b, 1] z) <float[1] p = {1.0}, float[1] q = {1.0}> { y = Add (x, p) z = Add (x, q) }"
    )
    model = model_of(text, 9)
    assert operators(canonical(model)) == ["Add"]
    model.graph.input.extend(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "pq")
    assert operators(canonical(model)) == ["Add", "Add"]


def test_allowzero_counts_only_where_a_zero_stands_in_the_shape() -> None:
    text = "shapes (float[b, 4] x) => (float[b, 2, 2] y) <int64[3] s = {%s}> { y = Reshape <allowzero = 1> (x, s) }"
    assert canonical(model_of(text % "-1, 2, 2", 18)).nodes[0].attributes == {}
    assert canonical(model_of(text % "0, 2, 2", 18)).nodes[0].attributes == {"allowzero": 1}
