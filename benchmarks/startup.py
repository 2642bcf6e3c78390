"""Whole-process times of the commands, each against a process that only imports what the command needs.

    python -m benchmarks.startup [--repeats 10] [--json FILE]

Every command runs once unmeasured, then it and its baseline in turn, `--repeats` times. Ratios are those of the medians,
with the smallest and largest of a single round; that of the processor's time is steadier than that of the clock when
the machine has other things to do. Nothing is asserted; the targets stand beside the figures.
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

from .measure import ROOT, environment, figure, interleaved, ratio, show, summary, table, versions, write_json

HUGGY = [str(ROOT / "assets" / name) for name in ("Huggy.onnx", "Huggy.pt")]


def process(arguments: list[str], folder: str, processor: list[float], allowed: tuple[int, ...] = (0,)) -> Callable[[], float]:
    """Runs `python ARGUMENTS` in `folder` and gives the seconds it took; those of the processor go to `processor`.

    allowed: exit statuses that are no error
    """

    def run() -> float:
        with tempfile.TemporaryFile() as output:
            start = time.perf_counter()
            child = subprocess.Popen(
                [sys.executable, *arguments], cwd=folder, env=environment(f"{folder}/cache"), stdout=output, stderr=output
            )
            _, status, usage = os.wait4(child.pid, 0)
            seconds = time.perf_counter() - start
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode not in allowed:
                output.seek(0)
                sys.exit(f"python {' '.join(arguments)} ended with {child.returncode}: {output.read().decode()[-500:]}")
        processor.append(usage.ru_utime + usage.ru_stime)
        return seconds

    return run


def another_huggy(path: Path) -> None:
    """Huggy with every weight a little larger, as at another step."""
    import numpy as np
    import onnx
    from onnx import numpy_helper

    model = onnx.load(HUGGY[0])
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32 and array.size > 1:
            tensor.CopyFrom(numpy_helper.from_array(array * np.float32(1.001), tensor.name))
    path.write_bytes(model.SerializeToString())


def imported(arguments: list[str], folder: str, module: str) -> bool:
    """Whether `python ARGUMENTS` imports `module`, by Python's own list of imports."""
    command = [sys.executable, "-X", "importtime", *arguments]
    listed = subprocess.run(command, cwd=folder, env=environment(f"{folder}/cache"), capture_output=True, text=True, check=False).stderr
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
        "diff Huggy.onnx other.onnx": (["-m", "graph2torch", "diff", HUGGY[0], "other.onnx"], light, 2.5),
        "build Huggy.onnx Huggy.pt": (["-m", "graph2torch", "build", *HUGGY, "-o", "Huggy", "--force"], heavy, 1.6),
        "run Huggy": (["-m", "graph2torch", "run", "Huggy"], "import torch, safetensors", 1.5),  # which build wrote
    }
    rows, document = [], []
    with tempfile.TemporaryDirectory() as folder:
        another_huggy(Path(folder, "other.onnx"))
        for name, (command, baseline, target) in pairs.items():
            cpu: list[list[float]] = [[], []]
            runs = {
                "mine": process(command, folder, cpu[0], (0, 1) if "diff" in command else (0,)),
                "theirs": process(["-c", baseline], folder, cpu[1]),
            }
            seconds = interleaved(runs, options.repeats)
            clock, processor = ratio(seconds["mine"], seconds["theirs"]), ratio(cpu[0][1:], cpu[1][1:])
            torch = imported(command, folder, "torch")
            mine, theirs = summary(seconds["mine"]), summary(seconds["theirs"])
            rows.append([name, show(mine), show(theirs), show(clock), show(processor), f"{target}", "yes" if torch else "no"])
            document.append(
                {
                    "command": f"graph2torch {name}",
                    "seconds": mine,
                    "baseline": baseline,
                    "baseline_seconds": theirs,
                    "ratio": clock,
                    "processor_ratio": processor,
                    "target": target,
                    "imports_torch": torch,
                }
            )
    for name, (_, baseline, _) in pairs.items():
        print(f'{name}: beside python -c "{baseline}"')
    print()
    print(table(["graph2torch", "seconds", "imports alone", "ratio", "of processor time", "target", "imports torch"], rows))
    figures = []
    for told in document:
        for name, kind in (("processor_ratio", "processor time"), ("ratio", "by the clock")):
            r = told[name]
            name = f"{told['command']}: {kind}, of the imports alone"
            figures.append(figure(name, r["medians"], r["min"], r["max"], target=told["target"] if kind == "processor time" else None))
    used = versions("typer", "torch", "onnx", "onnxruntime", "onnx-graphsurgeon")
    write_json(options.json, {"versions": used, "startup": document, "figures": figures})


if __name__ == "__main__":
    main()
