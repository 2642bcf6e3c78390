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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx

from .emit import emit_inner
from .errors import UnsupportedGraph
from .figures import Figures, Tally
from .graph import Array
from .isomorphism import Alignment
from .observations import SEED, TORCH_KINDS, like, quick
from .randomness import Randomness, choices_of, pair_draws, pin, unlike_draw
from .runtime import check_accepted, session
from .spec import PolicySpec
from .text import one_line, quoted

if TYPE_CHECKING:
    import torch

Level = Literal["bytes", "graph", "bits", "close", "differs"]
LEVELS: tuple[Level, ...] = ("bytes", "graph", "bits", "close", "differs")
EQUAL: frozenset[Level] = frozenset({"bytes", "graph", "bits"})


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
    cases = list(quick(spec.graph.inputs, seed)) if not samples else list(like(samples, seed))
    draws = pair_draws(original, rebuilt, alignment)
    if draws:
        check_accepted(original)  # as it is: with its draws as inputs it may be valid where it wasn't before
    results: dict[str, Tally] = {}
    torch_results: dict[str, Tally] = {}
    runs: list[str] = []
    refused: list[str] = []
    outputs = [o.name for o in spec.outputs]
    sources: dict[str, str] = {}
    for field, drawn in spec.noise.items():
        for name, value in _drawn_from(spec, drawn):
            sources.setdefault(value, f"{name} of {field}")
    choices = choices_of(spec.graph)
    noises = Randomness(original, [a for a, _ in draws], list(sources), choices)
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
                results.setdefault(name, Tally(name)).add(a, b)
            runs.append(f"{label}, optimiser {'on' if optimised else 'off'}")
            if optimised and kind in TORCH_KINDS:
                given = _run_module(module, spec, feed, noise.noise, [a for a, _ in draws])
                for name, a, b in zip(outputs, expected, given, strict=False):
                    torch_results.setdefault(name, Tally(name)).add(a, noise.settle(choices[name], a, b) if name in choices else b)
                for (value, name), b in zip(sources.items(), inner(feed), strict=True):
                    torch_results.setdefault(name, Tally(name)).add(noise.values[value], b)
    for name in outputs:
        if name not in results or name not in torch_results:
            raise UnsupportedGraph(
                f"The output {quoted(name)} could not be compared: onnxruntime ran the original on none of the inputs tried. Nothing is called equal that was not looked at."
            )
    figures = tuple(t.figures() for t in results.values())
    in_torch = tuple(t.figures() for t in torch_results.values())
    level, reason = _level(figures, in_torch, alignment, same_file)
    if not alignment.isomorphic and (other := unlike_draw(spec.graph, rebuilt, draws)):
        level, reason = "differs", other
    return Verification(level, reason, figures, in_torch, tuple(runs), seed, alignment.isomorphic, tuple(dict.fromkeys(refused)))


def _sessions(original: onnx.ModelProto, rebuilt: onnx.ModelProto, draws: Sequence[tuple[str, str]], optimised: bool) -> tuple[Any, Any]:
    """Both graphs with their draws pinned; unless the optimiser is on, with what meets the noise as further outputs."""
    for probes in (not optimised, False):
        mine = session(pin(original, [a for a, _ in draws], probes), optimised, "the original")
        theirs = session(pin(rebuilt, [b for _, b in draws], probes), optimised, "the rebuilt graph")
        if len(mine.get_outputs()) == len(theirs.get_outputs()):  # else the noise is used more often in one of them
            break
    return mine, theirs


def _level(figures: Sequence[Figures], in_torch: Sequence[Figures], alignment: Alignment, same_file: bool) -> tuple[Level, str]:
    far = [f for f in in_torch if not f.within()]
    if far:
        return "differs", f"torch's {quoted(far[0].output)} is off by {far[0].max_abs:.3g}"
    unequal = [f for f in figures if f.differing]
    if unequal:
        worst = max(unequal, key=lambda f: f.max_abs / max(1.0, f.reference_max))
        level: Level = "close" if all(f.within() for f in unequal) else "differs"
        reason = f"{quoted(worst.output)} differs in {worst.differing:,} of {worst.compared:,} numbers, by up to {worst.max_abs:.3g}"
        return level, f"{reason}; {alignment.refusal}" if alignment.refusal else reason
    if same_file:
        return "bytes", ""
    if alignment.isomorphic:
        return "graph", "the files' bytes differ (names, order of nodes)"
    if alignment.refusal:
        return "bits", alignment.refusal
    return "bits", f"{len(alignment.differing)} constants differ without an effect on any output tried"


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
