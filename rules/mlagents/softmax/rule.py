"""Probabilities of a discrete branch's options: softmax over the last axis of a matrix.

Below opset 13 Softmax flattens all axes from `axis` on, which is torch's softmax only where `axis` is the last one. So
this rule takes matrices, [batch, options], and nothing else.
"""

from dataclasses import replace

from graph2torch.graph import Graph
from graph2torch.match import Match, Refusal
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = "Softmax <axis> (x) => (y) { y = Softmax <axis: int = @axis> (x) }"

EXAMPLE = (
    "matrix (float[batch, n] x) => (float[batch, n] y) { y = Softmax <axis = 1> (x) }",
    "last (float[batch, n] x) => (float[batch, n] y) { y = Softmax <axis = -1> (x) }",
)
NEAR_MISS = (
    "rows (float[batch, n] x) => (float[batch, n] y) { y = Softmax <axis = 0> (x) }",
    "three (float[batch, k, n] x) => (float[batch, k, n] y) { y = Softmax <axis = 1> (x) }",
)
ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Log", "Exp", "Clip", "Slice", "Softmax", "Sigmoid", "Tanh"})


def check(match: Match) -> Refusal | None:
    if match.attributes["axis"] not in (1, -1):
        return Refusal(f"its axis is {match.attributes['axis']}, not the options'", match.nodes[0])
    if not is_matrix(match.graph, match.values["x"]):
        return Refusal("what it reads isn't known to be a matrix, [batch, options]", match.nodes[0])
    return None


FAR = 1000  # values; between a layer and its softmax a policy has about ten


def is_matrix(graph: Graph, value: str) -> bool:
    """Whether a value surely has two axes: it comes from Gemm or from inputs of two axes, element by element."""
    ranks = {i.name: len(i.shape) for i in graph.inputs}
    todo, seen, found = [value], set(), False
    while todo:
        name = todo.pop()
        if not name or name in seen:
            continue
        seen.add(name)
        if len(seen) > FAR:
            return False
        rank = graph.constants[name].ndim if name in graph.constants else ranks.get(name)
        if rank is not None:
            found |= rank == 2
            if rank > 2:
                return False
        elif graph.producers[name].op == "Gemm":
            found = True
        elif graph.producers[name].op in ("Slice", "Clip"):
            todo.append(graph.producers[name].inputs[0])
        elif (total := sum_over_one_axis(graph, name)) is not None:
            todo.append(total)
        elif graph.producers[name].op in ELEMENTWISE:
            todo += graph.producers[name].inputs
        else:
            return False
    return found


def sum_over_one_axis(graph: Graph, name: str) -> str | None:
    """What is summed, where `name` is a sum over one axis that is put back as an axis of one: it has as many axes."""
    unsqueeze, total = graph.producers[name], graph.producers.get(graph.producers[name].inputs[0])
    if unsqueeze.op != "Unsqueeze" or total is None or total.op != "ReduceSum" or total.attributes != {"keepdims": 0}:
        return None
    axes = [graph.constants.get(node.inputs[1]) if len(node.inputs) == 2 else None for node in (unsqueeze, total)]
    return total.inputs[0] if all(a is not None and a.size == 1 for a in axes) else None


def lift(match: Match) -> Block:
    return block_of(match, Expression(f"torch.softmax(x, dim={match.attributes['axis']})"))


def describe(block: Block, place: Place) -> Block:
    if "masked_probability" in place.readers:
        return replace(block, role=f"head: probabilities of the options of branch {place.turn}, before the mask")
    label = "p" if place.turns == 1 else f"p_{place.turn}"
    return replace(block, label=label, role=f"head: probabilities of the options of branch {place.turn}")
