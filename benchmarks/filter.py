"""A policy as a filter: JSON lines a second through `graph2torch run FOLDER --observations -`, and how its memory grows.

    python -m benchmarks.filter [FOLDER of a build, default out/Huggy] [--lines 100000] [--sample] [--json FILE]

One process, one torch thread, one agent; every line is answered before the next is read. The rate leaves the start-up out:
it is that of the lines after the first tenth. The memory is the process's resident set after a tenth of the lines and at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

from .measure import ROOT, built_huggy, figure, table, versions, write_json


def resident(process: int) -> float:
    """MiB of a process (Linux)."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def seconds_of(process: int) -> float:
    """Processor time of a process (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        measured(built_huggy(options.folder, stack), options)


def measured(folder: Path, options: argparse.Namespace) -> None:
    contract = json.loads((folder / "report.json").read_text())["architecture"]
    rng = np.random.default_rng(0)
    sizes = {i["name"]: [d if isinstance(d, int) else 1 for d in i["shape"][1:]] for i in contract["inputs"] if i["kind"] == "observation"}
    lines = [
        json.dumps({name: rng.standard_normal(size).round(4).tolist() for name, size in sizes.items()}).encode() + b"\n" for _ in range(256)
    ]
    command = [sys.executable, str(ROOT / "cli.py"), "run", str(folder), "--observations", "-", *["--sample"] * options.sample]
    warm = max(1, options.lines // 10)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        writing, reading = process.stdin, process.stdout
        assert writing and reading

        def feed() -> None:
            for number in range(options.lines):
                writing.write(lines[number % len(lines)])
            writing.close()

        threading.Thread(target=feed, daemon=True).start()
        start, before, used = 0.0, 0.0, 0.0
        for number in range(options.lines):
            assert reading.readline()
            if number + 1 == warm:
                start, before, used = time.perf_counter(), resident(process.pid), seconds_of(process.pid)
            if number + 2 == options.lines:  # the process is still there
                elapsed, after, spent = time.perf_counter() - start, resident(process.pid), seconds_of(process.pid) - used
    count = options.lines - 1 - warm
    rows = [
        ["lines a second, by the clock", f"{count / elapsed:,.0f}"],
        ["lines a second of processor time", f"{count / spent:,.0f}"],
        [f"MiB after {warm:,} lines", f"{before:.1f}"],
        [f"MiB after {options.lines:,} lines", f"{after:.1f}"],
    ]
    print(table([folder.name, "sampled" if options.sample else "deterministic"], rows))
    figures = {"lines": options.lines, "by_clock": count / elapsed, "by_processor": count / spent, "mib": [before, after]}
    told = [
        figure(f"{folder.name}, of processor time", count / spent, unit="lines/s"),
        figure(f"{folder.name}, by the clock", count / elapsed, unit="lines/s"),
        figure(f"{folder.name}, memory grown", after - before, unit="MiB"),
    ]
    write_json(options.json, {"versions": versions("torch"), "sampled": options.sample, **figures, "figures": told})


if __name__ == "__main__":
    main()
