"""A model's local functions, written out where they are called: what follows reads flat graphs.

ONNX defines the meaning of a call as that of the function's nodes in its place, and onnxruntime runs it so. torch's dynamo
exporter writes such functions, and so does `lifted.onnx`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx

from .errors import ModelError, UnsupportedGraph
from .files import MAX_BYTES
from .text import one_line, printable, quoted

MAX_DEPTH = 64  # calls within calls; exporters nest a handful
_Key = tuple[str, str, str]  # domain, name, overload


def written_out(proto: onnx.ModelProto, name: str, most: int) -> onnx.ModelProto:
    """`proto` without calls of local functions; the same object if there are none.

    most: nodes that may come of it

    Raises ModelError for functions that call themselves, are defined twice, read what is not theirs, or are called with operands
    that they don't have, and UnsupportedGraph for more than `most` nodes or MAX_BYTES bytes, before anything is written out.
    """
    if not proto.functions:
        return proto
    functions = {_defined(f): f for f in proto.functions}
    if len(functions) < len(proto.functions):
        raise ModelError(f"{name} defines a local function twice; the graph is not valid.")
    if not any(_called(node) in functions for node in _nodes(proto.graph.node)):
        return proto
    size = _Sizes(functions, name).of(proto.graph.node, 0)
    if size.nodes > most or size.bytes > MAX_BYTES:
        raise UnsupportedGraph(
            f"{name} has {size.nodes:,} nodes in {size.bytes:,} bytes once its local functions are written out, more than the {most:,} "
            f"and {MAX_BYTES:,} that a graph may have here."
        )
    try:
        from onnx.inliner import inline_local_functions

        flat = inline_local_functions(proto)
    except Exception as error:  # of C++, many kinds
        raise UnsupportedGraph(
            f"{name} has local functions that onnx can't write out ({one_line(str(error), 200)}); export it without functions."
        ) from None
    return flat


@dataclass(frozen=True, slots=True)
class _Size:
    nodes: int
    bytes: int


class _Sizes:
    """How large calls are once they are written out."""

    def __init__(self, functions: Mapping[_Key, onnx.FunctionProto], name: str) -> None:
        self.functions, self.name = functions, name
        self.known: dict[_Key, _Size] = {}
        self.open: set[_Key] = set()

    def of(self, nodes: Iterable[onnx.NodeProto], depth: int) -> _Size:
        count = size = 0
        for node in _nodes(nodes):
            function = self.functions.get(_called(node))
            found = self.call(node, function, depth) if function is not None else _Size(1, node.ByteSize())
            count, size = count + found.nodes, size + found.bytes
        return _Size(count, size)

    def call(self, node: onnx.NodeProto, function: onnx.FunctionProto, depth: int) -> _Size:
        key = _defined(function)
        what = f"{self.name}: local function {quoted(function.name)}"
        if key in self.open:
            raise ModelError(f"{what} calls itself; the graph is not valid.")
        if depth >= MAX_DEPTH:
            raise UnsupportedGraph(f"{what} is called within more than {MAX_DEPTH} calls; export it without functions.")
        if len(node.input) > len(function.input) or len(node.output) > len(function.output):
            raise ModelError(
                f"{what} has {len(function.input)} operands and {len(function.output)} outputs, and node "
                f"{printable(node.name, 80) or 'without a name'} calls it with {len(node.input)} and {len(node.output)}; the graph is not valid."
            )
        if key not in self.known:
            if (unbound := _unbound(function.node, set(function.input))) is not None:
                raise ModelError(f"{what} reads {quoted(unbound)}, which is neither its operand nor made before; the graph is not valid.")
            self.open.add(key)
            self.known[key] = self.of(function.node, depth + 1)
            self.open.remove(key)
        return self.known[key]


def _defined(function: onnx.FunctionProto) -> _Key:
    return function.domain, function.name, getattr(function, "overload", "")  # onnx 1.15 knows no overloads


def _called(node: onnx.NodeProto) -> _Key:
    return node.domain, node.op_type, getattr(node, "overload", "")


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """`nodes` and those of their subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


def _unbound(nodes: Iterable[onnx.NodeProto], known: set[str]) -> str | None:
    """The first value that is read without being there: written out, it would be any value of that name around the call.

    `known` is as before once all of `nodes` are looked at.
    """
    made: set[str] = set()
    for node in nodes:
        missing: str | None = next((value for value in node.input if value and value not in known), None)
        if missing is not None:
            return missing
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                own = {v.name for values in (graph.input, graph.initializer) for v in values} - known
                known |= own
                if (missing := _unbound(graph.node, known)) is not None:
                    return missing
                known -= own
        made |= set(node.output) - known
        known.update(node.output)
    known -= made
    return None
