"""Random operators, pinned: in both graphs each becomes an input that is fed the same noise (an option, where one is drawn).

The tensors that they draw from and are scaled with become outputs, and the torch module is given noise that makes it
draw the same; so what is sampled is compared like everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import onnx

from graph2torch.canonical import canonicalise
from graph2torch.errors import UnlikeGraphs, UnsupportedGraph
from graph2torch.graph import RANDOM, Array, Graph, read_graph

from .figures import TOLERANCE
from .isomorphism import Alignment, same_attributes
from .observations import nudged
from .runtime import session

BESIDE = 2e-4  # how near to the edge of an option's share a sample is drawn


def pair_draws(original: onnx.ModelProto, rebuilt: onnx.ModelProto, alignment: Alignment) -> list[tuple[str, str]]:
    """Pairs of the values that random operators make, original and rebuilt; all of them, or an error."""
    pairs = [(a.outputs[0], b.outputs[0]) for a, b in alignment.draws]
    mine, theirs = (needed_draws(p) for p in (original, rebuilt))
    if {a for a, _ in pairs} == set(mine) and {b for _, b in pairs} == set(theirs):
        return pairs
    if len(mine) != len(theirs):
        raise UnlikeGraphs(
            f"The original draws {len(mine)} times and the rebuilt graph {len(theirs)} times; that can't be compared. Please report this model."
        )
    return list(zip(mine, theirs, strict=True))


def unlike_draw(graph: Graph, rebuilt: onnx.ModelProto, draws: Sequence[tuple[str, str]]) -> str:
    """The first pair of random operators that draw otherwise (another scale, another seed), which equal noise would hide."""
    mine, theirs = ({o: n for n in g.nodes for o in n.outputs} for g in (graph, canonicalise(read_graph(rebuilt, "rebuilt.onnx"))))
    for a, b in draws:
        if mine[a].op != theirs[b].op or not same_attributes(mine[a], theirs[b]):
            return f"{theirs[b]} draws with {dict(theirs[b].attributes)}, in the original {mine[a]} with {dict(mine[a].attributes)}"
    return ""


def needed_draws(proto: onnx.ModelProto) -> list[str]:
    """Outputs of the random operators that some output needs, in the file's order."""
    return [node.output[0] for node in needed_nodes(proto) if node.op_type in RANDOM]


def needed_nodes(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes that some output needs, in the file's order, which need not be one in which they could run."""
    makers = {value: number for number, node in enumerate(proto.graph.node) for value in node.output if value}
    todo, found = [o.name for o in proto.graph.output], set[int]()
    while todo:
        number = makers.get(todo.pop())
        if number is not None and number not in found:
            found.add(number)
            todo += proto.graph.node[number].input
    return [proto.graph.node[number] for number in sorted(found)]


def pin(proto: onnx.ModelProto, draws: Sequence[str]) -> onnx.ModelProto:
    """A copy of the graph with its draws as inputs."""
    pinned = onnx.ModelProto()
    pinned.CopyFrom(proto)
    graph, taken = pinned.graph, set(draws)
    drawn = [not taken.isdisjoint(node.output) for node in graph.node]
    for node in compress(graph.node, drawn):
        kind = draw_type({a.name: a.i for a in node.attribute}) if node.op_type == "Multinomial" else np.dtype(np.float32)
        graph.input.append(onnx.helper.make_tensor_value_info(node.output[0], onnx.helper.np_dtype_to_tensor_dtype(kind), None))
    _keep(graph.node, [not d for d in drawn])
    _keep(graph.value_info, [v.name not in taken for v in graph.value_info])
    return pinned


def _keep(repeated: Any, kept: Sequence[bool]) -> None:
    """Leaves those of a repeated field that are `kept`, at once: each removal on its own would look through all of them."""
    left = list(compress(repeated, kept))
    if len(left) < len(kept):
        del repeated[:]
        repeated.extend(left)


def probe(proto: onnx.ModelProto, values: Sequence[str]) -> None:
    """Adds inner `values` to the graph's outputs, each by a name of its own: the value itself may be an output already."""
    for number, name in enumerate(values):
        proto.graph.node.append(onnx.helper.make_node("Identity", [name], [f"{PROBE}{number}"]))
        proto.graph.output.append(onnx.helper.make_empty_tensor_value_info(f"{PROBE}{number}"))


PROBE = "graph2torch.probe."


def met_by_noise(proto: onnx.ModelProto, draws: Sequence[str]) -> list[str]:
    """For each draw the tensors that it is drawn like, and those that it is multiplied with or the like; constants aside."""
    fixed = {t.name for t in proto.graph.initializer} | {n.output[0] for n in proto.graph.node if n.op_type == "Constant"} | {""}
    nodes = {o: n for n in proto.graph.node for o in n.output}
    drawn, readers = set(draws), dict[str, list[onnx.NodeProto]]()
    for node in needed_nodes(proto):
        for value in drawn.intersection(node.input):
            readers.setdefault(value, []).append(node)
    met: list[str] = []
    for name in draws:
        met += [v for v in nodes[name].input if v not in fixed]
        for reader in readers.get(name, ()):
            met += [v for v in reader.input if v not in fixed and v != name]
    return met


@dataclass(frozen=True)
class Bounded:
    """What becomes of a normal draw z: mu + z · sigma, which is clipped to `limits`."""

    mu: str
    sigma: str
    limits: tuple[float, ...]


def bounds_of(graph: Graph) -> dict[str, Bounded]:
    """Drawn value → the bounds that its sample is clipped to right away, for draws that are scaled, shifted and clipped."""
    users = graph.users()
    found = {}
    for node in graph.nodes:
        if node.op != "RandomNormalLike":
            continue
        drawn = node.outputs[0]
        for scaled in (n for n in users.get(drawn, ()) if n.op == "Mul"):
            for moved in (n for n in users.get(scaled.outputs[0], ()) if n.op == "Add"):
                for clip in (n for n in users.get(moved.outputs[0], ()) if n.op == "Clip"):
                    sigma, mu = (
                        next((v for v in n.inputs if v != known), "") for n, known in ((scaled, drawn), (moved, scaled.outputs[0]))
                    )
                    constants = [graph.constants[v] for v in clip.inputs[1:] if v in graph.constants]
                    limits = tuple(float(c.reshape(())) for c in constants if c.size == 1 and np.isfinite(c).all())
                    if sigma and mu and limits:
                        found[drawn] = Bounded(mu, sigma, limits)
    return found


class Randomness:
    """What the original's random operators are made to draw, and the noise that makes the torch module draw the same.

    Looked up along with it: the values that `probes` names, and what each ArgMax of an output chooses from. The canonical
    `graph` is needed to draw beside the bounds of samples.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        draws: Sequence[str],
        probes: Sequence[str],
        choices: Mapping[str, Sequence[str]],
        graph: Graph | None = None,
    ) -> None:
        nodes = {o: n for n in proto.graph.node for o in n.output}
        self.nodes = [nodes[name] for name in draws]
        if not all(node.input for node in self.nodes):
            raise UnsupportedGraph("The graph draws random numbers of a fixed shape, which no policy does; it can't be compared yet.")
        self.bounds = bounds_of(graph) if graph else {}
        self.constants: Mapping[str, Array] = graph.constants if graph else {}
        beside = [v for b in self.bounds.values() for v in (b.mu, b.sigma) if v not in self.constants]
        chosen_from = [v for values in choices.values() for v in values]
        self.wanted = list(dict.fromkeys([*(n.input[0] for n in self.nodes), *probes, *chosen_from, *beside]))
        self.session: Any = None
        if self.wanted:
            probe = onnx.ModelProto()
            probe.CopyFrom(proto)
            del probe.graph.output[:]
            probe.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in self.wanted)
            self.session = session(probe, False, "the original")  # of what is drawn from, the sizes and rough shares count
            self.known = {i.name for i in self.session.get_inputs()}

    def draw(self, feed: Mapping[str, Array], rng: np.random.Generator, scale: float = 1.0, edge: bool = False) -> Drawn | None:
        """A draw for each random operator; with a `scale` that also drives normal samples beyond their bounds.

        edge: normal samples fall on the bounds that they are clipped to, or up to a few units in the last place beside them
        None if the original itself can't do this batch.
        """
        if self.session is None:
            return Drawn([], [], {})
        try:
            found = self.session.run(None, {k: v for k, v in feed.items() if k in self.known})
        except Exception:
            return None
        values = dict(zip(self.wanted, found, strict=True))
        drawn, noise = [], []
        for node in self.nodes:
            like = values[node.input[0]]
            if node.op_type == "Multinomial":
                given = {a.name: a.i for a in node.attribute}
                chosen, uniform = choose(like, given.get("sample_size", 1), rng)
                drawn.append(chosen.astype(draw_type(given)))
                noise.append(uniform)
            else:
                numbers = scale * rng.standard_normal(like.shape) if "Normal" in node.op_type else rng.random(like.shape)
                numbers = numbers.astype(np.float32)
                if edge and (bounded := self.bounds.get(node.output[0])):
                    numbers = self.beside(bounded, values, numbers, rng)
                drawn.append(numbers)
                noise.append(numbers)
        return Drawn(drawn, noise, values)

    def beside(self, bounded: Bounded, values: Mapping[str, Array], z: Array, rng: np.random.Generator) -> Array:
        """z for which mu + z · sigma is about a bound: on it, or a few units in the last place beside it. Elsewhere `z` itself."""
        mu, sigma = (self.constants[v] if v in self.constants else values[v] for v in (bounded.mu, bounded.sigma))
        limit = rng.choice(bounded.limits, z.shape)
        with np.errstate(all="ignore"):
            found = ((limit - mu) / sigma).astype(np.float32)
        found = nudged(found, rng.integers(-3, 4, found.shape))
        return np.where(np.isfinite(found), found, z).astype(np.float32)


@dataclass(frozen=True)
class Drawn:
    """drawn: for the graphs; noise: for the module (uniform numbers where the graphs get options); values: of the original."""

    drawn: list[Array]
    noise: list[Array]
    values: Mapping[str, Array]

    def settle(self, choices: Sequence[str], a: Array, b: Array, tolerance: float = TOLERANCE) -> Array:
        """`b`, but with the options of `a` where both are equally good within the tolerance.

        An index has no tolerance of its own: where torch and onnxruntime round two nearly equal numbers differently, each
        may call another one the largest. What is compared there is the numbers that the two chose.
        """
        if a.shape != b.shape or a.ndim != 2 or a.shape[1] != len(choices):
            return b
        b = b.copy()
        for row, column in np.argwhere(a != b):
            numbers = self.values[choices[column]][row].astype(np.float64)
            mine, theirs = int(a[row, column]), int(b[row, column])
            known = 0 <= theirs < numbers.size
            if known and abs(numbers[mine] - numbers[theirs]) <= tolerance * max(1.0, float(np.max(np.abs(numbers)))):
                b[row, column] = mine
        return b


def choose(log_p: Array, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Options drawn by their log-probabilities, and for each a uniform number that falls among the cumulated ones there.

    Just beside an edge of the option's share, so that a sampler of other shares is seen, but not so near that rounding
    would decide; a rare option gives way to the likeliest. Where nothing can be drawn (NaN), the option is 0.
    """
    with np.errstate(all="ignore"):
        p = np.exp(log_p.astype(np.float64))
        p /= p.sum(1, keepdims=True)
    p[~np.isfinite(p).all(1)] = np.eye(1, p.shape[1])
    ends = np.cumsum(p, 1)
    chosen = (ends[:, None, :] <= rng.random((len(p), size, 1)) * ends[:, None, -1:]).sum(2)
    rows = np.arange(len(p))[:, None]
    chosen = np.where(p[rows, chosen] < 5 * BESIDE, p.argmax(1)[:, None], chosen)
    share = p[rows, chosen]
    uniform = ends[rows, chosen] - np.where(rng.random(chosen.shape) < 0.5, BESIDE, share - BESIDE)
    return chosen, uniform.astype(np.float32)


def draw_type(attributes: Mapping[str, Any]) -> np.dtype[Any]:
    """Of what a Multinomial makes."""
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(attributes.get("dtype", onnx.TensorProto.INT32)))


def choices_of(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Output → what the ArgMax of each of its columns chooses from, for outputs that are such choices throughout."""
    producer = {value: node for node in graph.nodes for value in node.outputs}
    found = {}
    for output, result in zip(graph.outputs, graph.results, strict=True):
        node = producer.get(result)
        parts = [] if node is None else [producer.get(v) for v in node.inputs] if node.op == "Concat" else [node]
        if parts and all(part is not None and part.op == "ArgMax" and part.attributes == {"axis": 1} for part in parts):
            found[output.name] = tuple(part.inputs[0] for part in parts if part is not None)
    return found
