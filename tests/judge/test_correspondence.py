"""What belongs together in two graphs: names and order don't matter, and one change leaves everything else paired."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph2torch.graph import ValueInfo
from graph2torch.judge.correspondence import Correspondence, correspond, pair_declared
from tests.judge.test_isomorphism import canonical, renamed
from tests.models import FAMILIES, tiny_policy

HEAD = "action_model._continuous_distribution"


def compared(a: onnx.ModelProto, b: onnx.ModelProto) -> Correspondence:
    """The correspondence, after what must hold of any was checked."""
    first, second = canonical(a), canonical(b)
    found = correspond(first, second)
    assert len({x.index for x, _ in found.nodes}) == len({y.index for _, y in found.nodes}) == len(found.nodes)
    assert {x.index for x, _ in found.nodes} | {x.index for x in found.removed} == {x.index for x in first.nodes}
    assert {y.index for _, y in found.nodes} | {y.index for y in found.added} == {y.index for y in second.nodes}
    assert len(found.nodes) + len(found.removed) == len(first.nodes)
    assert len(set(found.values.values())) == len(found.values)
    assert len(set(found.constants)) == len(found.constants)
    assert all(v in first.constants and w in second.constants for v, w in found.constants)
    return found


def copy(model: onnx.ModelProto) -> onnx.ModelProto:
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    return twin


def outputs_of(found: Correspondence) -> dict[str, str]:
    """Of each paired node the first output, a's → b's."""
    return {x.outputs[0]: y.outputs[0] for x, y in found.nodes}


def mapped(model: onnx.ModelProto, rng: np.random.Generator) -> tuple[onnx.ModelProto, dict[str, str]]:
    """A renamed and reordered copy, and each node's name → what its first output is called there."""
    marked = copy(model)
    for i, node in enumerate(marked.graph.node):
        node.name = str(i)
    other = renamed(marked, rng)
    names = {n.name: n.output[0] for n in other.graph.node}
    for i, node in enumerate(other.graph.node):
        node.name = f"n{i}"
    return other, {node.output[0]: names[str(i)] for i, node in enumerate(model.graph.node)}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_renamed_copy_corresponds_wholly(family: str) -> None:
    model = tiny_policy(**FAMILIES[family])
    other, names = mapped(model, np.random.default_rng(5))
    found = compared(model, other)
    assert found.same_structure
    assert all(names[x] == y for x, y in outputs_of(found).items())


@pytest.mark.parametrize("family", FAMILIES)
def test_another_checkpoint_corresponds_wholly(family: str) -> None:
    found = compared(tiny_policy(**FAMILIES[family]), renamed(tiny_policy(**FAMILIES[family], seed=1), np.random.default_rng(0)))
    assert found.same_structure


@pytest.mark.parametrize("family", FAMILIES)
def test_each_changed_operator_is_found_and_all_others_stay_paired(family: str) -> None:
    """Every unary operator in turn becomes another one; the copy is renamed, reordered and of another checkpoint."""
    model, drifted = tiny_policy(**FAMILIES[family]), tiny_policy(**FAMILIES[family], seed=3)
    unary = [i for i, n in enumerate(model.graph.node) if n.op_type in ("Sigmoid", "Exp", "Relu", "LeakyRelu", "Log", "Tanh", "Sqrt")]
    assert unary
    for i in unary:
        other = copy(drifted)
        other.graph.node[i].op_type = "Softsign"
        del other.graph.node[i].attribute[:]
        other, names = mapped(other, np.random.default_rng(i))
        found = compared(model, other)
        assert [(c.kind, c.a.outputs[0], c.b.outputs[0]) for c in found.changed] == [
            ("operator", out := model.graph.node[i].output[0], names[out])
        ]
        assert not found.removed and not found.added
        assert all(names[x] == y for x, y in outputs_of(found).items())


@pytest.mark.parametrize("family", FAMILIES)
def test_each_inserted_node_is_found_and_all_others_stay_paired(family: str) -> None:
    model = tiny_policy(**FAMILIES[family])
    for i in range(0, len(model.graph.node), 5):
        output = model.graph.node[i].output[0]
        users = [n for n in model.graph.node if output in n.input]
        if not users or model.graph.node[i].op_type == "Constant" or not output:
            continue
        other = copy(model)
        for node in other.graph.node:
            for place, value in enumerate(node.input):
                if value == output:
                    node.input[place] = "inserted"
        other.graph.node.insert(i + 1, helper.make_node("Neg", [output], ["inserted"]))
        found = compared(model, other)
        assert [n.op for n in found.added] == ["Neg"] and not found.removed
        assert all(x == y for x, y in outputs_of(found).items())
        assert {c.kind for c in found.changed} <= {"operands"}


def silu_to_relu(model: onnx.ModelProto) -> onnx.ModelProto:
    model = copy(model)
    sigmoids = {n.output[0]: n for n in model.graph.node if n.op_type == "Sigmoid"}
    for node in list(model.graph.node):
        if node.op_type == "Mul" and node.input[1] in sigmoids:
            model.graph.node.remove(sigmoids[node.input[1]])
            node.op_type = "Relu"
            del node.input[1:]
    return model


def test_relu_for_every_silu_leaves_the_layers_paired() -> None:
    model = tiny_policy(layers=4)
    found = compared(model, silu_to_relu(tiny_policy(layers=4, seed=1)))
    assert [(c.a.op, c.b.op) for c in found.changed] == [("Mul", "Relu")] * 4
    assert [n.op for n in found.removed] == ["Sigmoid"] * 4
    assert sum(x.op == "Gemm" for x, _ in found.nodes) == 5


def test_another_width_is_a_change_of_constants() -> None:
    found = compared(tiny_policy(hidden=8), tiny_policy(hidden=12, seed=1))
    assert not found.removed and not found.added
    assert {c.kind for c in found.changed} == {"constant"} and {c.a.op for c in found.changed} == {"Gemm"}
    assert any("[8, 4], in the other graph float32 [12, 4]" in c.words for c in found.changed)


def test_a_further_layer_is_added_between_first_and_head() -> None:
    found = compared(tiny_policy(layers=2), tiny_policy(layers=3, seed=1))
    assert sorted(n.op for n in found.added) == ["Gemm", "Mul", "Sigmoid"] and not found.removed
    heads = [[v for v in n.inputs if v.endswith("mu.weight")] for pair in found.nodes for n in pair]
    assert heads.index([f"{HEAD}.mu.weight"]) % 2 == 0 and sum(map(len, heads)) == 2
    assert heads[heads.index([f"{HEAD}.mu.weight"]) + 1] == [f"{HEAD}.mu.weight"]


def test_a_further_observation_leaves_the_rest_paired() -> None:
    found = compared(tiny_policy(observations=(4, 3)), tiny_policy(observations=(4, 3, 5), seed=1))
    assert [n.op for n in found.added] == ["Sub", "Div", "Clip"] and not found.removed


def test_operand_order_matters_where_the_operator_does_not_commute() -> None:
    model = tiny_policy()
    for op, kinds in (("Sub", {"operands"}), ("Mul", set[str]())):
        other = copy(model)
        node = next(n for n in other.graph.node if n.op_type == op)
        node.input[0], node.input[1] = node.input[1], node.input[0]
        found = compared(model, other)
        assert {c.kind for c in found.changed} == kinds
        assert not found.removed and not found.added
    assert "in another order" in compared(model, swapped(model)).changed[0].words


def swapped(model: onnx.ModelProto) -> onnx.ModelProto:
    other = copy(model)
    node = next(n for n in other.graph.node if n.op_type == "Sub")
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return other


def test_a_changed_attribute_is_named() -> None:
    model = tiny_policy(**FAMILIES["discrete"])
    other = copy(model)
    next(n for n in other.graph.node if n.op_type == "Softmax").attribute[0].i = 0
    found = compared(model, other)
    assert [c.kind for c in found.changed] == ["attribute"] and "axis is 1, in the other graph 0" in found.changed[0].words


def test_the_constants_of_a_drifted_copy_are_paired_by_use() -> None:
    model, other = tiny_policy(), tiny_policy(seed=1)
    found = compared(model, renamed(other, np.random.default_rng(0)))
    sizes = [{t.name: tuple(t.dims) for t in m.graph.initializer} for m in (model, other)]
    pairs = [(x, y) for x, y in found.constants if x in sizes[0]]
    assert {x for x, _ in pairs} >= {n for n in sizes[0] if n.startswith("network_body")}
    assert len({y for _, y in pairs}) == len(pairs)


def test_a_constant_that_is_shared_in_one_graph_stands_in_two_pairs() -> None:
    def two(share: bool) -> onnx.ModelProto:
        names = ["k", "k" if share else "l"]
        nodes = [helper.make_node("Div", ["x", names[0]], ["d"]), helper.make_node("Pow", ["d", names[1]], ["y"])]
        tensors = [numpy_helper.from_array(np.full(100, 2, np.float32), n) for n in dict.fromkeys(names)]
        return graph_of(nodes, tensors, {"x": [100]}, {"y": [100]})

    assert compared(two(True), two(False)).constants == (("k", "k"), ("k", "l"))


def graph_of(
    nodes: list[onnx.NodeProto], tensors: list[onnx.TensorProto], inputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> onnx.ModelProto:
    given, made = ([helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ends.items()] for ends in (inputs, outputs))
    graph = helper.make_graph(nodes, "g", given, made, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)


def branches(count: int, rng: np.random.Generator, merge: str = "Sum") -> onnx.ModelProto:
    """Equal branches of Gemm, Tanh, Gemm that are summed up, in a random order."""
    tensors = [numpy_helper.from_array(rng.normal(size=(4, 4)).astype(np.float32), f"w{i}.{j}") for i in range(count) for j in (0, 1)]
    parts = [
        [
            helper.make_node("Gemm", ["x", f"w{i}.0"], [f"g{i}"]),
            helper.make_node("Tanh", [f"g{i}"], [f"t{i}"]),
            helper.make_node("Gemm", [f"t{i}", f"w{i}.1"], [f"h{i}"]),
        ]
        for i in range(count)
    ]
    order = rng.permutation(count).tolist()
    joined = helper.make_node(merge, [f"h{i}" for i in order], ["y"])
    joined.attribute.extend([helper.make_attribute("axis", 1)] * (merge == "Concat"))
    return graph_of([*(part[k] for k in range(3) for part in parts), joined], tensors, {"x": [1, 4]}, {"y": None})


@pytest.mark.parametrize("merge", ["Sum", "Concat"])
@pytest.mark.parametrize("drifted", [False, True])
def test_equal_branches_pair_branch_to_branch(merge: str, drifted: bool) -> None:
    first = branches(64, np.random.default_rng(0), merge)
    second = branches(64, np.random.default_rng(1), merge) if drifted else copy(first)
    found = compared(first, renamed(second, np.random.default_rng(2)) if drifted else mapped(second, np.random.default_rng(2))[0])
    assert found.same_structure
    pairs = outputs_of(found)
    partner = {x.outputs[0]: y for x, y in found.nodes}
    for i in range(64):  # within each branch the counterparts hang together
        assert partner[f"t{i}"].inputs[0] == pairs[f"g{i}"]
        assert partner[f"h{i}"].inputs[0] == pairs[f"t{i}"]


def test_bits_tell_equal_branches_apart() -> None:
    model = branches(64, np.random.default_rng(0))
    other, names = mapped(model, np.random.default_rng(7))
    tensor = other.graph.initializer[11]
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) + np.float32(1), tensor.name))
    assert all(names[x] == y for x, y in outputs_of(compared(model, other)).items())


def test_unrelated_graphs_have_hardly_anything_in_common() -> None:
    found = compared(tiny_policy(**FAMILIES["attention"]), branches(3, np.random.default_rng(0)))
    assert len(found.nodes) < 8 and len(found.removed) > 50


def chain(layers: int, ops: Callable[[int], str]) -> onnx.ModelProto:
    nodes = [helper.make_node(ops(i), [f"v{i}"], [f"v{i + 1}"]) for i in range(layers)]
    return graph_of(nodes, [], {"v0": [1]}, {f"v{layers}": [1]})


def test_a_long_chain_changed_in_every_third_place() -> None:
    a = chain(900, lambda i: "Tanh" if i % 3 else "Exp")
    b = chain(900, lambda i: "Tanh" if i % 3 else "Abs")
    b.graph.output[0].name = b.graph.node[-1].output[0]
    found = compared(a, b)
    assert sum(x.op == "Tanh" for x, _ in found.nodes) == 600
    assert all(x.outputs == y.outputs for x, y in found.nodes)
    assert {(c.a.op, c.b.op) for c in found.changed if c.kind == "operator"} == {("Exp", "Abs")}
    assert len(found.nodes) == 900


def test_inputs_pair_by_name_then_by_size_then_by_rank() -> None:
    def value(name: str, *shape: int | str) -> ValueInfo:
        return ValueInfo(name, np.dtype(np.float32), shape)

    a = (value("obs_0", "b", 4), value("obs_1", "b", 3), value("state", "b", 8))
    b = (value("s", "b", 9), value("x", "batch", 3), value("obs_0", "b", 5))
    assert pair_declared(a, b) == {"obs_0": "obs_0", "obs_1": "x", "state": "s"}
