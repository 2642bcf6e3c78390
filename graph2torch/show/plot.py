"""The figures of `bench` as a picture, by matplotlib, which is imported only here."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from graph2torch.errors import OutputError
from graph2torch.text import counted, printable, quoted

if TYPE_CHECKING:
    from graph2torch.bench import Bench

ENDINGS = (".svg", ".png")


def check_plot(path: Path) -> None:
    """OutputError, before anything is measured, if the ending is none that is drawn or matplotlib isn't there."""
    if path.suffix.lower() not in ENDINGS:
        raise OutputError(f"--plot {quoted(str(path))} is drawn as .svg or .png; end it in one of them.")
    try:
        import matplotlib as mpl  # noqa: F401
    except ImportError:
        raise OutputError("--plot takes matplotlib, which isn't installed: pip install 'graph2torch[plot]', or leave it out.") from None


def plot(found: Bench, kind: str) -> bytes:
    """Bars by batch and engine: the ratio to onnxruntime on the original, with its quartiles. `kind`: "svg" or "png"."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    groups = list(dict.fromkeys((row.batch, row.threads) for row in found.rows))
    engines = list(dict.fromkeys(row.engine for row in found.rows if row.timing))
    with mpl.rc_context({"svg.hashsalt": "graph2torch", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(max(6.0, 2.6 * len(groups)), 4.2), layout="constrained")
        axes = figure.subplots()
        width = 0.8 / max(1, len(engines))
        for number, engine in enumerate(engines):
            rows = {(row.batch, row.threads): row.timing for row in found.rows if row.engine == engine and row.timing}
            there = [(place, t) for place, group in enumerate(groups) if (t := rows.get(group))]
            places = [place + (number - (len(engines) - 1) / 2) * width for place, _ in there]
            ratios = [t.ratio for _, t in there]
            spread = [[max(0.0, t.ratio - t.ratio_q1) for _, t in there], [max(0.0, t.ratio_q3 - t.ratio) for _, t in there]]
            bars = axes.bar(places, ratios, width, yerr=spread, label=engine, error_kw={"linewidth": 0.8})
            axes.bar_label(bars, [f"{ratio:.2f}" for ratio in ratios], padding=2, fontsize=7)
        axes.axhline(1.0, color="black", linewidth=0.8, zorder=0)
        several = len({threads for _, threads in groups}) > 1
        axes.set_xticks(range(len(groups)), [f"batch {b:,}" + (f"\n{counted(t, 'thread')}" if several else "") for b, t in groups])
        axes.set_ylabel("time of a step ÷ onnxruntime's on the original")
        axes.set_title(printable(found.title, 100).replace("$", r"\$"), fontsize=9)
        axes.legend(fontsize=7, frameon=False)
        file = io.BytesIO()
        figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()
