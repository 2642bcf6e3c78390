"""Checkpoints that are made to harm, or that are of something else: told in one paragraph, and no code of theirs runs."""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graph2torch.checkpoint import load_checkpoint
from graph2torch.errors import CheckpointError
from tests.commands import check_trouble, left_over, run
from tests.models import save_pair, tiny_checkpoint, tiny_policy

WEIGHT = "network_body._body_endoder.seq_layers.0.weight"


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_pair(tmp_path, tiny_policy())


def write(content: object, **options: Any) -> None:
    """Tiny.pt, from bytes or saved by torch."""
    if isinstance(content, bytes):
        Path("Tiny.pt").write_bytes(content)
    else:
        torch.save(content, "Tiny.pt", **options)


def refused(content: object, *words: str, **options: Any) -> None:
    """`build` and `inspect` refuse the checkpoint with these words; nothing was written and nothing was run."""
    write(content, **options)
    check_trouble(run("build", "Tiny.onnx", "Tiny.pt", "-o", "out"), "Tiny.pt", *words)
    check_trouble(run("inspect", "Tiny.pt"), "Tiny.pt", *words)
    assert left_over(Path.cwd()) == ["Tiny.onnx", "Tiny.pt"]


def saved(content: object) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


def repacked(data: bytes, change: Callable[[str, bytes], bytes | None], **options: Any) -> bytes:
    """The archive with the records that `change` gives for the present ones."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w", **options) as new:
        for entry in old.infolist():
            content = change(entry.filename, old.read(entry))
            if content is not None:
                new.writestr(entry.filename, content)
    return stream.getvalue()


def with_pickle(stream: bytes) -> bytes:
    return repacked(saved({}), lambda name, data: stream if name.endswith("data.pkl") else data)


def good() -> dict[str, Any]:
    return tiny_checkpoint(tiny_policy())


# ---------------------------------------------------------------------------------------------- code
class Bomb:
    """What reading it would run leaves a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch executed",)


class Evaluated:
    def __reduce__(self) -> tuple[Any, ...]:
        return eval, ("__import__('pathlib').Path('executed').touch()",)


class State:
    def __reduce__(self) -> tuple[Any, ...]:
        return torch.nn.Linear, (1, 1), {"training": Bomb()}


FORMS: dict[str, dict[str, Any]] = {"zip": {}, "legacy": {"_use_new_zipfile_serialization": False}, "protocol 4": {"pickle_protocol": 4}}


@pytest.mark.parametrize("bomb", [Bomb, Evaluated, State])
@pytest.mark.parametrize("place", ["whole", "module", "tensor", "elsewhere", "attribute"])
@pytest.mark.parametrize("form", [*FORMS, "bare", "bare protocol 0"])
def test_code_is_not_run(bomb: Callable[[], object], place: str, form: str) -> None:
    checkpoint: Any = good()
    if place == "whole":
        checkpoint = bomb()
    elif place == "module":
        checkpoint["Policy"] = bomb()
    elif place == "tensor":
        checkpoint["Policy"][WEIGHT] = bomb()
    elif place == "elsewhere":
        checkpoint["Optimizer:critic"] = {"state": [bomb()]}
    else:
        checkpoint["Policy"].metadata = bomb()
    words: tuple[str, ...] = ("holds more than tensors", "not loaded", "state_dict")
    if form.startswith("bare"):
        write(pickle.dumps(checkpoint, protocol=2 if form == "bare" else 0))
        words = ("Tiny.pt",)  # of protocol 0: not a checkpoint
    else:
        write(checkpoint, **FORMS[form])
    check_trouble(run("build", "Tiny.onnx", "Tiny.pt", "-o", "out"), *words)
    assert left_over(Path.cwd()) == ["Tiny.onnx", "Tiny.pt"]


def test_a_whole_module_is_not_loaded() -> None:
    refused(torch.nn.Linear(2, 2), "holds more than tensors", "state_dict")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_program_is_told_as_such() -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), "Tiny.pt")
    check_trouble(run("build", "Tiny.onnx", "Tiny.pt"), "TorchScript program", "not a checkpoint")


# ---------------------------------------------------------------------------------------------- something else
def test_without_a_policy_what_it_holds_is_named() -> None:
    checkpoint = good()
    del checkpoint["Policy"]
    checkpoint["actor\x1b[31m"] = {}
    refused_by_build(
        checkpoint, "holds no 'Policy'", "'global_step'", "'Optimizer:value_optimizer'", "'actor\\x1b[31m'", "saved for the policy"
    )
    refused_by_build({}, "holds no 'Policy'", "holds nothing")
    refused_by_build({f"m{i}": {} for i in range(1000)}, "'m0'", "and 992 more")
    refused_by_build({"Policy": {}}, "holds no 'Policy' with tensors")
    refused_by_build({"Policy": [1, 2]}, "holds no 'Policy' with tensors")
    refused_by_build({"Policy": torch.ones(3)}, "holds no 'Policy' with tensors")


def refused_by_build(content: object, *words: str) -> None:
    write(content)
    check_trouble(run("build", "Tiny.onnx", "Tiny.pt", "-o", "out"), "Tiny.pt", *words)
    assert left_over(Path.cwd()) == ["Tiny.onnx", "Tiny.pt"]


@pytest.mark.parametrize("content", [torch.ones(3), [1, 2], "text", 5, None, ({},), [{"Policy": {}}], b"bytes"])
def test_what_is_no_set_of_modules(content: object) -> None:
    refused(saved(content), "not the modules of an ML-Agents training")


def test_a_plain_state_dict_holds_no_policy() -> None:
    refused_by_build(good()["Policy"], "holds no 'Policy'", "'is_continuous_int_deprecated'", "more")


def test_other_archives() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("Huggy.pt", saved(good()))
    refused(stream.getvalue(), "an archive, but not a PyTorch checkpoint", "unpack it first")
    stream = io.BytesIO()
    np.savez(stream, weight=np.ones(3))
    refused(stream.getvalue(), "an archive, but not a PyTorch checkpoint")


# ---------------------------------------------------------------------------------------------- sizes
def test_an_archive_bomb_is_not_unpacked() -> None:
    """Two megabytes that would unpack to two gigabytes; and any archive that torch didn't write."""
    data = repacked(saved({}), lambda name, data: data)
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
        with new.open("archive/data/0", "w") as record:
            for _ in range(32):
                record.write(bytes(2**24))
    start = time.monotonic()
    refused(stream.getvalue(), "compressed archive")
    assert time.monotonic() - start < 10
    refused(repacked(saved(good()), lambda _, data: data, compression=zipfile.ZIP_LZMA), "compressed archive")


def test_records_that_share_their_bytes() -> None:
    """A thousand entries of the directory, one content: the sum is more than the file."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
        archive.writestr("archive/data/0", bytes(100_000))
        shared = archive.infolist()[1]
        for i in range(1000):
            copy = zipfile.ZipInfo(f"archive/data/{i + 1}")
            copy.header_offset, copy.file_size, copy.compress_size, copy.CRC = (
                shared.header_offset,
                shared.file_size,
                shared.compress_size,
                shared.CRC,
            )
            archive.filelist.append(copy)
    refused(stream.getvalue(), "compressed archive")


@pytest.mark.parametrize("shape", [(2**40,), (2**31, 2**31), (8, 4, 2**30)])
def test_a_tensor_larger_than_its_storage(shape: tuple[int, ...]) -> None:
    """Strides of 0 make any size of four bytes."""
    checkpoint = good()
    checkpoint["Policy"][WEIGHT] = torch.ones(1).expand(*shape)
    refused(checkpoint, f"'{WEIGHT}'", "more than the bytes behind it")


@pytest.mark.parametrize("records", [{"0": 4}, {"0": 0}, {"0": None}])
def test_a_storage_larger_than_its_record(records: dict[str, int | None]) -> None:
    """torch 2.1 would read on behind the record."""
    data = saved({"Policy": {"w": torch.ones(1_000_000)}})

    def cut(name: str, content: bytes) -> bytes | None:
        key = name.rpartition("/data/")[2]
        size = records.get(key, len(content))
        return None if size is None else content[:size]

    refused(repacked(data, cut), "storage '0'")


def test_a_storage_of_another_case_does_not_stand_in() -> None:
    """torch finds records whatever their case."""
    data = saved({"Policy": {"w": torch.ones(1000)}})
    with_second = repacked(data, lambda name, content: content)
    stream = io.BytesIO(with_second)
    with zipfile.ZipFile(stream, "a") as archive:
        name = next(n for n in archive.namelist() if n.endswith("data/0"))
        archive.writestr(name.replace("data/0", "DATA/0"), b"")
    refused(stream.getvalue(), "storage '0'")


def test_storages_that_are_named_in_other_ways() -> None:
    """Whatever is not exactly ("storage", class, key, location, size) is not torch's writing."""
    for named in ((b"K\x05",), (b"(X\x07\x00\x00\x00storageK\x01X\x01\x00\x00\x000X\x03\x00\x00\x00cpu", b"N", b"t"), (b")",), (b"]",)):
        refused(with_pickle(b"\x80\x02" + b"".join(named) + b"Q."), "no proper storage")


# ---------------------------------------------------------------------------------------------- nested rubbish
def nested(step: bytes, depth: int) -> bytes:
    """A dictionary whose key is a tuple of tuples of …, and 1."""
    return b"\x80\x02})" + step * depth + b"K\x01s."


@pytest.mark.parametrize(
    ("step", "depth"), [(b"\x85", 2_000_000), (b"q\x00h\x00\x86", 60), (b"N\x86", 100_000), (b"q\x00h\x00h\x00\x87", 1000), (b"2\x86", 60)]
)
@pytest.mark.parametrize("form", ["zip", "bare"])
def test_tuples_that_hashing_would_never_come_through(step: bytes, depth: int, form: str) -> None:
    """Deep ones overflow the stack of the process, and shared ones take 2 to the power of their depth."""
    stream = nested(step, depth)
    refused(with_pickle(stream) if form == "zip" else stream, "a tuple of", "made to harm")


def test_deep_lists_and_dictionaries_do_no_harm() -> None:
    for inner in (b"]", b"}X\x01\x00\x00\x00a"):
        stream = b"\x80\x02}X\x06\x00\x00\x00Policy" + inner * 50_000 + b"K\x01" + (b"a" if inner == b"]" else b"s") * 50_000 + b"s."
        write(with_pickle(stream))
        check_trouble(run("build", "Tiny.onnx", "Tiny.pt"), "Tiny.pt")


@pytest.mark.parametrize(
    "stream",
    [
        b"\x80\x02",
        b"\x80\x02.",
        b"\x80\x02(",
        b"\x80\x02((.",
        b"\x80\x02t.",
        b"\x80\x02h\x05.",
        b"\x80\x02s.",
        b"\x80\x02}e.",
        b"\x80\x02(1.",
        b"\x80\x020.",
        b"\x80\x02X\xff\xff\xff\x7fa.",
        b"\x80\x05\x95" + b"\xff" * 8 + b"}.",
        b"\x80\x02\x8b\xff\xff\xff\x7f.",
        b"I" + b"9" * 10_000 + b"\n.",
        b"\x80\x02q\x00.",
        b"\x80\x02(K\x01t\x85R.",
        b"\x80\x02]q\x00h\x00a.",
    ],
    ids=repr,
)
def test_pickles_that_make_no_sense(stream: bytes) -> None:
    for content in (with_pickle(stream), stream):
        write(content)
        check_trouble(run("build", "Tiny.onnx", "Tiny.pt"), "Tiny.pt")


def test_keys_that_are_no_texts_and_values_that_are_no_tensors() -> None:
    checkpoint: dict[Any, Any] = good()
    policy = checkpoint["Policy"]
    policy.update(
        {
            1: torch.ones(1),
            None: 2,
            (1, 2): 3,
            10**500: 4,
            b"bytes": 6,
            1.5: 7,
            "text": "x" * 100_000,
            "list": [[[]]],
            "none": None,
        }
    )
    policy["1"] = torch.zeros(2)
    checkpoint.update({1: {}, (None,): 2, -(10**500): {}})
    write(checkpoint)
    found = load_checkpoint("Tiny.pt")
    assert {"(int)", "(tuple)", "(bytes)", "(NoneType)", "(float)", "text", "list", "none"} <= set(found.unread)
    assert found.tensors["1"].tolist() == [0, 0]
    assert {"(int)", "(tuple)"} <= set(found.modules)
    assert run("build", "Tiny.onnx", "Tiny.pt").status == 0
    assert run("inspect", "Tiny.pt").status == 0


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_of_other_kinds_are_left_out() -> None:
    checkpoint = good()
    quantised = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    strange = {
        "sparse": torch.ones(3, 3).to_sparse(),
        "csr": torch.ones(3, 3).to_sparse_csr(),
        "quantised": quantised,
        "meta": torch.ones(3, device="meta"),
        "huge meta": torch.ones(2**50, device="meta"),
        "float8": torch.ones(3).to(torch.float8_e4m3fn),
        "of many dimensions": torch.ones([1] * 64),
        "complex": torch.ones(3, dtype=torch.complex64).conj(),
    }
    kept = {
        "negative": torch.ones(3, dtype=torch.complex64).conj().imag,
        "bfloat16": torch.ones(3).to(torch.bfloat16),
        "bool": torch.ones(3, dtype=torch.bool),
        "scalar": torch.tensor(3.0),
        "empty": torch.ones(0, 5),
        "strided": torch.arange(12).reshape(3, 4).t()[1:, ::2],
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "expanded": torch.ones(1),
    }
    checkpoint["Policy"].update(strange | kept)
    checkpoint["global_step"] = strange | {"step": torch.tensor(7)}
    write(checkpoint)
    found = load_checkpoint("Tiny.pt")
    assert set(strange) - {"of many dimensions"} <= set(found.unread)
    for key, value in kept.items():
        assert found.tensors[key].shape == tuple(value.shape)
    assert found.tensors["strided"].tolist() == kept["strided"].tolist()
    assert not any(array.flags.writeable for array in found.tensors.values())
    assert found.step == 7
    assert run("build", "Tiny.onnx", "Tiny.pt").status == 0
    assert run("inspect", "Tiny.pt").status == 0


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ["sparse", "quantised", "meta", "text", "wrong type", "wrong shape", "missing"])
def test_a_weight_of_another_kind_is_another_network(kind: str) -> None:
    checkpoint = good()
    weight = checkpoint["Policy"].pop(WEIGHT)
    changed: dict[str, object] = {
        "sparse": weight.to_sparse(),
        "quantised": torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8),
        "meta": weight.to("meta"),
        "text": "weights",
        "wrong type": weight.double(),
        "wrong shape": weight.t().contiguous(),
    }
    if kind in changed:
        checkpoint["Policy"][WEIGHT] = changed[kind]
    refused_by_build(checkpoint, "another network", "hidden layer 1", "--weights onnx")


@pytest.mark.parametrize(
    "step", [torch.tensor([1.5]), torch.tensor([1, 2]), "text", torch.ones(1, device="meta"), torch.ones(1).to_sparse(), torch.tensor(1j)]
)
def test_steps_that_are_none(step: object) -> None:
    write(good() | {"global_step": {"step": step}})
    assert load_checkpoint("Tiny.pt").step is None


def text(name: str) -> bytes:
    return b"X" + struct.pack("<I", len(name)) + name.encode()


def test_attributes_that_hide_methods() -> None:
    """A pickle may give attributes to dictionaries and to tensors."""
    new = b"ccollections\nOrderedDict\n)R"
    hide = b"}" + b"".join(text(name) + b"K\x05s" for name in ("items", "keys", "values", "get", "__iter__", "__len__", "__class__")) + b"b"
    module = new + text("w") + b"K\x01s" + hide
    refused(
        with_pickle(b"\x80\x02" + new + text("Policy") + module + b"s" + text("other") + module + b"s" + hide + b"."),
        "holds no 'Policy' with tensors",
        "'other'",
    )
    checkpoint = good()
    parameter: Any = torch.nn.Parameter(torch.ones(2))
    parameter.numel = parameter.detach = parameter.untyped_storage = parameter.element_size = "hidden"
    checkpoint["Policy"]["hidden"] = checkpoint["global_step"]["hidden"] = parameter
    write(checkpoint)
    assert {*load_checkpoint("Tiny.pt").tensors, "hidden"} == {*checkpoint["Policy"]}
    assert run("build", "Tiny.onnx", "Tiny.pt").status == 0


# ---------------------------------------------------------------------------------------------- forms that are fine
@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "legacy"])
def test_both_of_torchs_forms_are_read(options: dict[str, Any]) -> None:
    write(good(), **options)
    found = load_checkpoint("Tiny.pt")
    assert found.step == 5000
    assert found.tensors.keys() == good()["Policy"].keys()
    for key, value in good()["Policy"].items():
        assert found.tensors[key].tobytes() == value.numpy().tobytes()
    assert run("build", "Tiny.onnx", "Tiny.pt").status == 0


def test_a_name_that_no_system_takes() -> None:
    with pytest.raises(CheckpointError, match=r"a\\x00b.pt"):
        load_checkpoint("a\0b.pt")


def test_big_endian_and_other_versions_end_in_a_paragraph() -> None:
    for record, content in (
        ("byteorder", b"big"),
        ("byteorder", b"\xff"),
        ("version", b"999999\n"),
        ("version", b"x"),
        (".format_version", b"9"),
    ):
        write(repacked(saved(good()), lambda name, data, r=record, c=content: c if name.endswith("/" + r) else data))  # type: ignore[misc]
        result = run("build", "Tiny.onnx", "Tiny.pt", "-o", "out", "--force")
        if result.status != 0:
            assert result.status in (1, 2), result
            if result.status == 2:
                check_trouble(result, "Tiny.pt")


@pytest.mark.skipif(sys.maxsize < 2**32, reason="needs 64 bits")
def test_a_directory_that_lies_about_its_entries() -> None:
    """Offsets and sizes of the archive's directory point anywhere."""
    data = bytearray(saved(good()))
    for signature, places in ((b"PK\x01\x02", (20, 24, 28, 42)), (b"PK\x05\x06", (8, 10, 12, 16))):
        at = data.rfind(signature)
        for place in places:
            for value in (0, 1, 2**16 - 1):
                changed = bytearray(data)
                changed[at + place : at + place + 2] = struct.pack("<H", value)
                write(bytes(changed))
                result = run("inspect", "Tiny.pt")
                assert result.status in (0, 2)
                if result.status:
                    check_trouble(result, "Tiny.pt")
