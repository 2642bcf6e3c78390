"""What `inspect` finds out of a pair, on tiny policies and on Huggy."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest
import torch

from graph2torch.inspect.statistics import GRID
from tests.inspected import NORMALIZER, ODD, inspected
from tests.models import save_pair, tiny_checkpoint, tiny_policy

ROOT = Path(__file__).resolve().parents[2]


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
