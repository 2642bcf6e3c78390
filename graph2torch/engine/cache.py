"""What was compiled and what was measured, kept for the next time in the user's own cache folder.

A compiled policy is machine code, and a built folder may come from anybody, so nothing compiled is ever read from there. It lies in
`~/.cache/graph2torch` (GRAPH2TORCH_CACHE names another place), which must belong to the user and be writable by nobody else, under a
name made of everything that it was made from, and is loaded only if its bytes still have the SHA-256 that was noted.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from graph2torch.errors import EngineError, OutputError
from graph2torch.files import write_file
from graph2torch.text import one_line, quoted

KEPT = 64  # compiled policies; the oldest go
MAX_NOTE = 2**20  # bytes


def place() -> Path:
    """The cache folder; it need not be there."""
    if given := os.environ.get("GRAPH2TORCH_CACHE"):
        return Path(given).absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "graph2torch"
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "graph2torch"


def folder(name: str) -> Path:
    """The folder `name` in the cache, made if it isn't there. EngineError if others could write to it."""
    try:
        path = place()
    except RuntimeError:  # no HOME, and a user that the system doesn't know
        raise EngineError("There is no home folder for a cache; name a folder for it in GRAPH2TORCH_CACHE.") from None
    try:
        for made in (path, path / name):
            made.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_own(made)
    except OSError as error:
        raise EngineError(
            f"The cache {quoted(str(path))} can't be used ({error.strerror or error}); name another folder in GRAPH2TORCH_CACHE."
        ) from None
    return path / name


def _check_own(path: Path) -> None:
    """EngineError if somebody else owns the folder or may write to it, and so could put code there that would be run."""
    if not hasattr(os, "getuid"):
        return
    told = path.stat()
    if told.st_uid != os.getuid() or told.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise EngineError(
            f"The cache {quoted(str(path))} belongs to somebody else, or others may write to it, so what lies there is not run. "
            "Make it yours alone (chmod 700), or name another folder in GRAPH2TORCH_CACHE."
        )


def digest(key: Mapping[str, Any]) -> str:
    """The name for what was made from `key`."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


# ---------------------------------------------------------------------------------------------- compiled policies
def find(key: Mapping[str, Any]) -> tuple[bytes, Mapping[str, Any]] | None:
    """What was compiled from `key`, with the note beside it; None if there is none, or not as it was written."""
    path = folder("compiled") / f"{digest(key)}.pt2"
    note = _note(path.with_suffix(".json"))
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if note.get("key") != key or note.get("sha256") != hashlib.sha256(data).hexdigest():
        return None
    with suppress(OSError):
        os.utime(path)  # used last
    return data, note


def keep(key: Mapping[str, Any], data: bytes, more: Mapping[str, Any]) -> None:
    """Keeps what was compiled from `key`; a cache that can't be written is no trouble, it is compiled again the next time."""
    path = folder("compiled") / f"{digest(key)}.pt2"
    note = {**more, "key": key, "sha256": hashlib.sha256(data).hexdigest()}
    with suppress(OutputError):
        write_file(path, data, True, "the cache")
        write_file(path.with_suffix(".json"), json.dumps(note, indent=1).encode(), True, "the cache")
    with suppress(OSError):
        for old in sorted(path.parent.glob("*.pt2"), key=lambda p: p.stat().st_mtime)[:-KEPT]:
            old.unlink()
            old.with_suffix(".json").unlink(missing_ok=True)


# ---------------------------------------------------------------------------------------------- measurements
def remember(key: Mapping[str, Any], seconds: Mapping[str, float]) -> None:
    """Notes the median seconds of a step by engine, of those that gave what the original gives."""
    path = folder("measured") / f"{digest(key)}.json"
    with suppress(OutputError):
        write_file(path, json.dumps({"key": key, "seconds": dict(seconds)}, indent=1).encode(), True, "the cache")


def measured(key: Mapping[str, Any]) -> Mapping[str, float]:
    """Engine → seconds of a step as `bench` noted them; empty if nothing was measured."""
    note = _note(folder("measured") / f"{digest(key)}.json")
    seconds = note.get("seconds") if note.get("key") == key else None
    if not isinstance(seconds, dict):
        return {}
    return {str(name): value for name, value in seconds.items() if isinstance(value, float) and 0 < value < math.inf}


def _note(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MAX_NOTE))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def told(error: Exception) -> str:
    """An error of a library in one line."""
    return f"{type(error).__name__}: {one_line(str(error), 200)}"
