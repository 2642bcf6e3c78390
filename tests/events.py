"""Event files for the tests, byte by byte: what ML-Agents' writer makes, and what it never would."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from graph2torch.training.events import crc32c, masked
from graph2torch.training.run_folder import REWARD

START = 1.7e9  # seconds since 1970


def field(number: int, data: bytes | str) -> bytes:
    """A field of protobuf that holds bytes, a text or a message."""
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    found = b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def record(data: bytes, length: int | None = None) -> bytes:
    """A record around `data`, with right checksums; `length` is what it says to be long."""
    head = struct.pack("<Q", len(data) if length is None else length)
    return head + struct.pack("<I", masked(crc32c(head))) + data + struct.pack("<I", masked(crc32c(data)))


def event(step: int, values: bytes = b"", time: float = START) -> bytes:
    return b"\x09" + struct.pack("<d", time) + b"\x10" + varint(step) + (field(5, values) if values else b"")


def number(tag: str | bytes, value: float) -> bytes:
    """A summary's value as SummaryWriter.add_scalar makes it."""
    return field(1, field(1, tag) + b"\x15" + struct.pack("<f", value))


def curve(points: Iterable[tuple[int, float]], tag: str = REWARD, start: float = START) -> bytes:
    """An event file with one curve: the version that each starts with, then a record a point."""
    first = record(b"\x09" + struct.pack("<d", start) + field(3, "brain.Event:2"))
    return first + b"".join(record(event(step, number(tag, value), start + i + 1)) for i, (step, value) in enumerate(points))


def write(folder: Path, data: bytes, name: str = "events.out.tfevents.1700000000.host.1.0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(data)
    return path
