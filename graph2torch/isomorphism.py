"""Lays two canonical graphs on each other, from their named inputs and outputs.

Operators, attributes and operand order (commutative ones aside) must be the same; names, the order of nodes and merged
or split constants need not be. Random operators pair off one to one. Constants are paired whatever they hold, and those
that differ are listed, so that a drifted copy aligns too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from .graph import RANDOM, Attribute, Graph, Node
from .match import COMMUTATIVE
from .text import quoted


@dataclass(frozen=True)
class Alignment:
    """How two graphs lie on each other.

    nodes:     pairs of nodes that compute the same (a class where common subexpressions were merged)
    constants: pairs of constants used in the same place
    differing: those of them whose bits differ
    refusal:   where the structures part, or None: then they are the same operator by operator
    """

    nodes: tuple[tuple[Node, Node], ...]
    constants: tuple[tuple[str, str], ...]
    differing: tuple[tuple[str, str], ...]
    refusal: str | None

    @property
    def isomorphic(self) -> bool:
        """The same computation on the same numbers."""
        return self.refusal is None and not self.differing

    @property
    def draws(self) -> tuple[tuple[Node, Node], ...]:
        """Pairs of random operators."""
        return tuple(pair for pair in self.nodes if pair[0].op in RANDOM)


def align(a: Graph, b: Graph) -> Alignment:
    """Walks both canonical graphs from their outputs, pair by pair."""
    return _Walk(a, b).run()


class _Walk:
    def __init__(self, a: Graph, b: Graph) -> None:
        self.a, self.b = a, b
        self.producers = tuple({o: (n, i) for n in g.nodes for i, o in enumerate(n.outputs) if o} for g in (a, b))
        self.inputs = tuple({i.name for i in g.inputs} for g in (a, b))
        self.keys = tuple(_hashes(g) for g in (a, b))
        self.nodes: dict[tuple[int, int], tuple[Node, Node]] = {}
        self.constants: dict[tuple[str, str], None] = {}
        self.random: tuple[dict[int, int], dict[int, int]] = ({}, {})

    def run(self) -> Alignment:
        refusal = self.walk()
        differing = tuple(pair for pair in self.constants if not _same_bits(self.a, pair[0], self.b, pair[1]))
        return Alignment(tuple(self.nodes.values()), tuple(self.constants), differing, refusal)

    def walk(self) -> str | None:
        names = [[o.name for o in g.outputs] for g in (self.a, self.b)]
        if names[0] != names[1]:
            return f"the outputs are {', '.join(map(quoted, names[1]))} instead of {', '.join(map(quoted, names[0]))}"
        if changeable := self.a.overridable ^ self.b.overridable:
            return f"the constant {quoted(min(changeable))} can be overridden in one graph only"
        todo = list(zip(self.a.results, self.b.results, strict=True))
        seen = set(todo)
        while todo:
            step = self.step(*todo.pop())
            if isinstance(step, str):
                return step
            for pair in step:
                if pair not in seen:
                    seen.add(pair)
                    todo.append(pair)
        return None

    def step(self, x: str, y: str) -> str | list[tuple[str, str]]:
        if not x or not y:
            return [] if x == y else f"an operand of {quoted(x or y)} is left out on one side"
        if x in self.a.constants and y in self.b.constants:
            one, two = self.a.constants[x], self.b.constants[y]
            if (one.dtype, one.shape) != (two.dtype, two.shape):
                return f"the constant {quoted(x)} is {one.dtype} {list(one.shape)}, in the other graph {two.dtype} {list(two.shape)}"
            self.constants[(x, y)] = None
            return []
        if x in self.inputs[0] and y in self.inputs[1]:
            return [] if x == y else f"the input {quoted(x)} is used where the other graph uses {quoted(y)}"
        place, other = self.producers[0].get(x), self.producers[1].get(y)
        if place is None or other is None:
            return f"{self.what(0, x)} stands where the other graph has {self.what(1, y)}"
        (node, i), (twin, j) = place, other
        if node.op != twin.op or i != j or len(node.inputs) != len(twin.inputs):
            return f"{node} stands where the other graph has {twin}"
        if not same_attributes(node, twin):
            return f"{node} has the attributes {dict(node.attributes)}, in the other graph {dict(twin.attributes)}"
        if node.op in RANDOM and (
            self.random[0].setdefault(node.index, twin.index) != twin.index
            or self.random[1].setdefault(twin.index, node.index) != node.index
        ):
            return f"{node} is drawn once where the other graph draws twice"
        self.nodes[(node.index, twin.index)] = (node, twin)
        return self.operands(node, twin)

    def operands(self, node: Node, twin: Node) -> list[tuple[str, str]]:
        """Pairs of operands; a commutative operator's pair off by what computes them, then by their places."""
        mine, theirs = list(node.inputs), list(twin.inputs)
        pairs: list[tuple[str, str]] = []
        if node.op in COMMUTATIVE:
            for a, b in zip(reversed(self.keys[0]), reversed(self.keys[1]), strict=True):  # equal bits first, then equal structure
                for x in list(mine):
                    y = next((y for y in theirs if a.get(x, b"") == b.get(y, b"")), None)
                    if y is not None:
                        mine.remove(x)
                        theirs.remove(y)
                        pairs.append((x, y))
        return pairs + list(zip(mine, theirs, strict=True))

    def what(self, side: int, value: str) -> str:
        graph = (self.a, self.b)[side]
        place = self.producers[side].get(value)
        return str(place[0]) if place else f"the {'constant' if value in graph.constants else 'input'} {quoted(value)}"


def same_attributes(a: Node, b: Node) -> bool:
    """Whether two nodes have the same attributes, defaults aside."""
    return a.attributes.keys() == b.attributes.keys() and all(
        _attribute(a.attributes[k]) == _attribute(b.attributes[k]) for k in a.attributes
    )


def _attribute(value: Attribute) -> bytes:
    if isinstance(value, np.ndarray):
        return repr((str(value.dtype), value.shape)).encode() + value.tobytes()
    return repr(value).encode()


def _hashes(graph: Graph) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """value → hash of what computes it: by structure alone, and with the constants' bits."""
    structure: dict[str, bytes] = {i.name: _digest(b"input", i.name.encode()) for i in graph.inputs}
    full = dict(structure)
    for name, array in graph.constants.items():
        kind = _digest(b"constant", str(array.dtype).encode(), repr(array.shape).encode())
        structure[name] = kind
        full[name] = _digest(kind, array.tobytes())
    for node in graph.nodes:
        head = [node.op.encode(), *(k.encode() + b"=" + _attribute(v) for k, v in sorted(node.attributes.items()))]
        for table in (structure, full):
            operands = [table.get(v, b"") for v in node.inputs]
            if node.op in COMMUTATIVE:
                operands.sort()
            for i, output in enumerate(node.outputs):
                table[output] = _digest(*head, *operands, str(i).encode())
    return structure, full


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def _same_bits(a: Graph, x: str, b: Graph, y: str) -> bool:
    return a.constants[x].tobytes() == b.constants[y].tobytes()
