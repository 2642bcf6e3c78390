"""Actions from observations with a policy that was built: deterministic or sampled, with memory, masks, many agents at once.

    runner = Runner.load("out/Huggy")
    actions = runner.act({"obs_0": observations}, sample=True, seed=1)["continuous_actions"]

It needs torch, safetensors and numpy; neither onnx nor onnxruntime. Sampling is a function of (seed, agent, step, draw): the
noise comes from philox.py and is made on the CPU, so it is the same on every device and whoever else is in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from graph2torch.devices.device import resolve
from graph2torch.errors import ActingError, EngineError, ObservationError
from graph2torch.precisions import check_dtype
from graph2torch.text import one_line, printable, quoted

from . import philox
from .contract import Contract, Draw, Input
from .folder import open_folder
from .observations_file import fit

if TYPE_CHECKING:
    import torch

    from graph2torch.engine.engines import Chosen
    from graph2torch.graph import Array

Actions: TypeAlias = "dict[str, Array]"

MAX_AGENTS = 2**20  # that are known at once
NO_MEMORY = ("allocate memory", "enough memory", "bad_alloc", "out of memory")  # torch's words for a MemoryError
AHEAD = 64  # rows of noise that are made at once: for so many steps of a single agent
FEW = 256  # numbers that Python adds up faster than numpy
OBSERVATIONS = 2**31  # draws from here on are made-up observations


@dataclass(slots=True, eq=False)
class _Acting:
    """Agents that act together, step after step.

    ids:    their numbers; slots: the rows where what is known of them is kept; index: the same on the device
    named:  whether they were named, or are 0 to n − 1 because nobody was
    begun:  the steps that each had acted when they began; taken: steps since then, not yet counted in `Runner._steps`
    memory: after their last step, where that isn't in `Runner._memory` yet
    noise:  drawn ahead: the seed, `taken` of the first row, and of each draw [rows, n, …]
    """

    ids: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    index: torch.Tensor
    named: bool
    begun: npt.NDArray[np.int64]
    taken: int = 0
    memory: torch.Tensor | None = None
    noise: tuple[int, int, list[philox.Float32]] | None = None

    @property
    def steps(self) -> npt.NDArray[np.int64]:
        return self.begun + self.taken


class Runner:
    """A built policy, and what it remembers of each agent: its memory, and how often it acted.

    contract: inputs and actions by meaning; inputs: those by name
    changed:  files of the folder that were changed since it was built
    device:   where it computes; dtype: of its layers' weights
    group:    at most so many agents are computed at once, 0 for all. With 1, an agent's actions are the same bits whoever acts
              beside it: matrix products of other sizes are rounded otherwise
    engine:   what computes the steps; None for the policy itself in eager torch
    """

    def __init__(
        self,
        policy: torch.nn.Module,
        contract: Contract,
        device: torch.device,
        dtype: torch.dtype,
        group: int = 0,
        changed: Sequence[str] = (),
        engine: Chosen | None = None,
    ) -> None:
        self.policy, self.contract, self.device, self.dtype, self.changed = policy, contract, device, dtype, tuple(changed)
        self.engine = engine
        self.group = group
        for value in contract.inputs:
            if not value.shape:
                raise ActingError(f"The input {quoted(value.name)} has no rows, one for each agent; such a policy can't be run here.")
            if isinstance(value.shape[0], int):  # the graph takes just so many
                self.group = value.shape[0]
        self._memory_input = next((i for i in contract.inputs if i.kind == "memory" and i.next), None)
        self._memory_field = next((o.field for o in contract.outputs if self._memory_input and o.name == self._memory_input.next), "")
        self._memory: torch.Tensor | None = None
        self._agents: dict[int, int] = {}  # agent → its row in memory and steps
        self._steps = np.zeros(1, np.int64)
        self._acting: _Acting | None = None
        self.inputs = {i.name: i for i in contract.inputs}
        self._needed = [i.name for i in contract.inputs if i.kind == "observation" and i.used]
        self._plain = {  # of the inputs that most observations are for: the sizes of a row
            i.name: tuple(size for size in i.shape[1:] if isinstance(size, int))
            for i in contract.inputs
            if i.kind == "observation" and i.dtype == "float32" and not any(isinstance(d, int) for d in i.shape[:1])
            if all(isinstance(d, int) and d > 0 for d in i.shape[1:])
        }
        self._noise_ahead: dict[tuple[int, bytes], tuple[npt.NDArray[np.int64], list[philox.Float32]]] = {}
        self._branches = np.cumsum([0, *contract.acting.options])

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        device: torch.device | str = "cpu",
        dtype: str | torch.dtype | None = None,
        group: int | None = None,
        engine: str = "eager",
        progress: Callable[[str], None] = lambda _: None,
    ) -> Runner:
        """The policy in a folder that `build` wrote. **Its model.py is code and is run.**

        device: "cpu", "npu", "cuda:1" …, tried first in a process of its own; or a torch.device, taken as it is
        dtype: "float32", "float16" or "bfloat16", of the layers' weights; by default that of the folder. Observations, statistics,
        memory, noise and actions stay float32
        group: see the class; by default 1 on the CPU and 0 elsewhere
        engine: "eager", "compiled", "onnxruntime" or "auto", the fastest of those that `bench` measured here and found right; it is
        made, and checked against eager torch, when the first step needs it

        Raises FolderError; DeviceError for a device that can't be used; EngineError for an engine that there is not.
        """
        import torch

        if group is not None and group < 0:
            raise ActingError(f"A group of {group} agents can't be computed; give 1 or more, or 0 for all at once.")
        opened = open_folder(folder)
        place = device if isinstance(device, torch.device) else resolve(device).torch
        precision = getattr(torch, check_dtype(dtype or opened.contract.dtype))
        if group is None:
            group = 1 if place.type == "cpu" else 0
        policy = opened.load(place, precision)
        chosen = None
        if engine != "eager":
            from graph2torch.engine.engines import choose

            if place.type != "cpu" or precision != torch.float32:
                raise EngineError(
                    f"The engine {quoted(engine)} computes on the CPU in float32 only; leave it out, or --device and --dtype."
                )
            chosen = choose(opened, policy, engine, torch.get_num_threads(), progress)
        return cls(policy, opened.contract, place, precision, group, opened.changed, chosen)

    def act(
        self,
        observations: Mapping[str, Any],
        *,
        sample: bool = False,
        seed: int = 0,
        agents: Sequence[int] | npt.NDArray[Any] | None = None,
    ) -> Actions:
        """The actions of n agents: "continuous_actions" float32 [n, actions], "discrete_actions" int64 [n, branches], as there are.

        A policy of no known family gives all its outputs. observations: input's name → n rows, or one without its batch; masks
        allow everything and unused inputs are 0 unless given; memory is kept here, and used instead where it is given.
        agents: whose memory and noise, whole numbers from 0 on, each once; by default 0 to n − 1. Each acts one step further.

        Raises ObservationError for observations that don't fit (with what was expected), that are NaN or infinite, and for a mask
        that allows nothing; ActingError for what the policy can't do. Nothing is remembered of a step that failed.
        """
        feed = self._feed(observations)
        count = len(next(iter(feed.values()))) if feed else 1
        acting = self._known(agents, count)
        noise = self._noise(seed, acting) if sample else []
        import torch

        with nullcontext() if torch.is_inference_mode_enabled() else torch.inference_mode():
            memory = None
            if self._memory_input and self._memory_input.name not in feed:
                memory = self._table()[acting.index] if acting.memory is None else acting.memory
            actions, memory = self._compute(feed, memory, noise, sample, count)
        if memory is not None and self._memory_input:
            acting.memory = memory.to(getattr(torch, self._memory_input.dtype))
        acting.taken += 1
        return actions

    def reset(self, agents: Sequence[int] | None = None) -> None:
        """Their memory (everybody's without `agents`) becomes that of a first step. Noise goes on where it was: it never repeats."""
        self._settle()
        if self._memory is None:
            return
        import torch

        known = self._agents.values() if agents is None else [self._agents[a] for a in agents if a in self._agents]
        with torch.inference_mode():
            self._memory[[slot for slot in known if slot < len(self._memory)]] = 0.0

    # ------------------------------------------------------------------------------------------ what goes in
    def _feed(self, observations: Mapping[str, Any]) -> dict[str, Array]:
        """An array for every input but the memory, checked."""
        inputs = self.inputs
        if not isinstance(observations, Mapping):
            raise ObservationError(f"Observations are given by the inputs' names, as in {{name: rows}}; {self.expected()}.")
        if len(observations) > len(inputs) or not observations.keys() <= inputs.keys():
            unknown = [key for key in observations if key not in inputs]
            raise ObservationError(f"The policy has no input {', '.join(quoted(str(key)) for key in unknown[:8])}; {self.expected()}.")
        feed: dict[str, Array] = {}
        for name, value in observations.items():
            feed[name] = self._checked(inputs[name], value)
        if missing := [name for name in self._needed if name not in feed]:
            raise ObservationError(f"There is no {', '.join(map(quoted, missing[:8]))}; {self.expected()}.")
        if len(feed) == len(inputs) == 1:
            return feed
        counts = {name: len(value) for name, value in feed.items()}
        if len(set(counts.values())) > 1:
            shown = ", ".join(f"{n} of {quoted(name)}" for name, n in list(counts.items())[:8])
            raise ObservationError(f"There are {shown}; give as many of each, a row for each agent.")
        rows = next(iter(counts.values()), 1)
        for i in self.contract.inputs:
            if i.name not in feed and i is not self._memory_input:
                feed[i.name] = np.full(_shape(i, rows), i.kind == "mask", np.dtype(i.dtype))
        return feed

    def expected(self) -> str:
        """`expected is 'obs_0' [n, 59]`, for messages."""
        shown = [
            f"{quoted(i.name)} [{', '.join(['n', *('?' if d is None else printable(str(d), 40) for d in i.shape[1:])])}]"
            for i in self.contract.inputs
            if i.kind != "memory"
        ]
        return f"expected is {', '.join(shown[:8])}{f' and {len(shown) - 8} more' if len(shown) > 8 else ''}"

    def _checked(self, value: Input, given: Any) -> Array:
        if (row := self._plain.get(value.name)) is not None and (fitted := _plainly(given, row)) is not None:
            return fitted
        what = quoted(value.name)
        try:
            array = given.detach().cpu().numpy() if hasattr(given, "detach") else np.asarray(given)
        except (ValueError, OverflowError, TypeError):
            raise ObservationError(f"{what} holds rows of different lengths, or what is no number; {self.expected()}.") from None
        if array.dtype.kind not in "fiub":
            raise ObservationError(f"{what} holds what is no number, or one too large; {self.expected()}.")
        fitted = fit(array, value, what, False)
        if fitted.dtype.kind == "f" and not np.isfinite(fitted).all():
            place = [int(i) for i in np.argwhere(~np.isfinite(fitted))[0]]
            raise ObservationError(f"{what} holds {fitted[tuple(place)]} in row {place[0]}, at {place[1:]}; every number must be finite.")
        if value.kind == "mask" and fitted.size:
            self._check_mask(what, fitted)
        return fitted

    def _check_mask(self, what: str, mask: Array) -> None:
        if not ((mask == 0) | (mask == 1)).all():
            row = int(np.argwhere((mask != 0) & (mask != 1))[0][0])
            raise ObservationError(f"{what} holds other numbers than 1, which allows an option, and 0, which forbids it, in row {row}.")
        whole = mask.ndim != 2 or self._branches[-1] != mask.shape[1]
        ends = np.array([0, mask.shape[-1]]) if whole else self._branches
        for branch in range(len(ends) - 1):
            allowed = mask[..., ends[branch] : ends[branch + 1]].any(axis=-1)
            if not allowed.all():
                row = int(np.argwhere(~allowed)[0][0])
                which = "" if whole else f" of branch {branch}"
                raise ObservationError(f"{what} allows no option{which} in row {row}; an agent needs one at least.")

    # ------------------------------------------------------------------------------------------ who acts
    def _known(self, agents: Sequence[int] | npt.NDArray[Any] | None, count: int) -> _Acting:
        """The agents that act now; new ones get a row where what is known of them is kept."""
        last = self._acting
        if agents is None and last is not None and not last.named and len(last.ids) == count:
            return last
        import torch

        given = np.arange(count) if agents is None else np.asarray(agents)
        if given.dtype.kind not in "iu" or given.shape != (count,):
            raise ActingError(f"There are {count} rows of observations; give as many agents, whole numbers, one for each row.")
        if given.min(initial=0) < 0 or given.max(initial=0) >= philox.LIMIT:
            raise ActingError(f"An agent is a number from 0 to {philox.LIMIT - 1:,}.")
        ids = given.astype(np.int64)
        if last is not None and np.array_equal(last.ids, ids):
            return last
        if len(set(ids.tolist())) < count:
            raise ActingError("An agent is named twice in one step; each acts once.")
        new = [a for a in ids.tolist() if a not in self._agents]
        if len(self._agents) + len(new) > MAX_AGENTS:
            raise ActingError(f"More than {MAX_AGENTS:,} agents can't be known at once; load the policy again for others.")
        for a in new:
            self._agents[a] = len(self._agents)
        if len(self._agents) > len(self._steps):
            self._steps = np.concatenate([self._steps, np.zeros(max(len(self._agents), 2 * len(self._steps)), np.int64)])
        self._settle()
        slots = np.array([self._agents[a] for a in ids.tolist()], np.int64)
        self._acting = _Acting(ids, slots, torch.from_numpy(slots).to(self.device), agents is not None, self._steps[slots])
        return self._acting

    def _settle(self) -> None:
        """What the agents that act now did and remember is written down, so that others can act."""
        if (last := self._acting) is None:
            return
        self._steps[last.slots] += last.taken
        last.begun, last.taken, last.noise = self._steps[last.slots], 0, None
        if last.memory is not None:
            import torch

            with torch.inference_mode():
                self._table()[last.index] = last.memory
            last.memory = None

    def _table(self) -> torch.Tensor:
        """The memory of every known agent, a row for each."""
        import torch

        value = self._memory_input
        assert value is not None
        if self._memory is None or len(self._memory) < len(self._steps):
            grown = torch.zeros(_shape(value, len(self._steps)), dtype=getattr(torch, value.dtype), device=self.device)
            if self._memory is not None:
                grown[: len(self._memory)] = self._memory
            self._memory = grown
        return self._memory

    # ------------------------------------------------------------------------------------------ noise
    def _noise(self, seed: int, acting: _Acting) -> list[philox.Float32]:
        """Of each draw, [n, …]; then, where options are drawn here, a uniform number for each branch, [n, 1]."""
        if acting.noise is not None and acting.noise[0] == seed:
            _, first, made = acting.noise
            if 0 <= acting.taken - first < len(made[0]):
                return [numbers[acting.taken - first] for numbers in made]
        if not 0 <= seed < 2**64:
            raise ActingError(f"The seed {seed} is not a number from 0 to 2⁶⁴ − 1.")
        draws = [*self.contract.draws, *self._own_draws()]
        if not draws:
            raise ActingError("The policy draws nothing at random, so it can't be sampled; its deterministic actions are all there is.")
        ids, steps = acting.ids, acting.steps
        key = seed, ids.tobytes()
        base, made = self._noise_ahead.get(key, (steps, []))
        ahead = int(steps[0] - base[0])
        if not made or not 0 <= ahead < len(made[0]) or not (steps - base == ahead).all():
            base, ahead = steps.copy(), 0
            rows = max(1, AHEAD // len(ids))
            if int(steps.max()) + rows > philox.LIMIT:
                raise ActingError(f"An agent can be sampled for {philox.LIMIT:,} steps at most; reload the policy and take another seed.")
            later = (steps + np.arange(rows)[:, None]).reshape(-1)
            made = [draw_noise(d, seed, np.tile(ids, rows), later, n).reshape(rows, len(ids), *_sizes(d)) for n, d in enumerate(draws)]
            if len(self._noise_ahead) >= 4 * AHEAD:
                self._noise_ahead.clear()
            self._noise_ahead[key] = base, made
        acting.noise = seed, acting.taken - ahead, made
        return [numbers[ahead] for numbers in made]

    def _own_draws(self) -> list[Draw]:
        acting = self.contract.acting
        return [Draw(f"branch_{n}", "uniform", ("batch", 1)) for n in range(len(acting.options))] if acting.log_probabilities else []

    # ------------------------------------------------------------------------------------------ the policy
    def _compute(
        self, feed: Mapping[str, Array], memory: torch.Tensor | None, noise: Sequence[philox.Float32], sample: bool, count: int
    ) -> tuple[Actions, torch.Tensor | None]:
        """Group after group, each moved to the device and back."""
        import torch

        size = self.group or count
        if count % size and any(isinstance(i.shape[0], int) for i in self.contract.inputs):
            raise ObservationError(f"There are {count} rows; the graph takes {size} at a time, so give a multiple of that.")
        parts: list[Actions] = []
        memories: list[torch.Tensor] = []
        for start in range(0, count, size):
            rows = slice(start, start + size)
            arguments = [
                torch.from_numpy(feed[i.name][rows]).to(self.device) if i.name in feed else memory[rows]  # type: ignore[index]
                for i in self.contract.inputs
            ]
            try:
                found, after = self._forward(arguments, [torch.from_numpy(z[rows]).to(self.device) for z in noise], sample)
            except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
                if any(words in str(error) for words in NO_MEMORY):
                    raise MemoryError from None
                what = one_line(f"{type(error).__name__}: {error}", 200)
                raise ActingError(f"The policy can't be run on this ({what}); {self.expected()}.") from None
            part = {name: _numpy(value) for name, value in found.items()}
            for name, numbers in part.items():
                if numbers.ndim < 1 or len(numbers) != min(size, count - start):
                    raise ActingError(
                        f"The output {quoted(name)} is {list(numbers.shape)}, not a row for each agent; that can't be run here."
                    )
            parts.append(part)
            if after is not None:
                memories.append(after)
        if sample and self.contract.acting.log_probabilities:
            for part, first in zip(parts, range(0, count, size), strict=True):
                part["discrete_actions"] = self._options(part["discrete_actions"], noise, slice(first, first + size))
        if len(parts) == 1:
            return parts[0], memories[0] if memories else None
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return joined, torch.cat(memories) if memories else None

    def _forward(
        self, arguments: Sequence[torch.Tensor], noise: Sequence[torch.Tensor], sample: bool
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor | None]:
        """Actions by name, and the memory for the next step; both on the device."""
        if self.engine is not None:
            step = self.engine.step(sample, len(arguments[0]) if arguments else 1)
            values = step.call([*arguments, *noise[: len(self.contract.draws)]])
            return dict(zip(step.names, values, strict=False)), values[-1] if self._memory_field else None
        acting, policy = self.contract.acting, self.policy
        if acting.deterministic and not sample:
            found = policy.act(*arguments)  # type: ignore[operator]
            named = dict(zip(acting.deterministic, found if isinstance(found, tuple) else (found,), strict=True))
            return named, named.pop("memory", None)
        if self.contract.draws and not sample:
            raise ActingError("The policy has no deterministic actions, only sampled ones; ask for those.")
        more = {"noise": type(policy).forward.__globals__["Noise"](*noise[: len(self.contract.draws)])} if self.contract.draws else {}
        out = policy(*arguments, **more)
        fields = acting.sampled or {o.field: o.field for o in self.contract.outputs if not o.fixed and o.field != self._memory_field}
        if not fields:
            raise ActingError("The policy has no actions: all of its outputs are fixed.")
        return {name: getattr(out, field) for name, field in fields.items()}, getattr(
            out, self._memory_field
        ) if self._memory_field else None

    def _options(self, log_p: Array, noise: Sequence[philox.Float32], rows: slice) -> Array:
        """The option among whose share of each branch the uniform number falls, [n, branches], as model.py's `draw` finds it."""
        ends, first = self._branches, len(self.contract.draws)
        if log_p.ndim != 2 or log_p.shape[1] != ends[-1]:
            raise ActingError("The policy gives the log-probabilities of some of its branches only, so it can't be sampled.")
        chosen = []
        for branch in range(len(ends) - 1):
            p = np.exp(log_p[:, ends[branch] : ends[branch + 1]].astype(np.float32))
            total = np.cumsum(p, axis=1)
            chosen.append((total <= noise[first + branch][rows] * total[:, -1:]).sum(axis=1))
        return np.stack(chosen, axis=1).astype(np.int64)


def _numpy(value: torch.Tensor) -> Array:
    """On the CPU; numbers of half precision as float32."""
    value = value.cpu()
    numbers: Array = (value.float() if value.is_floating_point() and value.element_size() < 4 else value).numpy()
    return numbers


def _plainly(given: Any, row: tuple[int, ...]) -> Array | None:
    """`given` as float32 [n, *row] if it is a list or an array of just that, or one row of it, and finite; None to look at it closely."""
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, RuntimeError):  # rows of different lengths, a tensor that lies elsewhere or has a gradient
        return None
    if array.dtype.kind != "f" or not (array.shape == row or (array.shape[1:] == row and len(array))):
        return None
    with np.errstate(all="ignore"):
        fitted = np.array(array, np.float32, order="C").reshape(-1, *row)
        total = sum(fitted.reshape(-1).tolist()) if fitted.size <= FEW else fitted.sum()
        return fitted if math.isfinite(total) else None


def _shape(value: Input, rows: int) -> tuple[int, ...]:
    """Of `rows` rows of an input; free sizes besides the rows are 1."""
    return (rows, *(size if isinstance(size, int) else 1 for size in value.shape[1:]))


def _sizes(draw: Draw) -> tuple[int, ...]:
    sizes = draw.shape[1:] if draw.shape else ()
    if not draw.shape or not all(isinstance(size, int) for size in sizes):
        raise ActingError(f"The graph doesn't tell how many numbers {quoted(draw.field)} draws, so the policy can't be sampled here.")
    return tuple(size for size in sizes if isinstance(size, int))


def draw_noise(draw: Draw, seed: int, agents: npt.NDArray[np.int64], steps: npt.NDArray[np.int64], number: int) -> philox.Float32:
    """Draw `number` of n agents at their steps, float32 [n, numbers of a row]: philox.py has the definition."""
    word = philox.words(seed, agents, steps, number, int(np.prod(_sizes(draw), dtype=np.int64)))
    z = philox.normal(word) if draw.kind == "normal" else philox.uniform(word)
    if draw.offset == 0 and draw.scale == 1:
        return z
    scaled: philox.Float32 = z * np.float32(draw.scale) + np.float32(draw.offset)
    return scaled


# ---------------------------------------------------------------------------------------------- several steps
def made_up(inputs: Iterable[Input], kind: str, rows: int, step: int, seed: int) -> dict[str, Array]:
    """Observations of agents 0 to `rows` − 1 at a step: zeros, or "random", which is the same on every machine.

    Random ones are standard normal, for images uniform in [0, 1), for integers 0 or 1; draw 2³¹ + i of the noise, for input i.
    """
    made: dict[str, Array] = {}
    for number, value in enumerate(inputs):
        if value.kind != "observation":
            continue
        shape = _shape(value, rows)
        if kind == "zeros":
            made[value.name] = np.zeros(shape, np.dtype(value.dtype))
            continue
        agents = np.arange(rows, dtype=np.int64)
        word = philox.words(seed, agents, np.full_like(agents, step), OBSERVATIONS + number, int(np.prod(shape[1:], dtype=np.int64)))
        if np.dtype(value.dtype).kind == "f":
            made[value.name] = (philox.uniform if len(shape) == 4 else philox.normal)(word).astype(value.dtype).reshape(shape)
        else:
            made[value.name] = (word >> np.uint64(31)).astype(value.dtype).reshape(shape)
    return made


@dataclass(frozen=True)
class Acted:
    """Some steps of some agents. `actions`: name → array [steps, agents, …]; `observations`: what they were made from."""

    observations: str
    sampled: bool
    seed: int
    steps: int
    batch: int
    actions: Mapping[str, Array]


MAX_NUMBERS = 2**27  # of all actions that are kept


def act_on(
    runner: Runner,
    observations: str | Path = "random",
    *,
    steps: int | None = None,
    batch: int | None = None,
    sample: bool = False,
    seed: int = 0,
) -> Acted:
    """Actions for `steps` steps of `batch` agents.

    observations: "random", "zeros", or a file (.npz, .npy, .json, .csv); of a file's rows each step takes the next `batch`, and
    without `batch` all rows are agents of one step. Random observations are drawn with the seed.

    Raises ObservationError, ActingError.
    """
    if (steps is not None and steps < 1) or (batch is not None and batch < 1):
        raise ActingError("Steps and batch are 1 or more.")
    rows: Mapping[str, Array] | None = None
    if str(observations) not in ("random", "zeros"):
        from .observations_file import read_observations

        rows = read_observations(observations, runner.contract.inputs)
        count = len(next(iter(rows.values())))
        batch = batch or count
        if count % batch:
            raise ObservationError(f"{quoted(str(observations))} has {count} rows; a batch of {batch} doesn't divide them.")
        if steps is not None and steps > count // batch:
            raise ObservationError(
                f"{quoted(str(observations))} has {count} rows, {count // batch} steps of a batch of {batch}; {steps} steps are too many."
            )
        steps = steps or count // batch
    steps, batch = steps or 1, batch or 1
    if batch > MAX_AGENTS:
        raise ActingError(f"More than {MAX_AGENTS:,} agents can't act at once.")
    actions: Actions = {}
    for step in range(steps):
        if rows is None:
            feed = made_up(runner.contract.inputs, str(observations), batch, step, seed)
        else:
            feed = {name: value[step * batch : (step + 1) * batch] for name, value in rows.items()}
        if not feed and batch > 1:
            raise ActingError("The policy takes no observations, so it acts for one agent alone.")
        acted = runner.act(feed, sample=sample, seed=seed)
        if step == 0:
            if steps * sum(value.size for value in acted.values()) > MAX_NUMBERS:
                raise ActingError(f"{steps:,} steps make more than {MAX_NUMBERS:,} numbers, which is the limit; take fewer.")
            actions = {name: np.empty((steps, *value.shape), value.dtype) for name, value in acted.items()}
        for name, value in acted.items():  # copied: an array of its own for each step takes a kilobyte
            if value.shape != actions[name].shape[1:]:
                raise ActingError(
                    f"The output {quoted(name)} is {list(value.shape)} at step {step} and was {list(actions[name].shape[1:])} before; "
                    "such a policy acts for one step at a time here."
                )
            actions[name][step] = value
    return Acted(str(observations), sample, seed, steps, batch, actions)


def document(runner: Runner, name: str, acted: Acted, simulated: bool = False) -> dict[str, Any]:
    """The actions and all that they depend on, as JSON. `name`: what the policy is called; `simulated`: the device is a stand-in."""
    import torch

    from graph2torch import __version__

    from .actions_file import plain

    return {
        "graph2torch": __version__,
        "policy": name,
        "title": runner.contract.title,
        "observations": acted.observations,
        "sampled": acted.sampled,
        "seed": acted.seed,
        "steps": acted.steps,
        "batch": acted.batch,
        "device": str(runner.device),
        "simulated": simulated,
        "dtype": str(runner.dtype).removeprefix("torch."),
        "stored": runner.contract.dtype,
        "engine": "eager" if runner.engine is None else runner.engine.name,
        "engine_choices": [] if runner.engine is None else list(runner.engine.choices),
        "group": runner.group,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "changed": list(runner.changed),
        "actions": {key: plain(value) for key, value in acted.actions.items()},
    }
