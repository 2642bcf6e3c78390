"""Any graph that no other family knows: blocks are named after their rules."""

from collections.abc import Mapping
from dataclasses import replace

from graph2torch.graph import Graph
from graph2torch.naming import inputs_of, name_blocks, outputs_of
from graph2torch.rulebook import Rule
from graph2torch.spec import Block, PolicySpec
from graph2torch.text import MEMBERS, identifier


def detect(graph: Graph) -> bool:
    return True


def policy_module() -> str:
    return "Policy"


def describe(graph: Graph, blocks: tuple[Block, ...], rules: Mapping[str, Rule]) -> PolicySpec:
    inputs = inputs_of(graph, (name for block in blocks for name in block.globals))
    outputs = outputs_of(graph)
    taken = {*MEMBERS, "self", "noise", "load", *(i.field for i in inputs), *(o.field for o in outputs)}
    taken |= {name for block in blocks for name in block.globals}
    named = tuple(replace(block, sequence="", prefixes=()) for block in name_blocks(graph, blocks, rules, taken))
    noise: dict[str, str] = {}
    for block in named:
        for _, drawn in block.drawn:
            noise[identifier("noise", noise)] = drawn
    return PolicySpec("generic", f"{len(graph.nodes)} operators", graph, inputs, outputs, named, noise)
