"""A built policy tries itself: many small named cases, each of which passes, fails, isn't applicable, or is a measurement.

`verify` says how equal a policy is; the self test says which of its abilities work here, on this machine and device: acting, sampling,
memory, masks, batches, half precision, fingerprints, re-export, and what is refused. The cases themselves are in selftest_cases.py.

    passed          what was expected was found
    failed          it wasn't; what was expected and what was found are said. Exit status 1
    not applicable  the policy or the device has no such thing, and why; never counted as passed
    measured        a time or a verdict that depends on what the policy is for; never judged
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from graph2torch.act.folder import Folder, open_folder
from graph2torch.act.run import Runner, made_up
from graph2torch.canonical import canonicalise
from graph2torch.devices.device import Device, asked_for, cpu, exact
from graph2torch.devices.device import threads as on_threads
from graph2torch.devices.on_device import moved, refuse_float64
from graph2torch.errors import ActingError, DeviceError, UnsupportedGraph
from graph2torch.graph import Array, Model, check_memory, load
from graph2torch.judge.figures import TOLERANCE
from graph2torch.judge.isomorphism import Alignment, align
from graph2torch.judge.observations import LARGE, SEED, Case, batch_of, deep
from graph2torch.judge.precision import ACCEPTABLE, PrecisionCheck, network_before
from graph2torch.judge.torchside import TorchSide
from graph2torch.judge.verify import Judge
from graph2torch.output import MADE
from graph2torch.precisions import PRECISIONS
from graph2torch.recognise import Recognised, recognise, unbuildable
from graph2torch.rulebook import Rules
from graph2torch.text import counted, one_line, printable
from graph2torch.versions import versions

Status = Literal["passed", "failed", "not applicable", "measured"]
STATUSES: tuple[Status, ...] = ("passed", "failed", "not applicable", "measured")


class NotApplicableError(Exception):
    """The policy or the device has no such thing; the text is why."""


class FailedError(Exception):
    """A case found something else than it expected."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(expected, found)
        self.expected, self.found = expected, found


@dataclass(frozen=True, slots=True)
class Result:
    """How a case went. said: what was looked at, measured, or why it isn't applicable; expected and found: of one that failed."""

    group: str
    name: str
    status: Status
    said: str = ""
    expected: str = ""
    found: str = ""


@dataclass(frozen=True)
class SelfTest:
    """All cases on one device. changed: files of the folder that aren't as build wrote them; dtype: of its weights; threads: of torch."""

    folder: str
    title: str
    original: str
    device: str
    simulated: bool
    changed: tuple[str, ...]
    seed: int
    results: tuple[Result, ...]
    versions: Mapping[str, str]
    dtype: str = PRECISIONS[0]
    threads: int = 1

    @property
    def counts(self) -> dict[Status, int]:
        counted = Counter(result.status for result in self.results)
        return {status: counted[status] for status in STATUSES}

    @property
    def passed(self) -> bool:
        """Whether no case failed, and some passed."""
        return not self.counts["failed"] and self.counts["passed"] > 0


class Subject:
    """What is tried: the folder, its policy on the device, and the original.

    own:       the folder's policy on the CPU, as it is loaded; acting: on the device
    module:    the same in float32 on the CPU, what the original is the judge of; policy: on the device; side: the same for the judge.
               Another policy than the folder's own only where that has weights of half precision
    tolerance: what actions of the folder's own policy may be off by where they are rounded otherwise
    """

    def __init__(self, folder: Folder, recognised: Recognised, rebuilt: Model, device: Device, seed: int) -> None:
        self.folder, self.recognised, self.rebuilt, self.device, self.seed = folder, recognised, rebuilt, device, seed
        self.contract, self.spec, self.original = folder.contract, recognised.spec, recognised.model.proto
        self.precision: dict[str, PrecisionCheck] = {}  # by dtype, as far as it was looked at
        self.own = folder.load()
        self.module: Any = self.own
        self.half, self.tolerance = self.contract.dtype != PRECISIONS[0], TOLERANCE
        if self.half:
            self.tolerance = ACCEPTABLE
            self.module, self.known = network_before(folder, self.spec, self.alignment, canonicalise(rebuilt.graph))
        self.acting: Any = self.own
        self.policy: Any = self.module
        if device.kind.type != "cpu":
            refuse_float64(self.module, self.spec, device)
            self.acting, self.policy = moved(self.own, device), moved(self.module, device)
        self.side = TorchSide(self.policy, self.spec, device.name, changed=True)
        if "model.py" in folder.changed:
            self.side.other_layers = "model.py was changed"

    # ------------------------------------------------------------------------------------------ acting
    def runner(self, group: int = 0, *, on_cpu: bool = False) -> Runner:
        """A new one, which remembers nothing. group: as of Runner; by default all agents are computed at once."""
        import torch

        place = torch.device("cpu") if on_cpu else self.device.torch
        try:
            return Runner(self.own if on_cpu else self.acting, self.contract, place, getattr(torch, self.contract.dtype), group)
        except ActingError as error:
            raise NotApplicableError(str(error)) from None

    def rows(self, wanted: int) -> int:
        """That many agents, or the next number that the graph takes."""
        if not any(i.kind == "observation" for i in self.contract.inputs):
            return 1
        fixed = batch_of(self.contract.inputs)
        return wanted if fixed is None else fixed * -(-wanted // max(fixed, 1))

    def feed(self, rows: int, step: int = 0, kind: str = "random") -> dict[str, Array]:
        """Observations of so many agents; see `rows`."""
        return made_up(self.contract.inputs, kind, self.rows(rows), step, self.seed)

    def need_deterministic(self) -> None:
        acting = self.contract.acting
        if not acting.deterministic and self.contract.draws:
            raise NotApplicableError("the policy has no deterministic actions, only sampled ones")
        self._need_actions()

    def need_sampled(self) -> None:
        acting = self.contract.acting
        if not self.contract.draws and not acting.log_probabilities:
            raise NotApplicableError("the policy draws nothing at random")
        if any(not d.shape or not all(isinstance(size, int) for size in d.shape[1:]) for d in self.contract.draws):
            raise NotApplicableError("the graph doesn't tell how many numbers are drawn")
        self._need_actions()

    def _need_actions(self) -> None:
        if not self.contract.acting.sampled and all(o.fixed for o in self.contract.outputs):
            raise NotApplicableError("the policy has no actions: all of its outputs are fixed")

    def need_agents(self) -> None:
        """Any number of agents at once."""
        if self.rows(1) != 1 or self.rows(3) != 3:
            raise NotApplicableError(f"the graph takes {self.rows(1)} agents at a time, no other number")

    def need_memory(self) -> str:
        """The name of the input for memory."""
        found = next((i.name for i in self.contract.inputs if i.kind == "memory" and i.next), None)
        if found is None:
            raise NotApplicableError("the policy has no memory")
        return found

    def need_mask(self) -> tuple[str, Sequence[int]]:
        """The name of the input for masks, and the options of each branch that it is made of."""
        found = next((i for i in self.contract.inputs if i.kind == "mask" and i.used), None)
        options = self.contract.acting.options
        if found is None:
            raise NotApplicableError("the policy takes no masks")
        if len(found.shape) != 2 or found.shape[1] != sum(options) or "discrete_actions" not in self.contract.acting.sampled:
            raise NotApplicableError("the mask isn't one of the branches' options, one after the other")
        return found.name, options

    def need_device(self) -> None:
        if self.device.kind.type == "cpu":
            raise NotApplicableError("the device is the CPU itself")

    # ------------------------------------------------------------------------------------------ judging
    @cached_property
    def alignment(self) -> Alignment:
        return align(self.spec.graph, canonicalise(self.rebuilt.graph))

    @cached_property
    def cases(self) -> list[Case]:
        """The deep tier's."""
        small = [batch for batch in (1, 2, 3, 7, 16, *LARGE) if self._fits(batch)]
        return list(deep(self.spec, self.seed, small))

    def _fits(self, batch: int) -> bool:
        try:
            check_memory(self.original, "the original", batch)
        except UnsupportedGraph:
            return False
        return True

    def own_side(self) -> TorchSide:
        """The side of the folder's own policy, on the device."""
        return TorchSide(self.acting, self.spec, self.device.name, changed=True)

    def judge(self, wanted: Callable[[Case], bool]) -> Judge:
        """The original, rebuilt.onnx and the policy on these cases."""
        cases = [case for case in self.cases if wanted(case)]
        if not cases:
            raise NotApplicableError("the policy has no input that such observations can be made for")
        judge = Judge(self.original, self.rebuilt.proto, self.spec, self.alignment, self.side, self.seed)
        judge.run(cases)
        if not judge.runs:
            raise NotApplicableError("onnxruntime runs the original on none of these")
        return judge


def selftest(
    folder: str | Path,
    original: str | Path | None = None,
    *,
    device: Device | str | None = None,
    seed: int = SEED,
    rules: Rules = (),
    threads: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> SelfTest:
    """Runs every case on the folder that build wrote. **Runs its model.py.**

    original: the .onnx that it was built from; by default where the report says that it lay
    device:   where torch computes; by default the CPU
    threads:  of torch on the CPU, by default one

    Raises DeviceError if the device can't hold the policy; FolderError if the folder isn't one that build wrote, its original is
    missing or another file, or model.py can't be loaded; ModelError, UnsupportedGraph, RuleError for graphs and rules that can't be used.
    """
    import torch

    from .cases import CASES

    place, results = asked_for(device) or cpu(), []
    with on_threads(threads) as count, exact(place), torch.random.fork_rng(devices=[]):
        progress("reading the original")
        subject = open_subject(folder, original, place, seed, rules)
        for number, (group, name, run) in enumerate(CASES, 1):
            progress(f"{number} of {len(CASES)}: {group}, {name}")
            results.append(tried(group, name, run, subject))
    return SelfTest(
        str(folder),
        subject.contract.title,
        str(subject.recognised.model.path),
        place.name,
        place.simulated,
        subject.folder.changed,
        seed,
        tuple(results),
        versions(),
        subject.contract.dtype,
        count,
    )


def open_subject(folder: str | Path, original: str | Path | None, device: Device, seed: int = SEED, rules: Rules = ()) -> Subject:
    """What is to be tried, as `selftest` has it. Runs model.py."""
    opened = open_folder(folder, ("rebuilt.onnx",), MADE)
    path = opened.find_original(original)
    recognised = recognise(path, rules)
    opened.check_original(path, recognised.model.sha256)
    if recognised.spec.unexplained:
        raise UnsupportedGraph(unbuildable(recognised))
    rebuilt = load(opened.path / "rebuilt.onnx")
    for proto, what in ((recognised.model.proto, "the original"), (rebuilt.proto, "rebuilt.onnx")):
        check_memory(proto, what)
    return Subject(opened, recognised, rebuilt, device, seed)


def tried(group: str, name: str, run: Callable[[Subject], str | Measured], subject: Subject) -> Result:
    """How the case goes. Whatever it raises is its failure: the policy is code that may have been changed."""
    try:
        said = run(subject)
    except NotApplicableError as error:
        return Result(group, name, "not applicable", one_line(str(error)))
    except FailedError as error:
        return Result(group, name, "failed", "", one_line(error.expected), one_line(error.found))
    except MemoryError:
        raise
    except DeviceError as error:
        return Result(group, name, "failed", "", "that the device can do it", one_line(str(error)))
    except Exception as error:
        return Result(group, name, "failed", "", "no error", one_line(f"{type(error).__name__}: {error}"))
    return Result(group, name, "measured" if isinstance(said, Measured) else "passed", one_line(str(said)))


class Measured(str):
    """What a case says that measures and doesn't judge."""

    __slots__ = ()


# ---------------------------------------------------------------------------------------------- words
def report(found: SelfTest) -> dict[str, Any]:
    """What --json prints."""
    return {
        "folder": found.folder,
        "title": found.title,
        "original": found.original,
        "device": found.device,
        "simulated": found.simulated,
        "dtype": found.dtype,
        "threads": found.threads,
        "seed": found.seed,
        "changed_since_build": list(found.changed),
        "passed": found.passed,
        "counts": found.counts,
        "cases": [asdict(result) for result in found.results],
        "versions": dict(found.versions),
    }


def log(found: SelfTest) -> str:
    """What --log writes: a line for each case, and their counts."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: SelfTest) -> Iterator[str]:
    yield f"{printable(found.folder)}: {printable(found.title)}"
    yield f"on {found.device}{' (simulated)' if found.simulated else ''}, weights in {found.dtype}, torch on {counted(found.threads, 'thread')}, seed {found.seed}"
    yield ", ".join(f"{name} {printable(str(version))}" for name, version in found.versions.items())
    yield ""
    for number, result in enumerate(found.results, 1):
        said = f"expected {result.expected}; found {result.found}" if result.status == "failed" else result.said
        yield f"{number:3}  {result.status:14}  {result.group}: {result.name}{f' ({said})' if said else ''}"
    yield ""
    yield ", ".join(f"{count} {status}" for status, count in found.counts.items())
