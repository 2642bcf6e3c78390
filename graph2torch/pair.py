"""What a graph and a checkpoint are to each other: a pair is a claim, and this is where it is judged.

`graph2torch.bind` holds the numbers of the two against each other. Here is what they mean together with what lies beside
them: another .pt that does hold the graph's numbers, the steps in names and files, the trainer's configuration.yaml.
Everything beside the pair is read as untrusted input: little of it, and nothing in it is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

from .bind import Bindings, bind
from .checkpoint import Checkpoint, load_checkpoint
from .errors import Graph2TorchError, PairError
from .rulebook import Family, Setting
from .spec import PolicySpec
from .text import one_line, quoted

Verdict: TypeAlias = Literal["same", "drift", "other step", "other network", "nothing compared", "no checkpoint"]

RACE = 0.03  # weights that are further apart than this are not explained by a race between saving and exporting
MAX_CHECKPOINTS = 16  # .pt that are tried, at most
MAX_CHECKPOINT_BYTES = 2**28  # and their bytes, together
MAX_ENTRIES = 4096  # of a folder that are looked at
CONFIGURATION = "configuration.yaml"  # as ML-Agents writes it
MAX_CONFIGURATION_BYTES = 2**16
MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Match:
    """A .pt beside the given one that holds the graph's numbers; its step, if it says."""

    file: str
    step: int | None


@dataclass(frozen=True, slots=True)
class Steps:
    """The training step in the graph's file name, in the checkpoint's, and in the checkpoint; None where none is told.

    normalizers: module → its normalization_steps; they count observations, so they are no training step
    """

    graph: int | None = None
    checkpoint: int | None = None
    trained: int | None = None
    normalizers: tuple[tuple[str, int], ...] = ()

    @property
    def agree(self) -> bool | None:
        """None if fewer than two are told."""
        told = [step for step in (self.graph, self.checkpoint, self.trained) if step is not None]
        return len(set(told)) == 1 if len(told) > 1 else None


@dataclass(frozen=True, slots=True)
class Compared:
    """A setting of the trainer: its name, what is stated, what the graph has (None: see agrees), and whether they agree.

    agrees: None where the graph doesn't tell
    """

    name: str
    stated: Setting
    found: Setting
    agrees: bool | None


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration.yaml beside a pair: the behaviour in it that the pair is of, and its settings; or why there are none."""

    behavior: str = ""
    settings: tuple[Compared, ...] = ()
    trouble: str = ""

    @property
    def threaded(self) -> bool | None:
        """Whether the trainer trained and saved at the same time; None if it isn't said."""
        stated = next((s.stated for s in self.settings if s.name == "threaded"), None)
        return stated if isinstance(stated, bool) else None


@dataclass(frozen=True, slots=True)
class Pair:
    """A graph and a checkpoint, judged.

    same:             the same numbers (a folded std within rounding)
    drift:            numbers as far apart as those that a training with threads saves and exports a moment apart
    other step:       further apart than that, or a .pt of another step beside it has the graph's numbers
    other network:    built otherwise; `reason` is the first place where
    nothing compared: no tensor of the graph is known to be in the checkpoint
    no checkpoint:    the graph alone

    match: the .pt beside it that has the graph's numbers; tried: how many others were read in search of it
    """

    verdict: Verdict
    reason: str = ""
    match: Match | None = None
    tried: int = 0
    steps: Steps = Steps()
    configuration: Configuration | None = None


def judge(spec: PolicySpec, family: Family, onnx_path: Path, bindings: Bindings) -> Pair:
    """What the pair of `bindings` is. `family`: the policy's, which knows its trainer's settings."""
    checkpoint = bindings.checkpoint
    if checkpoint is None:
        return Pair("no checkpoint")
    verdict: Verdict = bindings.verdict
    match, tried = None, 0
    if verdict == "same" and not _compared(spec, bindings):
        verdict = "nothing compared"
    elif verdict != "same":
        match, tried = matching(spec, onnx_path, checkpoint)
    if verdict == "drift" and (too_far(bindings) or (match and match.step != checkpoint.step)):
        verdict = "other step"
    return Pair(
        verdict, bindings.misfit, match, tried, _steps(onnx_path, bindings), _configuration(spec, family, onnx_path, checkpoint.path)
    )


def with_match(error: PairError, spec: PolicySpec, onnx_path: Path, checkpoint: Checkpoint | None) -> PairError:
    """The error that tells of another network, with the .pt beside it that is the graph's, if there is one."""
    match, _ = matching(spec, onnx_path, checkpoint) if checkpoint else (None, 0)
    return PairError(f"{error} {quoted(match.file)} beside it holds the graph's numbers.") if match else error


def too_far(bindings: Bindings) -> bool:
    """Whether the tensors are further apart than a race explains: the trained ones, statistics only if none else differ."""
    apart = [b for b in bindings.tensors if b.disagreement]
    judged = [b for b in apart if b.trainable] or apart
    return any(not b.disagreement.max_abs <= RACE for b in judged if b.disagreement)  # NaN is too far


def _compared(spec: PolicySpec, bindings: Bindings) -> bool:
    tensors = bindings.checkpoint.tensors if bindings.checkpoint else {}
    return any(b.agrees is not None for b in bindings.tensors) or any(o.constant is not None and o.key in tensors for o in spec.outputs)


# ---------------------------------------------------------------------------------------------- the .pt beside it
def matching(spec: PolicySpec, onnx_path: Path, checkpoint: Checkpoint) -> tuple[Match | None, int]:
    """The .pt in the checkpoint's folder that holds the graph's numbers, and how many were read; those of near steps first."""
    wanted = next((s for s in (step_of(onnx_path), checkpoint.step) if s is not None), 0)
    tried, budget = 0, MAX_CHECKPOINT_BYTES
    files = sorted(_others(checkpoint.path), key=lambda f: (abs((step_of(f[0]) or 0) - wanted), f[0].name))
    for path, size in files[:MAX_CHECKPOINTS]:
        budget -= size
        if budget < 0:
            break
        tried += 1
        try:
            other = load_checkpoint(path, checkpoint.module)
        except Graph2TorchError:
            continue
        bindings = bind(spec, other, "onnx")
        if bindings.verdict == "same" and _compared(spec, bindings):
            return Match(path.name, other.step), tried
    return None, tried


def _others(path: Path) -> Iterator[tuple[Path, int]]:
    """The other .pt in the folder of `path`, with their sizes."""
    try:
        given = path.stat()
        with os.scandir(path.absolute().parent) as entries:
            for entry in islice(entries, MAX_ENTRIES):
                if entry.name.lower().endswith(".pt") and entry.is_file():
                    found = entry.stat()
                    if not os.path.samestat(found, given):
                        yield path.parent / entry.name, found.st_size
    except OSError:
        return


# ---------------------------------------------------------------------------------------------- steps
def step_of(path: Path) -> int | None:
    """The step in a name like BEHAVIOR-STEP.pt."""
    found = re.fullmatch(r".+-([0-9]{1,15})", path.stem)
    return int(found.group(1)) if found else None


def _steps(onnx_path: Path, bindings: Bindings) -> Steps:
    assert bindings.checkpoint is not None
    counts = [b for b in bindings.tensors if b.path.endswith(".normalization_steps") and b.source == "checkpoint"]
    return Steps(
        step_of(onnx_path),
        step_of(bindings.checkpoint.path),
        bindings.checkpoint.step,
        tuple((b.path.removesuffix(".normalization_steps"), int(b.value)) for b in counts),
    )


# ---------------------------------------------------------------------------------------------- configuration.yaml
def _configuration(spec: PolicySpec, family: Family, onnx_path: Path, checkpoint_path: Path) -> Configuration | None:
    """The trainer's settings beside the pair, held against the graph. ML-Agents writes them one folder above a behaviour's .pt."""
    settings: Callable[[PolicySpec], Mapping[str, tuple[Setting, ...]]] | None = getattr(family, "settings", None)
    folders = [p.absolute().parent for p in (onnx_path, checkpoint_path)]
    for folder in dict.fromkeys((*folders, *(f.parent for f in folders))):
        try:
            if settings is None or not (folder / CONFIGURATION).is_file():
                continue
            with (folder / CONFIGURATION).open("rb") as file:
                data = file.read(MAX_CONFIGURATION_BYTES + 1)
            behaviors = read_settings(data).get("behaviors")
        except OSError as error:
            return Configuration(trouble=f"can't be read: {error.strerror or error}")
        except ValueError as error:
            return Configuration(trouble=str(error))
        return _behavior(behaviors, _names(onnx_path, checkpoint_path), settings(spec))
    return None


def _names(*paths: Path) -> tuple[str, ...]:
    """What the behaviour may be called: as the files are, with the step or without, or as their folders are."""
    stems = [name for path in paths for name in (re.sub(r"-[0-9]+$", "", path.stem), path.stem)]
    return tuple(dict.fromkeys((*stems, *(path.absolute().parent.name for path in paths))))


def _behavior(behaviors: object, names: tuple[str, ...], settings: Mapping[str, tuple[Setting, ...]]) -> Configuration:
    behaviors = {b: told for b, told in behaviors.items() if isinstance(told, dict)} if isinstance(behaviors, dict) else {}
    name = next((name for name in names if name in behaviors), None)
    if name is None:
        told = ", ".join(quoted(b) for b in islice(behaviors, 4)) or "no behaviour"
        return Configuration(trouble=f"tells of {told}, not of {quoted(names[0])}")
    return Configuration(name, tuple(_settings(behaviors[name], settings)))


def _settings(behavior: Mapping[str, Any], settings: Mapping[str, tuple[Setting, ...]]) -> Iterator[Compared]:
    """Those that are stated."""
    for path, fitting in settings.items():
        try:
            stated = _stated(behavior, path)
        except KeyError:
            continue
        agrees = any(type(stated) is type(value) and stated == value for value in fitting) if fitting else None
        found = stated if agrees else fitting[0] if fitting else None
        yield Compared(path.rpartition(".")[2], stated, found, agrees)


def _stated(behavior: Mapping[str, Any], path: str) -> Setting:
    """The setting at "network_settings.normalize"; inside one that is null it is null, too. KeyError if there is none."""
    value: Any = behavior
    for name in path.split("."):
        if value is None:
            return None
        if not isinstance(value, dict):
            raise KeyError(path)
        value = value[name]
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    raise KeyError(path)


def read_settings(data: bytes) -> dict[str, Any]:
    """The YAML mapping in `data` as plain dictionaries, lists, texts, whole numbers, booleans and None. ValueError if it can't be read.

    Only the parser's events are used, so no tag makes an object, and no alias is expanded: a file with aliases is refused. What
    ML-Agents before 0.20 tagged as its own Python objects is read as the plain data in it.
    """
    import yaml

    if len(data) > MAX_CONFIGURATION_BYTES:
        raise ValueError(f"has more than {MAX_CONFIGURATION_BYTES:,} bytes, which is the limit here")
    try:
        events = yaml.parse(data.decode("utf-8-sig"), Loader=yaml.SafeLoader)
        found = next((_value(events, event, 0) for event in events if isinstance(event, yaml.events.NodeEvent)), None)
    except _UnreadableError as error:
        raise ValueError(str(error)) from None
    except (yaml.YAMLError, ValueError, LookupError, ArithmeticError) as error:
        raise ValueError(f"is not YAML ({one_line(str(error), 80)})") from None
    if not isinstance(found, dict):
        raise ValueError("is not a mapping of settings")
    return found


class _UnreadableError(Exception):
    """YAML, but with something in it that isn't read."""


def _value(events: Iterator[Any], event: Any, depth: int) -> Any:
    """The value that begins with `event`."""
    import yaml

    if depth > MAX_DEPTH:
        raise _UnreadableError(f"is nested deeper than {MAX_DEPTH} levels")
    if isinstance(event, yaml.AliasEvent):
        raise _UnreadableError("has aliases, which are not followed")
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event.value)
    tagged = ":python/" in (event.tag or "")
    items: list[Any] = []
    for item in events:
        if isinstance(item, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            break
        items.append(_value(events, item, depth + 1))
    if isinstance(event, yaml.SequenceStartEvent):
        return items[0] if tagged and len(items) == 1 else items
    table = {str(key): value for key, value in zip(items[::2], items[1::2], strict=True) if not isinstance(key, (dict, list))}
    return table["dictitems"] if tagged and isinstance(table.get("dictitems"), dict) else table


WORDS: Mapping[str, Setting] = {"": None, "~": None, "null": None, "true": True, "yes": True, "false": False, "no": False}


def _scalar(text: str) -> Setting:
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text)
    return WORDS.get(text.lower(), text)
