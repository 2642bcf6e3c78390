"""The page of a difference: two files side by side, what was added, removed and changed, and where they first part.

The facts are those of `graph2torch.diff`. Two graphs are drawn as well: each is read again, and its blocks are paired by the nodes
that stand for one another.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from graph2torch import __version__
from graph2torch.diff.diff import Difference, File, GraphDifference
from graph2torch.diff.weights import Weight
from graph2torch.errors import Graph2TorchError
from graph2torch.judge.correspondence import correspond
from graph2torch.judge.figures import TOLERANCE, Figures
from graph2torch.recognise import recognise
from graph2torch.rulebook import Rules
from graph2torch.show.figures import runs_of, ulps
from graph2torch.show.page import sizes_of
from graph2torch.show.parts import LEVELS
from graph2torch.spec import Block, PolicySpec, source_of
from graph2torch.text import printable

from .charts import ErrorChart, Measured, error_chart, shortly
from .document import ORDER
from .drawing import DRAWN, Box, Drawing, box, brief, placed
from .page import page

LISTED = 200  # rows of a table
Mark = str  # "removed", "added", "changed", "other" for other weights alone, "" where nothing differs


class Side(NamedTuple):
    """One of the two files. drawing: None where it isn't a graph, or one of too many blocks."""

    label: str
    name: str
    what: str
    size: str
    sha256: str
    title: str
    drawing: Drawing | None


class Told(NamedTuple):
    """A block that differs: what it is on either side, and which of its tensors differ."""

    number: int
    side: str
    mark: Mark
    role: str
    module: str
    a: str
    b: str
    first: bool
    weights: tuple[str, ...]


class WeightRow(NamedTuple):
    name: str
    shape: str
    differing: str
    most: str
    relative: str
    ulps: str
    note: str


class Group(NamedTuple):
    """Tensors of one module of two checkpoints, or the constants of two graphs."""

    name: str
    words: str
    rows: tuple[WeightRow, ...]
    more: int
    removed: tuple[str, ...]
    added: tuple[str, ...]
    values: tuple[tuple[str, str, str], ...]


class DifferenceView(NamedTuple):
    """Everything on the page, in its order. marks: which of them occur in the drawings."""

    version: str
    equal: bool
    verdict: str
    level: str
    ladder: tuple[tuple[str, bool, str], ...]
    reason: str
    sides: tuple[Side, ...]
    marks: tuple[Mark, ...]
    blocks: tuple[Told, ...]
    structure: tuple[str, ...]
    unrelated: bool
    spelled: tuple[str, ...]
    divergence: str
    causes: tuple[str, ...]
    groups: tuple[Group, ...]
    numbers: ErrorChart | None
    runs: str
    numbers_words: str
    not_compared: tuple[str, ...]
    pair: tuple[str, ...]
    metadata: tuple[tuple[str, str, str], ...]


def difference_page(found: Difference, a: str | Path, b: str | Path, rules: Rules = ()) -> str:
    """The page of what `diff` found of the files a and b, which are read again to draw them."""
    view = view_of(found, a, b, rules)
    return page("difference.html.j2", {"keys": {}}, difference=view)


def view_of(found: Difference, a: str | Path, b: str | Path, rules: Rules = ()) -> DifferenceView:
    """The page's document; see `difference_page`."""
    drawn = _Drawn.of(found, a, b, rules) if found.graphs is not None else None
    graphs = found.graphs
    level = (graphs.level or "") if graphs is not None else ""
    words = _numbers_words(graphs) if graphs is not None else ""
    numbers = graphs.numbers if graphs is not None else None
    return DifferenceView(
        version=__version__,
        equal=found.equal,
        verdict=printable(found.verdict, 400),
        level=level,
        ladder=tuple((name, ORDER.index(name) <= ORDER.index(level), _meaning(name)) for name in ORDER) if level else (),
        reason=printable(graphs.reason, 400) if graphs is not None else "",
        sides=tuple(_sides(found, drawn)),
        marks=tuple(dict.fromkeys(t.mark for t in drawn.told)) if drawn is not None else (),
        blocks=tuple(drawn.told) if drawn is not None else (),
        structure=tuple(printable(text, 400) for text in graphs.structure.words[:LISTED]) if graphs is not None else (),
        unrelated=graphs is not None and graphs.structure.unrelated,
        spelled=tuple(printable(text, 400) for text in graphs.spelled[:LISTED]) if graphs is not None else (),
        divergence=printable(str(graphs.divergence["words"]), 600) if graphs is not None and graphs.divergence is not None else "",
        causes=tuple(printable(text, 400) for text in graphs.causes) if graphs is not None else (),
        groups=tuple(_groups(found)),
        numbers=error_chart([_measured(f) for f in numbers.figures if f.differing]) if numbers is not None else None,
        runs=f"{runs_of(numbers.runs)}; seed {numbers.seed}" if numbers is not None and numbers.runs else "",
        numbers_words=words,
        not_compared=tuple(printable(text, 300) for text in numbers.not_compared[:LISTED]) if numbers is not None else (),
        pair=tuple(_pair(found.pair)) if found.pair is not None else (),
        metadata=tuple((printable(e.what, 60), _said(e.a), _said(e.b)) for e in found.metadata[:LISTED]),
    )


def _meaning(level: str) -> str:
    return LEVELS[level].replace("rebuilt policy and the original", "two graphs")


def _said(text: str | None) -> str:
    return "nothing" if text is None else printable(text, 120)


def _sides(found: Difference, drawn: _Drawn | None) -> Iterator[Side]:
    titles = found.graphs.structure.titles if found.graphs is not None else ("", "")
    if drawn is not None and all(spec.family != "generic" for spec in drawn.specs):
        titles = drawn.specs[0].title, drawn.specs[1].title  # where nothing differs, diff did not look what they are
    for n, (label, file) in enumerate((("a", found.a), ("b", found.b))):
        drawing = drawn.drawings[n] if drawn is not None else None
        yield Side(
            label, printable(file.name, 80), _what(file), f"{file.size / 1e6:.2f} MB", file.sha256, printable(titles[n], 300), drawing
        )


def _what(file: File) -> str:
    if file.opset is not None:
        return printable(f"{file.exporter}, opset {file.opset}, IR {file.ir_version}".removeprefix(", "), 80)
    return "step unknown" if file.step is None else f"step {file.step:,}"


# ---------------------------------------------------------------------------------------------- numbers
def _measured(f: Figures) -> Measured:
    differing = f"{f.differing:,} of {f.compared:,}"
    return Measured(printable(f.output, 80), f.max_abs, TOLERANCE * max(1.0, f.reference_max), ulps(f.max_ulps), differing, f.reference_max)


def _numbers_words(found: GraphDifference) -> str:
    numbers = found.numbers
    compared, differing = sum(f.compared for f in numbers.figures), sum(f.differing for f in numbers.figures)
    if not numbers.runs:
        return ""
    return f"all {compared:,} numbers bit-equal" if not differing else f"{differing:,} of {compared:,} numbers differ"


def _groups(found: Difference) -> Iterator[Group]:
    """The tensors that differ: constants of two graphs, or modules of two checkpoints."""
    if found.graphs is not None and found.graphs.weights.compared:
        w = found.graphs.weights
        words = f"{w.equal:,} of {w.compared:,} constants bit-equal ({w.equal_numbers:,} of {w.numbers:,} numbers)"
        yield _group("", words, w.differing, w.removed, w.added)
    if found.checkpoints is not None:
        for m in found.checkpoints.modules:
            both = m.equal + len(m.differing)
            words = f"{m.equal:,} of {both:,} tensors bit-equal" + (f", {len(m.renamed):,} of them renamed" if m.renamed else "")
            values = tuple(
                (printable(k, 80), _said(None if x is None else str(x)), _said(None if y is None else str(y))) for k, x, y in m.values
            )
            yield _group(m.name or "tensors", words, m.differing, m.removed, m.added, values)


def _group(
    name: str,
    words: str,
    differing: Sequence[Weight],
    removed: Sequence[str],
    added: Sequence[str],
    values: tuple[tuple[str, str, str], ...] = (),
) -> Group:
    rows = tuple(map(_weight, differing[:LISTED]))
    names = [tuple(printable(n, 120) for n in several[:LISTED]) for several in (removed, added)]
    return Group(printable(name, 80), words, rows, max(len(differing) - LISTED, 0), names[0], names[1], values[:LISTED])


def _weight(w: Weight) -> WeightRow:
    shape = sizes_of(w.a_shape) + (f" → {sizes_of(w.b_shape)}" if w.a_shape != w.b_shape else "")
    note = "" if w.relation == "differs" else f"the first is {w.relation}" if w.rounded == "a" else w.relation
    note = ", ".join(filter(None, (f"{w.a_dtype} → {w.b_dtype}" if w.a_dtype != w.b_dtype else "", note)))
    if w.values is not None and not note:
        note = " → ".join(shortly(value, 9) for value in w.values)
    name = printable(w.place or w.a, 120)
    differing = f"{w.differing:,} of {w.of:,}"
    return WeightRow(name, shape, differing, _most(w.max_abs), _most(w.max_rel) if w.relative else "–", ulps(w.max_ulps), note)


def _most(value: float) -> str:
    return shortly(value, 2) if math.isfinite(value) else "∞"


def _pair(pair: Mapping[str, Any]) -> Iterator[str]:
    """A graph and a checkpoint: what disagrees, in words."""
    yield f"{pair['verdict']}: {pair['compared']:,} tensors compared"
    if pair["reason"]:
        yield printable(pair["reason"], 400)
    for d in pair["disagreements"][:LISTED]:
        yield f"{printable(d['parameter'], 120)}: {printable(d['text'], 200)}"
    for text in pair["metadata"][:LISTED]:
        yield printable(text, 300)


# ---------------------------------------------------------------------------------------------- two drawings
class _Drawn:
    """The blocks of two graphs, paired by their nodes, and marked."""

    def __init__(self, specs: tuple[PolicySpec, PolicySpec], found: GraphDifference) -> None:
        self.specs, self.found = specs, found
        self.pairs: dict[int, int] = {}
        self.marks: tuple[dict[int, Mark], dict[int, Mark]] = ({}, {})
        self.differing = {w.a: w for w in found.weights.differing}
        self.weights: dict[int, list[str]] = {}
        self.mark()
        self.first = self.parting()
        self.told = list(self.tell())
        self.drawings = tuple(self.draw(side) for side in (0, 1))

    @classmethod
    def of(cls, found: Difference, a: str | Path, b: str | Path, rules: Rules) -> _Drawn | None:
        """None where the rules can't make blocks of one of them."""
        assert found.graphs is not None
        try:
            return cls((recognise(a, rules).spec, recognise(b, rules).spec), found.graphs)
        except Graph2TorchError:
            return None

    def mark(self) -> None:
        """Pairs the blocks and says in what those of a pair differ; a block that has no partner was removed, or added."""
        a, b = self.specs
        together = correspond(a.graph, b.graph)
        owners = [{n: i for i, block in reversed(list(enumerate(spec.blocks))) for n in block.nodes} for spec in self.specs]
        votes = Counter(
            (owners[0][x.index], owners[1][y.index]) for x, y in together.nodes if x.index in owners[0] and y.index in owners[1]
        )
        taken: set[int] = set()
        for (i, j), _ in sorted(votes.items(), key=lambda v: (a.blocks[v[0][0]].rule != b.blocks[v[0][1]].rule, -v[1], v[0])):
            if i not in self.pairs and j not in taken:
                self.pairs[i] = j
                taken.add(j)
        changed = {change.a.index for change in together.changed}
        lonely = {node.index for node in together.removed}, {node.index for node in together.added}
        for i, block in enumerate(a.blocks):
            if i not in self.pairs:
                self.marks[0][i] = "removed"
                continue
            other = b.blocks[self.pairs[i]]
            parts = [p.name for p in block.parameters if p.value in self.differing]
            if block.statistics is not None:
                held = (("running_mean", block.statistics.mean), ("std", block.statistics.std))
                parts += [name for name, value in held if value in self.differing and name not in parts]
            apart = source_of(block) != source_of(other) or not changed.isdisjoint(block.nodes)
            if apart or not lonely[0].isdisjoint(block.nodes) or not lonely[1].isdisjoint(other.nodes):
                self.marks[0][i] = self.marks[1][self.pairs[i]] = "changed"
            elif parts:
                self.marks[0][i] = self.marks[1][self.pairs[i]] = "other"
            self.weights[i] = parts
        for j in range(len(b.blocks)):
            if j not in taken:
                self.marks[1][j] = "added"

    def parting(self) -> tuple[int | None, int | None]:
        """The blocks in which the two first part, by the nodes that are named."""
        told = self.found.divergence
        found: list[int | None] = []
        for spec, key in zip(self.specs, ("node", "twin"), strict=True):
            node = told[key] if told is not None else None
            names = {n.index: (n.name or n.outputs[0], n.op) for n in spec.graph.nodes}
            index = next((i for i, name in names.items() if node is not None and name == (node["name"], node["op"])), None)
            found.append(next((i for i, block in enumerate(spec.blocks) if index in block.nodes), None))
        return found[0], found[1]

    def tell(self) -> Iterator[Told]:
        a, b = self.specs
        for i, block in enumerate(a.blocks):
            mark = self.marks[0].get(i, "")
            if mark or i == self.first[0]:
                other = b.blocks[self.pairs[i]] if i in self.pairs else None
                yield self.row(i, "a", mark, block, other, i == self.first[0], tuple(self.weights.get(i, ())))
        for j, block in enumerate(b.blocks):
            if self.marks[1].get(j) == "added":
                yield self.row(j, "b", "added", None, block, j == self.first[1] and self.first[0] is None, ())

    def row(self, number: int, side: str, mark: Mark, a: Block | None, b: Block | None, first: bool, weights: tuple[str, ...]) -> Told:
        block = a or b
        assert block is not None
        module = self.specs[0 if a is not None else 1].module_path(block)
        code = [printable(source_of(x), 200) if x is not None else "" for x in (a, b)]
        return Told(number, side, mark, printable(block.role, 120), printable(module, 80), code[0], code[1], first, weights)

    def draw(self, side: int) -> Drawing | None:
        """A box a block; one that differs leads to its row, that of a's block if it has a partner."""
        spec, marks = self.specs[side], self.marks[side]
        if not spec.blocks or len(spec.blocks) > DRAWN:
            return None
        back = {j: i for i, j in self.pairs.items()}
        rows = {(t.side, t.number) for t in self.told}
        boxes, producers, edges = list[Box](), dict[str, int](), list[tuple[int, int]]()
        for i in (i for i in spec.inputs if i.used):
            producers[i.name] = len(boxes)
            boxes.append(box("input", printable(i.name, 60), printable(f"{i.size} {i.dtype}", 60)))
        start = len(boxes)
        for n, block in enumerate(spec.blocks):
            mark = marks.get(n, "")
            target = ("b", n) if side and n not in back else ("a", back[n] if side else n)
            module = printable(spec.module_path(block), 40)
            sub = "  ".join(filter(None, (module, brief(printable(source_of(block), 200), module))))
            name = f"{mark} first".strip() if n == self.first[side] else mark
            link = f"{target[0]}-{target[1]}" if target in rows else ""
            boxes.append(box("weights" if block.parameters else "plain", printable(block.role, 120), sub, None, name, link))
            producers.update(dict.fromkeys((v for v in block.outputs if v), start + n))
        for n, block in enumerate(spec.blocks):
            edges += [(producers[v], start + n) for v in block.reads if v in producers and producers[v] != start + n]
        for o in (o for o in spec.outputs if o.constant is None):
            if o.value in producers:
                edges.append((producers[o.value], len(boxes)))
            boxes.append(box("output", printable(o.name, 60), printable(f"{o.size} {o.dtype}", 60)))
        return placed(boxes, list(dict.fromkeys(edges)))
