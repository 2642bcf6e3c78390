"""Random operators become inputs, and the values that noise meets are found."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graph2torch.judge.randomness import met_by_noise, needed_draws, pin


def two_draws() -> onnx.ModelProto:
    """x + s · (z1 + z1) and mu · z2, of which both draw like x; z3 leads nowhere. Stored backwards, as a file may be."""
    nodes = [
        helper.make_node("Mul", ["mu", "z2"], ["other"]),
        helper.make_node("Add", ["x", "scaled"], ["result"]),
        helper.make_node("Mul", ["sigma", "twice"], ["scaled"]),
        helper.make_node("Add", ["z1", "z1"], ["twice"]),
        helper.make_node("Mul", ["z1", "mu"], ["nowhere"]),
        helper.make_node("RandomNormalLike", ["x"], ["z3"], dtype=TensorProto.FLOAT),
        helper.make_node("RandomNormalLike", ["mu"], ["z2"], dtype=TensorProto.FLOAT),
        helper.make_node("RandomNormalLike", ["x"], ["z1"], dtype=TensorProto.FLOAT),
        helper.make_node("Tanh", ["x"], ["mu"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "draws",
        [value("x", TensorProto.FLOAT, ["batch", 2])],
        [value(name, TensorProto.FLOAT, ["batch", 2]) for name in ("result", "other")],
        [numpy_helper.from_array(np.ones(2, np.float32), "sigma")],
        value_info=[value(name, TensorProto.FLOAT, ["batch", 2]) for name in ("z1", "mu", "z2")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])


def test_draws_that_an_output_needs_are_listed_in_the_order_of_the_file() -> None:
    assert needed_draws(two_draws()) == ["z2", "z1"]


def test_pinned_draws_are_inputs_and_everything_else_stays_in_its_order() -> None:
    proto = two_draws()
    before = proto.SerializeToString()
    pinned = pin(proto, ["z1", "z2"])
    assert proto.SerializeToString() == before
    assert [i.name for i in pinned.graph.input] == ["x", "z2", "z1"]
    assert all(i.type.tensor_type.elem_type == TensorProto.FLOAT for i in pinned.graph.input)
    kept = [n for n in proto.graph.node if n.output[0] not in ("z1", "z2")]
    assert list(pinned.graph.node) == kept
    assert [v.name for v in pinned.graph.value_info] == ["mu"]


def test_pinning_nothing_changes_nothing() -> None:
    assert pin(two_draws(), []) == two_draws()


def test_noise_meets_what_it_is_drawn_like_and_what_a_needed_node_reads_with_it() -> None:
    assert met_by_noise(two_draws(), ["z1"]) == ["x"]  # added to itself; `nowhere` is not needed
    assert met_by_noise(two_draws(), ["z2"]) == ["mu", "mu"]
    assert met_by_noise(two_draws(), ["z2", "z1"]) == ["mu", "mu", "x"]
