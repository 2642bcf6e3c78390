"""Buffer sensors end to end: one or several lists of entities, with and without other observations, in both layouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph2torch.build import build_policy
from graph2torch.module import import_source
from graph2torch.rulebook import builtin_folder
from tests.models import Era, save_pair, tiny_checkpoint, tiny_policy

ENCODER = "network_body.observation_encoder"


@pytest.mark.parametrize("era", ["torch1.8", "torch2"])
@pytest.mark.parametrize("observations", [(4, (3, 2)), ((3, 2),), (4, (3, 2), (2, 5)), ((3, 2), 4, (3, 2)), ((2, 3), (3, 2)), (4, (1, 2))])
def test_any_mix_of_buffers(tmp_path: Path, era: Era, observations: tuple[int | tuple[int, int], ...]) -> None:
    model = tiny_policy(observations, era=era)
    made = build_policy(*save_pair(tmp_path, model, tiny_checkpoint(model)))
    assert made.verification.level == "graph", made.verification.reason
    assert made.bindings.verdict == "same"
    assert not [key for key in made.bindings.unused if "rsa" in key or "self_en" in key]
    assert not made.spec.coverage().unexplained
    keys = made.bindings.keys
    assert keys["rsa"] == f"{ENCODER}.rsa"
    buffers = [i for i, size in enumerate(observations) if not isinstance(size, int)]
    assert ("x_self_encoder" in keys) == (len(buffers) < len(observations))
    for i in buffers:
        name = f"entity_embedding_{i}" if len(buffers) > 1 else "entity_embedding"
        assert keys[name].removesuffix(".seq_layers") == f"{ENCODER}.processors.{i}.self_ent_encoder"


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_any_opset(tmp_path: Path, opset: int) -> None:
    model = tiny_policy((4, (3, 2), (2, 5)), opset=opset)
    made = build_policy(*save_pair(tmp_path, model, tiny_checkpoint(model)))
    assert made.verification.level == "graph", made.verification.reason


def test_padding_does_not_count(tmp_path: Path) -> None:
    """An entity of zeros changes nothing, wherever it stands; the others do."""
    import torch

    model = tiny_policy((4, (3, 2)))
    made = build_policy(*save_pair(tmp_path, model, tiny_checkpoint(model)))
    policy = import_source(made.source).Policy()
    policy.load_state_dict({b.path: torch.from_numpy(np.array(b.value)) for b in made.bindings.tensors})
    obs, entities = torch.randn(1, 4), torch.tensor([[[1.0, 2.0], [0.0, 0.0], [-1.0, 0.5]]])
    with torch.inference_mode():
        action = policy.act(obs, entities)
        torch.testing.assert_close(policy.act(obs, entities[:, [1, 2, 0]]), action)
        assert not torch.allclose(policy.act(obs, entities + 1), action, atol=1e-4)
        assert policy.act(obs, torch.zeros(1, 3, 2)).isfinite().all()


def test_swapped_projections_are_a_drift(tmp_path: Path) -> None:
    model = tiny_policy((4, (3, 2)))
    checkpoint = tiny_checkpoint(model)
    tensors = checkpoint["Policy"]
    key, query = f"{ENCODER}.rsa.fc_k.weight", f"{ENCODER}.rsa.fc_q.weight"
    tensors[key], tensors[query] = tensors[query], tensors[key]
    made = build_policy(*save_pair(tmp_path, model, checkpoint))
    assert made.bindings.verdict == "drift"
    assert [b.path for b in made.bindings.disagreements] == ["rsa.fc_q.weight", "rsa.fc_k.weight"]


def test_the_layer_norms_of_all_layers_are_one() -> None:
    """Each layer.py stands by itself, so the class is written in two of them; model.py gets it once."""
    sources = [path.read_text(encoding="utf-8") for path in builtin_folder().glob("mlagents/*/layer.py")]
    bodies = {text[text.index("class LayerNorm") :].split("\n\n\n")[0] for text in sources if "class LayerNorm" in text}
    assert len(bodies) == 1
