"""The judge: it must see every planted difference, and must not call equal what it didn't compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from graph2torch.build import Build, rebuild
from graph2torch.canonical import canonicalise
from graph2torch.errors import UnsupportedGraph
from graph2torch.graph import Model, read_graph
from graph2torch.judge.isomorphism import align
from graph2torch.judge.verify import Verification, verify
from graph2torch.module import build_module
from graph2torch.recognise import Recognised
from graph2torch.rulebook import load_rules
from tests.models import tiny_policy

BOOK = load_rules()


def recognised(proto: onnx.ModelProto) -> Recognised:
    model = Model(Path("Tiny.onnx"), "0" * 64, 0, proto, read_graph(proto, "Tiny.onnx"))
    return Recognised(model, BOOK.recognise(canonicalise(model.graph)), BOOK)


def judged(made: Build, original: onnx.ModelProto, rebuilt: onnx.ModelProto, module: Any = None) -> Verification:
    spec = recognised(original).spec
    alignment = align(canonicalise(read_graph(original, "a")), canonicalise(read_graph(rebuilt, "b")))
    return verify(original, rebuilt, spec, alignment, module or build_module(made.source, made.bindings))


@pytest.fixture(scope="module")
def made() -> Build:
    return rebuild(recognised(tiny_policy(observations=(3, 2))))


def copy(proto: onnx.ModelProto) -> onnx.ModelProto:
    twin = onnx.ModelProto()
    twin.CopyFrom(proto)
    return twin


def test_an_equal_copy_reaches_level_graph(made: Build) -> None:
    assert made.verification.level == "graph"
    assert made.verification.isomorphic
    assert len(made.verification.runs) == 18 and not made.verification.refused
    assert all(f.compared and not f.differing for f in made.verification.rebuilt)
    assert {f.output for f in made.verification.rebuilt} == {o.name for o in made.spec.outputs} | {"noise scale 0", "noise scale 1"}
    drawn_from = {"mu of continuous_actions", "sigma of continuous_actions"}
    assert {f.output for f in made.verification.module} == {o.name for o in made.spec.outputs} | drawn_from


def nudge(proto: onnx.ModelProto, name: str, ulps: int = 1, factor: float = 1.0) -> onnx.ModelProto:
    proto = copy(proto)
    tensor = next(t for t in proto.graph.initializer if t.name == name)
    array = numpy_helper.to_array(tensor).copy() * np.float32(factor)
    for _ in range(ulps):
        array = np.nextafter(array, np.float32(np.inf))
    tensor.CopyFrom(numpy_helper.from_array(array, name))
    return proto


@pytest.mark.parametrize(
    "name",
    [
        "network_body.observation_encoder.processors.0.normalizer.running_mean",
        "network_body._body_endoder.seq_layers.0.weight",
        "network_body._body_endoder.seq_layers.2.bias",
        "action_model._continuous_distribution.mu.weight",
        "action_model._continuous_distribution.log_sigma",
        "version_number.1",
    ],
)
def test_one_ulp_in_any_weight_is_not_bits(made: Build, name: str) -> None:
    original = made.recognised.model.proto
    found = judged(made, original, nudge(made.rebuilt, name))
    assert found.level == "close" and "differs in" in found.reason
    assert judged(made, original, nudge(made.rebuilt, name, factor=1.5)).level == "differs"


def change_node(proto: onnx.ModelProto, op: str, which: int = 0, **change: Any) -> onnx.ModelProto:
    proto = copy(proto)
    node = [n for n in proto.graph.node if n.op_type == op][which]
    for key, value in change.items():
        if key == "op_type":
            node.op_type = value
        else:
            kept = [a for a in node.attribute if a.name != key]
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute(key, value)])
    return proto


@pytest.mark.parametrize(
    ("op", "which", "change"),
    [
        ("Sigmoid", 1, {"op_type": "Relu"}),  # another activation
        ("Clip", 0, {"max": 4.0}),  # the normaliser's bound
        ("Clip", -2, {"min": -2.5}),  # the action's bound
        ("Sub", 0, {"op_type": "Add"}),
        ("Exp", 0, {"op_type": "Identity"}),  # log sigma taken for sigma
    ],
)
def test_planted_faults_are_seen(made: Build, op: str, which: int, change: dict[str, Any]) -> None:
    found = judged(made, made.recognised.model.proto, change_node(made.rebuilt, op, which, **change))
    assert found.level == "differs", found.reason


def test_a_product_with_zero_is_only_seen_for_values_that_are_not_finite(made: Build) -> None:
    """exp(log_sigma) without mu · 0 has equal bits for every finite mu: the judge feeds NaN too."""
    broken = copy(made.rebuilt)
    constant = next(n for n in broken.graph.node if n.op_type == "Constant" and numpy_helper.to_array(n.attribute[0].t).item() == 0.0)
    product = next(n for n in broken.graph.node if constant.output[0] in n.input)
    user = next(n for n in broken.graph.node if product.output[0] in n.input)
    for i, value in enumerate(user.input):
        if value == product.output[0]:
            user.input[i] = constant.output[0]
    broken.graph.node.remove(product)
    found = judged(made, made.recognised.model.proto, broken)
    assert found.level == "differs"


def test_the_scale_of_a_random_draw_is_compared(made: Build) -> None:
    found = judged(made, made.recognised.model.proto, change_node(made.rebuilt, "RandomNormalLike", scale=2.0))
    assert not found.isomorphic and found.level == "differs" and "'scale': 2.0" in found.reason


def test_a_module_that_computes_otherwise_fails_even_if_its_export_is_right(made: Build) -> None:
    module = build_module(made.source, made.bindings)
    with torch.no_grad():
        next(module.parameters()).mul_(1.01)
    found = judged(made, made.recognised.model.proto, made.rebuilt, module)
    assert found.level == "differs" and "torch's" in found.reason


def test_sampling_can_miss_what_the_structure_shows(made: Build) -> None:
    """No observation tried drives this mu beyond 2.5, so all bits are equal; the graphs are not, and the level says so."""
    found = judged(made, made.recognised.model.proto, change_node(made.rebuilt, "Clip", -1, max=2.5))
    assert found.level == "bits" and not found.isomorphic
    assert "1 constants differ" in found.reason


def test_nothing_is_equal_that_was_not_compared(made: Build) -> None:
    original = copy(made.recognised.model.proto)
    original.graph.initializer.append(numpy_helper.from_array(np.asarray([7, 3]), "seven"))  # a batch that is never tried
    original.graph.node.insert(0, onnx.helper.make_node("Reshape", ["obs_0", "seven"], ["seven_rows"]))
    next(n for n in original.graph.node if n.op_type == "Sub").input[0] = "seven_rows"
    spec = recognised(made.recognised.model.proto).spec
    alignment = align(canonicalise(read_graph(original, "a")), canonicalise(read_graph(made.rebuilt, "b")))
    with pytest.raises(UnsupportedGraph, match="could not be compared"):
        verify(original, made.rebuilt, spec, alignment, build_module(made.source, made.bindings))


def test_a_fixed_draw_instead_of_a_random_one_is_refused(made: Build) -> None:
    frozen = copy(made.rebuilt)
    draw = next(n for n in frozen.graph.node if n.op_type == "RandomNormalLike")
    draw.op_type = "Identity"
    del draw.attribute[:]
    with pytest.raises(UnsupportedGraph, match="draws 1 times and the rebuilt graph 0 times"):
        judged(made, made.recognised.model.proto, frozen)
