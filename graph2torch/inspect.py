"""What a file is: an .onnx by its contract, blocks and normaliser, a .pt by its modules, step and odd values; a folder by its training.

Everything here returns plain data that json can write: a number that is not finite is the text "nan", "inf" or "-inf".
An .onnx alone is inspected without torch and without onnxruntime.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .bind import Binding, Bindings, bind, odd_values, roots
from .build import MADE, Recognised, recognise
from .canonical import canonicalise
from .checkpoint import Checkpoint, load_checkpoint
from .errors import Graph2TorchError, ModelError
from .files import is_archive, is_folder
from .graph import Array, load
from .judge.figures import max_ulps, same_bits
from .match import Engine, NearMiss, Refusal
from .pair import judge, too_far
from .rulebook import RuleBook, Rules, folders_of, load_rules
from .spec import Block, Coverage, Module, Parameter, PolicySpec
from .text import one_line, printable, quoted

Found: TypeAlias = dict[str, Any]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]

CLIP = 5.0  # the normaliser's bounds
NARROW = 0.005  # a std below NARROW · max(1, |mean|) clips what is off the mean by 2.5 % of that
CONSTANT = 1e-3  # relative room for rounding when a column is called constant
VARIANCE_LIMIT = 1e12  # per step: a std of a million
EPS = 1e-5  # what the naive formulas add, as batch normalisation does
GRID = tuple(k / 2 for k in range(-12, 13))  # observations tried: mean + k · std


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
        from .training.run_folder import inspect_run

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


# ---------------------------------------------------------------------------------------------- an .onnx
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
                "constant": None if o.constant is None else _numbers(o.constant),
            }
            for o, v in zip(spec.outputs, graph.outputs, strict=True)
        ],
        "blocks": [_block(spec, block) for block in spec.blocks],
        "coverage": _coverage(spec.coverage()),
        "unexplained": _unexplained(spec, nearest_misses(spec, recognised.book)),
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


def source_of(block: Block) -> str:
    """The block's code as model.py has it: "nn.Linear(59, 512)", "mu + z * sigma"."""
    return block.code.source if isinstance(block.code, Module) else block.code.text


def _coverage(coverage: Coverage) -> Found:
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
        "percent": _percent(explained, active),
    }


def _percent(explained: int, active: int) -> float:
    return math.floor(1000 * explained / active) / 10 if active else 100.0


def _parameters(spec: PolicySpec) -> Found:
    """The tensors of the blocks, then the constants that unexplained nodes read (they have no `path`).

    An initializer that serves several parameters stands under "merged" and counts once for each of them.
    """
    constants = spec.graph.constants
    tensors: list[Found] = []
    for block in spec.blocks:
        for p in block.parameters:
            tensors.append(_tensor(constants[p.value], path=spec.parameter_path(block, p), name=p.value, trainable=p.trainable))
        if statistics := block.statistics:
            held = {"std": statistics.std, "running_variance": statistics.variance, "normalization_steps": statistics.steps}
            for label, value in held.items():
                if value is not None:
                    tensors.append(_tensor(constants[value], path=f"{spec.module_path(block)}.{label}", name=value, trainable=False))
    tensors += [_tensor(constants[v], path=None, name=v, trainable=None) for v in unexplained_constants(spec)]
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


def _unknown(spec: PolicySpec, bindings: Bindings) -> tuple[str, ...]:
    """Constants of single operators for which no tensor of the checkpoint was found."""
    own = {p.place for block in spec.blocks for p in block.parameters if p.place}
    return tuple(b.initializer for b in bindings.tensors if b.path in own and b.key is None and b.initializer)


def unexplained_constants(spec: PolicySpec) -> tuple[str, ...]:
    """Constants of the graph that unexplained nodes read, each once."""
    return tuple(dict.fromkeys(v for node in spec.unexplained for v in node.inputs if v in spec.graph.constants))


def _tensor(array: Array, **more: object) -> Found:
    return {**more, "shape": list(array.shape), "dtype": array.dtype.name, "numbers": array.size}


def _normalizer(spec: PolicySpec, block: Block) -> Found:
    mean, std = _statistics(spec, block)
    return {
        "role": block.role,
        "module": spec.module_path(block),
        "features": mean.size,
        "folded": block.statistics is not None and block.statistics.std is not None,
        "mean": _range(mean),
        "std": _range(std, median=True),
        "not_finite": int((~np.isfinite(mean) | ~np.isfinite(std)).sum()),
        **_saturating(mean, std),
    }


def _statistics(spec: PolicySpec, block: Block) -> tuple[Floats, Floats]:
    """mean and std [n] as the graph has them; what it leaves unfolded is computed as numpy rounds it."""
    statistics, constants = block.statistics, spec.graph.constants
    assert statistics is not None
    if statistics.std is not None:
        std = constants[statistics.std]
    else:
        assert statistics.variance and statistics.steps
        std = roots(constants[statistics.variance], constants[statistics.steps])["numpy"]
    return constants[statistics.mean].astype(np.float32), std.astype(np.float32)


def _saturating(mean: Floats, std: Floats, constant: Iterable[int] = ()) -> Found:
    """Columns in which hardly anything but the mean stays within the clip.

    A column is listed if std < NARROW · max(1, |mean|), or if it is one of `constant`. ML-Agents starts with a variance
    of 1, so a column that never changes keeps a std of about sqrt((1 + mean²) / steps), however far that shrinks.
    """
    narrow = np.flatnonzero(std < NARROW * np.maximum(1.0, np.abs(mean)))
    never = frozenset(constant)
    columns = [
        {
            "column": i,
            "mean": _number(mean[i]),
            "std": _number(std[i]),
            "clipped_beyond": _number(CLIP * float(std[i])),
            "constant": i in never,
        }
        for i in sorted({*narrow.tolist(), *never})
    ]
    threshold = f"std < {NARROW} · max(1, |mean|)" + (", or constant in training" if never else "")
    return {"saturating": columns, "threshold": threshold}


def _sigma(spec: PolicySpec, block: Block, parameter: Parameter) -> Found:
    """exp(log_sigma), the standard deviation of the actions before clip and scaling."""
    with np.errstate(over="ignore"):
        sigma = np.exp(spec.graph.constants[parameter.value])
    return {"path": spec.parameter_path(block, parameter), "actions": sigma.size, **_range(sigma, average=True)}


def _warnings(spec: PolicySpec) -> list[str]:
    warnings = list(spec.graph.warnings)
    for name in sorted(spec.graph.overridable):
        warnings.append(f"the initializer {quoted(name)} is a graph input too, so whoever runs the graph can replace it")
    return warnings


# ---------------------------------------------------------------------------------------------- a .pt
def inspect_checkpoint(checkpoint: Checkpoint) -> Found:
    """What a checkpoint that was read is: see `inspect_file`."""
    tensors = [
        {"name": name, "same_as": same, **_tensor(array), "values": _numbers(array) if array.size <= 4 else None}
        for name, array, same in _distinct(checkpoint.tensors)
    ]
    normalizers = list(trained_normalizers(checkpoint.tensors))
    return {
        "file": checkpoint.path.name,
        "sha256": checkpoint.sha256,
        "bytes": checkpoint.size,
        "megabytes": round(checkpoint.size / 1e6, 3),
        "step": checkpoint.step,
        "modules": [{"name": name, "tensors": count, "numbers": numbers} for name, (count, numbers) in checkpoint.modules.items()],
        "policy": checkpoint.module,
        "numbers": sum(t["numbers"] for t in tensors if t["same_as"] is None),
        "tensors": tensors,
        "normalizers": [_trained(n) for n in normalizers],
        "odd_values": [*odd_values(checkpoint.tensors.items()), *(fault for n in normalizers for fault in _faults(n))],
        "unread": list(checkpoint.unread),
    }


def _distinct(tensors: Mapping[str, Array]) -> Iterator[tuple[str, Array, str | None]]:
    """Each tensor with the earlier name of the same memory, if it has one: ML-Agents registers its encoders twice."""
    seen: dict[tuple[object, ...], str] = {}
    for name, array in tensors.items():
        place = (array.__array_interface__["data"][0], array.shape, array.dtype.str)
        earlier = seen.setdefault(place, name) if array.size else name
        yield name, array, None if earlier == name else earlier


@dataclass(frozen=True)
class TrainedNormalizer:
    """A normaliser's tensors: mean [n], variance [n] (a sum over all steps) and the steps, one number."""

    name: str
    mean: Floats
    variance: Floats
    steps: int

    @property
    def std(self) -> Floats:
        return roots(self.variance, np.asarray(self.steps))["double"].astype(np.float32)

    def constant(self) -> list[int]:
        """Columns that held one value c throughout training.

        From mean 0 and variance 1 at step 1, N times c leads to a mean of c · N / (N + 1) and to a variance of
        1 + c² · N / (N + 1), which is 1 + mean² · (N + 1) / N; any change of the observation adds to it.
        """
        if self.steps <= 1:
            return []
        with np.errstate(all="ignore"):
            least = 1 + self.mean.astype(np.float64) ** 2 * self.steps / (self.steps - 1)
            held = (self.variance >= 0) & (self.variance <= least * (1 + CONSTANT))
        return [int(i) for i in np.flatnonzero(held)]


def trained_normalizers(tensors: Mapping[str, Array]) -> Iterator[TrainedNormalizer]:
    suffix = ".running_variance"
    for key, variance, same in _distinct(tensors):
        prefix = key.removesuffix(suffix)
        mean, steps = tensors.get(f"{prefix}.running_mean"), tensors.get(f"{prefix}.normalization_steps")
        if same is not None or prefix == key or mean is None or steps is None:
            continue
        if variance.ndim == 1 and mean.shape == variance.shape and steps.size == 1 and variance.dtype.kind == mean.dtype.kind == "f":
            with np.errstate(all="ignore"):
                count = int(steps.astype(np.int64).reshape(()))
            yield TrainedNormalizer(prefix, mean.astype(np.float32), variance.astype(np.float32), count)


def _trained(n: TrainedNormalizer) -> Found:
    with np.errstate(all="ignore"):
        variance = n.variance / np.float32(n.steps)
    return {
        "name": n.name,
        "features": n.mean.size,
        "steps": n.steps,
        "mean": _range(n.mean),
        "running_variance": _range(n.variance),
        "variance": _range(variance),
        "std": _range(n.std, median=True),
        **_saturating(n.mean, n.std, n.constant()),
    }


def _faults(n: TrainedNormalizer) -> Iterator[str]:
    """What is odd in a normaliser's statistics, columns named."""
    where = f"{printable(n.name)}.running_variance"
    with np.errstate(all="ignore"):
        negative, huge = np.flatnonzero(n.variance < 0), np.flatnonzero(n.variance / np.float64(n.steps) > VARIANCE_LIMIT)
    if negative.size:
        yield f"{where}: negative in {_columns(negative, n.variance)}; its square root is NaN"
    if huge.size:
        yield f"{where}: more than {VARIANCE_LIMIT:.0e} a step in {_columns(huge, n.variance)}; whatever is observed there becomes nearly 0"
    if n.steps == 1:
        yield f"{printable(n.name)}.normalization_steps is 1: it was never updated, so mean 0 and std 1 are where it started, not statistics"
    elif n.steps < 1:
        yield f"{printable(n.name)}.normalization_steps is {n.steps:,}; it counts from 1"
    if never := n.constant():
        columns = _columns(np.asarray(never), n.std, "std ")
        yield f"{where}: {columns} never changed in training; any other value is clipped to ±{CLIP:g} once it is {CLIP:g} std away"


def _columns(indices: npt.NDArray[np.intp], values: Floats, label: str = "", limit: int = 6) -> str:
    """`columns 3 (-1.5), 4 (-2) and 7 more`: the first `limit` by number and value."""
    shown = ", ".join(f"{i} ({label}{values[i]:.4g})" for i in indices[:limit].tolist())
    more = f" and {indices.size - limit} more" if indices.size > limit else ""
    return f"column{'s' if indices.size > 1 else ''} {shown}{more}"


# ---------------------------------------------------------------------------------------------- a pair
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


def _disagreement(binding: Binding) -> Found:
    apart = binding.disagreement
    assert apart is not None
    return {
        "parameter": binding.path,
        "checkpoint": binding.key,
        "graph": binding.initializer,
        "elements": apart.elements,
        "of": apart.of,
        "max_abs": _number(apart.max_abs),
        "max_ulps": apart.max_ulps,
        "text": str(apart),
    }


def _agreement(spec: PolicySpec, block: Block, bindings: Bindings) -> Found | None:
    path = spec.module_path(block)
    bound = {b.path: b for b in bindings.tensors}
    variance, steps = bound[f"{path}.running_variance"], bound[f"{path}.normalization_steps"]
    if variance.source != "checkpoint":
        return None
    mean, std = _statistics(spec, block)
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


def formula_errors(mean: Floats, std: Floats, variance: Floats, steps: int) -> list[Found]:
    """How far off the normalised observations would be, had the std been computed otherwise.

    mean, std: [n], as the graph has them; variance: [n] and steps: as the checkpoint has them.

    The observations are mean + k · std, rounded to float32, for every column and every k of GRID (−6 … 6 in halves). The
    reference is (x − mean) / std in float32 with the graph's std. Each formula's own std replaces the graph's, also in
    float32; "float16 statistics" holds mean, variance, steps and observations in float16 and computes there. Given for
    each formula:

    std:         largest |its std − the graph's|
    before_clip: largest |its normalised observation − the reference|
    after_clip:  the same, both clipped to ±5
    not_finite:  normalised observations that are NaN or infinite where the reference is a number
    of:          normalised observations compared
    overflowed:  statistics that became infinite by the conversion to float16

    Errors are over the finite numbers only; None where there is none.
    """
    with np.errstate(all="ignore"):
        total, count = variance.astype(np.float32), np.float32(steps)
        half_mean, half_total, half_count = mean.astype(np.float16), total.astype(np.float16), count.astype(np.float16)
        candidates: list[tuple[str, str, Floats, Floats]] = [
            ("right", "sqrt(running_variance / normalization_steps)", mean, np.sqrt(total / count)),
            ("naive, with eps", f"sqrt(running_variance + {EPS:g})", mean, np.sqrt(total + np.float32(EPS))),
            ("naive", "sqrt(running_variance)", mean, np.sqrt(total)),
            (
                "divided, with eps",
                f"sqrt(running_variance / normalization_steps + {EPS:g})",
                mean,
                np.sqrt(total / count + np.float32(EPS)),
            ),
            ("float16 statistics", "sqrt(running_variance / normalization_steps), in float16", half_mean, np.sqrt(half_total / half_count)),
        ]
        overflowed = sum(
            int((np.isinf(half) & np.isfinite(full)).sum()) for half, full in ((half_mean, mean), (half_total, total), (half_count, count))
        )
        observations = (mean + np.outer(GRID, std.astype(np.float64))).astype(np.float32)
        reference = (observations - mean) / std
        usable = np.isfinite(reference)
        found: list[Found] = []
        for name, formula, center, scale in candidates:
            given = (observations.astype(center.dtype) - center) / scale
            finite = usable & np.isfinite(given)
            found.append(
                {
                    "name": name,
                    "formula": formula,
                    "std": _largest(scale, std, np.isfinite(scale) & np.isfinite(std)),
                    "before_clip": _largest(given, reference, finite),
                    "after_clip": _largest(given.clip(-CLIP, CLIP), reference.clip(-CLIP, CLIP), finite),
                    "not_finite": int((usable & ~finite).sum()),
                    "of": int(usable.sum()),
                    "overflowed": overflowed if center.dtype == np.float16 else 0,
                }
            )
    return found


def _largest(a: Floats, b: Floats, where: npt.NDArray[np.bool_]) -> float | str | None:
    """Largest |a − b| where `where`; None if that is nowhere."""
    apart = np.abs(a.astype(np.float64) - b.astype(np.float64))[where]
    return _number(apart.max()) if apart.size else None


# ---------------------------------------------------------------------------------------------- rules
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
    unexplained = {entry["index"]: entry for entry in _unexplained(spec, nearest)}
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
    return {"file": recognised.model.path.name, "family": spec.family, "title": spec.title, "coverage": _coverage(coverage), "nodes": nodes}


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
        counts = _coverage(coverage)
        entry |= {"title": spec.title, **counts, "architecture": sum(counts["by_rule"].values()) - counts["generic"]}
        totals.update({key: entry[key] for key in ("nodes", "architecture", "generic", "inert", "unexplained")})
        totals["whole"] += entry["nodes"] == entry["architecture"] + entry["inert"]
        for kind, indices in (("generic", coverage.generic), ("unexplained", coverage.unexplained)):
            kinds[kind].update(spec.graph.file_nodes[i].op for i in indices)
    active = totals["nodes"] - totals["inert"]
    sums: Found = {key: totals[key] for key in ("nodes", "architecture", "generic", "inert", "unexplained", "whole")}
    sums |= {"models": len(models), "refused": sum("error" in m for m in models)}
    sums["percent"] = _percent(totals["architecture"], active)
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


def _unexplained(spec: PolicySpec, nearest: Mapping[int, NearMiss]) -> list[Found]:
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


# ---------------------------------------------------------------------------------------------- numbers
def _number(value: Any) -> float | str:
    """As json can write it: what is not finite becomes a text."""
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _numbers(array: Array) -> list[float | int | bool | str]:
    return [_number(x) if isinstance(x, float) else x for x in array.reshape(-1).tolist()]


def _range(array: Array, median: bool = False, average: bool = False) -> Found:
    """Smallest and largest (and median or mean) of the finite numbers; None where there is none."""
    finite = array[np.isfinite(array)].astype(np.float64)
    found: Found = {"min": _number(finite.min()) if finite.size else None}
    if median:
        found["median"] = _number(_median(finite)) if finite.size else None
    if average:
        found["mean"] = _number(finite.mean()) if finite.size else None
    return {**found, "max": _number(finite.max()) if finite.size else None}


def _median(numbers: npt.NDArray[np.float64]) -> float:
    """As np.median, which imports numpy.ma for it: a tenth of the whole inspection."""
    ordered = np.sort(numbers)
    return float(ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2
