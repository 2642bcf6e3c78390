"""Policies that see: encoders end to end, in any mix of images and vectors."""

from __future__ import annotations

from pathlib import Path

import pytest

from graph2torch.build import Build, build_policy
from tests.models import Encoder, Era, Image, save_pair, tiny_checkpoint, tiny_policy


def built(folder: Path, observations: tuple[int | Image, ...], encoder: Encoder, era: Era = "torch2", opset: int = 9) -> Build:
    model = tiny_policy(observations, encoder=encoder, era=era, opset=opset)
    made = build_policy(*save_pair(folder, model, tiny_checkpoint(model)))
    assert made.verification.level == "graph", made.verification.reason
    assert made.bindings.verdict == "same"
    assert not made.spec.coverage().unexplained
    return made


@pytest.mark.parametrize("opset", [9, 15])
@pytest.mark.parametrize("encoder", ["simple", "resnet", "fully_connected"])
def test_an_encoder(tmp_path: Path, encoder: Encoder, opset: int) -> None:
    made = built(tmp_path, ((2, 20, 21),), encoder, opset=opset)
    place = "network_body.observation_encoder.processors.0"
    keys = {"simple": ("conv_layers", f"{place}.conv_layers"), "resnet": ("resnet", f"{place}.sequential")}
    assert encoder == "fully_connected" or keys[encoder] in made.bindings.keys.items()
    assert made.bindings.keys["dense.0" if encoder == "resnet" else "dense"] == f"{place}.dense"
    origins = {b.path: b.key for b in made.bindings.tensors}
    assert all(origins[path] is not None for path in origins)


@pytest.mark.parametrize("era", ["torch1.8", "torch2"])
def test_images_and_vectors_in_any_order(tmp_path: Path, era: Era) -> None:
    made = built(tmp_path, ((1, 20, 20), 3, (2, 24, 20), 2), "simple", era)
    assert {"conv_layers_0", "dense_0", "normalizer_1", "conv_layers_2", "dense_2", "normalizer_3"} <= set(made.bindings.keys)
    assert "self.dense_2(self.conv_layers_2(obs_2).reshape(-1, 6))" in made.source


def test_layers_of_interleaved_encoders_stand_together(tmp_path: Path) -> None:
    model = tiny_policy(((1, 20, 20), (1, 20, 20)))
    level: dict[str, int] = {}
    for node in model.graph.node:  # the order of an optimiser that goes by distance from the inputs
        level[node.output[0]] = 1 + max((level.get(value, 0) for value in node.input), default=0)
    nodes = sorted(model.graph.node, key=lambda node: level[node.output[0]])
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    made = build_policy(*save_pair(tmp_path, model, tiny_checkpoint(model)))
    assert made.verification.level == "graph", made.verification.reason
    assert made.source.count("self.conv_layers_0(") == 3  # forward, act, distribution
