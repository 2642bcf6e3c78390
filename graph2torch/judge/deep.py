"""The deep tier: a folder that build wrote is judged again, on much more than build itself has time for.

The original graph is looked for where it lay when the folder was built. `model.py` of the folder is run, which is code;
`rebuilt.onnx` is compared with the original in onnxruntime, the module beside it. Beyond the quick tier's runs: the
observations of `observations.deep`, random ones and those of a file, many steps of a policy with memory, the samples
themselves, single agents against the same agents in a batch, and how far torch is from onnxruntime block by block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from graph2torch.act.folder import open_folder
from graph2torch.act.observations_file import complete, read_observations
from graph2torch.build import parting
from graph2torch.canonical import canonicalise
from graph2torch.devices.device import Device, asked_for, cpu, exact
from graph2torch.devices.device import threads as on_threads
from graph2torch.devices.on_device import DeviceCheck, check_on_device, moved
from graph2torch.errors import FolderError, UnlikeGraphs, UnsupportedGraph
from graph2torch.files import where
from graph2torch.graph import Array, check_memory, load
from graph2torch.output import MADE
from graph2torch.precisions import PRECISIONS, check_dtype
from graph2torch.recognise import Recognised, recognise, unbuildable
from graph2torch.rulebook import Rules
from graph2torch.spec import Block, PolicySpec
from graph2torch.versions import versions

from .figures import TOLERANCE, Figures, Tally, finite
from .isomorphism import Alignment, align
from .observations import BATCHES, LARGE, SEED, STEPS, Case, deep, observation, ordinary, rows_of, samples_of
from .precision import Half, PrecisionCheck, check_precision, network_before, with_rounding
from .randomness import pin, probe
from .runtime import session
from .sampling import Sampling, check_sampling
from .search import Bounds, reach_bounds
from .torchside import TorchSide
from .verify import EQUAL, Judge, Level, Verification

if TYPE_CHECKING:
    import torch

    from .causes import Cause
    from .divergence import Divergence

ROWS = 16  # that are run one by one and together


@dataclass(frozen=True, slots=True)
class BlockFigures:
    """How far torch is from onnxruntime after a block, each having computed everything before it by itself."""

    role: str
    module: str
    figures: Figures


@dataclass(frozen=True)
class Deep:
    """What the deep tier found.

    original:  the file that was judged against, and its sha256
    changed:   files of the folder that are not as build wrote them
    cases:     kind of observations → how many cases of it were run
    drift:     (step, how far torch's outputs were from onnxruntime's) while each side fed its own memory back
    blocks:    in the policy's order; unblocked: why there are none
    alone:     the original's rows alone against the same rows in a batch, outputs that differ
    bounds:    how many of the bounds that means of actions are clipped to were gone beyond, of how many
    tolerance: what torch may be off by, times max(1, largest output)
    divergence: where the rebuilt graph first computes something else, where the level is close or differs; causes: likely ones
    precision: where weights of 16 bits were asked for, or are stored: the policy with such weights against the same in float32.
               Where they are stored, everything else that is said of torch is about the network before its weights were rounded
    threads:   of torch, on the CPU
    on_device: where another device than the CPU was asked for: model.py there against model.py on the CPU; everything that is said
               of torch elsewhere was computed there, too
    """

    folder: str
    original: str
    sha256: str
    changed: tuple[str, ...]
    verification: Verification
    cases: Mapping[str, int]
    drift: tuple[tuple[int, float], ...]
    blocks: tuple[BlockFigures, ...]
    unblocked: str
    alone: tuple[Figures, ...] | None
    sampling: Sampling | None
    bounds: tuple[int, int]
    untried: tuple[str, ...]
    tolerance: float
    seed: int
    spec: PolicySpec
    divergence: Divergence | None = None
    causes: tuple[Cause, ...] = ()
    on_device: DeviceCheck | None = None
    precision: PrecisionCheck | None = None
    threads: int = 1

    @property
    def equal(self) -> bool:
        """Whether exit status 0 is due."""
        within = self.on_device is None or self.on_device.within
        good = self.precision is None or self.precision.good
        return self.verification.level in EQUAL and (self.sampling is None or self.sampling.right) and within and good


def verify_folder(
    folder: str | Path,
    original: str | Path | None = None,
    *,
    samples: int = 0,
    seed: int = SEED,
    observations: str | Path | None = None,
    tolerance: float = TOLERANCE,
    rules: Rules = (),
    device: Device | str | None = None,
    dtype: str | torch.dtype | None = None,
    threads: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Deep:
    """Judges the folder that build wrote. **Runs its model.py.**

    original:     the .onnx that it was built from; by default where the report says that it lay
    samples:      random observations on top; observations: a file of some (see observations_file)
    seed:         of everything that is random here
    tolerance:    what torch, and a rebuilt graph that is `close`, may be off by, times max(1, largest output)
    device:       where torch computes ("npu", "cuda:1" …); by default the CPU
    dtype:        "float16" or "bfloat16": the policy with such weights is held against float32 as well; by default as they are stored
    threads:      of torch on the CPU, by default one

    Raises ActingError for another dtype; DeviceError if the device can't run the policy, or not in whole float32; FolderError if the folder isn't one that build wrote, its original is missing or another file, or model.py fails;
    ModelError, UnsupportedGraph, RuleError for graphs and rules that can't be used; ObservationError for the file.
    """
    dtype = None if dtype is None else check_dtype(dtype)
    device = asked_for(device)
    import torch

    opened = open_folder(folder, ("rebuilt.onnx",), MADE)
    progress("reading the original")
    path = opened.find_original(original)
    recognised = recognise(path, rules)
    opened.check_original(path, recognised.model.sha256)
    if recognised.spec.unexplained:
        raise UnsupportedGraph(unbuildable(recognised))
    given = None if observations is None else complete(read_observations(observations, recognised.spec.inputs), recognised.spec.inputs)
    rebuilt = load(opened.path / "rebuilt.onnx")
    with on_threads(threads) as count, exact(device or cpu()):
        copy = canonicalise(rebuilt.graph)
        alignment, on_device = align(recognised.spec.graph, copy), None
        stored = opened.contract.dtype
        if stored == PRECISIONS[0]:
            module, known = opened.load(dtype=torch.float32), frozenset[str]()
        else:
            module, known = network_before(opened, recognised.spec, alignment, copy)
        side = TorchSide(module, recognised.spec, changed=True)
        if device is not None and device.kind.type != "cpu":
            progress(f"running on {device.name}")
            on_device = check_on_device(recognised.model.proto, module, recognised.spec, device, seed, (), tolerance, threads)
            side = TorchSide(moved(module, device), recognised.spec, device.name, changed=True)
        found = _Deep(
            opened.path, recognised, rebuilt.proto, rebuilt.sha256, alignment, side, opened.changed, seed, tolerance, progress
        ).run(samples, given)
        precision = None
        if stored != PRECISIONS[0] or (dtype or stored) != PRECISIONS[0]:
            dtype = dtype or stored
            progress(f"running in {dtype}")
            shorter = moved(opened.load(dtype=getattr(torch, dtype)), device or cpu())
            half = Half(shorter, recognised.spec, side.device, changed=True)
            cases = [*ordinary(recognised.spec, seed), *([] if given is None else rows_of(given, recognised.spec.inputs))]
            precision = check_precision(recognised.model.proto, side, half, dtype, recognised.spec, cases, seed)
            if stored != PRECISIONS[0]:
                precision = with_rounding(precision, opened.load(), module, known, stored)
        equal = found.verification.level in EQUAL
        divergence, causes = (None, ()) if equal else parting(recognised, rebuilt.proto, copy)
    return replace(found, divergence=divergence, causes=causes, on_device=on_device, precision=precision, threads=count)


# ---------------------------------------------------------------------------------------------- the tier
class _Deep:
    def __init__(
        self,
        folder: Path,
        recognised: Recognised,
        rebuilt: onnx.ModelProto,
        rebuilt_sha256: str,
        alignment: Alignment,
        side: TorchSide,
        changed: tuple[str, ...],
        seed: int,
        tolerance: float,
        progress: Callable[[str], None],
    ) -> None:
        self.folder, self.recognised, self.rebuilt, self.alignment, self.side = folder, recognised, rebuilt, alignment, side
        self.changed, self.seed, self.tolerance, self.progress = changed, seed, tolerance, progress
        self.spec, self.original = recognised.spec, recognised.model.proto
        self.same_file = rebuilt_sha256 == recognised.model.sha256
        self.untried: list[str] = []

    def run(self, samples: int, given: Mapping[str, Array] | None) -> Deep:
        check_memory(self.original, where(self.recognised.model.path))
        check_memory(self.rebuilt, "rebuilt.onnx")
        cases = [*deep(self.spec, self.seed, self.batches()), *samples_of(self.spec, samples, self.seed)]
        cases += [] if given is None else rows_of(given, self.spec.inputs)
        self.look_inside(cases[0])
        try:
            judge = Judge(self.original, self.rebuilt, self.spec, self.alignment, self.side, self.seed, self.tolerance)
            self.progress("looking for observations that reach the bounds of the actions")
            bounded = [] if self.side.other_layers else list(judge.noises.bounds.values())
            bounds = reach_bounds(self.side, bounded, self.seed)
            cases += bounds.cases
            self.progress(f"running {len(cases)} cases")
            judge.run(cases)
        except UnlikeGraphs as found:  # here that is a finding
            verification = Verification("differs", str(found).removesuffix(" Please report this model."), (), (), (), self.seed, False)
            return self.result(verification, {}, (), (), None, None, Bounds((), 0, 0))
        verification = judge.verdict(self.same_file)
        ran = {run.rpartition(", optimiser ")[0] for run in judge.runs}
        counted = Counter(case.kind for case in cases if case.label in ran)
        self.progress("comparing block by block")
        blocks = () if self.side.other_layers else self.blocks(judge, cases)
        self.progress("comparing single agents with a batch of them")
        alone = self.alone(judge)
        self.progress("testing samples")
        sampling = check_sampling(self.side, self.rebuilt, judge.draws, self.sampled_from(cases), self.seed) if self.spec.noise else None
        drift = tuple((step, off) for step, (_, off) in enumerate(judge.drift, 1))
        return self.result(verification, counted, drift, blocks, alone, sampling, bounds)

    def result(
        self,
        verification: Verification,
        cases: Mapping[str, int],
        drift: tuple[tuple[int, float], ...],
        blocks: tuple[BlockFigures, ...],
        alone: tuple[Figures, ...] | None,
        sampling: Sampling | None,
        bounds: Bounds,
    ) -> Deep:
        model = self.recognised.model
        return Deep(
            str(self.folder), str(model.path), model.sha256, self.changed, verification, dict(cases), drift, blocks, self.side.other_layers, alone,
            sampling, (bounds.reached, bounds.total), tuple(self.untried), self.tolerance, self.seed, self.spec,
        )  # fmt: skip

    def inside(self) -> list[str]:
        """What the blocks make, as far as the file has a name for it."""
        known = {o for n in self.original.graph.node for o in n.output}
        drawn = {v for b in self.spec.blocks for _, v in b.drawn}
        return list(dict.fromkeys(v for b in self.spec.blocks for v in b.outputs if v in known and v not in drawn))

    def look_inside(self, case: Case) -> None:
        """Finds out whether model.py has the layers that build wrote: if it was changed, its outputs are judged alone."""
        try:
            self.side.inner(self.inside(), case.feed)
        except FolderError as error:
            if "model.py" not in self.changed:
                raise
            self.side.other_layers = str(error)

    def batches(self) -> list[int]:
        """Those of the deep tier's batches whose values inside are not too many."""
        large = [batch for batch in LARGE if not self.fits(batch)]
        self.untried += [f"batch {batch} (too large for this graph)" for batch in large]
        return [batch for batch in BATCHES if batch not in large]

    def fits(self, batch: int) -> bool:
        try:
            check_memory(self.original, where(self.recognised.model.path), batch)
        except UnsupportedGraph:
            return False
        return True

    def sampled_from(self, cases: Sequence[Case]) -> list[dict[str, Array]]:
        """Three ordinary observations, the second and third with some options forbidden."""
        label = next(case for case in cases if case.kind == "ordinary" and "again" in case.label)
        masked = next(iter(samples_of(self.spec, 2, self.seed))).feed
        masks = {i.name for i in self.spec.inputs if i.kind == "mask"}
        found = [{name: array[:1] if array.ndim else array for name, array in label.feed.items()}]
        for row in range(2 if masks else 0):
            found.append({name: masked[name][row : row + 1] if name in masks else array for name, array in found[0].items()})
        fixed = {i.name: i.shape[0] for i in self.spec.inputs if i.shape and isinstance(i.shape[0], int)}
        return [{name: np.repeat(array, fixed[name], 0) if name in fixed else array for name, array in feed.items()} for feed in found]

    # ------------------------------------------------------------------------------------------ by block
    def blocks(self, judge: Judge, cases: Sequence[Case]) -> tuple[BlockFigures, ...]:
        """Every block's outputs in torch and in onnxruntime, on the ordinary cases and those of a file, both on the same noise."""
        drawn = [a for a, _ in judge.draws]
        values = self.inside()
        proto = pin(self.original, drawn)
        count = len(proto.graph.output)
        probe(proto, values)
        runner = session(proto, False, "the original")
        tallies = {value: Tally(value) for value in values}
        for case in cases:
            if case.kind not in ("ordinary", "given") or case.carried:
                continue
            noise = judge.noises.draw(case.feed, np.random.default_rng([self.seed, *case.label.encode()]))
            try:
                expected = None if noise is None else runner.run(None, {**case.feed, **dict(zip(drawn, noise.drawn, strict=True))})[count:]
            except Exception:  # the original can't do this batch
                expected = None
            if noise is None or expected is None:
                continue
            given = self.side.inner(values, case.feed, dict(zip(drawn, noise.noise, strict=True)))
            for value, a, b in zip(values, expected, given, strict=True):
                tallies[value].add(a, b)
        found = []
        for block in self.spec.blocks:
            mine = [tallies[v].figures() for v in block.outputs if v in tallies]
            found += [BlockFigures(_role(block, f.output), self.spec.module_path(block), f) for f in mine if f.compared]
        return tuple(found)

    # ------------------------------------------------------------------------------------------ rows
    def alone(self, judge: Judge) -> tuple[Figures, ...] | None:
        """The original's outputs for single rows against those for the rows together, where they differ; None if it takes one number of rows."""
        inputs = self.spec.graph.inputs
        if not inputs or any(not i.shape or isinstance(i.shape[0], int) for i in inputs):
            return None
        rng = np.random.default_rng([self.seed, *b"alone"])
        feed = {i.name: observation(i, ROWS, "ordinary", rng) for i in inputs}
        drawn = judge.noises.draw(feed, rng)
        runner = session(pin(self.original, [a for a, _ in judge.draws]), True, "the original")
        if drawn is None or any(len(z) != ROWS for z in drawn.drawn):
            return None
        feed |= {a: z for (a, _), z in zip(judge.draws, drawn.drawn, strict=True)}
        try:
            together = runner.run(None, feed)
            singles = [runner.run(None, {k: v[row : row + 1] for k, v in feed.items()}) for row in range(ROWS)]
        except Exception:  # it takes these numbers of rows only otherwise
            return None
        found = []
        for i, output in enumerate(self.spec.outputs):
            if together[i].shape[:1] != (ROWS,) or output.constant is not None:
                continue
            tally = Tally(output.name)
            tally.add(together[i], np.concatenate([single[i] for single in singles]))
            found.append(tally.figures())
        return tuple(found)


def _role(block: Block, value: str) -> str:
    several = len(block.outputs) > 1
    labels = dict(zip(block.outputs, block.label.split(", "), strict=False))
    return f"{block.role}: {labels.get(value, value)}" if several else block.role


# ---------------------------------------------------------------------------------------------- words
def report(found: Deep) -> dict[str, Any]:
    """What the deep tier found, as JSON."""
    checked = found.verification
    return {
        "level": checked.level,
        "equal": found.equal,
        "reason": checked.reason,
        "folder": found.folder,
        "original": {"path": found.original, "sha256": found.sha256},
        "changed_since_build": list(found.changed),
        "tolerance": found.tolerance,
        "seed": found.seed,
        "threads": found.threads,
        "rebuilt": [finite(asdict(f)) for f in checked.rebuilt],
        "torch": [finite(asdict(f)) for f in checked.module],
        "runs": list(checked.runs),
        "cases": dict(found.cases),
        "not_run_by_the_original": list(checked.refused),
        "not_tried": list(found.untried),
        "isomorphic": checked.isomorphic,
        "blocks": [{"role": b.role, "module": b.module or None, **finite(asdict(b.figures))} for b in found.blocks],
        "blocks_not_compared": found.unblocked or None,
        "sequence": [finite({"step": step, "max_abs": off}) for step, off in found.drift],
        "rows_alone_against_batch": None if found.alone is None else [finite(asdict(f)) for f in found.alone],
        "divergence": found.divergence
        and {**found.divergence.told(), "causes": [{"name": cause.name, "words": cause.words} for cause in found.causes]},
        "bounds_of_means": {"reached": found.bounds[0], "of": found.bounds[1]},
        "sampling": None
        if found.sampling is None
        else {
            "right": found.sampling.right,
            "level": found.sampling.level,
            "draws": found.sampling.drawn,
            "seed": found.sampling.seed,
            "tests": [finite(asdict(t)) for t in found.sampling.tests],
            "forbidden_options_drawn": dict(found.sampling.forbidden),
            "not_tested": list(found.sampling.untested),
        },
        "device": found.on_device and found.on_device.told(),
        "precision": found.precision and found.precision.told(),
        "versions": versions(),
    }


def steps_shown(drift: Sequence[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    """The first step, then every doubling, and the last."""
    for step, off in drift:
        if step & (step - 1) == 0 or step == len(drift):
            yield step, off


__all__ = ["STEPS", "Deep", "Level", "report", "steps_shown", "verify_folder"]
