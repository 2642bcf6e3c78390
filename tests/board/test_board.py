"""What is written for TensorBoard is there when TensorBoard's own reader reads it; it stands at the checkpoint's step, whole or not at all."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from onnx import numpy_helper

from graph2torch.board import board as board_file
from graph2torch.board.board import Board, board_of_build, board_of_verification, check_board, events_of, write_board
from graph2torch.board.drawing import graph_of
from graph2torch.board.figures import LEVELS, Scalar
from graph2torch.build import Build, build, build_policy
from graph2torch.errors import OutputError
from graph2torch.judge.deep import Deep, verify_folder
from graph2torch.judge.verify import Level
from graph2torch.recognise import recognise
from graph2torch.training.run_folder import inspect_run
from tests.commands import Result, check_trouble, left_over, run, unsafe
from tests.drawing import check_drawing
from tests.models import FAMILIES, save_pair, tiny_checkpoint, tiny_policy

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard")


def reread(place: Path | bytes, folder: Path) -> Any:
    """As TensorBoard has it, nothing thinned out."""
    if isinstance(place, bytes):
        folder.mkdir(exist_ok=True)
        (folder / "events.out.tfevents.1").write_bytes(place)
        place = folder
    return accumulator.EventAccumulator(str(place), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0}).Reload()


def scalars(found: Any) -> dict[str, float]:
    return {tag: found.Scalars(tag)[-1].value for tag in found.Tags()["scalars"]}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    model = tiny_policy(**FAMILIES["hybrid"])
    return save_pair(tmp_path_factory.mktemp("pair"), model, tiny_checkpoint(model), "Walker-5000")


@pytest.fixture(scope="module")
def made(pair: tuple[Path, Path]) -> Build:
    return build_policy(*pair)


# ---------------------------------------------------------------------------------------------- a build
def test_figures_weights_and_graph_are_read_back(made: Build, tmp_path: Path) -> None:
    board = board_of_build(made)
    assert (board.run, board.step) == ("Walker/graph2torch-build", 5000)
    path = write_board(board, tmp_path)
    assert path.parent == tmp_path / "Walker" / "graph2torch-build" and left_over(path.parent) == [path.name]
    found = reread(path, tmp_path)
    told = scalars(found)
    assert told == {s.tag: pytest.approx(np.float32(s.value), rel=1e-6) for s in board.scalars}
    assert told["Equality/level"] == LEVELS.index(made.verification.level) == 3
    assert told["Equality/numbers that differ"] == 0 < told["Equality/numbers compared"]
    figures = {f.output: f for f in made.verification.module}
    for output in ("continuous_actions", "mu of continuous_actions"):
        assert told[f"Torch max abs/{output}"] == np.float32(figures[output].max_abs)
        assert told[f"Torch ulp/{output}"] == figures[output].max_ulps
    assert not [tag for tag in told if "version_number" in tag]
    assert told["Pair/tensors that differ"] == told["Pair/max abs"] == 0
    steps = {e.step for tag in found.Tags()["scalars"] for e in found.Scalars(tag)}
    steps |= {e.step for tag in found.Tags()["histograms"] for e in found.Histograms(tag)}
    assert steps == {5000}
    floats = {b.path: b.value for b in made.bindings.tensors if b.value.dtype.kind == "f"}
    assert set(found.Tags()["histograms"]) == {f"Weights/{path}" for path in floats}
    for path_, value in floats.items():
        histogram = found.Histograms(f"Weights/{path_}")[0].histogram_value
        assert (histogram.min, histogram.max, histogram.num, sum(histogram.bucket)) == (value.min(), value.max(), value.size, value.size)
        assert histogram.sum == pytest.approx(float(value.astype(np.float64).sum()))
    (text,) = found.Tensors("graph2torch/text_summary")[0].tensor_proto.string_val
    assert b"Walker-5000.onnx" in text and b"level 3 of 4: graph" in text and all(line.startswith(b"    ") for line in text.split(b"\n"))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_graph_is_the_policys(family: str, tmp_path: Path) -> None:
    path = tmp_path / "Tiny.onnx"
    path.write_bytes(tiny_policy(**FAMILIES[family]).SerializeToString())
    check_drawing(recognise(path).spec)


def test_the_graph_is_read_back(made: Build, tmp_path: Path) -> None:
    nodes = {n.name: n for n in reread(events_of(board_of_build(made), 1.0), tmp_path / "e").Graph().node}
    assert list(nodes.values()) == list(graph_of(made.spec).node)
    gemm = nodes["body/linear_0/Gemm"]
    assert list(gemm.input) == ["normalizer/Clip", "body/linear_0/weight", "body/linear_0/bias"]
    assert gemm.attr["role"].s == b"hidden layer 1" and nodes["body/linear_0/weight"].op == "Parameter"
    assert {n.name for n in nodes.values() if n.op == "Output"} == {f"output_{o.name}" for o in made.spec.outputs if o.constant is None}


def test_half_precision_that_was_asked_for(pair: tuple[Path, Path]) -> None:
    made = build_policy(*pair, dtype="bfloat16")
    told = {s.tag: s.value for s in board_of_build(made).scalars}
    assert made.precision and told["bfloat16/error"] == made.precision.error > 0
    assert {t for t in told if t.startswith("bfloat16 against float32 max abs/")} == {
        f"bfloat16 against float32 max abs/{f.output}" for f in made.precision.against_float32
    }


def test_a_memory_that_is_fed_back(tmp_path: Path) -> None:
    path = tmp_path / "Tiny.onnx"
    path.write_bytes(tiny_policy(**FAMILIES["lstm"]).SerializeToString())
    build(path, None, tmp_path / "out")
    found = verify_folder(tmp_path / "out")
    told = {s.tag: s.value for s in board_of_verification(found).scalars}
    assert told["Memory/max abs"] == max(off for _, off in found.drift) and len(found.drift) > 1


def test_levels_are_those_of_the_judge() -> None:
    assert set(LEVELS) == set(get_args(Level))


def test_a_pair_that_drifts(pair: tuple[Path, Path], tmp_path: Path) -> None:
    model = tiny_policy(**FAMILIES["hybrid"])
    weight = next(t for t in model.graph.initializer if t.name.endswith("mu.weight"))
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) + np.float32(0.01), weight.name))
    onnx_path = tmp_path / "Walker-7000.onnx"
    onnx_path.write_bytes(model.SerializeToString())
    board = board_of_build(build_policy(onnx_path, pair[1]))
    told = {s.tag: s.value for s in board.scalars}
    assert told["Pair/tensors that differ"] == 1 and told["Pair/max abs"] == pytest.approx(0.01, rel=1e-3)
    assert board.step == 5000  # the checkpoint's, not that of the graph's name
    assert board_of_build(build_policy(onnx_path)).step == 7000


def test_checkpoints_of_a_training_become_curves(made: Build, tmp_path: Path) -> None:
    board = board_of_build(made)
    for step in (1000, 5000, 9000):
        write_board(replace(board, step=step), tmp_path)
    found = reread(tmp_path / board.run, tmp_path)
    assert sorted(e.step for e in found.Scalars("Equality/level")) == [1000, 5000, 9000]
    assert sorted(e.step for e in found.Histograms("Weights/mu.weight")) == [1000, 5000, 9000]
    assert {c["tag"] for c in inspect_run(tmp_path / board.run)["behaviors"][0]["curves"]} == {s.tag for s in board.scalars}


# ---------------------------------------------------------------------------------------------- a verification
@pytest.fixture(scope="module")
def verified(pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Deep]:
    folder = tmp_path_factory.mktemp("built") / "Walker"
    build(*pair, folder)
    return folder, verify_folder(folder, dtype="bfloat16")


def test_a_verification_is_told_block_by_block(verified: tuple[Path, Deep], tmp_path: Path) -> None:
    _, found = verified
    board = board_of_verification(found)
    assert (board.run, board.step) == ("Walker/graph2torch-verify", 5000)
    events = reread(events_of(board, 1.0), tmp_path / "e")
    told = scalars(events)
    blocks = [tag for tag in told if tag.startswith("Block max abs/")]
    assert sorted(blocks) == blocks and len(blocks) == len(found.blocks)
    assert [told[tag] for tag in blocks] == [np.float32(b.figures.max_abs) for b in found.blocks]
    assert found.sampling and told["Samples/tests that failed"] == 0
    assert told["Samples/smallest p"] == pytest.approx(min(t.p for t in found.sampling.tests))
    assert found.precision and told["bfloat16/error"] == pytest.approx(found.precision.error)
    assert any(tag.startswith("bfloat16 against float32 max abs/") for tag in told)
    assert "Weights/mu.weight" in events.Tags()["histograms"] and events.Graph().node


@pytest.mark.parametrize("step", [None, "5", True, -1, 2**63, 1.5, [], {"step": 1}])
def test_a_step_that_is_none_is_not_believed(verified: tuple[Path, Deep], step: Any, tmp_path: Path) -> None:
    folder, found = verified
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("model.py", "weights.safetensors", "report.json"):
        (copy / name).write_bytes((folder / name).read_bytes())
    document = json.loads((copy / "report.json").read_text())
    document["checkpoint"]["step"] = step
    (copy / "report.json").write_text(json.dumps(document))
    board = board_of_verification(replace(found, folder=str(copy)))
    assert board.step == (0 if step in (-1, 2**63) and step is not True else 5000)  # else by the graph's name
    events_of(board, 1.0)


# ---------------------------------------------------------------------------------------------- the command line
def test_the_commands_write_it(pair: tuple[Path, Path], tmp_path: Path) -> None:
    logs = tmp_path / "results" / "run"
    out = tmp_path / "out"
    plain = run("build", *pair, "-o", out)
    result = run("build", *pair, "-o", out, "--force", "--tensorboard", logs)
    assert result.status == 0 and not result.err
    assert result.out.startswith(plain.out.rstrip()) and "TensorBoard" in result.out.removeprefix(plain.out.rstrip())
    document = json.loads(run("build", *pair, "-o", out, "--force", "--tensorboard", logs, "--json").out)
    assert Path(document["tensorboard"]).is_file()
    document = json.loads(run("verify", out, "--tensorboard", logs, "--json").out)
    assert Path(document["tensorboard"]).parent == logs / "Walker" / "graph2torch-verify"
    assert left_over(logs / "Walker") == ["graph2torch-build", "graph2torch-verify"]
    assert len(left_over(logs / "Walker" / "graph2torch-build")) == 2
    assert "tensorboard" not in json.loads(run("verify", out, "--json").out)


def refused(pair: tuple[Path, Path], folder: Path, directory: object) -> Result:
    """A build that must not have begun."""
    result = run("build", *pair, "-o", folder / "out", "--tensorboard", directory)
    assert not (folder / "out").exists()
    return result


def test_what_cannot_be_a_log_directory(pair: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    check_trouble(refused(pair, tmp_path, tmp_path / "file"), "--tensorboard", "is none")
    check_trouble(refused(pair, tmp_path, tmp_path / "file" / "logs"), "--tensorboard")
    check_trouble(refused(pair, tmp_path, tmp_path / "loop"), "--tensorboard")
    with pytest.raises(OutputError, match="no usable path"):
        check_board(Path("x\0y"), tmp_path)
    check_trouble(refused(pair, tmp_path, tmp_path / "out"), "holds the built policy alone")
    check_trouble(refused(pair, tmp_path, tmp_path / "out" / "logs"), "holds the built policy alone")
    check_trouble(refused(pair, tmp_path, tmp_path / ("x" * 300)), "--tensorboard")


def test_without_tensorboard_it_says_how_to_get_it(pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)
    check_trouble(refused(pair, tmp_path, tmp_path / "logs"), "pip install 'graph2torch[tensorboard]'")
    assert left_over(tmp_path) == []


def test_a_failure_leaves_nothing(pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No temporary file, no empty folder; the build itself is whole, and the message says so."""

    def full(*_: object) -> None:
        raise OutputError("--tensorboard 'x' can't be written: No space left on device.")

    monkeypatch.setattr(board_file, "write_file", full)
    result = run("build", *pair, "-o", tmp_path / "out", "--tensorboard", tmp_path / "results" / "run")
    check_trouble(result, "No space left on device", "The policy was built in")
    assert left_over(tmp_path) == ["out"] and (tmp_path / "out" / "report.json").is_file()


@pytest.mark.parametrize("name", ["..", "a\nb", "\u202egnp", "x:y", " ", "Möwe", "x" * 150])
def test_names_of_models_stay_in_the_directory(made: Build, tmp_path: Path, name: str) -> None:
    model = replace(made.recognised.model, path=Path(f"{name}.onnx"))
    board = board_of_build(replace(made, recognised=replace(made.recognised, model=model)))
    path = write_board(board, tmp_path / "logs")
    assert path.resolve().parent.parent.parent == (tmp_path / "logs").resolve()
    assert not unsafe(str(path.relative_to(tmp_path)))
    assert left_over(tmp_path) == ["logs"]


# ---------------------------------------------------------------------------------------------- odd numbers and names
def shown(made: Build, folder: Path, weights: Mapping[str, Any], *told: Scalar) -> Any:
    board = Board("x/y", 1, told, {k: np.asarray(v) for k, v in weights.items()}, made.spec, "    text")
    return reread(events_of(board, 1.0), folder)


def test_odd_weights(made: Build, tmp_path: Path) -> None:
    weights = {
        "nan": np.full(3, math.nan, np.float32),
        "some": np.array([1, math.inf, -math.inf, math.nan, 2], np.float32),
        "empty": np.zeros((0, 4), np.float32),
        "one": np.float32(3),
        "same": np.full(5, 7, np.float32),
        "largest": np.array([-3.4e38, 3.4e38], np.float32),
        "smallest": np.array([1e-45, -1e-45], np.float32),
        "halves": np.array([1, 2], np.float16),
        "steps": np.asarray(1024),
    }
    found = shown(made, tmp_path / "e", weights)
    counts = {tag.removeprefix("Weights/"): found.Histograms(tag)[0].histogram_value for tag in found.Tags()["histograms"]}
    assert {tag: (h.num, sum(h.bucket)) for tag, h in counts.items()} == {
        "some": (2, 2), "one": (1, 1), "same": (5, 5), "largest": (2, 2), "smallest": (2, 2), "halves": (2, 2)
    }  # fmt: skip
    assert scalars(found) == {"Weights not finite/nan": 3, "Weights not finite/some": 3}


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e300, 0, 2**70])
def test_odd_scalars(made: Build, tmp_path: Path, value: float) -> None:
    (told,) = scalars(shown(made, tmp_path / "e", {}, Scalar("t", value))).values()
    with np.errstate(over="ignore"):
        assert np.float32(told).tobytes() == np.float32(value).tobytes()


def test_odd_names(made: Build, tmp_path: Path) -> None:
    """Names of outputs and tensors come from a file; what they hold that acts on anything is escaped before."""
    names = ["\ud800", "a/b", "<script>alert(1)</script>", "", "\x00", "\u202e", "x" * 1000]
    found = shown(made, tmp_path / "e", dict.fromkeys(names, np.ones(2, np.float32)), *(Scalar(n, 1.0, n) for n in names[:4]))
    assert len(found.Tags()["histograms"]) == len(names)
    assert not [tag for tag in found.Tags()["histograms"] if unsafe(tag)]


def test_nothing_may_be_written_to_the_place(made: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(OutputError, match="nothing may be written"):
        check_board(tmp_path / "logs", tmp_path / "out")
