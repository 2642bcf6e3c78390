"""How equal two graphs are, with onnxruntime as the judge, and how near the torch module comes to it.

    bytes    the two files are the same
    graph    operator by operator the same computation on the same numbers, for every input; and bits holds
    bits     onnxruntime gives bit-equal outputs on everything tried, its optimiser on and off
    close    within 1e-5 · max(1, largest output)
    differs  none of these

Random operators are neither skipped nor compared as they are: in both graphs each becomes an input that is fed the
same noise (an option, where one is drawn), and the tensors they draw from and scale with become outputs. The torch
module is given noise that makes it draw the same, and what it draws from is compared too. Nothing counts as equal
because it was not looked at: an output that was not compared is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import onnxruntime as ort

from .bind import max_ulps
from .canonical import canonicalise
from .emit import emit_inner
from .errors import Graph2TorchError, ModelError, UnsupportedGraph
from .graph import RANDOM, Array, Graph, ValueInfo, read_graph
from .isomorphism import Alignment, same_attributes
from .spec import PolicySpec
from .text import one_line, quoted

if TYPE_CHECKING:
    import torch

Level = Literal["bytes", "graph", "bits", "close", "differs"]
LEVELS: tuple[Level, ...] = ("bytes", "graph", "bits", "close", "differs")
EQUAL: frozenset[Level] = frozenset({"bytes", "graph", "bits"})
TOLERANCE = 1e-5
BESIDE = 2e-4  # how near to the edge of an option's share a sample is drawn
SEED = 20240611
# (batch, kind of observations): the quick tier, run by every build
QUICK = (
    (1, "ordinary"),
    (3, "ordinary"),
    (16, "ordinary"),
    (3, "extreme"),
    (2, "zero"),
    (2, "minus zero"),
    (3, "subnormal"),
    (4, "huge"),
    (5, "not finite"),
)
TORCH_KINDS = ("ordinary", "zero", "minus zero", "subnormal")


@dataclass(frozen=True, slots=True)
class Figures:
    """How far an output is from its reference, over everything tried. Floats; for integers `differing` counts."""

    output: str
    compared: int
    differing: int
    max_abs: float
    max_ulps: int | None
    cosine: float | None
    reference_max: float

    def within(self, tolerance: float = TOLERANCE) -> bool:
        return bool(self.max_abs <= tolerance * max(1.0, self.reference_max))


@dataclass(frozen=True)
class Verification:
    """The level reached, what it was reached on, and the figures by output.

    rebuilt: rebuilt.onnx against the original, both in onnxruntime; module: torch against onnxruntime
    reason:  why not the next stronger level
    """

    level: Level
    reason: str
    rebuilt: tuple[Figures, ...]
    module: tuple[Figures, ...]
    runs: tuple[str, ...]
    seed: int
    isomorphic: bool
    refused: tuple[str, ...] = ()


def verify(
    original: onnx.ModelProto,
    rebuilt: onnx.ModelProto,
    spec: PolicySpec,
    alignment: Alignment,
    module: torch.nn.Module,
    same_file: bool = False,
    seed: int = SEED,
    samples: Sequence[Mapping[str, Array]] = (),
) -> Verification:
    """The quick tier: `rebuilt` against `original` in onnxruntime, and `module` in torch against `original`.

    samples: inputs that are known to make sense: they are tried too, and what is made up takes its sizes and integers from them

    Raises ModelError if onnxruntime refuses the original, and UnsupportedGraph if it refuses the rebuilt graph.
    """
    cases = list(_cases(spec.graph.inputs, seed)) if not samples else list(_like(samples, seed))
    draws = _draws(original, rebuilt, alignment)
    results: dict[str, _Tally] = {}
    torch_results: dict[str, _Tally] = {}
    runs: list[str] = []
    refused: list[str] = []
    outputs = [o.name for o in spec.outputs]
    sources: dict[str, str] = {}
    for field, drawn in spec.noise.items():
        for name, value in _drawn_from(spec, drawn):
            sources.setdefault(value, f"{name} of {field}")
    choices = _choices(spec.graph)
    noises = _Noise(original, [a for a, _ in draws], list(sources), choices)
    inner = _inner(module, spec, list(sources))
    for optimised in (True, False):
        mine, theirs = _sessions(original, rebuilt, draws, optimised)
        known = {i.name for i in theirs.get_inputs()}
        for label, kind, feed in cases:
            noise = noises.draw(feed, np.random.default_rng([seed, *label.encode()]), 8.0 if kind == "extreme" else 1.0)
            if noise is None:
                refused.append(label)
                continue
            try:
                expected = mine.run(None, {**feed, **{a: z for (a, _), z in zip(draws, noise.drawn, strict=True)}})
            except Exception:  # the original itself can't do this batch
                refused.append(label)
                continue
            mapped = {**feed, **{b: z for (_, b), z in zip(draws, noise.drawn, strict=True)}}
            try:
                given = theirs.run(None, {k: v for k, v in mapped.items() if k in known})
            except Exception as error:
                raise UnsupportedGraph(
                    f"onnxruntime runs the original on {label} observations, but not the rebuilt graph ({one_line(str(error), 200)}); "
                    f"the two are not the same. Please report this model."
                ) from None
            names = [*outputs, *(f"noise scale {i}" for i in range(len(expected) - len(outputs)))]
            for name, a, b in zip(names, expected, given, strict=True):
                results.setdefault(name, _Tally(name)).add(a, b)
            runs.append(f"{label}, optimiser {'on' if optimised else 'off'}")
            if optimised and kind in TORCH_KINDS:
                given = _run_module(module, spec, feed, noise.noise, [a for a, _ in draws])
                for name, a, b in zip(outputs, expected, given, strict=False):
                    torch_results.setdefault(name, _Tally(name)).add(a, noise.settle(choices[name], a, b) if name in choices else b)
                for (value, name), b in zip(sources.items(), inner(feed), strict=True):
                    torch_results.setdefault(name, _Tally(name)).add(noise.values[value], b)
    for name in outputs:
        if name not in results or name not in torch_results:
            raise UnsupportedGraph(
                f"The output {quoted(name)} could not be compared: onnxruntime ran the original on none of the inputs tried. Nothing is called equal that was not looked at."
            )
    figures = tuple(t.figures() for t in results.values())
    in_torch = tuple(t.figures() for t in torch_results.values())
    level, reason = _level(figures, in_torch, alignment, same_file)
    if not alignment.isomorphic and (unlike := _unlike(spec.graph, rebuilt, draws)):
        level, reason = "differs", unlike
    return Verification(level, reason, figures, in_torch, tuple(runs), seed, alignment.isomorphic, tuple(dict.fromkeys(refused)))


def _sessions(original: onnx.ModelProto, rebuilt: onnx.ModelProto, draws: Sequence[tuple[str, str]], optimised: bool) -> tuple[Any, Any]:
    """Both graphs with their draws pinned; unless the optimiser is on, with what meets the noise as further outputs."""
    for probes in (not optimised, False):
        mine = _session(_pin(original, [a for a, _ in draws], probes), optimised, "the original")
        theirs = _session(_pin(rebuilt, [b for _, b in draws], probes), optimised, "the rebuilt graph")
        if len(mine.get_outputs()) == len(theirs.get_outputs()):  # else the noise is used more often in one of them
            break
    return mine, theirs


def check_accepted(original: onnx.ModelProto) -> None:
    """Raises ModelError if onnxruntime refuses the original."""
    _session(original, True, "the original")


def _level(figures: Sequence[Figures], in_torch: Sequence[Figures], alignment: Alignment, same_file: bool) -> tuple[Level, str]:
    far = [f for f in in_torch if not f.within()]
    if far:
        return "differs", f"torch's {quoted(far[0].output)} is off by {far[0].max_abs:.3g}"
    unequal = [f for f in figures if f.differing]
    if unequal:
        worst = max(unequal, key=lambda f: f.max_abs / max(1.0, f.reference_max))
        level: Level = "close" if all(f.within() for f in unequal) else "differs"
        return level, f"{quoted(worst.output)} differs in {worst.differing:,} of {worst.compared:,} numbers, by up to {worst.max_abs:.3g}"
    if same_file:
        return "bytes", ""
    if alignment.isomorphic:
        return "graph", "the files' bytes differ (names, order of nodes)"
    if alignment.refusal:
        return "bits", alignment.refusal
    return "bits", f"{len(alignment.differing)} constants differ without an effect on any output tried"


# ---------------------------------------------------------------------------------------------- inputs
def _cases(inputs: Sequence[ValueInfo], seed: int) -> Iterable[tuple[str, str, dict[str, Array]]]:
    for batch, kind in QUICK:
        label = f"batch {batch} {kind}"
        rng = np.random.default_rng([seed, batch, *kind.encode()])
        yield label, kind, {i.name: observation(i, batch, kind, rng) for i in inputs}


def _like(samples: Sequence[Mapping[str, Array]], seed: int) -> Iterable[tuple[str, str, dict[str, Array]]]:
    for number, sample in enumerate(samples):
        yield f"sample {number}", "ordinary", dict(sample)
        for _, kind in QUICK:
            label = f"like sample {number}, {kind}"
            rng = np.random.default_rng([seed, number, *kind.encode()])
            values = {k: ValueInfo(k, v.dtype, v.shape) for k, v in sample.items() if v.dtype.kind == "f" and v.size}
            if values:
                yield label, kind, dict(sample) | {k: observation(value, 1, kind, rng) for k, value in values.items()}


def observation(value: ValueInfo, batch: int, kind: str, rng: np.random.Generator) -> Array:
    """An input of `kind` for one declared input; free sizes are `batch`. Integers are 0 or 1."""
    shape = [size if isinstance(size, int) else batch for size in value.shape]
    if value.dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(value.dtype)
    x = rng.standard_normal(shape)
    if "mask" in value.name:
        x = np.ones(shape) if kind == "ordinary" else (rng.random(shape) < 0.6).astype(np.float64)
    elif kind == "not finite" and x.size:
        flat = x.reshape(x.shape[0], -1) if x.ndim > 1 else x.reshape(1, -1)
        flat[0::4] = np.nan
        flat[1::4, :1], flat[2::4, -1:] = np.inf, -np.inf
    else:
        x *= {"ordinary": 2.0, "extreme": 60.0, "zero": 0.0, "minus zero": -0.0, "subnormal": 1e-40, "huge": 1e20}.get(kind, 1.0)
        if kind == "minus zero":
            x = np.full(shape, -0.0)
    return x.astype(value.dtype)


# ---------------------------------------------------------------------------------------------- pinned randomness
def _draws(original: onnx.ModelProto, rebuilt: onnx.ModelProto, alignment: Alignment) -> list[tuple[str, str]]:
    """Pairs of the values that random operators make, original and rebuilt; all of them, or an error."""
    pairs = [(a.outputs[0], b.outputs[0]) for a, b in alignment.draws]
    mine, theirs = (_needed_draws(p) for p in (original, rebuilt))
    if {a for a, _ in pairs} == set(mine) and {b for _, b in pairs} == set(theirs):
        return pairs
    if len(mine) != len(theirs):
        raise UnsupportedGraph(
            f"The original draws {len(mine)} times and the rebuilt graph {len(theirs)} times; that can't be compared. Please report this model."
        )
    return list(zip(mine, theirs, strict=True))


def _unlike(graph: Graph, rebuilt: onnx.ModelProto, draws: Sequence[tuple[str, str]]) -> str:
    """The first pair of random operators that draw otherwise (another scale, another seed), which equal noise would hide."""
    mine, theirs = ({o: n for n in g.nodes for o in n.outputs} for g in (graph, canonicalise(read_graph(rebuilt, "rebuilt.onnx"))))
    for a, b in draws:
        if mine[a].op != theirs[b].op or not same_attributes(mine[a], theirs[b]):
            return f"{theirs[b]} draws with {dict(theirs[b].attributes)}, in the original {mine[a]} with {dict(mine[a].attributes)}"
    return ""


def _needed_draws(proto: onnx.ModelProto) -> list[str]:
    """Outputs of the random operators that some output needs, in the file's order."""
    needed = {o.name for o in proto.graph.output}
    draws = []
    for node in reversed(proto.graph.node):
        if needed & set(node.output):
            needed |= set(node.input)
            if node.op_type in RANDOM:
                draws.append(node.output[0])
    return draws[::-1]


def _pin(proto: onnx.ModelProto, draws: Sequence[str], probes: bool) -> onnx.ModelProto:
    """The graph with its draws as inputs; with `probes`, what each is drawn like and multiplied with as outputs."""
    if not draws:
        return proto
    graph = gs.import_onnx(proto)
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
        tensor.dtype, tensor.shape = _draw_type(node.attrs) if node.op == "Multinomial" else np.dtype(np.float32), None
        graph.inputs.append(tensor)
    for number, tensor in enumerate(added):  # each an output of its own: the tensor itself may be one in one graph only
        probe = gs.Variable(f"graph2torch.probe.{number}", tensor.dtype or np.float32)
        graph.nodes.append(gs.Node("Identity", inputs=[tensor], outputs=[probe]))
        graph.outputs.append(probe)
    graph.cleanup()
    try:
        pinned: onnx.ModelProto = gs.export_onnx(graph, do_type_check=False)
    except Exception as error:  # an empty list among the attributes
        raise UnsupportedGraph(
            f"The graph can't be run with given noise ({one_line(str(error), 160)}); please report this model."
        ) from None
    return pinned


class _Noise:
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
            self.session = _session(probe, True, "the original")
            self.known = {i.name for i in self.session.get_inputs()}

    def draw(self, feed: Mapping[str, Array], rng: np.random.Generator, scale: float) -> _Drawn | None:
        """A draw for each random operator; with a `scale` that also drives normal samples beyond their bounds.

        None if the original itself can't do this batch.
        """
        if self.session is None:
            return _Drawn([], [], {})
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
                chosen, uniform = _choose(like, given.get("sample_size", 1), rng)
                drawn.append(chosen.astype(_draw_type(given)))
                noise.append(uniform)
            else:
                numbers = scale * rng.standard_normal(like.shape) if "Normal" in node.op_type else rng.random(like.shape)
                drawn.append(numbers.astype(np.float32))
                noise.append(drawn[-1])
        return _Drawn(drawn, noise, values)


@dataclass(frozen=True)
class _Drawn:
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


def _choose(log_p: Array, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
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


def _draw_type(attributes: Mapping[str, Any]) -> np.dtype[Any]:
    """Of what a Multinomial makes."""
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(attributes.get("dtype", onnx.TensorProto.INT32)))


def _choices(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Output → what the ArgMax of each of its columns chooses from, for outputs that are such choices throughout."""
    producer = {value: node for node in graph.nodes for value in node.outputs}
    found = {}
    for output, result in zip(graph.outputs, graph.results, strict=True):
        node = producer.get(result)
        parts = [] if node is None else [producer.get(v) for v in node.inputs] if node.op == "Concat" else [node]
        if parts and all(part is not None and part.op == "ArgMax" and part.attributes == {"axis": 1} for part in parts):
            found[output.name] = tuple(part.inputs[0] for part in parts if part is not None)
    return found


def _session(proto: onnx.ModelProto, optimised: bool, what: str) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    try:
        return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        kind: type[Graph2TorchError] = ModelError if what == "the original" else UnsupportedGraph
        raise kind(
            f"onnxruntime {ort.__version__} refuses {what} ({one_line(str(error), 200)}); without it there is no judge. Export the policy again, or use another onnxruntime."
        ) from None


def _drawn_from(spec: PolicySpec, drawn: str) -> list[tuple[str, str]]:
    """What the block that draws a value reads: each its name in the block, and the graph's value."""
    block = next(b for b in spec.blocks if drawn in dict(b.drawn).values())
    return [(name, value) for name, values in block.inputs for value in values]


def _inner(module: Any, spec: PolicySpec, values: Sequence[str]) -> Callable[[Mapping[str, Array]], list[Array]]:
    """A function from inputs to inner values of the graph, as the module's layers compute them."""
    import torch

    namespace = dict(module.forward.__globals__)
    exec(compile(emit_inner(spec, values), "inner", "exec"), namespace)

    def run(feed: Mapping[str, Array]) -> list[Array]:
        with torch.inference_mode():
            found: list[torch.Tensor] = namespace["inner"](module, *(torch.from_numpy(np.array(feed[i.name])) for i in spec.inputs))
        return [t.numpy() for t in found]

    return run


def _run_module(module: Any, spec: PolicySpec, feed: Mapping[str, Array], noise: Sequence[Array], draws: Sequence[str]) -> list[Array]:
    import torch

    arguments = [torch.from_numpy(np.array(feed[i.name])) for i in spec.inputs]
    with torch.inference_mode():
        if spec.noise:
            drawn = dict(zip(draws, noise, strict=True))
            given = module.forward.__globals__["Noise"](*(torch.from_numpy(drawn[value]) for value in spec.noise.values()))
            out = module(*arguments, noise=given)
        else:
            out = module(*arguments)
    return [t.numpy() for t in out]


# ---------------------------------------------------------------------------------------------- figures
class _Tally:
    def __init__(self, name: str) -> None:
        self.name, self.compared, self.differing, self.max_abs, self.ulps, self.top = name, 0, 0, 0.0, 0, 0.0
        self.dot, self.norms = 0.0, [0.0, 0.0]
        self.comparable = True

    def add(self, a: Array, b: Array) -> None:
        if a.shape != b.shape or a.dtype != b.dtype:
            self.compared += a.size
            self.differing += max(a.size, 1)
            self.max_abs = float("inf")
            self.comparable = False
            return
        same = different_bits(a, b)
        self.compared += a.size
        self.differing += int(same.sum())
        if not a.size:
            self.compared += 1  # empty, and equally so
            return
        x, y = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
        if not np.array_equal(np.isnan(x), np.isnan(y)):
            self.max_abs = float("inf")
        finite = np.isfinite(x) & np.isfinite(y)
        if (x[~finite & ~np.isnan(x)] != y[~finite & ~np.isnan(x)]).any():
            self.max_abs = float("inf")
        x, y = x[finite], y[finite]
        self.max_abs = max(self.max_abs, float(np.max(np.abs(x - y), initial=0.0)))
        self.top = max(self.top, float(np.max(np.abs(x), initial=0.0)))
        with np.errstate(over="ignore"):
            self.dot += float(x @ y)
            self.norms[0] += float(x @ x)
            self.norms[1] += float(y @ y)
        far = max_ulps(np.where(np.isfinite(a), a, 0), np.where(np.isfinite(a), b, 0)) if a.dtype == np.float32 else None
        self.ulps = max(self.ulps, far or 0)

    def figures(self) -> Figures:
        scale = (self.norms[0] * self.norms[1]) ** 0.5
        cosine = min(1.0, self.dot / scale) if self.comparable and 0 < scale < float("inf") else None
        return Figures(self.name, self.compared, self.differing, self.max_abs, self.ulps if self.comparable else None, cosine, self.top)


def different_bits(a: Array, b: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where two arrays of one type and shape differ bit by bit; NaN equals NaN whatever its payload."""
    if a.dtype.kind != "f":
        return np.asarray(a != b)
    bits = f"u{a.dtype.itemsize}"
    differ = np.ascontiguousarray(a).view(bits) != np.ascontiguousarray(b).view(bits)
    return np.asarray(differ & ~(np.isnan(a) & np.isnan(b))).reshape(a.shape)


__all__ = ["EQUAL", "LEVELS", "SEED", "TOLERANCE", "Figures", "Level", "Verification", "observation", "verify"]
