"""The scalars of an event file, as TensorBoard's writers make them: records of TensorFlow's TFRecord format, an `Event` each.

Read as untrusted input and without tensorboard or torch. A record is its length (uint64), the length's checksum, the data, the data's
checksum, all little-endian; a checksum is a CRC-32C, rotated and shifted by a constant
(https://www.tensorflow.org/tutorials/load_data/tfrecord). The data is parsed by protobuf, for which only the fields that are read
here are declared (tensorflow/core/util/event.proto, framework/summary.proto, tensor.proto); the rest stays unknown to it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

MAX_FILE = 2**30  # bytes of a file that are looked at
MAX_RECORD = 2**12  # bytes of a record that is parsed; a scalar has about 60, larger ones hold histograms, pictures or graphs
MAX_RECORDS = 2**20  # of a file; a long training writes some ten thousand
MAX_POINTS = 2**20  # of a file, and of all files of a training
MAX_TAGS = 1024  # of a file
MAX_TAG = 256  # bytes
CHUNK = 4096  # records whose checksums are computed together


@dataclass(frozen=True, slots=True)
class Point:
    """A number of a curve: the training step, the time in seconds since 1970, the value (may be NaN or infinite)."""

    step: int
    time: float
    value: float


@dataclass(frozen=True, slots=True)
class EventFile:
    """What an event file holds.

    curves:  tag → its points, in the file's order
    started: the time of its first event; None if there is none
    events:  records read; large: others that were passed over for their size; damaged: whose checksum or content is wrong
    trouble: why the file wasn't read to its end; "" if it was
    """

    curves: Mapping[str, tuple[Point, ...]]
    started: float | None
    events: int
    large: int
    damaged: int
    trouble: str


def read_events(path: Path, most: int = MAX_RECORDS, points: int | None = None) -> EventFile:
    """The scalars in the event file at `path`, as far as it can be read. OSError if it can't be opened or read.

    most: how many records are read; points: how many are kept, by default MAX_POINTS
    """
    found = _Found(most, MAX_POINTS if points is None else points)
    with path.open("rb") as file:
        records = _records(file, found)
        while chunk := list(islice(records, CHUNK)):
            found.add(chunk)
            if found.full:
                break
    curves = {tag: tuple(points) for tag, points in found.curves.items()}
    return EventFile(curves, found.started, found.events, found.large, found.damaged, found.trouble)


class _Found:
    """What has been read so far."""

    def __init__(self, most: int, points: int) -> None:
        self.most, self.left = most, points
        self.curves: dict[str, list[Point]] = {}
        self.started: float | None = None
        self.events = self.large = self.damaged = 0
        self.trouble = ""
        self.full = False

    def add(self, records: list[tuple[bytes, int]]) -> None:
        """The scalars of records, each with the checksum that it should have."""
        from google.protobuf.message import DecodeError

        event_type = _event_type()
        right = checksums([data for data, _ in records]) == np.asarray([told for _, told in records], np.uint32)
        for (data, _), whole in zip(records, right.tolist(), strict=True):
            self.events += 1
            try:
                event = event_type.FromString(data) if whole else None
            except (DecodeError, RecursionError):  # the latter by protobuf's parser in Python alone, for fields nested deeply
                event = None
            if event is None:
                self.damaged += 1
                continue
            if self.started is None:
                self.started = event.wall_time
            for value in event.summary.value:
                number = _scalar(value)
                if number is not None:
                    self.keep(value.tag, Point(event.step, event.wall_time, number))

    def keep(self, tag: bytes, point: Point) -> None:
        name = tag[:MAX_TAG].decode("utf-8", "replace")
        if (name not in self.curves and len(self.curves) >= MAX_TAGS) or not self.left:
            self.full = True
            self.trouble = (
                f"isn't read further: there are more than {MAX_POINTS:,} points in the files, or more than {MAX_TAGS:,} tags in this one"
            )
            return
        self.left -= 1
        self.curves.setdefault(name, []).append(point)


def _records(file: BinaryIO, found: _Found) -> Iterator[tuple[bytes, int]]:
    """The records of at most MAX_RECORD bytes, each with its checksum as told. Why it ends early is told to `found`."""
    size = file.seek(0, 2)
    position, count = file.seek(0), 0
    while position < size:
        if position > MAX_FILE or count >= found.most:
            found.trouble = f"is too long: it isn't read beyond {count:,} records"
            return
        count += 1
        head = file.read(12)
        if len(head) < 12:
            found.trouble = "ends in the middle of a record: it was cut, or is still being written"
            return
        length, told = struct.unpack("<QI", head)
        if masked(crc32c(head[:8])) != told:
            found.trouble = f"is no event file from byte {position:,} on"
            return
        end = position + 12 + length + 4
        if end > size:
            found.trouble = "ends in the middle of a record: it was cut, or is still being written"
            return
        if length > MAX_RECORD:
            found.large += 1
            file.seek(end)
        else:
            data = file.read(length + 4)
            if len(data) < length + 4:
                found.trouble = "became shorter while it was read"
                return
            yield data[:length], int.from_bytes(data[length:], "little")
        position = end


# ---------------------------------------------------------------------------------------------- checksums
def _table() -> npt.NDArray[np.uint32]:
    """CRC-32C (Castagnoli) of each byte: the polynomial 0x1EDC6F41, reflected."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    return table


TABLE = _table()
_NUMBERS: list[int] = TABLE.tolist()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _NUMBERS[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """As a record has it: rotated, and a constant added."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def checksums(records: list[bytes]) -> npt.NDArray[np.uint32]:
    """`masked(crc32c(record))` of each, [n]: all records together, byte by byte, which takes as many steps as the longest has bytes."""
    lengths = np.asarray([len(record) for record in records], np.int64)
    order = np.argsort(-lengths, kind="stable")
    longest = int(lengths.max(initial=0))
    left = np.searchsorted(-lengths[order], -np.arange(longest), side="left")  # how many are longer than j bytes
    numbers = np.frombuffer(b"".join(records), np.uint8)
    starts = (np.cumsum(lengths) - lengths)[order]
    crc = np.full(len(records), 0xFFFFFFFF, np.uint32)
    for j, count in enumerate(left.tolist()):
        some = crc[:count]
        crc[:count] = TABLE[(some ^ numbers[starts[:count] + j]) & 0xFF] ^ (some >> np.uint32(8))
    crc ^= np.uint32(0xFFFFFFFF)
    found = np.empty_like(crc)
    found[order] = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8)
    return found


# ---------------------------------------------------------------------------------------------- protobuf
FIELDS: Mapping[str, tuple[tuple[str, int, str], ...]] = {
    # message: name, number and type of the fields; "*" repeated
    "Event": (("wall_time", 1, "double"), ("step", 2, "int64"), ("summary", 5, "Summary")),
    "Summary": (("value", 1, "Value*"),),
    "Value": (("tag", 1, "bytes"), ("simple_value", 2, "float"), ("tensor", 8, "Tensor")),  # a tag may not be UTF-8
    "Tensor": (("dtype", 1, "int32"), ("tensor_content", 4, "bytes"), ("float_val", 5, "float*"), ("double_val", 6, "double*")),
}
FLOAT, DOUBLE = 1, 2  # TensorFlow's DT_FLOAT, DT_DOUBLE


@lru_cache(1)
def _event_type() -> Any:
    """The class of the message Event, made from FIELDS."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="graph2torch/event.proto", package="graph2torch.event", syntax="proto2")
    for message, fields in FIELDS.items():
        entry = file.message_type.add(name=message)
        for name, number, kind in fields:
            field = entry.field.add(name=name, number=number)
            field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
            kind = kind.rstrip("*")
            if kind in FIELDS:
                field.type, field.type_name = field.TYPE_MESSAGE, f".graph2torch.event.{kind}"
            else:
                field.type = getattr(field, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    described = pool.FindMessageTypeByName("graph2torch.event.Event")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(described)
    return message_factory.MessageFactory(pool).GetPrototype(described)  # protobuf before 4.22, which ML-Agents asks for


def _scalar(value: Any) -> float | None:
    """The one number of a summary's value; None if it is none, or several."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor"):
        return None
    tensor = value.tensor
    kind, told = {FLOAT: ("<f", tensor.float_val), DOUBLE: ("<d", tensor.double_val)}.get(tensor.dtype, ("", ()))
    if kind and len(tensor.tensor_content) == struct.calcsize(kind):
        return float(struct.unpack(kind, tensor.tensor_content)[0])
    return float(told[0]) if len(told) == 1 and not tensor.tensor_content else None


# ---------------------------------------------------------------------------------------------- several files
def joined(files: Iterable[EventFile]) -> dict[str, tuple[Point, ...]]:
    """The curves of all files of one training, by tag: a training that was resumed has several.

    The files go by the time of their first event. Where a later one starts a curve at a step that an earlier one had reached,
    its points take the place of the earlier ones from that step on: the training went on from a checkpoint before it.
    """
    curves: dict[str, list[Point]] = {}
    for file in sorted(files, key=lambda f: f.started if f.started is not None and math.isfinite(f.started) else math.inf):
        for tag, points in file.curves.items():
            first = min(point.step for point in points)
            curves[tag] = [point for point in curves.get(tag, []) if point.step < first] + sorted(points, key=lambda p: p.step)
    return {tag: tuple(points) for tag, points in curves.items()}
