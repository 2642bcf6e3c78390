"""A graph that was read and understood: what every command but the comparison of checkpoints begins with, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .canonical import canonicalise
from .errors import UnsupportedGraph
from .files import where
from .graph import MAX_NODES, Model, load
from .rulebook import RuleBook, Rules, folders_of, load_rules
from .spec import PolicySpec

MAX_BUILT = (
    5_000  # nodes; a policy has up to 200. Graphs are read and compared up to MAX_NODES, but torch's exporter takes milliseconds a node
)


@dataclass(frozen=True)
class Recognised:
    """A graph that was read and understood; no torch needed so far."""

    model: Model
    spec: PolicySpec
    book: RuleBook


def recognise(path: str | Path, rules: Rules = (), most: int = MAX_NODES) -> Recognised:
    """Reads an .onnx and tells what it is, without torch. Raises UnsupportedGraph if it has more nodes than `most`."""
    book = load_rules(*folders_of(rules))
    model = load(path)
    if len(model.graph.file_nodes) > most:
        raise UnsupportedGraph(
            f"{where(model.path)} has {len(model.graph.file_nodes):,} nodes, more than the {most:,} that are rebuilt; a policy has fewer."
        )
    return Recognised(model, book.recognise(canonicalise(model.graph)), book)


def unbuildable(recognised: Recognised) -> str:
    """Every node that can't be built, with its reason; nodes with one reason together."""
    spec = recognised.spec
    reasons: dict[str, list[str]] = {}
    for node in spec.unexplained:
        refusal = spec.refusals.get(node.index)
        reasons.setdefault(refusal.reason if refusal else "no rule explains it", []).append(str(node))
    parts = []
    for reason, nodes in reasons.items():
        more = f" and {len(nodes) - 12} more" if len(nodes) > 12 else ""
        parts.append(f"{', '.join(nodes[:12])}{more}: {reason}")
    return (
        f"{where(recognised.model.path)}: {len(spec.unexplained)} of its {len(spec.graph.file_nodes)} nodes can't be built. {'; '.join(parts)}. "
        "`graph2torch rules --explain` shows which rule came nearest; docs/writing-a-rule.md tells how to add one."
    )
