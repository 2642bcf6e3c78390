"""Observations from files: each format gives the same arrays; what doesn't fit is told; hostile files cost nothing."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph2torch.act.contract import Input
from graph2torch.act.observations_file import complete, observations_of, read_observations
from graph2torch.canonical import canonicalise
from graph2torch.errors import ObservationError
from graph2torch.graph import Array, read_graph
from graph2torch.rulebook import load_rules
from tests.commands import unsafe
from tests.models import tiny_policy


def inputs_of(**options: Any) -> tuple[Input, ...]:
    return load_rules().recognise(canonicalise(read_graph(tiny_policy(**options), "Tiny.onnx"))).inputs


VECTOR = inputs_of(observations=(3,))
SEVERAL = inputs_of(observations=(3, (2, 2)), branches=(2, 2), memory=4)
ROWS = np.random.default_rng(0).normal(0, 2, (5, 3)).astype(np.float32)


def npy(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def refused(data: bytes, kind: str, *words: str, inputs: tuple[Input, ...] = VECTOR) -> None:
    with pytest.raises(ObservationError) as told:
        observations_of(data, kind, f"given{kind}", inputs)
    message = str(told.value)
    assert "\n" not in message and not unsafe(message) and len(message) < 700 and "given" in message
    for word in words:
        assert word in message, message


# ---------------------------------------------------------------------------------------------- what is read
def test_the_family_tells_masks_and_memory() -> None:
    assert [(i.name, i.kind, i.next) for i in SEVERAL] == [
        ("obs_0", "observation", ""),
        ("obs_1", "observation", ""),
        ("action_masks", "mask", ""),
        ("recurrent_in", "memory", "recurrent_out"),
    ]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (".npy", npy(ROWS)),
        (".npy", npy(np.asfortranarray(ROWS))),
        (".npy", npy(ROWS.astype(">f8"))),
        (".npz", npz(obs_0=ROWS)),
        (".json", json.dumps({"obs_0": ROWS.tolist()}).encode()),
        (".json", json.dumps(ROWS.tolist()).encode()),
        (".csv", "\n".join(",".join(map(repr, row)) for row in ROWS.tolist()).encode()),
        (".csv", ("\ufeffx,y,z\r\n" + "\r\n".join(", ".join(map(repr, row)) for row in ROWS.tolist()) + "\r\n").encode()),
    ],
    ids=["npy", "by columns", "big-endian", "npz", "json", "list alone", "csv", "csv with names"],
)
def test_every_format_gives_the_same_bits(tmp_path: Path, kind: str, data: bytes) -> None:
    file = tmp_path / f"given{kind}"
    file.write_bytes(data)
    found = read_observations(file, VECTOR)
    assert list(found) == ["obs_0"] and found["obs_0"].dtype == np.float32 and found["obs_0"].flags.c_contiguous
    assert found["obs_0"].tobytes() == ROWS.tobytes()


def test_several_inputs_and_those_that_may_be_left_out() -> None:
    entities = np.ones((5, 2, 2))
    found = observations_of(npz(obs_0=ROWS, obs_1=entities), ".npz", "given.npz", SEVERAL)
    assert list(found) == ["obs_0", "obs_1"]
    whole = complete(found, SEVERAL)
    assert {k: v.shape for k, v in whole.items()} == {
        "obs_0": (5, 3),
        "obs_1": (5, 2, 2),
        "action_masks": (5, 4),
        "recurrent_in": (5, 1, 4),
    }
    assert whole["action_masks"].all() and not whole["recurrent_in"].any() and all(v.dtype == np.float32 for v in whole.values())
    mask = np.array([[1, 0, 0, 1]] * 5, dtype=bool)
    given = observations_of(npz(obs_0=ROWS, obs_1=entities, action_masks=mask), ".npz", "given.npz", SEVERAL)
    assert given["action_masks"].dtype == np.float32 and np.array_equal(given["action_masks"], mask)


def test_one_observation_needs_no_rows() -> None:
    assert observations_of(b"[1, 2.5, -3]", ".json", "given.json", VECTOR)["obs_0"].tolist() == [[1, 2.5, -3]]
    image = inputs_of(observations=((2, 20, 21),))
    flat = ",".join(["0.5"] * 840).encode()
    assert observations_of(flat, ".csv", "given.csv", image)["obs_0"].shape == (1, 2, 20, 21)


def test_nan_and_infinity_are_observations() -> None:
    for kind, data in (
        (".npy", npy(np.array([[np.nan, np.inf, -np.inf]]))),
        (".json", b"[[NaN, Infinity, -Infinity]]"),
        (".csv", b"nan,inf,-inf"),
    ):
        found = observations_of(data, kind, "given", VECTOR)["obs_0"]
        assert np.isnan(found[0, 0]) and found[0, 1] == np.inf and found[0, 2] == -np.inf


# ---------------------------------------------------------------------------------------------- what doesn't fit
@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        (".npy", npy(np.zeros((5, 4))), ("[5, 4]", "[n, 3]")),
        (".npy", npy(np.zeros(4)), ("[4]", "[n, 3]")),
        (".npy", npy(np.zeros(())), ("[]", "[n, 3]")),
        (".npy", npy(np.zeros((0, 3))), ("is empty",)),
        (".npy", npy(np.array([[1e300, 0, 0]])), ("1e+300", "float32")),
        (".npy", npy(np.array([["a", "b", "c"]])), ("<U1", "numbers")),
        (".npy", npy(np.zeros((1, 3), complex)), ("complex128",)),
        (".npy", npy(np.zeros((1, 3), "M8[s]")), ("datetime64",)),
        (".npy", npy(np.zeros(3, [("a", "f4")])), ("numbers",)),
        (".npz", npz(obs_0=ROWS, other=ROWS), ("'other'", "'obs_0'")),
        (".npz", npz(), ("holds no 'obs_0'",)),
        (".json", b'{"obs_0": [[1, 2], [1]]}', ("different lengths",)),
        (".json", b'{"obs_0": [["1", "2", "3"]]}', ("no number",)),
        (".json", b'{"obs_0": [[1, null, 3]]}', ("no number",)),
        (".json", b'{"obs_0": [[1, {}, 3]]}', ("no number",)),
        (".json", b'{"obs_0": 7}', ("not a list",)),
        (".json", b'{"\\u001b[31m\\u202e": [1]}', ("\\x1b[31m\\u202e",)),
        (".json", b"7", ("not a list",)),
        (".json", b"{}", ("holds no 'obs_0'",)),
        (".csv", b"1,2\n", ("[1, 2]", "[n, 3]")),
        (".csv", b"1,2,3\n1,2\n", ("as many in each line",)),
        (".csv", b"1,2,3\n1,x,3\n", ("rows of numbers",)),
        (".csv", b"x,y,z\n", ("holds no rows",)),
        (".csv", b"1,2,x\n1,2,3\n", ("'x'", "rows of numbers")),
        (".csv", b"1,2,3,\n", ("rows of numbers",)),
        (".csv", b"1;2;3\n", ("semicolons", "commas")),
        (".csv", b"x;y;z\n1;2;3\n", ("semicolons", "commas")),
        (".csv", b"0,5;0,25;1\n", ("semicolons", "commas", "points")),
        (".csv", b"1\t2\t3\n", ("tabs", "commas")),
    ],
)
def test_what_does_not_fit_is_told(kind: str, data: bytes, words: tuple[str, ...]) -> None:
    refused(data, kind, *words)


def test_several_inputs_need_names_and_as_many_rows() -> None:
    refused(npy(ROWS), ".npy", "2 observations", "'obs_0', 'obs_1'", inputs=SEVERAL)
    refused(npz(obs_0=ROWS, obs_1=np.ones((4, 2, 2))), ".npz", "5 of 'obs_0'", "4 of 'obs_1'", inputs=SEVERAL)
    refused(npz(obs_0=ROWS), ".npz", "holds no 'obs_1'", inputs=SEVERAL)


def test_a_fixed_batch_takes_a_multiple_of_it() -> None:
    fixed = inputs_of(observations=(3,), batch=2)
    assert observations_of(npy(ROWS[:4]), ".npy", "given.npy", fixed)["obs_0"].shape == (4, 3)
    refused(npy(ROWS), ".npy", "5 rows", "2 at a time", inputs=fixed)


def test_integers_stay_whole() -> None:
    whole = (Input("n", "n", "[batch, 2]", ("batch", 2), "int64", ""),)
    assert observations_of(b"[[1, 2.0]]", ".json", "given.json", whole)["n"].tolist() == [[1, 2]]
    refused(b"[[1, 2.5]]", ".json", "2.5", "int64", inputs=whole)
    refused(b"[[1, NaN]]", ".json", "nan", "int64", inputs=whole)


def test_files_that_are_none(tmp_path: Path) -> None:
    for name, words in (("x.txt", ".npz, .npy, .json or .csv"), ("missing.npy", "does not exist")):
        with pytest.raises(ObservationError, match=words):
            read_observations(tmp_path / name, VECTOR)


# ---------------------------------------------------------------------------------------------- hostile
def header(text: str, version: bytes = b"\x01\x00", length: int | None = None) -> bytes:
    size = len(text) if length is None else length
    return b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", size) + text.encode()


OBJECTS = npy(np.array([[{"a": 1}, 2, 3]], dtype=object))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (OBJECTS, ("object", "unpickled")),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 3)}\n"), ("more than its",)),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 3)}\n"), ("more than its",)),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 100 + ")}\n") + b"\0" * 4, ("more than its",)),
        (header("{'descr': ('<f4', (10000, 10000)), 'fortran_order': False, 'shape': (1,)}\n"), ("numbers",)),
        (header("{}", b"\x02\x00", 2**31), ("header of",)),
        (header("-" * 9000 + "1"), ("header is damaged",)),
        (header("(" * 9000), ("damaged",)),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': __import__('os').abort()}"), ("damaged",)),
        (npy(ROWS)[:-1], ("is truncated",)),
        (b"\x93NUMPY", ("damaged",)),
        (b"PK\x03\x04", ("damaged",)),
        (b"\x80\x04.", ("damaged",)),
    ],
)
def test_arrays_that_lie(data: bytes, words: tuple[str, ...]) -> None:
    refused(data, ".npy", *words)


def test_an_archive_with_objects_runs_nothing() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("obs_0.npy", OBJECTS)
    refused(buffer.getvalue(), ".npz", "object", "unpickled")


def test_bombs_are_not_unpacked() -> None:
    """A gigabyte of zeros in a megabyte: refused by what the archive says, or because it says too little."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive, archive.open("obs_0.npy", "w") as entry:
        entry.write(header("{'descr': '<f4', 'fortran_order': False, 'shape': (90000000, 3)}\n"))
        for _ in range(260):
            entry.write(bytes(2**20))
    bomb = buffer.getvalue()
    assert len(bomb) < 2**21
    tracemalloc.start()
    refused(bomb, ".npz", "unpacks to more than")
    size = struct.pack("<I", zipfile.ZipFile(io.BytesIO(bomb)).infolist()[0].file_size)
    refused(bomb.replace(size, struct.pack("<I", 1000)), ".npz", "damaged")
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()


def test_archives_of_nothing_but_entries() -> None:
    entry = b"PK\x01\x02" + bytes(42)
    refused(entry * 20_000 + b"PK\x05\x06" + struct.pack("<4H2LH", 0, 0, 20_000, 20_000, 46 * 20_000, 0, 0), ".npz", "entries")


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b'{"obs_0": ' + b"[" * 60 + b"1" + b"]" * 60 + b"}",
        b"[" + b"9" * 5000 + b"]",
        b"\xff\xfe[",
        b"[1e999999, " + b"1, 2]",
    ],
)
def test_odd_json(data: bytes) -> None:
    if data.startswith(b"[1e"):
        assert observations_of(data, ".json", "given.json", VECTOR)["obs_0"][0, 0] == np.inf
    else:
        refused(data, ".json")


def test_odd_csv() -> None:
    refused(b"\xff\xfe1,2,3", ".csv")
    refused(b"#1,2,3\n#", ".csv")
    refused(b"1,2,3\n" * 2 + b"__import__('os'),2,3", ".csv")


def test_text_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph2torch.act.observations_file.MAX_TEXT", 100)
    refused(b"[" + b" " * 100 + b"1, 2, 3]", ".json", "100 of text")
