"""What two graphs take and give, laid on each other: inputs and outputs that belong together, and in what they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graph2torch.graph import Graph, ValueInfo
from graph2torch.judge.correspondence import pair_declared
from graph2torch.text import quoted


@dataclass(frozen=True)
class Interface:
    """Inputs and outputs of graph a and of graph b, paired by name, else by type and size.

    inputs, outputs: pairs, in a's order; outputs as places
    removed, added:  inputs and outputs (by kind, "input" or "output") of a only, of b only
    unread:          inputs of a only and of b only that no output depends on, which are no difference
    resized:         pairs of another type, of another number of sizes or of another fixed size, by kind; they can't be the same
    loosened:        pairs of which one fixes a size that the other leaves free
    renamed:         pairs with different names
    reordered:       whether the outputs come in another order
    """

    inputs: tuple[tuple[ValueInfo, ValueInfo], ...]
    outputs: tuple[tuple[int, int], ...]
    removed: tuple[tuple[str, ValueInfo], ...]
    added: tuple[tuple[str, ValueInfo], ...]
    unread: tuple[tuple[ValueInfo, ...], tuple[ValueInfo, ...]]
    resized: tuple[tuple[str, ValueInfo, ValueInfo], ...]
    loosened: tuple[tuple[ValueInfo, ValueInfo], ...]
    renamed: tuple[tuple[str, str, str], ...]
    reordered: bool

    @property
    def same(self) -> bool:
        """Whether each takes what the other takes and gives what it gives; names, order and free sizes aside."""
        return not (self.removed or self.added or self.resized)

    @property
    def feedable(self) -> bool:
        """Whether one observation fits both; its numbers may be converted to another float type."""
        sides = [value for kind, value in (*self.removed, *self.added) if kind == "input"]
        return not sides and not any(kind == "input" and not (same_sizes(x, y) and convertible(x, y)) for kind, x, y in self.resized)


def lay(a: Graph, b: Graph) -> Interface:
    """Lays the inputs and outputs of `b` on those of `a`."""
    pairs: list[tuple[str, ValueInfo, ValueInfo]] = []
    removed: list[tuple[str, ValueInfo]] = []
    added: list[tuple[str, ValueInfo]] = []
    for kind, mine, theirs in (("input", a.inputs, b.inputs), ("output", a.outputs, b.outputs)):
        by_name, own = {v.name: v for v in theirs}, {v.name: v for v in mine}
        names = {x: y for x, y in pair_declared(mine, theirs).items() if x == y or _alike(own[x], by_name[y])}
        pairs += [(kind, v, by_name[names[v.name]]) for v in mine if v.name in names]
        removed += [(kind, v) for v in mine if v.name not in names]
        added += [(kind, v) for v in theirs if v.name not in set(names.values())]
    unread = [tuple(v for kind, v in alone if kind == "input" and v.name not in _read(g)) for alone, g in ((removed, a), (added, b))]
    places = {v.name: i for i, v in enumerate(a.outputs)}, {v.name: i for i, v in enumerate(b.outputs)}
    outputs = tuple((places[0][x.name], places[1][y.name]) for kind, x, y in pairs if kind == "output")
    return Interface(
        inputs=tuple((x, y) for kind, x, y in pairs if kind == "input"),
        outputs=outputs,
        removed=tuple(entry for entry in removed if entry[1] not in unread[0]),
        added=tuple(entry for entry in added if entry[1] not in unread[1]),
        unread=(unread[0], unread[1]),
        resized=tuple(pair for pair in pairs if not same_sizes(pair[1], pair[2]) or pair[1].dtype != pair[2].dtype),
        loosened=tuple((x, y) for _, x, y in pairs if same_sizes(x, y) and _fixed(x) != _fixed(y)),
        renamed=tuple((kind, x.name, y.name) for kind, x, y in pairs if x.name != y.name),
        reordered=[j for _, j in outputs] != sorted(j for _, j in outputs),
    )


def _read(graph: Graph) -> set[str]:
    """What the nodes of a canonical graph read, and what is an output as it is."""
    return {v for n in graph.nodes for v in n.inputs} | set(graph.results)


def same_sizes(x: ValueInfo, y: ValueInfo) -> bool:
    """As many sizes, and the fixed ones the same wherever both fix them."""
    pairs = zip(x.shape, y.shape, strict=False)
    return len(x.shape) == len(y.shape) and all(m == n for m, n in pairs if isinstance(m, int) and isinstance(n, int))


def convertible(x: ValueInfo, y: ValueInfo) -> bool:
    """One kind of number: float16 for float32, int32 for int64."""
    return x.dtype.kind == y.dtype.kind


def _alike(x: ValueInfo, y: ValueInfo) -> bool:
    """Whether two values of different names may be the same one, renamed."""
    return convertible(x, y) and same_sizes(x, y) and _fixed(x) == _fixed(y)


def _fixed(value: ValueInfo) -> tuple[bool, ...]:
    return tuple(isinstance(size, int) for size in value.shape)


def under_names(b: Graph, found: Interface, a: Graph) -> tuple[Graph, Mapping[str, str]]:
    """`b` with its paired inputs and outputs under a's names and in a's order; and the values that had to be renamed → their names before.

    Sizes that one of the two leaves free are as in `a`: what is the same is the same for every input that both accept. Outputs without a counterpart are left out.
    """
    names = {y.name: x.name for x, y in found.inputs}
    used = {*b.constants, *(i.name for i in b.inputs), *(o for n in b.nodes for o in n.outputs)}
    for value in sorted((set(names.values()) & used) - names.keys()):
        fresh = f"{value}'"
        while fresh in used or fresh in names.values():
            fresh += "'"
        names[value] = fresh
    changed = {old: new for old, new in names.items() if old != new}

    def named(values: Sequence[str]) -> tuple[str, ...]:
        return tuple(changed.get(v, v) for v in values)

    shapes = {y.name: x.shape for x, y in found.inputs if same_sizes(x, y)}
    outputs = tuple(replace(b.outputs[j], name=a.outputs[i].name) for i, j in found.outputs)
    nodes = b.nodes
    if changed:
        nodes = tuple(replace(n, inputs=named(n.inputs), outputs=named(n.outputs)) for n in b.nodes)
    graph = replace(
        b,
        inputs=tuple(replace(i, name=changed.get(i.name, i.name), shape=shapes.get(i.name, i.shape)) for i in b.inputs),
        outputs=outputs,
        results=named([b.results[j] for _, j in found.outputs]),
        nodes=nodes,
        constants={changed.get(k, k): v for k, v in b.constants.items()},
        overridable=frozenset(named(sorted(b.overridable))),
    )
    return graph, {new: old for old, new in changed.items()}


def differences(found: Interface, observations: frozenset[str] = frozenset()) -> list[str]:
    """In what the two differ, in words. `observations`: names of inputs that are known to be some."""
    words = []
    for kind, x, y in found.resized:
        name = quoted(x.name) if x.name == y.name else f"{quoted(x.name)} → {quoted(y.name)}"
        dtypes = f", {x.dtype} → {y.dtype}" if x.dtype != y.dtype else ""
        sizes = "" if same_sizes(x, y) else f" {x.size} → {y.size}"
        words.append(f"{_called(kind, x, observations)} {name}{sizes}{dtypes}".replace(f"{name},", f"{name}:"))
    for values, how in ((found.removed, "less"), (found.added, "more")):
        for kind, value in values:
            if kind == "input" and value.name in observations:
                sizes = " × ".join(str(d) for d in value.shape[1:]) if all(isinstance(d, int) for d in value.shape[1:]) else value.size
                words.append(f"an observation of {sizes} {how}: {quoted(value.name)}")
            else:
                words.append(f"an {kind} {how}: {quoted(value.name)} {value.size}")
    return words


def _called(kind: str, value: ValueInfo, observations: frozenset[str]) -> str:
    return "observation" if kind == "input" and value.name in observations else kind
