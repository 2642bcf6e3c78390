"""Laying graphs on each other: names, order and splitting don't matter, anything else does."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from graph2torch.canonical import canonicalise
from graph2torch.graph import Graph, read_graph
from graph2torch.judge.isomorphism import align
from tests.models import tiny_policy


def canonical(model: onnx.ModelProto) -> Graph:
    return canonicalise(read_graph(model, "graph"))


def renamed(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.ModelProto:
    """Inner values and initializers under other names, nodes in another valid order."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    ends = {v.name for v in (*model.graph.input, *model.graph.output)}
    names: dict[str, str] = {}
    for node in model.graph.node:
        for values in (node.input, node.output):
            for i, value in enumerate(values):
                if value and value not in ends:
                    values[i] = names.setdefault(value, f"v{rng.integers(1 << 60)}")
    for tensor in model.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    nodes, done, order = list(model.graph.node), {v.name for v in (*model.graph.input, *model.graph.initializer)}, []
    while nodes:
        ready = [n for n in nodes if all(not v or v in done for v in n.input)]
        node = ready[rng.integers(len(ready))]
        nodes.remove(node)
        order.append(node)
        done |= set(node.output)
    del model.graph.node[:]
    model.graph.node.extend(order)
    return model


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), observations=st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_names_and_order_do_not_matter(seed: int, observations: list[int]) -> None:
    model = tiny_policy(observations=observations, seed=seed % 100)
    assert align(canonical(model), canonical(renamed(model, np.random.default_rng(seed)))).isomorphic


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_changed_weight_is_seen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = tiny_policy()
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    tensor = changed.graph.initializer[int(rng.integers(len(changed.graph.initializer)))]
    array = numpy_helper.to_array(tensor).copy()
    flat = array.reshape(-1)
    place = int(rng.integers(flat.size))
    flat[place] = np.nextafter(flat[place], np.float32(np.inf))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    alignment = align(canonical(model), canonical(changed))
    assert alignment.refusal is None
    assert [a for a, _ in alignment.differing] == [tensor.name]
    assert not alignment.isomorphic


def test_swapped_outputs_are_seen() -> None:
    model = tiny_policy()
    swapped = onnx.ModelProto.FromString(model.SerializeToString())
    for node in swapped.graph.node:
        for i, value in enumerate(node.output):
            node.output[i] = {
                "continuous_actions": "deterministic_continuous_actions",
                "deterministic_continuous_actions": "continuous_actions",
            }.get(value, value)
    assert align(canonical(model), canonical(swapped)).refusal


def test_the_refusal_names_the_place() -> None:
    model = tiny_policy()
    other = onnx.ModelProto.FromString(model.SerializeToString())
    next(n for n in other.graph.node if n.op_type == "Sigmoid").op_type = "Tanh"
    refusal = align(canonical(model), canonical(other)).refusal
    assert refusal is not None and "Sigmoid" in refusal and "Tanh" in refusal


def graph_of(text: str, overridable: str = "", opset: int = 13) -> Graph:
    model = helper.make_model(onnx.parser.parse_graph(text), opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    model.graph.input.extend(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in overridable)
    return canonical(model)


@pytest.mark.parametrize("text", ["y = Sub (p, q) z = Mul (x, y)", "y = Sub (q, p) z = Mul (x, y)"])
def test_constants_that_can_be_overridden_are_the_same_only_under_the_same_name(text: str) -> None:
    head = "g (float[n] x) => (float[n] z) <float[1] p = {2.0}, float[1] q = {2.0}>"
    one, other = (graph_of(f"{head} {{ {inside} }}", "pq") for inside in ("y = Sub (p, q) z = Mul (x, y)", text))
    assert align(one, other).isomorphic == ("(p, q)" in text)
    fixed = (graph_of(f"{head} {{ {inside} }}") for inside in ("y = Sub (p, q) z = Mul (x, y)", text))
    assert align(*fixed).isomorphic  # equal numbers that nobody can change are the same wherever they are kept


def test_a_bound_that_can_be_overridden_is_not_looked_at() -> None:
    """A Slice keeps everything only as long as nobody changes its end; steps of 1 likewise."""
    text = "g (float[b, 6] x) => (float[b, k] y) <int64[1] s = {0}, int64[1] e = {6}, int64[1] a = {1}, int64[1] t = {1}> { c = Slice (x, s, e, a, t) y = Exp (c) }"
    model = helper.make_model(onnx.parser.parse_graph(text), opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    assert [n.op for n in canonical(model).nodes] == ["Exp"]
    for name, operands in (("e", 4), ("t", 5)):
        changeable = onnx.ModelProto.FromString(model.SerializeToString())
        changeable.graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [1]))
        assert [(n.op, len(n.inputs)) for n in canonical(changeable).nodes] == [("Slice", operands), ("Exp", 1)]


def test_commuted_operands_pair_off_by_what_they_compute_even_in_a_drifted_copy() -> None:
    text = (
        "g (float[n] x) => (float[n] y) <float[1] p = {2.0}, float[1] q = {%s}> { a = Mul (x, p) c = Tanh (x) d = Mul (c, q) y = Add (%s) }"
    )
    same = align(graph_of(text % ("3.0", "a, d")), graph_of(text % ("3.0", "d, a")))
    assert same.isomorphic and set(same.constants) == {("p", "p"), ("q", "q")}
    drifted = align(graph_of(text % ("3.0", "a, d")), graph_of(text % ("3.5", "d, a")))
    assert drifted.refusal is None and drifted.differing == (("q", "q"),)


def test_draws_pair_off_one_to_one() -> None:
    text = "g (float[n] x) => (float[n] y, float[n] z) { r = RandomNormalLike (x) s = RandomNormalLike (x) y = Sub (r, s) z = Mul (%s, x) }"
    one = graph_of(text % "r")
    assert align(one, graph_of(text % "r")).isomorphic
    refusal = align(one, graph_of(text % "s")).refusal
    assert refusal is not None and "drawn once" in refusal


def test_nodes_that_compute_the_same_form_one_class() -> None:
    one = graph_of("g (float[n] x) => (float[n] y) { s = Sigmoid (x) p = Mul (x, s) q = Mul (s, x) y = Div (p, q) }")
    two = graph_of("g (float[n] x) => (float[n] y) { s = Sigmoid (x) p = Mul (x, s) y = Div (p, p) }")
    alignment = align(one, two)
    assert alignment.isomorphic
    found = [({n.index for n in a}, {n.index for n in b}) for a, b in alignment.classes]
    assert sorted(found, key=str) == [({0}, {0}), ({1, 2}, {1}), ({3}, {2})]


def test_outputs_that_are_inputs_or_constants() -> None:
    text = "g (float[1] x, float[1] z) => (float[1] a, float[1] c) <float[1] k = {2.0}> { a = Identity (%s) c = Identity (%s) }"
    one = graph_of(text % ("x", "k"))
    assert align(one, graph_of(text % ("x", "k"))).isomorphic
    for other in (("z", "k"), ("k", "k"), ("x", "x")):
        assert align(one, graph_of(text % other)).refusal is not None


def test_entangled_graphs_are_given_up_rather_than_walked_for_ever() -> None:
    """Layers that read all of the layer before in two orders: pairs of draws multiply from layer to layer."""
    width, depth = 40, 40
    layers = [" ".join(f"v0_{i} = RandomNormalLike <seed = {i}.0> (x)" for i in range(width))]
    for d in range(1, depth):
        layers.append(" ".join(f"v{d}_{i} = Sub (v{d - 1}_{i}, v{d - 1}_{(i * 7 + d) % width})" for i in range(width)))
    order = [f"v{depth - 1}_{i}" for i in range(width)]
    text = "g (float[n] x) => (float[k] y) { %s y = Concat <axis = 0> (%s) }"
    one = graph_of(text % (" ".join(layers), ", ".join(order)))
    two = graph_of(text % (" ".join(layers), ", ".join(order[1:] + order[:1])))
    assert align(one, one).isomorphic
    assert align(one, two).refusal is not None


@pytest.mark.parametrize("op", ["Sum", "Max"])
def test_thousands_of_operands_and_readers(op: str) -> None:
    parts = [f"a{i} = Add (h, w{i})" for i in range(3000)]
    weights = ", ".join(f"float[1] w{i} = {{{i}.0}}" for i in range(3000))
    text = f"g (float[n] x) => (float[n] y) <{weights}> {{ h = Tanh (x) {' '.join(parts)} y = {op} ({', '.join(f'a{i}' for i in range(3000))}) }}"
    one = graph_of(text)
    swapped = [part.replace("(h, ", "(").replace(")", ", h)") for part in parts]
    two = graph_of(text.replace(" ".join(parts), " ".join(reversed(swapped))))
    alignment = align(one, two)
    assert alignment.isomorphic and len(alignment.constants) == 3000


def test_a_chain_of_any_length_is_laid_on_itself() -> None:
    names = ["x", *(f"v{i}" for i in range(20_000)), "y"]
    text = " ".join(f"{b} = {'Relu' if i % 2 else 'Neg'} ({a})" for i, (a, b) in enumerate(itertools.pairwise(names)))
    graph = graph_of(f"g (float[n] x) => (float[n] y) {{ {text} }}")
    alignment = align(graph, graph)
    assert alignment.isomorphic and len(alignment.classes) == 20_001
