"""`build --dtype`: weights that are stored in half precision, in every command that opens such a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from safetensors.torch import load_file, save_file

from graph2torch.act.folder import open_folder
from graph2torch.act.run import Runner, made_up
from graph2torch.bench import bench_folder
from graph2torch.build import build, build_policy
from graph2torch.devices.device import cpu
from graph2torch.errors import ActingError, FolderError, UnsupportedGraph
from graph2torch.judge.deep import verify_folder
from graph2torch.precisions import HALF, PRECISIONS, check_dtype
from graph2torch.selftest.cases import CASES
from graph2torch.selftest.selftest import open_subject, selftest, tried
from tests.commands import run
from tests.models import FAMILIES, save_pair, tiny_checkpoint, tiny_policy

POLICIES = {"continuous": "float16", "lstm": "float16", "attention": "bfloat16", "discrete": "bfloat16", "resnet": "float16"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """By family: the folder built in the precision of POLICIES; beside it one in float32, and the pair."""
    made = {}
    for family, dtype in POLICIES.items():
        folder = tmp_path_factory.mktemp(family)
        model = tiny_policy(**FAMILIES[family])
        pair = save_pair(folder, model, tiny_checkpoint(model, steps=2_000_000))
        build(*pair, folder / "out", dtype=dtype)
        build(*pair, folder / "whole")
        made[family] = folder / "out"
    return made


def feed(runner: Runner, rows: int = 16) -> Any:
    return made_up(runner.contract.inputs, "random", rows, 0, 3)


@pytest.mark.parametrize("family", POLICIES)
def test_layers_are_stored_rounded_and_all_else_as_it_was(folders: Mapping[str, Path], family: str) -> None:
    folder, dtype = folders[family], getattr(torch, POLICIES[family])
    stored, whole = load_file(folder / "weights.safetensors"), load_file(folder.parent / "whole" / "weights.safetensors")
    assert stored.keys() == whole.keys()
    kept = {name for name in stored if "normalizer" in name or name == "log_sigma"}
    for name, tensor in stored.items():
        assert tensor.dtype == (whole[name].dtype if name in kept else dtype)
        assert torch.equal(tensor, whole[name].to(tensor.dtype))
    assert (folder / "weights.safetensors").stat().st_size < (folder.parent / "whole" / "weights.safetensors").stat().st_size
    for file in ("rebuilt.onnx", "lifted.onnx"):  # the float32 network's
        assert (folder / file).read_bytes() == (folder.parent / "whole" / file).read_bytes()


@pytest.mark.parametrize("family", POLICIES)
def test_the_report_says_so_and_judges_it(folders: Mapping[str, Path], family: str) -> None:
    report = json.loads((folders[family] / "report.json").read_text())
    precision = report["precision"]
    assert report["dtype"] == precision["dtype"] == precision["stored"] == POLICIES[family] and report["level"] == "graph"
    assert precision["verdict"] in ("recommended", "acceptable", "not advised") and precision["runs"] == 8
    assert precision["not_rounded_so"] == [] and precision["rounded_tensors"] == len(report["parameters"])
    dtypes = {p["path"]: p["dtype"] for p in report["parameters"]}
    assert dtypes["body.0.weight"] == POLICIES[family]
    assert all(kind == "float32" for path, kind in dtypes.items() if "normalizer" in path and "steps" not in path)
    assert dtypes.get("log_sigma", "float32") == "float32"
    whole = json.loads((folders[family].parent / "whole" / "report.json").read_text())
    assert whole["dtype"] == "float32" and whole["precision"] is None


@pytest.mark.parametrize("family", POLICIES)
def test_it_acts_in_that_precision_unless_told_otherwise(folders: Mapping[str, Path], family: str) -> None:
    folder, dtype = folders[family], POLICIES[family]
    runner, up, exact = Runner.load(folder), Runner.load(folder, dtype="float32"), Runner.load(folder.parent / "whole")
    again = Runner.load(folder.parent / "whole", dtype=dtype)
    assert runner.dtype == getattr(torch, dtype) and up.dtype == torch.float32
    acted = [r.act(feed(r)) for r in (runner, again, up, exact)]
    for name, actions in acted[0].items():
        assert actions.dtype == acted[3][name].dtype
        assert np.array_equal(actions, acted[1][name])  # rounded now or then
        if actions.dtype == np.float32:
            assert (
                0 < np.abs(acted[2][name].astype(np.float64) - acted[3][name].astype(np.float64)).max() < 0.05
            )  # the rounded weights don't come back
    sampled = runner.act(feed(runner), sample=True, seed=5)
    assert all(np.isfinite(numbers).all() for numbers in sampled.values())


def test_a_later_checkpoint_is_loaded_in_the_folders_precision(folders: Mapping[str, Path]) -> None:
    folder = folders["continuous"]
    policy: Any = open_folder(folder).load()
    load = policy.forward.__globals__["load"]
    later = load(next(folder.parent.glob("*.pt")))
    assert all(torch.equal(v, later.state_dict()[k]) for k, v in policy.state_dict().items())
    assert later.body[0].weight.dtype == torch.float16 and later.normalizer_0.std.dtype == torch.float32
    assert {p.dtype for p in load(dtype=torch.float32).parameters()} == {torch.float32}


@pytest.mark.parametrize("family", POLICIES)
def test_it_is_judged_against_the_network_before(folders: Mapping[str, Path], family: str) -> None:
    """The level is the float32 network's, bit by bit; what is stored is that, rounded, and judged by what that does."""
    found = verify_folder(folders[family])
    assert found.verification.level == "graph" and found.precision is not None and not found.changed
    assert (found.precision.dtype, found.precision.stored) == (POLICIES[family], POLICIES[family])
    assert found.precision.rounded and not found.precision.unlike and found.precision.runs == 8
    assert found.equal == (found.precision.verdict != "not advised")
    assert any(f.differing for f in found.precision.against_float32) or found.precision.choices
    assert all(f.within(1e-5) for f in found.verification.module)


def test_it_is_judged_in_other_precisions_too(folders: Mapping[str, Path]) -> None:
    told = {}
    for dtype in PRECISIONS:
        told[dtype] = json.loads(run("verify", folders["continuous"], "--dtype", dtype, "--json").out)["precision"]
        assert (told[dtype]["dtype"], told[dtype]["stored"]) == (dtype, "float16")
    assert 0 < told["float32"]["error"] < told["bfloat16"]["error"]
    assert "if_all_was_cast" in told["float16"] and "NaN" in told["float16"]["if_all_was_cast"]
    out = run("verify", folders["continuous"], "--dtype", "float32").out
    assert "Weights in float32, stored in float16" in out and "rebuilt.onnx" in out


def test_weights_that_are_not_the_networks_rounded_are_named(tmp_path: Path) -> None:
    model = tiny_policy()
    build(*save_pair(tmp_path, model, tiny_checkpoint(model)), tmp_path / "out", dtype="float16")
    weights = load_file(tmp_path / "out" / "weights.safetensors")
    weights["mu.bias"][0] = torch.nextafter(weights["mu.bias"][0].float(), torch.tensor(9.0)).half() + 0.001
    save_file(weights, tmp_path / "out" / "weights.safetensors")
    found = verify_folder(tmp_path / "out")
    assert found.precision is not None and found.precision.unlike == ("mu.bias",) and not found.equal
    result = run("verify", tmp_path / "out")
    assert result.status == 1 and "mu.bias" in result.out and "NOT the float32 network's" in result.out
    tried = {r.name: r for r in selftest(tmp_path / "out").results}
    assert tried["weights of half precision are the float32 network's, rounded"].status == "failed"


@pytest.mark.parametrize("family", ["lstm", "discrete"])
def test_the_self_test_of_such_a_folder(folders: Mapping[str, Path], family: str) -> None:
    found = selftest(folders[family])
    assert [r for r in found.results if r.status == "failed"] == []
    assert found.dtype == POLICIES[family]
    assert next(r for r in found.results if "rounded" in r.name).status == "passed"


@pytest.mark.parametrize(("dtype", "status"), [("float32", "passed"), ("bfloat16", "passed"), ("float16", "measured")])
def test_how_far_observations_may_be_from_ordinary_is_told(tmp_path: Path, dtype: str, status: str) -> None:
    """A million times ordinary entities, which no normaliser bounds, are beyond what float16 holds."""
    model = tiny_policy(**FAMILIES["attention"])
    build(*save_pair(tmp_path, model, tiny_checkpoint(model)), tmp_path / "out", dtype=dtype)
    case = next(case for case in CASES if case[1] == "actions stay within their bounds")
    found = tried(*case, open_subject(tmp_path / "out", None, cpu()))
    assert found.status == status and ("float16 overflows" in found.said) == (status == "measured")


def test_it_is_exported_as_rounded(folders: Mapping[str, Path], tmp_path: Path) -> None:
    result = run("export", folders["continuous"], "-o", tmp_path / "made.onnx", "--json")
    told = json.loads(result.out)
    assert result.status == 0 and told["level"] == "close" and told["stored"] == "float16" and told["tolerance"] == 0.01
    result = run("export", folders["continuous"], "-o", tmp_path / "exact.onnx", "--tolerance", "1e-6")
    assert result.status == 1 and not (tmp_path / "exact.onnx").exists()


def test_it_is_timed_within_what_half_precision_may_be_off_by(folders: Mapping[str, Path]) -> None:
    found = bench_folder(folders["continuous"], batches=(2,), rounds=1)
    assert found.dtype == "float16" and not found.differs and any(row.engine == "torch, policy" and row.timing for row in found.rows)


def test_what_half_precision_cant_hold_is_not_advised(tmp_path: Path) -> None:
    model = tiny_policy()
    weight = next(t for t in model.graph.initializer if t.name.endswith("seq_layers.0.weight"))
    weight.raw_data = (np.frombuffer(weight.raw_data, np.float32) * np.float32(1e7)).tobytes()
    path, _ = save_pair(tmp_path, model)
    result = run("build", path, "-o", tmp_path / "out", "--dtype", "float16", "--json")
    told = json.loads(result.out)
    assert result.status == 1 and told["level"] == "graph" and told["precision"]["verdict"] == "not advised"
    assert told["precision"]["not_finite"] > 0 and (tmp_path / "out" / "weights.safetensors").exists()


def test_a_policy_without_layers_has_nothing_to_round(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in "xy")
    model = helper.make_model(
        helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 13)]
    )
    model.ir_version = 8
    path, _ = save_pair(tmp_path, model)
    with pytest.raises(UnsupportedGraph, match="no layers whose weights could be float16"):
        build(path, None, tmp_path / "out", dtype="float16")
    assert not (tmp_path / "out").exists()
    build(path, None, tmp_path / "out")
    with pytest.raises(ActingError, match="no layers whose weights could be bfloat16"):
        Runner.load(tmp_path / "out", dtype="bfloat16")
    found = selftest(tmp_path / "out")
    assert [r for r in found.results if r.status == "failed"] == []
    assert {r.status for r in found.results if r.group == "precision"} == {"not applicable"}


def test_another_precision_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    assert [check_dtype(dtype) for dtype in PRECISIONS] == ["float32", *HALF]
    for call in (
        lambda: verify_folder(tmp_path / "none", dtype="unknown"),
        lambda: build_policy(tmp_path / "none.onnx", dtype="float8"),
        lambda: check_dtype("Float16"),
    ):
        with pytest.raises(ActingError, match="float32, float16, bfloat16"):
            call()
    assert run("build", tmp_path / "none.onnx", "--dtype", "float64").status == 2


def test_a_report_of_another_precision_is_refused(folders: Mapping[str, Path], tmp_path: Path) -> None:
    for file in folders["continuous"].iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    report = json.loads((tmp_path / "report.json").read_text())
    (tmp_path / "report.json").write_text(json.dumps(report | {"dtype": "float64"}))
    with pytest.raises(FolderError, match="precision"):
        open_folder(tmp_path)
