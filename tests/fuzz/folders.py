"""Folders that build wrote, with files in them that it did not write; and what is said to a policy that acts."""

from __future__ import annotations

import json
import random
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from graph2torch.act.run import Runner
from graph2torch.build import build
from graph2torch.output import FILES
from tests.models import FAMILIES, tiny_policy

from .damage import FLOATS, damaged, integer, text

FAMILY_NAMES = ("continuous", "discrete", "hybrid", "lstm")


@cache
def built() -> dict[str, dict[str, bytes]]:
    """family → the files of a folder, and "Tiny.onnx", which it was built from."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for family in FAMILY_NAMES:
            model = Path(scratch) / "Tiny.onnx"
            model.write_bytes(tiny_policy(**FAMILIES[family]).SerializeToString())
            build(model, None, Path(scratch) / "out", force=True)
            found[family] = {name: (Path(scratch) / "out" / name).read_bytes() for name in FILES} | {"Tiny.onnx": model.read_bytes()}
    return found


@cache
def runners() -> dict[str, Runner]:
    """family → the policy, ready to act."""
    found = {}
    for family, files in built().items():
        with tempfile.TemporaryDirectory() as scratch:
            for name in FILES:
                (Path(scratch) / name).write_bytes(files[name])
            found[family] = Runner.load(scratch)
    return found


def damaged_folder(rng: random.Random) -> dict[str, bytes]:
    """A folder "out" and the original beside it. model.py is code, so it is cut off at most; the rest may be anything."""
    files = dict(built()[rng.choice(FAMILY_NAMES)])
    original = files.pop("Tiny.onnx")
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(("report.json", "report.json", "report.json", "weights.safetensors", "weights.safetensors", *FILES))
        kind = rng.random()
        if name not in files:
            continue
        if kind < 0.1:
            del files[name]
        elif name == "report.json" and kind < 0.8:
            with suppress(ValueError):  # damaged already
                files[name] = json.dumps(changed(rng, json.loads(files[name]))).encode()
        elif name == "model.py":
            files[name] = files[name][: rng.randrange(len(files[name]))] + rng.choice((b"", b"\xff", b"(", b"\0"))
        else:
            files[name] = damaged(rng, files[name], (original, *files.values()))
    return {f"out/{name}": data for name, data in files.items()} | {"Tiny.onnx": original}


def value(rng: random.Random) -> Any:
    """Something that JSON can hold."""
    return rng.choice(
        (
            None,
            True,
            False,
            integer(rng),
            rng.choice(FLOATS[:10]),
            text(rng)[:300],
            [],
            {},
            [1, 2],
            {"a": 1},
            "../../etc/passwd",
            [[]] * 3,
            10**30,
        )
    )


def changed(rng: random.Random, document: Any) -> Any:
    """The document with one to three of its values replaced, taken out, doubled or moved, somewhere in it."""
    for _ in range(rng.randint(1, 3)):
        place, inside = document, document
        while isinstance(inside, (dict, list)) and inside and rng.random() < 0.85:
            place = inside
            inside = place[rng.choice(list(place) if isinstance(place, dict) else range(len(place)))]
        if not isinstance(place, (dict, list)) or not place:
            return value(rng)
        key = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
        kind = rng.randrange(4)
        if kind == 0:
            del place[key]
        elif kind == 1 and isinstance(place, list):
            place += place[:3]
        elif kind == 2 and isinstance(place, dict):
            place[text(rng)[:100]] = place[key]
        else:
            place[key] = value(rng)
    return document


# ---------------------------------------------------------------------------------------------- lines
def lines(rng: random.Random, runner: Runner) -> bytes:
    """One to four lines for the policy, some of them as they should be."""
    return b"\n".join(line(rng, runner) for _ in range(rng.randint(1, 4))) + rng.choice((b"", b"\n"))


def line(rng: random.Random, runner: Runner) -> bytes:
    rows = rng.choice((None, None, 1, 2))
    given: dict[str, Any] = {}
    for i in runner.contract.inputs:
        if i.kind == "observation" or rng.random() < 0.4:
            given[i.name] = numbers(rng, [s if isinstance(s, int) else 1 for s in i.shape[1:]], i.kind == "mask", rows)
    if rng.random() < 0.4:
        given["agent"] = rng.choice((0, 1, 2**32 - 1, 2**32, -1, 1.5, [0], [0, 1], [1, 1], [], "a", None, True, [None], 1e400, [2**31, 5]))
    if rng.random() < 0.2:
        given["reset"] = rng.choice((True, False, 1, "x", None))
    if rng.random() < 0.3:
        changed(rng, given)
    written = json.dumps(given).encode()
    kind = rng.random()
    if kind < 0.15:
        return damaged(rng, written)
    if kind < 0.25:
        bits = (
            b"NaN",
            b"[" * 100_000,
            b"9" * 5000,
            b"1e999",
            b'{"a":' * 2000,
            b'"\\ud800"',
            b"\xff",
            b"\x00",
            b"{}",
            b"",
            b'{"obs_0":1,"obs_0":2}',
        )
        return rng.choice((rng.choice(bits), written.replace(b"0", rng.choice(bits), 1)))
    return written


def numbers(rng: random.Random, shape: list[int], mask: bool, rows: int | None) -> Any:
    sizes = shape if rows is None else [rows, *shape]
    if rng.random() < 0.08:
        sizes = [*sizes, 1] if rng.random() < 0.5 else sizes[1:]

    def nested(left: list[int]) -> Any:
        if left:
            return [nested(left[1:]) for _ in range(left[0])]
        return rng.choice((0, 1)) if mask else rng.choice(FLOATS[:10]) if rng.random() < 0.98 else value(rng)

    return nested(sizes)
