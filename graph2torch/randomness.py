"""Random operators, pinned: in both graphs each becomes an input that is fed the same noise (an option, where one is drawn).

The tensors that they draw from and are scaled with become outputs, and the torch module is given noise that makes it
draw the same; so what is sampled is compared like everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.logger import G_LOGGER

from .canonical import canonicalise
from .errors import UnsupportedGraph
from .figures import TOLERANCE
from .graph import RANDOM, Array, Graph, read_graph
from .isomorphism import Alignment, same_attributes
from .runtime import session
from .text import one_line

BESIDE = 2e-4  # how near to the edge of an option's share a sample is drawn


def pair_draws(original: onnx.ModelProto, rebuilt: onnx.ModelProto, alignment: Alignment) -> list[tuple[str, str]]:
    """Pairs of the values that random operators make, original and rebuilt; all of them, or an error."""
    pairs = [(a.outputs[0], b.outputs[0]) for a, b in alignment.draws]
    mine, theirs = (needed_draws(p) for p in (original, rebuilt))
    if {a for a, _ in pairs} == set(mine) and {b for _, b in pairs} == set(theirs):
        return pairs
    if len(mine) != len(theirs):
        raise UnsupportedGraph(
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
    needed = {o.name for o in proto.graph.output}
    draws = []
    for node in reversed(proto.graph.node):
        if needed & set(node.output):
            needed |= set(node.input)
            if node.op_type in RANDOM:
                draws.append(node.output[0])
    return draws[::-1]


def pin(proto: onnx.ModelProto, draws: Sequence[str], probes: bool) -> onnx.ModelProto:
    """The graph with its draws as inputs; with `probes`, what each is drawn like and multiplied with as outputs."""
    if not draws:
        return proto
    try:
        with G_LOGGER.suppress(G_LOGGER.CRITICAL + 1):  # it prints to stdout, the file's names as they are
            pinned = _pinned(gs.import_onnx(proto), draws, probes)
    except Exception as error:  # an empty list among the attributes
        raise UnsupportedGraph(
            f"The graph can't be run with given noise ({one_line(str(error), 160)}); please report this model."
        ) from None
    # a constant that callers may replace is no constant to onnxruntime's optimiser, which may round otherwise: it stays one
    constants = {t.name for t in pinned.graph.initializer} - {v.name for v in pinned.graph.input}
    pinned.graph.input.extend(v for v in proto.graph.input if v.name in constants)
    return pinned


def _pinned(graph: gs.Graph, draws: Sequence[str], probes: bool) -> onnx.ModelProto:
    graph.cleanup()
    tensors = graph.tensors()
    added: list[gs.Tensor] = []
    for name in draws:
        tensor = tensors[name]
        node = tensor.inputs[0]
        if probes:
            added += [t for t in node.inputs if isinstance(t, gs.Variable)]
            for reader in tensor.outputs:
                added += [t for t in reader.inputs if isinstance(t, gs.Variable) and t is not tensor]
        node.outputs.clear()
        tensor.dtype, tensor.shape = draw_type(node.attrs) if node.op == "Multinomial" else np.dtype(np.float32), None
        graph.inputs.append(tensor)
    for number, tensor in enumerate(added):  # each an output of its own: the tensor itself may be one in one graph only
        probe = gs.Variable(f"graph2torch.probe.{number}", tensor.dtype or np.float32)
        graph.nodes.append(gs.Node("Identity", inputs=[tensor], outputs=[probe]))
        graph.outputs.append(probe)
    graph.cleanup()
    pinned: onnx.ModelProto = gs.export_onnx(graph, do_type_check=False)
    return pinned


class Randomness:
    """What the original's random operators are made to draw, and the noise that makes the torch module draw the same.

    Looked up along with it: the values that `probes` names, and what each ArgMax of an output chooses from.
    """

    def __init__(self, proto: onnx.ModelProto, draws: Sequence[str], probes: Sequence[str], choices: Mapping[str, Sequence[str]]) -> None:
        nodes = {o: n for n in proto.graph.node for o in n.output}
        self.nodes = [nodes[name] for name in draws]
        if not all(node.input for node in self.nodes):
            raise UnsupportedGraph("The graph draws random numbers of a fixed shape, which no policy does; it can't be compared yet.")
        self.wanted = list(dict.fromkeys([*(n.input[0] for n in self.nodes), *probes, *(v for values in choices.values() for v in values)]))
        self.session: Any = None
        if self.wanted:
            probe = onnx.ModelProto.FromString(proto.SerializeToString())
            del probe.graph.output[:]
            probe.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in self.wanted)
            self.session = session(probe, True, "the original")
            self.known = {i.name for i in self.session.get_inputs()}

    def draw(self, feed: Mapping[str, Array], rng: np.random.Generator, scale: float) -> Drawn | None:
        """A draw for each random operator; with a `scale` that also drives normal samples beyond their bounds.

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
                drawn.append(numbers.astype(np.float32))
                noise.append(drawn[-1])
        return Drawn(drawn, noise, values)


@dataclass(frozen=True)
class Drawn:
    """drawn: for the graphs; noise: for the module (uniform numbers where the graphs get options); values: of the original."""

    drawn: list[Array]
    noise: list[Array]
    values: Mapping[str, Array]

    def settle(self, choices: Sequence[str], a: Array, b: Array) -> Array:
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
            if known and abs(numbers[mine] - numbers[theirs]) <= TOLERANCE * max(1.0, float(np.max(np.abs(numbers)))):
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
