"""What is timed is checked against the original first; nothing here looks at how long anything took."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from graph2torch.bench import ACT, COMPILED, ENGINES, REFERENCE, There, bench_folder, report
from graph2torch.build import build
from graph2torch.devices.device import Device, usable_cpus
from graph2torch.devices.kinds import KINDS
from graph2torch.devices.probe import Status
from graph2torch.errors import UnsupportedGraph
from tests.commands import check_trouble, run
from tests.models import FAMILIES, save_pair, tiny_policy


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPH2TORCH_CACHE", str(tmp_path / "cache"))


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
    assert [row["engine"] for row in document["rows"]] == list(ENGINES)
    assert {(row["batch"], row["threads"]) for row in document["rows"]} == {(2, 1)}
    reference = document["rows"][0]
    assert reference["engine"] == REFERENCE and reference["seconds"]["ratio_min"] == reference["seconds"]["ratio_max"] == 1.0
    *others, compiled = document["rows"]
    assert compiled["seconds"] is None and ("--compile" in compiled["unavailable"] or "torch 2.6" in compiled["unavailable"])
    for row in others:
        seconds = row["seconds"]
        assert seconds["ratio_min"] <= seconds["ratio_q1"] <= seconds["ratio"] <= seconds["ratio_q3"] <= seconds["ratio_max"]
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


def test_an_engine_in_a_process_of_its_own(tmp_path: Path) -> None:
    folder = built(tmp_path)
    with There(folder, tmp_path / "Tiny.onnx", 1, 7, False) as place:
        assert place.prepare(ACT, 2).first > 0
        assert len(place.turn(ACT)) >= 3 and min(place.turn(ACT)) > 0
        assert "--compile" in (refused := place.prepare(COMPILED, 2).refused) or "torch 2.6" in refused
        (folder / "model.py").unlink()
        assert place.prepare(REFERENCE, 3).first > 0  # it is loaded already
    with There(folder, tmp_path / "Tiny.onnx", 1, 7, False) as place, pytest.raises(UnsupportedGraph, match=r"no model\.py"):
        place.prepare(ACT, 2)
    with There(folder, tmp_path / "Tiny.onnx", 1, 7, False) as place:
        place.process.kill()
        with pytest.raises(UnsupportedGraph, match="ended unexpectedly"):
            place.prepare(ACT, 2)


@pytest.mark.slow
@pytest.mark.skipif(usable_cpus() < 2, reason="there is one processor")
def test_with_two_threads(tmp_path: Path) -> None:
    found = bench_folder(built(tmp_path), batches=(2,), thread_counts=(1, 2), rounds=1)
    assert not found.differs
    for threads in (1, 2):
        assert [row.engine for row in found.rows if row.timing and row.threads == threads] == list(ENGINES[:-1])


class Launches:
    """A device that records launches, as far as `bench` needs it; it computes on the CPU."""

    def __init__(self) -> None:
        self.recorded = self.replayed = self.waited = 0
        launches = self

        class FakeGraph:
            def replay(self) -> None:
                launches.replayed += 1

        @contextlib.contextmanager
        def graph(_: FakeGraph) -> Iterator[None]:
            launches.recorded += 1
            yield

        self.module = SimpleNamespace(synchronize=self.wait, FakeGraph=FakeGraph, graph=graph)

    def wait(self) -> None:
        self.waited += 1

    def device(self, simulated: bool = False, graphs: str = "FakeGraph") -> Device:
        kind = replace(KINDS["cpu"], graphs=graphs)
        return Device(torch.device("cpu"), self.module, kind, Status("fake:0", "ready", count=1, simulated=simulated))


def test_on_a_device_with_and_without_transfers_and_replayed(tmp_path: Path) -> None:
    launches = Launches()
    found = bench_folder(built(tmp_path), batches=(2,), rounds=2, device=launches.device())
    rows = {row.engine: row for row in found.rows if row.engine.startswith("fake:0, ")}
    assert list(rows) == ["fake:0, policy.act", "fake:0, policy.act, transfers", "fake:0, policy.act, replayed"]
    assert all(row.timing for row in rows.values()) and not found.differs and found.device == "fake:0"
    assert launches.recorded == 1 and launches.replayed >= 2 * 3 and launches.waited > launches.replayed


def test_what_a_device_lacks_is_told(tmp_path: Path) -> None:
    found = bench_folder(built(tmp_path), batches=(2,), rounds=1, device=Launches().device(graphs=""))
    assert "can't record and replay launches on fake:0" in found.rows[-1].unavailable


def test_on_a_simulated_device_nothing_is_timed(tmp_path: Path) -> None:
    found = bench_folder(built(tmp_path), batches=(2,), rounds=1, device=Launches().device(simulated=True))
    rows = [row for row in found.rows if row.engine.startswith("fake:0, ")]
    assert len(rows) == 3 and not found.differs and found.simulated and report(found)["simulated"] is True
    assert all(row.timing is None and row.unavailable.startswith("simulated, so it is not timed; it gave") for row in rows)


def test_threads_that_there_are_not(tmp_path: Path) -> None:
    check_trouble(run("bench", tmp_path, "--threads", 1000), "1000 threads can't be had", status=3)


def test_a_picture_of_it(tmp_path: Path) -> None:
    folder = built(tmp_path)
    check_trouble(run("bench", folder, "--plot", tmp_path / "bench.pdf"), "drawn as .svg or .png")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    for name, start in (("bench.svg", b"<?xml"), ("bench.png", b"\x89PNG")):
        assert run("bench", folder, "--batch", 1, "--rounds", 1, "--plot", tmp_path / name).status == 0
        assert (tmp_path / name).read_bytes().startswith(start)
    assert b"policy.act" in (tmp_path / "bench.svg").read_bytes()
    check_trouble(run("bench", folder, "--plot", tmp_path / "bench.svg"), "exists", "--force")


def test_without_matplotlib_there_is_no_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    check_trouble(run("bench", tmp_path, "--plot", tmp_path / "bench.svg"), "graph2torch[plot]")


def test_refusals(tmp_path: Path) -> None:
    folder = built(tmp_path)
    (tmp_path / "other").mkdir()
    other, _ = save_pair(tmp_path / "other", tiny_policy(**FAMILIES["discrete"]))
    check_trouble(run("bench", folder, other), "is not the file that")
    check_trouble(run("bench", tmp_path / "none"), "not there")
    check_trouble(run("bench", other), "a file, not the folder")
    (folder / "rebuilt.onnx").unlink()
    check_trouble(run("bench", folder), "no rebuilt.onnx")
