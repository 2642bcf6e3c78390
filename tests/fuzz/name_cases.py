"""Names that try to be code, or to act on the terminal, anywhere in a policy that is valid otherwise."""

from __future__ import annotations

import random
from typing import Any

import onnx
from onnx import TensorProto, helper

from .damage import text
from .graphs import values


def names(rng: random.Random, count: int) -> list[str]:
    """Different ones, none of them empty."""
    return list(dict.fromkeys(t for _ in range(count) if (t := text(rng))))


def renamed(rng: random.Random, model: onnx.ModelProto, old: list[str], new: list[str]) -> None:
    """Values called otherwise, everywhere."""
    taken = set(values(model))
    table = {a: b for a, b in zip(old, new, strict=False) if a and b not in taken}
    for node in model.graph.node:
        for given in (node.input, node.output):
            given[:] = [table.get(v, v) for v in given]
    for value in (*model.graph.initializer, *model.graph.input, *model.graph.output):
        value.name = table.get(value.name, value.name)


def named(rng: random.Random, model: onnx.ModelProto) -> onnx.ModelProto:
    """The policy with hostile names at one to three kinds of places."""
    for _ in range(rng.randint(1, 3)):
        kind = rng.randrange(7)
        graph = model.graph
        if kind == 0:
            renamed(rng, model, [v.name for v in graph.input], names(rng, 8))
        elif kind == 1:
            renamed(rng, model, [v.name for v in graph.output], names(rng, 8))
        elif kind == 2:
            renamed(rng, model, rng.sample(values(model), min(12, len(values(model)))), names(rng, 12))
        elif kind == 3:
            for node in graph.node:
                node.name = text(rng) if rng.random() < 0.5 else node.name
        elif kind == 4:
            kept = [t.name for t in graph.initializer]
            renamed(rng, model, kept, [f"{n}.{end}" for n in names(rng, len(kept)) for end in ("weight", "bias")])
        elif kind == 5:
            for name in names(rng, 3):
                source = rng.choice(graph.node).output[0]
                if name not in values(model):
                    graph.node.append(helper.make_node("Identity", [source], [name]))
                    graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
        else:
            model.producer_name, model.producer_version, model.domain, model.doc_string, graph.name = (text(rng) for _ in range(5))
            for value in (*graph.input, *graph.output):
                for dim in value.type.tensor_type.shape.dim:
                    if dim.dim_param:
                        dim.dim_param = text(rng)
            for node in graph.node:
                node.doc_string = text(rng)
    return model


def file_name(rng: random.Random) -> str:
    """What a file system takes."""
    name = text(rng).replace("/", "_").replace("\0", "_")
    while len(name.encode("utf-8", "replace")) > 200:
        name = name[: len(name) // 2]
    return name if name.strip(".") else "Given"


def checkpoint(rng: random.Random, model: onnx.ModelProto) -> dict[Any, Any]:
    """The model's checkpoint with hostile keys."""
    from tests.models import tiny_checkpoint

    found: dict[Any, Any] = tiny_checkpoint(model)
    policy = found["Policy"]
    modules = dict.fromkeys(key.rpartition(".")[0] for key in policy)
    table = dict(zip(rng.sample(list(modules), min(4, len(modules))), names(rng, 4), strict=False))
    for key in list(policy):
        module, _, end = key.rpartition(".")
        if module in table:
            policy[f"{table[module]}.{end}"] = policy.pop(key)
    for name in names(rng, 3):
        found.setdefault(name, {})
        policy.setdefault(name, "no tensor")
    return found
