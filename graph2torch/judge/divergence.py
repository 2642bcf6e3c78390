"""Where two graphs part: the first node that computes something else from the same numbers.

Both graphs are run in onnxruntime, its optimiser off, on the same inputs and with the same noise. If their outputs
differ, the place is found by halving: at a cut through the graph in topological order, the tensors that are made before it
and needed after it are compared, as further outputs of both graphs. Before the place found all of them are bit-equal, and
behind it one is not, so what stands there gets equal operands and gives another result. A run fetches one cut, a handful
of tensors, so that memory stays bounded and ten runs do for a thousand nodes.

Where the numbers are equal on everything tried, the first difference of structure or constants is told, without numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import onnx

from graph2torch.canonical import canonicalise
from graph2torch.errors import Graph2TorchError
from graph2torch.graph import RANDOM, Array, Graph, Model, Node, read_graph
from graph2torch.spec import Block
from graph2torch.text import one_line, quoted

from .correspondence import Change, Correspondence, changes_of, correspond, pair_declared, pair_operands
from .figures import Tally, different_bits, same_bits
from .observations import SEED, observation, quick
from .randomness import Randomness, needed_draws, pin
from .runtime import session

HANDFUL = 16  # tensors that are fetched at once
SUSPECTS = 256  # nodes before the place found that are looked at once more
Kind = Literal["constant", "attribute", "operator", "operands", "structure", "arithmetic"]
Number = float | int | bool
Explanation: TypeAlias = "tuple[Kind, Node, Node | None, str]"


@dataclass(frozen=True, slots=True)
class Gap:
    """How two tensors differ: where most, the two numbers there, and by how much. Lengths: `where` has the tensor's rank.

    where:   None, and no numbers, if the two are not of one type and size
    max_abs: largest distance; infinite for NaN or infinity on one side only, and for unlike sizes
    ulps:    largest distance in units in the last place, of finite float32 numbers only
    """

    tensor: str
    where: tuple[int, ...] | None
    numbers: tuple[Number, Number] | None
    differing: int
    compared: int
    max_abs: float
    ulps: int | None

    def __str__(self) -> str:
        if self.where is None or self.numbers is None:
            return "it has another type or size"
        ulps = "" if self.ulps is None else f", {self.ulps:,} ulp"
        one, two = (f"{x:.9g}" if isinstance(x, float) else str(x) for x in self.numbers)
        return f"{self.differing:,} of {self.compared:,} numbers differ, at {list(self.where)} {one} is {two} (by {self.max_abs:.3g}{ulps})"


@dataclass(frozen=True)
class Divergence:
    """Where graph b parts from graph a.

    kind:  constant    the node's constants differ
           attribute   its attributes do
           operator    it is another operator
           operands    it reads other values, or the same in another order
           structure   nodes are in one graph only: `node` is the first that a alone has, else the one that reads what b alone has
           arithmetic  the same operator on the same operands gives other numbers
    node:  of a, or None where an output is a constant or is lacking
    twin:  its counterpart; for structure, where `node` has one, the first node that b alone has
    block: what the node is part of ("hidden layer 2"), and rule ("linear"), where the rules recognise it
    gap:   of the first tensor that differs, `case` the inputs ("batch 1 ordinary"); None if all numbers tried are equal
    words: all of it, for people
    """

    kind: Kind
    node: Node | None
    twin: Node | None
    words: str
    gap: Gap | None = None
    case: str | None = None
    block: str | None = None
    rule: str | None = None

    def told(self) -> dict[str, Any]:
        """For a report, as JSON has it; numbers that are not finite as text."""

        def number(x: Number | None) -> Number | str | None:
            return str(x) if isinstance(x, float) and not math.isfinite(x) else x

        gap = self.gap
        return {
            "kind": self.kind,
            "node": _named(self.node),
            "twin": _named(self.twin),
            "block": self.block,
            "rule": self.rule,
            "case": self.case,
            "tensor": gap and gap.tensor,
            "where": None if gap is None or gap.where is None else list(gap.where),
            "numbers": None if gap is None or gap.numbers is None else [number(x) for x in gap.numbers],
            "max_abs": number(gap.max_abs) if gap else None,
            "ulps": gap.ulps if gap else None,
            "words": self.words,
        }


def _named(node: Node | None) -> dict[str, str] | None:
    return None if node is None else {"name": node.name or node.outputs[0], "op": node.op}


def first_divergence(
    a: onnx.ModelProto | Model,
    b: onnx.ModelProto | Model,
    feeds: Iterable[tuple[str, Mapping[str, Array]]] | None = None,
    *,
    found: Correspondence | None = None,
    blocks: Sequence[Block] | None = None,
    seed: int = SEED,
) -> Divergence | None:
    """The first place where `b` parts from `a`, or None if nothing differs: no operator, no constant, no number tried.

    feeds:  a label and a's inputs by name, each tried until outputs differ; without any, those of `observations.quick`
    found:  the correspondence of the two canonical graphs, where it is known already
    blocks: of a's policy, where they are known already; else the built-in rules are asked

    Raises ModelError or UnsupportedGraph if a file's graph can't be read. Where onnxruntime refuses one of the two, or one
    draws random numbers of a fixed shape, no numbers are compared, and `words` says so.
    """
    graphs = canonicalise(_graph(a, "the first graph")), canonicalise(_graph(b, "the second graph"))
    found = found or correspond(*graphs)
    search = _Search(graphs, found, (_proto(a), _proto(b)))
    divergence = search.numbers(feeds, seed) or search.structure()
    if divergence is None or divergence.node is None:
        return divergence
    return _placed(divergence, search.reader, _recognised(graphs[0]) if blocks is None else blocks)


def _graph(model: onnx.ModelProto | Model, name: str) -> Graph:
    return model.graph if isinstance(model, Model) else read_graph(model, name)


def _proto(model: onnx.ModelProto | Model) -> onnx.ModelProto:
    return model.proto if isinstance(model, Model) else model


def _recognised(graph: Graph) -> Sequence[Block]:
    from graph2torch.rulebook import load_rules

    try:
        return load_rules().recognise(graph).blocks
    except Graph2TorchError:  # a graph that no rule was made for
        return ()


def _placed(divergence: Divergence, reader: Node | None, blocks: Sequence[Block]) -> Divergence:
    """With the block that its node, or the one that reads it, is part of."""
    for node in (divergence.node, reader):
        block = next((b for b in blocks if node is not None and node.index in b.nodes and b.family != "generic"), None)
        if block is not None:
            words = f"{one_line(block.role, 120)}: {divergence.words}"
            return replace(divergence, words=words, block=block.role, rule=block.rule)
    return divergence


# ---------------------------------------------------------------------------------------------- running
class _Side:
    """One graph with its draws as inputs; any of its tensors can be fetched."""

    def __init__(self, proto: onnx.ModelProto, draws: Sequence[str], ends: Sequence[str], what: str) -> None:
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        _set_outputs(copy, [*ends, *draws])  # what leads to them alone stays, when the draws are taken out
        self.proto, self.draws, self.what = pin(copy, draws), frozenset(draws), what
        self.running: Any = None
        self.wanted: list[str] = []

    def fetch(self, names: Sequence[str], feed: Mapping[str, Array]) -> list[Array]:
        """The values of tensors, in a run of their own. Raises what onnxruntime raises."""
        wanted = [name for name in dict.fromkeys(names) if name not in self.draws]
        got = {name: feed[name] for name in names if name in self.draws}
        if wanted and (self.running is None or wanted != self.wanted):
            _set_outputs(self.proto, wanted)
            self.running, self.wanted = None, wanted  # the one before is given up first
            self.running = session(self.proto, False, self.what)
        if wanted:
            known = {i.name for i in self.running.get_inputs()}
            got |= dict(zip(wanted, self.running.run(None, {k: v for k, v in feed.items() if k in known}), strict=True))
        return [got[name] for name in names]

    def fetch_some(self, names: Sequence[str], feed: Mapping[str, Array]) -> dict[str, Array]:
        """The same, without those that are no arrays of numbers (sequences, text) or that numpy has no type for."""
        try:
            got = dict(zip(names, self.fetch(names, feed), strict=True))
        except Exception:
            if len(names) <= 1:
                return {}
            return {name: x for one in names for name, x in self.fetch_some([one], feed).items()}
        return {name: x for name, x in got.items() if isinstance(x, np.ndarray) and x.dtype.kind != "O"}


def _set_outputs(proto: onnx.ModelProto, names: Sequence[str]) -> None:
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)


@dataclass(frozen=True)
class _Case:
    """What the two graphs are given, the same in both, noise included."""

    label: str
    a: Mapping[str, Array]
    b: Mapping[str, Array]


class _Search:
    def __init__(self, graphs: tuple[Graph, Graph], found: Correspondence, protos: tuple[onnx.ModelProto, onnx.ModelProto]) -> None:
        self.a, self.b = graphs
        self.found, self.protos = found, protos
        self.twins = {x.index: y for x, y in found.nodes}
        self.place = {n.index: i for i, n in enumerate(self.a.nodes)}
        self.makers = tuple({v: n for n in g.nodes for v in n.outputs if v} for g in graphs)
        self.removed = {n.index for n in found.removed}
        self.added = {n.index for n in found.added}
        self.changes: dict[int, list[Change]] = {}
        for change in found.changed:
            self.changes.setdefault(change.a.index, []).append(change)
        self.reader: Node | None = None  # of what the divergence names, where that is in one graph only
        self.refusal, self.runs, self.compared = "", True, False
        self.outputs = pair_declared(self.a.outputs, self.b.outputs)
        self.results = tuple(dict(zip((o.name for o in g.outputs), g.results, strict=True)) for g in graphs)

    # ------------------------------------------------------------------ numbers
    def numbers(self, feeds: Iterable[tuple[str, Mapping[str, Array]]] | None, seed: int) -> Divergence | None:
        """The first divergence on the first of `feeds` on which the outputs differ."""
        pairs = self.ends()
        if not pairs:
            self.refusal = "no output that is computed is in both graphs"
            return None
        drawn = [[v for v in needed_draws(p) if v in m] for p, m in zip(self.protos, self.makers, strict=True)]
        drawn[0].sort(key=lambda v: v not in self.found.values)
        shared = {v: w for v in drawn[0] if (w := self.found.values.get(v, "")) in drawn[1]}
        own = [w for w in drawn[1] if w not in set(shared.values())]
        shared |= dict(zip((v for v in drawn[0] if v not in shared), own, strict=False))
        own = [w for w in own if w not in set(shared.values())]
        try:
            noise = Randomness(self.protos[0], drawn[0], (), {}), Randomness(self.protos[1], own, (), {})
            sides = (
                _Side(self.protos[0], drawn[0], self.kept(0), "the first graph"),
                _Side(self.protos[1], drawn[1], self.kept(1), "the second graph"),
            )
        except Graph2TorchError as error:  # refused by onnxruntime, or random numbers of a fixed shape
            self.refusal = f"they can't be run with the same noise ({one_line(str(error), 160)})"
            return None
        for label, feed in feeds if feeds is not None else ((case.label, case.feed) for case in quick(self.a.inputs, seed)):
            case = self.case(label, feed, noise, drawn[0], own, shared, seed)
            if case is None:
                self.refusal = self.refusal or f"onnxruntime can't run the two on {label} inputs"
                continue
            got = self.outcome(sides, case, pairs)
            if got is not None and any(differ(x, y) for x, y in zip(*got, strict=True)):
                return self.halve(sides, case, pairs, shared)
            if got is None and not self.runs:
                break
        return None

    def ends(self) -> list[tuple[str, str]]:
        """What is compared first: pairs of outputs, and of what paired random operators draw from, since what they draw is pinned."""
        pairs = {(self.results[0][x], self.results[1][y]): None for x, y in self.outputs.items()}
        pairs |= {
            (v, self.found.values[v]): None for n, _ in self.found.nodes if n.op in RANDOM for v in n.inputs if v in self.found.values
        }
        return [(v, w) for v, w in pairs if v in self.makers[0] and w in self.makers[1]]

    def kept(self, side: int) -> list[str]:
        """What leads to an output or to a draw, paired or not; all else is no part of the canonical graph."""
        graph, made = (self.a, self.b)[side], self.makers[side]
        needed = [*graph.results, *(v for n in graph.nodes if n.op in RANDOM for v in n.inputs)]
        return [v for v in dict.fromkeys(needed) if v in made]

    def outcome(self, sides: tuple[_Side, _Side], case: _Case, pairs: Sequence[tuple[str, str]]) -> list[list[Array]] | None:
        """The values of `pairs`, or None if onnxruntime refuses; why then stands in `refusal`."""
        at = 0
        got: list[list[Array]] = []
        try:
            for at, (names, feed) in enumerate(zip(zip(*pairs, strict=True), (case.a, case.b), strict=True)):
                got.append(sides[at].fetch(names, feed))
        except Graph2TorchError:
            self.refusal, self.runs = f"onnxruntime refuses {sides[at].what}", False
            return None
        except Exception as error:  # onnxruntime has no common class for what it can't run
            self.refusal = self.refusal or f"onnxruntime can't run {sides[at].what} on {case.label} inputs ({one_line(str(error), 160)})"
            return None
        self.compared = True
        return got

    def case(
        self,
        label: str,
        feed: Mapping[str, Array],
        noise: tuple[Randomness, Randomness],
        draws: Sequence[str],
        own: Sequence[str],
        shared: Mapping[str, str],
        seed: int,
    ) -> _Case | None:
        """Inputs and noise for both; what b alone reads is made up. None if a graph can't do this batch."""
        rng = np.random.default_rng([seed, *label.encode()])
        scale = 8.0 if "extreme" in label else 1.0
        batch = next((x.shape[0] for x in feed.values() if x.ndim), 1)
        theirs = {self.found.values[k]: v for k, v in feed.items() if k in self.found.values}
        theirs |= {i.name: observation(i, batch, "ordinary", rng) for i in self.b.inputs if i.name not in theirs}
        mine = noise[0].draw(feed, rng, scale)
        others = noise[1].draw(theirs, rng, scale)
        if mine is None or others is None:
            return None
        given = dict(zip(draws, mine.drawn, strict=True))
        theirs |= {w: given[v] for v, w in shared.items()} | dict(zip(own, others.drawn, strict=True))
        return _Case(label, {**feed, **given}, theirs)

    def halve(self, sides: tuple[_Side, _Side], case: _Case, ends: Sequence[tuple[str, str]], pinned: Mapping[str, str]) -> Divergence:
        """Halves the topological order of a until one node is left between a cut that is equal and one that is not."""
        last = {v: i for i, n in enumerate(self.a.nodes) for v in n.inputs}
        last |= dict.fromkeys((v for v, _ in ends), len(self.a.nodes))
        comparable = {v for n in self.a.nodes for v in n.outputs if v and v in self.found.values and v not in pinned}

        def gaps(cut: Sequence[str]) -> list[Gap]:
            mine = sides[0].fetch_some(cut, case.a)
            theirs = sides[1].fetch_some([self.found.values[v] for v in cut], case.b)
            both = [(v, mine[v], theirs[w]) for v in cut if v in mine and (w := self.found.values[v]) in theirs]
            return [gap(v, x, y) for v, x, y in both if differ(x, y)]

        def live(at: int) -> list[str]:
            return [v for n in self.a.nodes[:at] for v in n.outputs if v in comparable and last.get(v, -1) >= at]

        # the first node that is not the same in both: before it the same operators get the same numbers
        first = next((n for n in self.a.nodes if self.explain(n) is not None), None)
        if first is not None and comparable.issuperset(made := [v for v in first.outputs if v]) and (found := gaps(made)):
            return self.explained(first, found[0], case.label)
        low, high = 0, len(self.a.nodes)
        if not gaps(live(high)):  # an output is made by what has no counterpart
            both = zip(ends, sides[0].fetch([v for v, _ in ends], case.a), sides[1].fetch([w for _, w in ends], case.b), strict=True)
            (v, w), mine, theirs = next(each for each in both if differ(*each[1:]))
            return self.output(v, w, gap(v, mine, theirs), case.label)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if gaps(live(middle)) else (middle, high)
        # what differs before it, but meets nothing at the cuts that were tried
        suspects = [n for n in self.a.nodes[:low] if self.explain(n) is not None and comparable.issuperset(filter(None, n.outputs))]
        for start in range(0, min(len(suspects), SUSPECTS), HANDFUL):
            several = suspects[start : start + HANDFUL]
            if found := gaps([v for n in several for v in n.outputs if v]):
                return self.explained(next(n for n in several if found[0].tensor in n.outputs), found[0], case.label)
        node = self.a.nodes[low]
        return self.explained(node, gaps([v for v in node.outputs if v in comparable])[0], case.label)

    # ------------------------------------------------------------------ words
    def explained(self, x: Node, found: Gap | None, case: str | None) -> Divergence:
        kind, node, twin, words = self.explain(x) or ("arithmetic", x, self.twins.get(x.index), f"{x} gives other numbers")
        self.reader = x
        if found is not None:
            words += f"; on {case} inputs, of {quoted(found.tensor)}, {found}"
        elif self.refusal and not self.compared:
            words += f"; no numbers were compared, because {self.refusal}"
        elif not self.compared:
            words += "; no numbers were compared"
        else:
            words += "; the numbers are equal on everything tried"
        return Divergence(kind, node, twin, words, found, case)

    def explain(self, x: Node) -> Explanation | None:
        """What is different about a node of a, if anything."""
        y = self.twins.get(x.index)
        if y is None:
            return "structure", x, None, f"{x} is in the first graph only"
        if any(change.kind == "operands" for change in self.changes.get(x.index, ())):
            gone, new = self.region(x, 0), self.region(y, 1)
            if not gone and (split := self.split(x, y)):
                return split
            if gone:
                instead = f", where the second has {_listed(new, '')}" if new else ""
                return "structure", gone[0], None, f"{_listed(gone, 'is')} in the first graph only{instead}"
            if new:
                return "structure", x, new[0], f"{x} reads what the first graph lacks: {_listed(new, '')}"
        return self.compare(x, y)

    def compare(self, x: Node, y: Node) -> Explanation | None:
        """What is different about two nodes, if anything."""
        operands = pair_operands(self.a, x, self.b, y, self.found.values)
        changes = {change.kind: change for change in changes_of(self.a, x, self.b, y, operands, self.found.values)}
        for kind in ("operator", "attribute", "operands"):
            if kind in changes:
                return changes[kind].kind, x, y, changes[kind].words
        for v, w in operands:
            if v in self.a.constants and w in self.b.constants and not same_bits(self.a.constants[v], self.b.constants[w]):
                return "constant", x, y, f"{x}: of the constant {quoted(v)}, {gap(v, self.a.constants[v], self.b.constants[w])}"
        return None

    def split(self, x: Node, y: Node) -> Explanation | None:
        """Of what a computes once for several readers, b computes a variant for one of them: that variant is what is different."""
        for v, w in pair_operands(self.a, x, self.b, y, self.found.values):
            one, two = self.makers[0].get(v), self.makers[1].get(w)
            if one is None or two is None or two.index not in self.added or self.found.values.get(v) == w:
                continue
            read = [v for v in one.inputs if v in self.found.values and self.found.values[v] in two.inputs]
            if (one.op == two.op or len(one.inputs) == len(two.inputs) == len(read)) and read:
                kind, _, _, words = self.compare(one, two) or ("structure", one, two, f"{one} is computed once more")
                return kind, one, two, f"{words} (for {x})"
        return None

    def region(self, node: Node, side: int) -> list[Node]:
        """What has no counterpart and leads to `node`, in topological order."""
        alone, makers = (self.removed, self.added)[side], self.makers[side]
        seen: dict[int, Node] = {}
        todo = [makers[v] for v in node.inputs if v in makers]
        while todo:
            maker = todo.pop()
            if maker.index in alone and maker.index not in seen:
                seen[maker.index] = maker
                todo += [makers[v] for v in maker.inputs if v in makers]
        return [n for n in (self.a, self.b)[side].nodes if n.index in seen] if seen else []

    def output(self, v: str, w: str, found: Gap, case: str) -> Divergence:
        """An output that is made by nodes that are no counterparts."""
        x, y = self.makers[0][v], self.makers[1][w]
        self.reader = x
        words = f"{x} makes an output that {y} makes in the second graph; on {case} inputs {found}"
        return Divergence("structure", x, y, words, found, case)

    # ------------------------------------------------------------------ structure
    def structure(self) -> Divergence | None:
        """The first difference in topological order, whatever numbers it makes."""
        for x in self.a.nodes:
            if self.explain(x) is not None:
                return self.explained(x, None, None)
        for words in self.contract():
            return Divergence("structure", None, None, words)
        for name, other in self.outputs.items():
            v, w = self.results[0][name], self.results[1][other]
            if v in self.a.constants and w in self.b.constants and not same_bits(self.a.constants[v], self.b.constants[w]):
                found = gap(v, self.a.constants[v], self.b.constants[w])
                return Divergence("constant", None, None, f"the output {quoted(name)} is a constant, and {found}", found)
        return None

    def contract(self) -> Iterator[str]:
        """Outputs that one graph lacks, or that are made otherwise."""
        for x in self.results[0].keys() - self.outputs.keys():
            yield f"the output {quoted(x)} is in the first graph only"
        for y in self.results[1].keys() - set(self.outputs.values()):
            yield f"the output {quoted(y)} is in the second graph only"
        for x, y in self.outputs.items():
            v, w = self.results[0][x], self.results[1][y]
            if not (v in self.a.constants and w in self.b.constants) and self.found.values.get(v) != w:
                yield f"the output {quoted(x)} is {quoted(v)}, in the second graph {quoted(w)}, which is no counterpart of it"


def _listed(nodes: Sequence[Node], verb: str) -> str:
    """`node 'a' (Add) and 3 more are`."""
    more = f" and {len(nodes) - 1:,} more" if len(nodes) > 1 else ""
    return f"{nodes[0]}{more} {'are' if verb and more else verb}".rstrip()


# ---------------------------------------------------------------------------------------------- tensors
def differ(x: Array, y: Array) -> bool:
    """Whether two tensors differ in type, size or a bit; NaN equals NaN."""
    return x.dtype != y.dtype or x.shape != y.shape or bool(different_bits(x, y).any())


def gap(tensor: str, x: Array, y: Array) -> Gap:
    """How two tensors differ, which do."""
    tally = Tally(tensor)
    tally.add(x, y)
    figures = tally.figures()
    if x.dtype != y.dtype or x.shape != y.shape:
        return Gap(tensor, None, None, figures.differing, figures.compared, float("inf"), None)
    unequal = different_bits(x, y)
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.abs(x.astype(np.float64) - y.astype(np.float64))
    far = np.where(unequal, np.where(np.isnan(far), np.inf, far), -1.0)
    where = tuple(int(i) for i in np.unravel_index(int(far.argmax()), far.shape)) if x.ndim else ()
    numbers = x[where].item(), y[where].item()
    ulps = figures.max_ulps if x.dtype == np.float32 and np.isfinite(figures.max_abs) else None
    return Gap(tensor, where, numbers, figures.differing, figures.compared, figures.max_abs, ulps)
