"""Reads an ONNX file as untrusted input into `Graph`, a light index that the other stages work on.

What is checked here, before anything else touches the file: its size, that it is an ONNX model at all, that external
data lies inside the model's folder, that declared shapes fit the bytes that are there, that every value has one
producer, and that there are no cycles. Nothing is executed and nothing is written.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from .errors import ModelError, UnsupportedGraph
from .text import one_line, printable, quoted

Array: TypeAlias = npt.NDArray[np.generic]
Attribute: TypeAlias = "int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Array"

MAX_BYTES = 2**31 - 1  # protobuf's own limit; external data counts too
OPSETS = range(7, 24)
ELEMENT_TYPES = MappingProxyType(
    {
        onnx.TensorProto.FLOAT: np.dtype(np.float32),
        onnx.TensorProto.DOUBLE: np.dtype(np.float64),
        onnx.TensorProto.FLOAT16: np.dtype(np.float16),
        onnx.TensorProto.INT8: np.dtype(np.int8),
        onnx.TensorProto.INT16: np.dtype(np.int16),
        onnx.TensorProto.INT32: np.dtype(np.int32),
        onnx.TensorProto.INT64: np.dtype(np.int64),
        onnx.TensorProto.UINT8: np.dtype(np.uint8),
        onnx.TensorProto.UINT16: np.dtype(np.uint16),
        onnx.TensorProto.UINT32: np.dtype(np.uint32),
        onnx.TensorProto.UINT64: np.dtype(np.uint64),
        onnx.TensorProto.BOOL: np.dtype(np.bool_),
    }
)


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """An input or output as the file declares it. `shape`: int for a fixed size, str or None for a free one."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int | str | None, ...]

    @property
    def size(self) -> str:
        """`[batch, 59]`, for people."""
        return "[" + ", ".join("?" if d is None else printable(str(d), 40) for d in self.shape) + "]"


@dataclass(frozen=True, slots=True)
class Node:
    """One operator.

    index:      its place among the file's nodes
    inputs:     the values it reads ("" where an optional operand is left out)
    attributes: those that differ from the operator's defaults
    spelled:    the inputs as the file spells them, before Identity and the like were looked through
    through:    indices of the file's nodes that were looked through to reach the operands (Constant, Identity, …)
    """

    index: int
    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    spelled: tuple[str, ...] = ()
    through: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"node {quoted(self.name or self.outputs[0])} ({self.op})"


@dataclass(frozen=True, slots=True)
class FileNode:
    """A node as it stands in the file, for counting and naming only."""

    name: str
    op: str


@dataclass(frozen=True)
class Graph:
    """An ONNX graph: nodes in topological order, constants by name, and what the file says about itself.

    results:     for each output, the value behind it
    overridable: constants that are graph inputs too, so that a caller may replace them (IR 4 and later)
    aliases:     name → the name it stands for, one step (Identity and the like, after canonicalisation)
    through:     result → file's nodes looked through to reach it
    dead:        indices of the file's nodes that no output needs
    """

    name: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    results: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Array]
    file_nodes: tuple[FileNode, ...]
    opset: int
    ir_version: int
    producer: str
    overridable: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    through: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dead: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()

    def names_of(self, spelled: str) -> tuple[str, ...]:
        """Every name the file gives to a value, from how an operand spells it to what it stands for."""
        names = [spelled]
        while names[-1] in self.aliases:
            names.append(self.aliases[names[-1]])
        return tuple(names)

    def users(self) -> dict[str, list[Node]]:
        """value → the nodes that read it, each once per operand."""
        users: dict[str, list[Node]] = {}
        for node in self.nodes:
            for value in node.inputs:
                if value:
                    users.setdefault(value, []).append(node)
        return users


@dataclass(frozen=True)
class Model:
    """A file that was read: the proto with external data embedded, for onnxruntime, and the graph of it."""

    path: Path
    sha256: str
    size: int
    proto: onnx.ModelProto
    graph: Graph


def load(path: str | Path) -> Model:
    """Reads `path` as an ONNX model.

    Raises ModelError for what isn't a valid model (not a file, a Git LFS pointer, truncated, cyclic, external data
    outside its folder, sizes that don't fit …) and UnsupportedGraph for what is valid but outside this package's reach.
    """
    path = Path(path)
    data = read_file(path, "an ONNX model", ModelError)
    if data[:2] == b"PK" or data[:1] == b"\x80":
        raise ModelError(f"{where(path)} is a PyTorch checkpoint or another archive, not an ONNX model; give the .onnx first, then the .pt.")
    try:
        proto = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise ModelError(f"{where(path)} is not an ONNX model, or it is truncated ({one_line(str(error), 80)}); export or download it again.") from None
    if not proto.HasField("graph") or not (proto.graph.output and proto.ir_version and proto.opset_import):
        raise ModelError(f"{where(path)} is not an ONNX model: it has no graph with outputs and an opset; export or download it again.")
    embed_external_data(proto, path)
    graph = read_graph(proto, where(path))
    outputs = tuple(o.name for o in graph.outputs)
    if len(outputs) != len(proto.graph.output):
        kept = [o for o in proto.graph.output if o.name in outputs]
        del proto.graph.output[:]
        proto.graph.output.extend(kept)
    return Model(path, hashlib.sha256(data).hexdigest(), len(data), proto, graph)


def where(path: Path) -> str:
    """The file's name, safe to print."""
    return printable(path.name or str(path))


def read_file(path: Path, what: str, error: type[ModelError] | type[Exception]) -> bytes:
    """The bytes of `path`, after the checks that any input file gets."""
    name = where(path)
    try:
        if path.is_dir():
            raise error(f"{name} is a folder, not {what}; give the file itself.")
        if not path.exists():
            raise error(f"{name} does not exist; check the path {quoted(str(path))}.")
        if not path.is_file():
            raise error(f"{name} is not a regular file; give {what}.")
        size = path.stat().st_size
        if size == 0:
            raise error(f"{name} is empty; export or download it again.")
        if size > MAX_BYTES:
            raise error(f"{name} has {size:,} bytes, more than the {MAX_BYTES:,} that {what} may have here.")
        data = path.read_bytes()
    except OSError as problem:
        raise error(f"{name} can't be read: {problem.strerror or problem}; check the path and its permissions.") from None
    except ValueError as problem:  # an embedded null byte
        raise error(f"{name} is no usable path: {problem}.") from None
    if data.startswith(b"version https://git-lfs"):
        raise error(f"{name} is a Git LFS pointer ({len(data)} bytes), not {what}; fetch the real file with `git lfs pull`.")
    return data


# ---------------------------------------------------------------------------------------------- external data
def embed_external_data(proto: onnx.ModelProto, path: Path) -> None:
    """Reads tensors kept outside the file into it. Only plain files inside the model's own folder are opened."""
    folder = path.resolve().parent
    budget = MAX_BYTES
    tensors = list(proto.graph.initializer)
    tensors += [a.t for n in proto.graph.node for a in n.attribute if a.type == onnx.AttributeProto.TENSOR]
    for tensor in tensors:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")
        what = f"{where(path)}: tensor {quoted(tensor.name)} is kept in {quoted(location)}"
        target = Path(location)
        if not location or "\0" in location or target.is_absolute() or ".." in target.parts or "\\" in location:
            raise ModelError(f"{what}, which is not a path inside the model's folder; such a file is not opened.")
        resolved = (folder / target).resolve()
        if not resolved.is_relative_to(folder):
            raise ModelError(f"{what}, which leads outside the model's folder; such a file is not opened.")
        if not resolved.is_file():
            raise ModelError(f"{what}, which is missing; keep the data file beside the .onnx, under its own name.")
        try:
            offset = int(entries.get("offset") or 0)
            length = int(entries["length"]) if entries.get("length") else resolved.stat().st_size - offset
        except ValueError:
            raise ModelError(f"{what} with an offset or length that is no number; export it again.") from None
        if offset < 0 or length < 0 or offset + length > resolved.stat().st_size:
            raise ModelError(f"{what}, which has fewer bytes than the model says; it is truncated or of another model.")
        budget -= length
        if budget < 0:
            raise ModelError(f"{where(path)} has more than {MAX_BYTES:,} bytes of external data, which is the limit here.")
        with resolved.open("rb") as file:
            file.seek(offset)
            tensor.raw_data = file.read(length)
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


# ---------------------------------------------------------------------------------------------- proto → Graph
def read_graph(proto: onnx.ModelProto, name: str) -> Graph:
    """The graph of `proto`, validated: known element types, sizes that fit, one producer a value, no cycles."""
    graph = proto.graph
    versions = {o.domain: o.version for o in proto.opset_import}
    opset = versions.get("", versions.get("ai.onnx", 0))
    if opset not in OPSETS:
        raise UnsupportedGraph(f"{name} uses opset {opset}; graph2torch reads opset {OPSETS[0]} to {OPSETS[-1]}, so export it at one of those.")
    if graph.sparse_initializer:
        raise UnsupportedGraph(f"{name} has sparse initializers; graph2torch reads dense ones, so export it without.")

    constants = {}
    for tensor in graph.initializer:
        if not tensor.name:
            raise ModelError(f"{name}: an initializer has no name; export it again.")
        if tensor.name in constants:
            raise ModelError(f"{name}: two initializers are called {quoted(tensor.name)}; the graph is not valid.")
        constants[tensor.name] = read_tensor(tensor, f"{name}: initializer {quoted(tensor.name)}")
    inputs = tuple(read_value(v, name) for v in graph.input if v.name not in constants)
    overridable = frozenset(v.name for v in graph.input if v.name in constants) if proto.ir_version >= 4 else frozenset()

    known = set(constants)
    for value in inputs:
        if not value.name or value.name in known:
            raise ModelError(f"{name}: the input {quoted(value.name)} is declared twice or has no name; the graph is not valid.")
        known.add(value.name)
    nodes = tuple(read_node(i, node, name) for i, node in enumerate(graph.node))
    produced = set(known)
    for node in nodes:
        for output in node.outputs:
            if output and output in produced:
                raise ModelError(f"{name}: {node} produces {quoted(output)}, which something else produces too; the graph is not valid.")
            produced.add(output)
    for node in nodes:
        for value in node.inputs:
            if value and value not in produced:
                raise ModelError(f"{name}: {node} reads {quoted(value)}, which nothing produces; the graph is not valid.")
    ordered = sort_nodes(nodes, known, name)

    declared = [o.name for o in graph.output]
    if len(set(declared)) != len(declared):
        raise ModelError(f"{name}: two outputs have the same name; the graph is not valid.")
    missing = [o for o in declared if o not in produced or not o]
    warnings = tuple(f"the output {quoted(o)} is declared, but nothing produces it; it is left out" for o in missing)
    if len(missing) == len(declared):
        raise ModelError(f"{name}: nothing produces its outputs ({', '.join(map(quoted, missing[:5]))}); the graph is not valid.")
    outputs = tuple(read_value(v, name) for v in graph.output if v.name not in missing)
    return Graph(
        name=graph.name,
        inputs=inputs,
        outputs=outputs,
        results=tuple(o.name for o in outputs),
        nodes=ordered,
        constants=constants,
        file_nodes=tuple(FileNode(n.name, n.op_type) for n in graph.node),
        opset=opset,
        ir_version=proto.ir_version,
        producer=f"{proto.producer_name} {proto.producer_version}".strip(),
        overridable=overridable,
        warnings=warnings,
    )


def read_value(value: onnx.ValueInfoProto, name: str) -> ValueInfo:
    what = f"{name}: {quoted(value.name)}"
    if value.type.WhichOneof("value") != "tensor_type":
        raise UnsupportedGraph(f"{what} is not a tensor; graph2torch reads policies whose inputs and outputs are tensors.")
    tensor = value.type.tensor_type
    if tensor.elem_type not in ELEMENT_TYPES:
        raise UnsupportedGraph(f"{what} has the element type {tensor.elem_type}, which graph2torch doesn't know (numbers and booleans are).")
    shape: list[int | str | None] = []
    for dim in tensor.shape.dim:
        kind = dim.WhichOneof("value")
        if kind == "dim_value" and dim.dim_value < 0:
            raise ModelError(f"{what} has a size of {dim.dim_value}; the graph is not valid.")
        shape.append(dim.dim_value if kind == "dim_value" else (dim.dim_param or None))
    return ValueInfo(value.name, ELEMENT_TYPES[tensor.elem_type], tuple(shape))


def read_tensor(tensor: onnx.TensorProto, what: str) -> Array:
    """The tensor's values, read-only, after its declared size was held against the bytes that are there."""
    dtype = ELEMENT_TYPES.get(tensor.data_type)
    if dtype is None:
        raise UnsupportedGraph(f"{what} has the element type {tensor.data_type}, which graph2torch doesn't know (numbers and booleans are).")
    count = 1
    for size in tensor.dims:
        count *= size
        if size < 0 or count * dtype.itemsize > MAX_BYTES:
            raise ModelError(f"{what} declares the shape {list(tensor.dims)}, which is not possible or over {MAX_BYTES:,} bytes; the graph is not valid.")
    if tensor.HasField("raw_data"):
        given, there = count * dtype.itemsize, len(tensor.raw_data)
    else:
        fields = (tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data, tensor.uint64_data)
        given, there = count, max(map(len, fields))
    if given != there:
        raise ModelError(f"{what} declares the shape {list(tensor.dims)} but holds {there:,} {'bytes' if tensor.HasField('raw_data') else 'values'} of {given:,}; the file is damaged.")
    try:
        array = numpy_helper.to_array(tensor)
    except Exception as error:  # onnx raises several kinds
        raise ModelError(f"{what} can't be read ({one_line(str(error), 100)}); the file is damaged.") from None
    array = np.ascontiguousarray(array, dtype=dtype).reshape(array.shape)
    array.setflags(write=False)
    return array


def read_node(index: int, node: onnx.NodeProto, name: str) -> Node:
    shown = f"{name}: node {quoted(node.name or f'number {index}')} ({printable(node.op_type, 40)})"
    if node.domain not in ("", "ai.onnx"):
        raise UnsupportedGraph(f"{shown} is of the domain {quoted(node.domain)}; graph2torch knows the standard operators only.")
    if not any(node.output):
        raise ModelError(f"{shown} produces nothing; the graph is not valid.")
    attributes = {}
    for attribute in node.attribute:
        if attribute.ref_attr_name or attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            raise UnsupportedGraph(f"{shown} holds a subgraph or a function's attribute; graph2torch reads flat graphs, so export it without control flow.")
        attributes[attribute.name] = read_attribute(attribute, f"{shown}, attribute {quoted(attribute.name)}")
    return Node(index, node.op_type, node.name, tuple(node.input), tuple(node.output), attributes, tuple(node.input))


def read_attribute(attribute: onnx.AttributeProto, what: str) -> Attribute:
    kind = onnx.AttributeProto
    if attribute.type == kind.INT:
        return int(attribute.i)
    if attribute.type == kind.FLOAT:
        return float(attribute.f)
    if attribute.type == kind.STRING:
        return attribute.s.decode("utf-8", "replace")
    if attribute.type == kind.INTS:
        return tuple(attribute.ints)
    if attribute.type == kind.FLOATS:
        return tuple(attribute.floats)
    if attribute.type == kind.STRINGS:
        return tuple(s.decode("utf-8", "replace") for s in attribute.strings)
    if attribute.type == kind.TENSOR:
        return read_tensor(attribute.t, what)
    raise UnsupportedGraph(f"{what} is of a kind that graph2torch doesn't know.")


def sort_nodes(nodes: tuple[Node, ...], known: Iterable[str], name: str) -> tuple[Node, ...]:
    """The nodes in topological order, in the file's order wherever that is one already. ModelError for a cycle."""
    producer = {output: i for i, node in enumerate(nodes) for output in node.outputs if output}
    waiting: list[int] = [len({producer[v] for v in node.inputs if v in producer}) for node in nodes]
    readers: dict[int, list[int]] = {}
    for i, node in enumerate(nodes):
        for source in {producer[v] for v in node.inputs if v in producer}:
            readers.setdefault(source, []).append(i)
    ready = [i for i, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        current = heapq.heappop(ready)
        order.append(current)
        for reader in readers.get(current, ()):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        stuck = next(node for i, node in enumerate(nodes) if waiting[i])
        raise ModelError(f"{name}: {stuck} depends on its own output; a policy's graph has no cycles.")
    return tuple(nodes[i] for i in order)


def with_constants(graph: Graph, constants: Mapping[str, Array]) -> Graph:
    """The same graph with other values for some of its constants."""
    return replace(graph, constants={**graph.constants, **constants})
