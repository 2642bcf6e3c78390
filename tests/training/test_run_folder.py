"""Folders of trainings: steps and rewards beside the checkpoints, whatever is missing or wrong."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cli
from graph2torch.errors import RunError
from graph2torch.inspect.file import inspect_file
from graph2torch.training import run_folder
from graph2torch.training.run_folder import REWARD, inspect_run
from tests.commands import check_trouble, run, unsafe
from tests.events import curve, event, number, record, write

ROOT = Path(cli.__file__).parent
STEPS = (500, 1000, 2049)


def saved(step: int, reward: float | None, name: str = "Walker") -> dict[str, Any]:
    path = f"results/run/{name}/{name}-{step}"
    return {
        "steps": step,
        "file_path": f"{path}.onnx",
        "reward": reward,
        "creation_time": 1674049302.4,
        "auxillary_file_paths": [f"{path}.pt"],
    }


def training(folder: Path, name: str = "Walker") -> Path:
    """results/run as ML-Agents leaves it; of the first checkpoint only the note is left."""
    root = folder / "results" / "run"
    behavior = root / name
    write(behavior, curve([(200, 1.0), (400, 2.0), (1000, 3.0), (2000, 2.5)]))
    for step in STEPS[1:]:
        for end in ("pt", "onnx"):
            (behavior / f"{name}-{step}.{end}").write_bytes(b"x")
    (behavior / "checkpoint.pt").write_bytes(b"x")
    (root / f"{name}.onnx").write_bytes(b"x")
    (root / "configuration.yaml").write_text(f"behaviors:\n  {name}:\n    trainer_type: ppo\n    max_steps: 2000\n")
    noted = [saved(step, reward, name) for step, reward in zip(STEPS, (1.5, 3.1, 2.6), strict=True)]
    final = noted[-1] | {"file_path": f"results/run/{name}.onnx"}
    note(
        root, {name: {"checkpoints": noted, "final_checkpoint": final}, "metadata": {"mlagents_version": "1.1.0", "torch_version": "2.1.2"}}
    )
    return root


def note(root: Path, document: object) -> None:
    (root / "run_logs").mkdir(parents=True, exist_ok=True)
    (root / "run_logs" / "training_status.json").write_bytes(
        document if isinstance(document, bytes) else json.dumps(document).encode("ascii")
    )


def inspected(folder: Path) -> dict[str, Any]:
    found = inspect_file(folder)
    json.dumps(found, allow_nan=False)
    return found


# ---------------------------------------------------------------------------------------------- a whole one
def test_step_and_reward_beside_each_checkpoint(tmp_path: Path) -> None:
    root = training(tmp_path)
    found = inspected(root)
    assert (found["kind"], found["mlagents"], found["torch"], found["trouble"]) == ("run", "1.1.0", "2.1.2", [])
    (behavior,) = found["behaviors"]
    assert (behavior["name"], behavior["trainer"], behavior["max_steps"]) == ("Walker", "ppo", 2000)
    assert [(c["step"], c["reward"], c["curve"], c["best"], c["final"]) for c in behavior["checkpoints"]] == [
        (500, 1.5, {"step": 400, "value": 2.0}, False, False),
        (1000, 3.1, {"step": 1000, "value": 3.0}, True, False),
        (2049, 2.6, {"step": 2000, "value": 2.5}, False, True),
    ]
    assert [(c["files"], c["missing"]) for c in behavior["checkpoints"]] == [
        ([], ["Walker-500.onnx", "Walker-500.pt"]),
        (["Walker-1000.onnx", "Walker-1000.pt"], []),
        (["Walker-2049.onnx", "Walker-2049.pt", "Walker.onnx"], []),
    ]
    assert behavior["checkpoints"][0]["created"] == "2023-01-18T13:41:42Z"
    assert behavior["unnumbered"] == ["checkpoint.pt"]
    assert behavior["reward"] == [[200, 1.0], [400, 2.0], [1000, 3.0], [2000, 2.5]]
    (told,) = behavior["curves"]
    assert told == {
        "tag": REWARD, "points": 4, "first_step": 200, "last_step": 2000, "first": 1.0, "last": 2.5, "min": 1.0, "max": 3.0
    }  # fmt: skip
    assert inspected(root / "Walker")["behaviors"] == found["behaviors"]  # the behaviour's folder says the same


def test_what_is_printed(tmp_path: Path) -> None:
    result = run("inspect", training(tmp_path))
    assert result.status == 0 and not result.err
    text = " ".join(result.out.split())
    assert "a training with mlagents 1.1.0, torch 2.1.2" in text
    assert "reward 1 at step 200, 2.5 at step 2,000, highest 3, in 4 points: ▁▅█▆" in text
    assert "1,000 3.1 3 at 1,000 best Walker-1000.onnx, .pt" in text
    assert "500 1.5 2 at 400 no longer there: Walker-500.onnx, .pt" in text
    assert json.loads(run("inspect", tmp_path / "results" / "run", "--json").out)["kind"] == "run"


def test_torch_is_not_imported(tmp_path: Path) -> None:
    code = "import sys, cli; sys.argv[1:1] = ['inspect']; cli.main()"
    after = "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); " + code
    done = subprocess.run([sys.executable, "-c", after, training(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Walker" in done.stdout
    assert not {"torch", "onnxruntime", "onnx_graphsurgeon", "tensorboard"} & set(done.stderr.split())


def test_a_training_that_was_resumed_counts_once(tmp_path: Path) -> None:
    root = training(tmp_path)
    write(root / "Walker", curve([(1000, 3.5), (3000, 4.0)], start=1.8e9), "events.out.tfevents.1800000000.host.1.0")
    (behavior,) = inspected(root)["behaviors"]
    assert behavior["reward"] == [[200, 1.0], [400, 2.0], [1000, 3.5], [3000, 4.0]]
    assert len(behavior["event_files"]) == 2


def test_several_behaviors_lessons_and_elo(tmp_path: Path) -> None:
    root = training(tmp_path)
    write(root / "Striker", curve([(1, 1.0)], tag="Self-play/ELO"))
    document = json.loads((root / "run_logs" / "training_status.json").read_text())
    note(
        root, {**document, "Striker": {"elo": 1201.5}, "Goalie": {"checkpoints": [saved(7, None, "Goalie")]}, "gravity": {"lesson_num": 3}}
    )
    found = inspected(root)
    assert [b["name"] for b in found["behaviors"]] == ["Striker", "Walker", "Goalie"]
    assert found["behaviors"][0]["elo"] == 1201.5 and found["lessons"] == {"gravity": 3}
    assert found["behaviors"][2]["checkpoints"][0]["missing"] == ["Goalie-7.onnx", "Goalie-7.pt"]
    assert run("inspect", root).status == 0


# ---------------------------------------------------------------------------------------------- parts that are missing
def test_event_files_alone(tmp_path: Path) -> None:
    write(tmp_path / "run" / "Walker", curve([(1, 1.0), (2, math.nan), (3, math.inf)]))
    (behavior,) = inspected(tmp_path / "run")["behaviors"]
    assert behavior["reward"] == [[1, 1.0], [2, "nan"], [3, "inf"]] and behavior["checkpoints"] == []
    assert behavior["curves"][0]["max"] == "inf" and behavior["curves"][0]["min"] == 1.0
    assert run("inspect", tmp_path / "run").status == 0


def test_checkpoints_alone_are_marked_by_the_curve(tmp_path: Path) -> None:
    root = training(tmp_path)
    (root / "run_logs" / "training_status.json").unlink()
    (behavior,) = inspected(root)["behaviors"]
    assert [(c["step"], c["reward"], c["best"]) for c in behavior["checkpoints"]] == [(1000, None, True), (2049, None, False)]
    next((root / "Walker").glob("events*")).unlink()
    (behavior,) = inspected(root)["behaviors"]
    assert [(c["step"], c["curve"], c["best"]) for c in behavior["checkpoints"]] == [(1000, None, False), (2049, None, False)]
    assert "no event files" in run("inspect", root).out


def test_all_in_one_folder(tmp_path: Path) -> None:
    """As such folders are uploaded: run_logs beside the checkpoints."""
    root = training(tmp_path)
    for path in (root / "Walker").iterdir():
        path.rename(root / path.name)
    (root / "Walker").rmdir()
    (behavior,) = inspected(root)["behaviors"]
    assert behavior["name"] == "Walker" and [c["step"] for c in behavior["checkpoints"]] == list(STEPS)
    assert behavior["trainer"] == "ppo"
    (root / "run_logs" / "training_status.json").unlink()
    (root / "configuration.yaml").write_text("behaviors:\n  Other: {trainer_type: sac}\n  Walker: {trainer_type: poca}\n")
    assert [(b["name"], b["trainer"]) for b in inspected(root)["behaviors"]] == [("Walker", "poca")]


def test_what_is_no_training(tmp_path: Path) -> None:
    for name in ("nothing", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    for name in ("nothing", "other"):
        check_trouble(run("inspect", tmp_path / name), "holds no checkpoints, no event files and no training_status.json")
    training(tmp_path)
    check_trouble(run("inspect", tmp_path / "results"), "it holds trainings: 'run'; give one of them")
    built = tmp_path / "built"
    built.mkdir()
    for name in ("report.json", "model.py"):
        (built / name).write_text("")
    check_trouble(run("inspect", built), "is a folder that graph2torch built", "verify")
    check_trouble(run("inspect", training(tmp_path / "more"), tmp_path / "x.pt"), "is a folder, not")


# ---------------------------------------------------------------------------------------------- parts that are wrong
def test_what_cannot_be_read_is_told_and_the_rest_is_there(tmp_path: Path) -> None:
    root = training(tmp_path)
    note(root, b'{"Walker": ')
    (root / "configuration.yaml").write_text("behaviors: *x")
    write(root / "Walker", curve([(5000, 9.0)], start=1.9e9)[:-1], "events.out.tfevents.1900000000.host.1.0")
    write(root / "Walker", b"no record at all", "events.out.tfevents.1900000001.host.1.0")
    found = inspected(root)
    assert [text.split()[0] for text in found["trouble"]] == ["training_status.json", "configuration.yaml"]
    (behavior,) = found["behaviors"]
    assert [bool(file["trouble"]) for file in behavior["event_files"]] == [False, True, True]
    assert len(behavior["reward"]) == 4 and len(behavior["checkpoints"]) == 2
    result = run("inspect", root)
    assert result.status == 0 and "Warnings" in result.out and "is no event file from byte 0 on" in result.out


def test_records_are_counted_over_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "MAX_RECORDS", 7)
    for i in range(3):
        write(tmp_path / "run" / "Walker", curve([(10 * i + k, 1.0) for k in range(4)], start=1e9 + i), f"events.out.tfevents.{i}")
    files = inspected(tmp_path / "run")["behaviors"][0]["event_files"]
    assert [(file["records"], bool(file["trouble"])) for file in files] == [(5, False), (2, True), (0, True)]


def test_points_are_counted_over_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small record holds hundreds of them."""
    monkeypatch.setattr(run_folder, "MAX_POINTS", 6)
    for behavior in ("Walker", "Worm"):
        for i in range(2):
            write(tmp_path / "run" / behavior, curve([(10 * i + k, 1.0) for k in range(4)], start=1e9 + i), f"events.out.tfevents.{i}")
    found = inspected(tmp_path / "run")["behaviors"]
    assert [sum(c["points"] for c in behavior["curves"]) for behavior in found] == [6, 0]
    assert [bool(file["trouble"]) for behavior in found for file in behavior["event_files"]] == [False, True, True, True]


@pytest.mark.parametrize("created", [1e300, -1e300, math.nan, math.inf, 0, -1, 1e11])
def test_times_that_are_none(tmp_path: Path, created: float) -> None:
    root = training(tmp_path)
    note(root, {"Walker": {"checkpoints": [saved(1000, 1.0) | {"creation_time": created}]}})
    assert run("inspect", root).status == 0
    inspected(root)


NAMES = ["\x1b[31mred", "\u202egnp", "[bold]x[/]", "../../up", "a\nb", "-o", "", "\ud800", "x" * 5000, "Möwe", "C:\\x\\", "\0"]


@pytest.mark.parametrize("name", NAMES)
def test_names_do_nothing(tmp_path: Path, name: str) -> None:
    root = tmp_path / "run"
    note(
        root,
        {
            name: {"checkpoints": [{"steps": 1, "file_path": name, "auxillary_file_paths": [f"{name}/{name}.pt"]}], "elo": 1},
            f"{name} again": {"lesson_num": 1},
            "metadata": {"mlagents_version": name, "torch_version": name},
        },
    )
    write(root / "Walker", record(event(1, number(name.encode("utf-8", "replace"), 1.0))))
    (root / "configuration.yaml").write_text(json.dumps({"behaviors": {"Walker": {"trainer_type": name}}}))
    result = run("inspect", root)
    assert result.status == 0 and not result.err and not unsafe(result.out)
    inspected(root)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]


@pytest.mark.skipif(sys.platform == "win32" or not hasattr(os, "mkfifo"), reason="needs POSIX")
def test_pipes_links_and_folders_in_place_of_files(tmp_path: Path) -> None:
    """A pipe would wait for a writer; links to nothing or to themselves lead nowhere."""
    root = training(tmp_path)
    status = root / "run_logs" / "training_status.json"
    status.unlink()
    os.mkfifo(status)
    os.mkfifo(root / "Walker" / "events.out.tfevents.1")
    os.mkfifo(root / "Walker" / "Walker-5.pt")
    (root / "configuration.yaml").unlink()
    (root / "configuration.yaml").mkdir()
    (root / "Walker" / "Walker-6.pt").symlink_to("nowhere")
    (root / "Walker" / "Walker-7.pt").symlink_to("Walker-7.pt")
    (root / "Walker" / "Walker-8.pt").mkdir()
    (root / "loop").symlink_to(root)
    (root / "self").symlink_to("self")
    (behavior,) = inspected(root)["behaviors"]
    assert [c["step"] for c in behavior["checkpoints"]] == [1000, 2049] and len(behavior["event_files"]) == 1


def test_many_checkpoints_and_points(tmp_path: Path) -> None:
    """Found by halving, not one by one: a thousand checkpoints and twenty thousand points are no wait."""
    root = tmp_path / "run"
    write(root / "Walker", curve([(i, float(i)) for i in range(20_000)]))
    note(root, {"Walker": {"checkpoints": [{"steps": i, "reward": 1.0} for i in range(1000)]}})
    (behavior,) = inspected(root)["behaviors"]
    assert all(c["curve"] == {"step": c["step"], "value": float(c["step"])} for c in behavior["checkpoints"])
    text = run("inspect", root).out
    assert "and 960 more checkpoints" in text and len(text) < 10_000


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(RunError, match="can't be read"):
        inspect_run(tmp_path)
