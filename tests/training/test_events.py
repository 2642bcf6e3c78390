"""Event files: right ones are read as TensorBoard reads them, wrong ones as far as they are right."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import pytest

from graph2torch.training import events
from graph2torch.training.events import EventFile, Point, checksums, crc32c, joined, masked, read_events
from graph2torch.training.run_folder import REWARD
from tests.events import START, curve, event, field, number, record, write

# written by tensorboard 2.21: the version, add_scalar of torch, and the same in the new style, in double precision
WRITTEN = bytes.fromhex(
    "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d"
    "3500000000000000d6c55de60900002040fc54d94110b1897a2a260a240a1d456e7669726f6e6d656e742f43756d756c617469766520526577617264159a997940a26a7fca"
    "3200000000000000241956ec0900002040fc54d94110012a250a230a06526577617264420c08023208000000000000e0bf4a0b0a090a077363616c61727329e1529f"
)


def read(folder: Path, data: bytes) -> EventFile:
    return read_events(write(folder, data))


def test_what_tensorboard_wrote(tmp_path: Path) -> None:
    found = read(tmp_path, WRITTEN)
    assert found == EventFile(
        {REWARD: (Point(2000049, 1700000000.5, float(np.float32(3.9))),), "Reward": (Point(1, 1700000000.5, -0.5),)}, 1.7e9, 3, 0, 0, ""
    )


def test_checksums_are_crc_32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of its definition
    rng = np.random.default_rng(0)
    records = [rng.bytes(n) for n in (0, 1, 60, 3, 60, 517, 8, 0)]
    assert checksums(records).tolist() == [masked(crc32c(r)) for r in records]
    assert checksums([]).size == 0


@pytest.mark.parametrize("value", [0.0, -0.0, 2.0**-149, math.inf, -math.inf, math.nan])
def test_any_number_is_told(tmp_path: Path, value: float) -> None:
    (point,) = read(tmp_path, curve([(7, value)])).curves[REWARD]
    assert struct.pack("<d", point.value) == struct.pack("<d", value)


def test_steps_below_zero_and_the_largest(tmp_path: Path) -> None:
    found = read(tmp_path, curve([(-1, 0.0), (2**63 - 1, 1.0)]))
    assert [point.step for point in found.curves[REWARD]] == [-1, 2**63 - 1]


def test_a_scalar_is_one_number(tmp_path: Path) -> None:
    """Tensors of several numbers, of other types, or with content of another length are none."""

    def tensor(content: bytes) -> bytes:
        return field(1, field(1, "t") + field(8, content))

    floats, content = b"\x08\x01", struct.pack("<f", 2.5)
    one = [floats + field(5, content), floats + b"\x2d" + content, floats + field(4, content)]
    none = [
        b"",
        floats,
        floats + field(5, content * 2),
        floats + field(4, content[:3]),
        b"\x08\x07" + field(8, "text"),
        b"\x08\x63" + content,
    ]
    none.append(floats + field(5, content) + field(4, b"xy"))
    found = read(tmp_path, b"".join(record(event(1, tensor(t))) for t in (*one, *none)))
    assert [point.value for point in found.curves["t"]] == [2.5] * 3
    assert found.events - found.damaged == len(one) + len(none) - 1  # the last of `none` above is no protobuf: a float of two bytes


def test_a_file_that_was_cut_is_read_up_to_there(tmp_path: Path) -> None:
    whole = curve([(1, 1.0), (2, 2.0)])
    last = len(record(event(2, number(REWARD, 2.0))))
    for length in range(len(whole) - last + 1, len(whole)):
        found = read(tmp_path, whole[:length])
        assert len(found.curves[REWARD]) == 1 and "ends in the middle" in found.trouble, length
    assert read(tmp_path, whole[: len(whole) - last]).trouble == ""
    assert read(tmp_path, b"") == EventFile({}, None, 0, 0, 0, "")


def test_any_byte_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    """Its record is left out, or reading ends there; no number that is told is another one than was written."""
    whole = curve([(1, 1.0), (2, 2.0), (3, 3.0)])
    right = read(tmp_path, whole).curves[REWARD]
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 0x10
        found = read(tmp_path, bytes(data))
        assert found.damaged or found.trouble, place
        assert set(found.curves.get(REWARD, ())) <= set(right), place


def test_a_length_that_lies_ends_the_reading(tmp_path: Path) -> None:
    for length in (2**63, 2**64 - 1, 10_000):
        found = read(tmp_path, curve([(1, 1.0)]) + record(b"", length))
        assert len(found.curves[REWARD]) == 1 and found.trouble


def test_large_records_are_passed_over(tmp_path: Path) -> None:
    picture = record(event(1, field(1, field(1, "picture") + field(4, b"\0" * events.MAX_RECORD))))
    found = read(tmp_path, curve([(1, 1.0)]) + picture + record(event(2, number(REWARD, 2.0))))
    assert [p.step for p in found.curves[REWARD]] == [1, 2] and found.large == 1 and not found.trouble


def test_what_protobuf_refuses_is_damaged(tmp_path: Path) -> None:
    broken = [b"\xff" * 20, field(5, b"\x0a\xff\xff\xff\xff\x0f"), b"\x09\x00", field(5, field(1, field(1, "x") + b"\x17"))]
    found = read(tmp_path, b"".join(map(record, broken)) + curve([(1, 1.0)]))
    assert found.damaged == len(broken) and len(found.curves[REWARD]) == 1


def test_a_parser_that_gives_up_leaves_the_record_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """protobuf before 4 has a parser in Python alone, which calls itself for each field in a field."""
    real = events._event_type()

    class Parser:
        @staticmethod
        def FromString(data: bytes) -> object:  # noqa: N802 # protobuf's name
            if b"deep" in data:
                raise RecursionError
            return real.FromString(data)

    monkeypatch.setattr(events, "_event_type", lambda: Parser)
    found = read(tmp_path, record(event(1, number("deep", 1.0))) + curve([(1, 1.0)]))
    assert found.damaged == 1 and len(found.curves[REWARD]) == 1


def test_tags_are_any_bytes(tmp_path: Path) -> None:
    tags = [b"\xff\xfe", b"", b"\0", b"x" * 3_000, "\u202e".encode()]
    found = read(tmp_path, b"".join(record(event(1, number(tag, 1.0))) for tag in tags))
    assert set(found.curves) == {"\ufffd\ufffd", "", "\0", "x" * events.MAX_TAG, "\u202e"}


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = curve([(i, 1.0) for i in range(10)])
    assert "5 records" in read_events(write(tmp_path, points), 5).trouble
    with monkeypatch.context() as patch:
        patch.setattr(events, "MAX_POINTS", 5)
        found = read(tmp_path, points)
        assert len(found.curves[REWARD]) == 5 and "more than 5 points" in found.trouble
    monkeypatch.setattr(events, "MAX_TAGS", 2)
    found = read(tmp_path, b"".join(record(event(1, number(tag, 1.0))) for tag in "abca"))
    assert set(found.curves) == {"a", "b"} and "2 tags" in found.trouble


def test_a_training_that_was_resumed() -> None:
    """From a checkpoint before the last point: what was trained again counts."""

    def file(start: float | None, *steps: int, tag: str = "r") -> EventFile:
        return EventFile({tag: tuple(Point(step, 0.0, float(start or 0)) for step in steps)}, start, 0, 0, 0, "")

    first, second, third = file(1, 100, 200, 300, 400), file(2, 300, 400, 500), file(math.nan, 9, tag="other")
    for files in ([first, second, third], [third, second, first]):
        curves = joined(files)
        assert [(p.step, p.value) for p in curves["r"]] == [(100, 1), (200, 1), (300, 2), (400, 2), (500, 2)]
        assert len(curves["other"]) == 1
    assert joined([]) == {}


def test_as_tensorboard_reads_it(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    rng = np.random.default_rng(1)
    with SummaryWriter(str(tmp_path)) as writer:
        for step in range(0, 5000, 50):
            writer.add_scalar(REWARD, rng.normal(), step)
            writer.add_scalar("Losses/Value Loss", rng.normal(), step, new_style=True)
            writer.add_histogram(f"{REWARD}_hist", rng.normal(size=300), step)
            writer.add_text("Hyperparameters", "trainer_type: ppo", step)
    (path,) = tmp_path.iterdir()
    theirs = accumulator.EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    ours = read_events(path)
    assert not ours.trouble and not ours.damaged and (ours.started or 0) > START
    assert set(ours.curves) == {REWARD, "Losses/Value Loss"}
    assert [(p.step, p.time, p.value) for p in ours.curves[REWARD]] == [(e.step, e.wall_time, e.value) for e in theirs.Scalars(REWARD)]
    assert [p.value for p in ours.curves["Losses/Value Loss"]] == [
        float(e.tensor_proto.float_val[0]) for e in theirs.Tensors("Losses/Value Loss")
    ]
