"""What TensorBoard's graph of a policy must be: every operator once, in its block's box, with edges from where its operands come."""

from __future__ import annotations

import re

from graph2torch.board.drawing import FIXED, graph_of
from graph2torch.spec import PolicySpec
from graph2torch.text import printable

OTHERS = ("Input", "Output", "Parameter", "Buffer", "Const")


def check_drawing(spec: PolicySpec) -> None:
    graph = spec.graph
    drawn = list(graph_of(spec).node)
    nodes = {n.name: n for n in drawn}
    assert len(nodes) == len(drawn)
    operators = [n for n in drawn if n.op not in OTHERS]
    assert [n.op for n in operators] == [n.op for n in graph.nodes]
    place = {id(node): n for node, n in zip(graph.nodes, operators, strict=True)}
    inputs = {n.name for n in drawn if n.op == "Input"}
    assert len(inputs) == len(spec.inputs)
    for node, n in zip(graph.nodes, operators, strict=True):
        for value, edge in zip([v for v in node.inputs if v], n.input, strict=True):
            name, _, number = edge.partition(":")
            if value in graph.producers:
                producer = graph.producers[value]
                assert name == place[id(producer)].name and producer.outputs[int(number or 0)] == value
            elif value in {i.name for i in spec.inputs}:
                assert name in inputs
            else:
                constant = nodes[name]
                assert constant.op in OTHERS[2:] and constant.attr["initializer"].s.decode() == printable(value, 200)
                assert [d.size for d in constant.attr["_output_shapes"].list.shape[0].dim] == list(graph.constants[value].shape)
                assert name.rpartition("/")[0] == n.name.rpartition("/")[0]
    boxes: dict[str, int] = {}
    for number, block in enumerate(spec.blocks):
        for index, node in enumerate(graph.nodes):
            if node.index in block.nodes and operators[index].attr["role"].s.decode() == printable(block.role, 200):
                box = operators[index].name.rpartition("/")[0]
                assert box and boxes.setdefault(box, number) == number, box
    for n in drawn:
        assert re.fullmatch(r"\w+(/\w+)*", n.name, re.ASCII), n.name
    results = {n.name for n in drawn if n.op == "Output"}
    assert len(results) == sum(o.constant is None for o in spec.outputs)
    assert sum(n.name.startswith(f"{FIXED}/") for n in drawn) == sum(o.constant is not None for o in spec.outputs)
