"""What `rules`, `rules --explain` and `rules --coverage` find out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import onnx
import onnx.parser
import pytest

from graph2torch.build import build
from graph2torch.errors import ModelError
from graph2torch.explain import cover_folder, explain_model, list_rules
from tests.inspected import ODD, inspected
from tests.models import save_pair, tiny_policy

ROOT = Path(__file__).resolve().parents[1]


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
