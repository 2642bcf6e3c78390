"""Any graph that no other family knows: blocks are named after their rules."""

from collections.abc import Iterable
from dataclasses import replace

from graph2torch.graph import Graph
from graph2torch.spec import Block, Input, Output, PolicySpec
from graph2torch.text import identifier


def detect(graph: Graph) -> bool:
    return True


def policy_module() -> str:
    return "Policy"


def describe(name: str, graph: Graph, blocks: tuple[Block, ...]) -> PolicySpec:
    used = {v for node in graph.nodes for v in node.inputs} | set(graph.results)
    inputs: list[Input] = []
    fields: set[str] = {"self", "noise"}
    for value in graph.inputs:
        field = identifier(value.name, fields, "input")
        fields.add(field)
        inputs.append(Input(value.name, field, value.size, value.shape, value.dtype.name, "", value.name in used))
    outputs: list[Output] = []
    taken = {"count", "index"}
    for declared, result in zip(graph.outputs, graph.results, strict=True):
        field = identifier(declared.name, taken, "output")
        taken.add(field)
        outputs.append(Output(declared.name, field, declared.size, declared.dtype.name, "", result, graph.constants.get(result)))
    taken |= fields | {"forward", "load"}
    named: list[Block] = []
    noise: dict[str, str] = {}
    for block in blocks:
        unique = identifier(block.rule, taken)
        taken.add(unique)
        named.append(replace(block, name=unique, role=block.rule.replace("_", " ")))
        for _, drawn in block.drawn:
            noise[identifier("noise", noise)] = drawn
    return PolicySpec("generic", f"{len(graph.nodes)} operators", graph, tuple(inputs), tuple(outputs), tuple(named), noise)


def candidates(spec: PolicySpec, block: Block, keys: Iterable[str]) -> tuple[str, ...]:
    return ()
