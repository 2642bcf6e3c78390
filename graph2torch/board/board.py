"""Event files for TensorBoard: a run beside the training's own, with one step, that of the checkpoint.

DIR is what `tensorboard --logdir` is given, or a folder in it: results/RUN, where ML-Agents has its curves in results/RUN/BEHAVIOR.
What is written goes to DIR/BEHAVIOR/graph2torch-build or -verify, one event file each time, so that the checkpoints of a training
become curves. tensorboard is needed (the extra `tensorboard`).
"""

from __future__ import annotations

import io
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graph2torch.errors import DependencyError, FolderError, OutputError
from graph2torch.files import write_file
from graph2torch.graph import Array
from graph2torch.pair import step_of
from graph2torch.spec import PolicySpec
from graph2torch.text import file_name, one_line, printable, quoted

from .figures import LEVELS, Scalar, of_build, of_verification

if TYPE_CHECKING:
    from graph2torch.build import Build
    from graph2torch.judge.deep import Deep
    from graph2torch.judge.verify import Verification

OPTION = "--tensorboard"
BINS = 64  # of a histogram
MAX_STEP = 2**63 - 1


@dataclass(frozen=True)
class Board:
    """What TensorBoard is to show.

    run:     the folder below the log directory, "Huggy/graph2torch-build"
    step:    of the training, where all of it stands
    weights: the module's tensors by their paths
    text:    what was judged, for the page of texts
    """

    run: str
    step: int
    scalars: tuple[Scalar, ...]
    weights: Mapping[str, Array]
    spec: PolicySpec
    text: str


def check_board(directory: Path, folder: Path) -> None:
    """DependencyError without tensorboard, OutputError if nothing could be written for it, before any work is done.

    directory: the log directory; folder: the one that is built or verified
    """
    shown = quoted(str(directory))
    try:
        import tensorboard.compat.proto.event_pb2
        import tensorboard.summary.writer.record_writer  # noqa: F401
    except ImportError as error:
        raise DependencyError(
            f"{OPTION} needs the package tensorboard, which can't be imported here ({one_line(str(error), 120)}); "
            f"`pip install 'graph2torch[tensorboard]'` installs it."
        ) from None
    try:
        if directory.resolve().is_relative_to(folder.resolve()):
            raise OutputError(f"{OPTION} {shown} lies in {quoted(str(folder))}, which holds the built policy alone; choose another folder.")
        above = next(p for p in (directory.absolute(), *directory.absolute().parents) if p.exists() or p.is_symlink())
        if not above.is_dir():
            raise OutputError(f"{OPTION} {shown} can't be a folder, because {quoted(str(above))} is none; choose another.")
        if not os.access(above, os.W_OK | os.X_OK):
            raise OutputError(f"{OPTION} {shown} can't be used, because nothing may be written to {quoted(str(above))}; choose another.")
    except OSError as error:
        raise OutputError(f"{OPTION} {shown} can't be used: {error.strerror or error}; choose another.") from None
    except (RuntimeError, ValueError) as error:  # symbolic links in a circle, an embedded null byte
        raise OutputError(f"{OPTION} {shown} is no usable path ({one_line(str(error), 80)}); choose another.") from None


# ---------------------------------------------------------------------------------------------- what is shown
def board_of_build(made: Build) -> Board:
    model, checkpoint = made.recognised.model, made.bindings.checkpoint
    given = checkpoint.step if checkpoint else None
    words = f" and {printable(checkpoint.path.name)} ({made.pair.verdict})" if checkpoint else ""
    return Board(
        _run(model.path, "build"),
        _step(given, model.path),
        tuple(of_build(made)),
        {b.path: b.value for b in made.bindings.tensors},
        made.spec,
        _text(f"built from {printable(model.path.name)}, sha256 {model.sha256}{words}", made.verification),
    )


def board_of_verification(found: Deep) -> Board:
    """Step and weights are those of the folder that was judged. FolderError if its weights can't be read."""
    from graph2torch.act.folder import open_folder

    checkpoint = open_folder(found.folder).report.get("checkpoint")
    given = checkpoint.get("step") if isinstance(checkpoint, dict) else None
    original = Path(found.original)
    return Board(
        _run(original, "verify"),
        _step(given, original),
        tuple(of_verification(found)),
        _weights(Path(found.folder) / "weights.safetensors"),
        found.spec,
        _text(f"{printable(found.folder)} against {printable(original.name)}, sha256 {found.sha256}", found.verification),
    )


def _run(model: Path, what: str) -> str:
    """As ML-Agents names its folders: by the behaviour, which its files are called after."""
    behavior = re.sub(r"-[0-9]{1,15}$", "", model.stem)
    return f"{file_name(behavior, 'policy')}/graph2torch-{what}"


def _step(given: object, model: Path) -> int:
    """The checkpoint's, else the one in the graph's name, else 0."""
    step = given if isinstance(given, int) and not isinstance(given, bool) else step_of(model)
    return step if step is not None and 0 <= step <= MAX_STEP else 0


def _weights(path: Path) -> dict[str, Array]:
    from safetensors.torch import load_file

    try:
        return {name: (t.float() if t.is_floating_point() else t).numpy() for name, t in load_file(path).items()}
    except Exception as error:  # safetensors raises its own kinds; model.py read them, so they are seldom
        raise FolderError(f"{quoted(str(path))} can't be read ({one_line(str(error), 120)}); build the folder again.") from None


def _text(what: str, checked: Verification) -> str:
    """An indented block, in which Markdown leaves everything as it is."""
    lines = [what, f"level {LEVELS.index(checked.level)} of {len(LEVELS) - 1}: {checked.level}"]
    lines += [printable(checked.reason, 600)] if checked.reason else []
    lines.append(f"{len(checked.runs)} runs in onnxruntime, seed {checked.seed}")
    return "\n".join(f"    {line}" for line in lines)


# ---------------------------------------------------------------------------------------------- writing it
def write_board(board: Board, directory: Path, besides: str = "") -> Path:
    """Writes one event file, whole or not at all, and gives its path. OutputError if that can't be done; `besides`: what it says more."""
    now = time.time()
    folder = directory.joinpath(*board.run.split("/"))
    path = folder / f"events.out.tfevents.{int(now):010}.graph2torch.{secrets.token_hex(4)}"
    data = events_of(board, now)
    missing = [p for p in (folder, *folder.parents) if not p.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(path, data, False, OPTION)
    except OSError as error:
        why = f"{OPTION} {quoted(str(folder))} can't be made: {error.strerror or error}; choose another."
        raise OutputError(f"{why} {printable(besides, 300)}".rstrip()) from None
    except OutputError as error:
        raise OutputError(f"{error} {printable(besides, 300)}".rstrip()) from None
    finally:
        for made in missing if not path.exists() else ():
            with suppress(OSError):  # somebody else put something there
                made.rmdir()
    return path


def events_of(board: Board, now: float) -> bytes:
    """The content of an event file. `now`: seconds since 1970."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    from .drawing import graph_of

    file = io.BytesIO()
    writer = RecordWriter(file)
    writer.write(Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
    writer.write(Event(wall_time=now, graph_def=graph_of(board.spec).SerializeToString()).SerializeToString())
    for found in _summaries(board):
        writer.write(Event(wall_time=now, step=board.step, summary=found).SerializeToString())
    return file.getvalue()


def _summaries(board: Board) -> Iterator[Any]:
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.scalar.metadata import create_summary_metadata
    from torch.utils.tensorboard import summary

    for scalar in board.scalars:
        about = create_summary_metadata(display_name="", description=printable(scalar.description, 300))
        yield Summary(value=[Summary.Value(tag=_utf8(scalar.tag), simple_value=scalar.value, metadata=about)])
    for path, tensor in board.weights.items():
        numbers = tensor[np.isfinite(tensor)]
        if numbers.size and tensor.dtype.kind == "f":  # a count is no distribution
            yield summary.histogram(_utf8(f"Weights/{printable(path, 200)}"), numbers, BINS)  # type: ignore[no-untyped-call]
        if lost := tensor.size - numbers.size:
            yield Summary(value=[Summary.Value(tag=_utf8(f"Weights not finite/{printable(path, 200)}"), simple_value=lost)])
    yield summary.text("graph2torch", _utf8(board.text))  # type: ignore[no-untyped-call]


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
