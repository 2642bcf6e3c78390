"""Lays two canonical graphs on each other, from their named inputs and outputs.

Operators, attributes and operand order (commutative operators aside) must be the same; names, the order of nodes and merged
or split constants need not be. Inputs, and constants that a caller may override, are the same only under the same name.
Random operators pair off one to one. Constants are paired whatever they hold, and those that differ are listed, so that
a drifted copy aligns too.

Both graphs are first numbered together: equal numbers mean the same computation, so there is nothing to search. Then they are
walked from the outputs, pair by pair; a part that has the same number on both sides and draws no random numbers is walked
once for each of its nodes, however often it is used. Time and memory grow with the number of operands.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import onnx.defs

from graph2torch.graph import Array, Graph, Node, ValueInfo, attribute_key, draws_random
from graph2torch.text import quoted

from .figures import same_bits

# Swapping the two operands changes no bit in onnxruntime (a NaN stays one). It does for Max and Min, where one is 0 and the other −0.
COMMUTES = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"})
COMMUTES_WITH_TWO = frozenset({"Sum", "Mean"})  # more are added up from the left
COUNTED = frozenset({"Split", "BatchNormalization"})  # how many results they have says what they do

# Across opsets, an operator is only taken for itself if its definition is one and the same, or it is one of these: their
# later definitions allow more types, write attributes as operands or add attributes, but mean the same by the same spelling.
_SAME = """
Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh BatchNormalization Cast Ceil Clip Concat ConstantOfShape Conv
ConvTranspose Cos Cosh Div Dropout Elu Equal Erf Exp Expand Flatten Floor GRU Gather GatherElements GatherND Gemm
GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual HardSigmoid Identity InstanceNormalization IsInf IsNaN LSTM
LayerNormalization LeakyRelu Less LessOrEqual Log MatMul Max MaxPool Mean Min Mul Multinomial Neg NonZero Not Or PRelu
Pad Pow RandomNormal RandomNormalLike RandomUniform RandomUniformLike Reciprocal ReduceL1 ReduceL2 ReduceLogSumExp
ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape RNN Selu Shape Sigmoid Sign Sin Sinh
Slice Softplus Softsign Split Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu Tile TopK Transpose Unsqueeze Where Xor
"""
SAME_IN_EVERY_OPSET = frozenset(_SAME.split())
FLATTENED = frozenset({"Softmax", "LogSoftmax", "Hardmax"})  # before opset 13 over all axes from `axis` on, since then over that one
PAIRS_A_NODE = 8  # far more than any policy needs; without it a graph could be made so that pairs multiply


@dataclass(frozen=True)
class Alignment:
    """How two graphs lie on each other.

    nodes:     pairs of nodes that compute the same (a node is in several where common subexpressions were merged)
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
        return tuple(pair for pair in self.nodes if draws_random(pair[0]))

    @property
    def classes(self) -> tuple[tuple[tuple[Node, ...], tuple[Node, ...]], ...]:
        """The pairs gathered: all nodes of the one graph and all of the other that compute the same, mostly one and one."""
        found: dict[int, tuple[dict[int, Node], dict[int, Node]]] = {}
        mine: dict[int, int] = {}
        theirs: dict[int, int] = {}
        for number, (a, b) in enumerate(self.nodes):
            one, other = mine.get(a.index), theirs.get(b.index)
            kept = next((n for n in (one, other) if n is not None), number)
            found.setdefault(kept, ({}, {}))
            if one is not None and other is not None and one != other:  # this pair joins two classes: the smaller goes into the larger
                kept, gone = sorted((one, other), key=lambda n: -len(found[n][0]) - len(found[n][1]))
                for into, part, where in zip(found[kept], found.pop(gone), (mine, theirs), strict=True):
                    into.update(part)
                    where.update(dict.fromkeys(part, kept))
            found[kept][0][a.index], found[kept][1][b.index] = a, b
            mine[a.index] = theirs[b.index] = kept
        return tuple((tuple(ours.values()), tuple(others.values())) for ours, others in found.values())


def align(a: Graph, b: Graph) -> Alignment:
    """Walks both canonical graphs from their outputs, pair by pair."""
    return _Walk(a, b).run()


def commutes(node: Node) -> bool:
    """Whether its two operands may change places without a bit of the result changing."""
    return len(node.inputs) == 2 and (node.op in COMMUTES or node.op in COMMUTES_WITH_TWO)


class _Walk:
    def __init__(self, a: Graph, b: Graph) -> None:
        self.a, self.b = a, b
        numbers: dict[object, int] = {}
        self.sides = _Side(a, b.opset, numbers), _Side(b, a.opset, numbers)
        self.nodes: dict[tuple[int, int], tuple[Node, Node]] = {}
        self.constants: dict[tuple[str, str], None] = {}
        self.random: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self.pairs: set[tuple[str, str]] = set()
        self.settled: tuple[set[str], set[str]] = (set(), set())

    def run(self) -> Alignment:
        refusal = self.walk()
        differing = tuple(pair for pair in self.constants if not same_bits(self.a.constants[pair[0]], self.b.constants[pair[1]]))
        return Alignment(tuple(self.nodes.values()), tuple(self.constants), differing, refusal)

    def walk(self) -> str | None:
        names = [[o.name for o in g.outputs] for g in (self.a, self.b)]
        if names[0] != names[1]:
            return f"the outputs are {', '.join(map(quoted, names[1]))} instead of {', '.join(map(quoted, names[0]))}"
        if changeable := self.a.overridable ^ self.b.overridable:
            return f"the constant {quoted(min(changeable))} can be overridden in one graph only"
        most = PAIRS_A_NODE * (len(self.a.nodes) + len(self.b.nodes) + 1000)
        todo = [pair for pair in zip(self.a.results, self.b.results, strict=True) if self.new(*pair)]
        while todo:
            step = self.step(*todo.pop())
            if isinstance(step, str):
                return step
            if len(self.pairs) > most:
                return f"the graphs are so entangled that they are not laid on each other within {most:,} pairs of values"
            todo += [pair for pair in step if self.new(*pair)]
        return None

    def new(self, x: str, y: str) -> bool:
        """Whether a pair is still to be walked. Two values of one number that draw nothing are the same without any walk."""
        one, two = self.sides
        if one.full.get(x, -1) == two.full.get(y, -2) and x not in one.drawn:
            if x in self.settled[0] and y in self.settled[1]:
                return False
            self.settled[0].add(x)
            self.settled[1].add(y)
            return True
        if (x, y) in self.pairs:
            return False
        self.pairs.add((x, y))
        return True

    def step(self, x: str, y: str) -> str | list[tuple[str, str]]:
        if not x or not y:
            return [] if x == y else f"an operand of {quoted(x or y)} is left out on one side"
        one, two = self.sides
        if x in self.a.constants and y in self.b.constants:
            return self.constant(x, y)
        if x in one.inputs and y in two.inputs:
            return self.input(one.inputs[x], two.inputs[y])
        place, other = one.producer.get(x), two.producer.get(y)
        if place is None or other is None:
            return f"{one.what(x)} stands where the other graph has {two.what(y)}"
        (node, i), (twin, j) = place, other
        if node.op != twin.op or i != j or len(node.inputs) != len(twin.inputs):
            return f"{node} stands where the other graph has {twin}"
        if node.op in COUNTED and len(node.outputs) != len(twin.outputs):
            return f"{node} has {len(node.outputs)} results, in the other graph {len(twin.outputs)}"
        if not same_attributes(node, twin):
            return f"{node} has the attributes {dict(node.attributes)}, in the other graph {dict(twin.attributes)}"
        if one.meaning(node) != two.meaning(twin):
            return f"{node} doesn't mean the same in opset {self.a.opset} and in opset {self.b.opset}"
        if draws_random(node) and (
            self.random[0].setdefault(node.index, twin.index) != twin.index
            or self.random[1].setdefault(twin.index, node.index) != node.index
        ):
            return f"{node} is drawn once where the other graph draws twice"
        self.nodes[(node.index, twin.index)] = (node, twin)
        return self.operands(node, twin)

    def constant(self, x: str, y: str) -> str | list[tuple[str, str]]:
        one, two = self.a.constants[x], self.b.constants[y]
        if (x in self.a.overridable or y in self.b.overridable) and x != y:
            return f"the constant {quoted(x)}, which can be overridden, is used where the other graph uses {quoted(y)}"
        if (one.dtype, one.shape) != (two.dtype, two.shape):
            return f"the constant {quoted(x)} is {one.dtype} {list(one.shape)}, in the other graph {two.dtype} {list(two.shape)}"
        self.constants[(x, y)] = None
        return []

    def input(self, x: ValueInfo, y: ValueInfo) -> str | list[tuple[str, str]]:
        if x.name != y.name:
            return f"the input {quoted(x.name)} is used where the other graph uses {quoted(y.name)}"
        if _declared(x) != _declared(y):
            return f"the input {quoted(x.name)} is {x.dtype} {x.size}, in the other graph {y.dtype} {y.size}"
        return []

    def operands(self, node: Node, twin: Node) -> list[tuple[str, str]]:
        """Pairs of operands; those of a commutative operator change places if they fit better then."""
        straight = list(zip(node.inputs, twin.inputs, strict=True))
        if not commutes(node):
            return straight
        swapped = list(zip(node.inputs, reversed(twin.inputs), strict=True))
        return swapped if self.fit(swapped) > self.fit(straight) else straight

    def fit(self, pairs: list[tuple[str, str]]) -> tuple[int, int]:
        """How many of them compute the same on the same numbers, how many at least in the same way."""
        one, two = self.sides
        same = sum(one.full.get(x, -1) == two.full.get(y, -2) for x, y in pairs)
        alike = sum(one.structure.get(x, -1) == two.structure.get(y, -2) for x, y in pairs)
        return same, alike


class _Side:
    """One of the two graphs, numbered.

    structure: value → number of how it is computed, constants by type and shape alone
    full:      value → number of how it is computed and of the constants' bits
    drawn:     values that random numbers go into
    """

    def __init__(self, graph: Graph, other_opset: int, numbers: dict[object, int]) -> None:
        self.graph, self.other_opset = graph, other_opset
        self.producer = {o: (n, i) for n in graph.nodes for i, o in enumerate(n.outputs) if o}
        self.inputs = {i.name: i for i in graph.inputs}
        self.structure: dict[str, int] = {}
        self.full: dict[str, int] = {}
        self.drawn: set[str] = set()
        self.number(numbers)

    def number(self, numbers: dict[object, int]) -> None:
        """Gives each value the number of what it is, a new one if no value of either graph was that before."""

        def give(*key: object) -> int:
            return numbers.setdefault(key, len(numbers))

        structure, full = self.structure, self.full
        for name, value in self.inputs.items():
            structure[name] = full[name] = give("input", name, *_declared(value))
        for name, array in self.graph.constants.items():
            kind = (name if name in self.graph.overridable else "", array.dtype.str, array.shape)
            structure[name] = give("constant", *kind)
            full[name] = give("constant", *kind, _digest(array))
        for node in self.graph.nodes:
            swaps = commutes(node)
            head = (node.op, self.meaning(node), len(node.outputs) if node.op in COUNTED else 0, _attributes(node))
            for table in (structure, full):
                operands = [table.get(v, -1) for v in node.inputs]
                if swaps:
                    operands.sort()
                computed = give("node", *head, *operands)
                for i, output in enumerate(node.outputs):
                    if output:
                        table[output] = computed if i == 0 else give("result", computed, i)
            if draws_random(node) or not self.drawn.isdisjoint(node.inputs):
                self.drawn.update(node.outputs)

    def meaning(self, node: Node) -> object:
        """Equal for two nodes of one spelling if their opsets don't make different operators of them."""
        opset = self.graph.opset
        if opset == self.other_opset or node.op in SAME_IN_EVERY_OPSET:
            return None
        if node.op in FLATTENED:
            return "flattened" if opset < 13 <= self.other_opset and not self.last_axis(node) else None
        return _since(node.op, opset)

    def last_axis(self, node: Node) -> bool:
        axis = node.attributes.get("axis")
        known = self.graph.types.get(node.inputs[0])
        return axis == -1 or (known is not None and known.shape is not None and axis == len(known.shape) - 1)

    def what(self, value: str) -> str:
        place = self.producer.get(value)
        return str(place[0]) if place else f"the {'constant' if value in self.graph.constants else 'input'} {quoted(value)}"


def same_attributes(a: Node, b: Node) -> bool:
    """Whether two nodes have the same attributes, defaults aside."""
    return a.attributes.keys() == b.attributes.keys() and _attributes(a) == _attributes(b)


AttributeKey: TypeAlias = "tuple[tuple[str, object], ...]"


def _attributes(node: Node) -> AttributeKey:
    return tuple((name, attribute_key(value)) for name, value in sorted(node.attributes.items())) if node.attributes else ()


def _declared(value: ValueInfo) -> tuple[str, tuple[int | None, ...]]:
    """What an input is, apart from what its free sizes are called."""
    return value.dtype.str, tuple(size if isinstance(size, int) else None for size in value.shape)


@cache
def _since(op: str, opset: int) -> int:
    try:
        return int(onnx.defs.get_schema(op, opset).since_version)
    except onnx.defs.SchemaError:
        return opset


def _bytes(array: Array) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _digest(array: Array) -> bytes:
    return hashlib.blake2b(_bytes(array).tobytes() if array.nbytes < 64 else _bytes(array).data, digest_size=16).digest()
