"""What an .onnx is: its contract, blocks, normalisers, sigma and odd values. Without torch and without onnxruntime."""

from __future__ import annotations

import numpy as np

from graph2torch.bind import odd_values, roots
from graph2torch.explain import counted, nearest_misses, unexplained_nodes
from graph2torch.recognise import Recognised
from graph2torch.spec import Block, Module, Parameter, PolicySpec, source_of
from graph2torch.text import quoted

from .numbers import Floats, Found, described, extent, numbers
from .statistics import saturating


def inspect_graph(recognised: Recognised) -> Found:
    """What a graph that was read is: see `inspect_file`."""
    model, spec = recognised.model, recognised.spec
    graph = spec.graph
    return {
        "file": model.path.name,
        "sha256": model.sha256,
        "bytes": model.size,
        "megabytes": round(model.size / 1e6, 3),
        "exporter": graph.producer,
        "opset": graph.opset,
        "ir_version": graph.ir_version,
        "family": spec.family,
        "title": spec.title,
        "inputs": [{"name": i.name, "shape": list(i.shape), "dtype": i.dtype, "meaning": i.meaning, "used": i.used} for i in spec.inputs],
        "outputs": [
            {
                "name": o.name,
                "shape": list(v.shape),
                "dtype": o.dtype,
                "meaning": o.meaning,
                "constant": None if o.constant is None else numbers(o.constant),
            }
            for o, v in zip(spec.outputs, graph.outputs, strict=True)
        ],
        "blocks": [_block(spec, block) for block in spec.blocks],
        "coverage": counted(spec.coverage()),
        "unexplained": unexplained_nodes(spec, nearest_misses(spec, recognised.book)),
        "parameters": _parameters(spec),
        "normalizers": [_normalizer(spec, block) for block in spec.blocks if block.statistics],
        "sigma": [_sigma(spec, block, p) for block in spec.blocks for p in block.parameters if p.name == "log_sigma"],
        "odd_values": odd_values(graph.constants.items()),
        "warnings": _warnings(spec),
    }


def _block(spec: PolicySpec, block: Block) -> Found:
    module = isinstance(block.code, Module)
    return {
        "rule": block.rule,
        "family": block.family,
        "role": block.role,
        "module": spec.module_path(block) or None,
        "sequence": block.sequence or None,
        "code": source_of(block),
        "size": list(block.code.arguments) if isinstance(block.code, Module) and module else None,
        "numbers": sum(spec.graph.constants[p.value].size for p in block.parameters),
        "nodes": len(block.nodes),
    }


def _parameters(spec: PolicySpec) -> Found:
    """The tensors of the blocks, then the constants that unexplained nodes read (they have no `path`).

    An initializer that serves several parameters stands under "merged" and counts once for each of them.
    """
    constants = spec.graph.constants
    tensors: list[Found] = []
    for block in spec.blocks:
        for p in block.parameters:
            tensors.append(described(constants[p.value], path=spec.parameter_path(block, p), name=p.value, trainable=p.trainable))
        if statistics := block.statistics:
            held = {"std": statistics.std, "running_variance": statistics.variance, "normalization_steps": statistics.steps}
            for label, value in held.items():
                if value is not None:
                    tensors.append(described(constants[value], path=f"{spec.module_path(block)}.{label}", name=value, trainable=False))
    tensors += [described(constants[v], path=None, name=v, trainable=None) for v in unexplained_constants(spec)]
    users: dict[str, list[str]] = {}
    for tensor in tensors:
        if tensor["path"]:
            users.setdefault(tensor["name"], []).append(tensor["path"])
    return {
        "trainable": sum(t["numbers"] for t in tensors if t["trainable"]),
        "statistics": sum(t["numbers"] for t in tensors if t["trainable"] is False),
        "unexplained": sum(t["numbers"] for t in tensors if t["trainable"] is None),
        "tensors": tensors,
        "merged": {name: paths for name, paths in users.items() if len(paths) > 1},
    }


def unexplained_constants(spec: PolicySpec) -> tuple[str, ...]:
    """Constants of the graph that unexplained nodes read, each once."""
    return tuple(dict.fromkeys(v for node in spec.unexplained for v in node.inputs if v in spec.graph.constants))


def _normalizer(spec: PolicySpec, block: Block) -> Found:
    mean, std = statistics_of(spec, block)
    return {
        "role": block.role,
        "module": spec.module_path(block),
        "features": mean.size,
        "folded": block.statistics is not None and block.statistics.std is not None,
        "mean": extent(mean),
        "std": extent(std, median=True),
        "not_finite": int((~np.isfinite(mean) | ~np.isfinite(std)).sum()),
        **saturating(mean, std),
    }


def statistics_of(spec: PolicySpec, block: Block) -> tuple[Floats, Floats]:
    """mean and std [n] as the graph has them; what it leaves unfolded is computed as numpy rounds it."""
    statistics, constants = block.statistics, spec.graph.constants
    assert statistics is not None
    if statistics.std is not None:
        std = constants[statistics.std]
    else:
        assert statistics.variance and statistics.steps
        std = roots(constants[statistics.variance], constants[statistics.steps])["numpy"]
    return constants[statistics.mean].astype(np.float32), std.astype(np.float32)


def _sigma(spec: PolicySpec, block: Block, parameter: Parameter) -> Found:
    """exp(log_sigma), the standard deviation of the actions before clip and scaling."""
    with np.errstate(over="ignore"):
        sigma = np.exp(spec.graph.constants[parameter.value])
    return {"path": spec.parameter_path(block, parameter), "actions": sigma.size, **extent(sigma, average=True)}


def _warnings(spec: PolicySpec) -> list[str]:
    warnings = list(spec.graph.warnings)
    for name in sorted(spec.graph.overridable):
        warnings.append(f"the initializer {quoted(name)} is a graph input too, so whoever runs the graph can replace it")
    return warnings
