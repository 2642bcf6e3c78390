"""What belongs together in two canonical graphs that need not be equal.

`align` (isomorphism.py) tells whether two graphs are the same; this tells which nodes stand for one another when they
are not, so that a changed activation or an inserted node is found as what it is and everything else stays paired.

Nodes are paired in steps, the surest evidence first. A node's *past* is everything that it is computed from, its
*future* everything that is computed from it, up to the outputs. Both are compared at three strengths: with the bits of
constants; with their types and sizes; by operators alone.

    1. past and future are the same, bit by bit; then one of them is
    2. past and future are the same by sizes, then by operators alone
    3. from both ends inwards: the same past, nearest the inputs first, and the same future, nearest the outputs first
    4. between what is paired so far, sequences of operators are laid on each other
    5. what stands between the same neighbours belongs together, whatever the operators: it was changed

Among equals (64 equal branches) neighbours that are paired already decide, then names, then the order. Every step is
linear in the size of the graphs, but for sorting.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Literal

import numpy as np

from graph2torch.graph import Array, Attribute, Graph, Node, ValueInfo
from graph2torch.match import COMMUTATIVE
from graph2torch.text import one_line, quoted

from .isomorphism import same_attributes

CANDIDATES = 16  # of the operands of one commutative node that may have been changed
WINDOW = 48  # how many nodes of a sequence are laid on each other at a time

Strength = Literal["bits", "sizes", "operators"]
Operands = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """In what a node of one graph differs from its counterpart; the bits of constants aside."""

    a: Node
    b: Node
    kind: Literal["operator", "attribute", "operands", "constant"]
    words: str


@dataclass(frozen=True)
class Correspondence:
    """Which things of graph a stand for which of graph b.

    nodes:     pairs, in a's order; no node stands in two of them
    values:    a's value → b's, for inputs, what paired nodes make, and outputs
    constants: pairs of constants used in the same place, whatever they hold and whatever their sizes; one that is shared in
               one graph and not in the other stands in several
    changed:   what differs within the pairs, the bits of constants aside
    removed:   nodes that are in a only
    added:     nodes that are in b only
    """

    nodes: tuple[tuple[Node, Node], ...]
    values: Mapping[str, str]
    constants: tuple[tuple[str, str], ...]
    changed: tuple[Change, ...]
    removed: tuple[Node, ...]
    added: tuple[Node, ...]

    @property
    def same_structure(self) -> bool:
        """Whether nothing but the bits of constants may differ."""
        return not (self.changed or self.removed or self.added)


def correspond(a: Graph, b: Graph) -> Correspondence:
    """Pairs the nodes, values and constants of two canonical graphs, which may be the same, similar or unrelated."""
    sides = _Side(a), _Side(b)
    inputs, outputs = pair_declared(a.inputs, b.inputs), pair_declared(a.outputs, b.outputs)
    pairing = _Pairing(*sides)
    pairing.run(inputs, outputs)
    return _result(pairing, inputs, outputs)


def pair_declared(mine: Sequence[ValueInfo], theirs: Sequence[ValueInfo]) -> dict[str, str]:
    """Inputs or outputs of two graphs: those of one name, then in order those of one type and size, then of one type and rank."""
    pairs: dict[str, str] = {}
    left = list(theirs)
    for alike in (_name, _type_and_size, _type_and_rank):
        for x in mine:
            if x.name not in pairs and (y := next((y for y in left if alike(x) == alike(y)), None)) is not None:
                pairs[x.name] = y.name
                left.remove(y)
    return pairs


def _name(value: ValueInfo) -> Hashable:
    return value.name


def _type_and_size(value: ValueInfo) -> Hashable:
    return value.dtype.str, tuple(size if isinstance(size, int) else None for size in value.shape)


def _type_and_rank(value: ValueInfo) -> Hashable:
    return value.dtype.str, len(value.shape)


def pair_operands(a: Graph, x: Node, b: Graph, y: Node, values: Mapping[str, str]) -> Operands:
    """The operands of two nodes that stand for one another, in pairs ("" for one that the other node lacks).

    Place by place; but if the operator is commutative, or the operands are the same in another order, then those that
    correspond, constants by their bits, by their sizes, and the rest in order.
    """
    places = tuple(zip_longest(x.inputs, y.inputs, fillvalue=""))
    bits = {v: ("constant", *_bits(a.constants[v])) if v in a.constants else ("value", values.get(v) if v else "") for v in x.inputs}
    others = {w: ("constant", *_bits(b.constants[w])) if w in b.constants else ("value", w) for w in y.inputs}
    if len(x.inputs) == len(y.inputs) and all(bits[v] == others[w] for v, w in places):
        return places
    mine, theirs, pairs = list(x.inputs), list(y.inputs), list[tuple[str, str]]()

    def take(of_mine: Callable[[str], Hashable], of_theirs: Callable[[str], Hashable]) -> None:
        there: dict[Hashable, deque[int]] = {}
        for j, w in enumerate(theirs):
            there.setdefault(of_theirs(w), deque()).append(j)
        found = [(i, there[key].popleft()) for i, v in enumerate(mine) if there.get(key := of_mine(v))]
        pairs.extend((mine[i], theirs[j]) for i, j in found)
        for left, gone in ((mine, {i for i, _ in found}), (theirs, {j for _, j in found})):
            left[:] = [value for n, value in enumerate(left) if n not in gone]

    take(bits.__getitem__, others.__getitem__)
    if x.op in COMMUTATIVE and y.op in COMMUTATIVE:
        take(lambda v: _size(a, v), lambda w: _size(b, w))
        take(lambda v: v in a.constants, lambda w: w in b.constants)
        return (*pairs, *zip_longest(mine, theirs, fillvalue=""))
    return tuple(pairs) if not mine and not theirs else places


def _bits(array: Array) -> tuple[Hashable, ...]:
    return array.dtype.str, array.shape, array.tobytes()


def _size(graph: Graph, value: str) -> Hashable:
    return graph.constants[value].shape if value in graph.constants else None


# ---------------------------------------------------------------------------------------------- one graph
class _Side:
    """A graph by numbers: nodes are their places in `graph.nodes`."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.nodes = graph, graph.nodes
        self.inputs = {i.name for i in graph.inputs}
        self.producer = {value: (i, place) for i, node in enumerate(graph.nodes) for place, value in enumerate(node.outputs) if value}
        # user, and the place of the operand there; a commutative operator's operands have no places
        self.uses: list[list[tuple[int, int, int]]] = [[] for _ in graph.nodes]  # output, user, place
        self.makers: list[list[tuple[int, int]]] = [[] for _ in graph.nodes]  # place, producer
        for i, node in enumerate(graph.nodes):
            for place, value in enumerate(node.inputs):
                if value in self.producer:
                    at = -1 if node.op in COMMUTATIVE else place
                    made, output = self.producer[value]
                    self.uses[made].append((output, i, at))
                    self.makers[i].append((at, made))
        self.depth = [0] * len(graph.nodes)
        for i in range(len(graph.nodes)):
            self.depth[i] = 1 + max((self.depth[j] for _, j in self.makers[i]), default=0)
        self.height = [0] * len(graph.nodes)
        for i in reversed(range(len(graph.nodes))):
            self.height[i] = 1 + max((self.height[j] for _, j, _ in self.uses[i]), default=0)

    def own(self, strength: Strength) -> list[Hashable]:
        """Of each node the operator and, but for the weakest strength, its attributes."""
        if strength == "operators":
            return [node.op for node in self.nodes]
        return [(node.op, tuple((k, _hashable(v)) for k, v in sorted(node.attributes.items()))) for node in self.nodes]

    def order(self, outputs: Iterable[str]) -> list[int]:
        """The nodes from the inputs to each of `outputs`, branch by branch, whatever their order in the file."""
        results = dict(zip((o.name for o in self.graph.outputs), self.graph.results, strict=True))
        done = [False] * len(self.nodes)
        order: list[int] = []
        todo = [(i, False) for name in reversed(list(outputs)) if (i := self.producer.get(results[name], (-1, 0))[0]) >= 0]
        todo[:0] = [(i, False) for i in reversed(range(len(self.nodes)))]  # what only other outputs need comes last
        while todo:
            i, ready = todo.pop()
            if ready:
                order.append(i)
            elif not done[i]:
                done[i] = True
                todo.append((i, True))
                makers = self.makers[i]
                if self.nodes[i].op in COMMUTATIVE:
                    makers = sorted(makers, key=lambda maker: self.nodes[maker[1]].op)
                todo += [(j, False) for _, j in reversed(makers) if not done[j]]
        return order


def _hashable(value: Attribute) -> Hashable:
    return (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else (type(value), repr(value))


# ---------------------------------------------------------------------------------------------- pasts and futures
@dataclass
class _Table:
    """Pasts and futures of both graphs' nodes, as numbers that are equal where these are."""

    numbers: dict[Hashable, int] = field(default_factory=dict)

    def number(self, key: Hashable) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def constants(self, graph: Graph, strength: Strength) -> dict[str, int]:
        def key(array: Array) -> Hashable:
            if strength == "operators":
                return "constant"
            size = ("constant", array.dtype.str, array.shape)
            return size if strength == "sizes" else (*size, array.tobytes())

        return {name: self.number(key(array)) for name, array in graph.constants.items()}

    def pasts(self, side: _Side, inputs: Mapping[str, Hashable], strength: Strength) -> list[int]:
        known = self.constants(side.graph, strength)
        known |= {i.name: self.number(("input", inputs.get(i.name))) for i in side.graph.inputs}
        found = []
        for node, own in zip(side.nodes, side.own(strength), strict=True):
            operands = [known.get(v, -1) for v in node.inputs]
            if node.op in COMMUTATIVE:
                operands.sort()
            past = self.number((own, *operands))
            known.update((output, self.number((past, place))) for place, output in enumerate(node.outputs) if output)
            found.append(past)
        return found

    def futures(self, side: _Side, outputs: Mapping[str, Hashable], strength: Strength) -> list[int]:
        constants = self.constants(side.graph, strength)
        given: dict[int, list[Hashable]] = {}
        for output, result in zip(side.graph.outputs, side.graph.results, strict=True):
            if result in side.producer:
                i, place = side.producer[result]
                given.setdefault(i, []).append((place, outputs.get(output.name)))
        found = [0] * len(side.nodes)
        own = side.own(strength)
        for i in reversed(range(len(side.nodes))):
            node = side.nodes[i]
            weights = [(-1 if node.op in COMMUTATIVE else place, constants[v]) for place, v in enumerate(node.inputs) if v in constants]
            uses = sorted((output, place, found[user]) for output, user, place in side.uses[i])
            found[i] = self.number((own[i], tuple(sorted(weights)), tuple(uses), tuple(sorted(map(repr, given.get(i, ()))))))
        return found


# ---------------------------------------------------------------------------------------------- pairing
class _Pairing:
    """Pairs of nodes, found step by step; `partner[side][node]` is the other one or -1."""

    def __init__(self, a: _Side, b: _Side) -> None:
        self.sides = a, b
        self.partner = [-1] * len(a.nodes), [-1] * len(b.nodes)
        self.left = min(len(a.nodes), len(b.nodes))

    def run(self, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
        marks = [({x: n for n, x in enumerate(names)}, {y: n for n, y in enumerate(names.values())}) for names in (inputs, outputs)]
        self.order = self.sides[0].order(outputs), self.sides[1].order(outputs.values())
        table = _Table()
        ends: dict[Strength, tuple[list[list[int]], list[list[int]]]] = {}
        strengths: tuple[Strength, ...] = ("bits", "sizes", "operators")
        for strength in strengths:
            if not self.left:
                return
            past = [table.pasts(side, marks[0][i], strength) for i, side in enumerate(self.sides)]
            future = [table.futures(side, marks[1][i], strength) for i, side in enumerate(self.sides)]
            ends[strength] = past, future
            self.settle([list(zip(p, f, strict=True)) for p, f in zip(past, future, strict=True)])
            if strength == "bits":
                self.settle(past)
                self.settle(future)
        for strength in strengths[1:]:
            self.from_both_ends(*ends[strength])
        self.between()
        self.changed(outputs)

    def pair(self, x: int, y: int) -> None:
        self.partner[0][x], self.partner[1][y] = y, x
        self.left -= 1

    def free(self, side: int) -> Iterator[int]:
        return (i for i in self.order[side] if self.partner[side][i] < 0)

    def settle(self, keys: Sequence[Sequence[Hashable]]) -> None:
        """Pairs nodes of equal keys, in a's order."""
        mine, theirs = self.classes(keys)
        for key, members in mine.items():
            if key in theirs:
                self.choose(members, theirs[key])

    def classes(self, keys: Sequence[Sequence[Hashable]]) -> tuple[dict[Hashable, list[int]], dict[Hashable, list[int]]]:
        found: tuple[dict[Hashable, list[int]], dict[Hashable, list[int]]] = {}, {}
        for side in (0, 1):
            for i in self.free(side):
                found[side].setdefault(keys[side][i], []).append(i)
        return found

    def from_both_ends(self, past: list[list[int]], future: list[list[int]]) -> None:
        """Equal pasts by their distance from the inputs and equal futures by theirs from the outputs, whichever is nearer."""
        events = []
        for rank, (keys, far) in enumerate(((past, self.sides[0].depth), (future, self.sides[0].height))):
            mine, theirs = self.classes(keys)
            events += [(far[members[0]], rank, n, members, theirs[key]) for n, (key, members) in enumerate(mine.items()) if key in theirs]
        for *_, xs, ys in sorted(events, key=lambda event: event[:3]):
            self.choose([x for x in xs if self.partner[0][x] < 0], [y for y in ys if self.partner[1][y] < 0])

    def choose(self, xs: Sequence[int], ys: Sequence[int]) -> None:
        """Pairs the members of two classes: by paired neighbours, by name, then in order."""
        if len(xs) == len(ys) == 1:
            self.pair(xs[0], ys[0])
            return
        by_hint: dict[Hashable, deque[int]] = {}
        for y in ys:
            for hint in self.hints(1, y):
                by_hint.setdefault(hint, deque()).append(y)
        rest = []
        for x in xs:
            found = sorted((by_hint[hint] for hint in dict.fromkeys(self.hints(0, x)) if hint in by_hint), key=len)
            if not any(self.first(candidates, x) for candidates in found):
                rest.append(x)
        for x, y in zip(rest, [y for y in ys if self.partner[1][y] < 0], strict=False):
            self.pair(x, y)

    def first(self, candidates: deque[int], x: int) -> bool:
        while candidates:
            y = candidates.popleft()
            if self.partner[1][y] < 0:
                self.pair(x, y)
                return True
        return False

    def hints(self, side: int, i: int) -> Iterator[Hashable]:
        """Its paired neighbours, as b's numbers, and its name."""
        graph = self.sides[side]
        for place, j in graph.makers[i]:
            if (partner := self.partner[side][j]) >= 0:
                yield "operand", place, partner if side == 0 else j
        for _, j, place in graph.uses[i]:
            if (partner := self.partner[side][j]) >= 0:
                yield "user", place, partner if side == 0 else j
        if graph.nodes[i].name:
            yield "name", graph.nodes[i].name

    def between(self) -> None:
        """Lays sequences of what is unpaired on each other, between pairs that come in the same order in both graphs."""
        place = {y: n for n, y in enumerate(self.order[1])}
        anchors = _increasing([(n, place[self.partner[0][x]]) for n, x in enumerate(self.order[0]) if self.partner[0][x] >= 0])
        start = (0, 0)
        for end in [*anchors, (len(self.order[0]), len(self.order[1]))]:
            xs = [x for x in self.order[0][start[0] : end[0]] if self.partner[0][x] < 0]
            ys = [y for y in self.order[1][start[1] : end[1]] if self.partner[1][y] < 0]
            while xs and ys:
                pairs = self.lay(xs[:WINDOW], ys[:WINDOW])
                if len(xs) > WINDOW or len(ys) > WINDOW:  # what stands at the window's end may have a better counterpart behind it
                    pairs = [(x, y) for x, y in pairs if x < WINDOW // 2 and y < WINDOW // 2]
                for i, j in pairs:
                    self.pair(xs[i], ys[j])
                if len(xs) <= WINDOW and len(ys) <= WINDOW:
                    break
                i, j = (last + 1 for last in pairs[-1]) if pairs else (WINDOW // 2, WINDOW // 2)
                xs, ys = xs[i:], ys[j:]
            start = end[0] + 1, end[1] + 1

    def lay(self, xs: Sequence[int], ys: Sequence[int]) -> list[tuple[int, int]]:
        """The best alignment of two sequences, places in them: equal operators, at best with equal attributes and sizes."""
        alike = self.likeness(xs, ys)
        below = [0] * (len(ys) + 1)
        best = [below]
        for row in reversed(alike):
            right, current = 0, [0] * (len(ys) + 1)
            for j in reversed(range(len(ys))):
                here, under, across = row[j], below[j], below[j + 1]
                if here and across + here > right:
                    right = across + here
                current[j] = right = max(right, under)
            below = current
            best.append(below)
        best.reverse()
        pairs, i, j = [], 0, 0
        while i < len(xs) and j < len(ys):
            if alike[i][j] and best[i][j] == best[i + 1][j + 1] + alike[i][j]:
                pairs.append((i, j))
                i, j = i + 1, j + 1
            elif best[i][j] == best[i + 1][j]:
                i += 1
            else:
                j += 1
        return pairs

    def likeness(self, xs: Sequence[int], ys: Sequence[int]) -> list[list[int]]:
        """Of each x with each y: 0 for other operators, else 4, and more for equal attributes and for constants of equal sizes."""
        mine, theirs = ([self.looks(side, i) for i in members] for side, members in ((0, xs), (1, ys)))
        rows = {x: [0 if x[0] != y[0] else 4 + (x[1] == y[1]) + 2 * (x[2] == y[2]) for y in theirs] for x in dict.fromkeys(mine)}
        return [rows[x] for x in mine]

    def looks(self, side: int, i: int) -> tuple[Hashable, Hashable, Hashable]:
        """Its operator, its attributes, the sizes of its constants."""
        graph, node = self.sides[side].graph, self.sides[side].nodes[i]
        attributes = tuple((k, _hashable(v)) for k, v in sorted(node.attributes.items()))
        return node.op, attributes, tuple(graph.constants[v].shape for v in node.inputs if v in graph.constants)

    def changed(self, outputs: Mapping[str, str]) -> None:
        """Pairs what reads and is read by the same, the best first."""
        a, b = self.sides
        results = [dict(zip((o.name for o in side.graph.outputs), side.graph.results, strict=True)) for side in self.sides]
        given: dict[tuple[int, int], int] = Counter()
        for mine, theirs in outputs.items():
            x, y = a.producer.get(results[0][mine], (-1, 0))[0], b.producer.get(results[1][theirs], (-1, 0))[0]
            given[(x, y)] += 1
        scores: dict[tuple[int, int], int] = Counter({(x, y): n for (x, y), n in given.items() if self.both_free(x, y)})
        for user, other in enumerate(self.partner[0]):
            there: dict[int, list[int]] = {}
            for place, y in b.makers[other] if other >= 0 else ():
                if self.partner[1][y] < 0:
                    there.setdefault(place, []).append(y)
            for place, x in a.makers[user] if there else ():
                for y in there.get(place, ())[:CANDIDATES]:
                    if self.both_free(x, y):
                        scores[(x, y)] += 1
        ranked = [(-n - common, self.rank(x, y), x, y) for (x, y), n in scores.items() if (common := self.common_operands(x, y))]
        for _, _, x, y in sorted(ranked):
            if self.both_free(x, y):
                self.pair(x, y)

    def both_free(self, x: int, y: int) -> bool:
        return x >= 0 and y >= 0 and self.partner[0][x] < 0 and self.partner[1][y] < 0

    def common_operands(self, x: int, y: int) -> int:
        """How many operands correspond, wherever they stand."""
        a, b = self.sides
        mine = Counter(self.partner[0][j] for _, j in a.makers[x] if self.partner[0][j] >= 0)
        theirs = Counter(j for _, j in b.makers[y])
        inputs = [sum(v in g.inputs for v in g.nodes[i].inputs) for g, i in ((a, x), (b, y))]
        return sum((mine & theirs).values()) + min(inputs)

    def rank(self, x: int, y: int) -> int:
        """The smaller, the more alike besides."""
        return abs(len(self.sides[0].nodes[x].inputs) - len(self.sides[1].nodes[y].inputs))


def _increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence of `pairs`, which come by their first numbers, whose second ones increase as well."""
    ends: list[int] = []
    last: list[int] = []
    before = [-1] * len(pairs)
    for n, (_, second) in enumerate(pairs):
        at = bisect_left(ends, second)
        before[n] = last[at - 1] if at else -1
        ends[at : at + 1], last[at : at + 1] = [second], [n]
    found, n = [], last[-1] if last else -1
    while n >= 0:
        found.append(pairs[n])
        n = before[n]
    return found[::-1]


# ---------------------------------------------------------------------------------------------- result
def _result(pairing: _Pairing, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Correspondence:
    a, b = (side.graph for side in pairing.sides)
    nodes = tuple((a.nodes[x], b.nodes[y]) for x, y in enumerate(pairing.partner[0]) if y >= 0)
    values = dict(inputs)
    for x, y in nodes:
        values.update((v, w) for v, w in zip(x.outputs, y.outputs, strict=False) if v and w)
    constants: dict[tuple[str, str], None] = {}
    changes: list[Change] = []
    for x, y in nodes:
        operands = pair_operands(a, x, b, y, values)
        constants.update(((v, w), None) for v, w in operands if v in a.constants and w in b.constants)
        changes += changes_of(a, x, b, y, operands, values)
    results = [dict(zip((o.name for o in g.outputs), g.results, strict=True)) for g in (a, b)]
    taken = set(values.values())
    for mine, theirs in outputs.items():
        v, w = results[0][mine], results[1][theirs]
        if v in a.constants and w in b.constants:
            constants[(v, w)] = None
        if mine not in values and theirs not in taken:
            values[mine] = theirs
            taken.add(theirs)
    removed = tuple(n for n, y in zip(a.nodes, pairing.partner[0], strict=True) if y < 0)
    added = tuple(n for n, x in zip(b.nodes, pairing.partner[1], strict=True) if x < 0)
    return Correspondence(nodes, values, tuple(constants), tuple(changes), removed, added)


def changes_of(a: Graph, x: Node, b: Graph, y: Node, operands: Operands, values: Mapping[str, str]) -> Iterator[Change]:
    """In what `y` differs from `x`, whose operands are paired by `pair_operands`; the bits of constants aside."""
    if x.op != y.op:
        yield Change(x, y, "operator", f"{x} is {y} in the other graph")
    elif not same_attributes(x, y):
        keys = [k for k in sorted({*x.attributes, *y.attributes}) if _hashable_or(x, k) != _hashable_or(y, k)]
        words = "; ".join(f"{one_line(k, 40)} is {_shown(x, k)}, in the other graph {_shown(y, k)}" for k in keys)
        yield Change(x, y, "attribute", f"{x}: {words}")
    for v, w in operands:
        if v in a.constants and w in b.constants:
            one, two = a.constants[v], b.constants[w]
            if (one.dtype, one.shape) != (two.dtype, two.shape):
                sizes = f"{one.dtype} {list(one.shape)}, in the other graph {two.dtype} {list(two.shape)}"
                yield Change(x, y, "constant", f"{x}: the constant {quoted(v)} is {sizes}")
        elif x.op == y.op and not (v == w == "") and (not v or values.get(v) != w):
            yield Change(x, y, "operands", f"{x} reads {_operand(a, v)}, in the other graph {_operand(b, w)}")
    ordered = x.op == y.op and x.op not in COMMUTATIVE and operands != tuple(zip_longest(x.inputs, y.inputs, fillvalue=""))
    if ordered:
        yield Change(x, y, "operands", f"{x} reads the same operands in another order")


def _operand(graph: Graph, value: str) -> str:
    return f"{'the constant ' if value in graph.constants else ''}{quoted(value)}" if value else "nothing"


def _hashable_or(node: Node, key: str) -> Hashable:
    return _hashable(node.attributes[key]) if key in node.attributes else None


def _shown(node: Node, key: str) -> str:
    if key not in node.attributes:
        return "the default"
    value = node.attributes[key]
    if isinstance(value, np.ndarray):
        return f"a tensor, {value.dtype} {list(value.shape)}"
    return one_line(repr(value), 60)
