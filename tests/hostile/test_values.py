"""Valid graphs with values and sizes that are odd: built and proved like any other, and the odd is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph2torch.module import import_source
from tests.commands import Result, check_trouble, left_over, run, unsafe
from tests.models import save_pair, tiny_checkpoint, tiny_policy


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def build(model: onnx.ModelProto, checkpoint: bool = False) -> Result:
    paths = save_pair(Path.cwd(), model, tiny_checkpoint(model) if checkpoint else None)
    result = run("build", *(paths if checkpoint else paths[:1]), "-o", "out", "--force")
    assert not unsafe(result.out)
    if result.status == 2:
        check_trouble(result)
    else:
        assert not result.err
    return result


def level() -> str:
    found = json.loads(Path("out/report.json").read_text())["level"]
    assert isinstance(found, str)
    return found


def change(model: onnx.ModelProto, end: str, value: float, everywhere: bool = False) -> None:
    tensor = next(t for t in model.graph.initializer if t.name.endswith(end))
    array = np.array(numpy_helper.to_array(tensor))
    array.reshape(-1)[: None if everywhere else 1] = value
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def output(model: onnx.ModelProto, name: str, shape: list[int | str], kind: int = TensorProto.FLOAT) -> None:
    model.graph.output.append(helper.make_tensor_value_info(name, kind, shape))


def mean_of_actions(model: onnx.ModelProto) -> str:
    name: str = next(n for n in model.graph.node if n.op_type == "RandomNormalLike").input[0]
    return name


# ---------------------------------------------------------------------------------------------- numbers
@pytest.mark.parametrize("end", ["0.weight", "log_sigma"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_built_and_told(end: str, value: float) -> None:
    model = tiny_policy()
    change(model, end, value)
    result = build(model, checkpoint=True)
    assert result.status == 0, result
    assert level() == "graph"
    assert ("NaN" if np.isnan(value) else "infinite") in result.out
    inspected = run("inspect", "Tiny.onnx", "Tiny.pt")
    assert inspected.status == 0
    assert ("NaN" if np.isnan(value) else "infinite") in inspected.out


@pytest.mark.parametrize("value", [3e38, 1e-45, -0.0, 0.0])
def test_extreme_numbers(value: float) -> None:
    model = tiny_policy()
    for end in ("0.weight", "mu.bias", "log_sigma", "running_mean"):
        change(model, end, value, everywhere=True)
    assert build(model, checkpoint=True).status == 0
    assert level() == "graph"


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, -1.0])
def test_a_std_that_makes_no_sense(value: float) -> None:
    model = tiny_policy()
    tensor = next(t for t in model.graph.initializer if t.name.startswith("onnx::Div"))
    change(model, tensor.name, value, everywhere=True)
    assert build(model).status == 0
    assert level() == "graph"
    assert run("inspect", "Tiny.onnx").status == 0
    assert run("inspect", "Tiny.onnx", "--json").status == 0


def test_everything_is_nan() -> None:
    model = tiny_policy()
    for tensor in list(model.graph.initializer):
        change(model, tensor.name, np.nan, everywhere=True)
    assert build(model).status == 0
    assert level() == "graph"
    for arguments in (["Tiny.onnx"], ["Tiny.onnx", "--json"]):
        assert run("inspect", *arguments).status == 0
    json.loads(Path("out/report.json").read_text(), parse_constant=pytest.fail)


# ---------------------------------------------------------------------------------------------- sizes
@pytest.mark.parametrize("batch", [1, 2, 5, "", "?", "1", "batch size"])
def test_a_batch_that_the_graph_fixes_or_calls_otherwise(batch: int | str) -> None:
    assert build(tiny_policy(batch=batch), checkpoint=True).status == 0
    assert level() == "graph"


SIZES: list[dict[str, object]] = [
    {"batch": 0},
    {"observations": (0,)},
    {"observations": (0, 3)},
    {"observations": (0, 3), "normalize": False},
    {"hidden": 0},
    {"actions": 0},
    {"observations": (1,), "hidden": 1, "actions": 1},
]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes_of_nothing(sizes: dict[str, object]) -> None:
    assert build(tiny_policy(**sizes)).status == 0  # type: ignore[arg-type]
    assert level() in ("graph", "bits")
    assert run("inspect", "Tiny.onnx").status == 0


def test_inputs_that_nothing_reads() -> None:
    model = tiny_policy()
    kinds = (
        TensorProto.FLOAT,
        TensorProto.DOUBLE,
        TensorProto.FLOAT16,
        TensorProto.INT64,
        TensorProto.INT8,
        TensorProto.UINT8,
        TensorProto.BOOL,
    )
    shapes: tuple[list[int | str], ...] = ([], [1], [0], ["batch", 3], ["a", "b", "c"])
    for kind in kinds:
        for i, shape in enumerate(shapes):
            model.graph.input.append(helper.make_tensor_value_info(f"unused_{kind}_{i}", kind, shape))
    assert build(model).status == 0
    assert level() == "graph"


# ---------------------------------------------------------------------------------------------- outputs
def an_input(model: onnx.ModelProto) -> None:
    output(model, "obs_0", ["batch", 4])


def a_copy_of_an_input(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Identity", ["obs_0"], ["copy"]))
    output(model, "copy", ["batch", 4])


def two_copies_of_one_value(model: onnx.ModelProto) -> None:
    for name in ("first", "second"):
        model.graph.node.append(helper.make_node("Identity", [mean_of_actions(model)], [name]))
        output(model, name, ["batch", 2])


def a_value_inside(model: onnx.ModelProto) -> None:
    output(model, mean_of_actions(model), ["batch", 2])


def an_output_without_a_shape(model: onnx.ModelProto) -> None:
    model.graph.output[2].type.tensor_type.ClearField("shape")


def an_output_of_another_shape(model: onnx.ModelProto) -> None:
    output(model, mean_of_actions(model), ["batch", 7])


ODD: list[Callable[[onnx.ModelProto], None]] = [
    an_input,
    a_copy_of_an_input,
    two_copies_of_one_value,
    a_value_inside,
    an_output_without_a_shape,
    an_output_of_another_shape,
]


@pytest.mark.parametrize("bend", ODD)
def test_odd_but_valid(bend: Callable[[onnx.ModelProto], None]) -> None:
    model = tiny_policy()
    bend(model)
    result = build(model)
    assert result.status == 0, result
    assert level() == "graph"


def test_weights_that_a_caller_may_replace() -> None:
    """No constants to onnxruntime: it computes with them otherwise, so the rebuilt graph's bits are others, and it is said why."""
    model = tiny_policy()
    model.graph.input.extend(helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in model.graph.initializer)
    result = build(model)
    assert result.status == 1, result
    assert level() == "close"
    assert "can be overridden in one graph only" in " ".join(result.out.split())


FIXED = [
    *(np.asarray([[1, 0, 1]], kind) for kind in ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "bool")),
    *(np.ones(shape, np.float32) for shape in ((), (0,), (0, 3), (3, 0), (1, 1, 1, 1), (1000,))),
    np.asarray([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4028235e38, 0.1], np.float32),
    np.asarray([np.nan, 0.1], np.float64),
    np.asarray([-(2**63), 2**63 - 1]),
]


def test_outputs_that_are_fixed() -> None:
    """They keep type, shape and bits in the emitted source."""
    model = tiny_policy()
    for i, value in enumerate(FIXED):
        model.graph.initializer.append(numpy_helper.from_array(value, f"fixed_{i}"))
        output(model, f"fixed_{i}", list(value.shape), helper.np_dtype_to_tensor_dtype(value.dtype))
    assert build(model).status == 0
    assert level() == "graph"
    import torch

    given = import_source(Path("out/model.py").read_text()).Policy()(torch.zeros(1, 4))
    for i, value in enumerate(FIXED):
        found = getattr(given, f"fixed_{i}").numpy()
        assert found.dtype == value.dtype and found.shape == value.shape and found.tobytes() == value.tobytes()


def test_a_fixed_output_of_many_numbers_is_refused() -> None:
    model = tiny_policy()
    model.graph.initializer.append(numpy_helper.from_array(np.ones(10_000, np.float32), "table"))
    output(model, "table", [10_000])
    assert build(model).status == 2
    assert left_over(Path.cwd()) == ["Tiny.onnx"]


# ---------------------------------------------------------------------------------------------- what onnxruntime refuses
def observations_of_another_size(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 7


def observations_of_another_type(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64


def an_axis_that_is_not_there(model: onnx.ModelProto) -> None:
    next(n for n in model.graph.node if n.op_type == "Concat").attribute[0].i = 2**62


@pytest.mark.parametrize("bend", [observations_of_another_size, observations_of_another_type, an_axis_that_is_not_there])
def test_the_original_is_blamed_where_onnxruntime_refuses_it(bend: Callable[[onnx.ModelProto], None]) -> None:
    model = tiny_policy(observations=(4, 3))
    bend(model)
    result = build(model)
    assert result.status == 2
    assert "refuses the original" in result.err
    assert left_over(Path.cwd()) == ["Tiny.onnx"]


# ---------------------------------------------------------------------------------------------- sizes that explode
def doubled(steps: int) -> onnx.ModelProto:
    """x, then x beside x, and so on: 2 to the power of `steps` numbers."""
    nodes = [helper.make_node("Concat", [f"v{i}", f"v{i}"], [f"v{i + 1}"], axis=1) for i in range(steps)]
    info = [
        helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["batch", 1]),
        helper.make_tensor_value_info(f"v{steps}", TensorProto.FLOAT, ["batch", "n"]),
    ]
    return helper.make_model(helper.make_graph(nodes, "g", info[:1], info[1:]), opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def made(op: str, constants: dict[str, npt.NDArray[np.generic]]) -> onnx.ModelProto:
    inputs = ["x", *constants] if op not in ("ConstantOfShape", "Range") else list(constants)
    nodes = [helper.make_node(op, inputs, ["big"]), helper.make_node("ReduceSum", ["big"], ["y"], keepdims=0)]
    info = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1]), helper.make_tensor_value_info("y", TensorProto.FLOAT, [])]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [numpy_helper.from_array(v, k) for k, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


BOMBS = {
    "Concat": doubled(40),
    "Expand": made("Expand", {"shape": np.asarray([1, 2**40])}),
    "Expand further": made("Expand", {"shape": np.asarray([2**20, 1, 2**20])}),
    "Tile": made("Tile", {"repeats": np.asarray([2**20, 2**20])}),
    "ConstantOfShape": made("ConstantOfShape", {"shape": np.asarray([2**31, 2**5])}),
    "Pad": made("Pad", {"pads": np.asarray([0, 0, 0, 2**40])}),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_does_not_take_all_memory(bomb: str) -> None:
    result = build(BOMBS[bomb])
    assert result.status == 2
    assert "would have" in result.err or "can't be built" in result.err or "no rule explains" in result.err, result.err
    assert run("inspect", "Tiny.onnx").status == 0
