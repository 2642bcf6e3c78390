"""Laying graphs on each other: names, order and splitting don't matter, anything else does."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from graph2torch.canonical import canonicalise
from graph2torch.graph import Graph, read_graph
from graph2torch.isomorphism import align
from tests.models import tiny_policy


def canonical(model: onnx.ModelProto) -> Graph:
    return canonicalise(read_graph(model, "graph"))


def renamed(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.ModelProto:
    """Inner values and initializers under other names, nodes in another valid order."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    ends = {v.name for v in (*model.graph.input, *model.graph.output)}
    names: dict[str, str] = {}
    for node in model.graph.node:
        for values in (node.input, node.output):
            for i, value in enumerate(values):
                if value and value not in ends:
                    values[i] = names.setdefault(value, f"v{rng.integers(1 << 60)}")
    for tensor in model.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    nodes, done, order = list(model.graph.node), {v.name for v in (*model.graph.input, *model.graph.initializer)}, []
    while nodes:
        ready = [n for n in nodes if all(not v or v in done for v in n.input)]
        node = ready[rng.integers(len(ready))]
        nodes.remove(node)
        order.append(node)
        done |= set(node.output)
    del model.graph.node[:]
    model.graph.node.extend(order)
    return model


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), observations=st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_names_and_order_do_not_matter(seed: int, observations: list[int]) -> None:
    model = tiny_policy(observations=observations, seed=seed % 100)
    assert align(canonical(model), canonical(renamed(model, np.random.default_rng(seed)))).isomorphic


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_changed_weight_is_seen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = tiny_policy()
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    tensor = changed.graph.initializer[int(rng.integers(len(changed.graph.initializer)))]
    array = numpy_helper.to_array(tensor).copy()
    flat = array.reshape(-1)
    place = int(rng.integers(flat.size))
    flat[place] = np.nextafter(flat[place], np.float32(np.inf))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    alignment = align(canonical(model), canonical(changed))
    assert alignment.refusal is None
    assert [a for a, _ in alignment.differing] == [tensor.name]
    assert not alignment.isomorphic


def test_swapped_outputs_are_seen() -> None:
    model = tiny_policy()
    swapped = onnx.ModelProto.FromString(model.SerializeToString())
    for node in swapped.graph.node:
        for i, value in enumerate(node.output):
            node.output[i] = {
                "continuous_actions": "deterministic_continuous_actions",
                "deterministic_continuous_actions": "continuous_actions",
            }.get(value, value)
    assert align(canonical(model), canonical(swapped)).refusal


def test_the_refusal_names_the_place() -> None:
    model = tiny_policy()
    other = onnx.ModelProto.FromString(model.SerializeToString())
    next(n for n in other.graph.node if n.op_type == "Sigmoid").op_type = "Tanh"
    refusal = align(canonical(model), canonical(other)).refusal
    assert refusal is not None and "Sigmoid" in refusal and "Tanh" in refusal
