"""How a graph and a checkpoint fit."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from graph2torch.bind import Binding, Bindings, bind, roots
from graph2torch.checkpoint import Checkpoint
from graph2torch.judge.figures import max_ulps, same_bits
from graph2torch.pair import judge, too_far
from graph2torch.recognise import Recognised
from graph2torch.spec import Block, PolicySpec

from .graph import statistics_of, unexplained_constants
from .numbers import Found, number
from .statistics import GRID, formula_errors


def inspect_pair(recognised: Recognised, checkpoint: Checkpoint) -> Found:
    """How a graph and a checkpoint fit.

    verdict, reason, match, tried, steps, configuration: see `graph2torch.pair.Pair`
    compared:     number of tensors that both have; fixed_outputs: of outputs whose numbers both have
    unmatched:    the policy's tensors for which the checkpoint has no module
    not_compared: constants read by unexplained nodes, and those of single operators that are not in the checkpoint
    too_far:      whether a race between saving and exporting can't explain the disagreements
    normalizers:  for each, whether sqrt(running_variance / normalization_steps) is the graph's std: `rounding` names the
                  roundings that give its very bits ("numpy": in float32; "double": of the float32 quotient's root in
                  float64), `ulps` is how far the float32 one is; and `formulas`, see `formula_errors`
    """
    spec = recognised.spec
    _, family, _ = recognised.book.family(spec.graph)
    bindings = bind(spec, checkpoint, "onnx")  # the graph's numbers, whatever the checkpoint holds
    return {
        **asdict(judge(spec, family, recognised.model.path, bindings)),
        "compared": sum(b.agrees is not None for b in bindings.tensors),
        "fixed_outputs": sum(o.constant is not None and o.key in checkpoint.tensors for o in spec.outputs),
        "unmatched": list(unmatched(spec, bindings)),
        "not_compared": list(dict.fromkeys((*unexplained_constants(spec), *_unknown(spec, bindings)))),
        "disagreements": [_disagreement(b) for b in bindings.disagreements],
        "too_far": too_far(bindings),
        "metadata": list(bindings.metadata),
        "normalizers": [found for block in spec.blocks if block.statistics and (found := _agreement(spec, block, bindings))],
    }


def unmatched(spec: PolicySpec, bindings: Bindings) -> tuple[str, ...]:
    """Paths of the policy's tensors that a checkpoint should have and this one has not."""
    keyed = {spec.parameter_path(block, p) for block in spec.blocks for p in block.parameters if p.key}
    return tuple(b.path for b in bindings.tensors if b.path in keyed and b.agrees is None) if bindings.checkpoint else ()


def _unknown(spec: PolicySpec, bindings: Bindings) -> tuple[str, ...]:
    """Constants of single operators for which no tensor of the checkpoint was found."""
    own = {p.place for block in spec.blocks for p in block.parameters if p.place}
    return tuple(b.initializer for b in bindings.tensors if b.path in own and b.key is None and b.initializer)


def _disagreement(binding: Binding) -> Found:
    apart = binding.disagreement
    assert apart is not None
    return {
        "parameter": binding.path,
        "checkpoint": binding.key,
        "graph": binding.initializer,
        "elements": apart.elements,
        "of": apart.of,
        "max_abs": number(apart.max_abs),
        "max_ulps": apart.max_ulps,
        "text": str(apart),
    }


def _agreement(spec: PolicySpec, block: Block, bindings: Bindings) -> Found | None:
    path = spec.module_path(block)
    bound = {b.path: b for b in bindings.tensors}
    variance, steps = bound[f"{path}.running_variance"], bound[f"{path}.normalization_steps"]
    if variance.source != "checkpoint":
        return None
    mean, std = statistics_of(spec, block)
    found = roots(variance.value, steps.value)
    return {
        "role": block.role,
        "module": path,
        "checkpoint": variance.key,
        "steps": int(steps.value),
        "agrees": bound[f"{path}.std"].agrees,
        "rounding": [name for name, root in found.items() if same_bits(root, std)],
        "ulps": max_ulps(found["numpy"], std),
        "grid": [min(GRID), max(GRID), GRID[1] - GRID[0]],
        "formulas": formula_errors(mean, std, variance.value.astype(np.float32), int(steps.value)),
    }
