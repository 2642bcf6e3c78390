"""How a policy fares with weights of half precision, as a part of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graph2torch.judge.precision import ACCEPTABLE, CHANGED, RECOMMENDED
from graph2torch.text import counted, printable

from .figures import figures_table
from .page import Page

if TYPE_CHECKING:
    from graph2torch.judge.precision import PrecisionCheck

COLOURS = {"recommended": "bold green", "acceptable": "bold yellow", "not advised": "bold red"}


def show_precision(page: Page, found: PrecisionCheck) -> None:
    """Prints the verdict, the figures against float32 and the original, and what was kept from overflowing."""
    page.heading(
        f"Weights in {found.dtype}{f', stored in {found.stored}' if found.dtype != found.stored != 'float32' else ''}",
        f"{found.verdict}: off by up to {found.error:.2g} · max(1, largest output) from float32"
        + (f", {found.changed:,} of {found.choices:,} discrete actions changed" if found.choices else "")
        + (f", {counted(found.not_finite, 'number')} NaN or infinite" if found.not_finite else ""),
        COLOURS[found.verdict],
    )
    if found.unlike:
        page.line(
            f"NOT the float32 network's weights rounded to {found.stored}: {printable(', '.join(found.unlike[:8]), 300)}", style="bold red"
        )
    elif found.rounded is not None:
        page.line(
            f"stored: {counted(found.rounded, 'tensor')}, each the float32 network's to the bit, layers' weights rounded to {found.stored}"
        )
    page.line("the torch module against itself in float32:")
    page.table(figures_table(found.against_float32), indent=4)
    page.line("and against the original in onnxruntime:")
    page.table(figures_table(found.against_original), indent=4)
    page.line(
        f"recommended up to {RECOMMENDED:g} with no discrete action changed, acceptable up to {ACCEPTABLE:g} and {CHANGED:.0%} of them; "
        f"observations, the normaliser, memory, noise and actions stay float32"
    )
    if found.overflow:
        page.line(f"cast as a whole it would not work: {printable(found.overflow, 300)}")
