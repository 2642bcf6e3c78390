"""Graphs that are wrong or out of reach: each is refused in one paragraph that names the place, and nothing is written."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph2torch.errors import ModelError, UnsupportedGraph
from graph2torch.graph import load
from tests.commands import check_trouble, left_over, run, unsafe
from tests.models import save_pair, tiny_policy

GIB = 2**30
Bend = Callable[[onnx.ModelProto], None]


def refused(folder: Path, model: onnx.ModelProto | bytes, *words: str) -> None:
    """Both commands refuse the model with these words, and leave nothing behind."""
    data = model if isinstance(model, bytes) else model.SerializeToString()
    (folder / "Bad.onnx").write_bytes(data)
    before = left_over(folder)
    for command in ("inspect", "build"):
        check_trouble(run(command, folder / "Bad.onnx", *(["-o", folder / "out"] if command == "build" else [])), "Bad.onnx", *words)
    assert left_over(folder) == before


def node(model: onnx.ModelProto, op: str) -> onnx.NodeProto:
    found: onnx.NodeProto = next(n for n in model.graph.node if n.op_type == op)
    return found


def initializer(model: onnx.ModelProto, end: str) -> onnx.TensorProto:
    found: onnx.TensorProto = next(t for t in model.graph.initializer if t.name.endswith(end))
    return found


# ---------------------------------------------------------------------------------------------- structure
def a_cycle(m: onnx.ModelProto) -> None:
    node(m, "Sub").input[0] = node(m, "Clip").output[0]


def a_node_on_itself(m: onnx.ModelProto) -> None:
    sigmoid = node(m, "Sigmoid")
    sigmoid.input[0] = sigmoid.output[0]


def an_operand_from_nowhere(m: onnx.ModelProto) -> None:
    node(m, "Sub").input[0] = "nowhere"


def an_input_taken_away(m: onnx.ModelProto) -> None:
    del m.graph.input[:]


def outputs_from_nowhere(m: onnx.ModelProto) -> None:
    for i, output in enumerate(m.graph.output):
        output.name = f"dangling_{i}"


def two_producers(m: onnx.ModelProto) -> None:
    m.graph.node.append(helper.make_node("Identity", ["obs_0"], ["continuous_actions"]))


def a_node_that_makes_an_input(m: onnx.ModelProto) -> None:
    node(m, "Sub").output[0] = "obs_0"


def a_node_that_makes_nothing(m: onnx.ModelProto) -> None:
    m.graph.node.append(helper.make_node("Identity", ["obs_0"], []))


def an_input_twice(m: onnx.ModelProto) -> None:
    m.graph.input.append(m.graph.input[0])


def an_input_without_a_name(m: onnx.ModelProto) -> None:
    m.graph.input[0].name = ""


def an_output_twice(m: onnx.ModelProto) -> None:
    m.graph.output.append(m.graph.output[0])


def an_initializer_twice(m: onnx.ModelProto) -> None:
    m.graph.initializer.append(m.graph.initializer[0])


def an_initializer_without_a_name(m: onnx.ModelProto) -> None:
    m.graph.initializer[0].name = ""


STRUCTURE: dict[Bend, tuple[str, ...]] = {
    a_cycle: ("depends on its own output", "cycle"),
    a_node_on_itself: ("Sigmoid", "depends on its own output"),
    an_operand_from_nowhere: ("'nowhere'", "nothing produces", "Sub"),
    an_input_taken_away: ("'obs_0'", "nothing produces"),
    outputs_from_nowhere: ("nothing produces its outputs", "'dangling_0'"),
    two_producers: ("'continuous_actions'", "something else produces too"),
    a_node_that_makes_an_input: ("'obs_0'", "something else produces too"),
    a_node_that_makes_nothing: ("produces nothing",),
    an_input_twice: ("'obs_0'", "declared twice"),
    an_input_without_a_name: ("has no name",),
    an_output_twice: ("two outputs are called 'version_number'",),
    an_initializer_twice: ("two initializers are called",),
    an_initializer_without_a_name: ("an initializer has no name",),
}


# ---------------------------------------------------------------------------------------------- sizes and types
def two_gib(m: onnx.ModelProto) -> None:
    del initializer(m, "0.weight").dims[:]
    initializer(m, "0.weight").dims.extend([GIB // 2, 1])


def a_negative_size(m: onnx.ModelProto) -> None:
    initializer(m, "0.weight").dims[0] = -8


def two_negative_sizes(m: onnx.ModelProto) -> None:
    dims = initializer(m, "0.weight").dims
    dims[0], dims[1] = -dims[0], -dims[1]


def a_product_beyond_int64(m: onnx.ModelProto) -> None:
    del initializer(m, "0.weight").dims[:]
    initializer(m, "0.weight").dims.extend([2**32 + 1, 2**32, 2])


def a_product_that_wraps_to_the_right_size(m: onnx.ModelProto) -> None:
    del initializer(m, "0.bias").dims[:]
    initializer(m, "0.bias").dims.extend([2**62, 4, 8])  # modulo 2**64: nothing, which fits anything


def a_hundred_dimensions(m: onnx.ModelProto) -> None:
    initializer(m, "0.weight").dims.extend([1] * 100)


def too_few_bytes(m: onnx.ModelProto) -> None:
    tensor = initializer(m, "0.weight")
    tensor.raw_data = tensor.raw_data[:-4]


def too_many_bytes(m: onnx.ModelProto) -> None:
    initializer(m, "0.weight").raw_data += b"\0" * 4


def too_few_numbers(m: onnx.ModelProto) -> None:
    tensor = initializer(m, "0.bias")
    tensor.ClearField("raw_data")
    tensor.float_data.extend([1.0] * 7)


def numbers_of_another_type(m: onnx.ModelProto) -> None:
    tensor = initializer(m, "0.bias")
    tensor.ClearField("raw_data")
    tensor.int64_data.extend([1] * 8)


def an_unknown_type(m: onnx.ModelProto) -> None:
    initializer(m, "0.bias").data_type = 99


def no_type(m: onnx.ModelProto) -> None:
    initializer(m, "0.bias").data_type = 0


def a_text_tensor(m: onnx.ModelProto) -> None:
    m.graph.initializer.append(TensorProto(name="words", data_type=TensorProto.STRING, dims=[1], string_data=[b"a"]))


def a_complex_tensor(m: onnx.ModelProto) -> None:
    m.graph.initializer.append(TensorProto(name="waves", data_type=TensorProto.COMPLEX64, dims=[1], float_data=[0.0, 1.0]))


def a_float8_tensor(m: onnx.ModelProto) -> None:
    tensor = TensorProto(name="small", data_type=TensorProto.FLOAT8E4M3FN, dims=[1], raw_data=b"\0")
    m.graph.initializer.append(tensor)


def a_text_constant(m: onnx.ModelProto) -> None:
    m.graph.node.append(
        helper.make_node("Constant", [], ["words"], value=TensorProto(data_type=TensorProto.STRING, dims=[1], string_data=[b"a"]))
    )


def a_sparse_constant(m: onnx.ModelProto) -> None:
    m.graph.node.append(helper.make_node("Constant", [], ["sparse"], sparse_value=sparse()))


def a_sparse_initializer(m: onnx.ModelProto) -> None:
    m.graph.sparse_initializer.append(sparse())


def sparse() -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.ones(1, np.float32), "values")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.zeros(1, np.int64), "indices"), [10])


def an_input_of_texts(m: onnx.ModelProto) -> None:
    m.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING


def an_input_of_no_type(m: onnx.ModelProto) -> None:
    m.graph.input[0].ClearField("type")


def a_sequence(m: onnx.ModelProto) -> None:
    m.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("obs_0", TensorProto.FLOAT, ["batch", 4]))


def an_optional(m: onnx.ModelProto) -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ["batch", 4])
    m.graph.input[0].type.CopyFrom(helper.make_optional_type_proto(tensor))


def an_input_without_a_shape(m: onnx.ModelProto) -> None:
    m.graph.input[0].type.tensor_type.ClearField("shape")


def an_input_of_negative_size(m: onnx.ModelProto) -> None:
    m.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -4


def an_input_of_two_gib(m: onnx.ModelProto) -> None:
    m.graph.input[0].type.tensor_type.shape.dim[1].dim_value = GIB // 2


def an_input_beyond_int64(m: onnx.ModelProto) -> None:
    for _ in range(3):
        m.graph.input[0].type.tensor_type.shape.dim.add(dim_value=2**62)


def an_input_of_many_free_sizes(m: onnx.ModelProto) -> None:
    for i in range(9):
        m.graph.input[0].type.tensor_type.shape.dim.add(dim_param=f"d{i}")


def an_output_of_two_gib(m: onnx.ModelProto) -> None:
    m.graph.output[0].type.tensor_type.shape.dim[0].dim_value = GIB // 2


SIZES: dict[Bend, tuple[str, ...]] = {
    two_gib: ("0.weight", "[536870912, 1]", "2,147,483,647 bytes"),
    a_negative_size: ("0.weight", "[-8, 4]", "not possible"),
    two_negative_sizes: ("0.weight", "[-8, -4]", "not possible"),
    a_product_beyond_int64: ("0.weight", "not possible"),
    a_product_that_wraps_to_the_right_size: ("0.bias", "not possible"),
    a_hundred_dimensions: ("0.weight", "[8, 4, 1, 1, 1, 1, 1, 1, …]", "not possible"),
    too_few_bytes: ("0.weight", "124 bytes of 128", "damaged"),
    too_many_bytes: ("0.weight", "132 bytes of 128", "damaged"),
    too_few_numbers: ("0.bias", "7 values of 8", "damaged"),
    numbers_of_another_type: ("0.bias", "damaged"),
    an_unknown_type: ("0.bias", "element type 99"),
    no_type: ("0.bias", "element type 0"),
    a_text_tensor: ("'words'", "element type 8"),
    a_complex_tensor: ("'waves'", "element type 14"),
    a_float8_tensor: ("'small'", "element type 17"),
    a_text_constant: ("Constant", "element type 8"),
    a_sparse_constant: ("'sparse_value'", "doesn't know"),
    a_sparse_initializer: ("sparse initializers",),
    an_input_of_texts: ("'obs_0'", "element type 8"),
    an_input_of_no_type: ("'obs_0'", "not a tensor"),
    a_sequence: ("'obs_0'", "not a tensor"),
    an_optional: ("'obs_0'", "not a tensor"),
    an_input_without_a_shape: ("'obs_0'", "no shape"),
    an_input_of_negative_size: ("'obs_0'", "-4"),
    an_input_of_two_gib: ("'obs_0'", "[batch, 536870912]", "larger than anything"),
    an_input_beyond_int64: ("'obs_0'", "larger than anything"),
    an_input_of_many_free_sizes: ("'obs_0'", "larger than anything"),
    an_output_of_two_gib: ("'version_number'", "larger than anything"),
}


# ---------------------------------------------------------------------------------------------- operators by their definition
CODE = "1) + __import__('pathlib').Path('executed').touch() * torch.zeros(1"


def attribute(op: str, name: str, value: object) -> Bend:
    """An attribute of another type than the operator's."""

    def bend(m: onnx.ModelProto) -> None:
        target = node(m, op)
        kept = [a for a in target.attribute if a.name != name]
        del target.attribute[:]
        target.attribute.extend(kept)
        if value is not None:
            target.attribute.append(helper.make_attribute(name, value))

    bend.__name__ = f"{op}_{name}_{type(value).__name__}"
    return bend


def an_attribute_twice(m: onnx.ModelProto) -> None:
    node(m, "Gemm").attribute.append(helper.make_attribute("transB", 0))


def operands(op: str, *names: str) -> Bend:
    def bend(m: onnx.ModelProto) -> None:
        target = node(m, op)
        del target.input[:]
        target.input.extend(names)

    bend.__name__ = f"{op}_of_{len(names)}"
    return bend


def outputs(op: str, *names: str) -> Bend:
    def bend(m: onnx.ModelProto) -> None:
        target = node(m, op)
        target.output.extend(names)

    bend.__name__ = f"{op}_to_{len(names)}_more"
    return bend


def a_first_output_left_out(m: onnx.ModelProto) -> None:
    m.graph.node.append(helper.make_node("Identity", ["obs_0"], ["", "second"]))


OPERATORS: dict[Bend, tuple[str, ...]] = {
    attribute("Concat", "axis", CODE): ("Concat", "'axis'", "not of this type"),
    attribute("Concat", "axis", [1, 2]): ("Concat", "'axis'", "not of this type"),
    attribute("Concat", "axis", 1.5): ("Concat", "'axis'", "not of this type"),
    attribute("Concat", "axis", None): ("Concat", "lacks the attribute 'axis'"),
    attribute("Gemm", "transB", CODE): ("Gemm", "'transB'", "not of this type"),
    attribute("Gemm", "alpha", [1.0]): ("Gemm", "'alpha'", "not of this type"),
    attribute("Gemm", "__class__", 1): ("Gemm", "'__class__'", "doesn't have"),
    attribute("RandomNormalLike", "seed", CODE): ("RandomNormalLike", "'seed'", "not of this type"),
    attribute("Clip", "min", numpy_helper.from_array(np.zeros(1))): ("Clip", "'min'", "not of this type"),
    attribute("Sigmoid", CODE, 1): ("Sigmoid", "doesn't have"),
    an_attribute_twice: ("'transB' twice",),
    operands("Sigmoid"): ("Sigmoid", "0 operands"),
    operands("Sigmoid", "obs_0", "obs_0"): ("Sigmoid", "2 operands"),
    operands("Sigmoid", ""): ("Sigmoid", "0 operands"),
    operands("Identity"): ("Identity", "0 operands"),
    operands("Concat"): ("Concat", "0 operands"),
    operands("Clip"): ("Clip", "0 operands"),
    operands("Gemm", "obs_0"): ("Gemm", "1 operands"),
    operands("Constant", "obs_0"): ("Constant", "1 operands"),
    outputs("Constant", "more"): ("Constant", "2 outputs"),
    outputs("Identity", "more"): ("Identity", "2 outputs"),
    a_first_output_left_out: ("Identity", "outputs"),
}


# ---------------------------------------------------------------------------------------------- versions and languages
def no_opset(m: onnx.ModelProto) -> None:
    del m.opset_import[:]


def no_standard_opset(m: onnx.ModelProto) -> None:
    m.opset_import[0].domain = "com.microsoft"


def opset(version: int) -> Bend:
    def bend(m: onnx.ModelProto) -> None:
        m.opset_import[0].version = version

    bend.__name__ = f"opset_{version}"
    return bend


def two_opsets(m: onnx.ModelProto) -> None:
    m.opset_import.append(helper.make_opsetid("ai.onnx", 13))


def an_ir_of_the_future(m: onnx.ModelProto) -> None:
    m.ir_version = 2**31


def no_ir(m: onnx.ModelProto) -> None:
    m.ClearField("ir_version")


def no_graph(m: onnx.ModelProto) -> None:
    m.ClearField("graph")


def no_outputs(m: onnx.ModelProto) -> None:
    del m.graph.output[:]


def subgraph(op: str, attribute: str) -> Bend:
    def bend(m: onnx.ModelProto) -> None:
        body = helper.make_graph([helper.make_node("Identity", ["obs_0"], ["inner"])], "body", [], [])
        m.graph.node.append(helper.make_node(op, ["obs_0"], ["branch"], **{attribute: body}))

    bend.__name__ = op
    return bend


def a_list_of_subgraphs(m: onnx.ModelProto) -> None:
    m.graph.node.append(helper.make_node("Identity", ["obs_0"], ["branch"], bodies=[helper.make_graph([], "a", [], [])]))


def deep_subgraphs(m: onnx.ModelProto) -> None:
    inner = helper.make_graph([], "inner", [], [])
    for i in range(20):
        inner = (
            helper.make_graph([helper.make_node("If", ["c"], [f"v{i}"], then_branch=inner, else_branch=inner)], "body", [], [])
            if i < 4
            else inner
        )
    m.graph.node.append(helper.make_node("If", ["obs_0"], ["branch"], then_branch=inner, else_branch=inner))


def a_foreign_operator(m: onnx.ModelProto) -> None:
    m.graph.node.append(helper.make_node("FusedGemm", ["obs_0"], ["fused"], domain="com.microsoft"))


def a_standard_operator_replaced(m: onnx.ModelProto) -> None:
    m.functions.append(
        helper.make_function("", "Sigmoid", ["x"], ["y"], [helper.make_node("Neg", ["x"], ["y"])], [helper.make_opsetid("", 9)])
    )


def an_unknown_operator(m: onnx.ModelProto) -> None:
    m.graph.node.append(helper.make_node("Frobnicate", ["obs_0"], ["unknown"]))
    m.graph.output[2].name = "unknown"


LANGUAGE: dict[Bend, tuple[str, ...]] = {
    no_opset: ("not an ONNX model", "opset"),
    no_standard_opset: ("which opset",),
    opset(-1): ("opset -1", "export it at one of those"),
    opset(6): ("opset 6", "export it at one of those"),
    opset(99): ("opset 99", "export it at one of those"),
    opset(2**62): ("opset", "export it at one of those"),
    two_opsets: ("opset 9 and 13",),
    no_ir: ("not an ONNX model",),
    no_graph: ("not an ONNX model",),
    no_outputs: ("not an ONNX model", "outputs"),
    subgraph("If", "then_branch"): ("If", "subgraph", "without control flow"),
    subgraph("Loop", "body"): ("Loop", "subgraph"),
    subgraph("Scan", "body"): ("Scan", "subgraph"),
    a_list_of_subgraphs: ("subgraph",),
    deep_subgraphs: ("If", "subgraph"),
    a_foreign_operator: ("'com.microsoft'", "standard operators only"),
    a_standard_operator_replaced: ("'Sigmoid'", "in place of the standard operator"),
}


@pytest.mark.parametrize(
    ("bend", "words"), {**STRUCTURE, **SIZES, **OPERATORS, **LANGUAGE}.items(), ids=lambda x: getattr(x, "__name__", "")
)
def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bend: Bend, words: tuple[str, ...]) -> None:
    model = tiny_policy()
    bend(model)
    monkeypatch.chdir(tmp_path)
    refused(tmp_path, model, *words)
    assert left_over(tmp_path) == ["Bad.onnx"]  # no code of the model's ran, which would have left a file


@pytest.mark.parametrize(
    ("bend", "words"),
    [(an_unknown_operator, ("Frobnicate", "can't be built", "rules --explain")), (an_ir_of_the_future, ("onnxruntime", "refuses"))],
)
def test_refused_by_build_only(tmp_path: Path, bend: Bend, words: tuple[str, ...]) -> None:
    """What can be looked at, but not rebuilt."""
    model = tiny_policy()
    bend(model)
    path, _ = save_pair(tmp_path, model)
    check_trouble(run("build", path, "-o", tmp_path / "out"), *words)
    assert run("inspect", path).status == 0
    assert left_over(tmp_path) == ["Tiny.onnx"]


# ---------------------------------------------------------------------------------------------- damage that protobuf allows
@pytest.mark.parametrize("text", ["obs_0", "continuous_actions", "pytorch", "main_graph", "Sigmoid", "batch", "transB", "version_number.1"])
def test_a_name_that_is_no_utf8(tmp_path: Path, text: str) -> None:
    data = tiny_policy().SerializeToString().replace(text.encode(), b"\xff\xfe" + text.encode()[2:])
    refused(tmp_path, data, "not text (UTF-8)")


def test_a_cycle_is_named_by_one_of_its_nodes(tmp_path: Path) -> None:
    """Not by a node that only stands behind it, though that may come first in the file."""
    nodes = [
        helper.make_node("Neg", ["b"], ["behind"], "behind"),
        helper.make_node("Neg", ["b"], ["a"], "A"),
        helper.make_node("Neg", ["a"], ["b"], "B"),
    ]
    info = helper.make_tensor_value_info("behind", TensorProto.FLOAT, [1])
    refused(tmp_path, helper.make_model(helper.make_graph(nodes, "g", [], [info]), opset_imports=[helper.make_opsetid("", 13)]), "node 'B'")


def test_a_million_nodes_are_refused_at_once(tmp_path: Path) -> None:
    """Two bytes of a file can be a node; each would take a kilobyte of memory."""
    model = tiny_policy()
    graph = model.graph.SerializeToString() + b"\x0a\x00" * 1_000_000
    model.ClearField("graph")
    start = time.monotonic()
    header = model.SerializeToString()
    length, size = b"", len(graph)
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    refused(tmp_path, header + b"\x3a" + length + bytes([size]) + graph, "1,000,0", "nodes")
    assert time.monotonic() - start < 20


def test_a_million_operands_are_refused(tmp_path: Path) -> None:
    model = tiny_policy()
    model.graph.node.append(helper.make_node("Concat", ["obs_0"] * 1_000_000, ["wide"], axis=1))
    refused(tmp_path, model, "tensors")


def test_long_chains_and_wide_nodes_are_read_in_no_time(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", [f"v{i}"], [f"v{i + 1}"]) for i in range(2000)]
    nodes.append(helper.make_node("Sum", ["v2000"] * 2000, ["sum"]))
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("v0", "sum")]
    model = helper.make_model(helper.make_graph(nodes, "g", info[:1], info[1:]), opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path, _ = save_pair(tmp_path, model)
    start = time.monotonic()
    assert run("build", path, "-o", tmp_path / "out").status == 0
    assert time.monotonic() - start < 20


# ---------------------------------------------------------------------------------------------- what is dropped, not refused
def test_a_dangling_output_is_left_out_with_a_warning(tmp_path: Path) -> None:
    model = tiny_policy()
    model.graph.output.append(helper.make_tensor_value_info("dangling\x1b[31m", TensorProto.FLOAT, [1]))
    path, _ = save_pair(tmp_path, model)
    graph = load(path)
    assert [o.name for o in graph.graph.outputs] == [o.name for o in tiny_policy().graph.output]
    assert len(graph.graph.warnings) == 1
    result = run("build", path, "-o", tmp_path / "out")
    assert result.status == 0
    assert "'dangling\\x1b[31m'" in result.out and "\x1b" not in result.out
    assert "dangling" not in (tmp_path / "out" / "model.py").read_text()
    result = run("inspect", path)
    assert result.status == 0
    assert "'dangling\\x1b[31m'" in result.out and "\x1b" not in result.out


def test_an_unused_local_function_does_no_harm(tmp_path: Path) -> None:
    model = tiny_policy()
    model.functions.append(
        helper.make_function("mine", "Twice", ["x"], ["y"], [helper.make_node("Add", ["x", "x"], ["y"])], [helper.make_opsetid("", 9)])
    )
    path, _ = save_pair(tmp_path, model)
    assert run("build", path, "-o", tmp_path / "out").status == 0


def test_paths_that_no_system_takes() -> None:
    with pytest.raises(ModelError, match=r"a\\x00b.onnx"):
        load("a\0b.onnx")


def test_the_graph_of_a_model_object_is_held_to_the_same_rules(tmp_path: Path) -> None:
    model = tiny_policy()
    a_sparse_initializer(model)
    with pytest.raises(UnsupportedGraph):
        load(save_pair(tmp_path, model)[0])


# ---------------------------------------------------------------------------------------------- texts among the attributes
TEXTS = [f"constant', x) + {CODE[3:]}) + ('", "\x1b[31mred\u202e\0{x}\\", "x" * 100_000]
TAKES_TEXT = {
    "Pad": ("mode", ["x", "pads"], {}),
    "Resize": ("mode", ["x", "", "scales"], {}),
    "Upsample": ("mode", ["x", "scales"], {}),
    "DepthToSpace": ("mode", ["x"], {"blocksize": 1}),
    "Gelu": ("approximate", ["x"], {}),
    "ScatterElements": ("reduction", ["x", "indices", "x"], {}),
    "MaxPool": ("auto_pad", ["x"], {"kernel_shape": [1, 1]}),
    "Conv": ("auto_pad", ["x", "w"], {}),
    "BitShift": ("direction", ["indices", "indices"], {}),
    "Einsum": ("equation", ["x", "x"], {}),
    "LSTM": ("activations", ["seq", "lw", "lr"], {"hidden_size": 1}),
    "GRU": ("direction", ["seq", "lw", "lr"], {"hidden_size": 1}),
    "Div": ("mode", ["x", "x"], {}),
}


@pytest.mark.parametrize("op", TAKES_TEXT)
def test_texts_among_the_attributes_are_neither_run_nor_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    monkeypatch.chdir(tmp_path)
    name, operands_, attributes = TAKES_TEXT[op]
    constants: dict[str, npt.NDArray[np.generic]] = {
        "pads": np.zeros(8, np.int64),
        "scales": np.ones(4, np.float32),
        "indices": np.zeros((1, 1, 2, 2), np.int64),
        "w": np.ones((1, 1, 1, 1), np.float32),
        "seq": np.ones((1, 1, 1), np.float32),
        "lw": np.ones((1, 4, 1), np.float32),
        "lr": np.ones((1, 4, 1), np.float32),
    }
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1, 2, 2]) for n in ("x", "y")]
    info[1].type.tensor_type.ClearField("shape")
    weights = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    for text in TEXTS:
        value = [text] if name == "activations" else text
        nodes = [helper.make_node(op, operands_, ["y"], **attributes, **{name: value})]  # type: ignore[arg-type]
        version = 9 if op == "Upsample" else 20
        graph = helper.make_graph(nodes, "g", info[:1], info[1:], weights)
        path, _ = save_pair(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=9))
        result = run("build", path, "-o", "out", "--force")
        if result.status == 2:
            check_trouble(result)
        assert not unsafe(result.out)
        told = run("rules", "--explain", path)
        assert told.status in (0, 2)
        assert not unsafe(told.out + told.err) and len(told.out) < 20_000
        assert "executed" not in left_over(tmp_path)


@pytest.mark.parametrize(
    "equation",
    [
        "a...b...,c",
        "...a...a",
        "....,....->....",
        "ab,bc,cd->ad",
        "ab->ab",
        "ä,b->ab",
        "a,b->c->d",
        "\ud7ff,",
        "a.,b",
        "1,2",
        "a" * 100_000 + "!,b",
    ],
)
def test_equations_that_onnxruntime_would_never_come_to_an_end_with(tmp_path: Path, equation: str) -> None:
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1, 2, 2]) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Einsum", ["x", "x"], ["y"], equation=equation)], "g", info[:1], info[1:])
    refused(
        tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), "Einsum", "equation", "2 operands"
    )
