"""Protobuf as it lies in a file: taken apart into fields, bent there, and written again with lengths that fit or don't."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import onnx
from google.protobuf.descriptor import Descriptor

from .damage import integer

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
OVERLONG = (b"\x80" * 9 + b"\x00", b"\x80" * 10 + b"\x01", b"\xff" * 9 + b"\x7f", b"\xff" * 11, b"\x81\x80\x80\x00", b"\x80")


@dataclass
class Field:
    """number and type on the wire, and the value: an integer, raw bytes, or fields; `lie` replaces the length that is written."""

    number: int
    wire: int
    value: Any
    lie: bytes | None = None


def take_apart(data: bytes, descriptor: Descriptor) -> list[Field]:
    """The fields of a valid serialisation; messages in it are taken apart as well."""
    fields, at = [], 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = read_varint(data, at)
            fields.append(Field(number, wire, value))
        elif wire == BYTES:
            length, at = read_varint(data, at)
            inner = data[at : at + length]
            known = descriptor.fields_by_number.get(number)
            nested = known is not None and known.message_type is not None
            fields.append(Field(number, wire, take_apart(inner, known.message_type) if nested else inner))
            at += length
        else:
            width = 8 if wire == FIXED64 else 4
            fields.append(Field(number, wire, data[at : at + width]))
            at += width
    return fields


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def varint(value: int) -> bytes:
    value %= 2**64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def put_together(fields: list[Field]) -> bytes:
    return b"".join(map(written, fields))


def written(field: Field) -> bytes:
    tag = varint(field.number << 3 | field.wire)
    if field.wire == VARINT and isinstance(field.value, int):
        return tag + (varint(field.value) if field.lie is None else field.lie)
    value = put_together(field.value) if isinstance(field.value, list) else field.value if isinstance(field.value, bytes) else b""
    if field.wire != BYTES:
        return tag + value
    return tag + (varint(len(value)) if field.lie is None else field.lie) + value


def walk(fields: list[Field]) -> Iterator[tuple[list[Field], int]]:
    for place, field in enumerate(fields):
        yield fields, place
        if isinstance(field.value, list):
            yield from walk(field.value)


def bent(rng: random.Random, data: bytes, others: tuple[bytes, ...]) -> bytes:
    """A model's bytes with fields taken out, doubled, moved, of other numbers, types, lengths and values."""
    model = take_apart(data, onnx.ModelProto.DESCRIPTOR)
    for _ in range(rng.randint(1, 4)):
        places = list(walk(model))
        if not places:
            break
        fields, place = rng.choice(places)
        field = fields[place]
        kind = rng.randrange(13)
        if kind == 0:
            del fields[place]
        elif kind == 1:
            fields[place:place] = [copy.deepcopy(field) for _ in range(rng.choice((1, 2, 50)))]
        elif kind == 2:
            field.number = rng.choice((1, 2, 3, 5, 7, 8, 15, 16, 20, 100, 536_870_911, rng.randint(1, 30)))
        elif kind == 3:
            field.wire = rng.choice((0, 1, 2, 3, 4, 5, 6, 7))
        elif kind == 4:
            field.lie = rng.choice((*OVERLONG, varint(integer(rng)), varint(rng.randrange(300))))
        elif kind == 5 and isinstance(field.value, int):
            field.value = integer(rng) % 2**64
        elif kind == 6 and isinstance(field.value, bytes):
            field.value = rng.choice((b"", b"\xff\xfe", b"\xc3(", b"\0" * rng.choice((1, 1000)), field.value * 2, field.value[:-1]))
        elif kind == 7:
            source, other = rng.choice(places)
            fields[place] = copy.deepcopy(source[other])
        elif kind == 8:
            other_fields = list(walk(take_apart(rng.choice(others), onnx.ModelProto.DESCRIPTOR)))
            source, other = rng.choice(other_fields)
            fields.insert(place, source[other])
        elif kind == 9:
            rng.shuffle(fields)
        elif kind == 10 and isinstance(field.value, list):  # a message in itself: the same tag again and again around it
            inner = field.value
            for _ in range(rng.choice((2, 60, 110, 2000))):
                inner = [Field(field.number, BYTES, put_together(inner))]
            field.value = inner
        elif kind == 11:
            fields[place] = Field(field.number, BYTES, rng.randbytes(rng.choice((0, 1, 8, 100))))
        elif kind == 12:
            fields.insert(place, Field(rng.randint(1, 30), rng.choice((0, 1, 2, 5)), rng.randbytes(8)))
        if sum(1 for _ in walk(model)) > 20_000:
            break
    return put_together(model)
