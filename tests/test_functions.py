"""Local functions are written out where they are called, within limits that hostile ones don't get past."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph2torch.diff.diff import diff
from graph2torch.errors import ModelError, UnsupportedGraph
from graph2torch.functions import MAX_DEPTH, written_out
from graph2torch.graph import MAX_NODES, load
from graph2torch.recognise import recognise
from tests.lifting import lift
from tests.models import FAMILIES, save_pair, tiny_policy

OWN = "of.its.own"
OPSETS = [helper.make_opsetid("", 15), helper.make_opsetid(OWN, 1)]


def function(
    name: str, nodes: list[onnx.NodeProto], inputs: list[str] | None = None, attributes: list[str] | None = None
) -> onnx.FunctionProto:
    return helper.make_function(OWN, name, inputs or ["x"], ["y"], nodes, OPSETS, attributes or [])


def call(name: str, result: str, given: str = "x", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(name, [given], [result], domain=OWN, **attributes)


def model(nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto]) -> onnx.ModelProto:
    given, made = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 4]) for n in ("x", "y"))
    return helper.make_model(helper.make_graph(nodes, "g", [given], [made]), opset_imports=OPSETS, ir_version=8, functions=functions)


def doubling(levels: int) -> onnx.ModelProto:
    """Each function calls the next one twice."""
    functions = [function(f"f{i}", [call(f"f{i + 1}", "a"), call(f"f{i + 1}", "y", "a")]) for i in range(levels)]
    return model([call("f0", "y")], [*functions, function(f"f{levels}", [helper.make_node("Neg", ["x"], ["y"])])])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_lifted_model_is_the_original(tmp_path: Path, family: str) -> None:
    path, _ = save_pair(tmp_path, tiny_policy(**FAMILIES[family]))
    recognised = recognise(path)
    onnx.save(lift(recognised), tmp_path / "lifted.onnx")
    assert [b.rule for b in recognise(tmp_path / "lifted.onnx").spec.blocks] == [b.rule for b in recognised.spec.blocks]
    found = diff(path, tmp_path / "lifted.onnx")
    assert found.graphs is not None and (found.equal, found.graphs.level) == (True, "graph")


def test_calls_within_calls_and_attributes_that_are_handed_on(tmp_path: Path) -> None:
    scaled = helper.make_node("LeakyRelu", ["x"], ["a"])
    scaled.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    inner = function("inner", [scaled, helper.make_node("Neg", ["a"], ["y"])], attributes=["slope"])
    outer = function("outer", [call("inner", "a", slope=0.25), helper.make_node("Neg", ["a"], ["y"])])
    onnx.save(model([call("outer", "b"), call("inner", "y", "b", slope=0.5)], [inner, outer]), tmp_path / "calls.onnx")
    graph = load(tmp_path / "calls.onnx").graph
    assert [(n.op, dict(n.attributes)) for n in graph.nodes] == [
        ("LeakyRelu", {"alpha": 0.25}), ("Neg", {}), ("Neg", {}), ("LeakyRelu", {"alpha": 0.5}), ("Neg", {})
    ]  # fmt: skip


def test_functions_that_nothing_calls_are_left_out(tmp_path: Path) -> None:
    itself = function("itself", [call("itself", "y")])
    onnx.save(model([helper.make_node("Neg", ["x"], ["y"])], [itself]), tmp_path / "unused.onnx")
    found = load(tmp_path / "unused.onnx")
    assert [n.op for n in found.graph.nodes] == ["Neg"] and not found.proto.functions


def test_external_data_of_a_function_stays_in_the_models_folder(tmp_path: Path) -> None:
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "t")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../weights.bin")
    body = [helper.make_node("Constant", [], ["c"], value=tensor), helper.make_node("Mul", ["x", "c"], ["y"])]
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "weights.bin").write_bytes(np.ones(4, np.float32).tobytes())
    (folder / "m.onnx").write_bytes(model([call("scale", "y")], [function("scale", body)]).SerializeToString())
    with pytest.raises(ModelError, match="not a path inside the model's folder"):
        load(folder / "m.onnx")


def test_doubling_is_refused_before_it_is_done() -> None:
    assert len(written_out(doubling(5), "m", MAX_NODES).graph.node) == 32
    with pytest.raises(UnsupportedGraph, match="1,099,511,627,776 nodes"):
        written_out(doubling(40), "m", MAX_NODES)


def test_bytes_that_multiply_are_refused_before_they_do() -> None:
    large = numpy_helper.from_array(np.zeros(2**18, np.float32), "t")
    body = [helper.make_node("Constant", [], ["c"], value=large), helper.make_node("Add", ["x", "c"], ["y"])]
    nodes = [call("add", f"v{i + 1}" if i < 9999 else "y", f"v{i}" if i else "x") for i in range(10_000)]
    with pytest.raises(UnsupportedGraph, match="bytes once its local functions are written out"):
        written_out(model(nodes, [function("add", body)]), "m", MAX_NODES)


@pytest.mark.parametrize(
    ("nodes", "functions", "error", "words"),
    [
        ([call("a", "y")], [function("a", [call("b", "y")]), function("b", [call("a", "y")])], ModelError, "calls itself"),
        ([call("a", "y")], [function("a", [helper.make_node("Neg", ["x"], ["y"])])] * 2, ModelError, "twice"),
        (
            [helper.make_node("a", ["x", "x"], ["y"], domain=OWN)],
            [function("a", [helper.make_node("Neg", ["x"], ["y"])])],
            ModelError,
            "has 1 operands and 1 outputs",
        ),
        ([call("f0", "y")], list(doubling(MAX_DEPTH).functions), UnsupportedGraph, f"within more than {MAX_DEPTH} calls"),
    ],
)
def test_what_no_valid_model_has(
    nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        written_out(model(nodes, functions), "m", MAX_NODES)


def test_what_a_function_reads_is_its_own(tmp_path: Path) -> None:
    """Written out, "outer" would be the caller's value of that name; onnxruntime refuses such a file."""
    outer = [helper.make_node("Neg", ["x"], ["outer"]), call("f", "y")]
    with pytest.raises(ModelError, match="reads 'outer', which is neither its operand nor made before"):
        written_out(model(outer, [function("f", [helper.make_node("Relu", ["outer"], ["y"])])]), "m.onnx", MAX_NODES)
    late = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Neg", ["x"], ["a"])]
    with pytest.raises(ModelError, match="reads 'a'"):
        written_out(model([call("f", "y")], [function("f", late)]), "m.onnx", MAX_NODES)


def test_what_a_function_holds_is_no_less_checked(tmp_path: Path) -> None:
    """Its nodes are held to the same definitions as the graph's own; a domain that nobody defines stays unknown."""
    onnx.save(model([call("a", "y")], [function("a", [helper.make_node("Neg", ["x", "x"], ["y"])])]), tmp_path / "operands.onnx")
    with pytest.raises(ModelError, match="its operator doesn't allow"):
        load(tmp_path / "operands.onnx")
    onnx.save(model([call("a", "y")], [function("a", [call("nobody", "y")])]), tmp_path / "nobody.onnx")
    with pytest.raises(UnsupportedGraph, match=r"of the domain 'of\.its\.own'"):
        load(tmp_path / "nobody.onnx")
