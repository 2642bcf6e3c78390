"""What `inspect`, `rules` and `rules --explain` find out: on tiny policies whose numbers the tests know, and on Huggy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import torch
from onnx import numpy_helper

from graph2torch.build import build
from graph2torch.errors import CheckpointError, ModelError
from graph2torch.inspect import GRID, cover_folder, explain_model, formula_errors, inspect_file, list_rules
from tests.models import save_pair, tiny_checkpoint, tiny_policy

ROOT = Path(__file__).resolve().parents[1]
NORMALIZER = "network_body.observation_encoder.processors.0.normalizer"
ODD = """<ir_version: 8, opset_import: ["" : 13]>
odd (float[batch, 3] obs_0) => (float[batch, 3] continuous_actions, float[1] version_number)
    <float[3] mean = {0.0, 1.0, 2.0}, float[3] std = {1.0, 1.0, 1.0}, float[1] fixed = {3.0}, float lo = {-9.0}, float hi = {9.0}> {
    d = Sub (obs_0, mean)
    q = Div (d, std)
    c = Clip (q, lo, hi)
    two = Constant <value = float {2.0}> ()
    continuous_actions = Unheard (c, two)
    version_number = Identity (fixed)
    unused = Neg (obs_0)
}"""


def change(model: onnx.ModelProto, name: str, values: Any) -> None:
    """Gives the initializer `name` other values of the same shape."""
    tensor = next(t for t in model.graph.initializer if t.name == name)
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(values, np.float32), name))


def initializer(model: onnx.ModelProto, name: str) -> Any:
    return numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == name))


def std_name(model: onnx.ModelProto) -> str:
    return str(next(n.input[1] for n in model.graph.node if n.op_type == "Div"))


def inspected(path: Path, checkpoint: Path | None = None) -> dict[str, Any]:
    """inspect_file's finding, by way of JSON, which it promises to fit in."""
    return dict(json.loads(json.dumps(inspect_file(path, checkpoint), allow_nan=False)))


# ---------------------------------------------------------------------------------------------- an .onnx
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
    code = f"import sys; from graph2torch.inspect import *; {calls}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code, path, tmp_path], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"torch", "onnxruntime", "onnx_graphsurgeon"} & set(run.stdout.split())


# ---------------------------------------------------------------------------------------------- what no rule explains
def test_unexplained_nodes_come_with_the_nearest_rule(tmp_path: Path) -> None:
    path = tmp_path / "odd.onnx"
    path.write_bytes(onnx.parser.parse_model(ODD).SerializeToString())
    found = inspected(path)
    by_op = {entry["op"]: entry for entry in found["unexplained"]}
    assert set(by_op) == {"Constant", "Unheard"}
    assert by_op["Unheard"]["nearest"] is None
    assert "not among those" in by_op["Unheard"]["refusal"]
    assert (by_op["Constant"]["nearest"], by_op["Constant"]["operand_of"]) == (None, by_op["Unheard"]["index"])
    by_op = {entry["op"]: entry for entry in explain_model(path)["nodes"]}
    nearest = by_op["Clip"]["nearest"]  # rebuilt by itself, and yet the normaliser came near
    assert (nearest["rule"], nearest["matched"], nearest["of"], nearest["node"]) == ("normalizer", 1, 3, by_op["Clip"]["index"])
    assert "-9.0" in nearest["reason"]
    assert "Clip" in nearest["reason"]
    single = {"Sub": 1, "Div": 1, "Clip": 1}
    assert found["coverage"] == {"nodes": 7, "by_rule": single, "generic": 3, "inert": 2, "unexplained": 2, "percent": 0.0}
    assert {(t["name"], t["path"]) for t in found["parameters"]["tensors"]} == {("mean", "mean"), ("std", "std"), ("two", None)}


def test_every_node_has_one_fate(tmp_path: Path) -> None:
    path = tmp_path / "odd.onnx"
    path.write_bytes(onnx.parser.parse_model(ODD).SerializeToString())
    fates = {n["op"]: n["status"] for n in explain_model(path)["nodes"]}
    single = dict.fromkeys(("Sub", "Div", "Clip"), "generic")
    assert fates == single | {"Constant": "unexplained", "Unheard": "unexplained", "Identity": "inert", "Neg": "inert"}
    model = tiny_policy()
    found = explain_model(save_pair(tmp_path, model)[0])
    assert [(n["index"], n["op"]) for n in found["nodes"]] == [(i, n.op_type) for i, n in enumerate(model.graph.node)]
    assert {n["rule"] for n in found["nodes"] if n["op"] == "Sigmoid"} == {"silu"}
    assert {n["module"] for n in found["nodes"] if n["op"] == "Sigmoid"} == {"body.1", "body.3"}


def test_rules_are_listed_with_their_patterns() -> None:
    found = json.loads(json.dumps(list_rules()))
    rules = {(r["family"], r["name"]): r for r in found["rules"]}
    assert set(rules) == {(p.parents[1].name, p.parent.name) for p in (ROOT / "rules").glob("*/*/rule.py")}
    assert rules["mlagents", "silu"]["patterns"] == [{"name": "SiLU", "operators": 2}]
    assert all(r["summary"] for r in found["rules"])


def test_a_folder_is_covered_model_by_model(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    save_pair(tmp_path, tiny_policy(), name="b")
    save_pair(tmp_path / "deep" / "er", tiny_policy(era="torch1.8"), name="a")
    (tmp_path / "deep" / "ODD.ONNX").write_bytes(onnx.parser.parse_model(ODD).SerializeToString())
    (tmp_path / "deep" / "broken.onnx").write_bytes(b"not a model")
    (tmp_path / "deep" / "other.pt").write_bytes(b"not looked at")
    found = json.loads(json.dumps(cover_folder(tmp_path), allow_nan=False))
    models = {m.pop("file"): m for m in found["models"]}
    assert list(models) == ["b.onnx", "deep/ODD.ONNX", "deep/broken.onnx", "deep/er/a.onnx"]
    assert "broken.onnx" in models["deep/broken.onnx"]["error"]
    counts = ("nodes", "architecture", "generic", "inert", "unexplained")
    assert [models["b.onnx"][key] for key in counts] == [27, 24, 0, 3, 0]
    assert [models["deep/ODD.ONNX"][key] for key in counts] == [7, 0, 3, 2, 2]
    assert models["b.onnx"]["by_rule"]["silu"] == 4 and models["b.onnx"]["percent"] == 100
    whole = [sum(m.get(key, 0) for m in models.values()) for key in counts]
    assert [found["totals"][key] for key in counts] == whole
    assert (found["totals"]["models"], found["totals"]["refused"], found["totals"]["whole"]) == (4, 1, 2)
    assert found["totals"]["percent"] == int(1000 * whole[1] / (whole[0] - whole[3])) / 10
    assert found["generic"] == {"Sub": 1, "Div": 1, "Clip": 1} and found["unexplained"] == {"Constant": 1, "Unheard": 1}


def test_copies_that_build_wrote_are_not_counted(tmp_path: Path) -> None:
    path, _ = save_pair(tmp_path, tiny_policy())
    build(path, output=tmp_path / "Built")
    (tmp_path / "other").mkdir()
    shutil.copy(path, tmp_path / "other" / "rebuilt.onnx")  # only called so
    assert [m["file"] for m in cover_folder(tmp_path)["models"]] == ["Tiny.onnx", "other/rebuilt.onnx"]
    with pytest.raises(ModelError, match=r"no \.onnx but copies that `graph2torch build` wrote"):
        cover_folder(tmp_path / "Built")


def test_a_folder_without_models_is_refused(tmp_path: Path) -> None:
    for path, words in ((tmp_path, "holds no .onnx"), (tmp_path / "none", "does not exist"), (Path(__file__), "is not a folder")):
        with pytest.raises(ModelError, match=words):
            cover_folder(path)


# ---------------------------------------------------------------------------------------------- a .pt
def test_a_checkpoint_is_told_by_its_content(tmp_path: Path) -> None:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model, steps=1024, global_step=777)
    checkpoint["Policy"]["again.weight"] = checkpoint["Policy"]["action_model._continuous_distribution.mu.weight"]
    misnamed = tmp_path / "really-a-checkpoint.onnx"
    torch.save(checkpoint, misnamed)
    found = inspected(misnamed)
    assert (found["kind"], found["step"], found["policy"]) == ("pt", 777, "Policy")
    assert {m["name"]: (m["tensors"], m["numbers"]) for m in found["modules"]}["global_step"] == (1, 1)
    tensors = {t["name"]: t for t in found["tensors"]}
    assert tensors["continuous_act_size_vector"]["values"] == [2.0]
    assert tensors["again.weight"]["same_as"] == "action_model._continuous_distribution.mu.weight"
    assert found["numbers"] == sum(t.numel() for k, t in checkpoint["Policy"].items() if k != "again.weight")
    normalizer = found["normalizers"][0]
    std = initializer(model, std_name(model))
    assert (normalizer["name"], normalizer["steps"], normalizer["features"]) == (NORMALIZER, 1024, 4)
    assert normalizer["std"]["max"] == std.max()
    assert normalizer["running_variance"]["max"] == pytest.approx(std.max() ** 2 * 1024)
    assert found["odd_values"] == []


def odd_checkpoint(tmp_path: Path, **statistics: Any) -> list[str]:
    """The odd values of a checkpoint whose only normaliser has these statistics."""
    tensors = {f"{NORMALIZER}.{key}": torch.as_tensor(value) for key, value in statistics.items()}
    torch.save({"Policy": tensors}, tmp_path / "odd.pt")
    return list(inspected(tmp_path / "odd.pt")["odd_values"])


def test_odd_statistics_are_told_with_their_columns(tmp_path: Path) -> None:
    (negative, huge) = odd_checkpoint(
        tmp_path,
        running_mean=torch.zeros(4),
        running_variance=torch.tensor([5e6, -2.0, 5e6, 1e24]),
        normalization_steps=torch.tensor(1_000_000),
    )
    assert "negative in column 1 (-2)" in negative
    assert "column 3 (1e+24)" in huge
    (unused,) = odd_checkpoint(tmp_path, running_mean=torch.zeros(2), running_variance=torch.ones(2), normalization_steps=torch.tensor(1))
    assert "normalization_steps is 1" in unused
    (nan,) = odd_checkpoint(
        tmp_path, running_mean=torch.tensor([torch.nan, 0]), running_variance=torch.full((2,), 5e6), normalization_steps=torch.tensor(10)
    )
    assert "1 NaN of 2" in nan
    (zero,) = odd_checkpoint(
        tmp_path, running_mean=torch.zeros(2), running_variance=torch.full((2,), -0.0), normalization_steps=torch.tensor(0)
    )
    assert "is 0" in zero


def normalised_by_mlagents(observations: Any) -> dict[str, torch.Tensor]:
    """ML-Agents' running statistics (`Normalizer.update`) after batches of 64 observations [n, features]."""
    steps, mean, variance = torch.tensor(1), torch.zeros(observations.shape[1]), torch.ones(observations.shape[1])
    for batch in torch.split(torch.as_tensor(observations, dtype=torch.float32), 64):
        total = steps + batch.shape[0]
        off_old = batch - mean
        new_mean = mean + (off_old / total).sum(0)
        variance = variance + ((batch - new_mean) * off_old).sum(0)
        mean, steps = new_mean, total
    return {"running_mean": mean, "running_variance": variance, "normalization_steps": steps}


@pytest.mark.parametrize("length", [64, 6400])
def test_columns_that_never_changed_in_training_are_told_from_those_that_hardly_did(tmp_path: Path, length: int) -> None:
    rng = np.random.default_rng(0)
    columns = np.stack(
        [
            np.zeros(length),
            np.full(length, 0.3),
            np.full(length, -70.0),
            rng.normal(0, 1, length),
            5 + rng.normal(0, 0.1, length),
            np.arange(length) == 3,
        ],
        1,
    )
    faults = odd_checkpoint(tmp_path, **normalised_by_mlagents(columns))
    assert len(faults) == 1
    named = faults[0].split("running_variance: columns ")[1].split(" never")[0]
    assert [int(part.split(" ")[0]) for part in named.split(", ")] == [0, 1, 2]
    (normalizer,) = inspected(tmp_path / "odd.pt")["normalizers"]
    assert {c["column"] for c in normalizer["saturating"] if c["constant"]} == {0, 1, 2}


def test_what_is_no_policy_is_refused(tmp_path: Path) -> None:
    torch.save({"Optimizer:critic": {"w": torch.ones(1)}}, tmp_path / "critic.pt")
    with pytest.raises(CheckpointError, match="Optimizer:critic"):
        inspect_file(tmp_path / "critic.pt")
    path, checkpoint = save_pair(tmp_path, tiny_policy(), tiny_checkpoint(tiny_policy()))
    with pytest.raises(ModelError, match=r"give the \.onnx first"):
        inspect_file(checkpoint, path)
    with pytest.raises(ModelError, match="does not exist"):
        inspect_file(tmp_path / "missing.onnx")


# ---------------------------------------------------------------------------------------------- a pair
def test_a_pair_that_agrees(tmp_path: Path) -> None:
    model = tiny_policy()
    pair = inspected(*save_pair(tmp_path, model, tiny_checkpoint(model)))["pair"]
    assert (pair["verdict"], pair["compared"], pair["fixed_outputs"], pair["disagreements"], pair["unmatched"]) == ("same", 9, 3, [], [])
    (normalizer,) = pair["normalizers"]
    assert (normalizer["rounding"], normalizer["ulps"], normalizer["agrees"]) == (["numpy", "double"], 0, True)


def test_a_pair_that_drifts_names_the_tensors(tmp_path: Path) -> None:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    checkpoint["Policy"]["action_model._continuous_distribution.mu.weight"][0, :3] += 0.02
    checkpoint["Policy"][f"{NORMALIZER}.running_variance"] *= 4
    pair = inspected(*save_pair(tmp_path, model, checkpoint))["pair"]
    assert pair["verdict"] == "drift"
    apart = {d["parameter"]: d for d in pair["disagreements"]}
    assert set(apart) == {"mu.weight", "normalizer.std"}
    assert (apart["mu.weight"]["elements"], apart["mu.weight"]["max_abs"]) == (3, pytest.approx(0.02, rel=1e-5))
    assert pair["normalizers"][0]["agrees"] is False


def test_a_pair_of_two_networks_is_a_finding(tmp_path: Path) -> None:
    model, other = tiny_policy(hidden=8), tiny_policy(hidden=16)
    pair = inspected(*save_pair(tmp_path, model, tiny_checkpoint(other)))["pair"]
    assert pair["verdict"] == "other network"
    assert "hidden layer 1" in pair["reason"]
    assert "body.0.weight" in pair["unmatched"]


def test_a_pair_of_which_nothing_is_known_is_not_called_the_same(tmp_path: Path) -> None:
    path = tmp_path / "odd.onnx"
    path.write_bytes(onnx.parser.parse_model(ODD).SerializeToString())
    torch.save({"Policy": {"w": torch.ones(3)}}, tmp_path / "odd.pt")
    pair = inspected(path, tmp_path / "odd.pt")["pair"]
    assert pair["verdict"] == "nothing compared"
    assert set(pair["not_compared"]) == {"mean", "std", "two"}


def test_the_naive_formulas_are_off_by_what_they_must_be() -> None:
    steps = 1024
    mean, std = np.asarray([2.0, 0.0], np.float32), np.asarray([0.5, 8.0], np.float32)
    variance = (std.astype(np.float64) ** 2 * steps).astype(np.float32)
    errors = {f["name"]: f for f in formula_errors(mean, std, variance, steps)}
    right, naive, half = errors["right"], errors["naive"], errors["float16 statistics"]
    assert (right["std"], right["before_clip"], right["after_clip"], right["of"]) == (0, 0, 0, 2 * len(GRID))
    assert naive["std"] == 8 * 32 - 8
    assert naive["before_clip"] == pytest.approx(6 * (1 - 1 / 32))  # at k = ±6
    assert naive["after_clip"] == pytest.approx(5 * (1 - 1 / 32))  # at k = ±5: beyond, the clip helps
    assert errors["naive, with eps"]["std"] == pytest.approx(naive["std"])
    assert errors["divided, with eps"]["std"] == pytest.approx(1e-5, rel=0.05)  # 1e-5 / (2 · 0.5)
    assert (half["overflowed"], half["not_finite"], half["after_clip"]) == (1, 0, 5)  # 8² · 1024 is infinite, so all of that column is 0


def test_float16_statistics_overflow_to_nothing() -> None:
    mean, std = np.asarray([1.0], np.float32), np.asarray([0.5], np.float32)
    half = formula_errors(mean, std, std**2 * np.float32(2_000_050), 2_000_050)[-1]
    assert (half["overflowed"], half["not_finite"], half["of"], half["after_clip"]) == (2, len(GRID), len(GRID), None)


def test_huggy() -> None:
    """The pair of assets/: one ulp between the graph's std and the checkpoint's, one constant column, float16 useless."""
    found = inspected(ROOT / "assets" / "Huggy.onnx", ROOT / "assets" / "Huggy.pt")
    graph, checkpoint, pair = found["graph"], found["checkpoint"], found["pair"]
    assert graph["title"] == "59 observations → 512 → 512 → 512 → 21 continuous actions"
    assert (graph["parameters"]["trainable"], graph["coverage"]["percent"]) == (566_826, 100.0)
    assert (checkpoint["step"], checkpoint["normalizers"][0]["steps"]) == (2_000_049, 2_000_050)
    assert [c["column"] for c in checkpoint["normalizers"][0]["saturating"] if c["constant"]] == [1]
    assert pair["verdict"] == "same"
    (normalizer,) = pair["normalizers"]
    assert normalizer["ulps"] == 1
    errors = {f["name"]: f for f in normalizer["formulas"]}
    assert errors["right"]["after_clip"] < 1e-6
    assert errors["naive, with eps"]["after_clip"] > 4.99
    assert errors["float16 statistics"]["not_finite"] == errors["float16 statistics"]["of"] == 59 * len(GRID)
