"""What `report` and `diff --html` print: where the page is."""

from __future__ import annotations

from pathlib import Path

from graph2torch.text import printable

from .page import Page


def show_written(target: Path) -> None:
    Page().line(f"Written to {printable(str(target), 400)}", 0)
