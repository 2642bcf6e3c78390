"""The page that every command prints on: rich on a terminal, plain text 100 columns wide when piped.

Nothing that comes from a file is ever taken for markup: names pass through `printable` and are printed as they are.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from graph2torch.text import printable

WIDTH = 100  # when piped
WEIGHED = 100  # rows of a table, up to which it is tried how wide its columns are best


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """The command line decides what to do; rich would end with status 1, which means "different" here."""
        raise BrokenPipeError


class Page:
    """Lines, headings and tables on stdout. What it is given must be `printable` already."""

    def __init__(self) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an arrow that the terminal's encoding lacks is no reason to fail
        self.console = _Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False, markup=False, emoji=False)
        self.started = False

    def title(self, text: str, style: str = "bold") -> None:
        """A blank line, then a line of its own."""
        self.gap()
        self.line(text, 0, style)

    def heading(self, label: str, text: str = "", style: str = "") -> None:
        """A blank line, then the label and what belongs to it."""
        self.gap()
        self.wrapped(Text.assemble((label, "bold cyan"), "  " if text else "", (text, style)), 0, 2)

    def gap(self) -> None:
        if self.started:
            self.console.print()
        self.started = True

    def line(self, text: str, indent: int = 2, style: str = "") -> None:
        """`text`, wrapped; what is wrapped stands two columns further in."""
        self.wrapped(Text(text, style), indent, indent + 2)

    def table(self, rows: Sequence[Sequence[str]], indent: int = 2) -> None:
        """Columns as wide as they must be, the last one wrapped; empty columns are left out.

        In a row too wide for that, the last cell stands below the others; and in one with an unusually wide cell, where otherwise too
        little were left for the last column of all rows.
        """
        used = [i for i in range(len(rows[0])) if any(row[i] for row in rows)] if rows else []
        cells = [[row[i] for i in used] for row in rows if used]
        widths = self._widths(cells, indent)
        start = indent + sum(widths) + 2 * len(widths)
        for *firsts, last in cells:
            if _fits(firsts, last, widths, self.console.width - start):
                aligned = (cell + " " * (width + 2 - cell_len(cell)) for cell, width in zip(firsts, widths, strict=True))
                self.wrapped(Text(last), indent, start, Text("".join(aligned)))
            else:
                for text, place in (("  ".join(filter(None, firsts)), indent), (last, indent + 4)):
                    if text:
                        self.line(text, place)

    def _widths(self, cells: Sequence[Sequence[str]], indent: int) -> list[int]:
        """Of all columns but the last: as wide as their widest cells, or narrower, widest first, if that takes fewer lines in all."""
        lengths = [sorted({cell_len(cell) for cell in column}) for column in list(zip(*cells, strict=True))[:-1]]
        widths = [column[-1] for column in lengths]
        best, fewest = widths, math.inf
        while len(cells) <= WEIGHED:
            room = self.console.width - indent - sum(widths) - 2 * len(widths)
            lines = 0
            for *firsts, last in cells:
                if _fits(firsts, last, widths, room):
                    lines += _lines(last, room)
                else:
                    lines += 1 + _lines("  ".join(filter(None, firsts)), self.console.width - indent - 2)  # 1 for what is not aligned
                    lines += _lines(last, self.console.width - indent - 6) if last else 0
            if lines < fewest:
                best, fewest = widths, lines
            widest = max((i for i, column in enumerate(lengths) if len(column) > 1), key=lambda i: lengths[i][-1], default=None)
            if lines == len(cells) or widest is None:
                break
            lengths[widest].pop()
            widths = [column[-1] for column in lengths]
        return best

    def wrapped(self, text: Text, indent: int, rest: int, head: Text | None = None) -> None:
        """A paragraph: `head` and the first line at column `indent`, the further lines at column `rest`."""
        room = max(self.console.width - max(indent, rest), 1)
        for i, part in enumerate(text.wrap(self.console, room) or [Text()]):
            line = Text.assemble(" " * (rest if i else indent), head or "" if i == 0 else "", part)
            line.rstrip()
            if line or i == 0:
                self.console.print(line, soft_wrap=True)

    def odd(self, texts: Sequence[str], looked_for: str = "NaN and infinity") -> None:
        self.heading("Odd values", "" if texts else f"none ({looked_for} were looked for)", "" if texts else "green")
        for text in texts:
            self.line(text, style="yellow")

    def warnings(self, texts: Sequence[str]) -> None:
        if texts:
            self.heading("Warnings")
            for text in texts:
                self.line(text, style="yellow")


def _fits(firsts: Sequence[str], last: str, widths: Sequence[int], room: int) -> bool:
    """Whether a row can be aligned with others: its cells are no wider than the columns, and no word of the last than its room."""
    aligned = all(cell_len(cell) <= width for cell, width in zip(firsts, widths, strict=True))
    return aligned and max(map(cell_len, last.split()), default=0) <= room


def _lines(text: str, room: int) -> int:
    """How many lines a text takes, broken between words."""
    lines, used = 1, 0
    for word in text.split():
        length = cell_len(word)
        if used and used + 1 + length > room:
            lines, used = lines + 1, length
        else:
            used += length + bool(used)
    return lines


def megabytes(found: Mapping[str, Any]) -> str:
    return f"{found['megabytes']:.2f} MB ({found['bytes']:,} bytes)"


def sizes_of(shape: Sequence[int | str | None]) -> str:
    return "[" + ", ".join("?" if d is None else printable(str(d), 16) for d in shape) + "]"


def fixed_values(values: Sequence[Any] | None, limit: int = 8) -> str:
    """`= 3` for one number, `= [2, 3]` for several."""
    if values is None:
        return ""
    shown = [shortly(v) for v in values[:limit]] + (["…"] if len(values) > limit else [])
    return f"= {shown[0]}" if len(values) == 1 else f"= [{', '.join(shown)}]"


def spread_of(found: Mapping[str, Any]) -> str:
    """`0.001 … 2, median 1`."""
    if found["min"] is None:
        return "no finite number"
    middle = [f", {name} {shortly(found[name])}" for name in ("median", "mean") if name in found]
    return f"{shortly(found['min'])} … {shortly(found['max'])}{''.join(middle)}"


def shortly(value: float | str | None) -> str:
    return "–" if value is None else value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
