"""Edits that fit an ONNX graph to a target: outputs left out, a fixed batch, layers in half precision.

All work on copies. That nothing else changes is not taken for granted: `target` compares the result with the original.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graph2torch.errors import TargetError
from graph2torch.graph import Array, Graph, read_graph
from graph2torch.judge.randomness import needed_nodes
from graph2torch.text import quoted

from .prune import pruned

# In half precision: layers that have weights, and what stands between them without widening the range of its operands.
LAYERS = frozenset({"Gemm", "MatMul", "Conv"})
BETWEEN = frozenset({"Sigmoid", "Tanh", "Relu", "LeakyRelu", "Elu", "Mul", "Add", "Reshape", "Transpose", "Flatten"})
HALF = "/half"  # added to the names of what is converted


def restricted(proto: onnx.ModelProto, kept: Collection[str], batch: int | None = None) -> onnx.ModelProto:
    """A copy with the outputs `kept` alone and what they need, for `batch` agents if given.

    Inputs and constants that only the others needed are gone; inputs that no output needed stay, since callers feed them.
    TargetError if an input is fixed to another batch.
    """
    copy = pruned(proto, [o.name for o in proto.graph.output if o.name in kept])
    graph, before, needed = copy.graph, _read(proto), _read(copy)
    for index in reversed([i for i, v in enumerate(graph.input) if v.name in before and v.name not in needed]):
        del graph.input[index]
    del graph.value_info[:]  # sizes in it may no longer be so
    if batch is not None:
        _fix_batch(graph, batch)
    return copy


def _read(proto: onnx.ModelProto) -> set[str]:
    """The values that some output needs, outputs included."""
    return {o.name for o in proto.graph.output}.union(*(node.input for node in needed_nodes(proto)))


def _fix_batch(graph: onnx.GraphProto, batch: int) -> None:
    """The first size of every input, and of every output that has a free one, is `batch`."""
    constants = {t.name for t in graph.initializer}
    for value in graph.input:
        sizes = value.type.tensor_type.shape.dim
        if value.name in constants or not sizes:
            continue
        if sizes[0].HasField("dim_value") and sizes[0].dim_value != batch:
            raise TargetError(
                f"The input {quoted(value.name)} is fixed to {sizes[0].dim_value} agents in the original, so it can't be fixed to {batch}; "
                "leave --batch out."
            )
        sizes[0].dim_value = batch
    for value in graph.output:
        sizes = value.type.tensor_type.shape.dim
        if sizes and not sizes[0].HasField("dim_value"):
            sizes[0].dim_value = batch


def halved(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, int]:
    """A copy whose layers compute in float16, and how many nodes do.

    Gemm, MatMul and Conv with their weights, and the activations between them. What comes before the first layer (the
    normaliser) stays float32, and so do recurrent layers, softmax and the actions, where rounding adds up or decides;
    constants beyond what float16 holds keep their node as it was. Inputs and outputs stay float32.
    """
    copy: onnx.ModelProto = onnx.ModelProto.FromString(proto.SerializeToString())
    graph = read_graph(copy, "the export")
    len(graph.types)  # inferred now, since `copy` is changed below
    constants = dict(graph.constants)
    constants |= {n.outputs[0]: v for n in graph.nodes if n.op == "Constant" and isinstance(v := n.attributes.get("value"), np.ndarray)}
    half: set[str] = set()
    chosen: set[int] = set()
    for node in graph.nodes:  # in topological order
        floats = [v for v in node.inputs if v and _is_float(v, constants, graph)]
        moving = [v for v in floats if v not in constants]
        fits = all(_fits(constants[v]) for v in floats if v in constants)
        joined = node.op in BETWEEN and moving and half.issuperset(moving)
        if fits and moving and (node.op in LAYERS or joined):
            half.update(node.outputs)
            chosen.add(node.index)
    results = {o.name for o in copy.graph.output}
    made: set[str] = set()
    nodes: list[onnx.NodeProto] = []
    for index, node in _in_order(copy, graph):
        if index in chosen:
            for i, value in enumerate(node.input):
                if value in half or not value or not _is_float(value, constants, graph):
                    continue
                name = f"{value}{HALF}"
                if name not in made:
                    made.add(name)
                    if value in constants:
                        copy.graph.initializer.append(numpy_helper.from_array(constants[value].astype(np.float16), name))
                    else:
                        nodes.append(helper.make_node("Cast", [value], [name], to=TensorProto.FLOAT16))
                node.input[i] = name
            for i, value in enumerate(node.input):
                if value in half:
                    node.input[i] = f"{value}{HALF}"
            outputs = list(node.output)
            for i, value in enumerate(outputs):
                node.output[i] = f"{value}{HALF}"
            nodes.append(node)
            for value in outputs:
                made.add(f"{value}{HALF}")
                readers = {r.index for r in graph.readers.get(value, ())}
                if value in results or not chosen.issuperset(readers):
                    nodes.append(helper.make_node("Cast", [f"{value}{HALF}"], [value], to=TensorProto.FLOAT))
        else:
            nodes.append(node)
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del copy.graph.node[:]
    copy.graph.node.extend(copies)
    del copy.graph.value_info[:]
    needed = _read(copy)
    for place in reversed([i for i, t in enumerate(copy.graph.initializer) if t.name not in needed]):  # in float32, no longer read
        del copy.graph.initializer[place]
    return copy, len(chosen)


def _in_order(proto: onnx.ModelProto, graph: Graph) -> Iterator[tuple[int, onnx.NodeProto]]:
    for node in graph.nodes:
        yield node.index, proto.graph.node[node.index]


def _is_float(value: str, constants: Mapping[str, Array], graph: Graph) -> bool:
    if value in constants:
        return bool(constants[value].dtype == np.float32)
    declared = {i.name: i.dtype for i in graph.inputs}
    if value in declared:
        return bool(declared[value] == np.float32)
    known = graph.types.get(value)
    return known is not None and known.dtype == np.float32


def _fits(values: Array) -> bool:
    """Whether float16 holds the numbers without becoming infinite."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(values.astype(np.float16)).all())
