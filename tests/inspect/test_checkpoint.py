"""What `inspect CHECKPOINT.pt` finds out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graph2torch.errors import CheckpointError, ModelError
from graph2torch.inspect.file import inspect_file
from tests.inspected import NORMALIZER, initializer, inspected, std_name
from tests.models import save_pair, tiny_checkpoint, tiny_policy


def odd_checkpoint(tmp_path: Path, **statistics: Any) -> list[str]:
    """The odd values of a checkpoint whose only normaliser has these statistics."""
    tensors = {f"{NORMALIZER}.{key}": torch.as_tensor(value) for key, value in statistics.items()}
    torch.save({"Policy": tensors}, tmp_path / "odd.pt")
    return list(inspected(tmp_path / "odd.pt")["odd_values"])


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
