"""A graph with fewer outputs: what only the others needed is gone."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from graph2torch.errors import UnsupportedGraph
from graph2torch.graph import RANDOM, Graph
from graph2torch.judge.randomness import needed_nodes
from graph2torch.text import quoted


def pruned(proto: onnx.ModelProto, outputs: Sequence[str]) -> onnx.ModelProto:
    """A copy of the graph with `outputs` alone, and the nodes and initializers that they need. Its inputs stay, used or not.

    The graph's outputs keep their order. Nodes must hold no graphs of their own, as in any graph that `graph.load` reads.
    Raises UnsupportedGraph if no output is asked for, or one that the graph doesn't have.
    """
    if missing := set(outputs) - {o.name for o in proto.graph.output}:
        raise UnsupportedGraph(f"The graph has no output {', '.join(map(quoted, sorted(missing)))}; keep some that it has.")
    if not outputs:
        raise UnsupportedGraph("A graph without outputs computes nothing; keep at least one of them.")
    left = onnx.ModelProto()
    left.CopyFrom(proto)
    graph, kept = left.graph, set(outputs)
    shown = [o for o in graph.output if o.name in kept]
    del graph.output[:]
    graph.output.extend(shown)
    nodes = needed_nodes(left)
    del graph.node[:]
    graph.node.extend(nodes)
    read = kept.union(*(node.input for node in nodes))
    gone = {t.name for t in graph.initializer} - read
    for values in (graph.initializer, graph.input):  # before IR version 4 an initializer is an input as well
        held = [v for v in values if v.name not in gone]
        del values[:]
        values.extend(held)
    made = {value for node in nodes for value in node.output}
    told = [v for v in graph.value_info if v.name in made]
    del graph.value_info[:]
    graph.value_info.extend(told)
    return left


def undrawn_outputs(graph: Graph) -> tuple[str, ...]:
    """The outputs that no random operator has a part in, in the graph's order."""
    drawn: set[str] = set()
    for node in graph.nodes:
        if node.op in RANDOM or not drawn.isdisjoint(node.inputs):
            drawn.update(node.outputs)
    return tuple(o.name for o, result in zip(graph.outputs, graph.results, strict=True) if result not in drawn)
