"""Likely causes: each is planted, and named; what doesn't hold isn't told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from graph2torch.judge.causes import likely_causes
from graph2torch.judge.correspondence import correspond
from graph2torch.judge.divergence import first_divergence
from tests.faults import plant
from tests.judge.test_correspondence import copy, graph_of, silu_to_relu
from tests.judge.test_isomorphism import canonical, renamed
from tests.models import FAMILIES, tiny_policy

Numbers = Any
HEAD = "action_model._continuous_distribution"
BODY = "network_body._body_endoder.seq_layers"


def causes(a: onnx.ModelProto, b: onnx.ModelProto) -> dict[str, str]:
    """Name → words, with the second graph renamed and reordered."""
    graphs = canonical(a), canonical(renamed(b, np.random.default_rng(0)))
    return {c.name: c.words for c in likely_causes(*graphs, correspond(*graphs))}


def changed(model: onnx.ModelProto, wanted: Callable[[str], bool], change: Callable[[Numbers], Numbers]) -> onnx.ModelProto:
    """A copy with the constants of some names changed."""
    model = copy(model)
    tensors = {t.name: t for t in model.graph.initializer} | {
        n.output[0]: n.attribute[0].t for n in model.graph.node if n.op_type == "Constant"
    }
    found = [t for name, t in tensors.items() if wanted(name)]
    assert found
    for tensor in found:
        before = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(before)), tensor.name))
    return model


def operand(model: onnx.ModelProto, op: str, place: int = 1, which: int = 0) -> Callable[[str], bool]:
    """Names the constant that the `which`-th node of `op` reads."""
    name = [n for n in model.graph.node if n.op_type == op][which].input[place]
    return lambda other: bool(other == name)


def without(model: onnx.ModelProto, ops: Sequence[str], which: int = 0) -> onnx.ModelProto:
    """A copy in which what reads the `which`-th node of the last of `ops` reads its first operand instead; and so on before it."""
    model = copy(model)
    for op in reversed(ops):
        node = [n for n in model.graph.node if n.op_type == op][which]
        for other in model.graph.node:
            for i, value in enumerate(other.input):
                if value == node.output[0]:
                    other.input[i] = node.input[0]
        if any(o.name == node.output[0] for o in model.graph.output):
            maker = next(n for n in model.graph.node if node.input[0] in n.output)
            for other in model.graph.node:
                for i, value in enumerate(other.input):
                    if value == maker.output[0]:
                        other.input[i] = node.output[0]
            maker.output[0] = node.output[0]
        model.graph.node.remove(node)
    return model


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return tiny_policy(observations=(6,), layers=3)


VARIANCE: dict[str, tuple[Callable[[Numbers], Numbers], str]] = {
    "variance not divided by steps": (lambda x: np.sqrt(x**2 * np.float32(1024)), "second graph: it is 1,024 times the other's in all 6"),
    "epsilon in the root": (lambda x: np.sqrt(x.astype(np.float64) ** 2 + 1e-5).astype(np.float32), "sqrt(variance + 1e-05) in the second"),
    "epsilon beside the root": (lambda x: x + np.float32(1e-8) + np.float32(1e-3), "sqrt(variance) + 0.001 in the second graph"),
    "variance without its root": (lambda x: x**2, "the variance itself in the second graph"),
    "inverse of the deviation": (lambda x: 1 / x, "the inverse of the other graph's"),
    "rounding of the deviation": (lambda x: np.nextafter(x, np.float32(np.inf)), "rounding alone (1 ulp)"),
}  # fmt: skip


def test_a_head_of_other_sizes(model: onnx.ModelProto) -> None:
    other = changed(model, lambda name: name.startswith(HEAD) and "mu" in name, lambda x: np.concatenate([x, x]))
    other = changed(other, f"{HEAD}.log_sigma".__eq__, lambda x: np.concatenate([x, x], 1))
    assert "head of another policy" in causes(model, other)


@pytest.mark.parametrize("name", VARIANCE)
def test_formulas_of_the_standard_deviation(model: onnx.ModelProto, name: str) -> None:
    change, words = VARIANCE[name]
    other = changed(model, operand(model, "Div"), change)
    assert words in causes(model, other)[name]
    assert list(causes(model, other)) == [name]
    assert words.replace("second", "first") in causes(other, model)[name]


def test_a_standard_deviation_that_follows_no_formula_has_no_cause(model: onnx.ModelProto) -> None:
    rng = np.random.default_rng(0)
    assert not causes(model, changed(model, operand(model, "Div"), lambda x: x * rng.uniform(0.5, 2, x.shape).astype(np.float32)))


@pytest.mark.parametrize("side", ["second", "first"])
def test_a_normaliser_is_missing(model: onnx.ModelProto, side: str) -> None:
    for other in (without(model, ["Sub", "Div", "Clip"]), without(model, ["Sub", "Div"])):
        pair = (model, other) if side == "second" else (other, model)
        assert causes(*pair)["normaliser missing"] == f"the normaliser of 'obs_0' is missing in the {side} graph"


def test_a_normaliser_that_does_nothing(model: onnx.ModelProto) -> None:
    other = changed(changed(model, operand(model, "Sub"), np.zeros_like), operand(model, "Div"), np.ones_like)
    assert "does nothing in the second graph: mean 0 and std 1" in causes(model, other)["normaliser missing"]


def test_relu_for_silu(model: onnx.ModelProto) -> None:
    assert causes(model, silu_to_relu(model)) == {"activation": "ReLU in place of SiLU (3 places)"}
    assert causes(silu_to_relu(model), model) == {"activation": "SiLU in place of ReLU (3 places)"}


def test_another_activation(model: onnx.ModelProto) -> None:
    other = copy(model)
    next(n for n in other.graph.node if n.op_type == "Sigmoid").op_type = "Tanh"
    assert causes(model, other) == {"activation": "x · tanh(x) in place of SiLU (1 place)"}
    images = tiny_policy(**FAMILIES["simple"])
    other = copy(images)
    for node in other.graph.node:
        if node.op_type == "LeakyRelu":
            node.op_type = "Relu"
            del node.attribute[:]
    assert causes(images, other) == {"activation": "ReLU in place of leaky ReLU (3 places)"}


def test_an_activation_is_missing(model: onnx.ModelProto) -> None:
    other = without(silu_to_relu(model), ["Relu"], 1)
    assert causes(silu_to_relu(model), other) == {"activation missing": "ReLU is missing in the second graph (1 place)"}
    other = without(model, ["Mul"], 1)
    assert causes(model, other) == {"activation missing": "SiLU is missing in the second graph (1 place)"}


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_a_layer_more_is_no_missing_activation(layers: int) -> None:
    assert "activation missing" not in causes(tiny_policy(layers=3), tiny_policy(layers=layers))


@pytest.mark.parametrize("opset", [9, 13])
def test_wrong_bounds(opset: int) -> None:
    model = tiny_policy(opset=opset)

    def bounded(which: int, bound: float) -> onnx.ModelProto:
        if opset == 13:
            clip = [n for n in model.graph.node if n.op_type == "Clip"][which]
            other = changed(model, clip.input[1].__eq__, lambda x: np.float32(-bound) + 0 * x)
            return changed(other, clip.input[2].__eq__, lambda x: np.float32(bound) + 0 * x)
        other = copy(model)
        for attribute in [n for n in other.graph.node if n.op_type == "Clip"][which].attribute:
            attribute.f = bound if attribute.name == "max" else -bound
        return other

    assert causes(model, bounded(0, 10)) == {"bounds": "the normaliser's bounds are ±10 instead of ±5 (1 place)"}
    assert causes(model, bounded(1, 1)) == {"bounds": "the actions' bounds are ±1 instead of ±3 (1 place)"}


def test_missing_bounds(model: onnx.ModelProto) -> None:
    assert causes(model, without(model, ["Clip"])) == {"bounds": "the normaliser's bounds of ±5 are missing in the second graph (1 place)"}
    assert causes(model, without(model, ["Clip"], 1)) == {"bounds": "the actions' bounds of ±3 are missing in the second graph (1 place)"}
    assert causes(without(model, ["Clip"], 1), model) == {"bounds": "the actions' bounds of ±3 are missing in the first graph (1 place)"}


def test_the_division_by_three(model: onnx.ModelProto) -> None:
    both = without(without(model, ["Div"], 1), ["Div"], 1)
    assert causes(model, both) == {"division missing": "the division by 3 behind the bounds is missing in the second graph (2 places)"}
    assert causes(both, model) == {"division missing": "the division by 3 behind the bounds is missing in the first graph (2 places)"}
    other = changed(model, operand(model, "Div", which=1), lambda x: 2 + 0 * x)
    assert causes(model, other) == {"division": "the division behind the bounds is by 2 instead of 3 (1 place)"}


def test_gates_in_torch_order() -> None:
    model = tiny_policy(**FAMILIES["lstm"])
    fault = plant(model, np.random.default_rng(0), "gate order")
    assert fault is not None
    words = causes(model, fault.model)["gate order"]
    assert (
        words
        == "the gates of node 'LSTM' (LSTM) stand in the order i, f, c, o, torch's, in the second graph, instead of i, o, f, c (in 2 of its 3 tensors)"
    )


def test_transposed_weights(model: onnx.ModelProto) -> None:
    other = changed(model, f"{BODY}.2.weight".__eq__, np.transpose)
    assert causes(model, other) == {"transposed weights": f"'{BODY}.2.weight': transposed in the second graph, bit by bit"}


def test_a_flipped_sign_and_a_factor(model: onnx.ModelProto) -> None:
    other = changed(model, f"{HEAD}.mu.weight".__eq__, np.negative)
    assert causes(model, other) == {"sign flipped": f"'{HEAD}.mu.weight': of the opposite sign in the second graph, bit by bit"}
    other = changed(model, f"{HEAD}.mu.weight".__eq__, lambda x: x * np.float32(0.25))
    assert causes(model, other) == {"scaled weights": f"'{HEAD}.mu.weight': in the second graph 0.25 times as large"}


def test_a_vector_of_few_magnitudes_is_no_multiple(model: onnx.ModelProto) -> None:
    """Among the weights of another training, a bias that is one number everywhere is not what explains them."""
    one = changed(model, f"{HEAD}.mu.bias".__eq__, lambda x: 0 * x + np.float32(0.5))
    other = changed(tiny_policy(observations=(6,), layers=3, seed=1), f"{HEAD}.mu.bias".__eq__, lambda x: 0 * x + np.float32(0.25))
    assert "scaled weights" not in causes(one, other) and "weights of another training" in causes(one, other)
    assert not causes(one, changed(one, f"{HEAD}.mu.bias".__eq__, lambda x: x * np.float32(0.5)))


def test_zeros_have_no_opposite_sign(model: onnx.ModelProto) -> None:
    zero = changed(model, f"{BODY}.0.bias".__eq__, np.zeros_like)
    assert not causes(zero, changed(zero, f"{BODY}.0.bias".__eq__, np.negative))


def test_swapped_operands(model: onnx.ModelProto) -> None:
    fault = plant(model, np.random.default_rng(0), "operand order")
    assert fault is not None and list(causes(model, fault.model)) == ["swapped operands"]


def test_the_head_of_another_policy(model: onnx.ModelProto) -> None:
    rng = np.random.default_rng(0)
    other = changed(model, lambda name: name.startswith(HEAD) and "mu" in name, lambda x: rng.normal(size=x.shape).astype(np.float32))
    words = causes(model, other)["head of another policy"]
    assert f"'{HEAD}.mu.weight', '{HEAD}.mu.bias'" in words and "the 6 tensors of the layers before it are bit-equal" in words
    other = changed(other, f"{BODY}.0.bias".__eq__, lambda x: x + np.float32(1))
    assert "head of another policy" not in causes(model, other)
    other = changed(model, f"{HEAD}.mu.weight".__eq__, lambda x: x + np.float32(0.02) * (np.arange(x.size) < 3).reshape(x.shape))
    assert not causes(model, other)  # a head that was moved a little is no other one


def test_weights_of_another_step_and_of_another_training(model: onnx.ModelProto) -> None:
    rng = np.random.default_rng(0)
    other = changed(model, lambda name: name.startswith((BODY, HEAD)), lambda x: x + rng.normal(0, 0.01, x.shape).astype(np.float32))
    assert causes(model, other)["weights of another step"].startswith(
        "the weights are of another step of the same training: all 4 matrices differ"
    )
    other = tiny_policy(observations=(6,), layers=3, seed=1)
    assert "all 4 matrices differ" in causes(model, other)["weights of another training"]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_rounded_weights(model: onnx.ModelProto, name: str) -> None:
    import torch

    def short(x: Numbers) -> Numbers:
        return torch.from_numpy(np.array(x)).to(getattr(torch, name)).float().numpy()

    other = changed(model, lambda name: name.startswith(("network_body", "action_model")), short)
    assert list(causes(model, other)) == [name] and "the second graph's numbers are the other's rounded" in causes(model, other)[name]
    assert "the first graph's numbers are the other's rounded" in causes(other, model)[name]


def test_weights_kept_in_float16() -> None:
    def matrix(dtype: Any) -> onnx.ModelProto:
        weight = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32).astype(dtype)
        nodes = [helper.make_node("Cast", ["w"], ["c"], to=onnx.TensorProto.FLOAT), helper.make_node("MatMul", ["x", "c"], ["y"])]
        return graph_of(nodes, [numpy_helper.from_array(weight, "w")], {"x": [1, 8]}, {"y": [1, 8]})

    assert list(causes(matrix(np.float32), matrix(np.float16))) == ["float16"]


def test_the_number_that_masks() -> None:
    model = tiny_policy(**FAMILIES["discrete"])
    other = changed(model, lambda name: "Constant" in name, lambda x: np.where(x == 1e8, np.float32(1e6), x))
    words = "the number that masked places are pushed away by is 1e+06 instead of 1e+08 (2 places)"
    assert causes(model, other) == {"mask constant": words}


def test_an_input_that_is_not_read() -> None:
    model = tiny_policy(**FAMILIES["discrete"])
    other = copy(model)
    for node in other.graph.node:
        if node.op_type == "Slice":
            node.op_type, node.input[0] = "ConstantOfShape", "sizes"
            del node.attribute[:]
    other.graph.initializer.append(numpy_helper.from_array(np.asarray([1, 1], np.int64), "sizes"))
    assert causes(model, other)["input not read"] == "the input 'action_masks' is not read in the second graph"


@pytest.mark.parametrize("name", FAMILIES)
def test_equal_graphs_have_no_cause(name: str) -> None:
    assert not causes(tiny_policy(**FAMILIES[name]), tiny_policy(**FAMILIES[name]))


def test_one_ulp_in_a_weight_has_no_cause(model: onnx.ModelProto) -> None:
    assert not causes(model, changed(model, f"{BODY}.2.weight".__eq__, lambda x: np.nextafter(x, np.float32(9))))


def test_the_cause_at_the_divergence_comes_first(model: onnx.ModelProto) -> None:
    other = silu_to_relu(changed(model, operand(model, "Div", which=1), lambda x: 2 + 0 * x))
    found = correspond(canonical(model), canonical(other))
    first = first_divergence(model, other, found=found, blocks=())
    assert first is not None and first.node is not None and first.node.op == "Mul"
    assert [c.name for c in likely_causes(canonical(model), canonical(other), found, first)] == ["activation", "division"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0])
def test_not_finite_numbers_break_no_hypothesis(model: onnx.ModelProto, value: float) -> None:
    odd = changed(model, lambda name: name.startswith(("network_body", "action_model", "onnx::")), lambda x: x * 0 + np.float32(value))
    for pair in ((model, odd), (odd, model), (odd, odd)):
        assert all(isinstance(words, str) for words in causes(*pair).values())
    assert not causes(odd, odd)
