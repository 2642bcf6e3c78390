"""What the benchmarks share: interleaved repeats, the median with its range, a table, and a JSON file."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def environment(cache: str) -> dict[str, str]:
    """For child processes: this checkout comes first; compiled modules are kept, as they usually are, in the folder `cache`; no device plugins."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return {**kept, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": cache, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def interleaved(cases: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Seconds of every case, `repeats` times round: what slows the machine down for a while hits all cases alike."""
    for run in cases.values():
        run()  # fills the caches
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, run in cases.items():
            seconds[name].append(run())
    return seconds


def summary(seconds: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(seconds), "min": min(seconds), "max": max(seconds), "repeats": len(seconds)}


def ratio(mine: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Of the medians, and of each round for itself: its smallest and largest."""
    rounds = [a / b for a, b in zip(mine, theirs, strict=True)]
    return {"medians": statistics.median(mine) / statistics.median(theirs), "min": min(rounds), "max": max(rounds)}


def figure(
    name: str, value: float, low: float | None = None, high: float | None = None, *, unit: str = "", target: float | None = None
) -> dict[str, Any]:
    """One figure of a benchmark, for `python -m benchmarks` to compare with an earlier one: the middle, smallest and largest of its repeats.

    unit: "s", "MiB", "lines/s" …, "" for a ratio; target: what it should not exceed, if anything
    """
    found = {"name": name, "value": value, "low": value if low is None else low, "high": value if high is None else high, "unit": unit}
    return found if target is None else {**found, "target": target}


def show(figures: Mapping[str, float], unit: float = 1.0, digits: int = 2) -> str:
    """`0.31 (0.30 – 0.35)`"""
    middle = figures.get("median", figures.get("medians", 0.0))
    return f"{middle * unit:.{digits}f} ({figures['min'] * unit:.{digits}f} – {figures['max'] * unit:.{digits}f})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns padded with spaces; the first `left` to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [
        "  ".join(cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        for row in (head, *rows)
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def versions(*packages: str) -> dict[str, str]:
    """Of Python, the machine's kind, and those of `packages` that are installed."""
    wanted = {re.sub(r"[-_.]+", "-", package).lower() for package in packages}
    installed = {re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower(): d.version for d in distributions()}
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        **{name: number for name, number in sorted(installed.items()) if name in wanted},
    }


def processor() -> str:
    """The processor's name, as far as the system tells."""
    cpus = Path("/proc/cpuinfo")
    told = re.search(r"^model name\s*:\s*(.+)$", cpus.read_text(), re.MULTILINE) if cpus.exists() else None
    return f"{told.group(1) if told else platform.processor() or 'not told'}, {os.cpu_count()} cores"


def built_huggy(folder: Path | None, stack: contextlib.ExitStack) -> Path:
    """`folder`, or where there is none given, out/Huggy; if that isn't there, a build of the pair in assets/, in a folder that `stack` removes."""
    if folder is not None:
        return folder
    if (usual := ROOT / "out" / "Huggy").is_dir():
        return usual
    from graph2torch.build import build

    made = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "Huggy"
    build(ROOT / "assets" / "Huggy.onnx", ROOT / "assets" / "Huggy.pt", made)
    return made


def write_json(path: Path | None, document: Any) -> None:
    if path is not None:
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
