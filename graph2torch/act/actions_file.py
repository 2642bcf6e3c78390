"""Actions as files and as JSON: .npz, .json, .csv, .jsonl."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graph2torch.errors import OutputError
from graph2torch.text import quoted

if TYPE_CHECKING:
    from graph2torch.graph import Array

    from .run import Acted


def check_kind(path: Path) -> None:
    """OutputError for a name that no format belongs to."""
    if path.suffix.lower() not in WRITERS:
        raise OutputError(f"--output {quoted(str(path))} is of no known kind; end it in {', '.join(WRITERS)}.")


def written(path: Path, acted: Acted, document: Mapping[str, Any]) -> bytes:
    """What the file is to hold. `document`: what --json prints."""
    return WRITERS[path.suffix.lower()](acted, document)


def plain(value: Array) -> Any:
    """Nested lists; what JSON has no number for as text ("nan", "inf")."""
    if value.dtype.kind != "f" or np.isfinite(value).all():
        return value.tolist()
    return np.where(np.isfinite(value), value.astype(object), value.astype(str)).tolist()


def _npz(acted: Acted, _: Mapping[str, Any]) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **dict(acted.actions))  # type: ignore[arg-type]
    return stream.getvalue()


def _json(_: Acted, document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=1, allow_nan=False) + "\n").encode()


def _csv(acted: Acted, _: Mapping[str, Any]) -> bytes:
    """A line for each agent and step."""
    flat = {name: value.reshape(acted.steps, acted.batch, -1) for name, value in acted.actions.items()}
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["step", "agent", *(f"{name}_{i}" for name, value in flat.items() for i in range(value.shape[2]))])
    for step in range(acted.steps):
        for agent in range(acted.batch):
            rows.writerow([step, agent, *(number for value in flat.values() for number in value[step, agent].tolist())])
    return text.getvalue().encode()


def _jsonl(acted: Acted, _: Mapping[str, Any]) -> bytes:
    lines = [
        json.dumps({"step": step, "agent": agent} | {name: plain(value[step, agent]) for name, value in acted.actions.items()})
        for step in range(acted.steps)
        for agent in range(acted.batch)
    ]
    return ("\n".join(lines) + "\n").encode()


WRITERS: Mapping[str, Callable[[Acted, Mapping[str, Any]], bytes]] = {".npz": _npz, ".json": _json, ".csv": _csv, ".jsonl": _jsonl}
