"""One spelling per meaning: the dialect that patterns are written in.

    constants      are values of the graph, wherever the exporter put them (Constant node, initializer)
    Identity       is gone, so is a Concat of one operand and a Slice that keeps the whole of an input
    bounds, axes   are operands, as in opset 18 (Clip's min and max, Slice's starts and ends, Squeeze's axes …)
    attributes     that equal the operator's default are gone, so is Reshape's allowzero where no 0 stands in the shape
    twice the same (one operator on the same operands) is once; random operators, which never repeat, aside
    dead nodes     (nothing that is an output needs them) are gone

Nothing here changes a bit of any output: each step has a test in tests/test_canonical.py that runs both spellings.
What is deliberately not done: removing additions of zero (−0 would change) and folding constants (onnxruntime's
arithmetic need not be numpy's).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, cached_property

import numpy as np
import onnx.defs

from .errors import UnsupportedGraph
from .graph import Array, Attribute, Graph, Node, attribute_key, draws_random
from .text import quoted

INT64_MAX = 2**63 - 1
SMALL = 64  # constants up to this size are compared by value, larger ones by name
LOOKED_THROUGH = 16  # nodes looked through to reach operands, for each of the file's nodes; policies have about one

# operator: (the opset that made operands of these attributes, the attributes in operand order with their dtypes)
OPERANDS: dict[str, tuple[int, tuple[tuple[str, str], ...]]] = {
    "Clip": (11, (("min", "float32"), ("max", "float32"))),
    "Slice": (10, (("starts", "int64"), ("ends", "int64"), ("axes", "int64"))),
    "Squeeze": (13, (("axes", "int64"),)),
    "Unsqueeze": (13, (("axes", "int64"),)),
    "Split": (13, (("split", "int64"),)),
    "ReduceSum": (13, (("axes", "int64"),)),
    "ReduceMean": (18, (("axes", "int64"),)),
    "ReduceMax": (18, (("axes", "int64"),)),
    "ReduceMin": (18, (("axes", "int64"),)),
    "ReduceProd": (18, (("axes", "int64"),)),
    "ReduceL1": (18, (("axes", "int64"),)),
    "ReduceL2": (18, (("axes", "int64"),)),
    "ReduceLogSumExp": (18, (("axes", "int64"),)),
    "ReduceSumSquare": (18, (("axes", "int64"),)),
    "Pad": (11, (("pads", "int64"), ("value", "float32"))),
    "TopK": (10, (("k", "int64"),)),
}
NUMBERS = frozenset({"min", "max", "value", "k"})  # those of these attributes that were one number, not a list
# Their default changed on the way, so it is always written out.
_EXPLICIT: dict[str, tuple[str, Callable[[int], int]]] = {
    "Softmax": ("axis", lambda opset: 1 if opset < 13 else -1),
    "LogSoftmax": ("axis", lambda opset: 1 if opset < 13 else -1),
    "Hardmax": ("axis", lambda opset: 1 if opset < 13 else -1),
}
# Left out, they are this number on every axis; schemas don't know it, since the number of axes is the operand's.
_EVERY_AXIS = {"strides": 1, "dilations": 1, "pads": 0}
_LIKE = frozenset({"RandomNormalLike", "RandomUniformLike"})
# All operands and results are of one type, so that one of them tells it.
_OF_ONE_TYPE = frozenset({"Gemm", "MatMul", "Conv", "Add", "Sub", "Mul", "Div", "Concat", "Clip", "Relu", "Sigmoid", "Tanh", "Identity"})
_WINDOWED = frozenset({"Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"})


def canonicalise(graph: Graph) -> Graph:
    """The same computation in the canonical dialect; every node remembers the file's nodes it came from."""
    return _Canonicaliser(graph).run()


class _Canonicaliser:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.constants: dict[str, Array] = dict(graph.constants)
        self.aliases: dict[str, str] = {}
        self.ends: dict[str, str] = {}  # alias → what it stands for in the end, however long the chain
        # alias or constant → the file's node that is looked through there, and what that reads
        self.behind: dict[str, tuple[int, tuple[str, ...]]] = {}
        self.room = LOOKED_THROUGH * (len(graph.file_nodes) + 1000)
        self.merged: dict[int, list[int]] = {}
        self.operands: dict[str, object] = {}  # what operators are told apart by
        self.inputs = {value.name: value for value in graph.inputs}
        self.kept: dict[object, Node] = {}
        self.taken = {*self.constants, *self.inputs, *(o for n in graph.nodes for o in n.outputs)}

    def run(self) -> Graph:
        nodes = [kept for node in self.graph.nodes if (kept := self.visit(node)) is not None]
        results = tuple(self.resolve(result) for result in self.graph.results)
        alive = _needed(nodes, results)
        read = {n.index: n.inputs for n in self.graph.nodes}
        living = tuple(_through(n, self.through(read[n.index])) for n in nodes if n.index in alive)
        through = {o.name: self.through((r,)) for o, r in zip(self.graph.outputs, self.graph.results, strict=True)}
        used = {v for n in living for v in n.inputs} | set(results)
        seen = set(alive).union(*(n.through for n in living), *through.values())
        return replace(
            self.graph,
            nodes=living,
            results=results,
            constants={k: v for k, v in self.constants.items() if k in used},
            aliases=self.aliases,
            through=through,
            dead=tuple(n.index for n in self.graph.nodes if n.index not in seen),
            merged={k: tuple(v) for k, v in self.merged.items() if k in alive},
            overridable=frozenset(k for k in self.graph.overridable if k in used),
        )

    def through(self, values: Iterable[str]) -> tuple[int, ...]:
        """The file's nodes looked through to reach `values`, nearest first."""
        found: dict[int, None] = {}
        todo = [v for v in reversed([*values]) if v in self.behind]
        while todo:
            index, reads = self.behind[todo.pop()]
            if index not in found:
                found[index] = None
                todo += [v for v in reversed(reads) if v in self.behind]
        self.room -= len(found)
        if self.room < 0:
            raise UnsupportedGraph(
                f"The graph {quoted(self.graph.name)} reaches its operands through so many Identities and repeated operators that "
                f"they are not listed for each ({LOOKED_THROUGH} times its number of nodes); export it again with a current exporter."
            )
        return tuple(found)

    def resolve(self, name: str) -> str:
        return self.ends.get(name, name)

    def alias(self, name: str, other: str) -> None:
        self.aliases[name] = other
        self.ends[name] = self.resolve(other)

    def visit(self, node: Node) -> Node | None:
        """The node in the canonical dialect, or None if it only renames a value."""
        inputs = tuple(self.resolve(v) for v in node.inputs)
        if node.op == "Constant" and (value := _constant(node)) is not None:
            self.constants[node.outputs[0]] = value
            self.behind[node.outputs[0]] = node.index, ()
            return None
        if node.op == "Identity" or (node.op == "Concat" and len(inputs) == 1):
            self.rename(node, inputs[0])
            return None
        read = node.inputs
        node = self.trim(self.attributes_to_operands(node if inputs == read else replace(node, inputs=inputs)))
        if node.op == "Slice" and self.keeps_everything(node):
            self.rename(node, inputs[0], read)
            return None
        twin = node if draws_random(node) else self.kept.setdefault(self.key(node), node)
        if twin is not node:
            for mine, theirs in zip(node.outputs, twin.outputs, strict=True):
                if mine:
                    self.alias(mine, theirs)
                    self.behind[mine] = node.index, read
            self.merged.setdefault(twin.index, []).append(node.index)
            return None
        return node

    def key(self, node: Node) -> object:
        """Equal for two nodes that compute the same from the same operands, and have the same outputs."""
        attributes = tuple((k, attribute_key(v)) for k, v in sorted(node.attributes.items())) if node.attributes else ()
        return node.op, tuple(map(self.operand, node.inputs)), attributes, tuple(map(bool, node.outputs))

    def operand(self, value: str) -> object:
        if value not in self.operands:
            constant = self.fixed(value)
            small = constant is not None and constant.size <= SMALL
            self.operands[value] = (constant.dtype.str, constant.shape, constant.tobytes()) if constant is not None and small else value
        return self.operands[value]

    def fixed(self, value: str) -> Array | None:
        """The constant that `value` is, unless a caller may override it."""
        return None if value in self.graph.overridable else self.constants.get(value)

    def rename(self, node: Node, source: str, read: tuple[str, ...] | None = None) -> None:
        self.alias(node.outputs[0], source)
        self.behind[node.outputs[0]] = node.index, node.inputs if read is None else read

    def constant(self, node: Node, label: str, value: Array) -> str:
        name = f"{node.outputs[0]}:{label}"
        while name in self.taken:
            name += "'"
        self.taken.add(name)
        value.setflags(write=False)
        self.constants[name] = value
        return name

    def attributes_to_operands(self, node: Node) -> Node:
        since, operands = OPERANDS.get(node.op, (0, ()))
        if not operands and node.op not in _EXPLICIT and node.op != "Reshape" and node.inputs[-1:] != ("",):
            return node
        attributes = dict(node.attributes)
        inputs, spelled = list(node.inputs), list(node.spelled)
        if self.graph.opset < since:
            if node.op == "Slice" and "axes" not in attributes and isinstance(starts := attributes.get("starts"), tuple):
                attributes["axes"] = tuple(range(len(starts)))
            if node.op == "Pad" and "value" not in attributes:
                attributes["value"] = 0.0
            del inputs[1:], spelled[1:]
            for name, dtype in operands:
                given = attributes.pop(name, None)
                value = None if given is None else np.asarray(given, dtype).reshape(-1 if dtype == "int64" else ())
                inputs.append("" if value is None else self.constant(node, name, value))
                spelled.append(inputs[-1])
        if node.op == "Slice":
            self.plain_slice(node, inputs, spelled)
        shape = self.fixed(inputs[1]) if node.op == "Reshape" else None
        if shape is not None and shape.all():
            attributes.pop("allowzero", None)
        if node.op in _EXPLICIT:
            name, default = _EXPLICIT[node.op]
            attributes.setdefault(name, default(self.graph.opset))
        while inputs and not inputs[-1]:
            inputs.pop(), spelled.pop()
        return replace(node, inputs=tuple(inputs), spelled=tuple(spelled), attributes=attributes)

    def plain_slice(self, node: Node, inputs: list[str], spelled: list[str]) -> None:
        """Slice's bounds as int64, its axes written out, steps of 1 left out."""
        for place, label in ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps")):
            value = self.fixed(inputs[place]) if place < len(inputs) and inputs[place] else None
            if value is not None and value.dtype != np.int64:
                inputs[place] = spelled[place] = self.constant(node, label, value.astype(np.int64))
        starts = self.fixed(inputs[1]) if len(inputs) > 1 else None
        if starts is not None and (len(inputs) < 4 or not inputs[3]):
            axes = self.constant(node, "axes", np.arange(starts.size, dtype=np.int64))
            inputs[3:4], spelled[3:4] = [axes], [axes]
        steps = self.fixed(inputs[4]) if len(inputs) > 4 and inputs[4] else None
        if steps is not None and bool((steps == 1).all()):
            del inputs[4:], spelled[4:]

    def trim(self, node: Node) -> Node:
        """Without the attributes that equal the operator's default."""
        if not node.attributes:
            return node
        defaults = _defaults(node.op, self.graph.opset)
        explicit = _EXPLICIT.get(node.op, ("", None))[0]
        if node.op in _LIKE and node.attributes.get("dtype") == onnx.TensorProto.FLOAT and self.like_float32(node):
            node = replace(node, attributes={k: v for k, v in node.attributes.items() if k != "dtype"})
        kept = {k: v for k, v in sorted(node.attributes.items()) if k == explicit or k not in defaults or not _same(defaults[k], v)}
        if node.op in _WINDOWED and "auto_pad" not in kept:
            usual = {k for k, v in kept.items() if k in _EVERY_AXIS and isinstance(v, tuple) and set(v) == {_EVERY_AXIS[k]}}
            kept = {k: v for k, v in kept.items() if k not in usual}
        return replace(node, attributes=kept)

    def like_float32(self, node: Node) -> bool:
        """Whether the operand is float32: a type that is left out is the operand's."""
        value: str | None = node.inputs[0]
        while value is not None:
            dtype = self.declared(value)
            if dtype is not None:
                return dtype == np.float32
            maker = self.makers.get(value)
            if maker is None or maker.op not in _OF_ONE_TYPE:
                break
            known = [dtype for v in maker.inputs if (dtype := self.declared(v)) is not None]
            if known:
                return known[0] == np.float32
            value = next(iter(maker.inputs), None)
        inferred = self.graph.types.get(node.inputs[0])
        return inferred is not None and inferred.dtype == np.float32

    def declared(self, value: str) -> np.dtype[np.generic] | None:
        """The type of a constant or an input."""
        known = self.constants.get(value)
        if known is not None:
            return known.dtype
        return self.inputs[value].dtype if value in self.inputs else None

    @cached_property
    def makers(self) -> dict[str, Node]:
        return {value: node for node in self.graph.nodes for value in node.outputs}

    def keeps_everything(self, node: Node) -> bool:
        """A Slice of a graph input with fixed sizes that takes all of it. onnxruntime holds inputs to those sizes."""
        source = self.inputs.get(node.inputs[0])
        bounds = [self.fixed(v) for v in node.inputs[1:]]
        if source is None or len(bounds) != 3 or any(b is None for b in bounds):
            return False
        starts, ends, axes = (b.reshape(-1).tolist() for b in bounds if b is not None)
        if not len(starts) == len(ends) == len(axes):
            return False
        for start, end, axis in zip(starts, ends, axes, strict=True):
            if not -len(source.shape) <= axis < len(source.shape):
                return False
            size = source.shape[axis]
            if start != 0 or not (end == INT64_MAX or (isinstance(size, int) and end >= size)):
                return False
        return True


def _through(node: Node, indices: tuple[int, ...]) -> Node:
    return node if indices == node.through else replace(node, through=indices)


def _needed(nodes: list[Node], results: tuple[str, ...]) -> frozenset[int]:
    producer = {o: n for n in nodes for o in n.outputs if o}
    needed: set[int] = set()
    todo = [producer[r] for r in results if r in producer]
    while todo:
        node = todo.pop()
        if node.index not in needed:
            needed.add(node.index)
            todo += [producer[v] for v in node.inputs if v in producer]
    return frozenset(needed)


def _constant(node: Node) -> Array | None:
    """The value of a Constant node, or None for the kinds that are left alone (strings, sparse)."""
    for key, dtype in (("value_float", np.float32), ("value_int", np.int64), ("value_floats", np.float32), ("value_ints", np.int64)):
        if key in node.attributes:
            return np.asarray(node.attributes[key], dtype)
    value = node.attributes.get("value")
    return value if isinstance(value, np.ndarray) else None


@cache
def _defaults(op: str, opset: int) -> dict[str, Attribute]:
    try:
        schema = onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        return {}
    defaults: dict[str, Attribute] = {}
    for name, attribute in schema.attributes.items():
        if attribute.default_value.name:
            value = onnx.helper.get_attribute_value(attribute.default_value)
            defaults[name] = value.decode() if isinstance(value, bytes) else tuple(value) if isinstance(value, list) else value
    return defaults


def _same(a: Attribute, b: Attribute) -> bool:
    """Of one type and equal to the bit: 0.0 is not −0.0."""
    return not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray) and repr(a) == repr(b)
