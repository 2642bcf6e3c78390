"""What `selftest` prints: the cases by group, and how many went how."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from graph2torch.text import printable

from .page import Page

if TYPE_CHECKING:
    from graph2torch.selftest.selftest import Result, SelfTest

MARKS = {"passed": "passed", "failed": "FAILED", "not applicable": "–", "measured": "measured"}


def show_selftest(found: SelfTest) -> None:
    """Prints a table for each group; a failed case with what was expected and what was found."""
    page = Page()
    page.title(f"{printable(found.folder)}: {printable(found.title)}")
    versions = ", ".join(f"{name} {printable(str(version), 40)}" for name, version in found.versions.items())
    weights = "" if found.dtype == "float32" else f"weights in {found.dtype}; "
    threads = "" if found.threads == 1 else f"{found.threads} threads; "
    page.line(f"on {found.device}{', simulated' if found.simulated else ''}; {weights}{threads}seed {found.seed}; {versions}")
    for group, results in groupby(found.results, key=lambda result: result.group):
        page.heading(group.capitalize())
        page.table([(MARKS[r.status], r.name, _said(r)) for r in results])
    counts = ", ".join(f"{count} {status}" for status, count in found.counts.items() if count)
    page.heading("Self test", f"{len(found.results)} cases: {counts}", "bold green" if found.passed else "bold red")


def _said(result: Result) -> str:
    if result.status == "failed":
        return printable(f"expected {result.expected}; found {result.found}", 640)
    return printable(result.said, 320)
