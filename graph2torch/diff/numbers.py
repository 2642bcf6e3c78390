"""Two graphs, run on the same inputs in onnxruntime: which outputs differ, and by how much.

Inputs are those of the quick tier (observations.py), random operators are pinned (randomness.py): what corresponds draws the
same in both. An output that depends on a draw which the other graph doesn't make is not compared, and said to be so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from graph2torch.errors import Graph2TorchError
from graph2torch.files import where
from graph2torch.graph import Array, Graph, Model, ValueInfo, check_memory
from graph2torch.judge.figures import TOLERANCE, Figures, Tally, different_bits, joined
from graph2torch.judge.observations import observation, quick
from graph2torch.judge.randomness import Drawn, Randomness, met_by_noise, needed_draws, pin, probe
from graph2torch.judge.runtime import session
from graph2torch.text import one_line, quoted

SEED = 20240611
KEPT = 2**20  # numbers that are kept for later, at most
PROBE = "what is drawn from"


@dataclass(frozen=True, slots=True)
class Outputs:
    """A pair of outputs, by position in both files; `name` is a's."""

    name: str
    a: int
    b: int


@dataclass(frozen=True)
class Numbers:
    """What running both gave.

    figures:      by output, b against a
    ordinary:     the same, on ordinary inputs alone
    drawn_from:   by number, what random numbers are drawn from and scaled with
    runs:         the cases that both ran, the optimiser off; and on, unless they are further apart than the tolerance without it
    refused:      cases that onnxruntime runs neither of the two on
    one_sided:    cases that it runs only one of them on
    worst:        the largest |a − b| of one output in one case, divided by max(1, largest |a| there)
    unvaried:     outputs that depend on the inputs and yet gave one number, or no number, on all ordinary inputs: that they are
                  equal says little
    not_compared: outputs and inputs that could not be compared, or everything, with the reason
    """

    figures: tuple[Figures, ...] = ()
    ordinary: tuple[Figures, ...] = ()
    drawn_from: tuple[Figures, ...] = ()
    runs: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    one_sided: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    seed: int = SEED
    worst: float = 0.0
    unvaried: tuple[str, ...] = ()

    @property
    def differing(self) -> tuple[Figures, ...]:
        return tuple(f for f in (*self.figures, *self.drawn_from) if f.differing)


def compare_numbers(
    a: Model,
    b: Model,
    inputs: Sequence[tuple[ValueInfo, ValueInfo]],
    outputs: Sequence[Outputs],
    nodes: Iterable[tuple[str, str]],
    graphs: tuple[Graph, Graph],
    samples: int = 0,
    seed: int = SEED,
) -> Numbers:
    """Runs both on the quick tier's cases and on `samples` further ordinary ones.

    inputs:  pairs that are fed the same, all that the graphs read
    nodes:   pairs of first outputs of nodes that correspond; the random ones among them draw the same
    graphs:  the canonical graphs, which tell what depends on a draw

    A graph that can't be run is no error but a reason in `not_compared`.
    """
    try:
        return _Comparison(a, b, inputs, outputs, nodes, graphs, samples, seed).run()
    except Graph2TorchError as error:
        return Numbers(not_compared=(f"everything: {one_line(str(error), 400)}",), seed=seed)


_Prepared: TypeAlias = "tuple[str, str, dict[str, Array], list[dict[str, Array] | None]]"  # label, kind, inputs, what each side draws


class _Comparison:
    def __init__(
        self,
        a: Model,
        b: Model,
        inputs: Sequence[tuple[ValueInfo, ValueInfo]],
        outputs: Sequence[Outputs],
        nodes: Iterable[tuple[str, str]],
        graphs: tuple[Graph, Graph],
        samples: int,
        seed: int,
    ) -> None:
        self.models, self.inputs, self.graphs, self.seed, self.samples = (a, b), inputs, graphs, seed, samples
        for model in self.models:
            check_memory(model.proto, where(model.path))
        self.draws = tuple(needed_draws(m.proto) for m in self.models)
        self.noises = [Randomness(m.proto, draws, [], {}) if draws else None for m, draws in zip(self.models, self.draws, strict=True)]
        random = set(self.draws[0]), set(self.draws[1])
        self.same = {y: x for x, y in nodes if x in random[0] and y in random[1]}  # b's draw → a's
        self.notes: list[str] = []
        self.outputs = self.comparable(outputs)
        self.gathered = {o.name: _Gathered(o.name) for o in self.outputs}
        self.kept: list[_Prepared] | None = None
        self.runs: list[str] = []
        self.refused: dict[str, None] = {}
        self.one_sided: dict[str, None] = {}

    def comparable(self, outputs: Sequence[Outputs]) -> list[Outputs]:
        """Those that depend on no draw which the other graph doesn't make, or makes of other sizes."""
        for label, kind, feed in self.cases() if self.same else ():
            mine, theirs = self.drawn(feed, label, kind)
            if mine is not None and theirs is not None:
                self.same = {y: x for y, x in self.same.items() if mine[x].shape == theirs[y].shape}
                break
        loose = set(self.draws[0]) - set(self.same.values()), set(self.draws[1]) - self.same.keys()
        reached = [_reached(graph, values) for graph, values in zip(self.graphs, loose, strict=True)]
        alone = [o for o in outputs if self.graphs[0].results[o.a] in reached[0] or self.graphs[1].results[o.b] in reached[1]]
        self.notes += [f"{quoted(o.name)}, which depends on a random number that only one of the two draws" for o in alone]
        return [o for o in outputs if o not in alone]

    def run(self) -> Numbers:
        for optimised in (False, True) if self.outputs else ():
            if optimised and self.worst > TOLERANCE:
                break  # they differ, whatever the optimiser makes of them
            sessions = self.sessions(optimised)
            names = [[self.graphs[side].outputs[o.b if side else o.a].name for o in self.outputs] for side in (0, 1)]
            probes = [[v.name for v in s.get_outputs()[len(m.proto.graph.output) :]] for s, m in zip(sessions, self.models, strict=True)]
            for label, kind, feed, noise in self.prepared():
                given = [self.ask(side, sessions[side], [*names[side], *probes[side]], feed, noise[side]) for side in (0, 1)]
                if given[0] is None or given[1] is None:
                    (self.refused if given[0] is given[1] else self.one_sided)[label] = None
                    continue
                self.runs.append(f"{label}, optimiser {'on' if optimised else 'off'}")
                labels = [*(o.name for o in self.outputs), *(f"{PROBE} {i}" for i in range(len(probes[0])))]
                for name, x, y in zip(labels, given[0], given[1], strict=True):
                    self.gathered.setdefault(name, _Gathered(name)).add(kind, *_alike(x, y))
        if self.outputs and not self.runs:
            both = "onnxruntime runs them on none of the inputs tried"
            self.notes.append(f"everything: {both if self.refused else 'onnxruntime runs only one of them on what was tried'}")
        outputs = [self.gathered[o.name] for o in self.outputs]
        inner = [found for name, found in self.gathered.items() if name not in {o.name for o in self.outputs}]
        return Numbers(
            tuple(found.figures() for found in outputs if found.cases),
            tuple(found.figures(ordinary=True) for found in outputs if found.cases),
            tuple(found.figures() for found in inner),
            tuple(self.runs),
            tuple(self.refused),
            tuple(self.one_sided),
            tuple(self.notes),
            self.seed,
            self.worst,
            tuple(o.name for o in self.outputs if not self.gathered[o.name].varied and self.computed(o)),
        )

    @property
    def worst(self) -> float:
        return max((found.worst for found in self.gathered.values()), default=0.0)

    def computed(self, output: Outputs) -> bool:
        """Whether both graphs make it of something that they are given."""
        return all(
            graph.results[place] in _reached(graph, [i.name for i in graph.inputs])
            for graph, place in zip(self.graphs, (output.a, output.b), strict=True)
        )

    def prepared(self) -> Iterator[_Prepared]:
        """The cases with what is drawn in them; kept for the second time, unless they are too large."""
        if self.kept is not None:
            yield from self.kept
            return
        kept: list[_Prepared] = []
        numbers = 0
        for label, kind, feed in self.cases():
            noise = self.noise(feed, label, kind)
            numbers += sum(v.size for values in (feed, *filter(None, noise)) for v in values.values())
            if numbers <= KEPT:
                kept.append((label, kind, feed, noise))
            yield label, kind, feed, noise
        self.kept = kept if numbers <= KEPT else None

    def sessions(self, optimised: bool) -> list[Any]:
        """Both graphs with their draws pinned; unless the optimiser is on, what meets the draws are further outputs.

        They tell what is drawn from, where given draws would hide it: the probabilities of an option.
        """
        paired = len(self.same) == len(self.draws[0]) == len(self.draws[1])
        draws = (list(self.same.values()), list(self.same)) if paired else self.draws
        pinned = [pin(m.proto, names) for m, names in zip(self.models, draws, strict=True)]
        if not optimised and paired and self.same:
            met = [met_by_noise(m.proto, names) for m, names in zip(self.models, draws, strict=True)]
            if len(met[0]) == len(met[1]):
                for proto, values in zip(pinned, met, strict=True):
                    probe(proto, values)
            else:
                self.notes.append("what the random numbers are scaled with, of which the two have other numbers")
        return [session(proto, optimised, where(m.path)) for proto, m in zip(pinned, self.models, strict=True)]

    def cases(self) -> Iterator[tuple[str, str, dict[str, Array]]]:
        """Inputs under a's names, sizes that either of the two fixes taken over, in a's types."""
        merged = [
            ValueInfo(x.name, x.dtype, tuple(n if isinstance(m, str | None) else m for m, n in zip(x.shape, y.shape, strict=True)))
            for x, y in self.inputs
        ]
        yield from ((case.label, case.kind, dict(case.feed)) for case in quick(merged, self.seed))
        for number in range(self.samples):
            rng = np.random.default_rng([self.seed, number, *b"sample"])
            yield f"sample {number}", "ordinary", {i.name: observation(i, 4, "ordinary", rng) for i in merged}

    def fed(self, side: int, feed: Mapping[str, Array]) -> dict[str, Array]:
        """What one graph is fed; inputs that it doesn't read and the other doesn't have are ones."""
        given = dict(feed) if side == 0 else {y.name: _cast(feed[x.name], y.dtype) for x, y in self.inputs}
        batch = next((v.shape[0] for v in feed.values() if v.ndim), 1)
        for value in self.graphs[side].inputs:
            if value.name not in given:
                given[value.name] = np.ones([size if isinstance(size, int) else batch for size in value.shape], value.dtype)
        return given

    def drawn(self, feed: Mapping[str, Array], label: str, kind: str) -> list[dict[str, Array] | None]:
        """What each graph's random operators draw by themselves, by name; None for a graph that can't do this case."""
        found: list[dict[str, Array] | None] = []
        for side, randomness in enumerate(self.noises):
            rng = np.random.default_rng([self.seed, *label.encode()])
            drawn = randomness.draw(self.fed(side, feed), rng, 8.0 if kind == "extreme" else 1.0) if randomness else Drawn([], [], {})
            found.append(None if drawn is None else dict(zip(self.draws[side], drawn.drawn, strict=True)))
        return found

    def noise(self, feed: Mapping[str, Array], label: str, kind: str) -> list[dict[str, Array] | None]:
        """The same, with what a draws for what corresponds in b."""
        mine, theirs = self.drawn(feed, label, kind)
        if mine is not None and theirs is not None:
            theirs |= {y: mine[x].astype(theirs[y].dtype) for y, x in self.same.items()}
        return [mine, theirs]

    def ask(
        self, side: int, running: Any, names: Sequence[str], feed: Mapping[str, Array], noise: Mapping[str, Array] | None
    ) -> list[Array] | None:
        """What one graph gives under `names`; None if it can't do this case."""
        if noise is None:
            return None
        known = {v.name for v in running.get_inputs()}
        wanted = list(dict.fromkeys(names))
        try:
            values = running.run(wanted, {k: v for k, v in {**self.fed(side, feed), **noise}.items() if k in known})
        except Exception:  # onnxruntime raises many kinds
            return None
        given = dict(zip(wanted, values, strict=True))
        return [given[name] for name in names]


class _Gathered:
    """What both gave for one output, in every case: counted many numbers at a time.

    varied: whether there is more than one number among what ordinary inputs gave
    cases: how many; worst: the largest |a − b| of one of them, divided by max(1, largest |a| there)
    """

    def __init__(self, name: str) -> None:
        self.tallies = {True: Tally(name), False: Tally(name)}  # ordinary inputs, others
        self.waiting: dict[bool, list[tuple[Array, Array]]] = {True: [], False: []}
        self.cases, self.worst = 0, 0.0
        self.varied, self.first = False, np.zeros(0)

    def add(self, kind: str, x: Array, y: Array) -> None:
        self.cases += 1
        ordinary = kind == "ordinary"
        if ordinary and x.size and not self.varied:
            self.first = self.first if self.first.size else x.reshape(-1)[:1].astype(np.float64)
            self.varied = not bool(np.array_equal(x, np.broadcast_to(self.first, x.shape), equal_nan=x.dtype.kind == "f"))
        if x.shape != y.shape or x.dtype != y.dtype or not x.size:
            self.tallies[ordinary].add(x, y)
            self.worst = max(self.worst, self.tallies[ordinary].max_abs)
            return
        if different_bits(x, y).any():
            self.worst = max(self.worst, _relative(x, y))
        waiting = self.waiting[ordinary]
        waiting.append((x.reshape(-1), y.reshape(-1)))
        if sum(one.size for one, _ in waiting) > KEPT:
            self.flush(ordinary)

    def flush(self, ordinary: bool) -> None:
        if self.waiting[ordinary]:
            xs, ys = zip(*self.waiting[ordinary], strict=True)
            self.tallies[ordinary].add(np.concatenate(xs), np.concatenate(ys))
            self.waiting[ordinary].clear()

    def figures(self, ordinary: bool = False) -> Figures:
        """Over everything, or over ordinary inputs alone."""
        self.flush(True)
        self.flush(False)
        return self.tallies[True].figures() if ordinary else joined(self.tallies[True], self.tallies[False])


def _relative(x: Array, y: Array) -> float:
    """The largest |x − y| / max(1, largest finite |x|); inf where only one is finite, or they are not the same infinity."""
    a, b = x.astype(np.float64), y.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    top = float(np.max(np.abs(a[finite]), initial=1.0))
    return float(np.max(np.abs(a[finite] - b[finite]), initial=0.0)) / top


def _reached(graph: Graph, values: Iterable[str]) -> set[str]:
    """The values that depend on `values`, these included."""
    reached = set(values)
    for node in graph.nodes if reached else ():
        if not reached.isdisjoint(node.inputs):
            reached.update(node.outputs)
    return reached


def _cast(value: Array, dtype: np.dtype[np.generic]) -> Array:
    with np.errstate(over="ignore"):
        return value.astype(dtype)


def _alike(a: Array, b: Array) -> tuple[Array, Array]:
    """Numbers of two types in the wider one."""
    if a.dtype == b.dtype or "b" in (a.dtype.kind, b.dtype.kind):
        return a, b
    wider = np.promote_types(a.dtype, b.dtype)
    return a.astype(wider), b.astype(wider)
