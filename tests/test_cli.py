"""The command line as a process: what only its surroundings can do to it. What it says about files is in tests/hostile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cli
from graph2torch.output import FILES
from tests.commands import check_trouble, left_over, run, unsafe
from tests.models import save_pair, tiny_checkpoint, tiny_policy

ROOT = Path(cli.__file__).parent
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "graph2torch", *map(str, arguments)]


def start(folder: Path, *arguments: object, entry: str = "module", **options: Any) -> subprocess.Popen[str]:
    """The command as its own process, in `folder`, from this checkout."""
    line = command(*arguments) if entry == "module" else [sys.executable, str(ROOT / "cli.py"), *map(str, arguments)]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | options
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **streams.pop("env", {})}
    return subprocess.Popen(line, cwd=folder, text=True, encoding="utf-8", env=environment, **streams)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out or "", err or ""


# ---------------------------------------------------------------------------------------------- usage
@pytest.mark.parametrize(
    "arguments", [["build"], ["build", "a", "b", "c"], ["nonsense"], ["build", "--nonsense"], ["build", "a.onnx", "--weights", "mine"]]
)
def test_wrong_use_is_told_with_status_2(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.status == 2
    assert "Traceback" not in result.err and not result.out
    assert "Usage: " in result.err


def test_help_and_version() -> None:
    for arguments in (["--help"], ["build", "--help"], ["inspect", "-h"], ["rules", "--help"], ["--version"]):
        result = run(*arguments)
        assert result.status == 0
        assert result.out and not result.err
    assert run().status in (0, 2)  # the help, whatever click's version returns with it


def test_the_list_of_commands_is_cut_off_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = run("--help")
    listed = done.out[done.out.index("Commands:") : done.out.index("Exit status")]
    assert "..." not in listed and len(listed.strip().splitlines()) == 1 + 12


def test_a_value_that_is_none_is_named() -> None:
    assert "'half' is none; give float32, float16 or bfloat16." in run("build", "a.onnx", "--dtype", "half").err
    assert "'graph' is none; give 'checkpoint' or 'onnx'." in run("build", "a.onnx", "--weights", "graph").err


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: None])
def test_a_model_that_is_none_is_told_before_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    """The folder that would be written is there already; that is not what is wrong."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Huggy").mkdir()
    (tmp_path / "Huggy" / "notes.txt").write_text("mine")
    make(tmp_path / "Huggy.onnx")
    done = run("build", "Huggy.onnx")
    check_trouble(done, "Huggy.onnx")
    assert "output" not in done.err
    check_trouble(run("build", "Huggy"), "is a folder, not an ONNX model")


def test_an_export_into_a_folder_is_told_as_such(tmp_path: Path) -> None:
    path, _ = save_pair(tmp_path, tiny_policy())
    assert run("build", path, "-o", tmp_path / "out").status == 0
    check_trouble(run("export", tmp_path / "out", "-o", tmp_path), "--output", "is a folder; name a file in it")


def test_different_is_status_1_and_written(tmp_path: Path) -> None:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    checkpoint["Policy"]["action_model._continuous_distribution.mu.bias"] += 1
    result = run("build", *save_pair(tmp_path, model, checkpoint), "-o", tmp_path / "out")
    assert result.status == 1
    assert not result.err
    assert left_over(tmp_path / "out") == sorted(FILES)


def test_another_network_is_status_2_and_not_written(tmp_path: Path) -> None:
    paths = save_pair(tmp_path, tiny_policy(), tiny_checkpoint(tiny_policy(hidden=5)))
    check_trouble(run("build", *paths, "-o", tmp_path / "out"), "another network", "--weights onnx")
    assert left_over(tmp_path) == ["Tiny.onnx", "Tiny.pt"]


def test_json_alone_on_stdout(tmp_path: Path) -> None:
    path, _ = save_pair(tmp_path, tiny_policy())
    result = run("build", path, "-o", tmp_path / "out", "--json")
    assert result.status == 0 and not result.err
    assert json.loads(result.out)["level"] == "graph"
    assert result.out.isascii()
    check_trouble(run("build", tmp_path / "none.onnx", "--json"), "does not exist")


def test_coverage_of_a_folder(tmp_path: Path) -> None:
    path, _ = save_pair(tmp_path, tiny_policy())
    result = run("rules", "--coverage", tmp_path)
    assert result.status == 0 and not result.err
    assert "Tiny.onnx" in result.out and "100 %" in result.out
    found = json.loads(run("rules", "--coverage", tmp_path, "--json").out)
    assert found["totals"]["models"] == 1
    check_trouble(run("rules", "--coverage", path), "is not a folder", "--explain")
    both = run("rules", "--coverage", tmp_path, "--explain", path)
    assert both.status == 2 and "give one of them" in " ".join(both.err.replace("│", " ").split())


def test_what_should_not_happen_is_one_line_and_a_traceback_with_debug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("first\nsecond \x1b[31m\u202e")

    path, _ = save_pair(tmp_path, tiny_policy())
    monkeypatch.setattr("graph2torch.build.build", broken)
    result = run("build", path)
    assert result.status == 2 and result.err.count("\n") == 1
    assert "should not happen" in result.err and "first second" in result.err and "--debug" in result.err
    assert not unsafe(result.err)
    with pytest.raises(RuntimeError):
        run("--debug", "build", path)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"), RuntimeError("std::bad_alloc")],
)
def test_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def greedy(*_: object, **__: object) -> None:
        raise error

    path, _ = save_pair(tmp_path, tiny_policy())
    monkeypatch.setattr("graph2torch.build.build", greedy)
    check_trouble(run("build", path), "not enough memory", "nothing was written")


# ---------------------------------------------------------------------------------------------- streams
def closed_stdout(folder: Path, *arguments: object) -> tuple[int, str, str]:
    return finish(start(folder, *arguments, stdout=None, preexec_fn=lambda: os.close(1)))


def closed_stderr(folder: Path, *arguments: object) -> tuple[int, str, str]:
    return finish(start(folder, *arguments, stderr=None, preexec_fn=lambda: os.close(2)))


def all_closed(folder: Path, *arguments: object) -> tuple[int, str, str]:
    return finish(start(folder, *arguments, stdin=None, stdout=None, stderr=None, preexec_fn=lambda: os.closerange(0, 3)))


def nobody_reads(folder: Path, *arguments: object) -> tuple[int, str, str]:
    reader, writer = os.pipe()
    os.close(reader)
    process = start(folder, *arguments, stdout=writer)
    os.close(writer)
    return finish(process)


def full(folder: Path, *arguments: object) -> tuple[int, str, str]:
    with Path("/dev/full").open("w") as stream:
        return finish(start(folder, *arguments, stdout=stream))


@POSIX
@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_stdout_that_goes_nowhere(tmp_path: Path, json_option: list[str]) -> None:
    path, _ = save_pair(tmp_path, tiny_policy())
    assert closed_stdout(tmp_path, "inspect", path, *json_option) == (0, "", "")
    assert nobody_reads(tmp_path, "inspect", path, *json_option) == (2, "", "")
    if Path("/dev/full").exists():
        status, _, err = full(tmp_path, "inspect", path, *json_option)
        assert (status, err.count("\n")) == (2, 1)
        assert "can't be printed" in err and "No space left on device" in err


@POSIX
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["inspect", "--help"]])
def test_help_that_goes_nowhere(tmp_path: Path, arguments: list[str]) -> None:
    """Status 1 would be "different"."""
    assert closed_stdout(tmp_path, *arguments) == (0, "", "")
    assert nobody_reads(tmp_path, *arguments) == (2, "", "")
    if Path("/dev/full").exists():
        status, _, err = full(tmp_path, *arguments)
        assert (status, err.count("\n")) == (2, 1) and "can't be printed" in err


@POSIX
def test_wrong_arguments_that_nobody_is_told_of(tmp_path: Path) -> None:
    assert closed_stderr(tmp_path, "inspect") == (2, "", "")
    if Path("/dev/full").exists():
        with Path("/dev/full").open("w") as stream:
            assert finish(start(tmp_path, "inspect", stderr=stream))[:2] == (2, "")


@POSIX
def test_stderr_that_goes_nowhere(tmp_path: Path) -> None:
    assert closed_stderr(tmp_path, "inspect", "none.onnx") == (2, "", "")
    assert all_closed(tmp_path, "inspect", "none.onnx") == (2, "", "")


@POSIX
def test_a_build_is_whole_though_nobody_reads(tmp_path: Path) -> None:
    save_pair(tmp_path, tiny_policy())
    assert nobody_reads(tmp_path, "build", "Tiny.onnx") == (2, "", "")
    assert left_over(tmp_path / "Tiny") == sorted(FILES)
    assert all_closed(tmp_path, "build", "Tiny.onnx", "-o", "other") == (0, "", "")
    assert left_over(tmp_path / "other") == sorted(FILES)
    assert all((tmp_path / "Tiny" / f).read_bytes() == (tmp_path / "other" / f).read_bytes() for f in FILES if f != "report.json")


def test_an_encoding_that_lacks_characters(tmp_path: Path) -> None:
    path, _ = save_pair(tmp_path, tiny_policy(), name="Möwe")
    status, out, err = finish(start(tmp_path, "inspect", path, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}))
    assert (status, err) == (0, "")
    assert out.isascii() and "we.onnx: 4 observations" in out


# ---------------------------------------------------------------------------------------------- Ctrl-C
def interrupt(process: subprocess.Popen[str], delay: float) -> tuple[int, str, str]:
    time.sleep(delay)
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    return finish(process)


def heard() -> None:
    """The test itself may run in the background, where Ctrl-C is ignored, which a child inherits."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@POSIX
@pytest.mark.parametrize("entry", ["module", "script"])
@pytest.mark.parametrize("delay", [0.5, 0.9, 1.6])
def test_ctrl_c_at_any_moment(tmp_path: Path, entry: str, delay: float) -> None:
    """While Python starts, while libraries are imported, in the middle of the work, or after it."""
    save_pair(tmp_path, tiny_policy(), tiny_checkpoint(tiny_policy()))
    status, out, err = interrupt(start(tmp_path, "build", "Tiny.onnx", "Tiny.pt", "-o", "a/out", entry=entry, preexec_fn=heard), delay)
    if status == -signal.SIGINT or "Traceback" in err:
        assert delay < 0.6, "only before the command's own first line"
    elif status == 130:
        assert err in ("graph2torch: interrupted; nothing is left half written.\n", "graph2torch: interrupted; nothing was written.\n")
    else:
        assert (status, err) == (0, "")
    if (tmp_path / "a").exists():
        assert left_over(tmp_path / "a") == ["out"]
        assert left_over(tmp_path / "a" / "out") == sorted(FILES)
    else:
        assert status != 0 and not out


def test_ctrl_c_in_a_library_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Called from Python, where the process is not ours to end."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    path, _ = save_pair(tmp_path, tiny_policy())
    monkeypatch.setattr("graph2torch.build.build", interrupted)
    check_trouble(run("build", path), "interrupted", status=130)
