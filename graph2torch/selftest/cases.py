"""The cases of the self test, one small function each, in the order in which they are run.

A case gives what it looked at in a few words, or a `Measured`; it raises NotApplicableError where the policy or the device has no such
thing, and FailedError with what was expected and what was found.
"""

from __future__ import annotations

import io
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from graph2torch.act import philox
from graph2torch.act.contract import Input
from graph2torch.act.fingerprint import fingerprint
from graph2torch.act.jsonlines import serve
from graph2torch.act.run import Actions, Runner, act_on
from graph2torch.canonical import canonicalise
from graph2torch.devices.device import exact
from graph2torch.devices.on_device import check_on_device, moved
from graph2torch.errors import ActingError, ObservationError, UnsupportedGraph
from graph2torch.export import export
from graph2torch.graph import Array, read_graph
from graph2torch.judge.figures import TOLERANCE, Figures, Tally, different_bits
from graph2torch.judge.isomorphism import align
from graph2torch.judge.observations import ROWS, STEPS, Case, batch_of, ordinary
from graph2torch.judge.precision import Half, PrecisionCheck, check_precision, with_rounding
from graph2torch.judge.randomness import pair_draws
from graph2torch.judge.sampling import check_sampling
from graph2torch.judge.torchside import TorchSide
from graph2torch.lifted import check_lifted
from graph2torch.precisions import HALF
from graph2torch.text import counted, quoted

from .selftest import FailedError, Measured, NotApplicableError, Subject

Run = Callable[[Subject], "str | Measured"]
CASES: list[tuple[str, str, Run]] = []  # group, name, and what to do
STATISTICS = ("running_mean", "running_variance", "normalization_steps", "std")
FAR = 1e6  # times an ordinary observation
AGENTS = 64
SEEDS = 16
TIMED = 50  # steps


def case(group: str, name: str) -> Callable[[Run], Run]:
    def register(run: Run) -> Run:
        CASES.append((group, name, run))
        return run

    return register


# ---------------------------------------------------------------------------------------------- comparing
def check_same(expected: Mapping[str, Array], found: Mapping[str, Array], what: str) -> str:
    """FailedError unless both hold the same bits under the same names."""
    if expected.keys() != found.keys():
        raise FailedError(f"{what}: {', '.join(map(quoted, expected))}", ", ".join(map(quoted, found)))
    for name, a in expected.items():
        b = found[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            raise FailedError(f"{what}: {quoted(name)} {a.dtype} {list(a.shape)}", f"{b.dtype} {list(b.shape)}")
        if count := int(different_bits(a, b).sum()):
            raise FailedError(f"{what}, the same bits", f"{quoted(name)} differs in {count:,} of {a.size:,} numbers")
    return f"{sum(a.size for a in expected.values()):,} numbers, the same bits"


def check_near(expected: Mapping[str, Array], found: Mapping[str, Array], what: str, tolerance: float = TOLERANCE) -> str:
    """FailedError unless both are within the tolerance; options must be the same."""
    if expected.keys() != found.keys():
        raise FailedError(f"{what}: {', '.join(map(quoted, expected))}", ", ".join(map(quoted, found)))
    figures = []
    for name, a in expected.items():
        tally = Tally(name)
        tally.add(a, found[name])
        figures.append(tally.figures())
    return check_figures(figures, what, tolerance)


def check_figures(figures: list[Figures], what: str, tolerance: float = TOLERANCE) -> str:
    for one in figures:
        if not one.within(tolerance):
            raise FailedError(f"{what}, within {tolerance:g} · max(1, largest output)", f"{quoted(one.output)} is off by {one.max_abs:.3g}")
    worst = max((one.max_abs for one in figures), default=0.0)
    return f"{sum(one.compared for one in figures):,} numbers, off by up to {worst:.2g}"


def check_other(a: Mapping[str, Array], b: Mapping[str, Array], what: str) -> str:
    """FailedError if all actions are the same."""
    differing = sum(_differing(a, b).values())
    if not differing:
        raise FailedError(f"{what}: other actions", "the same ones")
    return f"{differing:,} of {sum(x.size for x in a.values()):,} actions are others"


def check_refused(act: Callable[[], Any], *words: str) -> str:
    """FailedError unless it is refused, as an error that says so."""
    try:
        act()
    except (ObservationError, ActingError) as error:
        if missing := [word for word in words if word not in str(error)]:
            raise FailedError(f"a message that tells {', '.join(map(repr, missing))}", str(error)) from None
        return str(error)
    raise FailedError("that it is refused", "actions")


def row(actions: Mapping[str, Array], *rows: int) -> Actions:
    return {name: value[list(rows)] for name, value in actions.items()}


def joined(parts: list[Actions]) -> Actions:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


# ---------------------------------------------------------------------------------------------- files
@case("files", "as build wrote them")
def _(s: Subject) -> str:
    if s.folder.changed:
        raise FailedError("files whose sha256 is the report's", f"{', '.join(map(quoted, s.folder.changed))} changed since the build")
    return "sha256 of each is the report's"


@case("files", "model.py and weights.safetensors have the same tensors")
def _(s: Subject) -> str:
    from safetensors import safe_open

    with safe_open(s.folder.path / "weights.safetensors", "pt") as file:
        stored = set(file.keys())
    known = set(s.own.state_dict())
    if stored != known:
        odd = sorted(stored ^ known)
        raise FailedError("each in both", f"{', '.join(map(quoted, odd[:4]))} in one of them only")
    return f"{len(known)} tensors"


@case("files", "every weight is finite")
def _(s: Subject) -> str:
    numbers = 0
    for name, tensor in s.own.state_dict().items():
        if count := int((~tensor.isfinite()).sum()):
            raise FailedError("finite weights", f"{count:,} numbers of {quoted(name)} are NaN or infinite")
        numbers += tensor.numel()
    return f"{numbers:,} numbers"


@case("files", "weights saved and loaded again")
def _(s: Subject) -> str:
    from safetensors.torch import save_file

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "again.safetensors"
        save_file({name: tensor.clone(memory_format=_contiguous()) for name, tensor in s.own.state_dict().items()}, path)
        again = s.own.forward.__globals__["load"](path)
    return check_same(_numbers(s.own), _numbers(again), "the weights")


def _numbers(module: Any) -> dict[str, Array]:
    """The weights as numpy has them: those of half precision, exactly, as float32."""
    return {name: (t.float() if t.is_floating_point() else t).cpu().numpy() for name, t in module.state_dict().items()}


@case("files", "weights of half precision are the float32 network's, rounded")
def _(s: Subject) -> str:
    if not s.half:
        raise NotApplicableError("the weights are stored in float32")
    found = with_rounding(_checked(s, s.contract.dtype), s.own, s.module, s.known, s.contract.dtype)
    if found.unlike:
        raise FailedError(f"rebuilt.onnx's weights rounded to {found.stored}", f"{quoted(found.unlike[0])} holds others")
    return f"{found.rounded} tensors, the same bits as rebuilt.onnx's rounded to {found.stored}"


def _contiguous() -> Any:
    import torch

    return torch.contiguous_format


# ---------------------------------------------------------------------------------------------- contract
@case("contract", "inputs are the original's")
def _(s: Subject) -> str:
    def told(inputs: tuple[Input, ...]) -> list[Any]:
        return [(i.name, i.field, i.shape, i.dtype, i.kind, i.next) for i in inputs]

    return _listed(told(s.spec.inputs), told(s.contract.inputs), "input")


@case("contract", "outputs are the original's")
def _(s: Subject) -> str:
    names = [o.name for o in s.spec.outputs]
    if list(s.policy.forward.__globals__["Outputs"]._fields) != [o.field for o in s.spec.outputs]:
        raise FailedError("model.py's Outputs as the original's", ", ".join(s.policy.forward.__globals__["Outputs"]._fields))
    return _listed(names, [o.name for o in s.contract.outputs], "output")


@case("contract", "random draws are the original's")
def _(s: Subject) -> str:
    if not s.spec.noise:
        raise NotApplicableError("the policy draws nothing at random")
    return _listed(list(s.spec.draws()), list(s.contract.draws), "draw")


def _listed(expected: list[Any], found: list[Any], what: str) -> str:
    if expected != found:
        odd = [f"{a} is {b}" for a, b in zip(expected, found, strict=False) if a != b]
        raise FailedError(f"{counted(len(expected), what)} as in the original", odd[0] if odd else f"{len(found)}")
    return counted(len(expected), what)


@case("contract", "fixed outputs hold the original's numbers")
def _(s: Subject) -> str:
    fixed = {o.name: (n, o.constant) for n, o in enumerate(s.spec.outputs) if o.constant is not None}
    if not fixed:
        raise NotApplicableError("no output is fixed")
    given = s.side.outputs(_whole(s, 1))
    expected = {name: np.asarray(value) for name, (_, value) in fixed.items()}
    found = {name: given[n].reshape(expected[name].shape).astype(expected[name].dtype) for name, (n, _) in fixed.items()}
    return check_same(expected, found, "fixed outputs")


@case("contract", "actions have their number and type")
def _(s: Subject) -> str:
    s.need_deterministic()
    acting = s.contract.acting
    if not acting.sampled:
        raise NotApplicableError("a policy of no known family: any output is an action")
    feed = s.feed(3)
    rows = s.rows(3)
    wanted = {"continuous_actions": ("float32", [rows, acting.continuous]), "discrete_actions": ("int64", [rows, len(acting.options)])}
    wanted = {name: value for name, value in wanted.items() if name in acting.deterministic}
    found = {name: (str(a.dtype), list(a.shape)) for name, a in s.runner().act(feed).items()}
    if wanted != found:
        raise FailedError(str(wanted), str(found))
    return ", ".join(f"{name} {sizes}" for name, (_, sizes) in wanted.items())


# ---------------------------------------------------------------------------------------------- what is refused
def _observed(s: Subject) -> str:
    """The name of an observation that the policy uses."""
    s.need_deterministic()
    found = next((i.name for i in s.contract.inputs if i.kind == "observation" and i.used), None)
    if found is None:
        raise NotApplicableError("the policy takes no observations")
    return found


@case("refused", "a missing observation")
def _(s: Subject) -> str:
    name = _observed(s)
    feed = s.feed(1)
    del feed[name]
    return check_refused(lambda: s.runner().act(feed), quoted(name), "expected")


@case("refused", "an input that the policy hasn't")
def _(s: Subject) -> str:
    _observed(s)
    unknown = "not_an_input"
    while unknown in {i.name for i in s.contract.inputs}:
        unknown += "_"
    return check_refused(lambda: s.runner().act(s.feed(1) | {unknown: np.zeros((1, 1), np.float32)}), quoted(unknown))


@case("refused", "an observation of another size")
def _(s: Subject) -> str:
    name = _observed(s)
    feed = s.feed(1)
    if not any(isinstance(size, int) for size in next(i for i in s.contract.inputs if i.name == name).shape[1:]):
        raise NotApplicableError("the graph leaves its size free")
    wide = np.zeros((*feed[name].shape[:-1], feed[name].shape[-1] + 1), feed[name].dtype)
    return check_refused(lambda: s.runner().act(feed | {name: wide}), quoted(name), str(list(wide.shape)))


def _spoilt(s: Subject, value: float) -> str:
    name = _observed(s)
    feed = s.feed(1)
    if feed[name].dtype.kind != "f" or not feed[name].size:
        raise NotApplicableError("the observation holds whole numbers")
    feed[name].reshape(-1)[-1] = value
    return check_refused(lambda: s.runner().act(feed), quoted(name), "row")


@case("refused", "NaN in an observation")
def _(s: Subject) -> str:
    return _spoilt(s, np.nan)


@case("refused", "infinity in an observation")
def _(s: Subject) -> str:
    return _spoilt(s, -np.inf)


@case("refused", "an agent that is named twice in a step")
def _(s: Subject) -> str:
    _observed(s)
    feed, rows = s.feed(2), s.rows(2)
    if rows < 2:
        raise NotApplicableError("one agent at a time")
    return check_refused(lambda: s.runner().act(feed, agents=[7] * rows), "twice")


@case("refused", "noise without a place: a negative seed")
def _(s: Subject) -> str:
    s.need_sampled()
    return check_refused(lambda: s.runner().act(s.feed(1), sample=True, seed=-1), "seed")


# ---------------------------------------------------------------------------------------------- deterministic
@case("deterministic", "the same observations, the same bits")
def _(s: Subject) -> str:
    s.need_deterministic()
    feed = s.feed(AGENTS)
    return check_same(s.runner().act(feed), s.runner().act(feed), "the actions")


@case("deterministic", "loaded again, the same bits")
def _(s: Subject) -> str:
    s.need_deterministic()
    feed = s.feed(16)
    again = Runner(moved(s.folder.load(), s.device), s.contract, s.device.torch, s.runner().dtype)
    return check_same(s.runner().act(feed), again.act(feed), "the actions")


@case("deterministic", "act and forward agree")
def _(s: Subject) -> str:
    acting = s.contract.acting
    fields = {o.name: n for n, o in enumerate(s.contract.outputs)}
    pairs = {name: fields[f"deterministic_{name}"] for name in acting.deterministic if f"deterministic_{name}" in fields}
    if not pairs:
        raise NotApplicableError("forward gives no deterministic actions")
    s.need_deterministic()
    whole = _whole(s, 5)
    outputs, found = s.own_side().outputs(whole), s.runner().act(whole)
    return check_near({name: outputs[n] for name, n in pairs.items()}, {name: found[name] for name in pairs}, "act as forward", s.tolerance)


@case("deterministic", "nothing is drawn")
def _(s: Subject) -> str:
    import torch

    s.need_deterministic()
    before = torch.get_rng_state()
    s.runner().act(s.feed(3))
    if not torch.equal(before, torch.get_rng_state()):
        raise FailedError("torch's generator as before", "it was drawn from")
    return "torch's generator is as before"


@case("deterministic", "finite actions")
def _(s: Subject) -> str:
    s.need_deterministic()
    return _finite(s.runner().act(s.feed(AGENTS)))


@case("deterministic", "another observation, another action")
def _(s: Subject) -> str:
    s.need_deterministic()
    _observed(s)
    runner = s.runner()
    options = s.contract.acting.options
    if options and not s.contract.acting.continuous:
        raise NotApplicableError("discrete actions alone: the same one may be best everywhere")
    return check_other(runner.act(s.feed(16)), s.runner().act(s.feed(16, step=1)), "other observations")


def _finite(actions: Mapping[str, Array]) -> str:
    for name, numbers in actions.items():
        if count := int((~np.isfinite(numbers)).sum()):
            raise FailedError("finite actions", f"{count:,} of {numbers.size:,} numbers of {quoted(name)} are NaN or infinite")
    return f"{sum(a.size for a in actions.values()):,} actions"


def _whole(s: Subject, rows: int) -> dict[str, Array]:
    """An array for every input: made-up observations, masks that allow everything, memory of a first step."""
    feed = s.feed(rows)
    count = s.rows(rows)
    for i in s.contract.inputs:
        if i.name not in feed:
            shape = (count, *(size if isinstance(size, int) else 1 for size in i.shape[1:]))
            feed[i.name] = np.full(shape, i.kind == "mask", np.dtype(i.dtype))
    return feed


# ---------------------------------------------------------------------------------------------- sampled
def _sample(s: Subject, rows: int = AGENTS, seed: int = 0) -> Actions:
    s.need_sampled()
    return s.runner().act(s.feed(rows), sample=True, seed=seed)


@case("sampled", "the same seed, the same bits")
def _(s: Subject) -> str:
    return check_same(_sample(s), _sample(s), "the samples")


def _uncertain(s: Subject) -> dict[str, Array]:
    """As many agents that all see the same: of some observations the one whose samples vary most with the seed."""
    samples = [_sample(s, seed=seed) for seed in range(SEEDS)]
    rows = s.rows(AGENTS)
    flat = np.stack([np.concatenate([a.reshape(rows, -1).astype(np.float64) for a in one.values()], axis=1) for one in samples])
    others = [SEEDS - int(np.unique(flat[:, n], axis=0, return_counts=True)[1].max()) for n in range(rows)]
    most = int(np.argmax(others))
    if others[most] < SEEDS // 5:  # else samples would be the same by chance
        raise NotApplicableError("the policy is certain: its samples hardly ever differ")
    return {name: np.repeat(value[most : most + 1], rows, 0) for name, value in s.feed(AGENTS).items()}


@case("sampled", "another seed, other actions")
def _(s: Subject) -> str:
    feed = _uncertain(s)
    acted = [s.runner().act(feed, sample=True, seed=seed) for seed in (0, 1)]
    return check_other(acted[0], acted[1], "seed 1 instead of 0")


@case("sampled", "another step, other noise")
def _(s: Subject) -> str:
    feed, runner = _uncertain(s), s.runner()
    first = runner.act(feed, sample=True)
    runner.reset()  # the memory, not the noise
    return check_other(first, runner.act(feed, sample=True), "the same observations a step later")


@case("sampled", "each agent has noise of its own")
def _(s: Subject) -> str:
    feed = _uncertain(s)
    actions = s.runner().act(feed, sample=True)
    rows = s.rows(AGENTS)
    if rows == 1:
        raise NotApplicableError("one agent at a time")
    if all((value == value[:1]).all() for value in actions.values()):
        raise FailedError("other actions for agents that see the same", "the same action for all of them")
    return f"{counted(rows, 'agent')} that see the same"


@case("sampled", "noise doesn't depend on the order of agents")
def _(s: Subject) -> str:
    s.need_sampled()
    s.need_agents()
    order = np.random.default_rng(s.seed).permutation(AGENTS)
    feed = s.feed(AGENTS)
    shuffled = s.runner(1).act({name: value[order] for name, value in feed.items()}, sample=True, agents=order)
    expected = s.runner(1).act(feed, sample=True)
    return check_same({name: value[order] for name, value in expected.items()}, shuffled, "agents in another order")


@case("sampled", "torch's generator isn't touched")
def _(s: Subject) -> str:
    import torch

    before = torch.get_rng_state()
    _sample(s, 3)
    if not torch.equal(before, torch.get_rng_state()):
        raise FailedError("noise by its place alone", "torch's generator was drawn from")
    return "noise by its place alone"


@case("sampled", "the stream of noise is the documented one")
def _(s: Subject) -> str:
    s.need_sampled()
    # Random123 1.14.0, kat_vectors: philox4x32 10, counter and key of all ones
    ones = np.asarray(0xFFFFFFFF, np.uint64)
    found = [f"{int(word):08x}" for word in philox.philox(2**64 - 1, ones, ones, ones, ones)]
    expected = ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"]
    if found != expected:
        raise FailedError(" ".join(expected), " ".join(found))
    return "Philox 4×32-10's known answer"


@case("sampled", "forward draws its noise on the CPU")
def _(s: Subject) -> str:
    """The classic mistake is to draw on the device, whose generator gives other numbers for the same seed."""
    import torch

    s.need_sampled()
    if not s.contract.draws or not s.contract.acting.sampled:
        raise NotApplicableError("forward doesn't draw what the policy does")
    whole = [torch.from_numpy(array) for array in (_whole(s, 16)[i.name] for i in s.contract.inputs)]

    def drawn(policy: Any, place: Any, seed: int) -> Actions:
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        with torch.inference_mode():
            out = policy(*(tensor.to(place) for tensor in whole))
            found: Actions = {name: getattr(out, field).cpu().numpy() for name, field in s.contract.acting.sampled.items()}
        if torch.equal(before, torch.get_rng_state()):
            raise FailedError("torch's generator on the CPU to be drawn from", f"noise on {place} that comes from elsewhere")
        return found

    here, other = (drawn(s.own, "cpu", s.seed + n) for n in (0, 1))
    certain = not _differing(_sample(s, 16), _sample(s, 16, seed=1)).get("continuous_actions")
    if not certain and not _differing(here, other)["continuous_actions"]:
        raise FailedError("other continuous actions for another seed of torch", "the same: their noise comes from elsewhere")
    if s.device.kind.type == "cpu":
        return check_same(here, drawn(s.own, "cpu", s.seed), "torch's seed")
    return check_near(
        _continuous(here), _continuous(drawn(s.acting, s.device.torch, s.seed)), "the CPU's noise for torch's seed", s.tolerance
    )


def _differing(a: Mapping[str, Array], b: Mapping[str, Array]) -> dict[str, int]:
    return {name: int(different_bits(a[name], b[name]).sum()) for name in a}


@case("sampled", "finite actions")
def _(s: Subject) -> str:
    return _finite(_sample(s))


@case("sampled", "no noise, the deterministic action")
def _(s: Subject) -> str:
    names = {o.name: n for n, o in enumerate(s.contract.outputs)}
    s.need_sampled()
    fields = s.contract.acting.sampled
    by_field = {o.field: n for n, o in enumerate(s.contract.outputs)}
    if "continuous_actions" not in fields or "deterministic_continuous_actions" not in names:
        raise NotApplicableError("the policy doesn't give continuous actions both sampled and deterministic")
    if any(block.rule == "squashed_action" for block in s.spec.blocks):
        raise NotApplicableError("SAC's deterministic actions are means without the tanh that bounds sampled ones")
    feed = _whole(s, 7)
    noise = {value: np.zeros(_sizes(shape, s.rows(7)), np.float32) for value, shape in _drawn(s).items()}
    found = s.own_side().outputs(feed, noise)
    pair = found[names["deterministic_continuous_actions"]], found[by_field[fields["continuous_actions"]]]
    return check_near({"continuous_actions": pair[0]}, {"continuous_actions": pair[1]}, "the deterministic action", s.tolerance)


def _drawn(s: Subject) -> dict[str, Any]:
    return {value: draw.shape for value, draw in zip(s.spec.noise.values(), s.spec.draws(), strict=True)}


def _sizes(shape: Any, rows: int) -> tuple[int, ...]:
    return (rows, *(size for size in shape[1:] if isinstance(size, int)))


@case("sampled", "distributed as the policy says")
def _(s: Subject) -> str:
    s.need_sampled()
    if not s.spec.noise:
        raise NotApplicableError("the graph itself draws nothing")
    size = batch_of(s.spec.inputs) or 1
    feed = next(iter(ordinary(s.spec, s.seed, 1))).feed
    rows = [{name: array[n * size : (n + 1) * size] if array.ndim else array for name, array in feed.items()} for n in range(3)]
    draws = pair_draws(s.original, s.rebuilt.proto, s.alignment)
    found = check_sampling(s.side, s.rebuilt.proto, draws, [one for one in rows if all(len(a) for a in one.values())], s.seed)
    if any(found.forbidden.values()):
        raise FailedError("no forbidden option", f"{sum(found.forbidden.values()):,} draws of options whose probability is 0")
    if found.failed:
        worst = min(found.failed, key=lambda test: test.p)
        raise FailedError(f"p of {found.level:.2g} or more in each test", f"p = {worst.p:.2g}: {worst.side}, {worst.of} ({worst.method})")
    if not found.tests:
        raise NotApplicableError("; ".join(found.untested[:2]) or "nothing to test")
    return f"{len(found.tests)} tests of {found.drawn:,} draws"


# ---------------------------------------------------------------------------------------------- against the original
def _judged(s: Subject, wanted: Callable[[Case], bool]) -> str:
    """rebuilt.onnx bit by bit and the policy within the tolerance, on the original's observations and noise."""
    judge = s.judge(wanted)
    compared = 0
    for tally in judge.tallies.values():
        one = tally.figures()
        compared += one.compared
        if one.differing:
            raise FailedError(
                "the original's bits from rebuilt.onnx, in onnxruntime",
                f"{quoted(one.output)} differs in {one.differing:,} of {one.compared:,} numbers, by up to {one.max_abs:.3g}",
            )
    said = f"rebuilt.onnx: {compared:,} numbers, the same bits"
    if not judge.torch_tallies:
        return f"{said}; torch not compared, where rounding alone decides"
    figures = [t.figures() for t in judge.torch_tallies.values()]
    return f"{said}; model.py: {check_figures(figures, 'the original from model.py')}"


@case("cross-check", "ordinary observations")
def _(s: Subject) -> str:
    return _judged(s, lambda c: c.kind == "ordinary" and "again" not in c.label)


@case("cross-check", "samples beside their bounds")
def _(s: Subject) -> str:
    s.need_sampled()
    return _judged(s, lambda c: c.kind == "sample bounds")


@case("cross-check", "the same number for every feature")
def _(s: Subject) -> str:
    return _judged(s, lambda c: c.kind == "equal")


def _of_kind(kind: str) -> Run:
    return lambda s: _judged(s, lambda c: c.kind == kind)


for _name, _kind in (
    ("zeros", "zero"),
    ("minus zeros", "minus zero"),
    ("subnormal numbers", "subnormal"),
    ("far from ordinary", "extreme"),
    ("saturated, 10⁴", "saturating"),
    ("far saturated, 10⁸", "far saturating"),
    ("huge, 10²⁰", "huge"),
    ("the largest, 3·10³⁸", "largest"),
    ("NaN and infinity", "not finite"),
    ("where the normaliser clips", "normaliser edges"),
    ("buffers from empty to full", "buffer"),
):
    case("extreme observations", _name)(_of_kind(_kind))


@case("extreme observations", "actions stay within their bounds")
def _(s: Subject) -> str | Measured:
    bounded = {block.rule for block in s.spec.blocks} & {"bounded_action", "squashed_action"}
    if not bounded:
        raise NotApplicableError("the policy bounds no actions")
    far = FAR
    while not (top := _largest(s, far, "squashed_action" in bounded)) <= 1.0:
        if not s.half or far <= 1 or top > 1.0:  # float32 holds such observations, and what half precision can't hold is NaN
            raise FailedError("continuous actions within ±1", f"{top:g}")
        far /= 10
    if far < FAR:
        return Measured(
            f"up to {far:g} times ordinary observations the largest is {top:g}; beyond that {s.contract.dtype} overflows to NaN"
        )
    return f"the largest is {top:g}"


def _largest(s: Subject, far: float, squashed: bool) -> float:
    """The largest continuous action for observations `far` times the ordinary ones; NaN if one is."""
    feed = {name: (value.astype(np.float64) * far).astype(value.dtype) for name, value in s.feed(AGENTS).items()}
    acted = []
    if not squashed and s.contract.acting.deterministic:  # SAC's deterministic actions are means without tanh
        acted.append(s.runner().act(feed))
    if s.contract.draws:
        s.need_sampled()
        acted.append(s.runner().act(feed, sample=True))
    return float(np.max([np.abs(actions["continuous_actions"]).max() for actions in acted]))


# ---------------------------------------------------------------------------------------------- batch
def _batch(size: int) -> Run:
    def run(s: Subject) -> str:
        if (fixed := batch_of(s.contract.inputs)) is not None and fixed != size:
            raise NotApplicableError(f"the graph takes {counted(fixed, 'agent')} at a time, no other number")
        return _judged(s, lambda c: c.label == f"batch {size}, ordinary again")

    return run


for _size in (1, 2, 7, 16, 64, 257):
    case("batch", f"{_size} agents" if _size > 1 else "1 agent")(_batch(_size))


@case("batch", "64 agents one by one, the same bits as together")
def _(s: Subject) -> str:
    s.need_deterministic()
    s.need_agents()
    feed = s.feed(AGENTS)
    alone = joined([s.runner(1).act({name: value[n : n + 1] for name, value in feed.items()}) for n in range(AGENTS)])
    return check_same(alone, s.runner(1).act(feed), "64 × 1 agent, as a batch of groups of one")


@case("batch", "samples of 64 agents one by one, the same bits as together")
def _(s: Subject) -> str:
    s.need_sampled()
    s.need_agents()
    feed, runner = s.feed(AGENTS), s.runner(1)
    parts = [runner.act({name: v[n : n + 1] for name, v in feed.items()}, sample=True, agents=[n]) for n in range(AGENTS)]
    return check_same(joined(parts), s.runner(1).act(feed, sample=True), "64 × 1 agent, as a batch of groups of one")


@case("batch", "computed all at once, the same within rounding")
def _(s: Subject) -> str:
    s.need_deterministic()
    s.need_agents()
    feed = s.feed(AGENTS)
    return check_near(_continuous(s.runner(1).act(feed)), _continuous(s.runner().act(feed)), "64 agents in one product", s.tolerance)


def _continuous(actions: Mapping[str, Array]) -> Actions:
    """Without options, where two that are equally good may change places."""
    found = {name: value for name, value in actions.items() if value.dtype.kind == "f"}
    if not found:
        raise NotApplicableError("discrete actions alone: of two equally good options either may be taken")
    return found


@case("batch", "agents don't see each other")
def _(s: Subject) -> str:
    s.need_deterministic()
    s.need_agents()
    feed = s.feed(AGENTS)
    others = {name: np.concatenate([value[:1], value[:0:-1]]) for name, value in feed.items()}
    first, second = s.runner().act(feed), s.runner().act(others)
    return check_near(_continuous(row(first, 0)), _continuous(row(second, 0)), "agent 0 among others", s.tolerance)


# ---------------------------------------------------------------------------------------------- memory
def _steps(s: Subject, runner: Runner, steps: int, rows: int = 2, agents: list[int] | None = None) -> list[Actions]:
    s.need_deterministic()
    return [runner.act(s.feed(rows, step), agents=agents) for step in range(steps)]


@case("recurrent", f"{STEPS} steps of memory fed back, as the original")
def _(s: Subject) -> str:
    s.need_memory()
    return _judged(s, lambda c: c.kind == "sequence")


@case("recurrent", "a first step is one with memory of zeros")
def _(s: Subject) -> str:
    name = s.need_memory()
    s.need_deterministic()
    whole = _whole(s, 3)
    return check_same(s.runner().act(whole), s.runner().act({k: v for k, v in whole.items() if k != name}), "memory of zeros")


@case("recurrent", "the memory of a step is the next one's")
def _(s: Subject) -> str:
    name = s.need_memory()
    next_name = next(i.next for i in s.contract.inputs if i.name == name)
    s.need_deterministic()
    runner, whole, later = s.runner(), _whole(s, 2), s.feed(2, 1)
    runner.act({k: v for k, v in whole.items() if k != name})
    outputs = dict(zip([o.name for o in s.spec.outputs], s.own_side().outputs(whole), strict=True))
    by_hand = s.runner().act(later | {name: outputs[next_name]})
    return check_near(by_hand, runner.act(later), "memory given by hand", s.tolerance)


@case("recurrent", "memory changes what is done")
def _(s: Subject) -> str:
    s.need_memory()
    _continuous(_steps(s, s.runner(), 1)[0])
    runner = s.runner()
    first, second = (runner.act(s.feed(2)) for _ in range(2))
    return check_other(first, second, "the same observation a step later")


@case("recurrent", "after a reset, a first step again")
def _(s: Subject) -> str:
    s.need_memory()
    runner = s.runner()
    first = _steps(s, runner, 3)
    runner.reset()
    return check_same(first[0], runner.act(s.feed(2)), "the first step")


@case("recurrent", "one agent's reset leaves the others")
def _(s: Subject) -> str:
    s.need_memory()
    s.need_agents()
    runner, other = s.runner(1), s.runner(1)
    first = _steps(s, runner, 2)
    _steps(s, other, 2)
    runner.reset([0])
    found, expected = runner.act(s.feed(2)), other.act(s.feed(2))
    check_same(row(first[0], 0), row(found, 0), "agent 0, whose memory was reset")
    return check_same(row(expected, 1), row(found, 1), "agent 1, whose memory wasn't")


@case("recurrent", "each agent has memory of its own")
def _(s: Subject) -> str:
    s.need_memory()
    s.need_agents()
    together = _steps(s, s.runner(1), 4)
    runner = s.runner(1)
    for step, expected in enumerate(together):
        feed = s.feed(2, step)
        parts = [runner.act({name: v[n : n + 1] for name, v in feed.items()}, agents=[n]) for n in (1, 0)]
        check_same(expected, joined(parts[::-1]), f"step {step + 1} of two agents in turn")
    return "two agents in turn, 4 steps, as together"


@case("recurrent", f"finite over {STEPS} steps of the same observation")
def _(s: Subject) -> str:
    s.need_memory()
    s.need_deterministic()
    runner = s.runner()
    return _finite(joined([runner.act(s.feed(2, kind="zeros")) for _ in range(STEPS)]))


# ---------------------------------------------------------------------------------------------- masks
def _masked(s: Subject, sample: bool) -> str:
    """Random masks: what they forbid is never chosen."""
    name, options = s.need_mask()
    (s.need_sampled if sample else s.need_deterministic)()
    rng, rows = np.random.default_rng(s.seed), s.rows(256)
    mask = (rng.random((rows, sum(options))) < 0.4).astype(_dtype(s, name))
    ends = np.cumsum([0, *options])
    for start, end in pairwise(ends):
        mask[np.arange(rows), rng.integers(start, end, rows)] = 1
    chosen = s.runner().act(s.feed(256) | {name: mask}, sample=sample)["discrete_actions"]
    for branch, start in enumerate(ends[:-1]):
        if count := int((mask[np.arange(rows), start + chosen[:, branch]] == 0).sum()):
            raise FailedError("options that are allowed", f"{count} of {rows} choices of branch {branch} are forbidden")
    return f"{chosen.size:,} choices under random masks"


def _dtype(s: Subject, name: str) -> Any:
    return np.dtype(next(i.dtype for i in s.contract.inputs if i.name == name))


def _only_one(s: Subject, sample: bool) -> str:
    name, options = s.need_mask()
    (s.need_sampled if sample else s.need_deterministic)()
    rows, ends = s.rows(max(options)), np.cumsum([0, *options])
    wanted = np.stack([np.arange(rows) % count for count in options], axis=1)
    mask = np.zeros((rows, sum(options)), _dtype(s, name))
    for branch, start in enumerate(ends[:-1]):
        mask[np.arange(rows), start + wanted[:, branch]] = 1
    found = s.runner().act(s.feed(max(options)) | {name: mask}, sample=sample)["discrete_actions"]
    return check_same({"discrete_actions": wanted.astype(np.int64)}, {"discrete_actions": found}, "the one option that is allowed")


@case("masks", "without a mask, everything is allowed")
def _(s: Subject) -> str:
    name, _ = s.need_mask()
    s.need_deterministic()
    whole = _whole(s, 16)
    given = {k: v for k, v in whole.items() if k == name or next(i for i in s.contract.inputs if i.name == k).kind == "observation"}
    return check_same(s.runner().act(given), s.runner().act(s.feed(16)), "a mask of ones")


@case("masks", "one option allowed, that one chosen")
def _(s: Subject) -> str:
    return _only_one(s, False)


@case("masks", "one option allowed, that one sampled")
def _(s: Subject) -> str:
    return _only_one(s, True)


@case("masks", "what is forbidden is never chosen")
def _(s: Subject) -> str:
    return _masked(s, False)


@case("masks", "what is forbidden is never sampled")
def _(s: Subject) -> str:
    return _masked(s, True)


@case("masks", "a row that allows nothing is refused")
def _(s: Subject) -> str:
    name, options = s.need_mask()
    s.need_deterministic()
    mask = np.ones((s.rows(2), sum(options)), _dtype(s, name))
    mask[-1] = 0
    return check_refused(lambda: s.runner().act(s.feed(2) | {name: mask}), quoted(name), f"row {len(mask) - 1}")


@case("masks", "other numbers than 0 and 1 are refused")
def _(s: Subject) -> str:
    name, options = s.need_mask()
    s.need_deterministic()
    mask = np.full((s.rows(1), sum(options)), 2, _dtype(s, name))
    return check_refused(lambda: s.runner().act(s.feed(1) | {name: mask}), quoted(name))


@case("masks", "masks of the graph, as the original")
def _(s: Subject) -> str:
    return _judged(s, lambda c: c.kind == "mask")


# ---------------------------------------------------------------------------------------------- precision
def _half(s: Subject, dtype: str) -> Any:
    import torch

    try:
        half = s.folder.load(dtype=getattr(torch, dtype))
    except ActingError:
        raise NotApplicableError("the policy has no layers with weights") from None
    return moved(half, s.device)


def _checked(s: Subject, dtype: str) -> PrecisionCheck:
    if dtype not in s.precision:
        half = Half(_half(s, dtype), s.spec, s.device.name, changed=True)
        try:
            s.precision[dtype] = check_precision(s.original, s.side, half, dtype, s.spec, ordinary(s.spec, s.seed, 2), s.seed)
        except UnsupportedGraph as error:  # an old torch has no half precision on the CPU; or the original runs on nothing that is tried
            raise NotApplicableError(str(error)) from None
    return s.precision[dtype]


def _finite_in(dtype: str) -> Run:
    def run(s: Subject) -> str:
        found = _checked(s, dtype)
        if found.not_finite:
            raise FailedError("finite numbers where float32's are", f"{found.not_finite:,} are NaN or infinite")
        return counted(found.runs * s.rows(ROWS), "agent")

    return run


def _good_in(dtype: str) -> Run:
    def run(s: Subject) -> Measured:
        found = _checked(s, dtype)
        changed = f", {found.changed:,} of {found.choices:,} discrete actions changed" if found.choices else ""
        return Measured(f"{found.verdict}: off by up to {found.error:.2g} · max(1, largest output){changed}")

    return run


for _dtype_name in HALF:
    case("precision", f"{_dtype_name} is finite where float32 is")(_finite_in(_dtype_name))
    case("precision", f"{_dtype_name}, how near")(_good_in(_dtype_name))


@case("precision", "statistics stay float32 in half precision")
def _(s: Subject) -> str:
    kept = {name: b for name, b in _half(s, "float16").named_buffers() if name.rpartition(".")[2] in STATISTICS}
    if not kept:
        raise NotApplicableError("the policy has no normaliser")
    for name, buffer in kept.items():
        if buffer.is_floating_point() and buffer.element_size() < 4:
            raise FailedError("float32", f"{quoted(name)} is {buffer.dtype}")
    return f"{len(kept)} tensors"


@case("precision", "half() does what load(dtype=torch.float16) does")
def _(s: Subject) -> str:
    import torch

    s.need_deterministic()
    _checked(s, "float16")  # whether torch can compute in it
    feed, half = s.feed(16), s.folder.load(dtype=torch.float16)
    acted = [Runner(moved(m, s.device), s.contract, s.device.torch, torch.float16).act(feed) for m in (half, s.folder.load().half())]
    return check_same(acted[0], acted[1], "load(dtype=torch.float16)")


@case("precision", "half() leaves the normaliser whole")
def _(s: Subject) -> str:
    module = s.folder.load()
    before = {name: b.clone() for name, b in module.named_buffers() if name.rpartition(".")[2] in STATISTICS}
    if not before:
        raise NotApplicableError("the policy has no normaliser")
    after = dict(module.half().named_buffers())
    return check_same({k: v.numpy() for k, v in before.items()}, {k: after[k].numpy() for k in before}, "the statistics")


# ---------------------------------------------------------------------------------------------- fingerprint
def _mark(s: Subject, *, seed: int = 0, group: int = 0) -> tuple[Any, Mapping[str, Array]]:
    sample = not s.contract.acting.deterministic and bool(s.contract.draws)
    (s.need_sampled if sample else s.need_deterministic)()
    acted = act_on(s.runner(group), steps=8, batch=s.rows(4), sample=sample, seed=seed)
    return fingerprint(acted.actions), acted.actions


@case("fingerprint", "the same twice")
def _(s: Subject) -> str:
    (first, _), (second, _) = _mark(s), _mark(s)
    if first != second:
        raise FailedError(first.exact, second.exact)
    return f"{first.exact[:16]}… of {first.numbers} actions"


@case("fingerprint", "the tolerant one forgives rounding")
def _(s: Subject) -> str:
    s.need_agents()
    if s.half:
        raise NotApplicableError(f"{s.contract.dtype} rounds more coarsely than the tolerant fingerprint forgives")
    (first, actions), (second, _) = _mark(s, group=1), _mark(s)
    _continuous(actions)
    if not first.agrees(second.tolerant):
        raise FailedError(f"{first.tolerant}, by one at most", second.tolerant or "none: some action is not finite")
    return "one by one and all at once"


@case("fingerprint", "other observations have another one")
def _(s: Subject) -> str:
    (first, actions), (second, _) = _mark(s), _mark(s, seed=1)
    _continuous(actions)
    if first.exact == second.exact:
        raise FailedError("another one for seed 1", "the same")
    return f"{second.exact[:16]}… for seed 1"


@case("fingerprint", "one bit of one action is seen")
def _(s: Subject) -> str:
    found, actions = _mark(s)
    changed = {name: value.copy() for name, value in actions.items()}
    value = next(iter(changed.values())).reshape(-1)
    value[0] = np.nextafter(value[0], value.dtype.type(np.inf)) if value.dtype.kind == "f" else value[0] + 1
    if fingerprint(changed).exact == found.exact:
        raise FailedError("another exact fingerprint", "the same")
    return "the exact one is another"


# ---------------------------------------------------------------------------------------------- re-export
@case("re-export", "rebuilt.onnx is valid")
def _(s: Subject) -> str:
    try:
        onnx.checker.check_model(s.rebuilt.proto)
    except Exception as error:  # onnx raises several kinds
        raise FailedError("what onnx's checker takes", str(error)) from None
    return "by onnx's checker"


@case("re-export", "rebuilt.onnx is the original's graph")
def _(s: Subject) -> str:
    if not s.alignment.isomorphic:
        reason = s.alignment.refusal or f"{len(s.alignment.differing)} constants differ"
        raise FailedError("the same operators on the same numbers", reason)
    return f"{len(s.alignment.nodes)} operators"


@case("re-export", "inputs and outputs keep their names and order")
def _(s: Subject) -> str:
    ends = [([v.name for v in graph.inputs], [v.name for v in graph.outputs]) for graph in (s.recognised.model.graph, s.rebuilt.graph)]
    if ends[0][1] != ends[1][1]:
        raise FailedError(", ".join(map(quoted, ends[0][1])), ", ".join(map(quoted, ends[1][1])))
    if not set(ends[1][0]) <= set(ends[0][0]):
        raise FailedError(", ".join(map(quoted, ends[0][0])), ", ".join(map(quoted, ends[1][0])))
    return f"{counted(len(ends[1][0]), 'input')}, {counted(len(ends[1][1]), 'output')}"


@case("re-export", "model.py exported anew is the original's graph")
def _(s: Subject) -> str:
    proto = export(s.module, s.spec)
    alignment = align(s.spec.graph, canonicalise(read_graph(proto, "the export")))
    if not alignment.isomorphic:
        raise FailedError("the same operators on the same numbers", alignment.refusal or f"{len(alignment.differing)} constants differ")
    return f"{len(alignment.nodes)} operators"


@case("re-export", "lifted.onnx is the original's graph")
def _(s: Subject) -> str:
    path = s.folder.path / "lifted.onnx"
    if not path.is_file():
        raise NotApplicableError("the folder has no lifted.onnx")
    check_lifted(onnx.load(path), s.spec, s.original)
    return "one node a layer, inlined"


# ---------------------------------------------------------------------------------------------- filter
@case("filter", "a line of JSON, the same action")
def _(s: Subject) -> str:
    s.need_deterministic()
    feed = s.feed(1)
    line = json.dumps({name: value.tolist() for name, value in feed.items()}).encode() + b"\n"
    out = io.StringIO()
    serve(s.runner(), io.BytesIO(line), out)
    expected = s.runner().act(feed)
    answer = json.loads(out.getvalue())
    return check_same(expected, {name: np.asarray(answer.get(name), a.dtype) for name, a in expected.items()}, "the answer")


@case("filter", "a bad line is refused, with its number")
def _(s: Subject) -> str:
    s.need_deterministic()
    return check_refused(lambda: serve(s.runner(), io.BytesIO(b'\n{"no": }\n'), io.StringIO()), "line 2")


# ---------------------------------------------------------------------------------------------- device
@case("device", "it works")
def _(s: Subject) -> str:
    if not s.device.status.ready:
        raise FailedError("ready", s.device.status.state)
    return f"{s.device.name}{', simulated' if s.device.simulated else ''}"


@case("device", "every tensor of the policy lies there")
def _(s: Subject) -> str:
    tensors = [*s.acting.named_parameters(), *s.acting.named_buffers()]
    for name, tensor in tensors:
        if tensor.device.type != s.device.torch.type:
            raise FailedError(s.device.name, f"{quoted(name)} lies on {tensor.device}")
    return f"{len(tensors)} tensors"


@case("device", "whole float32")
def _(s: Subject) -> str:
    with exact(s.device) as switches:
        on = [name for name, value in switches.items() if value is True]
    if on:
        raise FailedError("that nothing shortens float32", ", ".join(on))
    return ", ".join(f"{name} {value if isinstance(value, str) else 'off'}" for name, value in switches.items())


@case("device", "the CPU's numbers")
def _(s: Subject) -> str:
    s.need_device()
    found = check_on_device(s.original, s.module, s.spec, s.device, s.seed)
    check_figures(list(found.against_original), f"the original on {s.device.name}")
    return check_figures(list(found.against_cpu), f"the CPU's numbers on {s.device.name}")


@case("device", "the CPU's samples for a seed")
def _(s: Subject) -> str:
    s.need_device()
    s.need_sampled()
    feed = s.feed(16)
    acted = [s.runner(on_cpu=there).act(feed, sample=True, seed=3) for there in (True, False)]
    return check_near(_continuous(acted[0]), _continuous(acted[1]), "seed 3 on the CPU", s.tolerance)


@case("devices' transfer", "numbers arrive there and come back bit by bit")
def _(s: Subject) -> str:
    import torch

    s.need_device()
    odd = np.array([0.0, -0.0, 1e-40, -1e-40, 3.4e38, np.inf, -np.inf, np.nan, 1 / 3], np.float32)
    back = torch.from_numpy(odd).to(s.device.torch).cpu().numpy()
    return check_same({"numbers": odd}, {"numbers": back}, "there and back")


@case("devices' transfer", "weights arrive there bit by bit")
def _(s: Subject) -> str:
    s.need_device()
    return check_same(_numbers(s.own), _numbers(s.acting), "the weights")


@case("devices' transfer", "what is given lies there")
def _(s: Subject) -> str:
    s.need_device()
    outputs = TorchSide(s.policy, s.spec, s.device.name, changed=True).outputs(_whole(s, 2))  # DeviceError if not
    return f"{len(outputs)} outputs"


# ---------------------------------------------------------------------------------------------- latency
def _latency(rows: int, sample: bool) -> Run:
    def run(s: Subject) -> Measured:
        (s.need_sampled if sample else s.need_deterministic)()
        if s.device.simulated:
            raise NotApplicableError("the device is simulated: its times say nothing")
        feed, runner = s.feed(rows), s.runner()
        taken = []
        for step in range(TIMED + 5):
            start = time.perf_counter()
            runner.act(feed, sample=sample)
            s.device.synchronise()
            if step >= 5:  # the first ones warm up
                taken.append(time.perf_counter() - start)
        low, middle, high = (float(x) * 1e6 for x in np.percentile(taken, [0, 50, 95]))
        return Measured(
            f"median {middle:,.0f} µs, least {low:,.0f}, 95 % within {high:,.0f}; {TIMED} steps, {counted(s.rows(rows), 'agent')}"
        )

    return run


for _title, _rows, _sampled in (
    ("deterministic, 1 agent", 1, False),
    ("sampled, 1 agent", 1, True),
    ("deterministic, 64 agents", 64, False),
):
    case("latency", _title)(_latency(_rows, _sampled))


@case("latency", "loading the folder")
def _(s: Subject) -> Measured:
    if s.device.simulated:
        raise NotApplicableError("the device is simulated: its times say nothing")
    start = time.perf_counter()
    moved(s.folder.load(), s.device)
    s.device.synchronise()
    return Measured(f"{(time.perf_counter() - start) * 1e3:,.1f} ms, torch imported already")
