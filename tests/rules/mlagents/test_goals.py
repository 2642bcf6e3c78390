"""Goal conditioning end to end: the hypernetwork after any number of plain layers, one or several goals."""

from __future__ import annotations

from pathlib import Path

import pytest

from graph2torch.build import build_policy
from tests.models import Era, save_pair, tiny_checkpoint, tiny_policy


@pytest.mark.parametrize("era", ["torch1.8", "torch2"])
@pytest.mark.parametrize(("observations", "goals"), [((4, 3), (1,)), ((2, 4, 3), (0, 2)), ((3,), (0,)), ((4, (3, 2), 3), (2,))])
def test_any_goals(tmp_path: Path, era: Era, observations: tuple[int | tuple[int, int], ...], goals: tuple[int, ...]) -> None:
    model = tiny_policy(observations, goals=goals, era=era)
    made = build_policy(*save_pair(tmp_path, model, tiny_checkpoint(model)))
    assert made.verification.level == "graph", made.verification.reason
    assert made.bindings.verdict == "same"
    assert not made.spec.coverage().unexplained
    assert made.bindings.keys["hyper_network"] == "network_body._body_endoder.layers.2"


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("normalize", [True, False])
def test_any_number_of_layers(tmp_path: Path, layers: int, normalize: bool) -> None:
    model = tiny_policy((4, 3), goals=(1,), layers=layers, normalize=normalize)
    made = build_policy(*save_pair(tmp_path, model, tiny_checkpoint(model)))
    assert made.verification.level == "graph", made.verification.reason
    assert made.bindings.keys["hyper_network"] == f"network_body._body_endoder.layers.{2 * layers - 2}"
    assert {b.key for b in made.bindings.tensors if b.path.startswith("hyper_network.")} == {
        f"network_body._body_endoder.layers.{2 * layers - 2}.{name}"
        for name in ("bias", *(f"hypernet.{i}.{kind}" for i in (0, 2, 5) for kind in ("weight", "bias")))
    }


def test_a_hypernetwork_that_drifted_is_told(tmp_path: Path) -> None:
    model = tiny_policy((4, 3), goals=(1,))
    checkpoint = tiny_checkpoint(model)
    checkpoint["Policy"]["network_body._body_endoder.layers.2.hypernet.5.weight"] += 0.01
    made = build_policy(*save_pair(tmp_path, model, checkpoint))
    assert made.bindings.verdict == "drift"
    assert [b.path for b in made.bindings.disagreements] == ["hyper_network.hypernet.5.weight"]
