"""report.json: the facts of a build."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graph2torch import __version__
from graph2torch.act.contract import to_json
from graph2torch.explain import nearest_misses, shown_miss
from graph2torch.judge.figures import finite
from graph2torch.lines import lines_of
from graph2torch.recognise import Recognised
from graph2torch.spec import Coverage, Module, PolicySpec, source_of
from graph2torch.versions import versions

if TYPE_CHECKING:
    from graph2torch.build import Build


def facts(made: Build, files: dict[str, str], target: Path | None = None) -> dict[str, Any]:
    """The facts of a build as JSON: level, inputs, architecture, every parameter's origin, coverage, figures, what corresponds.

    target: the folder it is written to; with it the report says where the original lies, seen from there
    """
    model, spec, bindings, checked = made.recognised.model, made.spec, made.bindings, made.verification
    checkpoint, coverage, used = bindings.checkpoint, spec.coverage(), {b.rule for b in spec.blocks}

    def number(x: float | None) -> float | str | None:
        return x if x is None or np.isfinite(x) else str(x)

    return {
        "graph2torch": __version__,
        "level": checked.level,
        "equal": made.equal,
        "reason": checked.reason,
        "dtype": made.dtype,
        "original": {
            "file": model.path.name,
            "path": _seen_from(target, model.path) if target else None,
            "sha256": model.sha256,
            "bytes": model.size,
            "exporter": spec.graph.producer,
            "opset": spec.graph.opset,
            "ir_version": spec.graph.ir_version,
            "warnings": list(spec.graph.warnings),
        },
        "checkpoint": None
        if checkpoint is None
        else {
            "file": checkpoint.path.name,
            "path": _seen_from(target, checkpoint.path) if target else None,
            "sha256": checkpoint.sha256,
            "bytes": checkpoint.size,
            "step": checkpoint.step,
            **asdict(made.pair),
            "disagreements": [
                {
                    "parameter": b.path,
                    "checkpoint": b.key,
                    "graph": b.initializer,
                    **asdict(b.disagreement),
                    "max_abs": number(b.disagreement.max_abs),
                }
                for b in bindings.disagreements
                if b.disagreement
            ]
            + [{"metadata": text} for text in bindings.metadata],
            "modules": {name: {"tensors": tensors, "numbers": numbers} for name, (tensors, numbers) in checkpoint.modules.items()},
            "unused": list(bindings.unused),
        },
        "architecture": {
            "family": spec.family,
            "title": spec.title,
            **to_json(spec.inputs, spec.draws(), spec.acting),
            "outputs": [
                {
                    "name": o.name,
                    "field": o.field,
                    "shape": o.size,
                    "dtype": o.dtype,
                    "meaning": o.meaning,
                    "constant": None if o.constant is None else [number(float(x)) for x in o.constant.reshape(-1)],
                    "value": o.value,
                }
                for o in spec.outputs
            ],
            "blocks": _blocks(made),
            "rules": {rule.name: rule.summary for rule in made.recognised.book.rules if rule.name in used},
        },
        "parameters": [
            {
                "path": b.path,
                "shape": list(b.value.shape),
                "dtype": made.dtype if b.path in made.halves else b.value.dtype.name,
                "trainable": b.trainable,
                "source": b.source,
                "checkpoint": b.key,
                "graph": b.initializer,
                "transform": b.transform,
                "bit_equal": b.agrees,
                "note": b.note,
            }
            for b in bindings.tensors
        ],
        "coverage": {
            "nodes": coverage.total,
            "by_rule": {rule: len(nodes) for rule, nodes in coverage.by_rule.items()},
            "generic": len(coverage.generic),
            "inert": len(coverage.inert),
            "unexplained": len(coverage.unexplained),
        },
        "inert_nodes": _inert(spec, coverage),
        "near_misses": _near_misses(made.recognised),
        "verification": {
            "rebuilt": [finite(asdict(f)) for f in checked.rebuilt],
            "torch": [finite(asdict(f)) for f in checked.module],
            "runs": list(checked.runs),
            "not_run_by_the_original": list(checked.refused),
            "seed": checked.seed,
            "isomorphic": checked.isomorphic,
        },
        "witness": dict(made.witness),
        "divergence": made.divergence
        and {**made.divergence.told(), "causes": [{"name": cause.name, "words": cause.words} for cause in made.causes]},
        "device": made.on_device and made.on_device.told(),
        "precision": made.precision and made.precision.told(),
        "threads": made.threads,
        "versions": versions(),
        "files": files,
    }


def written(document: dict[str, Any]) -> bytes:
    """The document as report.json holds it."""
    return (_short_lists(json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False)) + "\n").encode()


def _short_lists(text: str) -> str:
    """Indented JSON with each list of plain values on one line. No string of it holds a line break."""
    return re.sub(r"\[\n[^\[\]{}]*\n\s*\]", lambda found: re.sub(r"\n\s*", " ", found.group()).replace("[ ", "[", 1)[:-2] + "]", text)


def _seen_from(target: Path, path: Path) -> str:
    """`path` as it is reached from the folder `target`, so that both can be moved together."""
    there = os.path.abspath(path)  # noqa: PTH100 # links stay: data kept outside a model lies beside the link
    try:
        return Path(os.path.relpath(there, os.path.realpath(target))).as_posix()
    except ValueError:  # on another drive
        return there


def _blocks(made: Build) -> list[dict[str, Any]]:
    """What each block is, where it hangs, its nodes, its tensors (a normaliser's statistics among them), its lines of model.py."""
    spec, nodes = made.spec, made.spec.graph.file_nodes
    held: dict[str, list[str]] = {}
    for tensor in made.bindings.tensors:
        held.setdefault(tensor.path.rpartition(".")[0], []).append(tensor.path)
    found = []
    for block, lines in zip(spec.blocks, lines_of(made.source, spec), strict=True):
        own = [spec.parameter_path(block, p) for p in block.parameters]
        tensors = held.get(spec.module_path(block), own) if isinstance(block.code, Module) else own
        found.append(
            {
                "rule": block.rule,
                "family": block.family,
                "role": block.role,
                "module": spec.module_path(block) or None,
                "code": source_of(block),
                "reads": list(block.reads),
                "makes": list(block.outputs),
                "parameters": tensors,
                "nodes": [nodes[i].name or i for i in block.nodes],
                "indices": list(block.nodes),
                "operators": [nodes[i].op for i in block.nodes],
                "lines": asdict(lines),
            }
        )
    return found


def _inert(spec: PolicySpec, coverage: Coverage) -> list[dict[str, Any]]:
    """The first thousand nodes that are inert, as the file has them; `coverage` has their number."""
    nodes = spec.graph.file_nodes
    return [{"index": i, "name": nodes[i].name, "op": nodes[i].op} for i in coverage.inert[:1000]]


def _near_misses(recognised: Recognised) -> list[dict[str, Any]]:
    """For each node that is rebuilt by itself: the architecture rule that came nearest, and what stopped it, with the node."""
    spec = recognised.spec
    nearest = nearest_misses(spec, recognised.book)
    generic = {index for block in spec.blocks if block.family == "generic" for index in block.nodes}
    return [
        {"node": n.name or n.index, "op": n.op, "index": n.index, "nearest": shown_miss(nearest.get(n.index))}
        for n in spec.graph.nodes
        if n.index in generic
    ]
