"""What is timed is checked against the original first; nothing here looks at how long anything took."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graph2torch.bench import REFERENCE, bench_folder
from graph2torch.build import build
from tests.commands import check_trouble, run
from tests.models import FAMILIES, save_pair, tiny_policy


def built(folder: Path, family: str = "continuous") -> Path:
    path, _ = save_pair(folder, tiny_policy(**FAMILIES[family]))
    build(path, output=folder / "out")
    return folder / "out"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_engine_of_every_family_gives_what_the_original_gives(tmp_path: Path, family: str) -> None:
    found = bench_folder(built(tmp_path, family), batches=(2,), rounds=1)
    assert not found.differs
    timed = {row.engine for row in found.rows if row.timing}
    assert {REFERENCE, "onnxruntime, rebuilt", "torch, policy", "torch, policy.act"} <= timed, found.rows
    assert all(row.timing or row.unavailable for row in found.rows)


def test_the_document_holds_every_row(tmp_path: Path) -> None:
    result = run("bench", built(tmp_path), "--batch", 2, "--rounds", 2, "--json")
    document = json.loads(result.out)
    assert result.status == 0 and not result.err
    assert [row["batch"] for row in document["rows"]] == [2] * 5
    reference = document["rows"][0]
    assert reference["engine"] == REFERENCE and reference["seconds"]["ratio_min"] == reference["seconds"]["ratio_max"] == 1.0
    for row in document["rows"]:
        seconds = row["seconds"]
        assert 0 < seconds["median"] <= seconds["p95"] <= seconds["p99"] and row["throughput"] == 2 / seconds["median"]


def test_what_gives_something_else_has_no_numbers(tmp_path: Path) -> None:
    folder = built(tmp_path)
    source = (folder / "model.py").read_text()
    changed = source.replace("def act(", "def act(self, *x):\n        return self._act(*x) + 0.5\n\n    def _act(")
    assert changed != source
    (folder / "model.py").write_text(changed)
    result = run("bench", folder, "--batch", 1, "--rounds", 1, "--json")
    rows = {row["engine"]: row for row in json.loads(result.out)["rows"]}
    assert result.status == 1 and rows["torch, policy.act"]["seconds"] is None
    assert "is not the original's" in rows["torch, policy.act"]["unavailable"]
    assert rows["torch, policy"]["seconds"] and json.loads(result.out)["changed"] == ["model.py"]
    shown = run("bench", folder, "--batch", 1, "--rounds", 1)
    assert shown.status == 1 and "torch, policy.act: not available" in shown.out and "model.py changed" in shown.out


def test_what_fails_has_no_numbers(tmp_path: Path) -> None:
    folder = built(tmp_path)
    source = (folder / "model.py").read_text()
    (folder / "model.py").write_text(
        source.replace("def act(", "def act(self, *x):\n        raise ValueError('\\x1b[31m')\n\n    def _act(")
    )
    shown = run("bench", folder, "--batch", 1, "--rounds", 1)
    assert shown.status == 0 and "not available: ValueError" in shown.out and "\x1b" not in shown.out


def test_refusals(tmp_path: Path) -> None:
    folder = built(tmp_path)
    (tmp_path / "other").mkdir()
    other, _ = save_pair(tmp_path / "other", tiny_policy(**FAMILIES["discrete"]))
    check_trouble(run("bench", folder, other), "is not the file that")
    check_trouble(run("bench", tmp_path / "none"), "not there")
    check_trouble(run("bench", other), "a file, not the folder")
    (folder / "rebuilt.onnx").unlink()
    check_trouble(run("bench", folder), "no rebuilt.onnx")
