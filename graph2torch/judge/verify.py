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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx

from graph2torch.errors import UnlikeGraphs, UnsupportedGraph
from graph2torch.graph import Array
from graph2torch.spec import PolicySpec
from graph2torch.text import one_line, quoted

from .figures import TOLERANCE, Figures, Tally, different_bits
from .isomorphism import Alignment
from .observations import SEED, Case, like, quick
from .randomness import Drawn, Randomness, choices_of, met_by_noise, pair_draws, pin, probe, unlike_draw
from .runtime import check_accepted, session
from .torchside import TorchSide

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
    judge = Judge(original, rebuilt, spec, alignment, TorchSide(module, spec), seed)
    judge.run(list(quick(spec.graph.inputs, seed)) if not samples else list(like(samples, seed)))
    return judge.verdict(same_file)


class Judge:
    """Holds a rebuilt graph and a torch module against the original, case by case.

    tolerance: what torch, and a rebuilt graph that is `close`, may be off by: tolerance · max(1, largest output)

    Raises UnlikeGraphs if the two graphs can't be run side by side, and ModelError if onnxruntime refuses the original.
    """

    def __init__(
        self,
        original: onnx.ModelProto,
        rebuilt: onnx.ModelProto,
        spec: PolicySpec,
        alignment: Alignment,
        side: TorchSide,
        seed: int = SEED,
        tolerance: float = TOLERANCE,
    ) -> None:
        self.rebuilt, self.spec, self.alignment, self.side, self.seed, self.tolerance = rebuilt, spec, alignment, side, seed, tolerance
        self.draws = pair_draws(original, rebuilt, alignment)
        if self.draws:
            check_accepted(original)  # as it is: with its draws as inputs it may be valid where it wasn't before
            session(rebuilt, False, "the rebuilt graph")  # likewise
        self.outputs = [o.name for o in spec.outputs]
        self.sources: dict[str, str] = {}  # what the module's draws are made from: the graph's value → its name for people
        for field, drawn in () if side.other_layers else spec.noise.items():
            for name, value in _drawn_from(spec, drawn):
                self.sources.setdefault(value, f"{name} of {field}")
        self.choices = choices_of(spec.graph)
        self.noises = Randomness(original, [a for a, _ in self.draws], list(self.sources), self.choices, spec.graph)
        pinned = pin(original, [a for a, _ in self.draws]), pin(rebuilt, [b for _, b in self.draws])
        self.pinned = pinned
        self.probes = met_by_noise(original, [a for a, _ in self.draws]), met_by_noise(rebuilt, [b for _, b in self.draws])
        self.tallies: dict[str, Tally] = {}
        self.torch_tallies: dict[str, Tally] = {}
        self.runs: list[str] = []
        self.refused: list[str] = []
        self.drift: list[tuple[str, float]] = []

    def run(self, cases: Sequence[Case]) -> None:
        """Every case with onnxruntime's optimiser on and off. Once only."""
        drawn: dict[str, Drawn | None] = {}
        for optimised in (True, False):
            if not optimised and len(self.probes[0]) == len(self.probes[1]):  # else the noise is used more often in one of them
                for proto, values in zip(self.pinned, self.probes, strict=True):
                    probe(proto, values)
            mine = session(self.pinned[0], optimised, "the original")
            theirs = session(self.pinned[1], optimised, "the rebuilt graph")
            memories: list[Mapping[str, Array]] = [{}, {}, {}]  # of the original, the rebuilt graph, the module
            for case in cases:
                feeds = [{**case.feed, **(memory if case.carried else {})} for memory in memories]
                if case.label not in drawn:
                    rng = np.random.default_rng([self.seed, *case.label.encode()])
                    drawn[case.label] = self.noises.draw(feeds[0], rng, 8.0 if case.noise == "wide" else 1.0, case.noise == "edge")
                noise = drawn[case.label]
                ran = None if noise is None else self._both(case, mine, theirs, feeds, noise)
                if noise is None or ran is None:
                    self.refused.append(case.label)
                    continue
                expected, given = ran
                names = [*self.outputs, *(f"noise scale {i}" for i in range(len(expected) - len(self.outputs)))]
                for name, a, b in zip(names, expected, given, strict=True):
                    self.tallies.setdefault(name, Tally(name)).add(a, b)
                self.runs.append(f"{case.label}, optimiser {'on' if optimised else 'off'}")
                torch = self._torch(case, feeds[2], noise, expected) if optimised and case.torch else []
                memories = [self._memory(values) for values in (expected, given, torch)]

    def _both(
        self, case: Case, mine: Any, theirs: Any, feeds: Sequence[Mapping[str, Array]], noise: Drawn
    ) -> tuple[list[Array], list[Array]] | None:
        """Outputs of the original and of the rebuilt graph; None if the original itself can't do this batch."""
        known = {i.name for i in theirs.get_inputs()}
        try:
            expected = mine.run(None, {**feeds[0], **{a: z for (a, _), z in zip(self.draws, noise.drawn, strict=True)}})
        except Exception:
            return None
        mapped = {**feeds[1], **{b: z for (_, b), z in zip(self.draws, noise.drawn, strict=True)}}
        try:
            return expected, theirs.run(None, {k: v for k, v in mapped.items() if k in known})
        except Exception as error:
            raise UnlikeGraphs(
                f"onnxruntime runs the original on {case.label} observations, but not the rebuilt graph ({one_line(str(error), 200)}); "
                f"the two are not the same. Please report this model."
            ) from None

    def _torch(self, case: Case, feed: Mapping[str, Array], noise: Drawn, expected: Sequence[Array]) -> list[Array]:
        """The module's outputs, which are compared with the original's, and so is what it draws from."""
        by_value = {a: z for (a, _), z in zip(self.draws, noise.noise, strict=True)}
        given = self.side.outputs(feed, by_value)
        off = 0.0
        by_act = self.side.acted(feed)
        for name, a, made in zip(self.outputs, expected, given, strict=False):
            b = noise.settle(self.choices[name], a, made) if name in self.choices else made
            shown = f"{name}, memory fed back" if case.carried else name  # else large made-up memories would widen what is tolerated
            self.torch_tallies.setdefault(shown, Tally(shown)).add(a, b)
            acted = by_act.get(name)
            if acted is not None and (
                acted.dtype != made.dtype or acted.shape != made.shape or different_bits(acted, made).any()
            ):  # else it is compared already
                acted = noise.settle(self.choices[name], a, acted) if name in self.choices else acted
                self.torch_tallies.setdefault(f"{shown}, by act", Tally(f"{shown}, by act")).add(a, acted)
            if case.kind == "sequence" and a.shape == b.shape and a.size:
                off = max(off, float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64)))))
        if case.kind == "sequence":
            self.drift.append((case.label, off))
        if not case.carried:  # the original's would come from another memory
            for (value, name), b in zip(
                self.sources.items(), self.side.inner(list(self.sources), feed) if self.sources else (), strict=True
            ):
                self.torch_tallies.setdefault(name, Tally(name)).add(noise.values[value], b)
        return given

    def _memory(self, outputs: Sequence[Array]) -> dict[str, Array]:
        """What a step's outputs are for the next step's inputs."""
        given = dict(zip(self.outputs, outputs, strict=False))
        return {i.name: given[i.next] for i in self.spec.inputs if i.next in given}

    def verdict(self, same_file: bool = False) -> Verification:
        """The level reached on everything that was run. UnsupportedGraph if an output was not compared."""
        for name in self.outputs:
            if name not in self.tallies or name not in self.torch_tallies:
                raise UnsupportedGraph(
                    f"The output {quoted(name)} could not be compared: onnxruntime ran the original on none of the inputs tried. Nothing is called equal that was not looked at."
                )
        figures = tuple(t.figures() for t in self.tallies.values())
        in_torch = tuple(t.figures() for t in self.torch_tallies.values())
        level, reason = _level(figures, in_torch, self.alignment, same_file, self.tolerance)
        if not self.alignment.isomorphic and (other := unlike_draw(self.spec.graph, self.rebuilt, self.draws)):
            level, reason = "differs", other
        refused = tuple(dict.fromkeys(self.refused))
        return Verification(level, reason, figures, in_torch, tuple(self.runs), self.seed, self.alignment.isomorphic, refused)


def _level(
    figures: Sequence[Figures], in_torch: Sequence[Figures], alignment: Alignment, same_file: bool, tolerance: float
) -> tuple[Level, str]:
    far = [f for f in in_torch if not f.within(tolerance)]
    if far:
        return "differs", f"torch's {quoted(far[0].output)} is off by {far[0].max_abs:.3g}"
    unequal = [f for f in figures if f.differing]
    if unequal:
        worst = max(unequal, key=lambda f: f.max_abs / max(1.0, f.reference_max))
        level: Level = "close" if all(f.within(tolerance) for f in unequal) else "differs"
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
