"""How fast a built policy is: a step of every engine, beside onnxruntime on the original.

The engines take turns, so that what slows the machine down for a while hits all of them: with one thread in one process, with more each
in a process of its own, since the threads of one library, waiting for work, would be in the way of the other's. An engine's numbers are
shown only if it gave what the original gives.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnx

from .act.folder import Folder, open_folder
from .devices.device import asked_for, exact, thread_count, threads
from .engine import cache
from .engine.compiled import identity
from .engine.engines import Compiled, wanted
from .engine.memory import keep_freed_memory
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
    from .devices.device import Device
    from .graph import Array

BATCHES = (1, 64, 1024)
ROUNDS = 15
SECONDS = 0.02  # of one engine in one round, as far as a step isn't longer
MAX_STEPS = 200  # of one engine in one round
REFERENCE = "onnxruntime, original"
DETERMINISTIC, REBUILT = "onnxruntime, deterministic", "onnxruntime, rebuilt"
POLICY, ACT, COMPILED = "torch, policy", "torch, policy.act", "torch, compiled"
ENGINES = (REFERENCE, REBUILT, DETERMINISTIC, POLICY, ACT, COMPILED)
SIMULATED = "simulated"
ON_DEVICE = "{}, policy.act", "{}, policy.act, transfers", "{}, policy.act, replayed"
Step = Callable[[], Any]
Check = Callable[[Any], None]


class _UnlikeError(Exception):
    """An engine gave something else than the original."""


@dataclass(frozen=True)
class Timing:
    """Seconds of a step. `first` is the engine's first step at this batch, loaded already. Percentiles are over all other timed steps, the ratio over the rounds' medians: to onnxruntime on the original, its median, quartiles, least and largest."""

    first: float
    median: float
    p95: float
    p99: float
    steps: int
    ratio: float
    ratio_q1: float
    ratio_q3: float
    ratio_min: float
    ratio_max: float


@dataclass(frozen=True)
class Row:
    """One engine at one batch with so many threads: its timing, or why there is none."""

    engine: str
    batch: int
    threads: int
    timing: Timing | None
    unavailable: str = ""
    differs: bool = False  # from the original

    @property
    def throughput(self) -> float | None:
        """Agents a second, from the median."""
        return None if self.timing is None else self.batch / self.timing.median


@dataclass(frozen=True)
class Bench:
    """memory_kept: whether freed memory stayed in the process, see engine/memory.py; device: besides the CPU, "" for none."""

    folder: str
    title: str
    rows: tuple[Row, ...]
    versions: Mapping[str, str]
    changed: tuple[str, ...]
    rounds: int
    seed: int
    dtype: str = PRECISIONS[0]  # of the weights that torch computes with
    memory_kept: bool = False
    device: str = ""
    simulated: bool = False

    @property
    def differs(self) -> bool:
        """Whether some engine gave something else than the original."""
        return any(row.differs for row in self.rows)


@dataclass(frozen=True)
class Ready:
    """An engine whose first step gave what the original gives, or why it is not. first: seconds of that step."""

    first: float = 0.0
    refused: str = ""
    differs: bool = False


class Place(Protocol):
    """Where an engine is timed: in this process or in another."""

    def prepare(self, name: str, batch: int) -> Ready:
        """Makes the engine's step, checks what it gives, warms up. UnsupportedGraph if the original can't be run on the batch."""

    def turn(self, name: str) -> list[float]:
        """Seconds of each step of a turn."""


def bench_folder(
    folder: str | Path,
    original: str | Path | None = None,
    *,
    batches: Sequence[int] = BATCHES,
    thread_counts: Sequence[int] = (1,),
    rounds: int = ROUNDS,
    seed: int = SEED,
    compile: bool = False,  # noqa: A002 # what the option is called
    device: Device | str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Bench:
    """Times the policy in a folder that build wrote. **Runs its model.py.**

    original: the .onnx that it was built from; by default where the report says that it lay
    batches:  how many agents act at once; where the graph takes a fixed number, that number instead
    thread_counts: how many threads each engine may use on the CPU
    rounds:   how often each engine has its turn
    compile:  compile the policy where the cache doesn't hold it compiled; some ten seconds for each batch
    device:   where the policy is timed as well

    Notes in the cache which engine took how long, for `run --engine auto`. Raises FolderError for a folder or an original that isn't
    the one, ModelError and UnsupportedGraph for graphs that can't be used, DeviceError for threads that can't be had.
    """
    import onnxruntime
    import torch

    for count in thread_counts:
        thread_count(count)
    device = asked_for(device)
    opened = open_folder(folder, ("rebuilt.onnx",))
    model = load(path := opened.find_original(original))
    opened.check_original(path, model.sha256)
    rebuilt = load(opened.path / "rebuilt.onnx")
    fixed = batch_of(opened.contract.inputs)
    batches = tuple(dict.fromkeys(batches if fixed is None else [fixed]))
    for batch in batches:
        for proto, what in ((model.proto, "the original"), (rebuilt.proto, "rebuilt.onnx")):
            check_memory(proto, what, batch)
    kept = keep_freed_memory()
    rows: list[Row] = []
    for count in dict.fromkeys(thread_counts):
        names = [*ENGINES, *(name.format(device.name) for name in ON_DEVICE if device is not None and count == 1)]
        with _places(names, opened, path, model, rebuilt.proto, count, seed, compile, device if count == 1 else None, progress) as places:
            for batch in batches:
                progress(f"batch {batch:,}, {count} threads" if count > 1 else f"batch {batch:,}")
                found = _at(places, batch, count, rounds)
                _remember(opened, found, batch, count)
                rows += found
    versions = {"torch": torch.__version__, "onnxruntime": onnxruntime.__version__}
    where = ("", False) if device is None else (device.name, device.simulated)
    return Bench(
        str(folder), opened.contract.title, tuple(rows), versions, opened.changed, rounds, seed, opened.contract.dtype, kept, *where
    )


def _at(places: Mapping[str, Place], batch: int, count: int, rounds: int) -> list[Row]:
    """All engines at one batch, turn by turn."""
    ready = {name: place.prepare(name, batch) for name, place in places.items()}
    if ready[REFERENCE].refused:
        raise UnsupportedGraph(f"Nothing can be timed beside onnxruntime on the original: {ready[REFERENCE].refused}.")
    turns: dict[str, list[list[float]]] = {name: [] for name, found in ready.items() if not found.refused}
    for _ in range(rounds):
        for name, mine in turns.items():
            mine.append(places[name].turn(name))
    reference = [float(np.median(turn)) for turn in turns[REFERENCE]]
    rows = []
    for name, found in ready.items():
        timing = None if found.refused else _timing(found.first, turns[name], reference)
        rows.append(Row(name, batch, count, timing, found.refused, found.differs))
    return rows


def _timing(first: float, turns: Sequence[Sequence[float]], reference: Sequence[float]) -> Timing:
    every = np.concatenate(turns)
    ratios = [float(np.median(turn)) / theirs for turn, theirs in zip(turns, reference, strict=True)]
    median, p95, p99 = (float(x) for x in np.percentile(every, [50, 95, 99]))
    q1, middle, q3 = (float(x) for x in np.percentile(ratios, [25, 50, 75]))
    return Timing(first, median, p95, p99, len(every), middle, q1, q3, min(ratios), max(ratios))


def _remember(opened: Folder, rows: Sequence[Row], batch: int, count: int) -> None:
    """Notes for `run --engine auto` what its engines took, if the policy has deterministic actions: those that gave the original's."""
    seconds = {row.engine: row.timing.median for row in rows if row.timing}
    ours = {"eager": seconds.get(ACT), "compiled": seconds.get(COMPILED), "onnxruntime": seconds.get(DETERMINISTIC) or seconds.get(REBUILT)}
    if ours["eager"] is None or opened.contract.dtype != PRECISIONS[0]:
        return
    try:
        cache.remember({**identity(opened, count), "batch": batch}, {name: taken for name, taken in ours.items() if taken is not None})
    except Graph2TorchError:  # a cache that can't be used: what was measured is shown all the same
        return


# ---------------------------------------------------------------------------------------------- in this process
class Here:
    """The engines of a policy in this process. `batch` is the last that something was prepared for."""

    def __init__(
        self,
        opened: Folder,
        model: Model,
        rebuilt: onnx.ModelProto,
        count: int,
        seed: int,
        compile: bool,  # noqa: A002
        device: Device | None,
        progress: Callable[[str], None],
    ) -> None:
        self.opened, self.model, self.rebuilt, self.count, self.seed = opened, model, rebuilt, count, seed
        self.contract, self.device = opened.contract, device
        self.policy: Any = opened.load()
        self.compiled = Compiled(opened, self.policy, count, compile, progress)
        self.batch = 0
        self.steps: dict[str, tuple[Step, int]] = {}
        self.same = undrawn_outputs(model.graph)
        self.unfixed = {o.name for o in self.contract.outputs if not o.fixed}
        by_field = {o.field: o.name for o in self.contract.outputs}
        acts = self.contract.acting.deterministic
        self.acts = [by_field.get(field, "") for field in wanted(self.contract, False)[1]] if acts else []

    def _set(self, batch: int) -> None:
        """The observations of a batch, and what the original gives for them."""
        if batch == self.batch:
            return
        import torch

        self.batch, self.steps = batch, {}
        rng = np.random.default_rng([self.seed, batch])
        self.feed = {i.name: observation(i, batch, "ordinary", rng) for i in self.model.graph.inputs}
        if any(i.name not in self.feed for i in self.contract.inputs):
            raise FolderError(
                f"The report.json in {quoted(str(self.opened.path))} has inputs that the original lacks; build the folder again."
            )
        self.arguments = [torch.from_numpy(self.feed[i.name].copy()) for i in self.contract.inputs]
        judge = session(self.model.proto, True, "the original")
        try:
            given = judge.run(list(self.same), self.feed) if self.same else []
            judge.run(None, self.feed)
        except Exception as error:
            raise UnsupportedGraph(
                f"onnxruntime can't run the original on {batch} agents ({one_line(str(error), 160)}); try another --batch."
            ) from None
        self.expected: dict[str, Array] = dict(zip(self.same, given, strict=True))

    def prepare(self, name: str, batch: int) -> Ready:
        self._set(batch)
        timed = self.device is None or not self.device.simulated or not name.startswith(self.device.name)
        try:
            step, check = self._engine(name)
            start = time.perf_counter()
            out = step()
            first = time.perf_counter() - start
            check(out)
            if not timed:
                return Ready(refused=f"{SIMULATED}, so it is not timed; it gave what the original gives")
            taken = min(_seconds(step, 3))
            steps = int(min(MAX_STEPS, max(3, SECONDS / max(taken, 1e-9))))
            _seconds(step, steps)  # warm-up
        except MemoryError:
            raise
        except _UnlikeError as error:
            return Ready(refused=str(error), differs=True)
        except Graph2TorchError as error:
            return Ready(refused=str(error))
        except Exception as error:  # whatever a changed model.py raises
            return Ready(refused=one_line(f"{type(error).__name__}: {error}", 160))
        self.steps[name] = step, steps
        return Ready(first)

    def turn(self, name: str) -> list[float]:
        return _seconds(*self.steps[name])

    def _engine(self, name: str) -> tuple[Step, Check]:
        """A step, and the check of what it gave."""
        names = [o.name for o in self.contract.outputs]
        if self.device is not None and name.startswith(self.device.name):
            return self._on_device(self.device, name)
        if name == POLICY:
            return (lambda: self.policy(*self.arguments)), lambda out: self._compare([t.numpy() for t in out], names)
        if name == ACT:
            act = self._act(self.policy)
            return (lambda: act(*self.arguments)), lambda out: self._compare([t.numpy() for t in _all(out)], self.acts)
        if name == COMPILED:
            self._act(self.policy)
            call = self.compiled.step(False, self.batch).call
            return (lambda: call(self.arguments)), lambda out: self._compare([t.numpy() for t in out], self.acts)
        if name == DETERMINISTIC:
            if len(self.same) == len(self.model.proto.graph.output):
                raise UnsupportedGraph("the original draws nothing at random: there is nothing to prune")
            if all(o.fixed for o in self.contract.outputs if o.name in self.same):
                raise UnsupportedGraph("every action of the original is drawn at random")
            return self._by_session(pruned(self.model.proto, self.same), "the pruned original")
        return self._by_session(*((self.rebuilt, "rebuilt.onnx") if name == REBUILT else (self.model.proto, "the original")))

    def _act(self, policy: Any) -> Callable[..., Any]:
        act: Callable[..., Any] | None = getattr(policy, "act", None)
        if not self.acts or act is None:
            raise UnsupportedGraph("the policy has no deterministic actions")
        return act

    def _by_session(self, proto: onnx.ModelProto, what: str) -> tuple[Step, Check]:
        made = session(proto, True, what, self.count)
        given = [o.name for o in made.get_outputs()]
        return (lambda: made.run(None, self.feed)), (lambda out: self._compare(out, given, graph=True))

    def _on_device(self, device: Device, name: str) -> tuple[Step, Check]:
        """policy.act there: on observations that are there already; with the way there and back; or its launches recorded and replayed."""
        import torch

        policy = self.opened.load(device.torch)
        act, there = self._act(policy), [t.to(device.torch) for t in self.arguments]

        def check(out: Any) -> None:
            self._compare([t.cpu().numpy() for t in _all(out)], self.acts)

        def waited() -> Any:
            out = act(*there)
            device.synchronise()
            return out

        if name == ON_DEVICE[0].format(device.name):
            return waited, check
        if name == ON_DEVICE[1].format(device.name):
            return (lambda: [t.cpu() for t in _all(act(*(t.to(device.torch) for t in self.arguments)))]), check
        kind = device.kind.graphs
        if not kind or not hasattr(device.module, kind) or not hasattr(device.module, "graph"):
            raise UnsupportedGraph(f"torch {torch.__version__} can't record and replay launches on {device.name}")
        for _ in range(3):  # what is allocated in the first steps must not be recorded
            waited()
        recorded = getattr(device.module, kind)()
        with device.module.graph(recorded):
            out = act(*there)

        def replayed() -> Any:
            recorded.replay()
            device.synchronise()
            return out

        return replayed, check

    def _compare(self, given: Sequence[Any], called: Sequence[str], graph: bool = False) -> None:
        """_UnlikeError if these outputs are not the original's; UnsupportedGraph if none of them can be checked."""
        if len(given) != len(called):
            raise _UnlikeError(f"it gives {len(given)} outputs instead of {len(called)}")
        if not self.unfixed & self.expected.keys() & set(called):
            raise UnsupportedGraph("nothing that it gives can be checked: the original draws all of that at random")
        tolerance = TOLERANCE if graph or self.contract.dtype == PRECISIONS[0] else ACCEPTABLE  # graphs stay float32
        for name, array in zip(called, given, strict=True):
            if name in self.expected:
                tally = Tally(name)
                tally.add(self.expected[name], np.asarray(array))
                if not tally.figures().within(tolerance):
                    raise _UnlikeError(f"its {quoted(name)} is not the original's")


def _all(out: Any) -> Sequence[Any]:
    return out if isinstance(out, (tuple, list)) else (out,)


def _seconds(step: Step, count: int) -> list[float]:
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        taken.append(time.perf_counter() - start)
    return taken


@contextmanager
def _places(
    names: Sequence[str],
    opened: Folder,
    path: Path,
    model: Model,
    rebuilt: onnx.ModelProto,
    count: int,
    seed: int,
    compile: bool,  # noqa: A002
    device: Device | None,
    progress: Callable[[str], None],
) -> Iterator[Mapping[str, Place]]:
    """Where each engine is timed."""
    import torch

    with ExitStack() as stack:
        if count == 1:
            stack.enter_context(threads())
            stack.enter_context(torch.inference_mode())
            if device is not None:
                stack.enter_context(exact(device))
            here = Here(opened, model, rebuilt, 1, seed, compile, device, progress)
            yield dict.fromkeys(names, here)
        else:
            yield {name: stack.enter_context(There(opened.path, path, count, seed, compile)) for name in names}


# ---------------------------------------------------------------------------------------------- in a process of its own
class There:
    """One engine in a process of its own, which does nothing while it isn't asked: a request a line, an answer a line, in JSON."""

    def __init__(self, folder: Path, original: Path, count: int, seed: int, compile: bool) -> None:  # noqa: A002
        package = str(Path(__file__).resolve().parent.parent)
        paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from graph2torch.bench import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
        )
        self.start = [str(folder), str(original), count, seed, compile]

    def __enter__(self) -> There:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def _ask(self, *request: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline())
        except (OSError, ValueError):
            raise UnsupportedGraph(
                "The process in which an engine is timed ended unexpectedly; try one thread, or a smaller --batch."
            ) from None
        if "error" in answer:
            raise UnsupportedGraph(str(answer["error"]))
        return answer["given"]

    def prepare(self, name: str, batch: int) -> Ready:
        return Ready(**self._ask("prepare", *self.start, name, batch))

    def turn(self, name: str) -> list[float]:
        found: list[float] = self._ask("turn", name)
        return found


def serve() -> None:
    """Answers what `There` asks, until stdin ends. What libraries print goes nowhere."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    import torch

    keep_freed_memory()
    here: Here | None = None
    with torch.inference_mode():
        for line in sys.stdin:
            request = json.loads(line)
            try:
                if request[0] == "prepare":
                    folder, original, count, seed, compiling, name, batch = request[1:]
                    if here is None:
                        torch.set_num_threads(count)
                        opened = open_folder(folder, ("rebuilt.onnx",))
                        rebuilt = load(opened.path / "rebuilt.onnx").proto
                        here = Here(opened, load(Path(original)), rebuilt, count, seed, compiling, None, lambda _: None)
                    answer: dict[str, Any] = {"given": asdict(here.prepare(name, batch))}
                else:
                    assert here is not None
                    answer = {"given": here.turn(request[1])}
            except Graph2TorchError as error:
                answer = {"error": str(error)}
            out.write(json.dumps(answer) + "\n")
            out.flush()


def report(found: Bench) -> dict[str, Any]:
    """What --json prints; seconds, agents a second, and ratios to onnxruntime on the original with as many threads."""
    return {
        "folder": found.folder,
        "title": found.title,
        "versions": dict(found.versions),
        "changed": list(found.changed),
        "device": found.device or "cpu",
        "simulated": found.simulated,
        "dtype": found.dtype,
        "memory_kept": found.memory_kept,
        "rounds": found.rounds,
        "seed": found.seed,
        "rows": [
            {
                "engine": row.engine,
                "batch": row.batch,
                "threads": row.threads,
                "seconds": None if row.timing is None else vars(row.timing),
                "throughput": row.throughput,
                "unavailable": row.unavailable or None,
            }
            for row in found.rows
        ],
    }
