"""What `export` prints: what was made, what it lacks, and how equal it is to the original."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from graph2torch.judge.verify import EQUAL
from graph2torch.text import printable

if TYPE_CHECKING:
    from graph2torch.target.target import Exported

from .figures import figures_table, runs_of
from .page import Page

WORDS = {
    "graph": "operator by operator the same computation as the original's on the same numbers; and the same bits on everything tried",
    "bits": "the same bits on everything tried; on other inputs they may differ",
    "differs": "other numbers than the original's",
}


def show_export(made: Exported, output: Path) -> None:
    """Prints an export; `output` was written if it is equal."""
    page, target, found = Page(), made.target, made.comparison
    size = f"{len(made.data) / 1e6:.2f} MB"
    kind = (
        f"opset {made.opset}, {made.nodes[1]} nodes (the original: {made.nodes[0]}), {target.exporter} exporter"
        if made.opset
        else target.kind
    )
    page.title(f"{printable(str(output))}  {kind}, {size}")
    page.line(f"outputs: {', '.join(printable(name, 60) for name in made.kept)}")
    if made.left_out:
        page.line(f"left out: {', '.join(printable(name, 60) for name in made.left_out)}")
    if made.removed:
        page.line(f"inputs that nothing needs any more: {', '.join(printable(name, 60) for name in made.removed)}")
    if target.deterministic_only and not made.left_out:
        page.line("nothing is drawn at random, so nothing was left out")
    if target.batch is not None:
        page.line(f"for {target.batch} agents at a time, fixed")
    if made.noise:
        page.line(f"draws are inputs, behind the observations: {', '.join(made.noise)}")
    if target.fp16:
        page.line(f"{made.halves} nodes compute in float16; inputs, outputs, normaliser, recurrent layers and actions are float32")
    if made.stored != "float32":
        page.line(f"weights are the folder's, which were rounded to {made.stored}")
    if made.changed:
        page.line(f"changed since the build: {', '.join(made.changed)}; what is there now was exported", style="bold yellow")
    bound = f"{target.allowed:g} · max(1, largest output)"
    words = f"within {bound} on everything tried, but not the same bits" if found.level == "close" else WORDS[found.level]
    page.heading("Equality", f"{found.level}: {words}", "bold green" if found.level in EQUAL or found.level == "close" else "bold red")
    if found.reason:
        page.line(found.reason)
    page.line(f"on {runs_of(found.runs)}")
    if made.opset is None:
        page.line("loaded again from the file, against the torch module:")
        page.table(figures_table(found.against_module) or [("all bit-equal",)], indent=4)
    page.line("against the original, in onnxruntime:" if made.opset else "and against the original in onnxruntime:")
    page.table(figures_table(found.against_original) or [("all bit-equal",)], indent=4)
    page.gap()
    if made.equal:
        page.line(f"Written to {printable(str(output))}", 0, "bold")
    else:
        page.line(f"Exit status 1: off by more than {bound}, so nothing was written.", 0, "bold red")
