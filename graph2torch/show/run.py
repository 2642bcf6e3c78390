"""What `run` prints of actions and of fingerprints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graph2torch.text import counted, printable

from .page import Page

SHOWN = 8  # rows


def show_actions(found: dict[str, Any]) -> None:
    """Prints the document that --json prints, shortened."""
    page = Page()
    _head(page, found)
    for name, steps in found["actions"].items():
        page.heading(printable(name))
        rows = [
            (f"step {s}" if found["steps"] > 1 else "", f"agent {a}", _numbers(row))
            for s, step in enumerate(steps)
            for a, row in enumerate(step)
        ]
        page.table(rows[:SHOWN])
        if len(rows) > SHOWN:
            page.line(f"and {len(rows) - SHOWN:,} more rows: --output FILE or --json gives all")


def show_fingerprint(found: dict[str, Any]) -> None:
    page = Page()
    _head(page, found)
    mark = found["fingerprint"]
    page.heading("Fingerprint", f"of {counted(mark['numbers'], 'number')}")
    page.table([("exact", mark["exact"]), ("tolerant", mark["tolerant"] or "none: some action is NaN or infinite")])
    if mark["agrees"] is not None:
        page.heading("Expected", "the same" if mark["agrees"] else "another", "bold green" if mark["agrees"] else "bold red")
        page.line(printable(mark["expected"]))


def _head(page: Page, found: dict[str, Any]) -> None:
    page.title(f"{printable(found['policy'])}: {printable(found['title'])}")
    how = f"sampled with seed {found['seed']}" if found["sampled"] else "deterministic"
    drawn = f", drawn with seed {found['seed']}" if found["observations"] == "random" else ""
    group = "all agents at once" if not found["group"] else f"{counted(found['group'], 'agent')} at a time"
    engine = "" if found["engine"] == "eager" else f", engine {found['engine']}"
    page.table(
        [
            ("actions", f"{how}, {counted(found['steps'], 'step')} of {counted(found['batch'], 'agent')}"),
            ("observations", f"{printable(found['observations'])}{drawn}"),
            (
                "computed",
                f"on {found['device']}{', simulated,' if found['simulated'] else ''} in {_precision(found)}, {counted(found['threads'], 'thread')}, {group}, torch {found['torch']}{engine}",
            ),
            *(("engine", printable(choice, 300)) for choice in found["engine_choices"]),
        ]
    )


def _precision(found: dict[str, Any]) -> str:
    """`float32`; `float32, weights rounded to float16` where other weights are stored than asked for."""
    rounded = found["stored"] != "float32" and found["stored"] != found["dtype"]
    return f"{found['dtype']}{', weights rounded to ' + found['stored'] if rounded else ''}"


def _numbers(row: Any) -> str:
    flat: list[Any] = []
    todo: list[Any] = [row]
    while todo:
        value = todo.pop()
        if isinstance(value, Sequence) and not isinstance(value, str):
            todo += reversed(value)
        else:
            flat.append(value)
    return "  ".join(f"{x:.6f}" if isinstance(x, float) else str(x) for x in flat[:64]) + (" …" if len(flat) > 64 else "")
