"""A tiny policy of each family: proven equal, without inert nodes the same, read as last read, trained further and exported anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from graph2torch.build import Build, build_policy
from tests.inert import check_inert
from tests.models import FAMILIES, Era, save_pair, tiny_checkpoint, tiny_policy


def built(folder: Path, family: str, era: Era = "torch2", opset: int = 9) -> Build:
    model = tiny_policy(**FAMILIES[family], era=era, opset=opset)
    return build_policy(*save_pair(folder, model, tiny_checkpoint(model), family))


@pytest.mark.parametrize(("era", "opset"), [("torch1.8", 9), ("torch2", 9), ("torch2", 15)])
@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_reaches_level_graph(tmp_path: Path, family: str, era: Era, opset: int) -> None:
    made = built(tmp_path, family, era, opset)
    assert made.verification.level == "graph", made.verification.reason
    assert made.bindings.verdict == "same" and not made.bindings.metadata
    coverage = made.spec.coverage()
    assert not coverage.unexplained and not coverage.generic
    assert check_inert(made.recognised) == (0 if era == "torch1.8" else sum(o.constant is not None for o in made.spec.outputs))
