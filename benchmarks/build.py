"""In-process time of a build after the imports: the first call, later calls, and where the time goes.

    python -m benchmarks.build [MODEL.onnx [CHECKPOINT.pt]] [--processes 5] [--repeats 10] [--json FILE]

The first call is measured in fresh processes, because torch's exporter and onnxruntime set themselves up in it; the
later calls follow in the same processes. Each stage's time is without that of the stages inside it. Writing is done to
a temporary folder, with the fsync of a real build. The last row is the processor's time of the whole call, which is
steadier than the clock's when the machine has other things to do. Nothing is asserted; the target is 0.5 s, verification
included.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from .measure import ROOT, environment, figure, show, summary, table, versions, write_json

TARGET = 0.5
# stage → where the function is looked up when a build calls it
STAGES = {
    "load": ("graph2torch.recognise", "load"),
    "rules": ("graph2torch.recognise", "load_rules"),
    "canonicalise": ("graph2torch.recognise", "canonicalise"),
    "canonicalise the copy": ("graph2torch.build", "canonicalise"),
    "recognise": ("graph2torch.rulebook", "RuleBook.recognise"),
    "checkpoint": ("graph2torch.build", "load_checkpoint"),
    "bind": ("graph2torch.build", "bind"),
    "emit": ("graph2torch.build", "emit"),
    "module": ("graph2torch.module", "build_module"),
    "export": ("graph2torch.export", "export"),
    "align": ("graph2torch.judge.isomorphism", "align"),
    "verify": ("graph2torch.judge.verify", "verify"),
    "write": ("graph2torch.build", "write"),
}


class Clock:
    """Seconds by stage; a stage inside another is taken off the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.inside: list[float] = []

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.inside.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                took = time.perf_counter() - start
                self.seconds[stage] = self.seconds.get(stage, 0.0) + took - self.inside.pop()
                if self.inside:
                    self.inside[-1] += took

        return run

    def install(self) -> None:
        for stage, (module, path) in STAGES.items():
            holder: Any = importlib.import_module(module)
            *outer, name = path.split(".")
            for attribute in outer:
                holder = getattr(holder, attribute)
            setattr(holder, name, self.timed(stage, getattr(holder, name)))


def measured(model: str, checkpoint: str | None, repeats: int) -> list[dict[str, float]]:
    """One fresh process: the first call and `repeats` later ones, each by stage and as a `total`."""
    import onnx
    import onnx_graphsurgeon
    import onnxruntime
    import torch

    assert all((onnx, onnx_graphsurgeon, onnxruntime, torch))
    clock = Clock()
    clock.install()
    build = importlib.import_module("graph2torch.build").build
    calls = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(1 + repeats):
            clock.seconds = {}
            start, processor = time.perf_counter(), time.process_time()
            build(model, checkpoint, Path(folder) / "out", force=True)
            total = time.perf_counter() - start
            cpu = time.process_time() - processor
            calls.append({**clock.seconds, "other": total - sum(clock.seconds.values()), "total": total, "processor": cpu})
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", nargs="?", default=str(ROOT / "assets" / "Huggy.onnx"))
    parser.add_argument("checkpoint", nargs="?")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    checkpoint = options.checkpoint
    if checkpoint is None and options.model == str(ROOT / "assets" / "Huggy.onnx"):
        checkpoint = str(ROOT / "assets" / "Huggy.pt")
    if options.one:
        print(json.dumps(measured(options.model, checkpoint, options.repeats)))
        return
    first, later = [], []
    cache = tempfile.TemporaryDirectory()
    for number in range(options.processes + 1):  # the first one fills the cache of compiled modules
        command = [
            sys.executable,
            "-m",
            "benchmarks.build",
            options.model,
            *([checkpoint] if checkpoint else []),
            "--one",
            "--repeats",
            str(options.repeats),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment(cache.name), cwd=ROOT)
        calls = json.loads(done.stdout.splitlines()[-1])
        if number:
            first.append(calls[0])
            later += calls[1:]
    stages = [*STAGES, "other", "total", "processor"]
    figures = {s: {"first": summary([c.get(s, 0.0) for c in first]), "later": summary([c.get(s, 0.0) for c in later])} for s in stages}
    print(
        f"{Path(options.model).name}: {len(first)} first calls, {len(later)} later ones; milliseconds, median (min – max); target {TARGET * 1000:.0f}"
    )
    print(
        table(
            ["stage", "first call", "later calls"],
            [[s, show(figures[s]["first"], 1000, 1), show(figures[s]["later"], 1000, 1)] for s in stages],
        )
    )
    write_json(
        options.json,
        {
            "versions": versions("torch", "onnx", "onnxruntime", "numpy"),
            "model": Path(options.model).name,
            "target_seconds": TARGET,
            "seconds": figures,
            "figures": [
                figure(f"{Path(options.model).name}, {when} call, {what}", f["median"], f["min"], f["max"], unit="s", target=target)
                for stage, what, target in (("processor", "processor time", TARGET), ("total", "by the clock", None))
                for when, f in figures[stage].items()
            ],
        },
    )


if __name__ == "__main__":
    main()
