"""What several pages say of nodes and rules in the same words."""

from __future__ import annotations

from collections.abc import Mapping

from graph2torch.inspect import Found
from graph2torch.text import printable


def covered(by_rule: Mapping[str, int], generic: int, inert: int, unexplained: int, total: int) -> str:
    rules = ", ".join(f"{n} {printable(rule)}" for rule, n in by_rule.items())
    single = f", {generic} of them as single operators" if generic else ""
    return f"{total} nodes: {sum(by_rule.values())} explained ({rules or 'none'}){single}, {inert} inert, {unexplained} unexplained"


def named(node: Found) -> str:
    return f"{node['index']:>4} {printable(node['op'], 30)} {printable(node['name'], 46)}".rstrip()


def nearest(node: Found) -> str:
    if node["operand_of"] is not None:
        return f"an operand of node {node['operand_of']}"
    miss = node["nearest"]
    if miss is None:
        return "no rule comes near"
    return f"nearest is {printable(miss['rule'])}, {miss['matched']} of {miss['of']}: {printable(miss['reason'], 300)}"
