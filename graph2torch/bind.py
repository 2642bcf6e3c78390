"""Which tensor became which parameter, by its use in the graph.

torch's exporter merges equal tensors (two zero biases become one initializer), so names alone mislead: each block gets
a *module* of the checkpoint, chosen by what the block is, what the graph calls its tensors, and what they hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from .checkpoint import Checkpoint
from .errors import PairError
from .graph import Array, Graph
from .judge.figures import max_ulps, same_bits
from .spec import Block, Module, Parameter, PolicySpec, Rearrangement, Transform
from .text import printable, quoted

Weights = Literal["checkpoint", "onnx"]
MANY_ULPS = 10**6  # beyond that (other signs, other magnitudes) the number says nothing
STD_ULPS = 2  # sqrt(variance / steps) may differ that much from the std that the exporter's machine computed


@dataclass(frozen=True, slots=True)
class Disagreement:
    """How far two tensors of one shape are apart. `ulps` is None where either has a NaN or they are not float32."""

    elements: int
    of: int
    max_abs: float
    max_ulps: int | None

    def __str__(self) -> str:
        ulps = "" if self.max_ulps is None or self.max_ulps > MANY_ULPS else f", {self.max_ulps:,} ulp"
        return f"{self.elements:,} of {self.of:,} elements differ, by up to {self.max_abs:.3g}{ulps}"


@dataclass(frozen=True, slots=True)
class Binding:
    """One tensor of the policy and where it comes from.

    path:      its key in the policy's state_dict
    key:       its key in the checkpoint, None if there is none
    initializer: its name in the graph, None if the graph has none
    transform: from that tensor to the policy's ("as is", "transposed", "sqrt(running_variance / normalization_steps)")
    agrees:    whether checkpoint and graph hold the same bits; None where only one of them has it
    """

    path: str
    value: Array
    trainable: bool
    source: Literal["checkpoint", "graph", "derived"]
    key: str | None
    initializer: str | None
    transform: str
    agrees: bool | None = None
    disagreement: Disagreement | None = None
    note: str = ""


@dataclass(frozen=True)
class Bindings:
    """All tensors of a policy, in the order of its blocks, and what the pair says about itself.

    keys:   module of the policy → module of the checkpoint
    unused: the checkpoint's keys that no block took
    missing: roles of the blocks that the checkpoint has no module for
    misfit: the first place where the checkpoint is of another network than the graph, in words; "" if there is none
    """

    tensors: tuple[Binding, ...]
    keys: Mapping[str, str]
    unused: tuple[str, ...] = ()
    checkpoint: Checkpoint | None = None
    metadata: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    misfit: str = ""

    @property
    def disagreements(self) -> tuple[Binding, ...]:
        return tuple(b for b in self.tensors if b.disagreement is not None)

    @property
    def verdict(self) -> Literal["same", "drift", "other network", "no checkpoint"]:
        """What the numbers of the two files say: the same, others ("drift"), or those of a network that is built otherwise.

        `graph2torch.pair` looks further, at how far they are apart and at what lies beside them.
        """
        if self.checkpoint is None:
            return "no checkpoint"
        if self.misfit:
            return "other network"
        return "drift" if self.disagreements or self.metadata else "same"


def check_weights(weights: str) -> None:
    """Raises PairError unless it says whose weights to take."""
    if weights not in get_args(Weights):
        raise PairError(f"{quoted(str(weights))} doesn't say whose weights to take; give 'checkpoint' or 'onnx'.")


def bind(spec: PolicySpec, checkpoint: Checkpoint | None, weights: Weights = "checkpoint") -> Bindings:
    """A tensor for every parameter of `spec`: the checkpoint's if there is one, or the graph's (`weights="onnx"`).

    Raises PairError if the checkpoint is of another network (`misfit`), unless the graph's weights are asked for.
    """
    tensors = checkpoint.tensors if checkpoint else {}
    prefixes = _modules(spec, tensors)
    bound: list[Binding] = []
    own: dict[str, Binding] = {}
    for block in spec.blocks:
        prefix = prefixes.get(id(block))
        for parameter in block.parameters:
            if not parameter.place:
                bound.append(_bind_one(spec, block, parameter, prefix, tensors, weights))
            elif parameter.place not in own:
                own[parameter.place] = _bind_own(spec, block, parameter, tensors, weights)
                bound.append(own[parameter.place])
        if block.statistics:
            bound += _bind_statistics(spec, block, prefix, tensors, weights)
    used = {b.key for b in bound if b.key} | {o.key for o in spec.outputs if o.key}
    found = Bindings(
        tensors=tuple(bound),
        keys=_table(spec, prefixes if checkpoint else _named(spec))
        | {b.path: b.key for b in own.values() if b.key and b.transform == "as is"},
        unused=tuple(k for k in tensors if k not in used),
        checkpoint=checkpoint,
        metadata=(*_metadata(spec, tensors), *_nonzero(spec, prefixes, tensors)),
        missing=tuple(block.role for block in _missing(spec, prefixes)) if checkpoint else (),
    )
    if checkpoint:
        found = replace(found, misfit=next(_misfits(spec, prefixes, own, found), ""))
    if checkpoint and found.misfit and weights == "checkpoint":
        raise PairError(
            f"{printable(checkpoint.path.name)} is of another network than the graph: {found.misfit}. "
            "Give the .pt of the same training, or build from the graph alone with --weights onnx."
        )
    return found


def _missing(spec: PolicySpec, prefixes: Mapping[int, str]) -> Iterator[Block]:
    return (b for b in spec.blocks if any(not p.place for p in b.parameters) and id(b) not in prefixes)


def _misfits(spec: PolicySpec, prefixes: Mapping[int, str], own: Mapping[str, Binding], found: Bindings) -> Iterator[str]:
    """Where the checkpoint's network is built otherwise: modules it lacks, tensors of other shapes, layers it has too many."""
    tensors = found.checkpoint.tensors if found.checkpoint else {}
    for block in _missing(spec, prefixes):
        shapes = ", ".join(f"{p.name} {list(_wanted(spec.graph, p).shape)}" for p in block.parameters)
        yield f"it has no module for the {block.role} ({shapes}{_nearest(spec, block, tensors)})"
    for block in spec.blocks:
        for parameter in block.parameters:
            named = [name for name in _names(spec, block, parameter) if name in tensors] if parameter.place else []
            if named and own[parameter.place].key is None:
                graphs, theirs = spec.graph.constants[parameter.value], tensors[named[0]]
                yield f"its {quoted(named[0])} is {theirs.dtype} {list(theirs.shape)}, the graph's {graphs.dtype} {list(graphs.shape)}"
    if found.disagreements:
        places = [prefixes[id(b)].rpartition(".") for b in spec.blocks if b.sequence and id(b) in prefixes]
        sequences = tuple(f"{above}." for above, _, number in places if number.isdigit())
        taken = tuple(f"{prefix}." for prefix in prefixes.values())
        for key in found.unused:
            if key.startswith(sequences) and not key.startswith(taken):
                yield f"its {quoted(key)} {list(tensors[key].shape)} is of a layer that the graph doesn't have"


# ---------------------------------------------------------------------------------------------- modules
def _modules(spec: PolicySpec, tensors: Mapping[str, Array]) -> dict[int, str]:
    """block → the checkpoint's module it takes its tensors from (only for blocks where one fits)."""
    chosen: dict[int, str] = {}
    claimed: set[str] = set()
    for block in spec.blocks:
        if not block.parameters or not tensors:
            continue
        likely = [*spec.prefixes(block), *_prefixes(spec, block)]
        suffix = next(iter(p.key for p in block.parameters if p.key), None)
        everywhere = [k.removesuffix(f".{suffix}") for k in tensors if suffix and k.endswith(f".{suffix}")]
        fitting = [p for p in dict.fromkeys([*likely, *everywhere]) if _fits(spec.graph, block, p, tensors)]
        if not fitting:
            continue
        names = {n for p in block.parameters for n in _names(spec, block, p)}
        ranked = sorted(
            fitting,
            key=lambda p: (
                p in claimed,
                -sum(_same_bits(spec.graph, block, p, tensors)) if p in likely else 1,
                p not in likely,
                -sum(f"{p}.{q.key}" in names for q in block.parameters),
                likely.index(p) if p in likely else len(likely),
            ),
        )
        best = ranked[0]
        if best not in likely and not all(_same_bits(spec.graph, block, best, tensors)):
            continue  # a module of the right shape, but nothing says that it is this one
        chosen[id(block)] = best
        claimed.add(best)
    return chosen


def _names(spec: PolicySpec, block: Block, parameter: Parameter) -> tuple[str, ...]:
    """Every name the graph gives to the parameter at this use of it."""
    indices = set(block.nodes)
    names: list[str] = []
    for node in spec.graph.nodes:
        if node.index in indices:
            for value, spelled in zip(node.inputs, node.spelled, strict=False):
                if value == parameter.value:
                    names += spec.graph.names_of(spelled)
    return tuple(dict.fromkeys(names))


def _prefixes(spec: PolicySpec, block: Block) -> list[str]:
    """Modules that the graph's names hint at: `a.b.weight` for a parameter with the key `weight` is `a.b`."""
    found: list[str] = []
    for parameter in block.parameters:
        if parameter.key:
            found += [n.removesuffix(f".{parameter.key}") for n in _names(spec, block, parameter) if n.endswith(f".{parameter.key}")]
    return list(dict.fromkeys(sorted(found, key=lambda p: -found.count(p))))


def _named(spec: PolicySpec) -> dict[int, str]:
    """block → module, by the graph's names alone, or else by what the block is (there is no checkpoint)."""
    named: dict[int, str] = {}
    for block in spec.blocks:
        for prefix in (*_prefixes(spec, block), *spec.prefixes(block)[:1]):
            if prefix not in named.values() and any(p.key for p in block.parameters):
                named[id(block)] = prefix
                break
    return named


def _wanted(graph: Graph, parameter: Parameter) -> Array:
    """The parameter as the layer holds it, from the graph's constant."""
    return transform(graph.constants[parameter.value], parameter.transform)


def transform(array: Array, how: Transform) -> Array:
    """The graph's constant as the layer's tensor."""
    if isinstance(how, Rearrangement):
        return np.ascontiguousarray(how.apply(array))
    return np.ascontiguousarray(array.T) if how == "transposed" else array


def _fits(graph: Graph, block: Block, prefix: str, tensors: Mapping[str, Array]) -> bool:
    keyed = [p for p in block.parameters if p.key]
    return bool(keyed) and all(
        (t := tensors.get(f"{prefix}.{p.key}")) is not None and t.shape == _wanted(graph, p).shape and t.dtype == _wanted(graph, p).dtype
        for p in keyed
    )


def _same_bits(graph: Graph, block: Block, prefix: str, tensors: Mapping[str, Array]) -> list[bool]:
    return [same_bits(_wanted(graph, p), tensors[f"{prefix}.{p.key}"]) for p in block.parameters if p.key]


def _nearest(spec: PolicySpec, block: Block, tensors: Mapping[str, Array]) -> str:
    """What the checkpoint has in the block's place, for the message."""
    for prefix in (*spec.prefixes(block), *_prefixes(spec, block)):
        there = [f"{p.name} {list(tensors[f'{prefix}.{p.key}'].shape)}" for p in block.parameters if f"{prefix}.{p.key}" in tensors]
        if there:
            return f"; there {', '.join(there)}"
    return ""


# ---------------------------------------------------------------------------------------------- tensors
def _bind_one(
    spec: PolicySpec, block: Block, parameter: Parameter, prefix: str | None, tensors: Mapping[str, Array], weights: Weights
) -> Binding:
    graphs = _wanted(spec.graph, parameter)
    key = f"{prefix}.{parameter.key}" if prefix and parameter.key else None
    theirs = tensors.get(key) if key else None
    bound = Binding(
        spec.parameter_path(block, parameter), graphs, parameter.trainable, "graph", key, parameter.value, str(parameter.transform)
    )
    if theirs is None:
        return bound
    agrees = same_bits(graphs, theirs)
    bound = replace(bound, agrees=agrees, disagreement=None if agrees else compare(graphs, theirs))
    return replace(bound, value=theirs, source="checkpoint") if weights == "checkpoint" else bound


def _bind_own(spec: PolicySpec, block: Block, parameter: Parameter, tensors: Mapping[str, Array], weights: Weights) -> Binding:
    """A tensor of single operators: the checkpoint's of the same name, or the one that holds the same numbers.

    No rule says what such a tensor is, so one that the checkpoint doesn't have is the graph's.
    """
    graphs = spec.graph.constants[parameter.value]
    bound = Binding(parameter.place, graphs, parameter.trainable, "graph", None, parameter.value, "as is")
    named = [name for name in _names(spec, block, parameter) if name in tensors]
    telling = graphs.dtype.kind == "f" and np.unique(graphs).size > 1  # ones are like any other ones
    alike = [key for key, theirs in tensors.items() if telling and theirs.size == graphs.size]
    for key in (*named, *alike):
        for transform in ("as is", "transposed") if graphs.ndim == 2 else ("as is",):
            theirs = tensors[key].T if transform == "transposed" else tensors[key]
            if same_bits(np.ascontiguousarray(theirs), graphs):
                bound = replace(bound, key=key, transform=transform, agrees=True)
                return replace(bound, source="checkpoint") if weights == "checkpoint" else bound
    for key in named:
        theirs = tensors[key]
        if (theirs.shape, theirs.dtype) == (graphs.shape, graphs.dtype):
            bound = replace(bound, key=key, agrees=False, disagreement=compare(graphs, theirs))
            return replace(bound, value=theirs, source="checkpoint") if weights == "checkpoint" else bound
    return bound


def _bind_statistics(spec: PolicySpec, block: Block, prefix: str | None, tensors: Mapping[str, Array], weights: Weights) -> list[Binding]:
    """running_variance, normalization_steps and std of a normaliser.

    The graph's std is the exporter's rounding of sqrt(variance / steps) and rules the forward; the checkpoint's
    statistics only explain it, unless they are further off than rounding can be.
    """
    statistics, graph, path = block.statistics, spec.graph, spec.module_path(block)
    assert statistics is not None
    keys = {name: f"{prefix}.{name}" for name in ("running_variance", "normalization_steps")} if prefix else {}
    variance, steps = (tensors.get(keys.get(name, "")) for name in ("running_variance", "normalization_steps"))
    if statistics.std is not None:
        std = graph.constants[statistics.std]
    else:
        assert statistics.variance and statistics.steps
        std = roots(graph.constants[statistics.variance], graph.constants[statistics.steps])["numpy"]
    initializer = statistics.std
    std_binding = Binding(f"{path}.std", std, False, "graph", None, initializer, "as is")
    if variance is None or steps is None or variance.shape != std.shape or steps.size != 1:
        note = "not in the graph: chosen so that sqrt(running_variance / normalization_steps) is its std"
        squared = (std.astype(np.float64) ** 2).astype(np.float32)
        return [
            Binding(f"{path}.running_variance", squared, False, "derived", None, None, "std²", note=note),
            Binding(f"{path}.normalization_steps", np.asarray(1, np.int64), False, "derived", None, None, "1", note=note),
            std_binding,
        ]
    found = roots(variance, steps)
    formula = "sqrt(running_variance / normalization_steps)"
    which = [name for name, root in found.items() if same_bits(root, std)]
    far = max_ulps(found["numpy"], std)
    within = far is not None and far <= STD_ULPS
    if which:
        note = f"bit-equal to {formula}, rounded as {' and '.join(which)} round it"
    else:
        note = f"{formula} is within {far} ulp" if within else f"{formula} disagrees"
    if within or which:
        std_binding = replace(std_binding, key=keys["running_variance"], transform=formula, agrees=True, note=note)
    else:
        apart = compare(std, found["numpy"])
        std_binding = replace(std_binding, key=keys["running_variance"], transform=formula, agrees=False, disagreement=apart, note=note)
        if weights == "checkpoint":
            std_binding = replace(std_binding, value=found["double"], source="checkpoint")
    return [
        Binding(f"{path}.running_variance", variance, False, "checkpoint", keys["running_variance"], None, "as is"),
        Binding(
            f"{path}.normalization_steps",
            steps.astype(np.int64).reshape(()),
            False,
            "checkpoint",
            keys["normalization_steps"],
            None,
            "as is",
        ),
        std_binding,
    ]


def roots(variance: Array, steps: Array) -> dict[str, Array]:
    """sqrt(variance / steps) as numpy rounds it in float32, and as the float64 root of the float32 quotient rounds."""
    with np.errstate(all="ignore"):
        quotient = variance.astype(np.float32) / np.float32(steps.reshape(()))
        return {"numpy": np.sqrt(quotient), "double": np.sqrt(quotient.astype(np.float64)).astype(np.float32)}


def _metadata(spec: PolicySpec, tensors: Mapping[str, Array]) -> tuple[str, ...]:
    """Fixed outputs (action sizes, memory size …) that the checkpoint knows otherwise."""
    faults = []
    for output in spec.outputs:
        theirs = tensors.get(output.key or "")
        if output.constant is not None and theirs is not None and not np.array_equal(theirs.reshape(-1), output.constant.reshape(-1)):
            faults.append(
                f"{quoted(output.name)} is {output.constant.reshape(-1).tolist()[:8]} in the graph and {theirs.reshape(-1).tolist()[:8]} in the checkpoint ({printable(output.key or '')})"
            )
    return tuple(faults)


def _nonzero(spec: PolicySpec, prefixes: Mapping[int, str], tensors: Mapping[str, Array]) -> tuple[str, ...]:
    """Tensors that the exporter left away as zeros, and that are not zero in the checkpoint."""
    keys = [f"{prefixes[id(block)]}.{key}" for block in spec.blocks if id(block) in prefixes for key in block.zeros]
    wrong = [(key, tensors[key]) for key in keys if key in tensors and np.any(tensors[key])]
    return tuple(
        f"{quoted(key)} is zero in the graph and not in the checkpoint, where it reaches {np.abs(t).max():.3g}" for key, t in wrong
    )


def _table(spec: PolicySpec, prefixes: Mapping[int, str]) -> dict[str, str]:
    """The policy's modules → the checkpoint's; one entry for a sequence that stands there with the same places, alone."""
    single: dict[str, str] = {}
    for block in spec.blocks:
        prefix = prefixes.get(id(block))
        if prefix is None:
            continue
        if isinstance(block.code, Module):
            single[spec.module_path(block)] = prefix
        else:
            single.update({spec.parameter_path(block, p): f"{prefix}.{p.key}" for p in block.parameters if p.key})
    table: dict[str, str] = {}
    for here, there in single.items():
        group, _, number = here.rpartition(".")
        above, _, last = there.rpartition(".")
        inside = {h for h, t in single.items() if t.startswith(f"{above}.")}
        together = group and number == last and inside == {h for h in single if h.startswith(f"{group}.")}
        table[group if together else here] = above if together else there
    return table


# ---------------------------------------------------------------------------------------------- comparing arrays
def compare(a: Array, b: Array) -> Disagreement:
    """How far `b` is from `a`, both of one shape."""
    bits = f"u{a.dtype.itemsize}"
    different = int(np.count_nonzero(np.ascontiguousarray(a).view(bits) != np.ascontiguousarray(b).astype(a.dtype).view(bits)))
    with np.errstate(all="ignore"):
        apart = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return Disagreement(different, a.size, float(np.max(apart, initial=0.0)), max_ulps(a, b) if a.dtype == np.float32 else None)


def odd_values(tensors: Iterable[tuple[str, Array]]) -> list[str]:
    """What looks wrong in named tensors: NaN and infinity."""
    found = []
    for name, array in tensors:
        if array.dtype.kind == "f":
            nan, inf = int(np.isnan(array).sum()), int(np.isinf(array).sum())
            if nan or inf:
                found.append(
                    f"{printable(name)}: {' and '.join(f'{n:,} {what}' for n, what in ((nan, 'NaN'), (inf, 'infinite')) if n)} of {array.size:,}"
                )
    return found


__all__ = ["STD_ULPS", "Binding", "Bindings", "Disagreement", "bind", "compare", "odd_values", "roots"]
