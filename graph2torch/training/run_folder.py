"""What a training left: the checkpoints of each behaviour, with the step and the reward that each had.

ML-Agents writes a folder like this one, results/RUN:

    configuration.yaml               the settings
    run_logs/training_status.json    checkpoints and rewards (status.py)
    BEHAVIOR.onnx                    the last graph
    BEHAVIOR/BEHAVIOR-STEP.onnx      a graph
    BEHAVIOR/BEHAVIOR-STEP.pt        the checkpoint that goes with it
    BEHAVIOR/checkpoint.pt           the last checkpoint
    BEHAVIOR/events.out.tfevents.…   the curves (events.py)

Any of these may be missing, be damaged or lie: what can't be read is told. No checkpoint and no graph is opened, and torch isn't imported.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from graph2torch.errors import RunError
from graph2torch.judge.figures import finite
from graph2torch.pair import CONFIGURATION, MAX_CONFIGURATION_BYTES, read_settings, step_of
from graph2torch.text import one_line, printable, quoted

from .events import MAX_POINTS, MAX_RECORDS, EventFile, Point, joined, read_events
from .status import FILE, Behavior, Saved, Status, read_status

Found: TypeAlias = dict[str, Any]

REWARD = "Environment/Cumulative Reward"  # ML-Agents' name of the curve
MAX_ENTRIES = 4096  # of a folder that are looked at
MAX_FOLDERS = 256  # in the run's
MAX_BEHAVIORS = 64
MAX_EVENT_FILES = 64  # of a behaviour, the newest by their names
WEIGHTS = (".pt", ".onnx", ".nn", ".sentis")  # what a checkpoint is saved as; .nn before ML-Agents 0.23


def inspect_run(folder: str | Path) -> Found:
    """What lies in the folder of a training (results/RUN), or of one of its behaviours (results/RUN/BEHAVIOR).

    folder, mlagents, torch: its path as given, and the versions that trained (None where not told)
    lessons:   parameter of the environment → the lesson that a curriculum had reached
    behaviors: for each
        name; trainer, max_steps: as configuration.yaml has them (None where not told); elo: of self-play
        checkpoints: by step: `files` that are there and `missing` ones that training_status.json names, `reward` and `created` (ISO,
                     UTC) as noted there, `curve`: the last point of the reward's curve up to that step (step, value); `final`: saved at
                     the end; `best`: the highest reward
        unnumbered:  checkpoints without a step in their names
        curves:      for each tag the number of points, the first and last step and value, the smallest and largest value
        reward:      the curve of REWARD, [[step, value], …]
        event_files: name, bytes, records, and `trouble` if something couldn't be read
    trouble:   what couldn't be read, one sentence each

    Numbers that are not finite are texts. Raises RunError if nothing of a training is there.
    """
    folder = Path(folder)
    shown = printable(str(folder))
    try:
        inside = _entries(folder)
        if "report.json" in inside and "model.py" in inside:
            raise RunError(f"{shown} is a folder that graph2torch built; `graph2torch verify` judges it.")
        folders = [name for name, entry in inside.items() if _is_kind(entry.is_dir)]
        own = _looked_at(folder)
        whole = _is_run(folder)
    except (OSError, ValueError) as error:
        raise RunError(f"{shown} can't be read ({one_line(str(error), 120)}); check the path and its permissions.") from None
    root = folder.absolute().parent if own.there and not whole else folder  # a behaviour's folder, or the run's
    trouble: list[str] = []
    status, settings = _status(root, trouble), _settings(root, trouble)
    if root is folder:
        behaviors = [files for name in folders[:MAX_FOLDERS] if (files := _looked_at(folder / name)).there][:MAX_BEHAVIORS]
        if own.there and not behaviors:  # all in one folder
            behaviors = [replace(own, name=_name_of(own, [*status.behaviors, *settings]))]
        known = {behavior.name for behavior in behaviors}
        behaviors += [_Files(name, folder / name) for name in islice(status.behaviors, MAX_BEHAVIORS) if name not in known]
    else:
        behaviors = [own]
    if not behaviors:
        runs = [name for name in folders[:MAX_FOLDERS] if _is_run(folder / name)]
        more = f" and {len(runs) - 6} more" if len(runs) > 6 else ""
        advice = (
            f"it holds trainings: {', '.join(map(quoted, runs[:6]))}{more}; give one of them"
            if runs
            else "give a folder that ML-Agents wrote in a training (results/RUN), or the file itself"
        )
        raise RunError(f"{shown} is a folder that holds no checkpoints, no event files and no {FILE}; {advice}.")
    left, points = MAX_RECORDS, MAX_POINTS
    told: list[Found] = []
    for behavior in behaviors:
        curves, read, kept = _curves(behavior, left, points)
        left, points = left - sum(file["records"] for file in read), points - kept
        told.append(_behavior(behavior, status.behaviors.get(behavior.name, Behavior()), curves, read, root, settings))
    return {
        "folder": str(folder),
        "mlagents": status.mlagents or None,
        "torch": status.torch or None,
        "lessons": dict(status.lessons),
        "behaviors": told,
        "trouble": trouble,
    }


# ---------------------------------------------------------------------------------------------- what lies there
@dataclass(frozen=True)
class _Files:
    """What lies in a behaviour's folder: name of a checkpoint or graph → its step, and names of event files."""

    name: str
    folder: Path
    saved: Mapping[str, int | None] | None = None
    events: Sequence[str] = ()

    @property
    def there(self) -> bool:
        """Whether it looks like a behaviour's folder: not because of graphs without a step, which a run's folder has as well."""
        return bool(self.events) or any(step is not None or name.endswith(".pt") for name, step in (self.saved or {}).items())


def _entries(folder: Path) -> dict[str, os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        found = {entry.name: entry for entry in islice(entries, MAX_ENTRIES)}
    return {name: found[name] for name in sorted(found)}


def _is_kind(asked: Callable[[], bool]) -> bool:
    try:
        return asked()
    except (OSError, ValueError):  # a link to itself, a name that is none
        return False


def _looked_at(folder: Path) -> _Files:
    """Empty if it can't be read."""
    saved: dict[str, int | None] = {}
    events: list[str] = []
    try:
        for name, entry in _entries(folder).items():
            if not _is_kind(entry.is_file):
                continue
            if "tfevents" in name:  # as TensorBoard finds them
                events.append(name)
            elif name.endswith(WEIGHTS):
                saved[name] = step_of(Path(name))
    except OSError:
        pass
    return _Files(folder.absolute().name, folder, saved, events[-MAX_EVENT_FILES:])


def _name_of(behavior: _Files, told: Sequence[str]) -> str:
    """What a behaviour is called whose files lie in the run's folder: one of the names told, if its files are called so."""
    stems = {re.sub(r"-[0-9]+$", "", Path(name).stem) for name in behavior.saved or {}}
    return next((name for name in told if name in stems), told[0] if len(told) == 1 else behavior.name)


def _is_run(folder: Path) -> bool:
    return _is_kind((folder / "run_logs").is_dir) or _is_kind((folder / CONFIGURATION).is_file)


def _status(root: Path, trouble: list[str]) -> Status:
    path = root / "run_logs" / FILE
    try:
        status = read_status(path) if path.is_file() else Status()
    except OSError as error:
        status = Status(trouble=f"can't be read: {error.strerror or error}")
    if status.trouble:
        trouble.append(f"{FILE} {status.trouble}")
    return status


def _settings(root: Path, trouble: list[str]) -> Mapping[str, Any]:
    """The settings by behaviour, as configuration.yaml has them."""
    path = root / CONFIGURATION
    try:
        if not path.is_file():
            return {}
        with path.open("rb") as file:
            behaviors = read_settings(file.read(MAX_CONFIGURATION_BYTES + 1)).get("behaviors")
    except OSError as error:
        trouble.append(f"{CONFIGURATION} can't be read: {error.strerror or error}")
    except ValueError as error:
        trouble.append(f"{CONFIGURATION} {error}")
    else:
        return behaviors if isinstance(behaviors, dict) else {}
    return {}


def _curves(behavior: _Files, most: int, points: int) -> tuple[dict[str, tuple[Point, ...]], list[Found], int]:
    """The curves of a behaviour's event files, what is to be said of each file, and how many points were read.

    most: how many records are read; points: how many are kept, of all the files together
    """
    read: list[EventFile] = []
    files: list[Found] = []
    kept = 0
    for name in behavior.events:
        path = behavior.folder / name
        entry: Found = {"file": name, "bytes": None, "records": 0, "trouble": []}
        files.append(entry)
        try:
            entry["bytes"] = path.stat().st_size
            found = read_events(path, max(most - sum(file["records"] for file in files), 0), points - kept)
        except OSError as error:
            entry["trouble"] = [f"can't be read: {error.strerror or error}"]
            continue
        entry["records"] = found.events + found.large
        damaged = f"{found.damaged:,} of its records are damaged, and left out" if found.damaged else ""
        entry["trouble"] = [text for text in (found.trouble, damaged) if text]
        kept += sum(map(len, found.curves.values()))
        read.append(found)
    return joined(read), files, kept


# ---------------------------------------------------------------------------------------------- a behaviour
def _behavior(
    behavior: _Files,
    told: Behavior,
    curves: Mapping[str, Sequence[Point]],
    files: list[Found],
    root: Path,
    settings: Mapping[str, Any],
) -> Found:
    own = settings.get(behavior.name)
    own = own if isinstance(own, dict) else {}
    trainer, steps = own.get("trainer_type"), own.get("max_steps")
    reward = curves.get(REWARD, ())
    saved = behavior.saved or {}
    checkpoints = list(_checkpoints(behavior, told, reward, root))
    _mark_best(checkpoints)
    return {
        "name": behavior.name,
        "trainer": trainer if isinstance(trainer, str) else None,
        "max_steps": steps if isinstance(steps, int) and not isinstance(steps, bool) else None,
        **finite({"elo": told.elo}),
        "checkpoints": checkpoints,
        "unnumbered": [name for name, step in saved.items() if step is None and name.endswith(".pt")],
        "reward": [[point.step, finite({"value": point.value})["value"]] for point in reward],
        "curves": [_curve(tag, points) for tag, points in sorted(curves.items())],
        "event_files": files,
    }


def _curve(tag: str, points: Sequence[Point]) -> Found:
    numbers = [point.value for point in points if point.value == point.value]  # NaN is no number
    return finite(
        {
            "tag": tag,
            "points": len(points),
            "first_step": points[0].step,
            "last_step": points[-1].step,
            "first": points[0].value,
            "last": points[-1].value,
            "min": min(numbers, default=None),
            "max": max(numbers, default=None),
        }
    )


def _checkpoints(behavior: _Files, told: Behavior, reward: Sequence[Point], root: Path) -> Iterator[Found]:
    """By step: what lies there, and what training_status.json knows of it."""
    noted: dict[int, list[Saved]] = {}
    final = told.final and _step(told.final)
    for saved in (*told.checkpoints, *([told.final] if told.final else [])):
        if (step := _step(saved)) is not None:
            noted.setdefault(step, []).append(saved)
    lying: dict[int, list[str]] = {}
    for name, step in (behavior.saved or {}).items():
        if step is not None:
            lying.setdefault(step, []).append(name)
    for step in sorted({*noted, *lying}):
        notes = noted.get(step, [])
        named = dict.fromkeys(name for saved in notes for name in saved.files)
        there = [*lying.get(step, []), *(n for n in named if n not in lying.get(step, []) and _is_kind((root / n).is_file))]
        before = bisect_right(reward, step, key=lambda point: point.step)
        yield {
            "step": step,
            "files": there,
            "missing": [name for name in named if name not in there],
            **finite({"reward": next((saved.reward for saved in notes if saved.reward is not None), None)}),
            "created": next((text for saved in notes if (text := _time(saved.created))), None),
            "curve": finite({"step": reward[before - 1].step, "value": reward[before - 1].value}) if before else None,
            "final": step == final,
            "best": False,
        }


def _step(saved: Saved) -> int | None:
    return saved.step if saved.step is not None else next((s for name in saved.files if (s := step_of(Path(name))) is not None), None)


def _time(seconds: float | None) -> str | None:
    """`2023-01-18T13:43:22Z`; None for what is no time."""
    try:
        return None if not seconds else datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return None


def _mark_best(checkpoints: list[Found]) -> None:
    """The highest reward, as noted when they were saved, or where none was noted by the curve; of one alone nothing is said."""
    noted = [(c["reward"], c) for c in checkpoints if isinstance(c["reward"], float)]
    drawn = [(c["curve"]["value"], c) for c in checkpoints if c["curve"] and isinstance(c["curve"]["value"], float)]
    rewards = noted or drawn
    if len(rewards) > 1:
        max(rewards, key=lambda pair: pair[0])[1]["best"] = True
