"""Half precision: how far it is from float32, what counts as good enough, and what would go wrong if all was cast."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from graph2torch.act.run import Runner
from graph2torch.build import build
from graph2torch.judge.figures import Figures
from graph2torch.judge.precision import ACCEPTABLE, CHANGED, RECOMMENDED, PrecisionCheck
from tests.commands import run
from tests.models import FAMILIES, save_pair, tiny_checkpoint, tiny_policy


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    made = {}
    for name in ("continuous", "hybrid", "lstm", "attention"):
        folder = tmp_path_factory.mktemp(name)
        model = tiny_policy(**FAMILIES[name])
        path, checkpoint = save_pair(folder, model, tiny_checkpoint(model, steps=2_000_000))
        build(path, checkpoint, folder / "out")
        made[name] = folder / "out"
    return made


def check(error: float = 0.0, changed: int = 0, not_finite: int = 0) -> PrecisionCheck:
    figures = Figures("actions", 1000, 1000, error * 3, None, None, 3.0)
    return PrecisionCheck("float16", (figures,), (), changed, 1000, not_finite, 8, "")


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (check(RECOMMENDED), "recommended"),
        (check(RECOMMENDED * 1.01), "acceptable"),
        (check(0.0, changed=1), "acceptable"),
        (check(ACCEPTABLE * 0.99, changed=int(1000 * CHANGED)), "acceptable"),
        (check(ACCEPTABLE * 1.01), "not advised"),
        (check(0.0, changed=int(1000 * CHANGED) + 1), "not advised"),
        (check(0.0, not_finite=1), "not advised"),
        (replace(check(), against_float32=()), "recommended"),
    ],
)
def test_the_limits(found: PrecisionCheck, verdict: str) -> None:
    assert found.verdict == verdict


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("family", ["continuous", "hybrid", "lstm", "attention"])
def test_every_family_in_half_precision(folders: Mapping[str, Path], family: str, dtype: str) -> None:
    result = run("verify", folders[family], "--dtype", dtype, "--json")
    told = json.loads(result.out)["precision"]
    assert told["dtype"] == dtype and told["not_finite"] == 0 and told["runs"] == 8
    assert 0 < told["error"] < 0.2 and told["verdict"] in ("recommended", "acceptable", "not advised")
    assert (result.status == 0) == (told["verdict"] != "not advised")
    compared = {f["output"] for f in told["against_float32"]} & {f["output"] for f in told["against_original"]}
    assert "deterministic_continuous_actions" in compared and all(f["differing"] for f in told["against_float32"])
    assert (told["discrete"] > 0) == (family == "hybrid")


def test_statistics_that_would_overflow_are_named(folders: Mapping[str, Path]) -> None:
    told = json.loads(run("verify", folders["continuous"], "--dtype", "float16", "--json").out)["precision"]["if_all_was_cast"]
    assert "normalization_steps" in told and "NaN" in told
    policy = Runner.load(folders["continuous"]).policy
    steps = next(b for name, b in policy.named_buffers() if name.endswith("normalization_steps"))
    assert not torch.isfinite(steps.half())  # it is so
    assert "cast as a whole" in run("verify", folders["continuous"], "--dtype", "float16").out


def test_attention_to_padding_alone_is_finite_in_half_precision(folders: Mapping[str, Path]) -> None:
    """Padding's scores are −1e6, which is infinite in float16: with nothing but padding their softmax would be NaN."""
    exact, half = Runner.load(folders["attention"]), Runner.load(folders["attention"], dtype="float16")
    feed = {i.name: np.zeros([2, *i.shape[1:]], np.float32) for i in exact.contract.inputs}  # type: ignore[list-item]
    a, b = (runner.act(feed)["continuous_actions"] for runner in (exact, half))
    assert np.isfinite(b).all() and np.allclose(a, b, atol=0.01)


def test_weights_that_half_precision_cant_hold_are_not_advised(tmp_path: Path) -> None:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    path, pt = save_pair(tmp_path, model, checkpoint)
    build(path, pt, tmp_path / "out")
    from safetensors.numpy import load_file, save_file

    weights = load_file(tmp_path / "out" / "weights.safetensors")
    weights["body.0.weight"] = weights["body.0.weight"] * np.float32(1e7)
    save_file(weights, tmp_path / "out" / "weights.safetensors")
    told = json.loads(run("verify", tmp_path / "out", "--dtype", "float16", "--json").out)
    assert told["precision"]["verdict"] == "not advised" and told["precision"]["not_finite"] > 0


def test_an_unknown_precision_is_refused(folders: Mapping[str, Path]) -> None:
    result = run("verify", folders["continuous"], "--dtype", "float8")
    assert result.status == 2 and "bfloat16" in result.err
