"""How fast a built policy is: a step of every engine, beside onnxruntime on the original, on the CPU with one thread.

All engines are in one process and take turns, so that what slows the machine down for a while hits all of them. An engine's numbers
are shown only if it gave what the original gives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from .act.folder import Folder, open_folder
from .devices.device import threads
from .errors import FolderError, Graph2TorchError, UnsupportedGraph
from .graph import Model, check_memory, load
from .judge.figures import TOLERANCE, Tally
from .judge.observations import SEED, batch_of, observation
from .judge.precision import ACCEPTABLE
from .judge.runtime import session
from .precisions import PRECISIONS
from .target.prune import pruned, undrawn_outputs
from .text import one_line, quoted

if TYPE_CHECKING:
    import torch

BATCHES = (1, 64, 1024)
ROUNDS = 15
SECONDS = 0.02  # of one engine in one round, as far as a step isn't longer
MAX_STEPS = 200  # of one engine in one round
REFERENCE = "onnxruntime, original"
Step = Callable[[], Any]
Engine = tuple[Step, Callable[[Any], None]]  # a step, and the check of what it gave


class _UnlikeError(Exception):
    """An engine gave something else than the original."""


@dataclass(frozen=True)
class Timing:
    """Seconds of a step. `first` is the engine's first step at this batch, loaded already. Percentiles are over all other timed steps, the ratio over the rounds' medians: to onnxruntime on the original, its median, least and largest."""

    first: float
    median: float
    p95: float
    p99: float
    steps: int
    ratio: float
    ratio_min: float
    ratio_max: float


@dataclass(frozen=True)
class Row:
    """One engine at one batch: its timing, or why there is none."""

    engine: str
    batch: int
    timing: Timing | None
    unavailable: str = ""
    differs: bool = False  # from the original

    @property
    def throughput(self) -> float | None:
        """Agents a second, from the median."""
        return None if self.timing is None else self.batch / self.timing.median


@dataclass(frozen=True)
class Bench:
    folder: str
    title: str
    rows: tuple[Row, ...]
    versions: Mapping[str, str]
    changed: tuple[str, ...]
    rounds: int
    seed: int
    dtype: str = PRECISIONS[0]  # of the weights that torch computes with

    @property
    def differs(self) -> bool:
        """Whether some engine gave something else than the original."""
        return any(row.differs for row in self.rows)


def bench_folder(
    folder: str | Path,
    original: str | Path | None = None,
    *,
    batches: Sequence[int] = BATCHES,
    rounds: int = ROUNDS,
    seed: int = SEED,
    progress: Callable[[str], None] = lambda _: None,
) -> Bench:
    """Times the policy in a folder that build wrote. **Runs its model.py.**

    original: the .onnx that it was built from; by default where the report says that it lay
    batches:  how many agents act at once; where the graph takes a fixed number, that number instead
    rounds:   how often each engine has its turn

    Raises FolderError for a folder or an original that isn't the one, ModelError and UnsupportedGraph for graphs that can't be used.
    """
    import onnxruntime
    import torch

    opened = open_folder(folder, ("rebuilt.onnx",))
    model = load(path := opened.find_original(original))
    opened.check_original(path, model.sha256)
    rebuilt = load(opened.path / "rebuilt.onnx")
    fixed = batch_of(opened.contract.inputs)
    rows: list[Row] = []
    with threads(), torch.inference_mode():
        policy = opened.load()
        for batch in dict.fromkeys(batches if fixed is None else [fixed]):
            progress(f"batch {batch:,}")
            for proto, name in ((model.proto, "the original"), (rebuilt.proto, "rebuilt.onnx")):
                check_memory(proto, name, batch)
            rows += _at(batch, opened, policy, model, rebuilt.proto, rounds, seed)
    versions = {"torch": torch.__version__, "onnxruntime": onnxruntime.__version__}
    return Bench(str(folder), opened.contract.title, tuple(rows), versions, opened.changed, rounds, seed, opened.contract.dtype)


def _at(batch: int, opened: Folder, policy: torch.nn.Module, model: Model, rebuilt: onnx.ModelProto, rounds: int, seed: int) -> list[Row]:
    import torch

    rng = np.random.default_rng([seed, batch])
    feed = {i.name: observation(i, batch, "ordinary", rng) for i in model.graph.inputs}
    if any(i.name not in feed for i in opened.contract.inputs):
        raise FolderError(f"The report.json in {quoted(str(opened.path))} has inputs that the original lacks; build the folder again.")
    arguments = [torch.from_numpy(feed[i.name].copy()) for i in opened.contract.inputs]
    same = undrawn_outputs(model.proto)
    judge = session(model.proto, True, "the original")
    try:
        expected = dict(zip(same, judge.run(list(same), feed), strict=True)) if same else {}
        judge.run(None, feed)
    except Exception as error:
        raise UnsupportedGraph(
            f"onnxruntime can't run the original on {batch} agents ({one_line(str(error), 160)}); try another --batch."
        ) from None
    contract = opened.contract
    memory = next((i.next for i in contract.inputs if i.next), "")
    by_field = {o.field: o.name for o in contract.outputs}
    acts = [memory if n == "memory" else by_field.get(f"deterministic_{n}", "") for n in contract.acting.deterministic]
    names = [o.name for o in contract.outputs]
    tolerance = TOLERANCE if contract.dtype == PRECISIONS[0] else ACCEPTABLE  # of what torch gives; graphs stay float32
    unfixed = {o.name for o in contract.outputs if not o.fixed}

    def compare(given: Sequence[Any], called: Sequence[str], tolerance: float = tolerance) -> None:
        """_UnlikeError if these outputs are not the original's; UnsupportedGraph if none of them can be checked."""
        if len(given) != len(called):
            raise _UnlikeError(f"it gives {len(given)} outputs instead of {len(called)}")
        if not unfixed & expected.keys() & set(called):
            raise UnsupportedGraph("nothing that it gives can be checked: the original draws all of that at random")
        for name, array in zip(called, given, strict=True):
            if name in expected:
                tally = Tally(name)
                tally.add(expected[name], np.asarray(array))
                if not tally.figures().within(tolerance):
                    raise _UnlikeError(f"its {quoted(name)} is not the original's")

    def by_session(proto: onnx.ModelProto, what: str) -> Engine:
        made = session(proto, True, what)
        given = [o.name for o in made.get_outputs()]
        return (lambda: made.run(None, feed)), (lambda out: compare(out, given, TOLERANCE))

    def acting() -> Engine:
        act: Any = getattr(policy, "act", None)
        if not acts or act is None:
            raise UnsupportedGraph("the policy has no deterministic actions")
        return (lambda: act(*arguments)), (lambda out: compare([t.numpy() for t in (out if isinstance(out, tuple) else (out,))], acts))

    def alone() -> Engine:
        if len(same) == len(model.proto.graph.output):
            raise UnsupportedGraph("the original draws nothing at random: there is nothing to prune")
        if all(o.fixed for o in contract.outputs if o.name in same):
            raise UnsupportedGraph("every action of the original is drawn at random")
        return by_session(pruned(model.proto, same), "the pruned original")

    engines: dict[str, Callable[[], Engine]] = {
        REFERENCE: lambda: by_session(model.proto, "the original"),
        "onnxruntime, rebuilt": lambda: by_session(rebuilt, "rebuilt.onnx"),
        "onnxruntime, deterministic": alone,
        "torch, policy": lambda: ((lambda: policy(*arguments)), lambda out: compare([t.numpy() for t in out], names)),
        "torch, policy.act": acting,
    }
    steps: dict[str, Step] = {}
    first: dict[str, float] = {}
    refused: dict[str, Row] = {}
    for name, make in engines.items():
        tried = _tried(name, batch, make)
        if isinstance(tried, Row):
            refused[name] = tried
        else:
            steps[name], first[name] = tried
    if REFERENCE not in steps:
        raise UnsupportedGraph(f"Nothing can be timed beside onnxruntime on the original: {refused[REFERENCE].unavailable}.")
    timings = _timed(steps, first, rounds)
    return [refused[name] if name in refused else Row(name, batch, timings[name]) for name in engines]


def _tried(name: str, batch: int, make: Callable[[], Engine]) -> tuple[Step, float] | Row:
    """The engine's step and the seconds of its first one; a row that says why, if it can't be had or gives something else."""
    try:
        step, check = make()
        start = time.perf_counter()
        out = step()
        took = time.perf_counter() - start
        check(out)
    except MemoryError:
        raise
    except _UnlikeError as error:
        return Row(name, batch, None, str(error), differs=True)
    except Graph2TorchError as error:
        return Row(name, batch, None, str(error))
    except Exception as error:  # whatever a changed model.py raises
        return Row(name, batch, None, one_line(f"{type(error).__name__}: {error}", 160))
    return step, took


def _timed(steps: Mapping[str, Step], first: Mapping[str, float], rounds: int) -> dict[str, Timing]:
    """Each in turn, `rounds` times round, with as many steps a turn as SECONDS allow."""
    counts: dict[str, int] = {}
    for name, step in steps.items():
        took = min(_seconds(step, 3))
        counts[name] = int(min(MAX_STEPS, max(3, SECONDS / max(took, 1e-9))))
        _seconds(step, counts[name])  # warm-up
    turns: dict[str, list[list[float]]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            turns[name].append(_seconds(step, counts[name]))
    reference = [float(np.median(turn)) for turn in turns[REFERENCE]]
    found = {}
    for name, mine in turns.items():
        every = np.concatenate(mine)
        ratios = [float(np.median(turn)) / theirs for turn, theirs in zip(mine, reference, strict=True)]
        median, p95, p99 = (float(x) for x in np.percentile(every, [50, 95, 99]))
        found[name] = Timing(first[name], median, p95, p99, len(every), float(np.median(ratios)), min(ratios), max(ratios))
    return found


def _seconds(step: Step, count: int) -> list[float]:
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        taken.append(time.perf_counter() - start)
    return taken


def report(found: Bench) -> dict[str, Any]:
    """What --json prints; seconds, agents a second, and ratios to onnxruntime on the original."""
    return {
        "folder": found.folder,
        "title": found.title,
        "versions": dict(found.versions),
        "changed": list(found.changed),
        "device": "cpu",
        "dtype": found.dtype,
        "threads": 1,
        "rounds": found.rounds,
        "seed": found.seed,
        "rows": [
            {
                "engine": row.engine,
                "batch": row.batch,
                "seconds": None if row.timing is None else vars(row.timing),
                "throughput": row.throughput,
                "unavailable": row.unavailable or None,
            }
            for row in found.rows
        ],
    }
