"""The engines behind one interface. Each gives a step for a fixed number of agents; what isn't eager torch is checked against it first.

    engine = Compiled(opened, policy, threads=1)
    step = engine.step(sampled=False, batch=1)
    dict(zip(step.names, step.call(tensors)))

Steps take and give tensors on the CPU, in float32.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from graph2torch.act.contract import Contract, Input
from graph2torch.act.folder import Folder
from graph2torch.errors import EngineError, Graph2TorchError
from graph2torch.judge.figures import TOLERANCE, Tally
from graph2torch.text import quoted

from . import cache

if TYPE_CHECKING:
    import torch

    from graph2torch.graph import Array

ENGINES = ("eager", "compiled", "onnxruntime")
TRIALS = 3
SEED = 20240611
Call = Callable[[Sequence["torch.Tensor"]], Sequence["torch.Tensor"]]


@dataclass(frozen=True)
class Step:
    """One step.

    names: what it gives, in order: actions by name ("continuous_actions")
    call:  the inputs in the contract's order, and behind them the noise if it is sampled → as many tensors as names, and then
           the memory for the next step, if the policy has one
    """

    names: tuple[str, ...]
    call: Call


class Engine(Protocol):
    """name: one of ENGINES."""

    name: str

    def step(self, sampled: bool, batch: int) -> Step:
        """A step of `batch` agents. EngineError, with the reason, if this engine can't do it or gives something else than eager torch."""


def wanted(contract: Contract, sampled: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of what a step gives, and the fields of Outputs that hold it; the memory's field is last, and has no name."""
    acting = contract.acting
    next_memory = next((i.next for i in contract.inputs if i.kind == "memory" and i.next), "")
    memory = next((o.field for o in contract.outputs if next_memory and o.name == next_memory), "")
    if acting.deterministic and not sampled:
        names = tuple(name for name in acting.deterministic if name != "memory")
        fields = tuple(f"deterministic_{name}" for name in names)
    else:
        named = acting.sampled or {o.field: o.field for o in contract.outputs if not o.fixed and o.field != memory}
        names, fields = tuple(named), tuple(named.values())
    return names, fields + ((memory,) if memory else ())


def flat(policy: Any, contract: Contract, sampled: bool) -> Call:
    """model.py's own step, eagerly. EngineError if the policy can't act like that."""
    if contract.acting.deterministic and not sampled:

        def act(arguments: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
            found = policy.act(*arguments)
            return found if isinstance(found, tuple) else (found,)

        return act
    if contract.draws and not sampled:
        raise EngineError("the policy has no deterministic actions, only sampled ones")
    fields = wanted(contract, sampled)[1]
    count = len(contract.inputs)
    make = type(policy).forward.__globals__["Noise"] if contract.draws else None

    def forward(arguments: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        more = {} if make is None else {"noise": make(*arguments[count:])}
        out = policy(*arguments[:count], **more)
        return [getattr(out, field) for field in fields]

    return forward


def trial(contract: Contract, sampled: bool, batch: int, number: int) -> list[Array]:
    """Made-up inputs of `batch` agents, and the noise behind them: the `number`th of those that engines are compared on."""
    rng = np.random.default_rng([SEED, batch, number])
    arrays = [_input(i, contract, batch, rng) for i in contract.inputs]
    for draw in contract.draws if sampled else ():
        shape = [batch, *(d if isinstance(d, int) else 1 for d in (draw.shape or ())[1:])]
        made = rng.standard_normal(shape) if draw.kind == "normal" else rng.random(shape)
        arrays.append((made * draw.scale + draw.offset).astype(np.float32))
    return arrays


def _input(value: Input, contract: Contract, batch: int, rng: np.random.Generator) -> Array:
    shape = [d if isinstance(d, int) else batch if n == 0 else 1 for n, d in enumerate(value.shape)]
    kind = np.dtype(value.dtype)
    if value.kind == "mask":
        allowed = rng.random(shape) < 0.6
        ends = np.cumsum([0, *contract.acting.options])
        if len(shape) == 2 and ends[-1] == shape[1]:
            for start, end in itertools.pairwise(ends):
                allowed[np.arange(shape[0]), rng.integers(start, end, shape[0])] = True
        else:
            allowed[:] = True
        return np.asarray(allowed.astype(kind))
    if kind.kind != "f":
        return np.asarray(rng.integers(0, 2, shape).astype(kind))
    return np.asarray((rng.random(shape) if len(shape) == 4 else rng.standard_normal(shape)).astype(kind))


def checked(name: str, step: Step, eager: Call, contract: Contract, sampled: bool, batch: int) -> Step:
    """The step, after it gave what eager torch gives on some made-up observations. EngineError if it gave something else."""
    import torch

    names, fields = wanted(contract, sampled)
    tallies = [Tally(field) for field in fields]
    for number in range(TRIALS):
        arguments = [torch.from_numpy(a) for a in trial(contract, sampled, batch, number)]
        with torch.inference_mode():
            expected = [t.clone() for t in eager(arguments)]
            given = step.call(arguments)
        if len(given) != len(fields) or len(expected) != len(fields) or step.names != names:
            raise EngineError(f"{name} gives another number of outputs than model.py in eager torch does")
        for tally, a, b in zip(tallies, expected, given, strict=True):
            tally.add(a.numpy(), b.numpy())
    for tally in tallies:
        found = tally.figures()
        if not found.within(TOLERANCE):
            raise EngineError(f"{name} gives another {quoted(tally.name)} than model.py in eager torch, by up to {found.max_abs:.3g}")
    return step


# ---------------------------------------------------------------------------------------------- the engines
class Eager:
    """model.py as it is."""

    name = "eager"

    def __init__(self, opened: Folder, policy: Any) -> None:
        self.contract, self.policy = opened.contract, policy

    def step(self, sampled: bool, batch: int) -> Step:
        return Step(wanted(self.contract, sampled)[0], flat(self.policy, self.contract, sampled))


class OnnxRuntime:
    """onnxruntime on rebuilt.onnx, without the outputs that nobody asked for. What it draws no seed reaches, so it doesn't sample."""

    name = "onnxruntime"

    def __init__(self, opened: Folder, policy: Any, threads: int = 1) -> None:
        self.opened, self.policy, self.threads = opened, policy, threads

    def step(self, sampled: bool, batch: int) -> Step:
        contract = self.opened.contract
        eager = flat(self.policy, contract, sampled)
        if sampled and contract.draws:
            raise EngineError("onnxruntime draws its own noise in the graph, which no seed reaches, so it can't be sampled here")
        import torch

        from graph2torch.graph import load
        from graph2torch.judge.runtime import session
        from graph2torch.target.prune import pruned

        names, fields = wanted(contract, sampled)
        by_field = {o.field: o.name for o in contract.outputs}
        file = self.opened.path / "rebuilt.onnx"
        try:
            asked = [by_field[field] for field in fields]
            proto = pruned(load(file).proto, asked)
            inputs = [i.name for i in contract.inputs]
            there = {i.name for i in proto.graph.input} - {t.name for t in proto.graph.initializer}
            made = session(proto, True, "rebuilt.onnx", self.threads)
        except KeyError:
            raise EngineError("rebuilt.onnx has no outputs of their own for the deterministic actions") from None
        except Graph2TorchError as error:
            raise EngineError(f"onnxruntime can't be used: {error}") from None

        def call(arguments: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
            feed = {name: t.numpy() for name, t in zip(inputs, arguments, strict=True) if name in there}
            return [torch.from_numpy(a) for a in made.run(asked, feed)]

        return checked("onnxruntime", Step(names, call), eager, contract, sampled, batch)


class Compiled:
    """The policy as machine code, made by AOTInductor for one number of agents. It is made once and kept in the cache.

    may_compile: whether it is compiled if the cache has it not, which takes some ten seconds
    """

    name = "compiled"

    def __init__(
        self, opened: Folder, policy: Any, threads: int = 1, may_compile: bool = True, progress: Callable[[str], None] = lambda _: None
    ) -> None:
        self.opened, self.policy, self.threads, self.may_compile, self.progress = opened, policy, threads, may_compile, progress

    def step(self, sampled: bool, batch: int) -> Step:
        from .compiled import compiled, identity

        contract = self.opened.contract
        eager = flat(self.policy, contract, sampled)
        key = {**identity(self.opened, self.threads), "sampled": sampled, "batch": batch}
        example = trial(contract, sampled, batch, 0)
        if any(p.is_floating_point() and p.element_size() < 4 for p in self.policy.parameters()):
            raise EngineError("only what computes in float32 is compiled")
        if not example:
            raise EngineError("a policy without inputs has nothing to compile")
        call = compiled(key, self.policy, contract, eager, example, self.may_compile, self.progress)
        return checked("the compiled policy", Step(wanted(contract, sampled)[0], call), eager, contract, sampled, batch)


class Chosen:
    """Any of the engines with the steps that it gave, so that each is made and checked once. "auto" decides for each step anew.

    choices: what "auto" decided and why, for people
    """

    def __init__(self, engines: Mapping[str, Engine], name: str, opened: Folder, policy: Any, threads: int) -> None:
        self.engines, self.name, self.opened, self.policy, self.threads = engines, name, opened, policy, threads
        self.steps: dict[tuple[bool, int], Step] = {}
        self.choices: list[str] = []

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled without its steps: machine code and sessions are made again."""
        return choose, (self.opened, self.policy, self.name, self.threads)

    def step(self, sampled: bool, batch: int) -> Step:
        if (sampled, batch) not in self.steps:
            self.steps[sampled, batch] = self._made(sampled, batch)
        return self.steps[sampled, batch]

    def _made(self, sampled: bool, batch: int) -> Step:
        if self.name != "auto":
            try:
                return self.engines[self.name].step(sampled, batch)
            except EngineError as error:
                raise EngineError(f"The engine {self.name} can't be used here: {error}; leave --engine out.") from None
        from .compiled import identity

        key = {**identity(self.opened, self.threads), "batch": batch}
        try:
            seconds = cache.measured(key)
        except EngineError as error:  # a cache that can't be used; eager torch needs none
            self.choices.append(f"batch {batch}: eager, since nothing that was measured can be read: {error}")
            return self.engines["eager"].step(sampled, batch)
        if not seconds:
            self.choices.append(f"batch {batch}: eager, since nothing was measured; `graph2torch bench` does that")
        for name in sorted(seconds.keys() & self.engines.keys(), key=lambda name: (seconds[name], name)):
            try:
                step = self.engines[name].step(sampled, batch)
            except EngineError as error:
                self.choices.append(f"batch {batch}: not {name}: {error}")
                continue
            self.choices.append(f"batch {batch}: {name}, measured at {seconds[name] * 1e6:,.0f} µs a step")
            return step
        return self.engines["eager"].step(sampled, batch)


def choose(opened: Folder, policy: Any, name: str, threads: int, progress: Callable[[str], None] = lambda _: None) -> Chosen:
    """The engine called `name`, one of ENGINES or "auto": the fastest of those that `bench` measured on this machine and found right."""
    if name not in (*ENGINES, "auto"):
        raise EngineError(f"{quoted(name)} is no engine; there are {', '.join(ENGINES)} and auto.")
    engines: dict[str, Engine] = {
        "eager": Eager(opened, policy),
        "compiled": Compiled(opened, policy, threads, name != "auto", progress),
        "onnxruntime": OnnxRuntime(opened, policy, threads),
    }
    return Chosen(engines, name, opened, policy, threads)
