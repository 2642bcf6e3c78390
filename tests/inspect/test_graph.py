"""What `inspect MODEL.onnx` finds out: on tiny policies whose numbers the tests know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from tests.inspected import NORMALIZER, initializer, inspected, std_name
from tests.models import save_pair, tiny_policy

ROOT = Path(__file__).resolve().parents[2]


def change(model: onnx.ModelProto, name: str, values: Any) -> None:
    """Gives the initializer `name` other values of the same shape."""
    tensor = next(t for t in model.graph.initializer if t.name == name)
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(values, np.float32), name))


def test_a_graph_is_told_by_its_contract_blocks_and_numbers(tmp_path: Path) -> None:
    model = tiny_policy(observations=(4, 3), actions=2, hidden=8, layers=2)
    path, _ = save_pair(tmp_path, model)
    found = inspected(path)
    assert (found["kind"], found["family"], found["exporter"], found["opset"], found["ir_version"]) == (
        "onnx",
        "mlagents",
        "pytorch 2.1.2",
        9,
        4,
    )
    assert found["bytes"] == path.stat().st_size
    assert [(i["name"], i["shape"], i["used"]) for i in found["inputs"]] == [("obs_0", ["batch", 4], True), ("obs_1", ["batch", 3], True)]
    assert {o["name"]: o["constant"] for o in found["outputs"]} == {
        "version_number": [3.0],
        "memory_size": [0.0],
        "continuous_actions": None,
        "continuous_action_output_shape": [2.0],
        "deterministic_continuous_actions": None,
    }
    assert all(o["meaning"] for o in found["outputs"])
    assert [b["size"] for b in found["blocks"] if b["rule"] == "linear"] == [[7, 8], [8, 8], [8, 2]]
    assert found["parameters"]["trainable"] == 7 * 8 + 8 + 8 * 8 + 8 + 8 * 2 + 2 + 2
    assert found["parameters"]["statistics"] == 2 * (4 + 3)
    names = {t["path"]: t["name"] for t in found["parameters"]["tensors"]}
    assert names["log_sigma"] == "action_model._continuous_distribution.log_sigma"
    assert (
        found["coverage"]["unexplained"],
        found["coverage"]["percent"],
        found["unexplained"],
        found["odd_values"],
        found["warnings"],
    ) == (0, 100.0, [], [], [])
    assert found["coverage"]["nodes"] == len(model.graph.node) == sum(found["coverage"]["by_rule"].values()) + found["coverage"]["inert"]


def test_statistics_and_sigma_are_the_graphs(tmp_path: Path) -> None:
    model = tiny_policy()
    found = inspected(save_pair(tmp_path, model)[0])
    mean, std, log_sigma = (
        initializer(model, f"{NORMALIZER}.running_mean"),
        initializer(model, std_name(model)),
        initializer(model, "action_model._continuous_distribution.log_sigma"),
    )
    (normalizer,), (sigma,) = found["normalizers"], found["sigma"]
    assert normalizer["mean"] == {"min": mean.min(), "max": mean.max()}
    assert normalizer["std"] == {"min": std.min(), "median": np.median(std), "max": std.max()}
    assert normalizer["saturating"] == []
    assert (sigma["actions"], sigma["min"]) == (2, pytest.approx(np.exp(log_sigma).min()))
    assert sigma["mean"] == pytest.approx(np.exp(log_sigma).mean())


def test_columns_with_a_tiny_std_are_named(tmp_path: Path) -> None:
    model = tiny_policy(observations=(5,))
    change(model, f"{NORMALIZER}.running_mean", [0, 1000, 0, 0, 0])
    change(model, std_name(model), [0.004, 4, 0.006, np.nan, 0])  # 4 is tiny beside 1000; NaN is told elsewhere
    (normalizer,) = inspected(save_pair(tmp_path, model)[0])["normalizers"]
    assert [c["column"] for c in normalizer["saturating"]] == [0, 1, 4]
    assert normalizer["saturating"][0]["clipped_beyond"] == pytest.approx(0.02)
    assert normalizer["not_finite"] == 1
    assert "0.005" in normalizer["threshold"]


def test_merged_tensors_are_told(tmp_path: Path) -> None:
    model = tiny_policy()
    bias = "network_body._body_endoder.seq_layers.{}.bias"
    for node in model.graph.node:
        node.input[:] = [bias.format(0) if value == bias.format(2) else value for value in node.input]
    assert inspected(save_pair(tmp_path, model)[0])["parameters"]["merged"] == {bias.format(0): ["body.0.bias", "body.2.bias"]}


def test_nan_and_infinity_are_told_and_are_text_in_json(tmp_path: Path) -> None:
    model = tiny_policy()
    log_sigma = "action_model._continuous_distribution.log_sigma"
    change(model, log_sigma, [[np.nan, np.inf]])
    found = inspected(save_pair(tmp_path, model)[0])
    assert found["odd_values"] == [f"{log_sigma}: 1 NaN and 1 infinite of 2"]
    assert found["sigma"][0]["min"] is None  # nothing finite is left of it


def test_warnings_name_dangling_outputs_and_initializers_that_can_be_replaced(tmp_path: Path) -> None:
    model = tiny_policy()
    model.graph.output.append(onnx.helper.make_tensor_value_info("nowhere", onnx.TensorProto.FLOAT, [1]))
    weight = next(t for t in model.graph.initializer if t.name.endswith("mu.weight"))
    model.graph.input.append(onnx.helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims))
    dangling, replaceable = inspected(save_pair(tmp_path, model)[0])["warnings"]
    assert "'nowhere'" in dangling
    assert weight.name in replaceable


def test_an_onnx_is_inspected_without_torch_and_onnxruntime(tmp_path: Path) -> None:
    path, _ = save_pair(tmp_path, tiny_policy())
    calls = "inspect_file(sys.argv[1]); explain_model(sys.argv[1]); cover_folder(sys.argv[2])"
    code = f"import sys; from graph2torch.inspect.file import *; from graph2torch.explain import *; {calls}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code, path, tmp_path], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"torch", "onnxruntime", "onnx_graphsurgeon"} & set(run.stdout.split())
