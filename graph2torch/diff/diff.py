"""In what two files differ: two graphs, two checkpoints, or one of each. The verdict first, in a line.

Two graphs are laid on each other without their names, their weights compared bit by bit, and both run in onnxruntime on the
same inputs. How equal they are is told by the levels of verify.py:

    bytes    the two files are the same
    graph    operator by operator the same computation on the same numbers, for every input; and bits holds
    bits     onnxruntime gives bit-equal outputs on everything tried, its optimiser on and off
    close    within 1e-5 · max(1, largest output), in each case that was tried
    differs  none of these

Nothing about policies is assumed: where the rules know a graph its differences are told by its layers, else by its nodes.
Two graphs are compared without torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import onnx

from graph2torch.canonical import canonicalise
from graph2torch.errors import CheckpointError, Graph2TorchError, UnsupportedGraph
from graph2torch.files import is_archive, where
from graph2torch.graph import Graph, Model, Node, draws_random, load
from graph2torch.judge.correspondence import Correspondence, correspond
from graph2torch.judge.figures import TOLERANCE
from graph2torch.judge.isomorphism import Alignment, align, same_attributes
from graph2torch.match import COMMUTATIVE
from graph2torch.text import one_line, quoted

from .interface import differences, lay, under_names
from .numbers import SEED, Numbers, Outputs, compare_numbers
from .opsets import counted_from_the_end, other_meaning
from .structure import Structure, compare_structure, places
from .weights import Weights, compare_weights

if TYPE_CHECKING:
    from graph2torch.rulebook import Rules
    from graph2torch.spec import PolicySpec

    from .checkpoints import CheckpointDifference

Level = Literal["bytes", "graph", "bits", "close", "differs"]
Progress = Callable[[str], None]
EQUAL: frozenset[Level | None] = frozenset({"bytes", "graph", "bits"})
NEAR = 16  # units in the last place; if weights are no further apart, that is said first
SHOWN = 200  # characters of a text in the metadata


@dataclass(frozen=True, slots=True)
class File:
    """One of the two files. `step` is a checkpoint's; exporter and opset a graph's."""

    name: str
    sha256: str
    size: int
    exporter: str = ""
    opset: int | None = None
    ir_version: int | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that both files say about themselves, and say differently; None where one doesn't say it."""

    what: str
    a: str | None
    b: str | None


@dataclass(frozen=True)
class GraphDifference:
    """In what two graphs differ.

    level:    how equal they are; None if they were not run (`reason` says so)
    reason:   why not the next stronger level
    spelled:  differences that change no computation, in words
    weights:  of what corresponds
    divergence: the first place where the two part, as `graph2torch.judge.divergence.Divergence.told` has it; None where they don't, or
              where hardly anything corresponds
    causes:   what is likely to be behind it, in words; each was measured (`graph2torch.judge.causes`)
    """

    level: Level | None
    reason: str
    spelled: tuple[str, ...]
    structure: Structure
    weights: Weights
    numbers: Numbers
    divergence: Mapping[str, Any] | None = None
    causes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """What `diff` found.

    kind:    "graphs", "checkpoints" or "pair" (an .onnx and a .pt, whichever came first)
    equal:   whether the networks are equal: exit status 0
    verdict: one line
    graphs, checkpoints, pair: the details, by kind; `pair` as `graph2torch.inspect.inspect_pair` gives it
    metadata: what the files say differently about themselves
    """

    kind: Literal["graphs", "checkpoints", "pair"]
    a: File
    b: File
    equal: bool
    verdict: str
    graphs: GraphDifference | None = None
    checkpoints: CheckpointDifference | None = None
    pair: Mapping[str, Any] | None = None
    metadata: tuple[Entry, ...] = ()


def diff(
    a: str | Path,
    b: str | Path,
    *,
    rules: Rules = (),
    samples: int = 0,
    seed: int = SEED,
    run: bool = True,
    progress: Progress = lambda _: None,
) -> Difference:
    """Compares two files, each an .onnx or a .pt (told by its content).

    samples: ordinary inputs tried on top of the fixed ones; seed: of all inputs
    run:     whether to run the graphs; without, no level is reached

    Raises Graph2TorchError if a file can't be read, or if two graphs that look the same can't be run.
    """
    archives = [is_archive(Path(p)) for p in (a, b)]
    if all(archives):
        return _diff_checkpoints(Path(a), Path(b), progress)
    if any(archives):
        return _diff_pair(*((b, a) if archives[0] else (a, b)), rules=rules, progress=progress)
    progress(f"reading {where(Path(a))} and {where(Path(b))}")
    return diff_models(load(a), load(b), rules=rules, samples=samples, seed=seed, run=run, progress=progress)


# ---------------------------------------------------------------------------------------------- two graphs
def diff_models(
    a: Model,
    b: Model,
    *,
    rules: Rules = (),
    samples: int = 0,
    seed: int = SEED,
    run: bool = True,
    progress: Progress = lambda _: None,
) -> Difference:
    """Two graphs that were read; see `diff`."""
    found = _Graphs(a, b, rules).compare(samples, seed, run, progress)
    equal, verdict = _verdict(found)
    return Difference("graphs", _file(a), _file(b), equal, verdict, graphs=found, metadata=tuple(_metadata(a, b)))


def _file(model: Model) -> File:
    graph = model.graph
    return File(model.path.name, model.sha256, model.size, graph.producer, graph.opset, graph.ir_version)


class _Graphs:
    def __init__(self, a: Model, b: Model, rules: Rules) -> None:
        self.models, self.rules = (a, b), rules
        self.canonical = canonicalise(a.graph), canonicalise(b.graph)
        self.a, self.b = map(counted_from_the_end, self.canonical)
        self.interface = lay(self.a, self.b)
        outputs = [i for i, _ in self.interface.outputs]
        common = replace(self.a, outputs=tuple(self.a.outputs[i] for i in outputs), results=tuple(self.a.results[i] for i in outputs))
        mapped, self.old_names = under_names(self.b, self.interface, self.a)
        self.alignment: Alignment = align(common, mapped)
        self.other_meaning = other_meaning(self.a, self.b)
        self.same_structure = self.alignment.refusal is None and self.interface.same
        self.correspondence: Correspondence | None = None if self.same_structure else correspond(self.a, self.b)

    def compare(self, samples: int, seed: int, run: bool, progress: Progress) -> GraphDifference:
        same_file = self.models[0].sha256 == self.models[1].sha256
        isomorphic = self.same_structure and not self.alignment.differing
        specs = None if isomorphic else self.specs(progress)
        place = {} if isomorphic else places(self.a, specs[0] if specs else None, self.models[0].graph.constants)
        weights = compare_weights(
            self.constants(),
            self.a.constants,
            self.b.constants,
            (self.models[0].graph.constants, self.models[1].graph.constants),
            lambda name: place.get(name, ""),
        )
        numbers = Numbers(not_compared=("everything: the two files are the same",), seed=seed)
        if not same_file:
            progress("running both")
            numbers = self.run(samples, seed) if run else Numbers(not_compared=("everything: that was not asked for",), seed=seed)
        level, reason = self.level(same_file, isomorphic, run, numbers)
        structure = self.structure(specs)
        divergence: Mapping[str, Any] | None = None
        causes: tuple[str, ...] = ()
        if run and level not in EQUAL and not structure.unrelated:
            progress("looking for the place where they part")
            divergence, causes = self.part(specs, seed)
        return GraphDifference(level, reason, tuple(self.spelled(weights)), structure, weights, numbers, divergence, causes)

    def part(self, specs: tuple[PolicySpec, PolicySpec] | None, seed: int) -> tuple[Mapping[str, Any] | None, tuple[str, ...]]:
        """The first place where the two part, and the likely causes."""
        from graph2torch.judge.causes import likely_causes
        from graph2torch.judge.divergence import first_divergence

        found = self.correspondence or correspond(self.a, self.b)
        feeds = None if self.interface.feedable else ()
        divergence = first_divergence(*self.models, feeds, found=found, blocks=specs[0].blocks if specs else (), seed=seed)
        causes = likely_causes(self.a, self.b, found, divergence)
        return divergence.told() if divergence else None, tuple(cause.words for cause in causes)

    def constants(self) -> list[tuple[str, str]]:
        """Constants used in the same place, under the names that the two graphs give them."""
        pairs = self.correspondence.constants if self.correspondence is not None else self.alignment.constants
        old = self.old_names if self.correspondence is None else {}
        order = {name: i for i, name in enumerate(self.a.constants)}
        return sorted(((x, old.get(y, y)) for x, y in pairs), key=lambda pair: order[pair[0]])

    def nodes(self) -> list[tuple[Node, Node]]:
        if self.correspondence is not None:
            return list(self.correspondence.nodes)
        by_index = {n.index: n for n in self.b.nodes}
        return [(x, by_index[y.index]) for x, y in self.alignment.nodes]

    def specs(self, progress: Progress) -> tuple[PolicySpec, PolicySpec] | None:
        """What the rules make of the two, if a family of policies knows either; of one structure it is the same."""
        from graph2torch.rulebook import folders_of, load_rules

        progress("recognising")
        book = load_rules(*folders_of(self.rules))
        graphs = self.canonical
        if all(book.family(g)[0] == book.families[-1][0] for g in graphs):
            return None
        try:
            first = book.recognise(graphs[0])
            return first, first if self.same_structure else book.recognise(graphs[1])
        except Graph2TorchError:
            if self.rules:
                raise
            return None  # nodes can still be told

    def structure(self, specs: tuple[PolicySpec, PolicySpec] | None) -> Structure:
        counts = len(self.a.nodes), len(self.b.nodes)
        titles = (specs[0].title, specs[1].title) if specs else (_summary(self.a), _summary(self.b))
        if self.correspondence is None:
            words = tuple(differences(self.interface))
            return Structure(self.same_structure, False, words, titles, counts, len(self.alignment.nodes), 0, 0, 0)
        return compare_structure(self.correspondence, self.interface, specs, counts, titles)

    def run(self, samples: int, seed: int) -> Numbers:
        if not self.interface.feedable:
            return Numbers(not_compared=("everything: the inputs are not the same",), seed=seed)
        apart = {x.name for kind, x, y in self.interface.resized if kind == "output"}
        fitting, notes = [], []
        for i, j in self.interface.outputs:
            x, y = self.a.outputs[i], self.b.outputs[j]
            if x.name in apart and (x.dtype.kind != y.dtype.kind or len(x.shape) != len(y.shape) or _sized_apart(x.shape, y.shape)):
                notes.append(f"{quoted(x.name)}, which has another size or type")
            else:
                fitting.append(Outputs(x.name, i, j))
        pairs = [(x.outputs[0], y.outputs[0]) for x, y in self.nodes() if x.op == y.op]
        numbers = compare_numbers(*self.models, self.interface.inputs, fitting, pairs, (self.a, self.b), samples, seed)
        return replace(numbers, not_compared=(*notes, *numbers.not_compared))

    def level(self, same_file: bool, isomorphic: bool, run: bool, numbers: Numbers) -> tuple[Level | None, str]:
        if same_file:
            return "bytes", ""
        if not run:
            return None, "the two were not run"
        if not self.interface.same:
            return "differs", differences(self.interface)[0]
        incomplete = [*numbers.not_compared, *(f"{label}: onnxruntime runs only one of the two" for label in numbers.one_sided)]
        if incomplete or len(numbers.figures) < len(self.interface.outputs):
            reason = f"not compared: {incomplete[0]}" if incomplete else "not every output could be compared"
            if self.same_structure and not numbers.one_sided and not self.alignment.differing:
                raise UnsupportedGraph(
                    f"{where(self.models[0].path)} and {where(self.models[1].path)} look the same, but their numbers could not be compared "
                    f"({one_line(reason, 300)}). Nothing is called equal that was not looked at; --no-run compares structure and weights alone."
                )
            return "differs", reason
        if unequal := numbers.differing:
            worst = max(unequal, key=lambda f: f.max_abs / max(1.0, f.reference_max))
            what = quoted(worst.output) if worst in numbers.figures else "what random numbers are drawn from and scaled with"
            far = f"{what} differs in {worst.differing:,} of {worst.compared:,} numbers, by up to {worst.max_abs:.3g}"
            return ("close" if numbers.worst <= TOLERANCE else "differs"), far
        for x, y in self.nodes():
            if draws_random(x) and not (x.op == y.op and same_attributes(x, y)):
                return "differs", f"{x} doesn't draw as its counterpart does, which the same noise for both hides"
        if self.other_meaning:
            return "bits", self.other_meaning
        if isomorphic:
            return "graph", "the files' bytes differ"
        if self.alignment.refusal:
            return "bits", self.alignment.refusal
        return "bits", f"{len(self.alignment.differing)} constants differ without an effect on any output tried"

    def spelled(self, weights: Weights) -> list[str]:
        """What differs without being another computation."""
        (m, n), (a, b), words = self.models, (self.a, self.b), []
        pairs = self.nodes()
        if a.opset != b.opset:
            words.append(f"opset {a.opset} → {b.opset}")
        for kind in ("input", "output"):
            if values := [(x, y) for k, x, y in self.interface.renamed if k == kind]:
                words.append(f"{_count(len(values), kind)} renamed ({_arrows(values)})")
        if self.interface.reordered:
            words.append("outputs in another order")
        for unread, whose in zip(self.interface.unread, ("the second", "the first"), strict=True):
            words += [f"input {quoted(v.name)} is missing in {whose} ({v.size}, which nothing reads)" for v in unread]
        for x, y in self.interface.loosened:
            words.append(f"{quoted(x.name)} {x.size} → {y.size}")
        if not self.same_structure:
            return words  # what else is spelled differently is lost in what is different
        if weights.renamed:
            words.append(f"{_count(len(weights.renamed), 'initializer')} renamed ({_arrows(weights.renamed)})")
        if named := sum(x.name != y.name for x, y in pairs):
            words.append(f"{_count(named, 'node')} renamed")
        if _reordered(pairs):
            words.append("nodes in another order")
        if commuted := self.commuted(pairs):
            words.append(f"operands commuted in {_count(commuted, 'node')}")
        for name, several in weights.merged:
            words.append(f"{quoted(name)} stands for {_listed(several)}, merged")
        for name, several in weights.split:
            words.append(f"{_listed(several)} stand for {quoted(name)}, which is merged")
        if weights.moved:
            words.append(f"{_count(len(weights.moved), 'constant')} moved (between node and initializer)")
        files, canon = (len(m.graph.file_nodes), len(n.graph.file_nodes)), (len(a.nodes), len(b.nodes))
        if files[0] != files[1] and canon[0] == canon[1]:
            words.append(
                f"{files[0]:,} → {files[1]:,} nodes in the file, the same {canon[0]:,} once constants, Identity and the like are aside"
            )
        if a.overridable or b.overridable:
            words += (
                [f"{len(a.overridable):,} → {len(b.overridable):,} initializers can be overridden"]
                if len(a.overridable) != len(b.overridable)
                else []
            )
        return words

    def commuted(self, pairs: list[tuple[Node, Node]]) -> int:
        """Nodes whose operands stand in another order."""
        values = {y.name: x.name for x, y in self.interface.inputs}
        for x, y in pairs:
            values.update((w, v) for v, w in zip(x.outputs, y.outputs, strict=False) if v and w)
        count = 0
        for x, y in pairs:
            if x.op in COMMUTATIVE and x.op == y.op and len(x.inputs) == len(y.inputs) == 2 and x.inputs[0] != x.inputs[1]:
                places = [next((i for i, v in enumerate(x.inputs) if v == values.get(w)), None) for w in y.inputs]
                count += any(p is not None and p != i for i, p in enumerate(places))
        return count


def _sized_apart(x: tuple[int | str | None, ...], y: tuple[int | str | None, ...]) -> bool:
    return any(isinstance(m, int) and isinstance(n, int) and m != n for m, n in zip(x, y, strict=True))


def _reordered(pairs: list[tuple[Node, Node]]) -> bool:
    """Whether pairs that are in the file's order in a are not in b."""
    ordered = [y.index for _, y in sorted(pairs, key=lambda pair: pair[0].index)]
    return ordered != sorted(ordered)


def _summary(graph: Graph) -> str:
    """What a graph is that no rules know: "1 input, 1 output, 12 nodes (5 Conv, 4 Relu, 3 Add)"."""
    kinds: dict[str, int] = {}
    for node in graph.nodes:
        kinds[node.op] = kinds.get(node.op, 0) + 1
    top = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))[:5]
    shown = ", ".join(f"{n:,} {one_line(op, 30)}" for op, n in top) + (", …" if len(kinds) > len(top) else "")
    sizes = ", ".join(
        f"{_count(len(values), what)}" for values, what in ((graph.inputs, "input"), (graph.outputs, "output"), (graph.nodes, "node"))
    )
    return f"{sizes} ({shown})" if shown else sizes


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _arrows(pairs: tuple[tuple[str, str], ...] | list[tuple[str, str]], limit: int = 2) -> str:
    return ", ".join(f"{quoted(x)} → {quoted(y)}" for x, y in pairs[:limit]) + (", …" if len(pairs) > limit else "")


def _listed(names: tuple[str, ...], limit: int = 4) -> str:
    return ", ".join(map(quoted, names[:limit])) + (f" and {len(names) - limit:,} more" if len(names) > limit else "")


def _verdict(found: GraphDifference) -> tuple[bool, str]:
    """Whether the networks are equal, and what they are to each other in a line."""
    structure, weights = found.structure, found.weights
    if found.level == "bytes":
        return True, "identical: the two files are the same, byte for byte"
    apart = len(weights.differing)
    effect = _effect(found)
    if structure.unrelated:
        return (
            False,
            f"unrelated networks: {structure.paired:,} of {structure.nodes[0]:,} and {structure.nodes[1]:,} nodes have a counterpart",
        )
    if structure.same and not apart:
        spelled = _spelled(found)
        if found.level == "graph":
            return True, f"identical networks, operator by operator{spelled}"
        if found.level is None:
            return True, f"the same structure and bit-equal weights{spelled}; the two were not run"
        if found.level == "bits":
            return True, f"equal on everything tried, {found.reason}{spelled}"
        return False, f"the same operators and weights, but {found.reason}"
    if structure.same:
        forms = {w.relation for w in weights.differing}
        form = next(iter(forms)) if len(forms) == 1 else ""
        if form.startswith("rounded"):
            return False, f"the same network {form}: {apart:,} of {_count(weights.compared, 'constant')}{effect}"
        ulps = [w.max_ulps for w in weights.differing]
        near = max((u for u in ulps if u is not None), default=NEAR + 1) if None not in ulps else NEAR + 1
        by = f", by up to {near} ulp" if near <= NEAR else ""
        return False, f"the same structure, other weights: {apart:,} of {weights.compared:,} constants{by}{effect}"
    first = structure.words[0] if structure.words else found.reason
    more = f" (and {_count(len(structure.words) - 1, 'more difference')})" if len(structure.words) > 1 else ""
    if found.level == "bits" and found.numbers.unvaried:
        return False, f"different networks: {first}{more}; no difference in numbers, but {quoted(found.numbers.unvaried[0])} never varied"
    if found.level == "bits" and not any(w.relation == "differs" for w in weights.differing):
        return True, f"equal on everything tried, though built differently: {first}{more}"
    halves = [w for w in weights.differing if w.relation == "rounded to float16"]
    if halves and len(halves) == apart:
        return False, f"a float16 copy: {_count(apart, 'constant')} rounded to float16{effect}"
    return False, f"different networks: {first}{more}{effect}"


def _spelled(found: GraphDifference) -> str:
    """The differences of spelling that can be told in a few words."""
    told = [words.partition(" (")[0] for words in found.spelled]
    short = [words for words in told if len(words) <= 40][:3]
    if not told:
        return ""
    return f", spelled differently: {', '.join(short)}{' …' if len(short) < len(told) else ''}" if short else ", spelled differently"


def _effect(found: GraphDifference) -> str:
    numbers = found.numbers
    if not numbers.runs:
        return ""
    apart = [f for f in numbers.figures if f.differing]
    if not apart:
        return "; only what is drawn from differs" if numbers.differing else "; no output tried shows it"
    far, usual = (max((f.max_abs for f in found), default=0.0) for found in (apart, numbers.ordinary))
    shown = f"by up to {far:.3g}" if math.isfinite(far) else "also in which numbers are finite"
    if not math.isfinite(far) and math.isfinite(usual):
        shown = f"by up to {usual:.3g} on ordinary inputs"
    how = "the output differs" if len(numbers.figures) == 1 else f"{len(apart)} of {len(numbers.figures)} outputs differ"
    return f"; {how}, {shown}"


# ---------------------------------------------------------------------------------------------- metadata
def _metadata(a: Model, b: Model) -> list[Entry]:
    """What the two files say differently about themselves."""
    rows = [
        (name, _said(a.proto, name), _said(b.proto, name))
        for name in ("producer", "IR version", "graph name", "domain", "model version", "doc_string", "graph doc_string")
    ]
    keys = dict.fromkeys(e.key for m in (a, b) for e in m.proto.metadata_props)
    for key in keys:
        x, y = ({e.key: e.value for e in m.proto.metadata_props}.get(key) for m in (a, b))
        rows.append((f"metadata {quoted(key)}", x, y))
    return [Entry(what, _short(x), _short(y)) for what, x, y in rows if x != y]


def _said(proto: onnx.ModelProto, what: str) -> str | None:
    said: dict[str, object] = {
        "producer": f"{proto.producer_name} {proto.producer_version}".strip(),
        "IR version": proto.ir_version,
        "graph name": proto.graph.name,
        "domain": proto.domain,
        "model version": proto.model_version,
        "doc_string": proto.doc_string,
        "graph doc_string": proto.graph.doc_string,
    }
    return str(said[what]) or None


def _short(text: str | None) -> str | None:
    return None if text is None else one_line(text, SHOWN)


# ---------------------------------------------------------------------------------------------- with a checkpoint
def _diff_checkpoints(a: Path, b: Path, progress: Progress) -> Difference:
    from .checkpoints import compare_checkpoints, load_both

    progress(f"reading {where(a)} and {where(b)}")
    x, y = load_both(a, b)
    equal, verdict, found = compare_checkpoints(x, y)
    files = [File(m.path.name, m.sha256, m.size, step=m.step) for m in (x, y)]
    return Difference("checkpoints", files[0], files[1], equal, verdict, checkpoints=found)


def _diff_pair(graph: str | Path, checkpoint: str | Path, rules: Rules, progress: Progress) -> Difference:
    """A graph and a checkpoint: what `inspect` says of the pair."""
    from graph2torch.checkpoint import load_checkpoint
    from graph2torch.inspect.pair import inspect_pair
    from graph2torch.recognise import recognise

    progress(f"reading {where(Path(graph))} and {where(Path(checkpoint))}")
    recognised = recognise(graph, rules)
    _, family, _ = recognised.book.family(recognised.spec.graph)
    loaded = load_checkpoint(checkpoint, family.policy_module())
    pair = inspect_pair(recognised, loaded)
    model = recognised.model
    verdict = pair["verdict"]
    if verdict == "nothing compared":
        raise CheckpointError(
            f"No tensor of {where(model.path)} is known to be in {where(loaded.path)}, so nothing can be said about the two; "
            f"give the .pt of the same training."
        )
    words = {
        "same": f"the same network: {_count(pair['compared'], 'tensor')} of the graph bit-equal in the checkpoint"
        + (", std within rounding" if pair["normalizers"] else ""),
        "other network": f"different networks: {pair['reason']}",
    }
    apart = f"the same structure, other weights: {_count(len(pair['disagreements']), 'tensor')} of {pair['compared']:,} differ"
    second = File(loaded.path.name, loaded.sha256, loaded.size, step=loaded.step)
    return Difference("pair", _file(model), second, verdict == "same", words.get(verdict, apart), pair=pair)


# ---------------------------------------------------------------------------------------------- as JSON
def as_json(found: Difference) -> dict[str, Any]:
    """Plain data that json can write: a number that is not finite is the text "nan", "inf" or "-inf"."""
    plain: dict[str, Any] = _plain(asdict(found))
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
