"""Whether what is drawn is drawn as the policy says: tests of the samples themselves, with fixed seeds.

The comparison with given noise shows that the same noise makes the same action. Here both sides draw by themselves:
the random operators of rebuilt.onnx in onnxruntime, and the torch module's forward without noise.

    onnxruntime  normal draws: z of each action against the standard normal (Kolmogorov-Smirnov), the sum of all squares
                 (chi-square), and whether actions, or draws side by side, go together (correlation)
                 discrete draws: how often each option came against its probability (Pearson's chi-square)
    torch        each column of an output against onnxruntime's samples of it: its distribution (Kolmogorov-Smirnov), its
                 variance, whether columns go together; options against their probabilities (chi-square)
    both         options of probability 0 are never drawn

All tests together wrongly find fault in one of 10,000 policies at most (`LEVEL`, shared out evenly: Bonferroni); with a
fixed seed the outcome is the same each time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime as ort

from graph2torch.graph import RANDOM, Array
from graph2torch.spec import PolicySpec

from .observations import Numbers
from .randomness import probe
from .runtime import session
from .torchside import TorchSide

LEVEL = 1e-4  # for all tests together
DRAWS = 10_000  # for each observation; fewer where an observation is large
NUMBERS = 2**23  # of an input in all draws, about
FEWEST = 500  # draws, and runs where each takes a fixed number of rows
NARROW = 1e-4  # a standard deviation, times max(1, largest): where torch and onnxruntime round otherwise it may not matter
AT_ONCE = 2**20  # numbers of an input in one run
Side = Literal["torch", "onnxruntime"]


@dataclass(frozen=True, slots=True)
class SampleTest:
    """One test. `p`: the chance of such a statistic or a larger one if all is as it should be."""

    side: Side
    of: str
    method: str
    statistic: float
    samples: int
    p: float


@dataclass(frozen=True)
class Sampling:
    """The tests of what was drawn.

    level:     below which p a test counts as failed: LEVEL shared out among the tests
    forbidden: how often an option of probability 0 was drawn, by side and draw
    drawn:     how many draws were looked at; untested: what could not be tested, and why
    """

    tests: tuple[SampleTest, ...]
    level: float
    forbidden: Mapping[str, int]
    drawn: int
    seed: int
    untested: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[SampleTest, ...]:
        return tuple(test for test in self.tests if not test.p >= self.level)

    @property
    def right(self) -> bool:
        return not self.failed and not any(self.forbidden.values())


def check_sampling(
    side: TorchSide,
    rebuilt: onnx.ModelProto,
    draws: Sequence[tuple[str, str]],
    observations: Sequence[Mapping[str, Array]],
    seed: int,
) -> Sampling:
    """Draws many times from each of `observations` (one row each), in onnxruntime and in torch.

    draws: pairs of the values that random operators make, in the original and in `rebuilt`
    """
    fields = {value: field for field, value in side.spec.noise.items()}
    columns, sampled = _columns(side.spec), _sampled(side.spec)
    results: list[SampleTest] = []
    untested: list[str] = []
    forbidden: dict[str, int] = {}
    drawn = 0

    def options(name: Side, what: str, place: str, sample: Numbers, p: Numbers) -> None:
        chosen = np.rint(sample).astype(np.int64).reshape(-1)
        inside = (chosen >= 0) & (chosen < p.size)
        never = int((~inside).sum() + (p[chosen[inside]] == 0).sum())
        forbidden[f"{name}, {place}"] = forbidden.get(f"{name}, {place}", 0) + never
        results.extend(_discrete(name, what, chosen[inside], p))

    for number, observation in enumerate(observations, 1):
        judged, found = _in_onnxruntime(rebuilt, [b for _, b in draws], observation, seed + number)
        given = _in_torch(side, observation, seed + number)
        chances: dict[str, Numbers] = {}
        for (value, _), (kind, sample, source) in zip(draws, found, strict=True):
            what = f"{fields.get(value, value)}, observation {number}"
            drawn += sample.size
            if kind == "Multinomial":
                if not np.isfinite(source).all():
                    untested.append(f"{what}: its probabilities are not finite")
                    continue
                chances[value] = source
                options("onnxruntime", what, fields.get(value, value), sample, source)
            elif kind == "RandomNormalLike":
                results += _normal("onnxruntime", what, sample)
            else:
                untested.append(f"{what}: drawn by {kind}, which no test is known for")
        for name, ours in ((name, given[name]) for name in given if name in sampled):
            what, theirs = f"{name}, observation {number}", judged[name]
            if ours.shape[1:] != theirs.shape[1:] or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
                untested.append(f"{what}: its samples are not finite, or not of one shape")
                continue
            drawn += ours.size
            ours, theirs = (x.reshape(len(x), -1).astype(np.float64) for x in (ours, theirs))
            if name in columns:
                for i, value in enumerate(columns[name]):
                    if value in chances:
                        options("torch", f"{what}, branch {i}", f"{name} {i}", ours[:, i], chances[value])
                continue
            wide = np.maximum(ours.std(0), theirs.std(0)) > NARROW * np.maximum(1, np.abs(theirs).max(0))
            untested += [f"{what}, column {i}: too narrow to tell from rounding" for i in np.flatnonzero(~wide)]
            if wide.any():
                results += _two_samples("torch", what, ours[:, wide], theirs[:, wide])
    level = LEVEL / max(1, len(results))
    return Sampling(tuple(results), level, forbidden, drawn, seed, tuple(dict.fromkeys(untested)))


def _sampled(spec: PolicySpec) -> set[str]:
    """The outputs that are made from what is drawn; the others only differ by rounding from row to row."""
    drawn = {v for n in spec.graph.nodes if n.op in RANDOM for v in n.outputs}
    for node in spec.graph.nodes:
        if drawn & set(node.inputs) and node.op not in RANDOM:
            drawn |= set(node.outputs)
    return {output.name for output, result in zip(spec.graph.outputs, spec.graph.results, strict=True) if result in drawn}


def _columns(spec: PolicySpec) -> dict[str, list[str]]:
    """Output → the value drawn for each of its columns, for outputs that are drawn options throughout."""
    graph = spec.graph
    producer = {value: node for node in graph.nodes for value in node.outputs}
    found = {}
    for output, result in zip(graph.outputs, graph.results, strict=True):
        node = producer.get(result)
        parts = [] if node is None else list(node.inputs) if node.op == "Concat" else [result]
        makers = [producer.get(v) for v in parts]
        if parts and all(n is not None and n.op == "Multinomial" and n.attributes.get("sample_size", 1) == 1 for n in makers):
            found[output.name] = parts
    return found


def _feeds(observation: Mapping[str, Array], free: bool) -> Iterator[dict[str, Array]]:
    """The observation again and again: many rows at once where the inputs take any number of them."""
    if not free:
        rows = max((len(array) for array in observation.values() if array.ndim), default=1)
        for _ in range(min(FEWEST, -(-DRAWS // max(rows, 1)))):
            yield dict(observation)
        return
    widest = max(1, *(array.size for array in observation.values()))
    wanted = int(np.clip(NUMBERS // widest, FEWEST, DRAWS))
    rows = min(wanted, max(1, AT_ONCE // widest))
    for start in range(0, wanted, rows):
        yield {name: np.repeat(array, min(rows, wanted - start), axis=0) for name, array in observation.items()}


def _free(spec: PolicySpec) -> bool:
    return bool(spec.inputs) and all(i.shape and not isinstance(i.shape[0], int) for i in spec.inputs)


def _in_torch(side: TorchSide, observation: Mapping[str, Array], seed: int) -> dict[str, Numbers]:
    """Outputs of forward without noise, by name, all draws below each other; torch's generator is left as it was."""
    import torch

    names = [o.name for o in side.spec.outputs]
    wanted = [i for i, o in enumerate(side.spec.outputs) if o.constant is None]
    parts: list[list[Array]] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for feed in _feeds(observation, _free(side.spec)):
            outputs = side.outputs(feed)
            parts.append([outputs[i] for i in wanted])
    return {names[i]: np.concatenate(column) for i, column in zip(wanted, zip(*parts, strict=True), strict=True) if column[0].ndim > 0}


def _in_onnxruntime(
    rebuilt: onnx.ModelProto, draws: Sequence[str], observation: Mapping[str, Array], seed: int
) -> tuple[dict[str, Numbers], list[tuple[str, Numbers, Numbers]]]:
    """Outputs of rebuilt.onnx as it is, by name, and for each draw its operator, what was drawn and what from.

    Seeded through `onnxruntime.set_seed` before the session is made.
    """
    proto = onnx.ModelProto.FromString(rebuilt.SerializeToString())
    nodes = {o: n for n in proto.graph.node for o in n.output}
    names = [o.name for o in proto.graph.output]
    probe(proto, [v for drawn in draws for v in (nodes[drawn].input[0], drawn)])
    ort.set_seed(seed)
    runner = session(proto, True, "the rebuilt graph")
    known = {i.name for i in runner.get_inputs()}
    free = all(not i.shape or not isinstance(i.shape[0], int) for i in runner.get_inputs()) and bool(known)
    parts = [runner.run(None, {k: v for k, v in feed.items() if k in known}) for feed in _feeds(observation, free)]
    outputs = {name: np.concatenate([part[i] for part in parts]) for i, name in enumerate(names) if parts[0][i].ndim}
    found: list[tuple[str, Numbers, Numbers]] = []
    for i, drawn in enumerate(draws):
        source, sample = (np.concatenate([part[len(names) + 2 * i + j] for part in parts]).astype(np.float64) for j in (0, 1))
        kind = nodes[drawn].op_type
        if kind == "Multinomial":
            with np.errstate(all="ignore"):
                p = np.exp(source[0])
                source = p / p.sum()
        found.append((kind, sample, source))
    return outputs, found


# ---------------------------------------------------------------------------------------------- the tests
def _normal(side: Any, what: str, z: Numbers) -> list[SampleTest]:
    """z: [draws, actions], which should be independent and standard normal."""
    z = z.reshape(len(z), -1).astype(np.float64)
    n, actions = z.shape
    tests = []
    for action in range(actions):
        d, p = kolmogorov_smirnov(z[:, action])
        tests.append(SampleTest(side, f"{what}, action {action}: z is standard normal", "Kolmogorov-Smirnov", d, n, p))
    total = float((z**2).sum())
    tests.append(SampleTest(side, f"{what}: the size of z", "chi-square, sum of squares", total, z.size, _chi_square_both(total, z.size)))
    centred = z - z.mean(0)
    with np.errstate(all="ignore"):
        centred = centred / np.sqrt((centred**2).sum(0))
    together = np.abs(centred.T @ centred)[np.triu_indices(actions, 1)]
    if together.size:
        tests.append(_correlation(side, f"{what}: actions go together", float(together.max()), n, together.size))
    beside = np.abs((centred[1:] * centred[:-1]).sum(0))
    tests.append(_correlation(side, f"{what}: draws side by side go together", float(beside.max()), n, beside.size))
    return tests


def _two_samples(side: Any, what: str, ours: Numbers, theirs: Numbers) -> list[SampleTest]:
    """Two samples [draws, columns] of what should be one distribution: column by column, its spread, and what goes together."""
    tests = []
    for column in range(ours.shape[1]):
        a, b = ours[:, column], theirs[:, column]
        d, p = kolmogorov_smirnov_of_two(a, b)
        name = f"{what}, column {column}"
        tests.append(SampleTest(side, f"{name}: distributed as onnxruntime's", "Kolmogorov-Smirnov", d, len(a), p))
        apart, p = variances(a, b)
        tests.append(SampleTest(side, f"{name}: spread as onnxruntime's", "variances", apart, len(a), p))
    moving = [i for i in range(ours.shape[1]) if np.std(ours[:, i]) > 0 and np.std(theirs[:, i]) > 0]
    if len(moving) > 1:
        together = [np.corrcoef(x[:, moving].T)[np.triu_indices(len(moving), 1)] for x in (ours, theirs)]
        n = len(ours) * len(theirs) / (len(ours) + len(theirs))
        largest = float(
            np.abs(np.arctanh(np.clip(together[0], -1 + 1e-15, 1 - 1e-15)) - np.arctanh(np.clip(together[1], -1 + 1e-15, 1 - 1e-15))).max()
        )
        tests.append(_correlation(side, f"{what}: columns go together as onnxruntime's", largest, int(n), together[0].size))
    return tests


def variances(a: Numbers, b: Numbers) -> tuple[float, float]:
    """How many standard errors two sample variances are apart, and p: their difference is normal for large samples.

    The standard error of a variance s² of n numbers is √((m₄ − s⁴) / n), m₄ the fourth central moment (Kendall and Stuart,
    The Advanced Theory of Statistics, volume 1, section 10.4).
    """
    (s, error), (t, other) = ((float(np.var(x)), float((np.mean((x - x.mean()) ** 4) - np.var(x) ** 2) / len(x))) for x in (a, b))
    if s == t:
        return 0.0, 1.0
    together = math.sqrt(max(error, 0.0) + max(other, 0.0))
    apart = abs(s - t) / together if together else math.inf
    return apart, math.erfc(apart / math.sqrt(2))


def kolmogorov_smirnov_of_two(a: Numbers, b: Numbers) -> tuple[float, float]:
    """The largest distance of two empirical distributions, and its p, as below with n = |a| |b| / (|a| + |b|); ties make p larger."""
    points = np.concatenate([a, b])
    below = [np.searchsorted(np.sort(x), points, side="right") / len(x) for x in (a, b)]
    d = float(np.abs(below[0] - below[1]).max())
    return d, _kolmogorov(d, len(a) * len(b) / (len(a) + len(b)))


def _correlation(side: Any, what: str, largest: float, n: int, count: int) -> SampleTest:
    """The largest of `count` correlations of n pairs: each is normal with variance 1 / n, about, if nothing goes together."""
    p = min(1.0, count * math.erfc(largest * math.sqrt(n / 2))) if math.isfinite(largest) else 0.0
    return SampleTest(side, what, f"correlation, largest of {count}", largest, n, p)


def kolmogorov_smirnov(z: Numbers) -> tuple[float, float]:
    """The largest distance of the empirical distribution from the standard normal, and its p.

    p by the series of Kolmogorov's distribution, 2 Σ (−1)^(j−1) exp(−2 j² λ²), with Stephens's λ = (√n + 0.12 + 0.11/√n) D
    (M. A. Stephens, Journal of the Royal Statistical Society B 32, 1970; Press et al., Numerical Recipes, section 14.3).
    """
    import torch

    n = len(z)
    below = torch.special.ndtr(torch.from_numpy(np.sort(z.astype(np.float64)))).numpy()
    steps = np.arange(n + 1) / n
    d = float(max(np.max(steps[1:] - below), np.max(below - steps[:-1])))
    return d, _kolmogorov(d, n)


def _kolmogorov(d: float, n: float) -> float:
    if not math.isfinite(d):
        return 0.0
    scaled = (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n)) * d
    if scaled < 0.2:  # the series does not converge, and the sum is 1 to ten digits
        return 1.0
    return float(np.clip(2 * sum((-1) ** (j - 1) * math.exp(-2 * j * j * scaled**2) for j in range(1, 101)), 0, 1))


def _discrete(side: Any, what: str, options: Numbers, p: Numbers) -> list[SampleTest]:
    """Options drawn against their probabilities p. Those expected fewer than 5 times are counted together."""
    n = len(options)
    seen = np.bincount(options, minlength=p.size).astype(np.float64)
    order = np.argsort(p)
    seen, expected = seen[order], p[order] * n
    few = int((np.cumsum(expected) < 5).sum()) + 1  # the rarest ones, until 5 are expected
    seen, expected = np.append(seen[few:], seen[:few].sum()), np.append(expected[few:], expected[:few].sum())
    if len(expected) < 2:
        return []
    statistic, p_value = chi_square(seen, expected)
    return [SampleTest(side, f"{what}: options by their probability", f"chi-square, {len(expected)} options", statistic, n, p_value)]


def chi_square(seen: Numbers, expected: Numbers) -> tuple[float, float]:
    """Pearson's Σ (seen − expected)² / expected, and its p: Q((k − 1) / 2, χ² / 2), the regularised upper incomplete gamma function."""
    import torch

    statistic = float(((seen.astype(np.float64) - expected) ** 2 / expected).sum())
    half = torch.tensor([(len(seen) - 1) / 2, statistic / 2], dtype=torch.float64)
    return statistic, float(torch.special.gammaincc(half[0], half[1]))


def _chi_square_both(statistic: float, degrees: int) -> float:
    """Twice the smaller tail of the chi-square distribution: the size may be wrong either way."""
    import torch

    half = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    low, high = float(torch.special.gammainc(half[0], half[1])), float(torch.special.gammaincc(half[0], half[1]))
    return min(1.0, 2 * min(low, high))


__all__ = ["LEVEL", "SampleTest", "Sampling", "check_sampling", "chi_square", "kolmogorov_smirnov"]
