"""What `bench` prints: a table for each batch and number of threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graph2torch.text import counted, printable

from .page import Page

if TYPE_CHECKING:
    from graph2torch.bench import Bench, Row


def show_bench(found: Bench) -> None:
    """Prints latencies in microseconds, agents a second, and the ratio to onnxruntime on the original with its quartiles."""
    page = Page()
    page.title(f"{printable(found.title)}")
    versions = ", ".join(f"{name} {printable(version, 40)}" for name, version in found.versions.items())
    device = f" and {found.device}{', simulated' if found.simulated else ''}" if found.device else ""
    page.line(f"{versions}; CPU{device}; {counted(found.rounds, 'round')}, the engines taking turns")
    if found.dtype != "float32":
        page.line(f"torch computes with weights in {found.dtype}, onnxruntime in float32")
    for name in found.changed:
        page.line(f"{printable(name)} changed since the build", style="yellow")
    for batch, threads in dict.fromkeys((row.batch, row.threads) for row in found.rows):
        rows = [row for row in found.rows if (row.batch, row.threads) == (batch, threads)]
        page.heading(
            f"Batch {batch:,}, {counted(threads, 'thread')}",
            "microseconds a step; ratio to onnxruntime on the original (quartiles of the rounds)",
        )
        head = ("", "median", "p95", "p99", "first", "agents/s", "ratio")
        page.table([head, *(_cells(row) for row in rows if row.timing)])
        for row in rows:
            if row.timing is None:
                start = "" if row.unavailable.startswith("simulated") else "not available: "
                page.line(f"{row.engine}: {start}{printable(row.unavailable, 300)}", style="yellow")


def _cells(row: Row) -> tuple[str, ...]:
    assert row.timing is not None and row.throughput is not None
    t = row.timing
    times = (f"{seconds * 1e6:,.1f}" for seconds in (t.median, t.p95, t.p99, t.first))
    return (row.engine, *times, f"{row.throughput:,.0f}", f"{t.ratio:.2f} ({t.ratio_q1:.2f} – {t.ratio_q3:.2f})")
