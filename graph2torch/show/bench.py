"""What `bench` prints: a table for each batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graph2torch.text import counted, printable

from .page import Page

if TYPE_CHECKING:
    from graph2torch.bench import Bench, Row


def show_bench(found: Bench) -> None:
    """Prints latencies in microseconds, agents a second, and the ratio to onnxruntime on the original with its spread."""
    page = Page()
    page.title(f"{printable(found.title)}")
    versions = ", ".join(f"{name} {printable(version, 40)}" for name, version in found.versions.items())
    page.line(f"{versions}; CPU, 1 thread; {counted(found.rounds, 'round')}, the engines taking turns")
    if found.dtype != "float32":
        page.line(f"torch computes with weights in {found.dtype}, onnxruntime in float32")
    for name in found.changed:
        page.line(f"{printable(name)} changed since the build", style="yellow")
    for batch in dict.fromkeys(row.batch for row in found.rows):
        page.heading(f"Batch {batch:,}", "microseconds a step; ratio to onnxruntime on the original (least – largest of the rounds)")
        head = ("", "median", "p95", "p99", "first", "agents/s", "ratio")
        page.table([head, *(_cells(row) for row in found.rows if row.batch == batch and row.timing)])
        for row in found.rows:
            if row.batch == batch and row.timing is None:
                page.line(f"{row.engine}: not available: {printable(row.unavailable, 300)}", style="yellow")


def _cells(row: Row) -> tuple[str, ...]:
    assert row.timing is not None and row.throughput is not None
    t = row.timing
    times = (f"{seconds * 1e6:,.1f}" for seconds in (t.median, t.p95, t.p99, t.first))
    return (row.engine, *times, f"{row.throughput:,.0f}", f"{t.ratio:.2f} ({t.ratio_min:.2f} – {t.ratio_max:.2f})")
