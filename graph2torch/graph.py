"""Reads an ONNX file as untrusted input into `Graph`, a light index that the other stages work on.

What is checked here, before anything else touches the file: its size, that it is an ONNX model at all, that its names
are text, that external data lies inside the model's folder, that declared shapes fit the bytes that are there and
inputs are small enough to be tried, that every value has one producer, and that there are no cycles. Nothing is
executed and nothing is written.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import onnx
import onnx.defs
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from onnx import numpy_helper

from .errors import ModelError, UnsupportedGraph
from .files import MAX_BYTES, MAX_RANK, looks_like, read_file, where
from .functions import written_out
from .order import topological
from .text import one_line, printable, quoted

Array: TypeAlias = npt.NDArray[np.generic]
Attribute: TypeAlias = "int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Array"

MAX_NODES = 200_000  # a node takes 2 bytes in a file, here some 5 KB and 0.1 ms in all: a gigabyte and half a minute
MAX_NUMBERS = 2**28  # of an input or output at the largest batch that is tried: 2 GB while they are made up
TRIED_BATCH = 16  # what free sizes become at most when the graph is run
OPSETS = range(7, 24)
RANDOM = frozenset({"RandomNormalLike", "RandomUniformLike", "RandomNormal", "RandomUniform", "Multinomial", "Bernoulli"})
STANDARD = ("", "ai.onnx")
ELEMENT_TYPES: Mapping[int, np.dtype[np.generic]] = MappingProxyType(
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
        return f"node {quoted(self.name or self.outputs[0])} ({printable(self.op, 40)})"


def draws_random(node: Node) -> bool:
    """Whether it gives other numbers each time: a random operator, or a Dropout that may be told to drop."""
    return node.op in RANDOM or (node.op == "Dropout" and len(node.inputs) > 2)


def attribute_key(value: Attribute) -> object:
    """Equal for values of one type that are equal to the bit."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return repr(value)


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
    merged:      index of a node → indices of the file's other nodes that compute the same from the same
    types:       type and shape of each value that onnx's shape inference knows, computed when first asked for
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
    merged: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    types: Mapping[str, Inferred] = field(default_factory=dict, compare=False, repr=False)

    def names_of(self, spelled: str) -> tuple[str, ...]:
        """Every name the file gives to a value, from how an operand spells it to what it stands for."""
        names = [spelled]
        while names[-1] in self.aliases:
            names.append(self.aliases[names[-1]])
        return tuple(names)

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """value → the node that makes it."""
        return {value: node for node in self.nodes for value in node.outputs if value}

    @cached_property
    def readers(self) -> Mapping[str, Sequence[Node]]:
        """value → the nodes that read it, each once per operand."""
        return self.users()

    def users(self) -> dict[str, list[Node]]:
        """`readers`, made anew."""
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
        raise ModelError(
            f"{where(path)} is a PyTorch checkpoint or another archive, not an ONNX model; give the .onnx first, then the .pt."
        )
    try:
        proto = onnx.ModelProto.FromString(data)
    except (DecodeError, UnicodeDecodeError) as error:
        if like := looks_like(data):
            raise ModelError(f"{where(path)} is {like}, not an ONNX model; give the .onnx.") from None
        raise ModelError(
            f"{where(path)} is not an ONNX model, or it is truncated ({one_line(str(error), 80)}); export or download it again."
        ) from None
    if not proto.HasField("graph") or not (proto.graph.output and proto.ir_version and proto.opset_import):
        if like := looks_like(data):
            raise ModelError(f"{where(path)} is {like}, not an ONNX model; give the .onnx.")
        raise ModelError(f"{where(path)} is not an ONNX model: it has no graph with outputs and an opset; export or download it again.")
    check_counts(proto.graph, where(path))
    if not all(isinstance(text, str) for text in texts(proto)):  # protobuf gives bytes for what is not UTF-8
        raise ModelError(f"{where(path)} holds a name that is not text (UTF-8); the file is damaged, so export or download it again.")
    check_functions(proto, where(path))
    proto = written_out(proto, where(path), MAX_NODES)
    embed_external_data(proto, path, len(data))
    graph = read_graph(proto, where(path))
    del proto.functions[:]  # no node calls one any more
    outputs = tuple(o.name for o in graph.outputs)
    if len(outputs) != len(proto.graph.output):
        kept = [o for o in proto.graph.output if o.name in outputs]
        del proto.graph.output[:]
        proto.graph.output.extend(kept)
    return Model(path, hashlib.sha256(data).hexdigest(), len(data), proto, graph)


def check_functions(proto: onnx.ModelProto, name: str) -> None:
    for function in proto.functions:
        if function.domain in STANDARD:
            raise UnsupportedGraph(
                f"{name} brings its own {quoted(function.name)} in place of the standard operator; graph2torch knows the standard operators only."
            )


def check_counts(graph: onnx.GraphProto, name: str) -> None:
    """A file of a few megabytes can hold a million empty nodes, which would take gigabytes and minutes."""
    if len(graph.node) > MAX_NODES:
        raise UnsupportedGraph(f"{name} has {len(graph.node):,} nodes, more than the {MAX_NODES:,} that a graph may have here.")
    values = sum(map(len, (graph.input, graph.output, graph.initializer)))
    values += sum(len(n.input) + len(n.output) + len(n.attribute) for n in graph.node)
    if values > 5 * MAX_NODES:
        raise UnsupportedGraph(f"{name} names {values:,} tensors, more than the {5 * MAX_NODES:,} that a graph may have here.")


def texts(message: Message) -> Iterator[str | bytes]:
    """Every name and other text in `message` and what it holds."""
    for name, nested in _text_fields(message.DESCRIPTOR):
        value = getattr(message, name)
        if not nested:
            yield from (value,) if isinstance(value, (str, bytes)) else value
        elif not isinstance(value, Message):
            for item in value:
                yield from texts(item)
        elif message.HasField(name):
            yield from texts(value)


@cache
def _text_fields(descriptor: Descriptor) -> tuple[tuple[str, bool], ...]:
    """The fields that are text, or messages (True) that may hold some."""
    return tuple((f.name, f.type == f.TYPE_MESSAGE) for f in descriptor.fields if f.type in (f.TYPE_STRING, f.TYPE_MESSAGE))


# ---------------------------------------------------------------------------------------------- external data
def embed_external_data(proto: onnx.ModelProto, path: Path, size: int = 0) -> None:
    """Reads tensors kept outside the file into it. Only plain files inside the model's own folder are opened.

    size: of the file itself, which counts towards the limit
    """
    budget = MAX_BYTES - size
    tensors = list(proto.graph.initializer)
    tensors += [a.t for n in proto.graph.node for a in n.attribute if a.type == onnx.AttributeProto.TENSOR]
    for tensor in tensors:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {e.key: e.value for e in tensor.external_data}
        what = f"{where(path)}: tensor {quoted(tensor.name)} is kept in {quoted(entries.get('location', ''))}"
        try:
            target = _external_file(path, entries.get("location", ""), what)
            there = target.stat().st_size
            offset = _number(entries, "offset", 0, what)
            length = _number(entries, "length", there - offset, what)
            if length < 0 or offset + length > there:
                raise ModelError(f"{what}, which has fewer bytes than the model says; it is truncated or of another model.")
            budget -= length
            if budget < 0:
                raise ModelError(f"{where(path)} has more than {MAX_BYTES:,} bytes with its external data, which is the limit here.")
            with target.open("rb") as file:
                file.seek(offset)
                tensor.raw_data = file.read(length)
        except OSError as error:
            raise ModelError(
                f"{what}, which can't be read: {error.strerror or error}; check the file beside the .onnx and its permissions."
            ) from None
        tensor.ClearField("data_location")
        del tensor.external_data[:]


def _external_file(path: Path, location: str, what: str) -> Path:
    """The file at `location`, which must be a plain one inside the model's folder.

    A model that is a symbolic link has two folders, the link's and the file's own: download caches keep model and data
    side by side elsewhere and link both.
    """
    target = Path(location)
    if not location or "\0" in location or "\\" in location or target.is_absolute() or target.drive or ".." in target.parts:
        raise ModelError(f"{what}, which is not a path inside the model's folder; such a file is not opened.")
    try:
        folders = path.parent.resolve(), path.resolve().parent
        found = (folders[0] / target).resolve()
    except RuntimeError:  # Python up to 3.12, for links that lead in a circle
        raise ModelError(f"{what}, a symbolic link that leads in a circle; keep the data file itself beside the .onnx.") from None
    if not any(found.is_relative_to(folder) for folder in folders):
        raise ModelError(f"{what}, which leads outside the model's folder; such a file is not opened.")
    if not found.exists():
        raise ModelError(f"{what}, which is missing; keep the data file beside the .onnx, under its own name.")
    if not found.is_file():
        raise ModelError(f"{what}, which is not a plain file; such a file is not opened.")
    return found


def _number(entries: Mapping[str, str], key: str, default: int, what: str) -> int:
    text = entries.get(key)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelError(f"{what} with {printable(key)} {quoted(text)}, which is no number of bytes; export it again.")
    return int(text)


# ---------------------------------------------------------------------------------------------- proto → Graph
def read_graph(proto: onnx.ModelProto, name: str) -> Graph:
    """The graph of `proto`, validated: known element types, sizes that fit, one producer a value, no cycles."""
    graph = proto.graph
    opset = read_opset(proto, name)
    if graph.sparse_initializer:
        raise UnsupportedGraph(f"{name} has sparse initializers; graph2torch reads dense ones, so export it without.")
    check_functions(proto, name)

    constants = {}
    for tensor in graph.initializer:
        if not tensor.name:
            raise ModelError(f"{name}: an initializer has no name; export it again.")
        if tensor.name in constants:
            raise ModelError(f"{name}: two initializers are called {quoted(tensor.name)}; the graph is not valid.")
        constants[tensor.name] = read_tensor(tensor, f"{name}: initializer {quoted(tensor.name)}")
    declared = [v for v in graph.input if v.name not in constants]
    for value in declared:
        if value.type.WhichOneof("value") == "tensor_type" and not value.type.tensor_type.HasField("shape"):
            raise UnsupportedGraph(
                f"{name}: the input {quoted(value.name)} declares no shape, so it can't be tried out; export it with one."
            )
    inputs = tuple(read_value(v, name) for v in declared)
    overridable = frozenset(v.name for v in graph.input if v.name in constants) if proto.ir_version >= 4 else frozenset()

    known = set(constants)
    for info in inputs:
        if not info.name or info.name in known:
            raise ModelError(f"{name}: the input {quoted(info.name)} is declared twice or has no name; the graph is not valid.")
        known.add(info.name)
        check_size(info, f"{name}: the input {quoted(info.name)}")
    nodes = read_nodes(graph, name, opset)
    produced = set(known)
    for node in nodes:
        for output in node.outputs:
            if output and output in produced:
                raise ModelError(f"{name}: {node} produces {quoted(output)}, which something else produces too; the graph is not valid.")
            produced.add(output)
    for node in nodes:
        for operand in node.inputs:
            if operand and operand not in produced:
                raise ModelError(f"{name}: {node} reads {quoted(operand)}, which nothing produces; the graph is not valid.")
    ordered = sort_nodes(nodes, known, name)

    names = [o.name for o in graph.output]
    (twice, times), *_ = Counter(names).most_common(1)
    if times > 1:
        raise ModelError(f"{name}: two outputs are called {quoted(twice)}; the graph is not valid.")
    missing = dict.fromkeys(o for o in names if o not in produced or not o)
    warnings = tuple(f"the output {quoted(o)} is declared, but nothing produces it; it is left out" for o in missing)
    if len(missing) == len(names):
        raise ModelError(f"{name}: nothing produces its outputs ({', '.join(map(quoted, names[:5]))}); the graph is not valid.")
    outputs = tuple(read_value(v, name) for v in graph.output if v.name not in missing)
    for info in outputs:
        check_size(info, f"{name}: the output {quoted(info.name)}")
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
        types=InferredTypes(proto),
    )


@dataclass(frozen=True, slots=True)
class Inferred:
    """What is known of a value before the graph runs. `shape`: None if not even the number of its sizes is."""

    dtype: np.dtype[np.generic]
    shape: tuple[int | str | None, ...] | None


class InferredTypes(Mapping[str, Inferred]):
    """What onnx's shape inference tells of a graph's values; it runs when something is looked up.

    Long constants are left out of what it works on: their types are enough.
    """

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.proto = proto
        self.found: dict[str, Inferred] | None = None

    def values_by_name(self) -> dict[str, Inferred]:
        if self.found is None:
            try:
                inferred = onnx.shape_inference.infer_shapes(self.skeleton(), data_prop=True).graph
            except Exception:  # what it can't follow stays unknown
                inferred = self.proto.graph
            self.found = {}
            for value in (*inferred.value_info, *inferred.input, *inferred.output):
                tensor = value.type.tensor_type
                if tensor.elem_type in ELEMENT_TYPES:
                    sizes = (d.dim_value if d.WhichOneof("value") == "dim_value" else (d.dim_param or None) for d in tensor.shape.dim)
                    shape = tuple(sizes) if tensor.HasField("shape") else None
                    self.found[value.name] = Inferred(ELEMENT_TYPES[tensor.elem_type], shape)
        return self.found

    def skeleton(self) -> onnx.ModelProto:
        graph = self.proto.graph
        model = onnx.ModelProto(ir_version=self.proto.ir_version, opset_import=self.proto.opset_import)
        model.graph.name = "types"
        model.graph.node.extend(graph.node)
        model.graph.output.extend(graph.output)
        model.graph.value_info.extend(graph.value_info)
        model.graph.input.extend(graph.input)
        known = {i.name for i in graph.input}
        for tensor in graph.initializer:
            if int(np.prod(tensor.dims, dtype=np.int64)) <= 64:
                model.graph.initializer.append(tensor)
            if tensor.name not in known:
                model.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        return model

    def __getitem__(self, name: str) -> Inferred:
        return self.values_by_name()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name())

    def __len__(self) -> int:
        return len(self.values_by_name())


def read_opset(proto: onnx.ModelProto, name: str) -> int:
    """The version of the standard operators."""
    versions = {o.version for o in proto.opset_import if o.domain in STANDARD}
    if not versions:
        raise UnsupportedGraph(f"{name} doesn't say which opset of the standard operators it uses; export it again.")
    if len(versions) > 1:
        raise ModelError(f"{name} says that it uses opset {' and '.join(map(str, sorted(versions)[:5]))}; the graph is not valid.")
    opset: int = versions.pop()
    if opset not in OPSETS:
        raise UnsupportedGraph(
            f"{name} uses opset {opset}; graph2torch reads opset {OPSETS[0]} to {OPSETS[-1]}, so export it at one of those."
        )
    return opset


def check_size(value: ValueInfo, what: str) -> None:
    """Verification runs the graph on made-up inputs, so a declared size must not exhaust the memory."""
    if len(value.shape) > MAX_RANK or math.prod(d if isinstance(d, int) else TRIED_BATCH for d in value.shape) > MAX_NUMBERS:
        shown = value.size if len(value.shape) <= MAX_RANK else f"{len(value.shape):,} dimensions"
        raise UnsupportedGraph(
            f"{what} declares {shown}, which is larger than anything that graph2torch tries out; a policy's are smaller."
        )


def read_value(value: onnx.ValueInfoProto, name: str) -> ValueInfo:
    what = f"{name}: {quoted(value.name)}"
    if value.type.WhichOneof("value") != "tensor_type":
        raise UnsupportedGraph(f"{what} is not a tensor; graph2torch reads policies whose inputs and outputs are tensors.")
    tensor = value.type.tensor_type
    if tensor.elem_type not in ELEMENT_TYPES:
        raise UnsupportedGraph(
            f"{what} has the element type {tensor.elem_type}, which graph2torch doesn't know (numbers and booleans are)."
        )
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
        raise UnsupportedGraph(
            f"{what} has the element type {tensor.data_type}, which graph2torch doesn't know (numbers and booleans are)."
        )
    shape = f"[{', '.join(map(str, tensor.dims[:8]))}{', …' if len(tensor.dims) > 8 else ''}]"
    count = 1
    for size in tensor.dims:
        count *= size
        if size < 0 or count * dtype.itemsize > MAX_BYTES or len(tensor.dims) > MAX_RANK:
            raise ModelError(
                f"{what} declares the shape {shape}, which is not possible or over {MAX_BYTES:,} bytes; the graph is not valid."
            )
    if tensor.HasField("raw_data"):
        given, there = count * dtype.itemsize, len(tensor.raw_data)
    else:
        fields = (tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data, tensor.uint64_data)
        given, there = count, max(map(len, fields))
    if given != there:
        raise ModelError(
            f"{what} declares the shape {shape} but holds {there:,} {'bytes' if tensor.HasField('raw_data') else 'values'} of {given:,}; the file is damaged."
        )
    try:
        array = numpy_helper.to_array(tensor)
    except Exception as error:  # onnx raises several kinds
        raise ModelError(f"{what} can't be read ({one_line(str(error), 100)}); the file is damaged.") from None
    array = np.ascontiguousarray(array, dtype=dtype).reshape(array.shape)
    array.setflags(write=False)
    return array


def check_memory(proto: onnx.ModelProto, name: str, batch: int = TRIED_BATCH) -> None:
    """UnsupportedGraph if a value inside would be too large to try at this batch, as far as sizes can be known.

    What a graph makes of small inputs may be endless (forty Concats of a value with itself).
    """
    model = InferredTypes(proto).skeleton()
    del model.graph.value_info[:]
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.WhichOneof("value") != "dim_value":
                dim.dim_value = batch
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception:  # what it can't follow is left to onnxruntime
        return
    for value in (*inferred.value_info, *inferred.output):
        sizes = [d.dim_value if d.WhichOneof("value") == "dim_value" else 1 for d in value.type.tensor_type.shape.dim]
        if all(size >= 0 for size in sizes) and math.prod(sizes) > MAX_NUMBERS:
            raise UnsupportedGraph(
                f"{name}: the value {quoted(value.name)} would have {math.prod(sizes):,} numbers for {batch} agents, "
                f"more than the {MAX_NUMBERS:,} that are tried here; a policy's have fewer."
            )


def read_nodes(graph: onnx.GraphProto, name: str, opset: int) -> tuple[Node, ...]:
    """The nodes of `graph`. UnsupportedGraph lists all of them that are outside this package's reach, not the first one only."""
    nodes: list[Node] = []
    faults: list[str] = []
    for index, node in enumerate(graph.node):
        try:
            nodes.append(read_node(index, node, name, opset))
        except UnsupportedGraph as fault:  # noqa: PERF203 (all of them are wanted)
            faults.append(str(fault))
    if faults:
        more = f" And {len(faults) - 8} more nodes of these kinds." if len(faults) > 8 else ""
        raise UnsupportedGraph(" ".join(f"{fault.rstrip('.')}." for fault in faults[:8]) + more)
    return tuple(nodes)


@dataclass(frozen=True, slots=True)
class _Shown:
    """A node, or an attribute of it, as an error names it; written out only if there is one."""

    name: str
    index: int
    node: onnx.NodeProto
    attribute: str | None = None

    def __str__(self) -> str:
        node = f"{self.name}: node {quoted(self.node.name or f'number {self.index}')} ({printable(self.node.op_type, 40)})"
        return node if self.attribute is None else f"{node}, attribute {quoted(self.attribute)}"


def read_node(index: int, node: onnx.NodeProto, name: str, opset: int) -> Node:
    shown = _Shown(name, index, node)
    if node.domain not in STANDARD:
        raise UnsupportedGraph(f"{shown} is of the domain {quoted(node.domain)}; graph2torch knows the standard operators only.")
    if not any(node.output):
        raise ModelError(f"{shown} produces nothing; the graph is not valid.")
    attributes: dict[str, Attribute] = {}
    for attribute in node.attribute:
        if attribute.ref_attr_name or attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            raise UnsupportedGraph(
                f"{shown} holds a subgraph or a function's attribute; graph2torch reads flat graphs, so export it without control flow."
            )
        if attribute.name in attributes:
            raise ModelError(f"{shown} has the attribute {quoted(attribute.name)} twice; the graph is not valid.")
        attributes[attribute.name] = read_attribute(attribute, _Shown(name, index, node, attribute.name))
    check_node(node, opset, shown)
    return Node(index, node.op_type, node.name, tuple(node.input), tuple(node.output), attributes, tuple(node.input))


def check_node(node: onnx.NodeProto, opset: int, shown: _Shown) -> None:
    """The operands, outputs and attributes that the operator has by its definition. Rules rely on it: an axis is an int."""
    operator = _operator(node.op_type, opset)
    if operator is None:  # no such operator: no rule explains it
        return
    for what, names, (least, most, needed) in (("operands", node.input, operator.inputs), ("outputs", node.output, operator.outputs)):
        if not least <= len(names) <= most or any(not names[i] for i in needed if i < len(names)):
            raise ModelError(f"{shown} has {sum(map(bool, names)):,} {what}, which its operator doesn't allow; the graph is not valid.")
    for attribute in node.attribute:
        if operator.attributes.get(attribute.name) != attribute.type:
            raise ModelError(
                f"{shown} has an attribute {quoted(attribute.name)} that its operator doesn't have in opset {opset}, or not of this type; "
                f"the graph is not valid."
            )
    if node.op_type == "Constant" and len(node.attribute) != 1:
        raise ModelError(f"{shown} has {len(node.attribute)} values; the graph is not valid.")
    given = {a.name: a.f for a in node.attribute}
    # onnxruntime would end the process
    if (node.op_type.startswith("RandomNormal") and not given.get("scale", 1.0) > 0) or (
        node.op_type.startswith("RandomUniform") and not given.get("low", 0.0) <= given.get("high", 1.0)
    ):
        raise ModelError(f"{shown} draws from a distribution that doesn't exist (of no width, or a negative one); the graph is not valid.")
    equation = next((a.s.decode("utf-8", "replace") for a in node.attribute if a.name == "equation"), None)
    if equation is not None and (not _EQUATION.fullmatch(equation) or equation.partition("->")[0].count(",") + 1 != len(node.input)):
        # onnx's and onnxruntime's inference of sizes doesn't come to an end for some of those that are wrong
        raise ModelError(f"{shown} has the equation {quoted(equation)} for {len(node.input)} operands; the graph is not valid.")
    missing = [a for a in operator.required if a not in {a.name for a in node.attribute}]
    if missing:
        raise ModelError(f"{shown} lacks the attribute {quoted(missing[0])}; the graph is not valid.")


_TERM = r"[A-Za-z ]*(?:\.\.\.[A-Za-z ]*)?"
_EQUATION = re.compile(f"{_TERM}(?:,{_TERM})*(?:->{_TERM})?")


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator's definition: how few and how many operands, and which of them must be there; outputs likewise; attributes → types."""

    inputs: tuple[int, int, tuple[int, ...]]
    outputs: tuple[int, int, tuple[int, ...]]
    attributes: Mapping[str, int]
    required: tuple[str, ...]


@cache
def _operator(op: str, opset: int) -> _Operator | None:
    try:
        schema = onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        return None
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    needed = [tuple(i for i, p in enumerate(parameters) if p.option == single) for parameters in (schema.inputs, schema.outputs)]
    return _Operator(
        (schema.min_input, schema.max_input, needed[0]),
        (schema.min_output, schema.max_output, needed[1]),
        {name: cast(Any, a.type).value for name, a in schema.attributes.items()},
        tuple(name for name, a in schema.attributes.items() if a.required),
    )


def read_attribute(attribute: onnx.AttributeProto, what: str | _Shown) -> Attribute:
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
        return read_tensor(attribute.t, str(what))
    raise UnsupportedGraph(f"{what} is of a kind that graph2torch doesn't know.")


def sort_nodes(nodes: tuple[Node, ...], known: Iterable[str], name: str) -> tuple[Node, ...]:
    """The nodes in topological order, in the file's order wherever that is one already. ModelError for a cycle."""
    producer = {output: i for i, node in enumerate(nodes) for output in node.outputs if output}
    before = [{producer[v] for v in node.inputs if v in producer} for node in nodes]
    order = topological(before, range(len(nodes)))
    if len(order) < len(nodes):
        done = set(order)
        at, seen = next(i for i in range(len(nodes)) if i not in done), set[int]()
        while at not in seen:  # up the stream, among nodes that wait, ends in the cycle itself
            seen.add(at)
            at = next(source for v in nodes[at].inputs if v in producer and (source := producer[v]) not in done)
        raise ModelError(f"{name}: {nodes[at]} depends on its own output; a policy's graph has no cycles.")
    return tuple(nodes[i] for i in order)
