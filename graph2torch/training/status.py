"""training_status.json, in which ML-Agents (0.17 and later) keeps what it needs to go on with a training: its checkpoints and their rewards.

Read as untrusted input: little of it, and what has another type than it should have is left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from graph2torch.text import one_line

FILE = "training_status.json"
MAX_BYTES = 2**22  # of the file; one has a few thousand
MAX_NAMES = 256  # behaviours, and parameters of the environment
MAX_CHECKPOINTS = 1024  # of a behaviour; ML-Agents keeps 5
MAX_FILES = 8  # of a checkpoint


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint as it was noted when it was saved.

    step:    None where it isn't told
    reward:  the mean of the episodes that had ended since the policy was last updated; None if none had
    created: in seconds since 1970
    files:   names of the graph and the checkpoint, without their folders
    """

    step: int | None
    reward: float | None
    created: float | None
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Behavior:
    """A behaviour's checkpoints, the last one that was made at the end of the training, and its Elo rating if it played itself."""

    checkpoints: tuple[Saved, ...] = ()
    final: Saved | None = None
    elo: float | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """What training_status.json says: by behaviour; parameter of the environment → its lesson; versions ("" where not told).

    trouble: why nothing could be read
    """

    behaviors: Mapping[str, Behavior] = field(default_factory=dict)
    lessons: Mapping[str, int] = field(default_factory=dict)
    mlagents: str = ""
    torch: str = ""
    trouble: str = ""


def read_status(path: Path) -> Status:
    """The status in the file at `path`. Never raises for what is in it; OSError if it can't be read."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        return Status(trouble=f"has more than {MAX_BYTES:,} bytes, which is the limit here")
    try:
        document = json.loads(data)
    except RecursionError:
        return Status(trouble="is nested too deeply")
    except ValueError as error:
        return Status(trouble=f"is not JSON ({one_line(str(error), 80)})")
    if not isinstance(document, dict):
        return Status(trouble="is not an object of behaviours")
    named = {name: entry for name, entry in islice(document.items(), MAX_NAMES) if isinstance(entry, dict)}
    versions = named.pop("metadata", {})
    told = {"checkpoints", "final_checkpoint", "elo"}
    return Status(
        {name: _behavior(entry) for name, entry in named.items() if told & entry.keys()},
        {name: lesson for name, entry in named.items() if (lesson := _whole(entry.get("lesson_num"))) is not None},
        *(text if isinstance(text := versions.get(key), str) else "" for key in ("mlagents_version", "torch_version")),
    )


def _behavior(entry: Mapping[str, Any]) -> Behavior:
    listed = entry.get("checkpoints")
    saved = [_saved(c) for c in listed[:MAX_CHECKPOINTS] if isinstance(c, dict)] if isinstance(listed, list) else []
    final = entry.get("final_checkpoint")
    return Behavior(tuple(saved), _saved(final) if isinstance(final, dict) and final else None, _number(entry.get("elo")))


def _saved(entry: Mapping[str, Any]) -> Saved:
    return Saved(
        _whole(entry.get("steps")),
        _number(entry.get("reward")),
        _number(entry.get("creation_time")),
        tuple(islice(_files(entry), MAX_FILES)),
    )


def _files(entry: Mapping[str, Any]) -> Iterator[str]:
    """The names in its paths, which are of the machine that trained: with slashes or backslashes."""
    others = entry.get("auxillary_file_paths")  # ML-Agents spells it so
    for path in [entry.get("file_path"), *(others if isinstance(others, list) else [])]:
        if isinstance(path, str) and (name := re.split(r"[/\\]", path)[-1]):
            yield name


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None
