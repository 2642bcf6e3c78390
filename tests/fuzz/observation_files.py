"""Files of observations: .npz, .npy, .json and .csv, genuine ones damaged and others made wrong on purpose."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from graph2torch.act.contract import Input

from .damage import FLOATS, damaged, integer, text
from .graphs import array

TYPES = ("float32", "float32", "float64", "float16", "int64", "int8", "uint8", "bool")


def inputs(rng: random.Random) -> list[Input]:
    """What a policy takes: one to three observations, perhaps a mask, memory or one that is not used."""
    found = []
    for i in range(rng.choice((1, 1, 2, 3))):
        name = f"obs_{i}" if rng.random() < 0.9 else text(rng)[:200]
        shape: list[int | str | None] = [
            rng.choice(("batch", "batch", "batch", None, 1, 2, 0)),
            *(rng.choice((1, 2, 3, "n")) for _ in range(rng.randint(0, 3))),
        ]
        kind = rng.choice(("observation", "observation", "observation", "mask", "memory"))
        found.append(Input(name, f"obs_{i}", "", tuple(shape[rng.random() < 0.03 :]), rng.choice(TYPES), "", rng.random() < 0.9, kind))  # type: ignore[arg-type]
    return found


def given(rng: random.Random, wanted: Sequence[Input]) -> dict[str, Any]:
    """Arrays that fit, most of them."""
    rows, arrays = rng.choice((1, 2, 3)), {}
    for value in wanted:
        shape = [rows, *(size if isinstance(size, int) else 2 for size in value.shape[1:])]
        if rng.random() < 0.07:
            shape.insert(rng.randrange(len(shape) + 1), rng.choice((0, 1, 2)))
        usual = (0.0, 1.0, 3.0) if np.dtype(value.dtype).kind in "iub" and rng.random() < 0.8 else FLOATS
        numbers = np.asarray([rng.choice(usual) for _ in range(int(np.prod(shape)))])
        with np.errstate(all="ignore"):
            arrays[value.name] = numbers.astype(rng.choice((value.dtype, value.dtype, value.dtype, *TYPES))).reshape(shape)
        if rng.random() < 0.1:
            arrays[value.name] = array(rng)
    if rng.random() < 0.1:
        arrays[text(rng)[:200]] = array(rng)
    if rng.random() < 0.1:
        arrays.pop(next(iter(arrays)))
    return arrays


def npy(rng: random.Random, value: Any) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(
        stream, np.asfortranarray(value) if rng.random() < 0.2 else value, version=rng.choice(((1, 0), (1, 0), (2, 0), (3, 0)))
    )
    data = stream.getvalue()
    if rng.random() < 0.75:
        return data
    shape = rng.choice(
        (
            str(tuple(value.shape)),
            f"({integer(rng)},)",
            f"({integer(rng)}, {integer(rng)})",
            "(1,) * 9",
            "[1]",
            "(-1,)",
            "1",
            "(True,)",
            "(" * rng.choice((3, 300)),
            f"({'1,' * 40})",
            "(1, 2**63)",
            "(1.0,)",
        )
    )
    dtypes = (
        "'<f4'",
        "'<f8'",
        "'|O'",
        "'<U5'",
        "'<M8[s]'",
        "[('a', '<f4')]",
        "'>f4'",
        "'<f2'",
        "'|b1'",
        "'|V8'",
        "'<c16'",
        "None",
        "'f0'",
        "'<i8'",
        "('<f4', (2,))",
        "'|S0'",
        repr(text(rng)[:30]),
        CODE_DTYPE,
    )
    header = f"{{'descr': {rng.choice(dtypes)}, 'fortran_order': {rng.choice(('False', 'True', '1', 'None'))}, 'shape': {shape}, }}"
    if rng.random() < 0.1:
        header = rng.choice(
            (
                "{}",
                "",
                "{" * 3000,
                "[" * 100_000,
                "__import__('os').system('touch executed')",
                header * 3,
                header.replace("descr", "x"),
                "-" * 5000 + "1",
            )
        )
    major = rng.choice((1, 1, 1, 2, 3, 0, 9, 255))
    raw = header.encode("utf-8", "surrogateescape")
    size = len(raw) if rng.random() < 0.9 else abs(integer(rng))
    length = struct.pack("<H", size % 2**16) if major == 1 else struct.pack("<I", size % 2**32)
    numbers: bytes = value.tobytes()
    return b"\x93NUMPY" + bytes([major, 0]) + length + raw + numbers


CODE_DTYPE = "__import__('pathlib').Path('executed').touch()"


def npz(rng: random.Random, arrays: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))) as archive:
        for name, value in arrays.items():
            data = npy(rng, value)
            if rng.random() < 0.05:
                data = bytes(rng.choice((10, 2**22)))
            archive.writestr((name.replace("\0", "?")[:60_000] + rng.choice((".npy", ".npy", ".npy", "", ".npy/"))) or "nameless", data)
    return stream.getvalue()


def json_text(rng: random.Random, arrays: dict[str, Any]) -> bytes:
    document: Any = {name: value.tolist() for name, value in arrays.items()}
    if rng.random() < 0.3 and document:
        document = next(iter(document.values()))
    written = json.dumps(document)
    for _ in range(rng.choice((0, 0, 1, 2))):
        spans = [i for i, c in enumerate(written) if c in "0123456789.[]{},:"] or [0]
        place = rng.choice(spans)
        new = rng.choice(
            (
                "NaN",
                "Infinity",
                "-Infinity",
                "1e999",
                "9" * rng.choice((20, 400, 5000)),
                "null",
                "true",
                '"1"',
                "[]",
                "{}",
                "[[",
                "]]",
                "",
                ",",
                "1.5",
                "-",
                "[" * rng.choice((10, 2000, 100_000)),
                '{"a":' * 2000,
                "\x00",
                "\ud800".encode("utf-8", "surrogatepass").decode("latin1"),
                "0x10",
                "1_000",
                "٣",
                json.dumps(text(rng)[:200]),
            )
        )
        written = written[:place] + new + written[place + rng.choice((0, 1)) :]
    return rng.choice((b"", b"", b"", b"\xef\xbb\xbf", b"\xff\xfe", b" \n")) + written.encode()


def csv_text(rng: random.Random, arrays: dict[str, Any]) -> bytes:
    rows = next((v for v in arrays.values() if v.ndim >= 1), np.ones((1, 1)))
    table = rows.reshape(len(rows), -1) if rows.size else rows.reshape(0, 1)
    lines = [",".join(str(x) for x in row) for row in table.tolist()]
    if rng.random() < 0.4:
        lines.insert(0, ",".join(text(rng)[:50] for _ in range(rng.randint(1, 4))))
    for _ in range(rng.choice((0, 0, 1, 2))):
        new = rng.choice(
            (
                "",
                "1,2",
                "nan",
                "1e999",
                "'",
                '"1","2"',
                "1;2",
                "1 2",
                "#",
                "0x1",
                "1_0",
                "1e5",
                "inf",
                ",",
                "," * 3000,
                "\t",
                "\0",
                "1j",
                "٣",
                text(rng)[:100],
            )
        )
        lines.insert(rng.randrange(len(lines) + 1), new)
    return rng.choice(("", "", "\ufeff", " ", "\n\n")).encode() + rng.choice(("\n", "\n", "\n", "\n", "\r\n", "\r", "\x0b", "\u2028")).join(
        lines
    ).encode("utf-8", "replace")


def file(rng: random.Random, wanted: Sequence[Input]) -> tuple[str, bytes]:
    """The ending of a file, and what is in it."""
    kind, arrays = rng.choice((".npz", ".npy", ".json", ".csv")), given(rng, wanted)
    if kind == ".npz":
        data = npz(rng, arrays)
    elif kind == ".npy":
        data = npy(rng, next(iter(arrays.values()), np.ones(1)))
    elif kind == ".json":
        data = json_text(rng, arrays)
    else:
        data = csv_text(rng, arrays)
    return kind, damaged(rng, data) if rng.random() < 0.25 else data
