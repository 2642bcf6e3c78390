"""Which policies each of torch's exporters can export again, and at which level: counts by family, and the reasons by their kind.

    python -m benchmarks.exporters [FOLDER …] [--quick] [--known FILE.jsonl] [--limit 120] [--each 20] [--json FILE]

Every .onnx below the folders (without any: a tiny policy of each family, as the tests make them) is built with the weights of
the graph, and its module is exported by each exporter: torchscript at the original's opset and at 18, dynamo at 18, the lowest it
writes. The level is that of `graph2torch export`. dynamo needs the extra `dynamo`.

A process does `--each` models and is followed by another, so that memory stays bounded; an export that takes longer than `--limit`
seconds ends its process and counts as too slow. What is found is told as it is found, and kept in `--known` by the sha256 of the
model: a run that was stopped goes on where it was. Ctrl-C ends it with the counts of the models that were done; they are taken in no
order of theirs, so a part of them is a sample. No names of models are kept or shown.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .measure import ROOT, environment, figure, table, versions, write_json

LOWEST = 18  # opset that the dynamo exporter writes
WAYS: dict[str, tuple[str, int | None]] = {
    "torchscript, own opset": ("torchscript", None),
    f"torchscript, opset {LOWEST}": ("torchscript", LOWEST),
    f"dynamo, opset {LOWEST}": ("dynamo", LOWEST),
}
LEVELS = ("graph", "bits", "close", "differs", "refused", "too slow", "not built")
# the first whose rule the policy has is its family; the rest is told by its actions
FAMILIES = {
    "memory (LSTM)": "lstm",
    "goals (hypernetwork)": "hyper_network",
    "entities (attention)": "residual_self_attention",
    "images": "convolution",
    "SAC": "squashed_action",
}
ACTIONS = {(True, True): "hybrid", (True, False): "continuous", (False, True): "discrete"}

Answer = dict[str, Any]  # family, level, reason, seconds


# ---------------------------------------------------------------------------------------------- in the workers
def worker() -> None:
    """Reads lines of JSON from stdin, a model and a way; answers each with a line: the level reached, why, and the seconds."""
    out, built = sys.stdout, functools.lru_cache(1)(build)
    for line in sys.stdin:
        path, way = json.loads(line)
        with contextlib.redirect_stdout(sys.stderr):
            answer = tried(path, way, built)
        out.write(json.dumps(answer) + "\n")
        out.flush()


def build(path: str) -> tuple[Any, Any]:
    """The policy, with the weights of the graph, and its module."""
    from graph2torch.build import build_policy
    from graph2torch.module import build_module

    made = build_policy(path, weights="onnx")
    return made, build_module(made.source, made.bindings)


def tried(path: str, way: str, built: Callable[[str], tuple[Any, Any]]) -> Answer:
    from graph2torch.errors import Graph2TorchError
    from graph2torch.target.target import Target, export_module

    try:
        made, module = built(path)
    except Graph2TorchError as error:
        return {"family": "", "level": "not built", "reason": kind_of(str(error)), "seconds": 0.0}
    exporter, opset = WAYS[way]
    start = time.perf_counter()
    try:
        found = export_module(module, made.recognised, Target(exporter=exporter, opset=opset)).comparison
        level, reason = str(found.level), found.reason
    except Exception as error:
        level, reason = "refused", f"{type(error).__name__}: {error}"
    seconds = round(time.perf_counter() - start, 2)
    return {"family": family_of(made.spec), "level": level, "reason": kind_of(reason), "seconds": seconds}


def family_of(spec: Any) -> str:
    """What kind of policy it is, by its blocks."""
    rules = {block.rule for block in spec.blocks}
    special = next((family for family, rule in FAMILIES.items() if rule in rules), None)
    return special or ACTIONS.get((bool(spec.acting.continuous), bool(spec.acting.options)), "other")


def kind_of(reason: str) -> str:
    """A reason without the names and numbers of a file: names are quoted in it."""
    words = re.sub(r"'[^']*'", "…", reason)
    return re.sub(r"\d[\d.,e+-]*", "N", words)[:200]


# ---------------------------------------------------------------------------------------------- their master
class Worker:
    """A process that answers one question at a time."""

    def __init__(self, cache: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.exporters", "--worker"],
            cwd=ROOT,
            env=environment(cache),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.lines: queue.Queue[str] = queue.Queue()
        self.models: set[str] = set()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.child.stdout or ():
            self.lines.put(line)
        self.lines.put("")

    def ask(self, path: str, way: str, limit: float) -> Answer:
        """The answer; after `limit` seconds, or if the process ended, what is to be counted instead, and the process is gone."""
        assert self.child.stdin
        self.models.add(path)
        try:
            self.child.stdin.write(json.dumps([path, way]) + "\n")
            self.child.stdin.flush()
            line = self.lines.get(timeout=limit)
        except BrokenPipeError:
            line = ""
        except queue.Empty:
            self.end()
            return {"family": "", "level": "too slow", "reason": f"more than {limit:g} s", "seconds": limit}
        if line:
            answer: Answer = json.loads(line)
            return answer
        self.end()
        return {"family": "", "level": "refused", "reason": f"its process ended with {self.child.returncode}", "seconds": 0.0}

    def end(self) -> None:
        self.child.kill()
        self.child.wait()


def answered(todo: Sequence[tuple[str, str]], limit: float, each: int) -> Iterator[Answer]:
    """The answer to every (model, way), from processes of `each` models."""
    at_work: Worker | None = None
    with tempfile.TemporaryDirectory() as cache:
        try:
            for path, way in todo:
                if at_work is None or at_work.child.returncode is not None or len(at_work.models | {path}) > each:
                    if at_work is not None:
                        at_work.end()
                    at_work = Worker(cache)
                yield at_work.ask(path, way, limit)
        finally:
            if at_work is not None:
                at_work.end()


def models(folders: Sequence[Path], scratch: Path) -> list[Path]:
    """Every .onnx below the folders; without folders, tiny policies of each family, written to `scratch`."""
    if folders:
        return sorted({p for folder in folders for p in folder.rglob("*.onnx")})
    from tests.models import FAMILIES as TINY
    from tests.models import tiny_policy

    for name, arguments in TINY.items():
        (scratch / f"{name}.onnx").write_bytes(tiny_policy(**arguments).SerializeToString())
    return sorted(scratch.glob("*.onnx"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--quick", action="store_true", help="every tenth model of the folders only")
    parser.add_argument("--known", type=Path, help="what was found is kept here, and not tried again")
    parser.add_argument("--limit", type=float, default=120, help="seconds for one export")
    parser.add_argument("--each", type=int, default=20, help="models for one process")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker()
        return
    used = versions("torch", "onnx", "onnxscript", "onnxruntime")
    known: dict[str, Answer] = {}
    if options.known and options.known.exists():
        known = {key: found for line in options.known.read_text().splitlines() for key, found in json.loads(line).items()}
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        log = stack.enter_context(options.known.open("a")) if options.known else None
        paths = models(options.folders, Path(scratch))[:: 10 if options.quick and options.folders else 1]
        unique: dict[str, Path] = {}
        for path in paths:
            unique.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), path)
        keys = {(sha, way): f"{sha} {way} torch {used['torch']}" for sha in unique for way in options.ways}
        todo = sorted(key for key in keys if keys[key] not in known)
        print(f"{len(paths)} models, {len(unique)} of them different; {len(todo)} exports to try", flush=True)
        answers = answered([(str(unique[sha].resolve()), way) for sha, way in todo], options.limit, options.each)
        with contextlib.suppress(KeyboardInterrupt):
            for number, ((sha, way), found) in enumerate(zip(todo, answers, strict=True), 1):
                known[keys[sha, way]] = found
                if log:
                    log.write(json.dumps({keys[sha, way]: found}) + "\n")
                    log.flush()
                print(
                    f"{number:4} {way}: {found['level']:8} {found['seconds']:6.1f} s  {found['family']}  {found['reason']:.90}", flush=True
                )
    done = [sha for sha in unique if all(keys[sha, way] in known for way in options.ways)]
    if len(done) < len(unique):
        print(f"stopped: {len(done)} of {len(unique)} models were done")
    results = {way: [known[keys[sha, way]] for sha in done] for way in options.ways}
    show(results)
    counts = {way: Counter(f["level"] for f in found) for way, found in results.items()}
    figures = [figure(f"{way}: {level}", n, unit="models") for way, found in counts.items() for level, n in sorted(found.items())]
    details = {"levels": counts, "by_family": by_family(results), "reasons": reasons(results)}
    write_json(options.json, {"versions": used, "models": len(done), "of": len(unique), **details, "figures": figures})


# ---------------------------------------------------------------------------------------------- what was found
def by_family(results: dict[str, list[Answer]]) -> dict[str, dict[str, Counter[str]]]:
    """family → way → levels, counted. A model's family is what any way told of it."""
    told = {i: f["family"] for found in results.values() for i, f in enumerate(found) if f["family"]}
    counts: dict[str, dict[str, Counter[str]]] = {}
    for way, found in results.items():
        for i, f in enumerate(found):
            counts.setdefault(told.get(i, "not known"), {}).setdefault(way, Counter())[f["level"]] += 1
    return counts


def reasons(results: dict[str, list[Answer]]) -> dict[str, Counter[str]]:
    """way → why it wasn't `graph`, counted."""
    return {way: Counter(f"{f['level']}: {f['reason']}" for f in found if f["level"] != "graph") for way, found in results.items()}


def show(results: dict[str, list[Answer]]) -> None:
    counts = {way: Counter(f["level"] for f in found) for way, found in results.items()}
    shown = [level for level in LEVELS if any(found[level] for found in counts.values())]
    seconds = {way: sum(f["seconds"] for f in found) for way, found in results.items()}
    rows = [[way, *(str(found[level]) for level in shown), f"{seconds[way]:.0f}"] for way, found in counts.items()]
    print(f"\n{table(['exporter', *shown, 'seconds'], rows)}\n")
    rows = [
        [
            family,
            str(max(sum(c.values()) for c in ways.values())),
            *(", ".join(f"{c[level]} {level}" for level in shown if c[level]) for way in results for c in (ways.get(way, Counter()),)),
        ]
        for family, ways in sorted(by_family(results).items())
    ]
    print(table(["family", "models", *results], rows))
    for way, counted in reasons(results).items():
        for reason, count in counted.most_common(12):
            print(f"{way}: {count} × {reason}")


if __name__ == "__main__":
    main()
