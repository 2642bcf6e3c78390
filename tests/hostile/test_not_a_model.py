"""Files that are no model at all: each is told what it is and what to do, by `build` and by `inspect`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from tests.commands import check_trouble, left_over, run
from tests.models import save_pair, tiny_checkpoint, tiny_policy

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 2273984\n"
MODEL = tiny_policy().SerializeToString()


def missing(_: Path) -> None: ...


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def circle(path: Path) -> None:
    path.symlink_to(path)


def holding(data: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(data)

    return write


def random_bytes(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(4096))


def a_checkpoint(path: Path) -> None:
    model, checkpoint = save_pair(path.parent, tiny_policy(), tiny_checkpoint(tiny_policy()), "other")
    checkpoint.replace(path)
    model.unlink()


CASES: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "missing": (missing, ("does not exist", "check the path")),
    "a folder": (folder, ("is a folder", "the file itself")),
    "empty": (holding(b""), ("is empty", "again")),
    "a Git LFS pointer": (holding(POINTER), ("Git LFS pointer", "git lfs pull")),
    "a web page": (holding(b"\n<!DOCTYPE html><html>404</html>"), ("is a web page, not ", "give the .")),
    "a page without a doctype": (holding(b"<HTML><p>404"), ("is a web page, not ", "give the .")),
    "weights": (holding(save({"w": np.zeros(3, np.float32)})), ("is weights alone (safetensors), not ", "give the .")),
    "a report": (holding(b'{"graph2torch": "0.1.0", "level": "graph"}\n'), ("is JSON, not ", "give the .")),
    "source": (holding(b'"""Huggy: 59 observations"""\nimport torch\n'), ("is text, not ", "give the .")),
    "text that is not ASCII": (holding(("→ Grüße\n" * 100).encode()), ("is text, not ", "give the .")),
    "text in another encoding": (holding("Grüße".encode("latin-1")), ("is not ",)),
    "random": (random_bytes, ("is not ",)),
}
if sys.platform != "win32":
    CASES["a pipe"] = (pipe, ("not a regular file",))
    CASES["a link to itself"] = (circle, ("check the path",))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("command", ["build", "inspect"])
def test_what_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    make, words = CASES[case]
    make(tmp_path / "Given.onnx")
    before = left_over(tmp_path)
    check_trouble(run(command, "Given.onnx"), "Given.onnx", *words)
    assert left_over(tmp_path) == before


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("command", ["build", "inspect"])
def test_what_is_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    make, words = CASES[case]
    make(tmp_path / "Given.pt")
    save_pair(tmp_path, tiny_policy())
    before = left_over(tmp_path)
    arguments = ["build", "Tiny.onnx", "Given.pt"] if command == "build" else ["inspect", "Given.pt"]
    check_trouble(run(*arguments), "Given.pt", *words)
    assert left_over(tmp_path) == before


@pytest.mark.parametrize("command", ["build", "inspect"])
def test_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    save_pair(tmp_path, tiny_policy(), tiny_checkpoint(tiny_policy()))
    checkpoint = (tmp_path / "Tiny.pt").read_bytes()
    for part in (0.001, 0.02, 0.3, 0.5, 0.9, 0.999):
        Path("Cut.onnx").write_bytes(MODEL[: int(len(MODEL) * part)])
        check_trouble(run(command, "Cut.onnx"), "Cut.onnx")
        Path("Cut.pt").write_bytes(checkpoint[: int(len(checkpoint) * part) or 1])
        check_trouble(run(*(["build", "Tiny.onnx", "Cut.pt"] if command == "build" else ["inspect", "Cut.pt"])), "Cut.pt")
    assert left_over(tmp_path) == ["Cut.onnx", "Cut.pt", "Tiny.onnx", "Tiny.pt"]


def test_checkpoint_given_as_model_and_the_reverse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_pair(tmp_path, tiny_policy(), tiny_checkpoint(tiny_policy()))
    check_trouble(run("build", "Tiny.pt", "Tiny.onnx"), "Tiny.pt is a PyTorch checkpoint", "give the .onnx first")
    check_trouble(run("build", "Tiny.onnx", "Tiny.onnx"), "Tiny.onnx is not a PyTorch checkpoint", "give the .onnx first")
    check_trouble(run("build", "Tiny.pt"), "Tiny.pt is a PyTorch checkpoint")
    a_checkpoint(tmp_path / "Wrong.onnx")
    check_trouble(run("build", "Wrong.onnx"), "Wrong.onnx is a PyTorch checkpoint")
    (tmp_path / "Wrong.pt").write_bytes(MODEL)
    check_trouble(run("build", "Tiny.onnx", "Wrong.pt"), "Wrong.pt is not a PyTorch checkpoint")
    assert not (tmp_path / "Tiny").exists()


def test_paths_that_no_file_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_trouble(run("inspect", "x" * 5000 + ".onnx"), "check the path")
    check_trouble(run("build", "x" * 5000 + ".onnx"), "xx…xx", "check the path")
    check_trouble(run("inspect", "\x1b[31mred\u202e\n.onnx"), "\\x1b[31mred\\u202e\\n.onnx", "does not exist")
    check_trouble(run("inspect", "\udcff.onnx"), "\\udcff.onnx", "does not exist")
    check_trouble(run("inspect", "/"), "is a folder")
    assert left_over(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="the superuser may read everything")
def test_not_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, _ = save_pair(tmp_path, tiny_policy())
    model.chmod(0)
    check_trouble(run("build", model), "can't be read", "permissions")
