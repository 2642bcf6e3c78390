"""What a file is: an .onnx, a .pt, a pair, or the folder of a training.

Everything here returns plain data that json can write: a number that is not finite is the text "nan", "inf" or "-inf"."""

from __future__ import annotations

from pathlib import Path

from graph2torch.checkpoint import load_checkpoint
from graph2torch.files import is_archive, is_folder
from graph2torch.recognise import recognise
from graph2torch.rulebook import Rules

from .checkpoint import inspect_checkpoint
from .graph import inspect_graph
from .numbers import Found
from .pair import inspect_pair


def inspect_file(path: str | Path, checkpoint: str | Path | None = None, rules: Rules = ()) -> Found:
    """What `path` is, and how it fits `checkpoint` if that is given.

    kind "onnx": exporter, contract, blocks, coverage, parameters, normalisers, sigma, odd values, warnings
    kind "pt":   (by its content, whatever it is called) modules, step, tensors, normalisers, odd values
    kind "pair": "graph" as above, "checkpoint" as above, and "pair": see `inspect_pair`
    kind "run":  a folder of a training: see `training.run_folder.inspect_run`

    A graph with nodes that no rule explains is inspected too; they are listed with the rule that came nearest.
    Raises ModelError, UnsupportedGraph, CheckpointError, RuleError or RunError; a checkpoint of another network is a finding.
    """
    path = Path(path)
    if checkpoint is None and is_folder(path):
        from graph2torch.training.run_folder import inspect_run

        return {"kind": "run", **inspect_run(path)}
    if checkpoint is None and is_archive(path):
        return {"kind": "pt", **inspect_checkpoint(load_checkpoint(path))}
    recognised = recognise(path, rules)
    graph = inspect_graph(recognised)
    if checkpoint is None:
        return {"kind": "onnx", **graph}
    _, family, _ = recognised.book.family(recognised.spec.graph)
    loaded = load_checkpoint(checkpoint, family.policy_module())
    return {"kind": "pair", "graph": graph, "checkpoint": inspect_checkpoint(loaded), "pair": inspect_pair(recognised, loaded)}
