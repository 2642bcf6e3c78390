"""training_status.json: as ML-Agents writes it, and as nobody should."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from graph2torch.training import status
from graph2torch.training.status import Behavior, Saved, Status, read_status


def read(folder: Path, document: object) -> Status:
    path = folder / "training_status.json"
    path.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
    return read_status(path)


CHECKPOINT: dict[str, Any] = {
    "steps": 2000049,
    "file_path": "results/Huggy/Huggy/Huggy-2000049.onnx",
    "reward": 3.9,
    "creation_time": 1674049302.4,
    "auxillary_file_paths": ["results\\Huggy\\Huggy\\Huggy-2000049.pt"],
}
SAVED = Saved(2000049, 3.9, 1674049302.4, ("Huggy-2000049.onnx", "Huggy-2000049.pt"))


def test_as_mlagents_writes_it(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        {
            "Huggy": {
                "checkpoints": [CHECKPOINT | {"steps": 5, "reward": None}, CHECKPOINT],
                "final_checkpoint": CHECKPOINT,
                "elo": 1200.5,
            },
            "gravity": {"lesson_num": 2},
            "metadata": {"stats_format_version": "0.3.0", "mlagents_version": "1.1.0", "torch_version": "2.1.2+cu121"},
        },
    )
    assert found == Status(
        {"Huggy": Behavior((Saved(5, None, *vars_of(SAVED)), SAVED), SAVED, 1200.5)}, {"gravity": 2}, "1.1.0", "2.1.2+cu121"
    )


def vars_of(saved: Saved) -> tuple[float | None, tuple[str, ...]]:
    return saved.created, saved.files


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b'{"a": ' + b"1" * 10_000 + b"}", "is not JSON"),  # Python reads no whole number of so many digits
        (b"[]", "is not an object"),
        (b"null", "is not an object"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 50_000, "nested too deeply"),
        (b'"' + b"x" * status.MAX_BYTES + b'"', "bytes, which is the limit"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, data: bytes, words: str) -> None:
    found = read(tmp_path, data)
    assert words in found.trouble and found == Status(trouble=found.trouble)


@pytest.mark.parametrize("other", [None, True, "text", [], [[]], {}, {"steps": {}}, -1, 1.5, 2**70, math.nan, [None, 1, "x", []]])
@pytest.mark.parametrize(
    "place", ["steps", "file_path", "reward", "creation_time", "auxillary_file_paths", "whole", "all", "elo", "behavior"]
)
def test_other_types_are_left_out(tmp_path: Path, place: str, other: Any) -> None:
    checkpoint = CHECKPOINT | {place: other}
    entry: Any = {"checkpoints": [other if place == "whole" else checkpoint], "final_checkpoint": other if place == "whole" else checkpoint}
    entry |= {"checkpoints": other} if place == "all" else {"elo": other} if place == "elo" else {}
    found = read(tmp_path, {"Huggy": other if place == "behavior" else entry, "metadata": other, "lesson": other})
    assert not found.trouble and found.mlagents == found.torch == ""
    for behavior in found.behaviors.values():
        assert behavior.elo is None or isinstance(behavior.elo, float)
        for saved in (*behavior.checkpoints, *filter(None, [behavior.final])):
            assert saved.step is None or (type(saved.step) is int and 0 <= saved.step < 2**63)
            assert all(n is None or type(n) is float for n in (saved.reward, saved.created))
            assert all(type(name) is str and "/" not in name for name in saved.files)


def test_numbers_that_are_none(tmp_path: Path) -> None:
    data = b'{"B": {"checkpoints": [{"steps": 1, "reward": NaN}, {"steps": 2, "reward": -Infinity}, {"steps": 3, "reward": 1e999}], "elo": -1%s}}'
    found = read(tmp_path, data % (b"0" * 400))
    rewards = [saved.reward for saved in found.behaviors["B"].checkpoints]
    assert [str(r) for r in rewards] == ["nan", "-inf", "inf"] and found.behaviors["B"].elo == -math.inf


def test_limits(tmp_path: Path) -> None:
    many: dict[str, Any] = {f"B{i}": {"checkpoints": [{}] * 1100} for i in range(300)}
    found = read(tmp_path, many)
    assert len(found.behaviors) == status.MAX_NAMES
    assert all(len(b.checkpoints) == status.MAX_CHECKPOINTS for b in found.behaviors.values())
    (saved,) = (
        read(tmp_path, {"B": {"checkpoints": [{"auxillary_file_paths": [f"{i}.pt" for i in range(100)]}]}}).behaviors["B"].checkpoints
    )
    assert len(saved.files) == status.MAX_FILES
