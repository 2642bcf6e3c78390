"""Likely causes of a difference between two graphs, in words: the faults that hand-made ports are known for.

Nothing is guessed. Each cause is a hypothesis about the second graph ("its variance was not divided by its steps") that is
measured on the numbers and nodes of both, and told only if it holds to the bit, or to the rounding that it must allow for.
All of them look at the pairs of a `Correspondence`, so neither names nor the order of nodes matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np

from graph2torch.graph import Array, Graph, Node
from graph2torch.text import quoted

from .correspondence import Correspondence, pair_operands
from .divergence import Divergence
from .figures import as_bfloat16, different_bits, max_ulps, pieces, same_bits

EPSILONS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # added to a variance, or to its root, against division by zero
UNLIKE = 1e-3  # a factor nearer to 1 scales nothing
ROUNDING = 2  # units in the last place that a formula computed on another machine may be off
MASKING = 1e4  # a number this large only pushes forbidden options out of reach
DISTINCT = 4  # how many magnitudes a tensor must have to be called a multiple; of fewer it is too easily one
EVIDENCE = 32  # how many numbers must have been rounded, since a few may be round by chance
NEAR = 0.5  # how far weights may be from the others, by norm, to be of the same training
GATES = {"LSTM": "iofc", "GRU": "zrh"}  # ONNX's order
TORCH_GATES = {"LSTM": "ifco", "GRU": "rzh"}
ACTIVATIONS = {
    "Relu": "ReLU", "LeakyRelu": "leaky ReLU", "Elu": "ELU", "Selu": "SELU", "Celu": "CELU", "Gelu": "GELU", "Mish": "Mish",
    "Sigmoid": "sigmoid", "HardSigmoid": "hard sigmoid", "HardSwish": "hard swish", "Tanh": "tanh", "Softplus": "softplus",
    "Softsign": "softsign", "ThresholdedRelu": "thresholded ReLU", "PRelu": "PReLU",
}  # fmt: skip
LAYERS = frozenset({"Gemm", "MatMul", "Conv", "ConvTranspose", "LSTM", "GRU", "RNN"})


@dataclass(frozen=True)
class Cause:
    """name: of the hypothesis, for a report; words: what was measured; nodes: a's (b's, where a has none) that it is about."""

    name: str
    words: str
    nodes: tuple[Node, ...] = ()


def likely_causes(a: Graph, b: Graph, found: Correspondence, divergence: Divergence | None = None) -> tuple[Cause, ...]:
    """The hypotheses that hold for two canonical graphs and their correspondence; those about the divergence's node first.

    Of several that explain the same, the strictest is told. None may hold: then the place and the numbers have to do.
    None is told of two graphs of which more is without a counterpart than has one.
    """
    if len(found.removed) + len(found.added) > len(found.nodes):  # two networks that have little to do with each other
        return ()
    evidence = Evidence(a, b, found)
    causes = [cause for group in CAUSES if (cause := next((c for try_ in group if (c := try_(evidence)) is not None), None)) is not None]
    node = divergence.node if divergence else None
    return tuple(sorted(causes, key=lambda cause: node is None or node.index not in {n.index for n in cause.nodes}))


@dataclass(frozen=True, eq=False)
class Site:
    """A place where both graphs have a constant: nodes that are counterparts, the operand's number in a's, names and numbers."""

    x: Node
    y: Node
    place: int
    name: str
    mine: Array
    theirs: Array

    @property
    def comparable(self) -> bool:
        return self.mine.shape == self.theirs.shape and self.mine.dtype == self.theirs.dtype


@dataclass(frozen=True)
class Evidence:
    """Two canonical graphs and what belongs together in them."""

    a: Graph
    b: Graph
    found: Correspondence

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        sites = []
        for x, y in self.found.nodes:
            for v, w in pair_operands(self.a, x, self.b, y, self.found.values):
                if v in self.a.constants and w in self.b.constants:
                    sites.append(Site(x, y, x.inputs.index(v), v, self.a.constants[v], self.b.constants[w]))
        return tuple(sites)

    @cached_property
    def differing(self) -> tuple[Site, ...]:
        return tuple(s for s in self.sites if not same_bits(s.mine, s.theirs))

    @cached_property
    def weights(self) -> tuple[Site, ...]:
        """Float tensors of more than one number."""
        return tuple(s for s in self.sites if s.mine.dtype.kind == "f" and s.mine.size > 1)

    @cached_property
    def makers(self) -> tuple[dict[str, Node], dict[str, Node]]:
        first, second = ({v: n for n in g.nodes for v in n.outputs if v} for g in (self.a, self.b))
        return first, second

    @cached_property
    def users(self) -> tuple[dict[str, list[Node]], dict[str, list[Node]]]:
        return self.a.users(), self.b.users()

    @cached_property
    def inputs(self) -> tuple[frozenset[str], frozenset[str]]:
        return frozenset(i.name for i in self.a.inputs), frozenset(i.name for i in self.b.inputs)

    def graph(self, side: int) -> Graph:
        return (self.a, self.b)[side]

    def maker(self, node: Node, place: int, side: int = 0) -> Node | None:
        return self.makers[side].get(node.inputs[place]) if place < len(node.inputs) else None

    def alone(self, side: int) -> tuple[Node, ...]:
        return (self.found.removed, self.found.added)[side]

    def is_scale(self, node: Node | None, side: int) -> bool:
        """Whether a node divides by a constant what another one was subtracted from, as a normaliser does."""
        constants = self.graph(side).constants
        if node is None or node.op != "Div" or node.inputs[1] not in constants:
            return False
        shift = self.maker(node, 0, side)
        return shift is not None and shift.op == "Sub" and shift.inputs[1] in constants

    @property
    def deviations(self) -> Iterator[Site]:
        """The standard deviations of normalisers, where they differ."""
        return (s for s in self.differing if s.place == 1 and self.is_scale(s.x, 0) and s.comparable and s.mine.dtype.kind == "f")


# ---------------------------------------------------------------------------------------------- normalisers
def not_divided_by_steps(evidence: Evidence) -> Cause | None:
    """sqrt(variance) for sqrt(variance / steps): in all places the square is the same whole number of times as large."""
    for site in evidence.deviations:
        mine, theirs = site.mine.astype(np.float64).reshape(-1), site.theirs.astype(np.float64).reshape(-1)
        if not (mine.size > 1 and np.all(mine > 0) and np.all(theirs > 0) and np.isfinite(mine).all() and np.isfinite(theirs).all()):
            continue
        for one, two, which in ((mine, theirs, "second"), (theirs, mine, "first")):
            steps = round(float(np.sort((two / one) ** 2)[mine.size // 2]))  # their median
            # each std is a float32 root, and so is the ratio's rounding
            if steps >= 2 and np.allclose(two, one * np.sqrt(float(steps)), rtol=4 * ROUNDING * 2.0**-24, atol=0):
                words = f"the normaliser's variance is not divided by its steps in the {which} graph: it is {steps:,} times the other's"
                return Cause("variance not divided by steps", f"{words} in all {mine.size:,} places", (site.x,))
    return None


def other_deviation(evidence: Evidence) -> Cause | None:
    """Another formula for the standard deviation: with an epsilon, without the root, its inverse."""
    for site in evidence.deviations:
        with np.errstate(all="ignore"):
            inverse = (1 / site.mine.astype(np.float64)).astype(site.mine.dtype)
        if _within(inverse, site.theirs):
            return Cause("inverse of the deviation", "the normaliser's std is the inverse of the other graph's", (site.x,))
        for one, two, which in ((site.mine, site.theirs, "second"), (site.theirs, site.mine, "first")):
            holding = [(max_ulps(value, two), name, words) for name, words, value in _formulas(one) if _within(value, two)]
            if holding:
                _, name, words = min(holding, key=lambda formula: formula[0] or 0)
                return Cause(name, f"the normaliser divides by {words} in the {which} graph, in the other by sqrt(variance)", (site.x,))
    return None


def _formulas(std: Array) -> Iterator[tuple[str, str, Array]]:
    exact = std.astype(np.float64)
    with np.errstate(all="ignore"):
        yield "variance without its root", "the variance itself", (exact**2).astype(std.dtype)
        for epsilon in EPSILONS:
            yield "epsilon in the root", f"sqrt(variance + {epsilon:g})", np.sqrt(exact**2 + epsilon).astype(std.dtype)
            yield "epsilon beside the root", f"sqrt(variance) + {epsilon:g}", (exact + epsilon).astype(std.dtype)


def _within(value: Array, other: Array) -> bool:
    ulps = max_ulps(value, other)
    return ulps is not None and ulps <= ROUNDING


def deviation_rounded(evidence: Evidence) -> Cause | None:
    """The same formula, rounded otherwise."""
    for site in evidence.deviations:
        if _within(site.mine, site.theirs):
            words = f"the normaliser's std differs by rounding alone ({max_ulps(site.mine, site.theirs)} ulp), as when another machine takes the root"
            return Cause("rounding of the deviation", words, (site.x,))
    return None


def normaliser_missing(evidence: Evidence) -> Cause | None:
    """Shift and scale of an input stand in one graph only, or do nothing."""
    for side, which in ((0, "second"), (1, "first")):
        for node in evidence.alone(side):
            if evidence.is_scale(node, side):
                source = evidence.maker(node, 0, side)
                name = source.inputs[0] if source else ""
                return Cause("normaliser missing", f"the normaliser of {quoted(name)} is missing in the {which} graph", (node,))
    for site in evidence.deviations:
        shifts = [s for s in evidence.sites if s.x is evidence.maker(site.x, 0) and s.place == 1]
        for values, which in (([site.theirs, *(s.theirs for s in shifts)], "second"), ([site.mine, *(s.mine for s in shifts)], "first")):
            if len(values) == 2 and np.all(values[0] == 1) and np.all(values[1] == 0):
                return Cause("normaliser missing", f"the normaliser does nothing in the {which} graph: mean 0 and std 1", (site.x,))
    return None


# ---------------------------------------------------------------------------------------------- operators
def other_activation(evidence: Evidence) -> Cause | None:
    """Where the operators of counterparts differ, what each pair computes."""
    places: dict[tuple[str, str], list[Node]] = {}
    for change in evidence.found.changed:
        if change.kind == "operator":
            mine, theirs = _activation(evidence, change.a, 0), _activation(evidence, change.b, 1)
            if mine and theirs and mine != theirs:
                places.setdefault((mine, theirs), []).append(change.a)
    parts = [f"{theirs} in place of {mine} ({_places(len(nodes))})" for (mine, theirs), nodes in places.items()]
    return Cause("activation", "; ".join(parts), tuple(n for nodes in places.values() for n in nodes)) if parts else None


def _activation(evidence: Evidence, node: Node, side: int) -> str:
    """ "SiLU" for x · sigmoid(x) and its sigmoid, "x · tanh(x)", "ReLU"; "" for what is none."""
    gated = [u for u in evidence.users[side].get(node.outputs[0], ()) if u.op == "Mul" and node.inputs and node.inputs[0] in u.inputs]
    if node.op == "Mul":
        inner = next(
            (m for i in (0, 1) if (m := evidence.maker(node, i, side)) is not None and m.inputs and m.inputs[0] == node.inputs[1 - i]), None
        )
        return _gated(inner.op) if inner is not None and inner.op in ACTIVATIONS else ""
    if node.op in ACTIVATIONS and gated:
        return _gated(node.op)
    return ACTIVATIONS.get(node.op, "")


def _gated(op: str) -> str:
    return "SiLU" if op == "Sigmoid" else f"x · {ACTIVATIONS[op]}(x)"


def activation_missing(evidence: Evidence) -> Cause | None:
    """An activation that only one graph has, while what it reads and what reads it is in both; else a whole layer is missing."""
    for side, which in ((0, "second"), (1, "first")):
        alone = {n.index: n for n in evidence.alone(side)}
        users = evidence.users[side]
        names: dict[int, str] = {}
        for node in alone.values():
            if node.op not in ACTIVATIONS:
                continue
            gated = next((u for u in users.get(node.outputs[0], ()) if u.op == "Mul" and set(node.inputs) <= set(u.inputs)), None)
            maker = evidence.maker(node, 0, side)
            readers = users.get((gated or node).outputs[0], ())
            if (maker is None or maker.index not in alone) and (not readers or any(r.index not in alone for r in readers)):
                names[node.index] = _gated(node.op) if gated is not None and gated.index in alone else ACTIVATIONS[node.op]
        if names:
            words = f"{', '.join(dict.fromkeys(names.values()))} is missing in the {which} graph ({_places(len(names))})"
            return Cause("activation missing", words, tuple(alone[index] for index in names))
    return None


def swapped_operands(evidence: Evidence) -> Cause | None:
    """The operands of a difference or quotient, the other way round."""
    effects = {"Sub": "which flips its sign", "Div": "which inverts it", "MatMul": "which transposes it", "Pow": "base and exponent"}
    for change in evidence.found.changed:
        if change.kind == "operands" and change.a.op in effects and "another order" in change.words:
            return Cause("swapped operands", f"the operands of {change.a} are swapped, {effects[change.a.op]}", (change.a,))
    return None


# ---------------------------------------------------------------------------------------------- bounds
def bounds(evidence: Evidence) -> Cause | None:
    """A Clip with other bounds, or in one graph only."""
    parts: dict[str, list[Node]] = {}
    for x, y in evidence.found.nodes:
        if x.op == y.op == "Clip":
            mine, theirs = _bounds(evidence, x, 0), _bounds(evidence, y, 1)
            if mine != theirs:
                parts.setdefault(f"{_whose(evidence, x, 0)} bounds are {theirs} instead of {mine}", []).append(x)
    for side, which in ((0, "second"), (1, "first")):
        for node in evidence.alone(side):
            if node.op == "Clip":
                words = f"{_whose(evidence, node, side)} bounds of {_bounds(evidence, node, side)} are missing in the {which} graph"
                parts.setdefault(words, []).append(node)
    told = [f"{part} ({_places(len(nodes))})" for part, nodes in parts.items()]
    return Cause("bounds", "; ".join(told), tuple(n for nodes in parts.values() for n in nodes)) if told else None


def _bounds(evidence: Evidence, node: Node, side: int) -> str:
    """ "±5", "−20 to 2", "none to 3"; "computed" for bounds that are no constants."""
    limits = []
    for value in (*node.inputs[1:3], "", "")[:2]:
        constant = evidence.graph(side).constants.get(value)
        if value and (constant is None or constant.size != 1):
            return "computed"
        limits.append(None if constant is None else float(constant.reshape(())))
    low, high = limits
    if low is not None and high is not None and low == -high:
        return f"±{high:.6g}"
    return " to ".join("none" if limit is None else f"{limit:.6g}" for limit in (low, high))


def _whose(evidence: Evidence, node: Node, side: int) -> str:
    if evidence.is_scale(evidence.maker(node, 0, side), side):
        return "the normaliser's"
    results = set(evidence.graph(side).results)
    readers = evidence.users[side].get(node.outputs[0], [])
    ends = node.outputs[0] in results or any(r.op == "Div" and r.outputs[0] in results for r in readers)
    return "the actions'" if ends else "some"


def division(evidence: Evidence) -> Cause | None:
    """The division by a number behind a Clip: missing, or by another number."""
    for side, which in ((0, "second"), (1, "first")):
        nodes = [n for n in evidence.alone(side) if _divides(evidence, n, side)]
        if nodes:
            number = evidence.graph(side).constants[nodes[0].inputs[1]].item()
            words = f"the division by {number:.6g} behind the bounds is missing in the {which} graph ({_places(len(nodes))})"
            return Cause("division missing", words, tuple(nodes))
    sites = [s for s in evidence.differing if s.place == 1 and _divides(evidence, s.x, 0) and _divides(evidence, s.y, 1)]
    if sites:
        words = f"the division behind the bounds is by {sites[0].theirs.item():.6g} instead of {sites[0].mine.item():.6g}"
        return Cause("division", f"{words} ({_places(len(sites))})", tuple(s.x for s in sites))
    return None


def _divides(evidence: Evidence, node: Node, side: int) -> bool:
    constant = evidence.graph(side).constants.get(node.inputs[1]) if node.op == "Div" else None
    maker = evidence.maker(node, 0, side) if node.op == "Div" else None
    return constant is not None and constant.size == 1 and maker is not None and maker.op == "Clip"


def mask_number(evidence: Evidence) -> Cause | None:
    """The large number that pushes masked options out of reach."""
    sites = [s for s in evidence.differing if s.mine.size == s.theirs.size == 1 and s.x.op in ("Mul", "Sub", "Add", "Where")]
    sites = [s for s in sites if s.mine.dtype.kind == "f" and max(abs(s.mine.item()), abs(s.theirs.item())) >= MASKING]
    if not sites:
        return None
    words = f"the number that masked places are pushed away by is {sites[0].theirs.item():.6g} instead of {sites[0].mine.item():.6g}"
    return Cause("mask constant", f"{words} ({_places(len(sites))})", tuple(s.x for s in sites))


def unread_input(evidence: Evidence) -> Cause | None:
    """An input that one graph reads and the other doesn't."""
    reads = [{v for n in evidence.graph(side).nodes for v in n.inputs} | set(evidence.graph(side).results) for side in (0, 1)]
    for x in sorted(evidence.inputs[0]):
        y = evidence.found.values.get(x)
        if y in evidence.inputs[1] and (x in reads[0]) != (y in reads[1]):
            which = "second" if x in reads[0] else "first"
            return Cause("input not read", f"the input {quoted(x)} is not read in the {which} graph")
    return None


# ---------------------------------------------------------------------------------------------- weights
def gate_order(evidence: Evidence) -> Cause | None:
    """The gates of a recurrent layer in another order, to the bit, in all of its tensors."""
    layers: dict[int, list[Site]] = {}
    for site in evidence.sites:
        if site.x.op in GATES and site.x.op == site.y.op and site.place in (1, 2, 3) and site.comparable:
            layers.setdefault(site.x.index, []).append(site)
    for sites in layers.values():
        x, moved = sites[0].x, [s for s in sites if not same_bits(s.mine, s.theirs)]
        order = GATES[x.op]
        for permutation in permutations(range(len(order))) if moved else ():
            if all(same_bits(_permuted(s, permutation), s.theirs) for s in moved):
                given = "".join(order[i] for i in permutation)
                whose = ", torch's," if given == TORCH_GATES[x.op] else ""
                words = f"the gates of {x} stand in the order {', '.join(given)}{whose} in the second graph, instead of {', '.join(order)}"
                part = "" if len(moved) == len(sites) else f" (in {len(moved)} of its {len(sites)} tensors)"
                return Cause("gate order", words + part, (x,))
    return None


def _permuted(site: Site, permutation: Sequence[int]) -> Array:
    """ONNX's tensors are [directions, gates · hidden, …]; the bias holds two such rows one behind the other."""
    halves, gates = 2 if site.place == 3 else 1, len(permutation)
    x = site.mine
    if x.ndim < 2 or x.shape[1] % (halves * gates):
        return x
    blocks = x.reshape(x.shape[0], halves, gates, -1, *x.shape[2:])
    return np.ascontiguousarray(blocks[:, :, list(permutation)]).reshape(x.shape)


def transposed(evidence: Evidence) -> Cause | None:
    """A matrix that equals the other transposed, to the bit, while its operator uses it alike."""
    reshaped = {c.a.index for c in evidence.found.changed if c.kind == "attribute"}
    sites = [s for s in evidence.differing if s.mine.ndim >= 2 and s.mine.dtype == s.theirs.dtype and s.x.index not in reshaped]
    sites = [s for s in sites if same_bits(np.ascontiguousarray(np.swapaxes(s.mine, -1, -2)), s.theirs)]
    return _told("transposed weights", sites, "transposed in the second graph, bit by bit")


def sign_flipped(evidence: Evidence) -> Cause | None:
    """A tensor that equals the other's negative, to the bit."""
    sites = [
        s
        for s in evidence.differing
        if s.comparable and s.mine.dtype.kind == "f" and same_bits(np.negative(s.mine), s.theirs) and s.mine.any()
    ]
    return _told("sign flipped", sites, "of the opposite sign in the second graph, bit by bit")


def rounded(evidence: Evidence) -> Cause | None:
    """Tensors that equal the other's rounded to float16 or bfloat16: all that differ."""
    sites = [s for s in evidence.differing if s.mine.dtype.kind == "f"]
    if any(s.theirs.dtype.kind != "f" or s.mine.shape != s.theirs.shape for s in sites):
        return None
    if sum(int(different_bits(s.mine.astype(np.float32), s.theirs.astype(np.float32)).sum()) for s in sites) < EVIDENCE:
        return None
    for name, round_ in ROUNDINGS.items():
        pairs = [(s.mine.astype(np.float32), s.theirs.astype(np.float32)) for s in sites]
        for which, one, two in (("second", 0, 1), ("first", 1, 0)):
            if all(same_bits(round_(pair[one]), pair[two]) for pair in pairs):
                words = f"the {which} graph's numbers are the other's rounded to {name}, in all {len(sites)} places where they differ"
                return Cause(name, words, tuple(s.x for s in sites))
    return None


def _half(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


ROUNDINGS = {"float16": _half, "bfloat16": as_bfloat16}


def scaled(evidence: Evidence) -> Cause | None:
    """Tensors that are one multiple of the other graph's, within the rounding of a product; every matrix that differs is."""
    factors = {id(s): factor for s in evidence.differing if not evidence.is_scale(s.x, 0) and (factor := _factor(s))}
    sites = [s for s in evidence.differing if id(s) in factors]
    if not sites or any(s.mine.ndim > 1 and id(s) not in factors for s in evidence.differing):
        return None
    first = factors[id(sites[0])]
    if max(factors.values()) - min(factors.values()) > 1e-6 * abs(first):
        return None
    return _told("scaled weights", sites, f"in the second graph {first:.6g} times as large")


def _factor(site: Site) -> float:
    """By what the second tensor is the first one scaled; 0 if it isn't."""
    if not site.comparable or site.mine.dtype != np.float32 or not site.mine.size:
        return 0.0
    mine, theirs = site.mine.reshape(-1), site.theirs.reshape(-1)
    place = int(np.argmax(np.abs(mine)))
    with np.errstate(all="ignore"):
        factor = float(np.float64(theirs[place]) / np.float64(mine[place]))
        holds = abs(abs(factor) - 1) > UNLIKE
        for x, y in pieces(mine, theirs):
            one, two = x.astype(np.float64) * factor, y.astype(np.float64)
            holds = holds and bool(np.all((np.abs(two - one) <= 2.0**-22 * np.abs(one)) | (one == two)))
            if not holds:
                return 0.0
    return factor if any(len(np.unique(np.abs(mine[:end]))) >= DISTINCT for end in (100, mine.size)) else 0.0


def other_head(evidence: Evidence) -> Cause | None:
    """All that differs are the last layers before the outputs, and these differ throughout."""
    heads = _last_layers(evidence)
    mine = [s for s in evidence.differing if s.mine.dtype.kind == "f" and s.mine.size > 1]
    rest = [s for s in evidence.weights if s.x.op in LAYERS and s.x.index not in heads]
    if not mine or not rest or len(mine) < len(evidence.differing) or not all(_apart(s) for s in mine):
        return None
    if any(s.x.index not in heads for s in mine) or any(not same_bits(s.mine, s.theirs) for s in rest):
        return None
    count = len({s.name for s in rest})
    words = f"the weights of the head are another policy's: {_names(mine)}; the {count} tensors of the layers before it are bit-equal"
    return Cause("head of another policy", words, tuple(s.x for s in mine))


def _last_layers(evidence: Evidence) -> frozenset[int]:
    """Layers whose results reach the outputs without another layer; what is added to those belongs to them (sigma)."""
    behind: set[str] = set()
    for node in reversed(evidence.a.nodes):
        if any(v in behind for v in node.outputs) or node.op in LAYERS:
            behind.update(node.inputs)
    return frozenset(n.index for n in evidence.a.nodes if not any(v in behind for v in n.outputs))


def _apart(site: Site) -> bool:
    """Whether two tensors have nothing to do with each other."""
    return not site.comparable or (bool(np.mean(different_bits(site.mine, site.theirs)) > 0.5) and _distance(site) > NEAR)


def _distance(site: Site) -> float:
    """How far the second tensor is from the first, by norm, in parts of it; infinite for what is not finite."""
    mine, theirs = site.mine.astype(np.float64), site.theirs.astype(np.float64)
    norm = float(np.linalg.norm(mine))
    far = float(np.linalg.norm(mine - theirs)) / norm if norm else float("inf")
    return far if np.isfinite(far) else float("inf")


def other_step(evidence: Evidence) -> Cause | None:
    """All matrices differ, in most of their numbers: by little, so of the same training, or altogether.

    Vectors are left out: biases begin at zero, so that in parts of themselves they move any distance.
    """
    trained = [s for s in evidence.weights if s.x.op in LAYERS and s.mine.ndim > 1]
    if len(trained) < 2 or not all(s.comparable and np.mean(different_bits(s.mine, s.theirs)) > 0.5 for s in trained):
        return None
    far = [_distance(s) for s in trained]
    nodes = tuple(s.x for s in trained)
    count = len({s.name for s in trained})
    if max(far) < NEAR:
        words = (
            f"the weights are of another step of the same training: all {count} matrices differ, each by {max(far):.2g} of its norm at most"
        )
        return Cause("weights of another step", words, nodes)
    if min(far) > NEAR:
        words = f"the weights are of another training: all {count} matrices differ, each by {min(far):.2g} of its norm at least"
        return Cause("weights of another training", words, nodes)
    return None


def _told(name: str, sites: Sequence[Site], what: str) -> Cause | None:
    return Cause(name, f"{_names(sites)}: {what}", tuple(s.x for s in sites)) if sites else None


def _names(sites: Sequence[Site]) -> str:
    names = list(dict.fromkeys(quoted(s.name) for s in sites))
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _places(count: int) -> str:
    return f"{count:,} place{'' if count == 1 else 's'}"


# Groups of hypotheses about the same thing; the first of each that holds is told.
CAUSES: tuple[tuple[Callable[[Evidence], Cause | None], ...], ...] = (
    (normaliser_missing, deviation_rounded, not_divided_by_steps, other_deviation),
    (other_activation, activation_missing),
    (bounds,),
    (division,),
    (swapped_operands,),
    (mask_number,),
    (unread_input,),
    (rounded, gate_order, transposed, sign_flipped, scaled, other_head, other_step),
)
