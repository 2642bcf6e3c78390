"""What a valid graph is read into. What is refused is in tests/hostile."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph2torch.graph import load, read_graph, texts
from tests.models import Era, save_pair, tiny_policy


def graph_of(nodes: list[onnx.NodeProto], outputs: list[str]) -> onnx.ModelProto:
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in outputs]
    return helper.make_model(helper.make_graph(nodes, "g", given, made), opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("era", ["torch1.8", "torch2"])
def test_a_file_is_read_as_it_stands(tmp_path: Path, era: Era) -> None:
    proto = tiny_policy(era=era)
    path, _ = save_pair(tmp_path, proto)
    model = load(path)
    assert (model.sha256, model.size) == (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size)
    assert model.proto == proto
    graph = model.graph
    assert [v.name for v in graph.inputs] == ["obs_0"] and graph.inputs[0].shape == ("batch", 4)
    assert [v.name for v in graph.outputs] == [o.name for o in proto.graph.output]
    assert [n.op for n in graph.nodes] == [n.op_type for n in proto.graph.node]
    assert graph.constants.keys() == {t.name for t in proto.graph.initializer}
    assert not graph.warnings and not graph.overridable
    for tensor in proto.graph.initializer:
        array = graph.constants[tensor.name]
        assert array.tobytes() == numpy_helper.to_array(tensor).tobytes() and not array.flags.writeable


def test_nodes_in_any_order_are_sorted_and_keep_their_place_in_the_file() -> None:
    nodes = [helper.make_node("Neg", ["b"], ["c"]), helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    graph = read_graph(graph_of(nodes, ["c"]), "g")
    assert [(n.op, n.index) for n in graph.nodes] == [("Abs", 1), ("Relu", 2), ("Neg", 0)]


@pytest.mark.parametrize(("ir_version", "overridable"), [(3, False), (4, True), (8, True)])
def test_initializers_that_are_inputs_may_be_replaced_from_ir_4_on(ir_version: int, overridable: bool) -> None:
    model = tiny_policy(ir_version=ir_version)
    known = {v.name for v in model.graph.input}
    model.graph.input.extend(
        helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in model.graph.initializer if t.name not in known
    )
    graph = read_graph(model, "g")
    assert [v.name for v in graph.inputs] == ["obs_0"]
    assert graph.overridable == ({t.name for t in model.graph.initializer} if overridable else set())


def test_numbers_in_typed_fields_are_those_of_raw_bytes() -> None:
    model = graph_of([helper.make_node("Add", ["x", "w"], ["y"])], ["y"])
    for kind, values in (
        (TensorProto.FLOAT, [1.5, -2.0]),
        (TensorProto.FLOAT16, [1.5, -2.0]),
        (TensorProto.INT8, [1, -2]),
        (TensorProto.BOOL, [1, 0]),
    ):
        for raw in (False, True):
            del model.graph.initializer[:]
            array = np.asarray(values, helper.tensor_dtype_to_np_dtype(kind))
            model.graph.initializer.append(helper.make_tensor("w", kind, [2], array.tobytes() if raw else values, raw=raw))
            found = read_graph(model, "g").constants["w"]
            assert found.dtype == array.dtype and found.tobytes() == array.tobytes()


def test_every_text_of_a_model_is_found() -> None:
    model = tiny_policy()
    model.graph.node[0].doc_string = "deep"
    helper.set_model_props(model, {"key": "value"})
    assert {"deep", "key", "value", "obs_0", "batch", "pytorch", "transB"} <= set(texts(model))
