"""Folders of trainings: event files, training_status.json, configuration.yaml and names of checkpoints, damaged or wrong on purpose."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

from graph2torch.training.run_folder import REWARD
from tests.events import curve, event, field, number, record, varint

from .damage import FLOATS, damaged, integer, text

NAME = "Walker"
EVENTS = "events.out.tfevents.1700000000.host.1.0"
ENDS = (".pt", ".onnx", ".nn", ".txt", "", ".PT")


def folder(rng: random.Random) -> dict[str, bytes]:
    """What lies in the folder "run", which may be a run's or a behaviour's."""
    root = "run" if rng.random() < 0.15 else f"run/{NAME}"
    files = {"run/there.txt": b""}
    for start in range(rng.choice((0, 1, 1, 1, 2))):
        files[f"{root}/{EVENTS}{start or ''}"] = events(rng)
    for _ in range(rng.randint(0, 4)):
        files[f"{root}/{rng.choice((NAME, 'x', ''))}-{rng.choice((0, 5, 1000, 10**14, 10**15, -1, '²'))}{rng.choice(ENDS)}"] = b""
    if rng.random() < 0.8:
        files["run/run_logs/training_status.json"] = status(rng)
    if rng.random() < 0.4:
        files["run/configuration.yaml"] = configuration(rng)
    return files


# ---------------------------------------------------------------------------------------------- events
def events(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.3:  # bytes that are wrong: mostly seen by a checksum
        return damaged(rng, curve([(step, step / 7) for step in range(rng.randint(1, 30))]), most=2)
    if kind < 0.4:
        return rng.randbytes(rng.randint(0, 200))
    records = [odd_record(rng) if rng.random() < 0.4 else record(event(number_of(rng), odd_values(rng))) for _ in range(rng.randint(1, 12))]
    return curve([(1, 1.0)] if rng.random() < 0.7 else []) + b"".join(records)


def odd_record(rng: random.Random) -> bytes:
    """With right checksums, so that it reaches the parser: damaged inside, no message at all, or of another length than it says."""
    good = event(number_of(rng), odd_values(rng), rng.choice(FLOATS))
    kind = rng.randrange(5)
    if kind == 0:
        return record(damaged(rng, good, [curve([(1, 1.0)])]))
    if kind == 1:
        return record(rng.randbytes(rng.randint(0, 60)))
    if kind == 2:
        return record(good, abs(integer(rng)))
    if kind == 3:
        return record(good + b"\0" * rng.choice((2**12, 2**14)))
    deep = b""
    for _ in range(rng.choice((3, 120, 3000))):
        deep = field(rng.choice((1, 5, 8)), deep[:5000])
    return record(field(5, deep))


def odd_values(rng: random.Random) -> bytes:
    """A summary: curves with odd tags and numbers, tensors with other content than they say."""
    values = b""
    for _ in range(rng.choice((0, 1, 1, 3, 100))):
        tag = rng.choice((REWARD, REWARD, "Losses/Value Loss", text(rng)[:600])).encode("utf-8", "replace")
        if rng.random() < 0.7:
            values += number(tag, rng.choice(FLOATS))
        else:
            content = struct.pack("<f", 1.0) * rng.randint(0, 3)
            kind = varint(8) + varint(integer(rng)) if rng.random() < 0.5 else b"\x08\x01"
            values += field(1, field(1, tag) + field(8, kind + field(rng.choice((4, 5, 6)), content[: rng.randint(0, 12)])))
    return values


def number_of(rng: random.Random) -> int:
    return integer(rng) if rng.random() < 0.3 else rng.randint(0, 2000)


# ---------------------------------------------------------------------------------------------- notes
def status(rng: random.Random) -> bytes:
    document: dict[str, Any] = {"metadata": {"mlagents_version": odd(rng, "1.1.0"), "torch_version": odd(rng, "2.1.2")}}
    for name in rng.sample((NAME, "Other", text(rng)[:300], "metadata"), rng.randint(1, 3)):
        saved = [checkpoint(rng) for _ in range(rng.choice((0, 1, 3)))]
        document[name] = {"checkpoints": odd(rng, saved), "final_checkpoint": odd(rng, checkpoint(rng)), "elo": odd(rng, 1200.0)}
    document[text(rng)[:100]] = odd(rng, {"lesson_num": odd(rng, 1)})
    data = json.dumps(document).encode("ascii", "replace")
    return damaged(rng, data, most=2) if rng.random() < 0.2 else data


def checkpoint(rng: random.Random) -> dict[str, Any]:
    path = f"results/run/{NAME}/{NAME}-{rng.choice((5, 1000))}" if rng.random() < 0.6 else text(rng)[:300]
    return {
        "steps": odd(rng, rng.choice((5, 1000))),
        "file_path": odd(rng, f"{path}.onnx"),
        "reward": odd(rng, rng.choice(FLOATS)),
        "creation_time": odd(rng, 1.7e9),
        "auxillary_file_paths": odd(rng, [f"{path}.pt", odd(rng, "x.pt")]),
    }


def odd(rng: random.Random, right: Any) -> Any:
    """Mostly the right thing, else one of another type or size."""
    if rng.random() < 0.85:
        return right
    wrong: tuple[Any, ...] = (
        None,
        True,
        integer(rng),
        10**400,
        rng.choice(FLOATS),
        text(rng)[:200],
        [],
        {},
        [right],
        {"a": right},
        [[[]]],
        float("nan"),
    )
    return rng.choice(wrong)


def configuration(rng: random.Random) -> bytes:
    document = {"behaviors": odd(rng, {NAME: odd(rng, {"trainer_type": odd(rng, "ppo"), "max_steps": odd(rng, 2000)})})}
    data = json.dumps(document).encode("ascii", "replace")  # JSON is YAML
    return damaged(rng, data, most=2) if rng.random() < 0.3 else data
