"""Plants one fault in a copy of a model, of a kind and at a place that a seed decides, and tells which node it sits in.

    fault = plant(model, np.random.default_rng(7))
    fault.model, fault.kind, fault.node      # the copy; "weight"; the index of the node among the file's

For tests of whether the fault is found, and found there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from graph2torch.canonical import canonicalise
from graph2torch.graph import read_graph

KINDS = ("constant", "weight", "operand order", "axis", "activation", "gate order")
ACTIVATIONS = {
    "Sigmoid": ("Tanh", "HardSigmoid"),
    "Tanh": ("Sigmoid", "Softsign"),
    "Relu": ("Softplus", "Elu"),
    "LeakyRelu": ("Relu",),
    "Exp": ("Softplus",),
    "Softmax": ("LogSoftmax",),
    "Sqrt": ("Abs",),
    "Log": ("Neg",),
}
ORDERED = ("Sub", "Div", "Less", "Pow")
AXES = {"Softmax": (1, 0), "Concat": (1, 0), "ArgMax": (1, 0), "ReduceMean": (-1, 0), "ReduceSum": (1, 0), "Transpose": ()}


@dataclass(frozen=True)
class Fault:
    """model: the copy with the fault; node: the index of the node where it sits; words: what was done, for a failing test."""

    model: onnx.ModelProto
    kind: str
    node: int
    words: str


def plant(model: onnx.ModelProto, rng: np.random.Generator, kind: str = "") -> Fault | None:
    """One fault of `kind`, or of a kind that `rng` chooses. None if the model has no place for that kind."""
    kind = kind or str(rng.choice([k for k in KINDS if k != "gate order" or any(n.op_type == "LSTM" for n in model.graph.node)]))
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    places = list(_places(copy, kind))
    if not places:
        return None
    index, operand = places[int(rng.integers(len(places)))]
    node = copy.graph.node[index]
    words = _break(copy, node, operand, kind, rng)
    return Fault(copy, kind, index, f"{kind} in {node.op_type} {node.name!r}: {words}")


def _places(model: onnx.ModelProto, kind: str) -> Iterator[tuple[int, int]]:
    """Nodes that compute something, and the operand in question."""
    alive = {n.index for n in canonicalise(read_graph(model, "model")).nodes}
    tensors = {t.name: t for t in model.graph.initializer}
    constants = {n.output[0]: n.attribute[0].t for n in model.graph.node if n.op_type == "Constant"}
    users: dict[str, int] = {}
    for node in model.graph.node:
        for value in node.input:
            users[value] = users.get(value, 0) + 1
    for index, node in enumerate(model.graph.node):
        if index not in alive:
            continue
        if kind in ("constant", "weight"):
            for place, value in enumerate(node.input):
                tensor = tensors.get(value) if kind == "weight" else constants.get(value)
                if tensor is not None and tensor.data_type == onnx.TensorProto.FLOAT and users[value] == 1:
                    yield index, place
            if kind == "constant" and any(a.type == onnx.AttributeProto.FLOAT for a in node.attribute) and node.op_type == "Clip":
                yield index, -1
        elif (
            (kind == "operand order" and node.op_type in ORDERED and node.input[0] != node.input[1])
            or (kind == "axis" and node.op_type in AXES and (node.attribute or node.op_type != "Transpose"))
            or (kind == "activation" and node.op_type in ACTIVATIONS)
            or (kind == "gate order" and node.op_type == "LSTM")
        ):
            yield index, 0


def _break(model: onnx.ModelProto, node: onnx.NodeProto, operand: int, kind: str, rng: np.random.Generator) -> str:
    if kind == "operand order":
        node.input[0], node.input[1] = node.input[1], node.input[0]
        return f"{node.input[0]} and {node.input[1]} swapped"
    if kind == "activation":
        node.op_type = str(rng.choice(ACTIVATIONS[node.op_type]))
        kept = [a for a in node.attribute if a.name == "axis"]
        del node.attribute[:]
        node.attribute.extend(kept)
        return node.op_type
    if kind == "axis":
        if node.op_type.startswith("Reduce") and len(node.input) > 1:  # an operand, from some opset on
            _change(model, node.input[1], lambda x: np.asarray([next(axis for axis in AXES[node.op_type] if axis != x.item())]))
            return "axes"
        return _turn(node)
    if kind == "gate order":
        for place in (1, 2):
            _change(
                model,
                node.input[place],
                lambda x: x[:, np.concatenate([np.arange(4)[k] * (x.shape[1] // 4) + np.arange(x.shape[1] // 4) for k in (0, 2, 3, 1)])],
            )
        return "i, f, c, o"
    if operand < 0:
        bound = node.attribute[int(rng.integers(len(node.attribute)))]
        bound.f = float(np.float32(bound.f * rng.choice([0.5, 2.0, 0.75])))
        return f"{bound.name} {bound.f}"
    factor = rng.choice([0.5, 2.0, -1.0]) if kind == "constant" or rng.random() < 0.3 else None

    def alter(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        flat = x.reshape(-1).copy()
        place = int(rng.integers(flat.size))
        flat[place] = (
            np.nextafter(flat[place], np.float32(np.inf)) if factor is None else flat[place] * np.float32(factor) + (flat[place] == 0)
        )
        return np.asarray(flat.reshape(x.shape))

    _change(model, node.input[operand], alter)
    return f"{node.input[operand]} {'+ 1 ulp' if factor is None else f'times {factor}'}"


def _change(model: onnx.ModelProto, name: str, alter: Any) -> None:
    tensors = [t for t in model.graph.initializer if t.name == name]
    tensors += [n.attribute[0].t for n in model.graph.node if n.op_type == "Constant" and n.output[0] == name]
    before = numpy_helper.to_array(tensors[0])
    array = np.asarray(alter(before), before.dtype)
    tensors[0].CopyFrom(numpy_helper.from_array(array, tensors[0].name))


def _turn(node: onnx.NodeProto) -> str:
    for attribute in node.attribute:
        if attribute.name == "perm":
            order = list(attribute.ints)
            attribute.ints[:] = [order[0], *order[2:], order[1]] if len(order) > 2 else order[::-1]
            return f"perm {list(attribute.ints)}"
        if attribute.name == "axis":
            attribute.i = next(axis for axis in (*AXES[node.op_type], 2) if axis != attribute.i)
            return f"axis {attribute.i}"
        if attribute.name == "axes":
            attribute.ints[:] = [next(axis for axis in AXES[node.op_type] if axis != attribute.ints[0])]
            return f"axes {list(attribute.ints)}"
    node.attribute.append(helper.make_attribute("axis", 0))
    return "axis 0"
