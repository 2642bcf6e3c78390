"""The first divergence: planted faults are all found, each at the node where it sits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from graph2torch.canonical import canonicalise
from graph2torch.graph import Array, Model, read_graph
from graph2torch.judge import divergence as tested
from graph2torch.judge.correspondence import correspond
from graph2torch.judge.divergence import Divergence, differ, first_divergence, gap
from graph2torch.judge.observations import SEED, quick
from graph2torch.judge.runtime import session
from graph2torch.spec import Block
from tests.faults import KINDS, plant
from tests.judge.test_correspondence import branches, chain, copy, graph_of, silu_to_relu
from tests.judge.test_isomorphism import renamed
from tests.models import FAMILIES, tiny_policy

NO_BLOCKS: Sequence[Block] = ()


def family(name: str, opset: int = 9) -> onnx.ModelProto:
    return tiny_policy(**FAMILIES[name], opset=opset)


MODELS = [family(name, opset) for name in FAMILIES for opset in (9, 13)]


def diverging(a: onnx.ModelProto, b: onnx.ModelProto, **more: Any) -> Divergence:
    found = first_divergence(a, b, blocks=NO_BLOCKS, **more)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(54))
def test_a_random_fault_is_found_at_its_node(seed: int) -> None:
    """Each kind in turn, in each of the models in turn; the copy is renamed and reordered as well."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    order = np.roll(np.arange(len(MODELS)), -seed)
    model, fault = next((MODELS[i], fault) for i in order if (fault := plant(MODELS[i], rng, kind)) is not None)
    found = diverging(model, renamed(fault.model, rng))
    assert found.node is not None and found.node.index == fault.node, fault.words
    assert found.twin is not None and found.twin.op == fault.model.graph.node[fault.node].op_type
    expected = {"operand order": {"operands"}, "axis": {"attribute", "constant"}, "activation": {"operator"}}
    assert found.kind in expected.get(kind, {"constant"}), fault.words
    assert (found.gap is None) == (found.case is None)


def deterministic(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without what is drawn, so that plain runs can be compared."""
    model = copy(model)
    kept = [o for o in model.graph.output if o.name not in ("continuous_actions", "discrete_actions")]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    return model


@pytest.mark.parametrize("seed", range(24))
def test_halving_finds_what_looking_at_every_tensor_finds(seed: int) -> None:
    """The numbers that it tells are those of the first tensor, among all, that differs on the first case where outputs do."""
    rng = np.random.default_rng([seed, 1])
    model = deterministic(MODELS[seed % len(MODELS)])
    fault = plant(model, rng)
    if fault is None:
        pytest.skip("the model has no place for the kind that was drawn")
    found = diverging(model, fault.model)
    graph = canonicalise(read_graph(model, "model"))
    values = [v for n in graph.nodes for v in n.outputs if v]
    for case in quick(graph.inputs, SEED):
        try:
            everything = [run(m, values, case.feed) for m in (model, fault.model)]
        except Exception:  # the fault made sizes that don't fit
            assert found.gap is None
            continue
        unequal = [v for v in values if differ(everything[0][v], everything[1][v])]
        if set(unequal) & set(graph.results):
            assert found.case == case.label and found.gap == gap(unequal[0], everything[0][unequal[0]], everything[1][unequal[0]])
            return
    assert found.gap is None


def run(model: onnx.ModelProto, names: Sequence[str], feed: Mapping[str, Array]) -> dict[str, Array]:
    model = copy(model)
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    running = session(model, False, "the original")
    known = {i.name for i in running.get_inputs()}
    return dict(zip(names, running.run(None, {k: v for k, v in feed.items() if k in known}), strict=True))


@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_diverges_in_a_renamed_copy(name: str) -> None:
    model = family(name)
    assert first_divergence(model, renamed(model, np.random.default_rng(0)), blocks=NO_BLOCKS) is None


def test_the_first_of_two_faults_is_named() -> None:
    model = family("continuous")
    other = copy(model)
    sigmoids = [i for i, n in enumerate(other.graph.node) if n.op_type == "Sigmoid"]
    for i in sigmoids:
        other.graph.node[i].op_type = "Tanh"
    assert (
        diverging(model, other).node
        == canonicalise(read_graph(model, "m")).nodes[[n.index for n in canonicalise(read_graph(model, "m")).nodes].index(sigmoids[0])]
    )


def test_a_fault_whose_effect_ends_inside_comes_before_one_that_reaches_an_output() -> None:
    """Tanh is saturated, so that half the weight gives the same; the Neg behind it does not."""
    nodes = [helper.make_node("Mul", ["x", "k"], ["m"]), helper.make_node("Tanh", ["m"], ["t"]), helper.make_node("Exp", ["t"], ["y"])]
    model = graph_of(nodes, [numpy_helper.from_array(np.asarray([1000], np.float32), "k")], {"x": [4]}, {"y": [4]})
    other = copy(model)
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.asarray([500], np.float32), "k"))
    other.graph.node[2].op_type = "Neg"
    found = diverging(model, other)
    assert found.node is not None and (found.node.op, found.kind) == ("Mul", "constant") and found.gap is not None


def test_blocks_are_named_where_the_rules_know_them() -> None:
    model = family("continuous")
    other = copy(model)
    next(n for n in other.graph.node if n.op_type == "Sigmoid").op_type = "Tanh"
    found = first_divergence(model, other)
    assert found is not None and (found.block, found.rule) == ("activation of hidden layer 1", "silu")
    assert found.words.startswith("activation of hidden layer 1: node")
    told = json.loads(json.dumps(found.told(), allow_nan=False))
    assert told["node"]["op"] == "Sigmoid" and told["twin"]["op"] == "Tanh" and told["case"] == "batch 1 ordinary"


def test_a_node_that_one_graph_lacks_is_structure() -> None:
    model = family("continuous")
    found = diverging(model, silu_to_relu(model))
    assert found.kind == "operator" and found.twin is not None and found.twin.op == "Relu"
    longer = chain(9, lambda i: "Tanh" if i != 4 else "Neg")
    shorter = chain(8, lambda _: "Tanh")
    shorter.graph.output[0].name = "v9"
    shorter.graph.node[-1].output[0] = "v9"
    found = diverging(longer, shorter)
    assert found.kind == "structure" and found.node is not None and found.node.op == "Neg" and found.twin is None
    assert "in the first graph only" in found.words and found.gap is not None
    found = diverging(shorter, longer)
    assert found.kind == "structure" and found.twin is not None and found.twin.op == "Neg" and found.gap is not None
    assert "what the first graph lacks: node 'v5' (Neg)" in found.words


def test_a_fault_in_one_of_two_equal_nodes_is_found_there() -> None:
    """a's two Subs are one in the canonical form; in b one of them is the other way round."""
    nodes = [
        helper.make_node("Sub", ["x", "m"], ["c"]),
        helper.make_node("Sub", ["x", "m"], ["d"]),
        helper.make_node("Tanh", ["c"], ["t"]),
        helper.make_node("Div", ["d", "t"], ["y"]),
    ]
    model = graph_of(nodes, [], {"x": [3], "m": [3]}, {"y": [3]})
    for index in (0, 1):
        other = copy(model)
        other.graph.node[index].input[:] = ["m", "x"]
        found = diverging(model, other)
        assert found.kind == "operands" and found.node is not None and found.node.op == "Sub"
        assert found.twin is not None and found.twin.index == index and found.gap is not None
        assert diverging(other, model).kind in ("operands", "structure")


def test_equal_operators_with_other_numbers_are_arithmetic() -> None:
    """Up to opset 12 Softmax flattens what comes behind its axis; the graphs spell it alike."""
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Softmax", ["e"], ["y"], axis=1)]
    new = graph_of(nodes, [], {"x": [2, 3, 4]}, {"y": [2, 3, 4]})
    old = copy(new)
    old.opset_import[0].version = 11
    found = diverging(old, new)
    assert found.kind == "arithmetic" and found.node is not None and found.node.op == "Softmax" and found.gap is not None


def test_what_random_operators_draw_from_is_compared() -> None:
    """With the draw pinned, no output shows that the probabilities are others."""
    model = family("discrete")
    other = copy(model)
    for node in other.graph.node:
        if node.op_type == "Softmax":
            node.op_type = "LogSoftmax"
    found = diverging(model, other)
    assert found.node is not None and found.node.op == "Softmax" and found.gap is not None


def test_draws_of_another_kind_are_told_without_numbers() -> None:
    model = family("continuous")
    other = copy(model)
    next(n for n in other.graph.node if n.op_type == "RandomNormalLike").attribute.append(helper.make_attribute("scale", 2.0))
    found = diverging(model, other)
    assert found.kind == "attribute" and found.node is not None and found.node.op == "RandomNormalLike"
    assert found.gap is None and "equal on everything tried" in found.words


def test_a_draw_that_one_graph_lacks() -> None:
    model = family("continuous")
    other = copy(model)
    draw = next(n for n in other.graph.node if n.op_type == "RandomNormalLike")
    draw.op_type = "Sign"
    del draw.attribute[:]
    for a, b in ((model, other), (other, model)):
        found = diverging(a, b)
        assert found.kind == "operator" and found.node is not None and found.node.op in ("RandomNormalLike", "Sign")


def test_outputs_that_are_constants_are_compared() -> None:
    model = tiny_policy()
    other = copy(model)
    tensor = next(t for t in other.graph.initializer if t.name == "version_number.1")
    tensor.CopyFrom(numpy_helper.from_array(np.asarray([2], np.float32), tensor.name))
    found = diverging(model, other)
    assert found.kind == "constant" and found.node is None and "'version_number' is a constant" in found.words
    assert found.gap is not None and found.gap.numbers == (3.0, 2.0)


def test_an_output_more_or_less() -> None:
    model = tiny_policy()
    for a, b in ((model, deterministic(model)), (deterministic(model), model)):
        assert diverging(a, b).kind == "structure"


def test_a_graph_that_onnxruntime_refuses_is_compared_by_structure() -> None:
    model = family("continuous")
    other = copy(model)
    next(n for n in other.graph.node if n.op_type == "Concat").attribute[0].i = 0
    found = diverging(model, other)
    assert found.kind == "attribute" and found.gap is None and "onnxruntime refuses the second graph" in found.words
    found = diverging(other, model)
    assert found.kind == "attribute" and found.gap is None and "no numbers were compared, because" in found.words


def test_graphs_without_a_common_output_are_compared_by_structure() -> None:
    found = diverging(family("continuous"), family("discrete"))
    assert found.gap is None and "no numbers were compared, because no output that is computed is in both graphs" in found.words


@pytest.mark.parametrize("a", FAMILIES)
@pytest.mark.parametrize("b", ["hybrid", "sac", "lstm", "attention", "resnet"])
def test_any_two_graphs_part_somewhere(a: str, b: str) -> None:
    """Outputs, draws and inputs that have no counterpart are no obstacle."""
    found = first_divergence(family(a), family(b), blocks=NO_BLOCKS)
    assert (found is None) == (a == b)


def test_tensors_that_are_no_numbers_are_passed_over() -> None:
    def through(op: str, to: int) -> onnx.ModelProto:
        nodes = [
            helper.make_node(op, ["x"], ["t"]),
            helper.make_node("Cast", ["t"], ["u"], to=to),
            helper.make_node("Cast", ["u"], ["v"], to=onnx.TensorProto.FLOAT),
            helper.make_node("Neg", ["v"], ["y"]),
        ]
        return graph_of(nodes, [], {"x": [3]}, {"y": [3]})

    for to in (onnx.TensorProto.STRING, onnx.TensorProto.BFLOAT16):
        found = diverging(through("Exp", to), through("Tanh", to))
        assert found.kind == "operator" and found.node is not None and found.node.op == "Exp" and found.gap is not None


def test_a_further_observation_is_made_up() -> None:
    found = diverging(tiny_policy(observations=(4,)), tiny_policy(observations=(4, 3)))
    assert found.node is not None


def test_given_feeds_alone_are_tried() -> None:
    model = family("continuous")
    other = copy(model)
    bound = next(a for n in other.graph.node if n.op_type == "Clip" for a in n.attribute if a.name == "max")
    bound.f = 4.0
    quiet = {"obs_0": np.zeros((1, 4), np.float32), "obs_1": np.zeros((1, 3), np.float32)}
    loud = {k: v + np.float32(1e4) for k, v in quiet.items()}
    assert diverging(model, other, feeds=[("quiet", quiet)]).gap is None
    found = diverging(model, other, feeds=[("quiet", quiet), ("loud", loud)])
    assert found.case == "loud" and found.gap is not None and found.gap.numbers == (5.0, 4.0)


def test_models_and_a_known_correspondence_will_do() -> None:
    protos = tiny_policy(), tiny_policy(seed=1)
    models = [Model(Path("m.onnx"), "0" * 64, 0, p, read_graph(p, "m.onnx")) for p in protos]
    known = correspond(*(canonicalise(m.graph) for m in models))
    found = first_divergence(models[0], models[1], found=known, blocks=NO_BLOCKS)
    assert found is not None and found == first_divergence(*protos, blocks=NO_BLOCKS)
    assert found.node is not None and found.node.op == "Sub" and found.kind == "constant"


def test_few_tensors_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    fetch = tested._Side.fetch

    def counted(self: Any, names: Sequence[str], feed: Mapping[str, Array]) -> list[Array]:
        asked.append(len(names))
        return fetch(self, names, feed)

    monkeypatch.setattr(tested._Side, "fetch", counted)
    a, b = chain(1000, lambda _: "Neg"), chain(1000, lambda i: "Neg" if i != 700 else "Abs")
    found = diverging(a, b)
    assert found.node is not None and found.node.outputs == ("v701",)
    assert max(asked) <= 2 and len(asked) <= 2 * (10 + 3)


def test_one_of_many_equal_branches() -> None:
    model = branches(64, np.random.default_rng(0))
    other = renamed(model, np.random.default_rng(1))
    fault = plant(other, np.random.default_rng(2), "weight")
    assert fault is not None
    found = diverging(model, fault.model)
    assert found.twin is not None and found.twin.index == fault.node


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        ([1, 2], [1, np.nan], ((1,), (2.0, np.nan), np.inf)),
        ([1, 0.0], [1, -0.0], ((1,), (0.0, -0.0), 0.0)),
        ([np.inf, 1], [-np.inf, 2], ((0,), (np.inf, -np.inf), np.inf)),
        ([np.nan, 1], [np.nan, 4], ((1,), (1.0, 4.0), 3.0)),
    ],
)
def test_the_gap_is_where_two_tensors_are_furthest_apart(x: list[float], y: list[float], expected: tuple[Any, Any, float]) -> None:
    found = gap("t", np.asarray(x, np.float32), np.asarray(y, np.float32))
    assert repr((found.where, found.numbers, found.max_abs)) == repr(expected)


def test_tensors_of_other_sizes_have_no_place_to_differ() -> None:
    found = gap("t", np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32))
    assert found.where is None and found.max_abs == np.inf and "another type or size" in str(found)
