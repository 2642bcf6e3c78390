"""The architecture as TensorBoard's graph page draws it: a box a block, its ONNX operators and weights inside.

A name with slashes is a place in boxes: `body/linear_0/Gemm` is the operator Gemm of model.py's `body.0`, in the box of the sequence;
what has no name in model.py is called after its rule. TensorBoard shows some 14 characters, so names are short, and the role
is told with each operator. Names are letters, digits and underscores: in a graph of TensorFlow `^` and `:` mean something.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graph2torch.graph import Array, Inferred, Node
from graph2torch.spec import Block, PolicySpec
from graph2torch.text import identifier, printable

FIXED = "fixed_outputs"  # the box of the outputs that never change


def graph_of(spec: PolicySpec) -> Any:
    """A GraphDef of tensorboard's: inputs, operators in the boxes of their blocks, weights, outputs. Shapes are told as far as known."""
    return _Drawing(spec).run()


class _Drawing:
    def __init__(self, spec: PolicySpec) -> None:
        from tensorboard.compat.proto.graph_pb2 import GraphDef
        from tensorboard.compat.proto.versions_pb2 import VersionDef

        self.spec = spec
        self.graph = GraphDef(versions=VersionDef(producer=22))
        self.taken = {"": {FIXED, *(block.sequence for block in spec.blocks)}}  # box → names in it
        self.made: dict[str, str] = {}  # value → the node, or the output of a node, that is it
        self.constants: dict[tuple[str, str], str] = {}  # box and constant → its node
        self.boxes: dict[int, tuple[str, str]] = {}  # index of a node of the file → the box of its block, and its role
        self.called: dict[str, tuple[str, str]] = {}  # constant → its name in its block, and what it is
        for block in spec.blocks:
            box = self.box(block)
            for index in block.nodes:
                self.boxes.setdefault(index, (box, block.role))
            self.called |= {p.value: (p.name, "Parameter" if p.trainable else "Buffer") for p in block.parameters}
            if block.statistics:
                self.called |= {block.statistics.mean: ("running_mean", "Buffer")}
                self.called |= {block.statistics.std: ("std", "Buffer")} if block.statistics.std else {}

    def run(self) -> Any:
        graph = self.spec.graph
        for value in self.spec.inputs:
            self.made[value.name] = self.add("", value.name, "Input", shape=value.shape, told={"meaning": value.meaning})
        for node in graph.nodes:
            self.operator(node)
        for output in self.spec.outputs:
            told = {"meaning": output.meaning}
            if output.constant is not None:
                self.add(FIXED, output.name, "Const", shape=output.constant.shape, told=told)
            elif output.value in self.made:
                self.add("", f"output {output.name}", "Output", [self.made[output.value]], told=told)
        return self.graph

    def box(self, block: Block) -> str:
        if block.sequence:
            return f"{block.sequence}/{self.name(block.sequence, f'{block.rule}_{self.spec.position(block)}')}"
        return self.name("", self.spec.module_path(block) or block.rule)

    def operator(self, node: Node) -> None:
        box, role = self.boxes.get(node.index, ("", ""))
        operands = [found for value in node.inputs if value and (found := self.operand(box, value))]
        told = {key: str(value) for key, value in node.attributes.items()} | {"node": node.name, "role": role}
        name = self.add(box, node.op, node.op, operands, self.spec.graph.types.get(node.outputs[0]), told=told)
        for number, value in enumerate(node.outputs):
            self.made[value] = f"{name}:{number}" if number else name

    def operand(self, box: str, value: str) -> str:
        """The node that makes it; a constant is drawn once in each box that reads it. "" if nothing is known of it."""
        if value in self.made:
            return self.made[value]
        constant = self.spec.graph.constants.get(value)
        if constant is None:
            return ""
        if (box, value) not in self.constants:
            name, op = self.called.get(value, ("constant", "Const"))
            self.constants[box, value] = self.add(
                box, name, op, shape=constant.shape, told={"value": _shortly(constant), "initializer": value}
            )
        return self.constants[box, value]

    def add(
        self,
        box: str,
        name: str,
        op: str,
        operands: list[str] | None = None,
        inferred: Inferred | None = None,
        shape: tuple[int | str | None, ...] | None = None,
        told: Mapping[str, str] | None = None,
    ) -> str:
        """Draws a node, and gives its name."""
        place = f"{box}/{self.name(box, name)}" if box else self.name("", name)
        node = self.graph.node.add(name=place, op=printable(op, 60), input=operands or [])
        shape = inferred.shape if inferred else shape
        if shape is not None:
            sizes = node.attr["_output_shapes"].list.shape.add()  # what TensorBoard writes on the edges
            for size in shape:
                sizes.dim.add(size=size if isinstance(size, int) else -1)
        for key, text in (told or {}).items():
            if text:
                node.attr[printable(key, 60)].s = printable(text, 200).encode("utf-8", "backslashreplace")
        return place

    def name(self, box: str, name: str) -> str:
        """A name like `name` that nothing else in the box has."""
        taken = self.taken.setdefault(box, set())
        found = identifier(name, taken, "node")
        taken.add(found)
        return found


def _shortly(constant: Array) -> str:
    """The numbers of a constant of the idiom, not those of a weight."""
    return np.array2string(constant, threshold=16) if constant.size <= 16 else ""
