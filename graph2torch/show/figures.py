"""Tables of how far outputs are from their reference, and what they were tried on, in words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from graph2torch.judge.figures import Figures
from graph2torch.text import printable


def runs_of(runs: Sequence[str]) -> str:
    """ "18 runs: batch 1, 3, 16; ordinary, zero inputs; optimiser on and off"."""
    parts = [m.groups() for run in runs if (m := re.fullmatch(r"batch (\d+) (.+), optimiser (on|off)", run))]
    if len(parts) < len(runs) or not runs:
        return f"{len(runs)} runs"
    batches, kinds, optimiser = (list(dict.fromkeys(column)) for column in zip(*parts, strict=True))
    return f"{len(runs)} runs: batch {', '.join(sorted(batches, key=int))}; {', '.join(kinds)} inputs; optimiser {' and '.join(sorted(optimiser, reverse=True))}"


def figures_table(figures: Sequence[Figures]) -> list[tuple[str, ...]]:
    """A table of those that differ, with its head."""
    rows = [
        (
            printable(f.output, 60),
            f"{f.differing:,} of {f.compared:,}",
            f"{f.max_abs:.2g}",
            ulps(f.max_ulps),
            _cosine(f.cosine),
        )
        for f in figures
        if f.differing
    ]
    return [("", "differing", "max abs", "ulp", "cosine"), *rows] if rows else []


def ulps(count: int | None) -> str:
    """Beyond a million (other signs, other magnitudes) the number says nothing."""
    return "–" if count is None else f"{count:,}" if count < 10**6 else "> 10⁶"


def _cosine(cosine: float | None) -> str:
    if cosine is None:
        return "–"
    return "1" if cosine == 1 else f"1 − {1 - cosine:.0e}" if cosine > 0.999 else f"{cosine:.4g}"
