"""How two graphs are built differently, in words: by the blocks that the rules know, by nodes where they know none.

hidden layer 2: 128 → 256 units
activation of hidden layer 1: SiLU → ReLU
an observation of 4 more: 'obs_1'
node 'conv1' (Conv): strides is (2, 2), in the other graph (1, 1)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graph2torch.graph import Graph, Node
from graph2torch.judge.correspondence import Change, Correspondence
from graph2torch.text import printable, quoted

from .interface import Interface, differences

if TYPE_CHECKING:
    from graph2torch.spec import Block, PolicySpec

UNRELATED = 0.35  # of the larger graph's nodes; if fewer have a counterpart, differences one by one say nothing
NEAR = 32  # blocks before one that are looked at for why it is of another size
LISTED = 4  # nodes of one operator that are named


@dataclass(frozen=True)
class Structure:
    """How b is built differently from a.

    same:           operator by operator the same, whatever the constants hold
    unrelated:      hardly anything corresponds, so the differences aren't listed
    words:          the differences, those of inputs and outputs first
    titles:         what each is, in a line
    nodes:          how many each has, in canonical form
    paired, changed, removed, added: of these nodes
    """

    same: bool
    unrelated: bool
    words: tuple[str, ...]
    titles: tuple[str, str]
    nodes: tuple[int, int]
    paired: int
    changed: int
    removed: int
    added: int


def compare_structure(
    found: Correspondence,
    interface: Interface,
    specs: tuple[PolicySpec, PolicySpec] | None,
    nodes: tuple[int, int],
    titles: tuple[str, str],
) -> Structure:
    """The differences of two graphs that are not the same. `specs`: what the rules make of them, if they do."""
    alike = len(found.nodes) - sum(change.kind == "operator" for change in found.changed)
    unrelated = alike < UNRELATED * max(*nodes, 1)
    observations = frozenset(i.name for spec in specs or () for i in spec.inputs if i.meaning.startswith(("observation", "goal")))
    words = differences(interface, observations)
    if not unrelated:
        told: tuple[set[int], set[int]] = (set(), set())
        if specs:
            resized = frozenset(x.name for kind, x, _ in interface.resized if kind == "input")
            words += _Blocks(specs, found, told, resized).words()
        words += _by_node(found, told)
    changed = len({change.a.index for change in found.changed})
    return Structure(
        False, unrelated, tuple(dict.fromkeys(words)), titles, nodes, len(found.nodes), changed, len(found.removed), len(found.added)
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- by block
class _Blocks:
    """The blocks of two policies, paired by their nodes, then by their neighbours and roles."""

    def __init__(
        self, specs: tuple[PolicySpec, PolicySpec], found: Correspondence, told: tuple[set[int], set[int]], resized: frozenset[str]
    ) -> None:
        self.specs, self.found, self.told, self.resized = specs, found, told, resized
        self.blocks = [[b for b in spec.blocks if b.family != "generic"] for spec in specs]
        self.partner: list[dict[int, int]] = [{}, {}]
        self.makers = [{value: i for i, b in enumerate(blocks) for value in b.outputs if value} for blocks in self.blocks]
        self.by_nodes()
        self.by_neighbours()
        self.by_role()

    def pair(self, i: int, j: int) -> None:
        if i not in self.partner[0] and j not in self.partner[1]:
            self.partner[0][i], self.partner[1][j] = j, i

    def by_nodes(self) -> None:
        owners = [{index: i for i, b in reversed(list(enumerate(blocks))) for index in b.nodes} for blocks in self.blocks]
        votes: Counter[tuple[int, int]] = Counter()
        for x, y in self.found.nodes:
            if x.index in owners[0] and y.index in owners[1]:
                votes[owners[0][x.index], owners[1][y.index]] += 1
        sizes = [
            Counter(owners[side][n.index] for n in spec.graph.nodes if n.index in owners[side]) for side, spec in enumerate(self.specs)
        ]
        same = {pair: self.blocks[0][pair[0]].rule == self.blocks[1][pair[1]].rule for pair in votes}
        for (i, j), count in sorted(votes.items(), key=lambda v: (not same[v[0]], -v[1], v[0])):
            if same[i, j] or 2 * count >= max(sizes[0][i], sizes[1][j]):
                self.pair(i, j)

    def by_neighbours(self) -> None:
        """What reads what paired blocks make, where it is the only one."""
        for _ in range(2):
            waiting: dict[tuple[int, ...], list[int]] = {}
            for j, block in enumerate(self.blocks[1]):
                if j not in self.partner[1] and (key := self.reads(1, block)):
                    waiting.setdefault(key, []).append(j)
            for i, block in enumerate(self.blocks[0]):
                if i not in self.partner[0] and len(fitting := waiting.get(self.reads(0, block), [])) == 1:
                    self.pair(i, fitting[0])

    def reads(self, side: int, block: Block) -> tuple[int, ...]:
        """The paired blocks that make what it reads, as b's numbers."""
        makers = [self.makers[side].get(v, -1) for v in block.reads]
        return tuple(m if side else self.partner[0][m] for m in makers if m in self.partner[side])

    def by_role(self) -> None:
        roles: dict[str, list[int]] = {}
        for j, block in enumerate(self.blocks[1]):
            if j not in self.partner[1]:
                roles.setdefault(block.role, []).append(j)
        for i, block in enumerate(self.blocks[0]):
            if i not in self.partner[0] and len(roles.get(block.role, ())) == 1:
                self.pair(i, roles[block.role][0])

    def words(self) -> Iterator[str]:
        resized = {j for i, j in self.partner[0].items() if self.widened(i, j)}
        for i, block in enumerate(self.blocks[0]):
            if i in self.partner[0]:
                other = self.blocks[1][self.partner[0][i]]
                text = "" if _source(block) == _source(other) else _changed(block, other, self.explained(i, resized))
                if text or block.rule == other.rule:
                    self.tell(block, other)
                if text:
                    yield text
        changes: tuple[dict[int, Change], dict[int, Change]] = ({}, {})
        for change in self.found.changed:
            changes[0].setdefault(change.a.index, change)
            changes[1].setdefault(change.b.index, change)
        lonely = [{n.index for n in nodes} for nodes in (self.found.removed, self.found.added)]
        for side, how in ((0, "removed"), (1, "added")):
            for i, block in enumerate(self.blocks[side]):
                if i in self.partner[side]:
                    continue
                within = [changes[side][n] for n in block.nodes if n in changes[side] and n not in self.told[side]]
                for change in within:  # no longer what the rule knows, but still there
                    self.told[0].add(change.a.index)
                    self.told[1].add(change.b.index)
                    yield f"{printable(block.role)}: {_words(change, False)}"
                if not within and not lonely[side].isdisjoint(block.nodes):
                    self.told[side].update(block.nodes)
                    yield f"{how}: {_named(block)}"

    def explained(self, i: int, resized: set[int]) -> bool:
        """Whether what block i of a reads is of another size in b."""
        inputs = {v.name for v in self.specs[0].inputs} & self.resized
        return not inputs.isdisjoint(self.blocks[0][i].reads) or any(m in resized for m in self.sources(self.partner[0][i]))

    def sources(self, j: int) -> Iterator[int]:
        """The blocks of b that make what block j reads, through those without weights."""
        todo, seen = [j], {j}
        while todo and len(seen) <= NEAR:
            for value in self.blocks[1][todo.pop()].reads:
                maker = self.makers[1].get(value)
                if maker is not None and maker not in seen:
                    seen.add(maker)
                    yield maker
                    if not self.blocks[1][maker].parameters:
                        todo.append(maker)

    def widened(self, i: int, j: int) -> bool:
        sizes = _sizes(self.blocks[0][i]), _sizes(self.blocks[1][j])
        return sizes[0] is None or sizes[1] is None or sizes[0][1] != sizes[1][1]

    def tell(self, block: Block, other: Block) -> None:
        self.told[0].update(block.nodes)
        self.told[1].update(other.nodes)


def _changed(a: Block, b: Block, explained: bool) -> str:
    """What one block became, or "" if nothing of its own changed; `explained`: what it reads has another size."""
    role = printable(a.role)
    before, after = _sizes(a), _sizes(b)
    if before and after and _class(a) == _class(b):
        unit = "channels" if "Conv" in _class(a) else "units"
        parts = []
        if before[1] != after[1]:
            parts.append(f"{before[1]:,} → {after[1]:,} {unit}")
        if before[0] != after[0] and not explained:
            parts.append(f"{before[0]:,} → {after[0]:,} inputs")
        if before[2] != after[2]:
            parts.append(f"{before[2] or 'no more'} → {after[2] or 'no more'}")
        return f"{role}: {', '.join(parts)}" if parts else ""
    return f"{role}: {_shortly(a)} → {_shortly(b)}"


def _sizes(block: Block) -> tuple[int, int, str] | None:
    """Inputs, units (or channels) and whatever else makes a linear layer or a convolution."""
    found = re.fullmatch(r"nn\.(?:Linear|Conv2d|ConvTranspose2d)\((\d+), (\d+)(?:, )?(.*)\)", _source(block))
    return (int(found[1]), int(found[2]), found[3]) if found else None


def _source(block: Block) -> str:
    return block.code.text if hasattr(block.code, "text") else block.code.source


def _class(block: Block) -> str:
    return _source(block).partition("(")[0]


def _shortly(block: Block) -> str:
    """ "SiLU" for nn.SiLU()."""
    return printable(_source(block).removeprefix("nn.").removesuffix("()"))


def _named(block: Block) -> str:
    return f"{printable(block.role)}, {_shortly(block)}"


# ---------------------------------------------------------------------------------------------- by node
def _by_node(found: Correspondence, told: tuple[set[int], set[int]]) -> Iterator[str]:
    """What no block told: changed nodes one by one, removed and added ones by operator."""
    for change in found.changed:
        if change.a.index not in told[0] and change.b.index not in told[1]:
            yield _words(change)
    for nodes, how, side in ((found.removed, "removed", 0), (found.added, "added", 1)):
        kinds: dict[str, list[Node]] = {}
        for node in nodes:
            if node.index not in told[side]:
                kinds.setdefault(node.op, []).append(node)
        for op, members in kinds.items():
            yield f"{how}: {_listed(op, members)}"


def _words(change: Change, named: bool = True) -> str:
    """ "'relu1': Relu → Tanh" for another operator, with its name unless the block says enough."""
    if change.kind != "operator":
        return change.words
    ops = f"{printable(change.a.op, 40)} → {printable(change.b.op, 40)}"
    return f"{quoted(change.a.name or change.a.outputs[0])}: {ops}" if named else ops


def _listed(op: str, members: Sequence[Node]) -> str:
    if len(members) == 1:
        return str(members[0])
    names = ", ".join(printable(n.name or n.outputs[0], 40) for n in members[:LISTED])
    return f"{len(members):,} {printable(op, 40)} ({names}{', …' if len(members) > LISTED else ''})"


def places(graph: Graph, spec: PolicySpec | None, initializers: Container[str]) -> Mapping[str, str]:
    """constant of `graph` → what it is: "hidden layer 2: weight", "output memory_size", "operand 1 of node 'Clip_3' (Clip)".

    Initializers that no rule knows speak for themselves, by their names.
    """
    found: dict[str, str] = {}
    roles: dict[int, str] = {}
    for block in spec.blocks if spec else ():
        if block.family == "generic":
            continue
        roles.update(dict.fromkeys(block.nodes, block.role))
        for parameter in block.parameters:
            found.setdefault(parameter.value, f"{block.role}: {parameter.name}")
        if held := block.statistics:
            for name, value in (("mean", held.mean), ("std", held.std), ("variance", held.variance), ("steps", held.steps)):
                if value:
                    found.setdefault(value, f"{block.role}: {name}")
    for output, result in zip(graph.outputs, graph.results, strict=True):
        if result in graph.constants:
            found.setdefault(result, f"output {output.name}")
    for node in graph.nodes:
        for place, value in enumerate(node.inputs):
            if value in graph.constants and value not in found:
                if node.index in roles:
                    found[value] = f"{roles[node.index]}: operand {place} of {node.op}"
                elif value not in initializers:
                    found[value] = f"operand {place} of {node}"
    return found
