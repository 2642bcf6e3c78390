"""The output folder appears whole or not at all, whatever stands in its place or goes wrong, and nothing else is left."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from graph2torch.output import FILES
from tests.commands import Result, check_trouble, left_over, run
from tests.models import save_pair, tiny_policy

WHOLE = sorted(FILES)
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_pair(tmp_path, tiny_policy())


def build(*arguments: object) -> Result:
    return run("build", "Tiny.onnx", *arguments)


def tree(folder: Path) -> dict[str, object]:
    """Everything under `folder`, hidden things too: path → content, or what it is."""

    def what(path: Path) -> object:
        if path.is_symlink():
            return path.readlink()
        return path.read_bytes() if path.is_file() else f"folder: {path.is_dir()}"

    return {str(p.relative_to(folder)): what(p) for p in folder.rglob("*")}


# ---------------------------------------------------------------------------------------------- what stands in its place
def test_called_after_the_model(tmp_path: Path) -> None:
    assert build().status == 0
    assert left_over(tmp_path) == ["Tiny", "Tiny.onnx"]
    assert left_over(tmp_path / "Tiny") == WHOLE


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert build("-o", "out").status == 0
    assert left_over(tmp_path / "out") == WHOLE
    assert left_over(tmp_path) == ["Tiny.onnx", "out"]


def test_missing_parents_are_made(tmp_path: Path) -> None:
    assert build("-o", "a/b/out").status == 0
    assert left_over(tmp_path / "a" / "b") == ["out"]
    assert left_over(tmp_path / "a" / "b" / "out") == WHOLE


def test_a_former_build_is_replaced_with_force_only(tmp_path: Path) -> None:
    assert build("-o", "out").status == 0
    (tmp_path / "out" / "model.py").write_text("mine")
    (tmp_path / "out" / "__pycache__").mkdir()
    before = tree(tmp_path)
    check_trouble(build("-o", "out"), "'out' exists and is not empty", "--force")
    assert tree(tmp_path) == before
    assert build("-o", "out", "--force").status == 0
    assert left_over(tmp_path / "out") == WHOLE
    assert (tmp_path / "out" / "model.py").read_text() != "mine"
    assert left_over(tmp_path) == ["Tiny.onnx", "out"]


def foreign_file(out: Path) -> None:
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")


def foreign_file_beside_a_build(out: Path) -> None:
    assert build("-o", out).status == 0
    (out / "my\x1b[31mnotes").write_text("")


def a_source_that_is_not_ours(out: Path) -> None:
    out.mkdir()
    (out / "model.py").write_text("years of work")


def a_folder_called_like_a_file_of_ours(out: Path) -> None:
    assert build("-o", out).status == 0
    (out / "model.py").unlink()
    (out / "model.py").mkdir()
    (out / "model.py" / "thesis.txt").write_text("years of work")


def a_file(out: Path) -> None:
    out.write_text("years of work")


def a_link_to_a_folder(out: Path) -> None:
    (out.parent / "elsewhere").mkdir()
    out.symlink_to("elsewhere")


def a_link_to_nothing(out: Path) -> None:
    out.symlink_to("nowhere")


def a_link_to_itself(out: Path) -> None:
    out.symlink_to("out")


def a_pipe(out: Path) -> None:
    os.mkfifo(out)


OBSTACLES: dict[Callable[[Path], None], tuple[str, ...]] = {
    foreign_file: ("'thesis.txt'", "didn't write"),
    foreign_file_beside_a_build: ("'my\\x1b[31mnotes'", "didn't write"),
    a_source_that_is_not_ours: ("'model.py'", "didn't write"),
    a_folder_called_like_a_file_of_ours: ("'model.py'", "didn't write"),
    a_file: ("not a folder",),
    a_link_to_a_folder: ("not a folder",),
    a_link_to_nothing: ("not a folder",),
    a_link_to_itself: ("not a folder",),
    a_pipe: ("not a folder",),
}


@POSIX
@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_what_is_not_ours_stays_even_with_force(tmp_path: Path, obstacle: Callable[[Path], None]) -> None:
    obstacle(tmp_path / "out")
    before = tree(tmp_path)
    check_trouble(build("-o", "out"), "'out'", "choose another with -o")
    check_trouble(build("-o", "out", "--force"), "'out'", "choose another with -o", *OBSTACLES[obstacle])
    assert tree(tmp_path) == before


@pytest.mark.parametrize("output", [".", "..", "", "Tiny.onnx", "Tiny.onnx/out", "Tiny.onnx/a/out", "x" * 300, "a/" + "x" * 300, "/"])
def test_what_can_not_become_the_output(tmp_path: Path, output: str) -> None:
    before = tree(tmp_path)
    check_trouble(build("-o", output, "--force"), "The output", "-o")
    assert tree(tmp_path) == before


def test_it_is_told_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even of a file that is no model."""
    (tmp_path / "none.onnx").write_text("no model")
    check_trouble(run("build", tmp_path / "none.onnx", "-o", "Tiny.onnx"), "not a folder")


# ---------------------------------------------------------------------------------------------- what goes wrong
@POSIX
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_not_writable(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    check_trouble(build("-o", "locked/out"), "nothing may be written to", "locked", "-o")


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A small disk, where one may be mounted."""
    points: list[Path] = []

    def mount(options: str) -> Path:
        point = tmp_path / "disk"
        point.mkdir()
        try:
            done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(point)], capture_output=True, check=False)
        except OSError:
            pytest.skip("no mount here")
        if done.returncode:
            pytest.skip("nothing may be mounted here")
        points.append(point)
        return point

    yield mount
    for point in points:
        subprocess.run(["umount", str(point)], check=True)


def test_a_read_only_disk(mounted: Callable[[str], Path]) -> None:
    disk = mounted("ro")
    check_trouble(build("-o", disk / "a" / "out"), "nothing may be written to", "-o")


@pytest.mark.parametrize("size", ["4k", "12k", "20k"])
def test_a_full_disk(mounted: Callable[[str], Path], size: str) -> None:
    disk = mounted(f"size={size}")
    check_trouble(build("-o", disk / "a" / "out"), "No space left on device", "Nothing was written", "-o")
    assert left_over(disk) == []


def fail_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, count: int, failure: Callable[[], object]) -> None:
    """The `count`th call of `owner.name` from within this folder's write fails."""
    real = getattr(owner, name)
    calls = 0

    def failing(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count:
            failure()
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, failing)


def no_space() -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


PLACES = [(Path, "mkdir", 1), (Path, "mkdir", 2), (os, "fsync", 1), (os, "fsync", len(FILES)), (Path, "rename", 1), (Path, "rename", 2)]


@pytest.mark.parametrize(("owner", "name", "count"), PLACES)
def test_an_error_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, count: int) -> None:
    """A new folder and the parent made for it disappear; a former build stays as it was."""
    for output in ("new/out", "former"):
        if output == "former":
            assert build("-o", "former").status == 0
            (tmp_path / "former" / "model.py").write_text("mine")
        if (name, count, output) in {("rename", 2, "new/out"), ("mkdir", 2, "former")}:
            continue  # there is no second one
        before = tree(tmp_path)
        with monkeypatch.context() as patch:
            fail_at(patch, owner, name, count, no_space)
            check_trouble(build("-o", output, "--force"), "can't be written: No space left on device", "Nothing was written")
        assert tree(tmp_path) == before


@pytest.fixture
def _heard() -> Iterator[None]:
    """Ctrl-C as in a terminal: where the tests run in the background, it may be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@POSIX
@pytest.mark.usefixtures("_heard")
@pytest.mark.parametrize(("owner", "name", "count"), PLACES[1:5])
def test_ctrl_c_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, count: int) -> None:
    """Exit status 130 and nothing left; or, once the new folder is complete, 0 and the new folder."""
    assert build("-o", "former").status == 0
    (tmp_path / "former" / "model.py").write_text("mine")
    before = tree(tmp_path)
    for output in ("new/out", "former"):
        with monkeypatch.context() as patch:
            fail_at(patch, owner, name, count, lambda: signal.raise_signal(signal.SIGINT))
            result = build("-o", output, "--force")
        if name == "rename":
            assert result.status == 0
            assert left_over(tmp_path / output) == WHOLE
        elif (name, count, output) != ("mkdir", 2, "former"):
            check_trouble(result, "interrupted", status=130)
            assert tree(tmp_path) == before
    assert [n for n in left_over(tmp_path) if n.startswith(".")] == []


@POSIX
def test_a_signal_that_is_ignored_does_not_stop_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        fail_at(monkeypatch, os, "fsync", 2, lambda: signal.raise_signal(signal.SIGINT))
        assert build("-o", "out").status == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert left_over(tmp_path / "out") == WHOLE


@POSIX
def test_sigterm_is_delivered_after_tidying_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminated(BaseException):
        pass

    def terminate(*_: object) -> NoReturn:
        assert tree(tmp_path) == before
        raise Terminated

    handler = signal.signal(signal.SIGTERM, terminate)
    before = tree(tmp_path)
    try:
        fail_at(monkeypatch, os, "fsync", 2, lambda: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(Terminated):
            build("-o", "out")
        assert signal.getsignal(signal.SIGTERM) is terminate
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert tree(tmp_path) == before


def test_two_builds_at_once_give_one_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one finished while this one was written."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "model.py").write_text("theirs")
    fail_at(monkeypatch, os, "fsync", 2, lambda: (tmp_path / "theirs").rename(tmp_path / "out"))
    check_trouble(build("-o", "out"), "exists and is not empty")
    assert tree(tmp_path / "out") == {"model.py": b"theirs"}
    assert left_over(tmp_path) == ["Tiny.onnx", "out"]
