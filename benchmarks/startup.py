"""Whole-process times of the commands, each against a process that only imports what the command needs.

    python benchmarks/startup.py [--repeats 10] [--json FILE]

Every command runs once unmeasured, then all of them in turn, `--repeats` times. The column `ratio` is that of the
medians, with the smallest and largest of a single round. Nothing is asserted; the targets stand beside the figures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measure import ROOT, interleaved, ratio, show, summary, table, versions, write_json

HUGGY = [str(ROOT / "assets" / name) for name in ("Huggy.onnx", "Huggy.pt")]
ENVIRONMENT = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def process(arguments: list[str], folder: str) -> Callable[[], float]:
    """Runs `python ARGUMENTS` in `folder` and gives the seconds it took."""

    def run() -> float:
        start = time.perf_counter()
        done = subprocess.run([sys.executable, *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - start
        if done.returncode:
            sys.exit(f"python {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        return seconds

    return run


def imported(arguments: list[str], folder: str, module: str) -> bool:
    """Whether `python ARGUMENTS` imports `module`, by Python's own list of imports."""
    command = [sys.executable, "-X", "importtime", *arguments]
    listed = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False).stderr
    return any(line.rpartition("|")[2].strip() == module for line in listed.splitlines() if line.startswith("import time:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    light, heavy = "import onnx, onnxruntime, onnx_graphsurgeon", "import torch, onnx, onnxruntime, onnx_graphsurgeon"
    pairs = {
        "--help": (["-m", "graph2torch", "--help"], "import typer", 2.0),
        "inspect Huggy.onnx": (["-m", "graph2torch", "inspect", HUGGY[0]], light, 2.5),
        "build Huggy.onnx Huggy.pt": (["-m", "graph2torch", "build", *HUGGY, "-o", "Huggy", "--force"], heavy, 1.6),
    }
    rows, document = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, (command, baseline, target) in pairs.items():
            seconds = interleaved({"mine": process(command, folder), "theirs": process(["-c", baseline], folder)}, options.repeats)
            mine, theirs, times = summary(seconds["mine"]), summary(seconds["theirs"]), ratio(seconds["mine"], seconds["theirs"])
            torch = imported(command, folder, "torch")
            rows.append([f"graph2torch {name}", show(mine), baseline, show(theirs), show(times), f"{target}", "yes" if torch else "no"])
            document.append(
                {
                    "command": f"graph2torch {name}",
                    "seconds": mine,
                    "baseline": baseline,
                    "baseline_seconds": theirs,
                    "ratio": times,
                    "target": target,
                    "imports_torch": torch,
                }
            )
    print(table(["command", "seconds", "python -c", "seconds", "ratio", "target", "torch imported"], rows))
    write_json(options.json, {"versions": versions("typer", "torch", "onnx", "onnxruntime", "onnx-graphsurgeon"), "startup": document})


if __name__ == "__main__":
    main()
