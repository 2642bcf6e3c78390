"""A policy as a Unix filter: a line of JSON in, a line of JSON out.

    {"obs_0": [0.1, …]}                                      →  {"continuous_actions": [0.25, …]}
    {"obs_0": [[…], […]], "agent": [3, 5], "reset": true}    →  {"agent": [3, 5], "continuous_actions": [[…], […]]}

Each line is answered, and the answer flushed, before the next is read. Lines are untrusted: they are bounded in length, and the
first bad one ends it with an error that names its number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, NoReturn

from graph2torch.errors import ActingError, ObservationError
from graph2torch.text import one_line, quoted

if TYPE_CHECKING:
    from graph2torch.graph import Array

    from .run import Runner

MAX_LINE = 2**24  # bytes: some 40 images of 84 × 84 in colour


def serve(runner: Runner, lines: IO[bytes], out: IO[str], *, sample: bool = False, seed: int = 0) -> None:
    """Answers line after line until there are no more. Raises ObservationError or ActingError with the line's number."""
    import torch

    number = 0
    with torch.inference_mode():
        while line := lines.readline(MAX_LINE + 1):
            number += 1
            if line.isspace():
                continue
            try:
                answer = respond(runner, line, sample, seed)
            except (ObservationError, ActingError) as error:
                raise type(error)(f"line {number} of the input: {error}") from None
            out.write(answer)
            out.flush()


def respond(runner: Runner, line: bytes, sample: bool, seed: int) -> str:
    """The answer to one line."""
    given = parse(line)
    agent = given.pop("agent", None) if "agent" not in runner.inputs else None
    reset = given.pop("reset", False) if "reset" not in runner.inputs else False
    if not isinstance(reset, bool):
        raise ObservationError("'reset' is true or false.")
    agents = None if agent is None else [_agent(a) for a in (agent if isinstance(agent, list) else [agent])]
    alone = agent is None or not isinstance(agent, list)
    for i in runner.contract.inputs:
        if i.name in given and _depth(given[i.name]) >= len(i.shape):
            alone = False
            break
    if reset:
        runner.reset(range(_rows(runner, given)) if agents is None else agents)
    actions = runner.act(given, sample=sample, seed=seed, agents=agents)
    answer = [] if agents is None else [f'"agent": {agents[0] if alone else agents}']
    answer += [f"{json.dumps(name)}: {_told(value[0] if alone else value)}" for name, value in actions.items()]
    return f"{{{', '.join(answer)}}}\n"


def _told(numbers: Array) -> str:
    """As JSON: Python writes lists of finite numbers in the same way, and faster."""
    if numbers.dtype.kind not in "fiu":
        return json.dumps(numbers.tolist())
    text = repr(numbers.tolist())
    if "n" in text:  # of nan or inf
        raise ActingError("the policy's action is NaN or infinite, which JSON can't tell; look at the weights with `inspect`.")
    return text


def parse(line: bytes) -> dict[str, Any]:
    """The object of one line; every number is a float, which takes no more time than it has digits."""
    if len(line) > MAX_LINE:
        raise ObservationError(f"it has more than {MAX_LINE:,} bytes, which is the limit.")
    try:
        found = DECODER.decode(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise ObservationError("it is not text (UTF-8); give a JSON object a line.") from None
    except RecursionError:
        raise ObservationError("it is nested too deeply; give lists of numbers.") from None
    except ValueError as error:
        raise ObservationError(
            f"it is not JSON ({one_line(str(error), 100)}); give an object a line, with the observations by name."
        ) from None
    if not isinstance(found, dict):
        raise ObservationError('it is no JSON object; give {"obs_0": […]}, with the observations by name.')
    return found


def _not_finite(name: str) -> NoReturn:
    raise ObservationError(f"it holds {name}; every number must be finite.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise ObservationError(f"it holds {quoted(twice)} twice.")
    return found


DECODER = json.JSONDecoder(parse_int=float, parse_constant=_not_finite, object_pairs_hook=_unique)


def _agent(value: Any) -> int:
    if not isinstance(value, float) or not value.is_integer() or not 0 <= value < 2**32:
        raise ObservationError("'agent' is a whole number from 0 to 2³² − 1, or a list of such, one for each row.")
    return int(value)


def _depth(value: Any) -> int:
    depth = 0
    while isinstance(value, list):
        depth += 1
        value = value[0] if value else None
    return depth


def _rows(runner: Runner, given: Mapping[str, Any]) -> int:
    return max((len(given[i.name]) for i in runner.contract.inputs if i.name in given and _depth(given[i.name]) >= len(i.shape)), default=1)
