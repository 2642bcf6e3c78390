"""Which rules there are, which of them explains which node, and which came nearest where none does."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from .canonical import canonicalise
from .errors import Graph2TorchError, ModelError
from .graph import load
from .inspect.numbers import Found
from .match import Engine, NearMiss, Refusal
from .output import MADE
from .recognise import recognise
from .rulebook import RuleBook, Rules, folders_of, load_rules
from .spec import Block, Coverage, PolicySpec
from .text import one_line, printable


def list_rules(rules: Rules = ()) -> Found:
    """Every rule: family, name, what it is, and its patterns with their number of operators."""
    book = load_rules(*folders_of(rules))
    return {
        "families": [name for name, _, _ in book.families],
        "rules": [
            {
                "family": r.family,
                "name": r.name,
                "summary": r.summary,
                "patterns": [{"name": p.name, "operators": len(p.nodes)} for p in r.patterns],
            }
            for r in book.rules
        ],
    }


def explain_model(path: str | Path, rules: Rules = ()) -> Found:
    """What became of each of the file's nodes, in the file's order.

    status "explained": with `rule`, `role` and `module` of its block
    status "generic":   rebuilt by itself, as one operator; with `nearest` as below
    status "inert":     no output needs it, or it only passes on a fixed output
    status "unexplained": with `nearest`: the rule that came nearest, how many `of` its operators `matched`, and the
                        `reason`, which names the node that decided; None if no rule got anywhere there. A node that
                        only feeds an unexplained one (a Constant) has that one's index as `operand_of`; `refusal`: why
                        it can't be rebuilt as one operator either
    """
    recognised = recognise(path, rules)
    spec = recognised.spec
    coverage = spec.coverage()
    owner: dict[int, Block] = {}
    for block in spec.blocks:
        for index in block.nodes:
            owner.setdefault(index, block)
    nearest = nearest_misses(spec, recognised.book)
    unexplained = {entry["index"]: entry for entry in unexplained_nodes(spec, nearest)}
    nodes: list[Found] = []
    for index, node in enumerate(spec.graph.file_nodes):
        entry: Found = {"index": index, "name": node.name, "op": node.op}
        if index in owner:
            block = owner[index]
            entry |= {
                "status": "explained",
                "rule": block.rule,
                "family": block.family,
                "role": block.role,
                "module": spec.module_path(block) or None,
            }
            if block.family == "generic":
                entry |= {"status": "generic", "nearest": shown_miss(nearest.get(index)), "operand_of": None}
        elif index in unexplained:
            entry = {**unexplained[index], "status": "unexplained"}
        else:
            entry["status"] = "inert"
        nodes.append(entry)
    return {"file": recognised.model.path.name, "family": spec.family, "title": spec.title, "coverage": counted(coverage), "nodes": nodes}


def cover_folder(folder: str | Path, rules: Rules = ()) -> Found:
    """How far the rules explain every .onnx under `folder`, in the order of their paths.

    models:  path within the folder, title, and the counts of `coverage`; or the `error` of one that is refused
    totals:  the counts summed up, and how many models each kind has ("refused", and "whole": all by the architecture)
    generic, unexplained: operator → how many nodes of it, over all models

    Raises ModelError if the folder isn't one, or holds no .onnx.
    """
    folder = Path(folder)
    found = _models(folder)
    book = load_rules(*folders_of(rules))
    models: list[Found] = []
    kinds: dict[str, Counter[str]] = {"generic": Counter(), "unexplained": Counter()}
    totals: Counter[str] = Counter()
    for path in found:
        entry: Found = {"file": path.relative_to(folder).as_posix()}
        models.append(entry)
        try:
            spec = book.recognise(canonicalise(load(path).graph))
        except Graph2TorchError as error:
            entry["error"] = str(error)
            continue
        coverage = spec.coverage()
        counts = counted(coverage)
        entry |= {"title": spec.title, **counts, "architecture": sum(counts["by_rule"].values()) - counts["generic"]}
        totals.update({key: entry[key] for key in ("nodes", "architecture", "generic", "inert", "unexplained")})
        totals["whole"] += entry["nodes"] == entry["architecture"] + entry["inert"]
        for kind, indices in (("generic", coverage.generic), ("unexplained", coverage.unexplained)):
            kinds[kind].update(spec.graph.file_nodes[i].op for i in indices)
    active = totals["nodes"] - totals["inert"]
    sums: Found = {key: totals[key] for key in ("nodes", "architecture", "generic", "inert", "unexplained", "whole")}
    sums |= {"models": len(models), "refused": sum("error" in m for m in models)}
    sums["percent"] = percent(totals["architecture"], active)
    return {"folder": str(folder), "models": models, "totals": sums, **{kind: dict(count.most_common()) for kind, count in kinds.items()}}


def _models(folder: Path) -> list[Path]:
    """Every .onnx under the folder, but for what build wrote there; ModelError if there is none."""
    try:
        if not folder.exists():
            raise ModelError(f"{printable(str(folder))} does not exist; check the path.")
        if not folder.is_dir():
            raise ModelError(f"{printable(str(folder))} is not a folder; for one model use --explain.")
        found = sorted(path for path in folder.rglob("*") if path.suffix.lower() == ".onnx" and path.is_file())
    except (OSError, ValueError) as problem:
        raise ModelError(f"{printable(str(folder))} can't be searched: {one_line(str(problem))}.") from None
    if not found:
        raise ModelError(f"{printable(str(folder))} holds no .onnx, nor do the folders in it.")
    originals = [path for path in found if not _built(path)]
    if not originals:
        raise ModelError(
            f"{printable(str(folder))} holds no .onnx but copies that `graph2torch build` wrote; give the folder of the originals."
        )
    return originals


def _built(path: Path) -> bool:
    """Whether it is a folder's own copy of the graph that it was built from."""
    return path.name in MADE and all(path.with_name(name).is_file() for name in ("model.py", "report.json"))


def counted(coverage: Coverage) -> Found:
    """Counts of the file's nodes. `percent`: explained by the architecture, of the nodes that are not inert; never rounded up."""
    rebuilt = sum(map(len, coverage.by_rule.values()))
    explained = rebuilt - len(coverage.generic)
    active = rebuilt + len(coverage.unexplained)
    return {
        "nodes": coverage.total,
        "by_rule": {rule: len(nodes) for rule, nodes in coverage.by_rule.items()},
        "generic": len(coverage.generic),
        "inert": len(coverage.inert),
        "unexplained": len(coverage.unexplained),
        "percent": percent(explained, active),
    }


def percent(explained: int, active: int) -> float:
    return math.floor(1000 * explained / active) / 10 if active else 100.0


def unexplained_nodes(spec: PolicySpec, nearest: Mapping[int, NearMiss]) -> list[Found]:
    """The file's nodes that no rule explains, looked-through operands of theirs included, each with the nearest miss."""
    left = set(spec.coverage().unexplained)
    entries: dict[int, Found] = {}
    for node in spec.unexplained:
        shown = shown_miss(nearest.get(node.index))
        refusal = spec.refusals.get(node.index)
        for index in (node.index, *node.through):
            if index in left:
                file_node, own = spec.graph.file_nodes[index], index == node.index
                entry = {"index": index, "name": file_node.name, "op": file_node.op, "nearest": shown if own else None}
                entry["refusal"] = refusal.reason if refusal and own else None
                entries.setdefault(index, {**entry, "operand_of": None if own else node.index})
    return [entries[index] for index in sorted(entries)]


def shown_miss(miss: NearMiss | None) -> Found | None:
    """A near miss as JSON."""
    if miss is None:
        return None
    return {"rule": miss.rule, "matched": miss.matched, "of": miss.size, "reason": str(miss.refusal), "node": _index(miss.refusal)}


def _index(refusal: Refusal) -> int | None:
    return None if refusal.node is None else refusal.node.index


def nearest_misses(spec: PolicySpec, book: RuleBook) -> dict[int, NearMiss]:
    """For each node that no architecture rule explains (by its index) the rule that came nearest, once all others are claimed.

    What is rebuilt operator by operator counts as unexplained here: it shows what a new rule, or a wider one, would take.
    """
    family, _, _ = book.family(spec.graph)
    left = {node.index for node in spec.unexplained}
    left |= {index for block in spec.blocks if block.family == "generic" for index in block.nodes}
    if not left:
        return {}
    engine = Engine(spec.graph)
    engine.claimed |= {node.index for node in spec.graph.nodes} - left
    for rule in book.rules:
        if rule.family in (family, "generic"):
            for pattern in rule.patterns:
                for root in engine.roots(pattern):
                    if root.index in left:
                        engine.find(rule, pattern, root)
    return engine.nearest
