"""What several pages say of levels, pairs, nodes and rules in the same words."""

from __future__ import annotations

from collections.abc import Mapping

from graph2torch.inspect.numbers import Found
from graph2torch.text import printable

LEVELS = {
    "bytes": "the two files are the same, byte for byte",
    "graph": "operator by operator the same computation on the same numbers, whatever the input; and onnxruntime gave the same bits on everything tried",
    "bits": "onnxruntime gave the same bits on everything tried, with its optimiser on and off; on other inputs they may differ",
    "close": "onnxruntime gave numbers within 1e-5 · max(1, largest output) on everything tried, but not the same bits",
    "differs": "the rebuilt policy and the original give different numbers",
}

MEANINGS = {
    "drift": "graph and checkpoint do not hold the same numbers",
    "other step": "graph and checkpoint do not hold the same numbers, as if saved at another step",
    "other network": "the checkpoint's network is built otherwise",
    "nothing compared": "no tensor of the graph is known to be in the checkpoint, so nothing is said about the pair",
}


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
