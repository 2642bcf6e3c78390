"""Weights outside the .onnx: read from plain files in the model's own folder, and from nowhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from graph2torch.graph import load
from tests.commands import check_trouble, left_over, run
from tests.models import save_pair, tiny_policy

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")
SECRET = b"\0\0\x80\x3f" * 64  # 64 times 1.0, outside the model's folder


def weight(model: onnx.ModelProto) -> onnx.TensorProto:
    found: onnx.TensorProto = next(t for t in model.graph.initializer if t.name.endswith("0.weight"))
    return found


def constant(model: onnx.ModelProto) -> onnx.TensorProto:
    """A tensor in a node's attribute, which has external data as well as an initializer has."""
    found: onnx.TensorProto = next(n for n in model.graph.node if n.op_type == "Constant").attribute[0].t
    return found


def move_out(tensor: onnx.TensorProto, location: str, **entries: object) -> bytes:
    """Refers to `location` instead of holding the numbers, which are given back."""
    data = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return data


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model in it, and a secret beside the folder."""
    (tmp_path / "secret").write_bytes(SECRET)
    inside = tmp_path / "models"
    inside.mkdir()
    (inside / "sub").mkdir()
    monkeypatch.chdir(inside)
    return inside


def refused(folder: Path, model: onnx.ModelProto, *words: str) -> None:
    save_pair(folder, model)
    before = left_over(folder)
    for command in ("build", "inspect"):
        check_trouble(run(command, "Tiny.onnx"), "Tiny.onnx", *words)
    assert left_over(folder) == before


# ---------------------------------------------------------------------------------------------- what is read
@pytest.mark.parametrize("pick", [weight, constant])
@pytest.mark.parametrize("location", ["Tiny.data", "sub/Tiny.data", "./Tiny.data", "Möwe $(touch executed)"])
@pytest.mark.parametrize("offset", [None, 0, 4096])
def test_beside_the_model(folder: Path, pick: Callable[[onnx.ModelProto], onnx.TensorProto], location: str, offset: int | None) -> None:
    model = tiny_policy()
    entries = {} if offset is None else {"offset": offset, "length": len(pick(model).raw_data)}
    data = move_out(pick(model), location, **entries)
    (folder / location).write_bytes(b"\x55" * (offset or 0) + data + (b"" if offset is None else b"more"))
    path, _ = save_pair(folder, model)
    loaded = load(path)
    assert pick(loaded.proto).raw_data == data
    assert loaded.proto == tiny_policy()
    assert run("inspect", "Tiny.onnx").status == 0


def test_all_weights_in_one_file_as_torch_writes_it(folder: Path) -> None:
    model = tiny_policy()
    onnx.save_model(model, folder / "Tiny.onnx", save_as_external_data=True, location="Tiny.onnx.data", size_threshold=0)
    assert (
        load(folder / "Tiny.onnx").graph.constants.keys() == load(save_pair(folder, tiny_policy(), name="whole")[0]).graph.constants.keys()
    )
    assert run("build", "Tiny.onnx").status == 0


@POSIX
def test_a_download_cache_that_links_both(tmp_path: Path) -> None:
    """As Hugging Face's: snapshots/… holds links to files that lie together in blobs/."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshots").mkdir()
    model = tiny_policy()
    data = move_out(weight(model), "Tiny.data")
    (tmp_path / "blobs" / "1").write_bytes(model.SerializeToString())
    (tmp_path / "blobs" / "2").write_bytes(data)
    (tmp_path / "snapshots" / "Tiny.onnx").symlink_to("../blobs/1")
    (tmp_path / "snapshots" / "Tiny.data").symlink_to("../blobs/2")
    assert np.array_equal(
        load(tmp_path / "snapshots" / "Tiny.onnx").graph.constants[weight(model).name].reshape(-1), np.frombuffer(data, "<f4")
    )


# ---------------------------------------------------------------------------------------------- what is not
LOCATIONS = [
    "../secret",
    "sub/../../secret",
    "sub/..",
    "..",
    "{tmp}/secret",
    "/etc/passwd",
    "..\\secret",
    "sub\\..\\..\\secret",
    "C:\\secret",
    "",
    "a\0b",
]


@pytest.mark.parametrize("pick", [weight, constant])
@pytest.mark.parametrize("location", LOCATIONS)
def test_outside_is_not_opened(folder: Path, pick: Callable[[onnx.ModelProto], onnx.TensorProto], location: str) -> None:
    model = tiny_policy()
    move_out(pick(model), location.replace("{tmp}", str(folder.parent)))
    refused(folder, model, "not a path inside the model's folder", "not opened")


@POSIX
@pytest.mark.parametrize("target", ["../secret", "/dev/zero", "/etc/passwd", "..", "/proc/self/environ"])
@pytest.mark.parametrize("location", ["link", "linked/secret"])
def test_links_that_lead_outside(folder: Path, target: str, location: str) -> None:
    (folder / "link").symlink_to(target)
    (folder / "linked").symlink_to("..")
    model = tiny_policy()
    move_out(weight(model), location, length=128)
    refused(folder, model, "leads outside the model's folder", "not opened")


@POSIX
def test_things_that_are_no_plain_files(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "circle").symlink_to("circle")
    for location, words in (("pipe", "not a plain file"), ("sub", "not a plain file"), (".", "not a plain file"), ("circle", "circle")):
        model = tiny_policy()
        move_out(weight(model), location)
        refused(folder, model, f"'{location}'", words)


@pytest.mark.parametrize(
    "location", ["none.data", "none/none.data", "Tiny.onnx/data", "x" * 300, "x" * 5000, "x/" * 3000, "\x1b[31m\u202e\n"]
)
def test_missing(folder: Path, location: str) -> None:
    model = tiny_policy()
    move_out(weight(model), location)
    refused(folder, model, "is kept in", "beside the .onnx")


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"length": 129}, "fewer bytes than the model says"),
        ({"offset": 1, "length": 128}, "fewer bytes than the model says"),
        ({"offset": 129}, "fewer bytes than the model says"),
        ({"offset": 10**18}, "fewer bytes than the model says"),
        ({"offset": 9 * 10**18, "length": 9 * 10**18}, "fewer bytes than the model says"),
        ({"length": 127}, "127 bytes of 128"),
        ({"offset": 4}, "124 bytes of 128"),
        ({"offset": -1}, "no number of bytes"),
        ({"length": "-128"}, "no number of bytes"),
        ({"length": "0x80"}, "no number of bytes"),
        ({"length": "1_2_8"}, "no number of bytes"),
        ({"length": "١٢٨"}, "no number of bytes"),
        ({"length": "9" * 5000}, "no number of bytes"),
        ({"offset": "nan"}, "no number of bytes"),
    ],
)
def test_short_or_wrong(folder: Path, entries: dict[str, object], words: str) -> None:
    model = tiny_policy()
    (folder / "Tiny.data").write_bytes(move_out(weight(model), "Tiny.data", **entries))
    refused(folder, model, words)


@pytest.mark.skipif(sys.platform != "linux", reason="needs files with holes")
def test_more_than_the_limit_is_not_read(folder: Path) -> None:
    """Each tensor refers to the same gigabyte, which takes no room on the disk."""
    with (folder / "Tiny.data").open("wb") as file:
        file.truncate(3 * 2**30)
    model = tiny_policy()
    move_out(weight(model), "Tiny.data")
    refused(folder, model, "more than 2,147,483,647 bytes")


def test_what_is_inside_a_subgraph_or_function_is_never_opened(folder: Path) -> None:
    model = tiny_policy()
    body = onnx.helper.make_graph([], "body", [], [], [onnx.numpy_helper.from_array(np.ones(32, np.float32), "w")])
    move_out(body.initializer[0], "../secret")
    model.graph.node.append(onnx.helper.make_node("If", ["obs_0"], ["b"], then_branch=body, else_branch=body))
    refused(folder, model, "subgraph")
