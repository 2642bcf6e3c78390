"""What a policy takes and gives, by meaning: its inputs, its random draws, its actions. Written to report.json, read back to act.

Imports next to nothing: who runs a built policy needs neither onnx nor what builds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

from graph2torch.precisions import PRECISIONS

Shape = tuple["int | str | None", ...]
Kind = Literal["observation", "mask", "memory"]
INPUT_TYPES = ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")


@dataclass(frozen=True, slots=True)
class Input:
    """An input of the policy: its name in the file, its Python name, its sizes, what it means, and whether it is used.

    kind: "mask" for one that allows (1) or forbids (0) options, "memory" for what a step before gave
    next: of memory, the output that is the memory for the next step; "" if the policy gives none
    """

    name: str
    field: str
    size: str
    shape: Shape
    dtype: str
    meaning: str
    used: bool = True
    kind: Kind = "observation"
    next: str = ""


@dataclass(frozen=True, slots=True)
class Draw:
    """A field of Noise: numbers of `shape` (None: not known; its first size is the batch), drawn as offset + scale · kind.

    kind: "normal" for the standard normal distribution, "uniform" for [0, 1)
    """

    field: str
    kind: Literal["normal", "uniform"]
    shape: Shape | None
    offset: float = 0.0
    scale: float = 1.0

    @property
    def meaning(self) -> str:
        """`standard normal`, `uniform in [0, 1)`, `normal, mean 1, deviation 2`."""
        if self.kind == "uniform":
            return f"uniform in [{self.offset:g}, {self.offset + self.scale:g})"
        plain = self.offset == 0 and self.scale == 1
        return "standard normal" if plain else f"normal, mean {self.offset:g}, deviation {self.scale:g}"


@dataclass(frozen=True, slots=True)
class Acting:
    """Which outputs are actions. A policy of no known family has the defaults: all of its outputs are.

    sampled:           "continuous_actions" and "discrete_actions", as far as there are such → field of Outputs
    deterministic:     what `policy.act` gives, in order: those names, and "memory"; empty where there is no such method
    continuous:        number of continuous actions
    options:           of each discrete branch
    log_probabilities: the sampled discrete actions are log-probabilities of all options, branch after branch
    """

    sampled: Mapping[str, str] = field(default_factory=dict)
    deterministic: tuple[str, ...] = ()
    continuous: int = 0
    options: tuple[int, ...] = ()
    log_probabilities: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """An output of the policy: its name in the file, its field in Outputs, and whether it always holds the same numbers."""

    name: str
    field: str
    meaning: str
    fixed: bool


@dataclass(frozen=True, slots=True)
class Contract:
    """Everything about a built policy that one needs to know to act with it. dtype: of its layers' weights, as they are stored."""

    family: str
    title: str
    inputs: tuple[Input, ...]
    outputs: tuple[Given, ...]
    draws: tuple[Draw, ...]
    acting: Acting
    dtype: str = PRECISIONS[0]


def to_json(inputs: tuple[Input, ...], draws: tuple[Draw, ...], acting: Acting) -> dict[str, Any]:
    """What `architecture` of report.json holds of them; `contract` reads it."""
    return {
        "inputs": [
            {
                "name": i.name,
                "argument": i.field,
                "shape": list(i.shape),
                "dtype": i.dtype,
                "meaning": i.meaning,
                "used": i.used,
                "kind": i.kind,
                "next": i.next or None,
            }
            for i in inputs
        ],
        "noise": [asdict(d) | {"shape": None if d.shape is None else list(d.shape)} for d in draws],
        "acting": asdict(acting),
    }


def contract(document: Any) -> Contract:
    """The contract in a report.json. Raises ValueError, with what is wrong, for a document that holds none."""
    found = _get(document, "architecture", dict)
    inputs = []
    for given in _all(found, "inputs", dict):
        kind, dtype = _get(given, "kind", str), _get(given, "dtype", str)
        shape = _shape(_get(given, "shape", list))
        if kind not in ("observation", "mask", "memory") or dtype not in INPUT_TYPES:
            raise ValueError("an input is of no kind or type that there is")
        inputs.append(
            Input(
                _get(given, "name", str),
                _field(given, "argument"),
                "",
                shape,
                dtype,
                _get(given, "meaning", str),
                _get(given, "used", bool),
                kind,  # type: ignore[arg-type]
                _get(given, "next", str) if given.get("next") is not None else "",
            )
        )
    outputs = tuple(
        Given(_get(o, "name", str), _field(o, "field"), _get(o, "meaning", str), o.get("constant") is not None)
        for o in _all(found, "outputs", dict)
    )
    draws = []
    for given in _all(found, "noise", dict):
        kind, numbers = _get(given, "kind", str), [_get(given, key, (int, float)) for key in ("offset", "scale")]
        if kind not in ("normal", "uniform"):
            raise ValueError("a draw is of no kind that there is")
        known = None if given.get("shape") is None else _shape(_get(given, "shape", list))
        draws.append(Draw(_field(given, "field"), kind, known, *map(float, numbers)))  # type: ignore[arg-type]
    acting = _get(found, "acting", dict)
    if (stored := _get(document, "dtype", str)) not in PRECISIONS:
        raise ValueError("its weights are of no precision that there is")
    sampled = {key: _field(_get(acting, "sampled", dict), key) for key in _get(acting, "sampled", dict)}
    return Contract(
        _get(found, "family", str),
        _get(found, "title", str),
        tuple(inputs),
        outputs,
        tuple(draws),
        Acting(
            sampled,
            tuple(_all(acting, "deterministic", str)),
            _get(acting, "continuous", int),
            tuple(_all(acting, "options", int)),
            _get(acting, "log_probabilities", bool),
        ),
        stored,
    )


T = TypeVar("T")


def _get(document: Any, key: str, kind: type[T] | tuple[type[T], ...]) -> T:
    value = document.get(key) if isinstance(document, dict) else None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"its {key!r} is missing or of another type")
    return value


def _all(document: Any, key: str, kind: type[T]) -> list[T]:
    values = _get(document, key, list)
    if not all(isinstance(value, kind) and not (isinstance(value, bool) and kind is int) for value in values):
        raise ValueError(f"its {key!r} holds something of another type")
    return values


def _field(document: Any, key: str) -> str:
    name = _get(document, key, str)
    if not name.isidentifier():
        raise ValueError(f"its {key!r} is no identifier")
    return name


def _shape(sizes: list[Any]) -> Shape:
    if not all(
        size is None or isinstance(size, str) or (isinstance(size, int) and not isinstance(size, bool) and size >= 0) for size in sizes
    ):
        raise ValueError("a shape holds something that is no size")
    return tuple(sizes)
