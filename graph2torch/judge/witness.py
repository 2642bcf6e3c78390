"""What the level `graph` rests on, as it stands in report.json: which nodes and which constants of two files correspond."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graph2torch.graph import Graph, Node

from .isomorphism import Alignment


def witness(alignment: Alignment, original: Graph, rebuilt: Graph) -> dict[str, Any]:
    """The correspondence of the two files, as far as they lie on each other; JSON-able.

    nodes:        [index, name, index, name] of a node of the original and the one of the copy that computes the same
    classes:      nodes that compute the same where a file holds several, [[[index, name], …], [[index, name], …]]
    initializers: pairs of constants used in the same place, by name; those that stand in a node's attributes are called
                  after it ("y:min")
    differing:    those of them whose bits differ
    refusal:      where the structures part, or null

    Nodes that compute nothing (Identity, Constant) and nodes that no output needs are in neither list.
    """
    pairs, classes = [], []
    for mine, theirs in alignment.classes:
        ours, others = _places(mine, original), _places(theirs, rebuilt)
        if len(ours) == len(others) == 1:
            pairs.append([*ours[0], *others[0]])
        else:
            classes.append([ours, others])
    return {
        "nodes": sorted(pairs),
        "classes": sorted(classes),
        "initializers": sorted(map(list, alignment.constants)),
        "differing": sorted(map(list, alignment.differing)),
        "refusal": alignment.refusal,
    }


def _places(nodes: Iterable[Node], graph: Graph) -> list[list[Any]]:
    """Index and name of each, those that were merged into it included."""
    indices = sorted({i for node in nodes for i in (node.index, *graph.merged.get(node.index, ()))})
    return [[i, graph.file_nodes[i].name] for i in indices]
