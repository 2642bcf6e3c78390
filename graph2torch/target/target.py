"""The policy for a target: another opset, fewer outputs, a fixed batch, half precision, or one of torch's own formats.

What is made is compared with the original before it is written: a graph in onnxruntime, on all outputs that it kept; an
artefact of torch loaded again from its bytes, with the torch module and with the original. What differs by more than the
tolerance is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx

from graph2torch.act.folder import open_folder
from graph2torch.canonical import canonicalise
from graph2torch.devices.device import threads
from graph2torch.errors import TargetError, UnsupportedGraph
from graph2torch.export import EXPORTERS, export
from graph2torch.files import check_file, where, write_file
from graph2torch.graph import Array, check_memory, read_graph
from graph2torch.judge.figures import TOLERANCE, Figures, Tally, finite
from graph2torch.judge.isomorphism import Alignment, align
from graph2torch.judge.observations import QUICK, SEED, TORCH_KINDS, Case, observation, quick
from graph2torch.judge.randomness import Drawn, Randomness, choices_of, needed_draws, pair_draws, pin
from graph2torch.judge.runtime import check_accepted, session
from graph2torch.judge.torchside import TorchSide
from graph2torch.judge.verify import Level
from graph2torch.precisions import PRECISIONS
from graph2torch.recognise import MAX_BUILT, Recognised, recognise, unbuildable
from graph2torch.rulebook import Rules
from graph2torch.spec import PolicySpec
from graph2torch.text import one_line, quoted
from graph2torch.versions import versions

from .graph import halved, restricted
from .prune import undrawn_outputs

Format = Literal["onnx", "torch-export", "aot-inductor", "torchscript"]
ENDINGS: Mapping[str, Format] = {".onnx": "onnx", ".pt2": "torch-export", ".ts": "torchscript", ".pt": "torchscript"}
FORMATS: tuple[Format, ...] = ("onnx", "torch-export", "aot-inductor", "torchscript")
HALF_TOLERANCE = 1e-2  # float16 keeps 11 bits, and each layer rounds again
TOO_LARGE = frozenset({"huge", "not finite"})  # for float16, which ends at 65,504


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked for.

    format:    None for the one that the file's ending says
    deterministic_only: without the outputs that are drawn at random
    metadata:  keep outputs that are always the same numbers; Unity reads them
    opset:     None for the original's
    batch:     the number of agents, fixed; None for any
    fp16:      layers in float16, see `target_graph.halved`
    exporter:  torch's that writes ONNX, "torchscript" or "dynamo"
    tolerance: what may be off, times max(1, largest output); None for 1e-5, with fp16 for 1e-2
    """

    format: Format | None = None
    deterministic_only: bool = False
    metadata: bool = True
    opset: int | None = None
    batch: int | None = None
    fp16: bool = False
    exporter: str = "torchscript"
    tolerance: float | None = None

    @property
    def kind(self) -> Format:
        """The format, once the file's ending was looked at; without a file, ONNX."""
        return self.format or "onnx"

    @property
    def allowed(self) -> float:
        return self.tolerance if self.tolerance is not None else HALF_TOLERANCE if self.fp16 else TOLERANCE


@dataclass(frozen=True)
class Comparison:
    """How what was made compares with its reference.

    level, reason:    as for a build; for an artefact of torch, "bits" at best
    against_original: in onnxruntime; against_module: of an artefact of torch, the torch module
    """

    level: Level
    reason: str
    against_original: tuple[Figures, ...]
    against_module: tuple[Figures, ...]
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Exported:
    """A policy for a target, not yet written. kept and left_out: names of outputs; removed: of inputs; halves: nodes in float16.

    changed: files of the folder that are not as build wrote them; noise: inputs that an artefact of torch takes the draws from
    stored:  the precision of the folder's weights: other than float32, they were rounded, and so are the export's
    """

    target: Target
    data: bytes
    comparison: Comparison
    kept: tuple[str, ...]
    left_out: tuple[str, ...]
    removed: tuple[str, ...]
    halves: int
    nodes: tuple[int, int]
    opset: int | None
    noise: tuple[str, ...]
    changed: tuple[str, ...]
    stored: str = PRECISIONS[0]

    @property
    def equal(self) -> bool:
        """Whether it may be written, and exit status 0 is due: nothing is off by more than the tolerance."""
        return self.comparison.level != "differs"


def format_of(path: Path, asked: str | None) -> Format:
    """As asked for, or by the file's ending. TargetError if that says nothing."""
    if asked is not None:
        found = next((f for f in FORMATS if f == asked), None)
        if found is None:
            raise TargetError(f"--format {quoted(asked)} is none that there is; give one of {', '.join(FORMATS)}.")
        return found
    if path.suffix.lower() not in ENDINGS:
        raise TargetError(f"The ending of {quoted(path.name)} tells no format; end it in .onnx, .pt2 or .ts, or give --format.")
    return ENDINGS[path.suffix.lower()]


def export_folder(
    folder: str | Path,
    output: str | Path,
    target: Target,
    original: str | Path | None = None,
    *,
    force: bool = False,
    rules: Rules = (),
    seed: int = SEED,
    progress: Callable[[str], None] = lambda _: None,
) -> Exported:
    """Exports the folder that build wrote, compares, and writes `output` if that is the same within the tolerance. **Runs model.py.**

    Weights that are stored in half precision are exported in float32 as they were rounded, and may be off as with --fp16.

    original: the .onnx that it was built from; by default where the report says that it lay

    Raises FolderError for the folder, TargetError for what can't be asked of this policy or of torch, UnsupportedGraph if torch
    can't export it, OutputError for the file; nothing is written then.
    """
    folder, output = Path(folder), Path(output)
    opened = open_folder(folder)
    check_file(output, force, "--output")
    target = replace(target, format=format_of(output, target.format))
    _check(target)
    progress("reading the original")
    path = opened.find_original(original)
    recognised = recognise(path, rules, MAX_BUILT)
    opened.check_original(path, recognised.model.sha256)
    if recognised.spec.unexplained:
        raise UnsupportedGraph(unbuildable(recognised))
    check_memory(recognised.model.proto, where(recognised.model.path))
    check_accepted(recognised.model.proto)
    stored = opened.contract.dtype
    if stored != PRECISIONS[0] and target.tolerance is None:
        target = replace(target, tolerance=HALF_TOLERANCE)
    import torch

    with threads():
        module = opened.load(dtype=torch.float32)
        made = replace(export_module(module, recognised, target, seed, opened.changed, progress), stored=stored)
    if made.equal:
        progress("writing")
        write_file(output, made.data, force, "--output")
    return made


def export_module(
    module: Any,
    recognised: Recognised,
    target: Target,
    seed: int = SEED,
    changed: tuple[str, ...] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Exported:
    """`module`, the policy of a build, for the target, compared and not written. Raises what `export_folder` raises."""
    spec = recognised.spec
    kept = kept_outputs(spec, target)
    cases = cases_of(spec, target, seed)
    progress("exporting")
    noise: tuple[str, ...] = ()
    if target.kind == "onnx":
        made, opset, halves = _graph(module, recognised, target, kept)
        progress("comparing")
        comparison = _compare_graphs(recognised, made, target, kept, cases, seed)
        data, count = made.SerializeToString(), len(made.graph.node)
        inputs = {i.name for i in made.graph.input}
    else:
        from .programs import Artefact

        judge = _Original(recognised, target, kept, [(d, d) for d in needed_draws(restricted(recognised.model.proto, kept))], seed)
        first = next((c for c in cases if judge.drawn(c) is not None and c.torch), None)
        if first is None:
            raise TargetError("onnxruntime runs the original on none of the inputs tried, so there is nothing to compare with.")
        drawn = judge.drawn(first)
        assert drawn is not None
        side = TorchSide(module, spec, changed=bool(changed))
        artefact = Artefact(side, target, kept, first.feed, judge.by_value(drawn))
        progress("comparing")
        comparison = _compare_artefact(judge, artefact, side, target, cases)
        data, noise, count, opset, halves = artefact.data, artefact.noise, 0, None, 0
        inputs = {i.name for i in spec.inputs}
    left_out = tuple(o.name for o in spec.outputs if o.name not in kept)
    removed = tuple(i.name for i in spec.inputs if i.name not in inputs)
    nodes = (len(recognised.model.proto.graph.node), count)
    return Exported(target, data, comparison, kept, left_out, removed, halves, nodes, opset, noise, changed)


def _check(target: Target) -> None:
    if target.kind != "onnx":
        given = {"--opset": target.opset is not None, "--fp16": target.fp16, "--exporter": target.exporter != "torchscript"}
        if wrong := [name for name, there in given.items() if there]:
            go, them = ("goes", "it") if len(wrong) == 1 else ("go", "them")
            raise TargetError(f"{' and '.join(wrong)} {go} with the format onnx, not with {target.kind}; leave {them} out.")
    if target.exporter not in EXPORTERS:
        raise TargetError(f"--exporter {quoted(target.exporter)} is none that there is; give one of {', '.join(EXPORTERS)}.")


def kept_outputs(spec: PolicySpec, target: Target) -> tuple[str, ...]:
    """Names of the outputs that the target has. TargetError if no action would be left."""
    names = undrawn_outputs(spec.graph) if target.deterministic_only else tuple(o.name for o in spec.outputs)
    kept = [o for o in spec.outputs if o.name in names and (target.metadata or o.constant is None)]
    memory = {i.next for i in spec.inputs if i.kind == "memory"}
    if target.deterministic_only and all(o.constant is not None or o.name in memory for o in kept):
        raise TargetError(
            "The original has no deterministic actions: every action it gives is drawn at random. Leave --deterministic-only out, or export "
            "the policy with ML-Agents 0.27 or newer."
        )
    return tuple(o.name for o in kept)


def cases_of(spec: PolicySpec, target: Target, seed: int) -> list[Case]:
    """The quick tier's observations, all of the fixed batch if there is one; with fp16 without those beyond its range."""
    if target.batch is None:
        cases = list(quick(spec.graph.inputs, seed))
    else:
        cases = []
        fixed = [replace(i, shape=(target.batch, *i.shape[1:])) if i.shape else i for i in spec.graph.inputs]
        for number, (_, kind) in enumerate(QUICK):
            rng = np.random.default_rng([seed, number, *kind.encode()])
            feed = {i.name: observation(i, target.batch, kind, rng) for i in fixed}
            noise: Literal["wide", "ordinary"] = "wide" if kind == "extreme" else "ordinary"
            cases.append(Case(f"{kind} {number}, batch {target.batch}", kind, feed, kind in TORCH_KINDS, noise))
    return [c for c in cases if not (target.fp16 and c.kind in TOO_LARGE)]


# ---------------------------------------------------------------------------------------------- graphs
def _graph(module: Any, recognised: Recognised, target: Target, kept: Sequence[str]) -> tuple[onnx.ModelProto, int, int]:
    opset = target.opset
    made = export(module, recognised.spec, EXPORTERS[target.exporter], opset=opset)
    made = restricted(made, kept, target.batch)
    halves = 0
    if target.fp16:
        made, halves = halved(made)
    try:
        onnx.checker.check_model(made, full_check=True)
    except Exception as error:
        raise UnsupportedGraph(
            f"What was made for this target is no valid graph ({one_line(str(error), 200)}). Please report this model."
        ) from None
    return made, recognised.spec.graph.opset if opset is None else opset, halves


class _Original:
    """The original in onnxruntime, its draws pinned, on the outputs that are kept."""

    def __init__(self, recognised: Recognised, target: Target, kept: Sequence[str], draws: Sequence[tuple[str, str]], seed: int) -> None:
        self.kept, self.draws, self.seed, self.target = list(kept), draws, seed, target
        self.proto = recognised.model.proto
        mine = [a for a, _ in draws]
        self.choices = {name: values for name, values in choices_of(recognised.spec.graph).items() if name in kept}
        self.noises = Randomness(self.proto, mine, [], self.choices, recognised.spec.graph)
        self.pinned = pin(self.proto, mine)
        self.found: dict[str, Drawn | None] = {}
        self.runs: list[str] = []

    def drawn(self, case: Case) -> Drawn | None:
        if case.label not in self.found:
            rng = np.random.default_rng([self.seed, *case.label.encode()])
            self.found[case.label] = self.noises.draw(case.feed, rng, 8.0 if case.noise == "wide" else 1.0)
        return self.found[case.label]

    def by_value(self, drawn: Drawn) -> dict[str, Array]:
        """The noise that makes the torch module draw so, by the graph's value."""
        return {a: z for (a, _), z in zip(self.draws, drawn.noise, strict=True)}

    def outputs(self, runner: Any, case: Case, drawn: Drawn) -> list[Array] | None:
        """None if the original can't do this batch."""
        known = {i.name for i in runner.get_inputs()}
        feed = {**case.feed, **{a: z for (a, _), z in zip(self.draws, drawn.drawn, strict=True)}}
        try:
            found: list[Array] = runner.run(self.kept, {k: v for k, v in feed.items() if k in known})
        except Exception:
            return None
        return found

    def add(self, tallies: dict[str, Tally], drawn: Drawn, expected: Sequence[Array], given: Sequence[Array]) -> None:
        """Options count as equal where both choose among equally good ones, unless the bits are in question."""
        for name, a, b in zip(self.kept, expected, given, strict=True):
            tallies.setdefault(name, Tally(name)).add(a, b)
            if name in self.choices:
                settled = drawn.settle(self.choices[name], a, b, self.target.allowed)
                tallies.setdefault(f"{name}{SETTLED}", Tally(name)).add(a, settled)


SETTLED = "\0settled"


def _compare_graphs(
    recognised: Recognised, made: onnx.ModelProto, target: Target, kept: Sequence[str], cases: Sequence[Case], seed: int
) -> Comparison:
    """`made` against the original, the optimiser on and off; structure against the original restricted in the same way."""
    reference = canonicalise(read_graph(restricted(recognised.model.proto, kept, target.batch), "the original"))
    alignment = align(reference, canonicalise(read_graph(made, "the export")))
    draws = pair_draws(restricted(recognised.model.proto, kept, target.batch), made, alignment)
    judge = _Original(recognised, target, kept, draws, seed)
    theirs = pin(made, [b for _, b in draws])
    tallies: dict[str, Tally] = {}
    for optimised in (True, False):
        runner, other = session(judge.pinned, optimised, "the original"), session(theirs, optimised, "the export")
        declared = {o.name: o.shape for o in other.get_outputs()}
        known = {i.name for i in other.get_inputs()}
        for case in cases:
            drawn = judge.drawn(case)
            expected = None if drawn is None else judge.outputs(runner, case, drawn)
            if drawn is None or expected is None:
                continue
            feed = {**case.feed, **{b: z for (_, b), z in zip(draws, drawn.drawn, strict=True)}}
            try:
                given = other.run(list(kept), {k: v for k, v in feed.items() if k in known})
            except Exception as error:
                raise UnsupportedGraph(
                    f"onnxruntime runs the original on {case.label} observations, but not the export ({one_line(str(error), 200)}). "
                    "Please report this model."
                ) from None
            for name, array in zip(kept, given, strict=True):
                sizes = declared[name]
                if (
                    sizes
                    and len(sizes) == array.ndim
                    and any(isinstance(d, int) and d != n for d, n in zip(sizes, array.shape, strict=True))
                ):
                    raise UnsupportedGraph(
                        f"The export declares its output {quoted(name)} with other sizes than it has ({list(array.shape)}). Please report this model."
                    )
            judge.add(tallies, drawn, expected, given)
            judge.runs.append(f"{case.label}, optimiser {'on' if optimised else 'off'}")
    figures, level, reason = _judged(tallies, kept, target.allowed)
    if level == "bits":
        level, reason = _structure(alignment)
    return Comparison(level, reason, figures, (), tuple(judge.runs))


def _structure(alignment: Alignment) -> tuple[Level, str]:
    if alignment.isomorphic:
        return "graph", ""
    return "bits", alignment.refusal or f"{len(alignment.differing)} constants differ without an effect on any output tried"


def _judged(tallies: Mapping[str, Tally], kept: Sequence[str], tolerance: float) -> tuple[tuple[Figures, ...], Level, str]:
    """Figures by output, the level by numbers alone, and why not a better one. TargetError if an output was not compared."""
    if missing := [name for name in kept if name not in tallies]:
        raise TargetError(
            f"The output {quoted(missing[0])} could not be compared: onnxruntime ran the original on none of the inputs tried. "
            "Nothing is called equal that was not looked at."
        )
    exact = tuple(tallies[name].figures() for name in kept)
    if not any(f.differing for f in exact):
        return exact, "bits", ""
    settled = tuple(tallies[s if (s := f"{name}{SETTLED}") in tallies else name].figures() for name in kept)
    worst = max((f for f in exact if f.differing), key=lambda f: f.max_abs / max(1.0, f.reference_max))
    far = [f for f in settled if not f.within(tolerance)]
    worst = far[0] if far else worst
    reason = f"{quoted(worst.output)} differs in {worst.differing:,} of {worst.compared:,} numbers, by up to {worst.max_abs:.3g}"
    return exact, "differs" if far else "close", reason


# ---------------------------------------------------------------------------------------------- artefacts of torch
def _compare_artefact(judge: _Original, artefact: Any, side: TorchSide, target: Target, cases: Sequence[Case]) -> Comparison:
    """The artefact, loaded again, against the module and against the original, on what torch is compared on."""
    against_module: dict[str, Tally] = {}
    against_original: dict[str, Tally] = {}
    runner = session(judge.pinned, True, "the original")
    places = [i for i, o in enumerate(side.spec.outputs) if o.name in judge.kept]
    for case in (c for c in cases if c.torch):
        drawn = judge.drawn(case)
        expected = None if drawn is None else judge.outputs(runner, case, drawn)
        if drawn is None or expected is None:
            continue
        noise = judge.by_value(drawn)
        given = artefact.run(case.feed, noise)
        full = side.outputs(case.feed, artefact.filled(noise))
        judge.add(against_module, drawn, [full[i] for i in places], given)
        judge.add(against_original, drawn, expected, given)
        judge.runs.append(f"{case.label}, optimiser on")
    ours, level, reason = _judged(against_module, judge.kept, target.allowed)
    theirs, other, why = _judged(against_original, judge.kept, target.allowed)
    if other == "differs":
        level, reason = other, why
    return Comparison(level, reason, theirs, ours, tuple(judge.runs))


def report(made: Exported, output: Path) -> dict[str, Any]:
    """The facts of an export as JSON."""
    found = made.comparison
    return {
        "output": str(output) if made.equal else None,
        "target": asdict(made.target),
        "level": found.level,
        "reason": found.reason,
        "tolerance": made.target.allowed,
        "stored": made.stored,
        "outputs": list(made.kept),
        "left_out": list(made.left_out),
        "inputs_left_out": list(made.removed),
        "noise": list(made.noise),
        "opset": made.opset,
        "nodes": {"original": made.nodes[0], "export": made.nodes[1], "float16": made.halves} if made.opset else None,
        "bytes": len(made.data),
        "against_original": [finite(asdict(f)) for f in found.against_original],
        "against_module": [finite(asdict(f)) for f in found.against_module],
        "runs": list(found.runs),
        "changed": list(made.changed),
        "versions": versions(),
    }
