"""Any graph that no other family knows: blocks are named after their rules."""

from collections.abc import Mapping
from dataclasses import replace

from graph2torch.graph import Graph
from graph2torch.naming import name_blocks
from graph2torch.rulebook import Rule
from graph2torch.spec import Block, Input, Output, PolicySpec
from graph2torch.text import MEMBERS, identifier


def detect(graph: Graph) -> bool:
    return True


def policy_module() -> str:
    return "Policy"


def describe(graph: Graph, blocks: tuple[Block, ...], rules: Mapping[str, Rule]) -> PolicySpec:
    used = {v for node in graph.nodes for v in node.inputs} | set(graph.results)
    inputs: list[Input] = []
    fields: set[str] = {"self", "noise"} | {name for block in blocks for name in block.globals}
    for value in graph.inputs:
        field = identifier(value.name, fields, "input")
        fields.add(field)
        inputs.append(Input(value.name, field, value.size, value.shape, value.dtype.name, "", value.name in used))
    outputs: list[Output] = []
    taken = set(MEMBERS)
    for declared, result in zip(graph.outputs, graph.results, strict=True):
        field = identifier(declared.name, taken, "output")
        taken.add(field)
        outputs.append(Output(declared.name, field, declared.size, declared.dtype.name, "", result, graph.constants.get(result)))
    taken |= fields | {"load"}
    named = tuple(replace(block, sequence="", prefixes=()) for block in name_blocks(graph, blocks, rules, taken))
    noise: dict[str, str] = {}
    for block in named:
        for _, drawn in block.drawn:
            noise[identifier("noise", noise)] = drawn
    return PolicySpec("generic", f"{len(graph.nodes)} operators", graph, tuple(inputs), tuple(outputs), named, noise)
