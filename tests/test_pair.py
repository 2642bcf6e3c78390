"""What a pair is: the verdicts, the .pt beside it that fits, the steps, and the trainer's settings against the graph."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import graph2torch.pair
from graph2torch.bind import bind
from graph2torch.build import build_policy
from graph2torch.checkpoint import load_checkpoint
from graph2torch.errors import PairError
from graph2torch.pair import CONFIGURATION, MAX_CONFIGURATION_BYTES, Compared, Match, Pair, Steps, judge, read_settings, step_of
from graph2torch.recognise import recognise
from tests.models import save_pair, tiny_checkpoint, tiny_policy

BODY = "network_body._body_endoder.seq_layers"
MU = "action_model._continuous_distribution.mu.weight"


def judged(onnx_path: Path, pt_path: Path) -> Pair:
    recognised = recognise(onnx_path)
    _, family, _ = recognised.book.family(recognised.spec.graph)
    return judge(recognised.spec, family, onnx_path, bind(recognised.spec, load_checkpoint(pt_path), "onnx"))


def off(model: onnx.ModelProto, far: float, step: int = 5000) -> dict[str, Any]:
    """The checkpoint of `model`, one tensor `far` from it."""
    checkpoint = tiny_checkpoint(model, global_step=step)
    checkpoint["Policy"][MU] += far
    return checkpoint


# ---------------------------------------------------------------------------------------------- verdicts
@pytest.mark.parametrize(("far", "verdict"), [(0.0, "same"), (1e-4, "drift"), (0.02, "drift"), (0.2, "other step"), (np.nan, "other step")])
def test_how_far_the_weights_are_apart_decides(tmp_path: Path, far: float, verdict: str) -> None:
    model = tiny_policy()
    pair = judged(*save_pair(tmp_path, model, off(model, far)))
    assert (pair.verdict, pair.match, pair.reason) == (verdict, None, "")


def test_statistics_may_be_far_apart_in_a_drift(tmp_path: Path) -> None:
    model = tiny_policy()
    checkpoint = off(model, 1e-4)
    for key, tensor in checkpoint["Policy"].items():
        if key.endswith("running_mean"):
            tensor += 3
    assert judged(*save_pair(tmp_path, model, checkpoint)).verdict == "drift"


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"hidden": 16}, "it has no module for the hidden layer 1 (weight [8, 4], bias [8]; there weight [16, 4], bias [16])"),
        ({"actions": 3}, "it has no module for the head: mean of the actions, mu (weight [2, 8], bias [2]; there weight [3, 8], bias [3])"),
        ({"layers": 1}, "it has no module for the hidden layer 2 (weight [8, 8], bias [8])"),
        ({"layers": 3, "seed": 1}, f"its '{BODY}.4.weight' [8, 8] is of a layer that the graph doesn't have"),
    ],
)
def test_another_network_is_told_by_the_first_place(tmp_path: Path, other: dict[str, Any], reason: str) -> None:
    paths = save_pair(tmp_path, tiny_policy(), tiny_checkpoint(tiny_policy(**other)))
    pair = judged(*paths)
    assert (pair.verdict, pair.reason) == ("other network", reason)
    with pytest.raises(PairError, match="another network") as caught:
        build_policy(*paths)
    assert reason in str(caught.value)


def test_a_bias_left_away_is_no_layer_too_many(tmp_path: Path) -> None:
    model = tiny_policy(opset=18)
    checkpoint = off(model, 1e-4)
    checkpoint["Policy"][f"{BODY}.0.bias"] = torch.zeros(8)
    del next(n for n in model.graph.node if n.op_type == "Gemm").input[2]
    assert judged(*save_pair(tmp_path, model, checkpoint)).verdict == "drift"


def test_a_drift_by_whatever_name_ends_with_1_unless_the_graphs_weights_are_asked_for(tmp_path: Path) -> None:
    model = tiny_policy()
    for far, verdict in ((1e-6, "drift"), (0.5, "other step")):
        paths = save_pair(tmp_path, model, off(model, far))
        made = build_policy(*paths)
        assert (made.pair.verdict, made.equal) == (verdict, False)
        assert build_policy(*paths, weights="onnx").equal


# ---------------------------------------------------------------------------------------------- the .pt beside it
def test_the_checkpoint_that_fits_is_found_by_what_it_holds(tmp_path: Path) -> None:
    model = tiny_policy()
    save_pair(tmp_path, model, off(model, 0.1, 300), "Agent-300")
    save_pair(tmp_path, model, tiny_checkpoint(model, global_step=200), "of another name")
    (tmp_path / "Agent-250.pt").write_text("no checkpoint")
    (tmp_path / "Agent-260.pt").mkdir()
    paths = save_pair(tmp_path, model, off(model, 1e-4, 400), "Agent-400")
    pair = judged(*paths)
    assert (pair.verdict, pair.match, pair.tried) == ("other step", Match("of another name.pt", 200), 3)


def test_the_same_step_saved_again_leaves_it_a_drift(tmp_path: Path) -> None:
    model = tiny_policy()
    save_pair(tmp_path, model, tiny_checkpoint(model), "Agent-5000")
    pair = judged(*save_pair(tmp_path, model, off(model, 1e-4), "checkpoint"))
    assert (pair.verdict, pair.match) == ("drift", Match("Agent-5000.pt", 5000))


def test_a_pair_that_agrees_is_not_searched_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_policy()
    paths = save_pair(tmp_path, model, tiny_checkpoint(model))
    shutil.copy(paths[1], tmp_path / "again.pt")
    monkeypatch.setattr(graph2torch.pair, "matching", None)
    assert judged(*paths).verdict == "same"


def test_another_networks_error_names_the_checkpoint_that_fits(tmp_path: Path) -> None:
    model = tiny_policy()
    fitting, _ = save_pair(tmp_path, model, tiny_checkpoint(model), "Agent-5000")
    _, other = save_pair(tmp_path, model, tiny_checkpoint(tiny_policy(hidden=16)), "Wider")
    with pytest.raises(PairError, match=r"'Agent-5000\.pt' beside it holds the graph's numbers\.$"):
        build_policy(fitting, other)


def test_the_search_is_bounded_in_number_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_policy()
    paths = save_pair(tmp_path, model, off(model, 0.1), "Agent-100")
    for step in (101, 102, 103, 900):
        shutil.copy(paths[1], tmp_path / f"Agent-{step}.pt")
    torch.save(tiny_checkpoint(model), tmp_path / "Agent-104.pt")
    size = paths[1].stat().st_size
    monkeypatch.setattr(graph2torch.pair, "MAX_CHECKPOINTS", 3)
    assert (judged(*paths).match, judged(*paths).tried) == (None, 3)
    monkeypatch.setattr(graph2torch.pair, "MAX_CHECKPOINTS", 4)
    assert judged(*paths).match == Match("Agent-104.pt", 5000)  # near steps are tried first
    monkeypatch.setattr(graph2torch.pair, "MAX_CHECKPOINT_BYTES", 2 * size + size // 2)
    assert (judged(*paths).match, judged(*paths).tried) == (None, 2)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes")
def test_a_pipe_beside_a_pair_is_left_alone(tmp_path: Path) -> None:
    model = tiny_policy()
    paths = save_pair(tmp_path, model, off(model, 0.1))
    os.mkfifo(tmp_path / "Agent.pt")
    os.mkfifo(tmp_path / CONFIGURATION)
    pair = judged(*paths)
    assert (pair.tried, pair.configuration) == (0, None)


# ---------------------------------------------------------------------------------------------- steps
@pytest.mark.parametrize(
    ("name", "step"), [("Agent-500.pt", 500), ("My Agent-2-0.onnx", 0), ("checkpoint.pt", None), ("Agent-v2.pt", None), ("-5.pt", None)]
)
def test_the_step_in_a_name(name: str, step: int | None) -> None:
    assert step_of(Path(name)) == step


def test_steps_are_compared_and_the_normalisers_stand_beside(tmp_path: Path) -> None:
    model = tiny_policy(observations=(3, 2))
    pair = judged(*save_pair(tmp_path, model, tiny_checkpoint(model, steps=64, global_step=900), "Agent-900"))
    assert pair.steps == Steps(900, 900, 900, (("normalizer_0", 64), ("normalizer_1", 64)))
    assert pair.steps.agree is True
    assert replace(pair.steps, graph=901).agree is False
    assert Steps(trained=5).agree is None


# ---------------------------------------------------------------------------------------------- configuration.yaml
SETTINGS = """
behaviors:
  Other: {network_settings: {num_layers: 9}}
  Tiny:
    trainer_type: ppo
    network_settings:
      normalize: true
      hidden_units: 16
      num_layers: 2
      vis_encode_type: simple
      memory: null
      goal_conditioning_type: hyper
    threaded: false
"""


def test_settings_are_held_against_the_graph(tmp_path: Path) -> None:
    model = tiny_policy()
    paths = save_pair(tmp_path, model, tiny_checkpoint(model))
    assert judged(*paths).configuration is None
    (tmp_path / CONFIGURATION).write_text(SETTINGS)
    configuration = judged(*paths).configuration
    assert configuration is not None and (configuration.behavior, configuration.trouble) == ("Tiny", "")
    assert configuration.settings == (
        Compared("normalize", True, True, True),
        Compared("hidden_units", 16, 8, False),
        Compared("num_layers", 2, 2, True),
        Compared("memory_size", None, None, True),
        Compared("vis_encode_type", "simple", None, None),
        Compared("goal_conditioning_type", "hyper", None, None),
        Compared("threaded", False, None, None),
    )


@pytest.mark.parametrize(
    ("policy", "stated", "agrees"),
    [
        ({"normalize": False}, "normalize: false", True),
        ({"normalize": False}, "normalize: true", False),
        ({"observations": ((3, 20, 20),)}, "normalize: true", None),  # images are not normalised
        ({"layers": 1}, "num_layers: 0", True),  # ML-Agents makes one then
        ({"memory": 6}, "memory: {memory_size: 6, sequence_length: 64}", True),
        ({"memory": 6}, "memory: {memory_size: 8, sequence_length: 64}", False),
        ({"memory": 6}, "memory: null", False),
        ({}, "memory: {memory_size: 8}", False),
        ({"observations": ((3, 20, 20),)}, "vis_encode_type: simple", True),
        ({"observations": ((3, 20, 20),)}, "vis_encode_type: resnet", False),
        ({"observations": ((3, 16, 16), 4), "encoder": "resnet"}, "vis_encode_type: resnet", True),
        ({"observations": ((3, 8, 8),), "encoder": "fully_connected"}, "vis_encode_type: fully_connected", True),
        ({"observations": (4, 3), "goals": (1,)}, "goal_conditioning_type: hyper", True),
        ({"observations": (4, 3), "goals": (1,)}, "goal_conditioning_type: none", False),
        ({"observations": (4, 3), "goals": (1,)}, "num_layers: 2", True),
        ({}, "hidden_units: eight", False),
    ],
)
def test_each_setting_is_read_off_the_graph(tmp_path: Path, policy: dict[str, Any], stated: str, agrees: bool | None) -> None:
    path, _ = save_pair(tmp_path, tiny_policy(**policy))
    _, checkpoint = save_pair(tmp_path, tiny_policy(), tiny_checkpoint(tiny_policy()), "checkpoint")
    (tmp_path / CONFIGURATION).write_text(f"behaviors: {{Tiny: {{network_settings: {{{stated}}}}}}}")
    configuration = judged(path, checkpoint).configuration
    assert configuration is not None and [s.agrees for s in configuration.settings] == [agrees]


def test_the_layout_of_a_training_is_known(tmp_path: Path) -> None:
    """RUN/configuration.yaml, RUN/BEHAVIOR.onnx and RUN/BEHAVIOR/checkpoint.pt, or both in RUN/BEHAVIOR."""
    model = tiny_policy()
    run, behavior = tmp_path / "run", tmp_path / "run" / "Tiny"
    behavior.mkdir(parents=True)
    (run / CONFIGURATION).write_text(SETTINGS)
    final, _ = save_pair(run, model)
    step, checkpoint = save_pair(behavior, model, tiny_checkpoint(model), "Tiny-5000")
    checkpoint = checkpoint.rename(behavior / "checkpoint.pt")
    for path in (final, step):
        configuration = judged(path, checkpoint).configuration
        assert configuration is not None and configuration.behavior == "Tiny"


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("behaviors: {Other: {threaded: true}}", "tells of 'Other', not of 'Tiny'"),
        ("behaviors: {Tiny: 3}", "tells of no behaviour, not of 'Tiny'"),
        ("behaviors: null", "tells of no behaviour, not of 'Tiny'"),
        ("[1, 2]", "is not a mapping of settings"),
        ("", "is not a mapping of settings"),
        ("a: [", "is not YAML"),
        ('a: "\\UFFFFFFFF"', "is not YAML"),
        ("a: \0", "is not YAML"),
        ("a: &x [1]\nb: *x", "has aliases, which are not followed"),
        ("[" * 100, "is nested deeper than 32 levels"),
        ("a: " * 100, "is not YAML"),
        ("#" * (MAX_CONFIGURATION_BYTES + 1), "has more than 65,536 bytes"),
    ],
)
def test_a_configuration_that_is_no_use_harms_nothing(tmp_path: Path, text: str, trouble: str) -> None:
    model = tiny_policy()
    paths = save_pair(tmp_path, model, tiny_checkpoint(model))
    (tmp_path / CONFIGURATION).write_text(text)
    pair = judged(*paths)
    assert pair.verdict == "same" and pair.configuration is not None and not pair.configuration.settings
    assert pair.configuration.trouble.startswith(trouble)


def test_a_configuration_that_is_no_text_harms_nothing(tmp_path: Path) -> None:
    model = tiny_policy()
    paths = save_pair(tmp_path, model, tiny_checkpoint(model))
    (tmp_path / CONFIGURATION).write_bytes(b"\xff\xfe\xfd")
    configuration = judged(*paths).configuration
    assert configuration is not None and configuration.trouble.startswith("is not YAML")


def test_python_tags_are_read_as_the_data_in_them_and_make_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "made"
    text = f"""
behaviors: !!python/object/apply:mlagents.trainers.settings.DefaultTrainerDict
  args:
  - !!python/name:mlagents.trainers.settings.TrainerSettings ''
  dictitems:
    Tiny:
      hyperparameters:
        learning_rate_schedule: !!python/object/apply:mlagents.trainers.settings.ScheduleType
        - linear
      threaded: true
harm: !!python/object/apply:pathlib.Path.touch
- !!python/object/apply:pathlib.Path [{marker}]
"""
    tiny = read_settings(text.encode())["behaviors"]["Tiny"]
    assert tiny == {"hyperparameters": {"learning_rate_schedule": "linear"}, "threaded": True}
    assert not marker.exists()
