"""torch.compile takes every policy whole: the graph that it captures is the policy's, and breaks nowhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from graph2torch.act.folder import open_folder
from graph2torch.build import build
from graph2torch.engine.engines import flat, trial
from tests.models import FAMILIES, save_pair, tiny_policy

CORPUS = Path(os.environ.get("GRAPH2TORCH_CORPUS", "")) / "generated"
CASES = sorted(path.parent for path in CORPUS.glob("*/*/case.json")) if "GRAPH2TORCH_CORPUS" in os.environ else []


def check(folder: Path) -> None:
    """Deterministic and sampled steps, captured without a break and run as they were captured, give eager torch's bits."""
    found = open_folder(folder)
    policy: Any = found.load()
    for sampled in (False, True):
        if not sampled and not found.contract.acting.deterministic:
            continue
        step = flat(policy, found.contract, sampled)
        arguments = [torch.from_numpy(a) for a in trial(found.contract, sampled, 3, 0)]
        torch.compiler.reset()
        with torch.no_grad():
            compiled: Any = torch.compile(step, fullgraph=True, backend="eager")
            for a, b in zip(compiled(arguments), step(arguments), strict=True):
                assert torch.equal(a, b)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_policy_compiles_whole(tmp_path: Path, family: str) -> None:
    path, _ = save_pair(tmp_path, tiny_policy(**FAMILIES[family]))
    build(path, output=tmp_path / "out")
    check(tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_corpus_compiles_whole(tmp_path: Path, case: Path) -> None:
    made = build(next(case.glob("*.onnx")), output=tmp_path / "out")
    assert made.equal
    check(tmp_path / "out")
