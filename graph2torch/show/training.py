"""What `inspect` prints of the folder of a training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graph2torch.text import counted, printable
from graph2torch.training.run_folder import REWARD
from graph2torch.training.status import FILE

from .page import Page, shortly

MAX_SHOWN = 40  # checkpoints, and curves
SPARKS = "▁▂▃▄▅▆▇█"


def show_training(page: Page, found: Mapping[str, Any]) -> None:
    """Prints what `inspect_run` found."""
    versions = [f"{name} {printable(found[key], 40)}" for key, name in (("mlagents", "mlagents"), ("torch", "torch")) if found[key]]
    page.title(f"{printable(found['folder'])}: a training" + (f" with {', '.join(versions)}" if versions else ""))
    for behavior in found["behaviors"]:
        _show_behavior(page, behavior)
    if found["lessons"]:
        page.heading("Lessons")
        page.table([(printable(name, 60), f"{lesson:,}") for name, lesson in found["lessons"].items()])
    trouble = [f"{printable(file['file'], 80)} {text}" for b in found["behaviors"] for file in b["event_files"] for text in file["trouble"]]
    page.warnings([*(printable(text, 300) for text in found["trouble"]), *trouble])


def _show_behavior(page: Page, b: Mapping[str, Any]) -> None:
    told = [printable(b["trainer"], 40) if b["trainer"] else "", f"max_steps {b['max_steps']:,}" if b["max_steps"] is not None else ""]
    told.append(f"Elo {shortly(b['elo'])}" if b["elo"] is not None else "")
    page.heading(printable(b["name"], 80), ", ".join(text for text in told if text))
    curve = next((c for c in b["curves"] if c["tag"] == REWARD), None)
    if curve:
        page.line(
            f"reward {shortly(curve['first'])} at step {curve['first_step']:,}, {shortly(curve['last'])} at step {curve['last_step']:,}, "
            f"highest {shortly(curve['max'])}, in {counted(curve['points'], 'point')}: {sparks([value for _, value in b['reward']])}"
        )
    elif b["event_files"]:
        page.line(f"no curve {REWARD} in its event files")
    else:
        page.line("no event files")
    _show_checkpoints(page, b)
    others = [c for c in b["curves"] if c["tag"] != REWARD]
    if others:
        page.line("the other curves, first and last value:")
        page.table(
            [
                (
                    printable(c["tag"], 60),
                    _number(c["first"]),
                    "" if c["points"] == 1 else f"→ {_number(c['last'])}",
                    counted(c["points"], "point"),
                )
                for c in others[:MAX_SHOWN]
            ],
            indent=4,
        )
        _more(page, len(others), "curves")


def _show_checkpoints(page: Page, b: Mapping[str, Any]) -> None:
    checkpoints = b["checkpoints"]
    if not checkpoints:
        page.line("no checkpoints with a step in their names")
    else:
        page.line(f"{counted(len(checkpoints), 'checkpoint')}; the reward as {FILE} notes it, and by the event files:")
        rows = [("step", "reward", "by the curve", "", "files")]
        page.table([*rows, *(_checkpoint(c) for c in checkpoints[-MAX_SHOWN:])], indent=4)
        _more(page, len(checkpoints), "checkpoints before them")
    if b["unnumbered"]:
        page.line(f"without a step in the name: {printable(', '.join(b['unnumbered']), 200)}")


def _checkpoint(c: Mapping[str, Any]) -> tuple[str, ...]:
    curve = f"{shortly(c['curve']['value'])} at {c['curve']['step']:,}" if c["curve"] else "–"
    marks = ", ".join(word for word in ("final", "best") if c[word])
    return f"{c['step']:,}", shortly(c["reward"]), curve, marks, files_of(c)


def files_of(c: Mapping[str, Any]) -> str:
    """`Huggy-5000.onnx, .pt`: those of one stem together; missing ones are named as such."""
    texts: list[str] = []
    for missing, names in ((False, c["files"]), (True, c["missing"])):
        stems: dict[str, list[str]] = {}
        for name in names:
            stems.setdefault(Path(name).stem, []).append(Path(name).suffix)
        joined = ", ".join(printable(f"{stem}{', '.join(sorted(ends))}", 80) for stem, ends in stems.items())
        if joined:
            texts.append(f"no longer there: {joined}" if missing else joined)
    return "; ".join(texts)


def _number(value: float | str) -> str:
    """A count without an exponent."""
    return f"{value:,.0f}" if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else shortly(value)


def _more(page: Page, count: int, what: str) -> None:
    if count > MAX_SHOWN:
        page.line(f"and {count - MAX_SHOWN:,} more {what}; --json has all", indent=4)


def sparks(values: list[Any], width: int = 40) -> str:
    """A curve in block characters, at most `width`: the mean of the finite numbers in each part of it."""
    parts = min(len(values), width)
    means = []
    for part in range(parts):
        own = [v for v in values[part * len(values) // parts : (part + 1) * len(values) // parts] if not isinstance(v, str)]
        means.append(sum(own) / len(own) if own else None)
    numbers = [m for m in means if m is not None]
    if not numbers:
        return ""
    low, span = min(numbers), max(numbers) - min(numbers)
    top = len(SPARKS) - 1
    return "".join(" " if m is None else SPARKS[round((m - low) / span * top) if span else 0] for m in means)
