"""From files to a verified build, over the spellings of all exporters, and over a corpus of real models if there is one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from graph2torch.build import build_policy
from graph2torch.errors import Graph2TorchError
from tests.models import Era, save_pair, tiny_checkpoint, tiny_policy

CORPUS = os.environ.get("GRAPH2TORCH_CORPUS", "")


@pytest.mark.parametrize("era", ["torch1.8", "torch2"])
@pytest.mark.parametrize("observations", [(4,), (3, 2), (1, 1, 5)])
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("deterministic", [True, False])
def test_every_spelling_reaches_level_graph(
    tmp_path: Path, era: Era, observations: tuple[int, ...], normalize: bool, deterministic: bool
) -> None:
    model = tiny_policy(observations=observations, normalize=normalize, deterministic=deterministic, era=era)
    made = build_policy(*save_pair(tmp_path, model, tiny_checkpoint(model)))
    assert made.verification.level == "graph", made.verification.reason
    assert made.bindings.verdict == "same"
    coverage = made.spec.coverage()
    assert not coverage.unexplained
    assert sum(map(len, coverage.by_rule.values())) + len(coverage.inert) == coverage.total
    assert len(coverage.inert) == (3 if era == "torch2" else 0)  # the Identities of the fixed outputs


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_any_number_of_layers(tmp_path: Path, layers: int) -> None:
    model = tiny_policy(layers=layers)
    made = build_policy(*save_pair(tmp_path, model, tiny_checkpoint(model)))
    assert made.verification.level == "graph"
    assert made.source.count("nn.SiLU()") == layers


def test_the_same_build_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    model = tiny_policy()
    pair = save_pair(tmp_path, model, tiny_checkpoint(model))
    one, two = build_policy(*pair), build_policy(*pair)
    assert one.source == two.source and one.weights == two.weights
    assert one.rebuilt.SerializeToString() == two.rebuilt.SerializeToString()


def test_a_drifted_pair_is_built_with_the_checkpoints_weights_and_differs(tmp_path: Path) -> None:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    checkpoint["Policy"]["network_body._body_endoder.seq_layers.0.weight"] += 0.5
    pair = save_pair(tmp_path, model, checkpoint)
    made = build_policy(*pair)
    assert made.bindings.verdict == "drift" and made.verification.level == "differs" and not made.equal
    made = build_policy(*pair, weights="onnx")
    assert made.bindings.verdict == "drift" and made.verification.level == "graph" and made.equal


def test_a_drift_that_no_output_shows_is_still_told(tmp_path: Path) -> None:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    checkpoint["Policy"]["memory_size_vector"] += 64
    made = build_policy(*save_pair(tmp_path, model, checkpoint))
    assert made.verification.level == "graph" and made.bindings.verdict == "drift" and not made.equal


def corpus_cases() -> list[tuple[Path, Path | None, str]]:
    root = Path(CORPUS)
    found = [(path, path.with_suffix(".pt"), "same") for path in sorted(root.glob("generated/**/*.onnx"))]
    catalog = root / "real" / "catalog.json"
    if catalog.exists():
        found += [(root / "real" / p["onnx"], root / "real" / p["pt"], p["verdict"]) for p in json.loads(catalog.read_text())["pairs"]]
    return [(onnx, pt if pt.exists() else None, verdict) for onnx, pt, verdict in found]


@pytest.mark.skipif(not CORPUS, reason="GRAPH2TORCH_CORPUS is not set")
def test_the_corpus() -> None:
    """Every pair that was measured to be the same is built bit-equal, or refused as a whole; a drifted one is told."""
    equal, refused, wrong = 0, 0, []
    for onnx_path, pt_path, verdict in corpus_cases():
        try:
            made = build_policy(onnx_path, pt_path)
        except Graph2TorchError:
            refused += 1
            continue
        if verdict == "same" and not (made.equal and made.bindings.verdict in ("same", "no checkpoint")):
            wrong.append(f"{onnx_path}: {made.verification.level}, {made.verification.reason}, pair {made.bindings.verdict}")
        if verdict in ("drift", "different") and made.bindings.verdict == "same":
            wrong.append(f"{onnx_path}: the pair drifts, but is called the same")
        equal += made.equal
    print(f"{equal} equal, {refused} refused")
    assert not wrong, "\n".join(wrong)
    assert equal
