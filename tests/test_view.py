"""`view`: the browser gets what is there, and where there is none the place is told; what is served is served to this machine alone."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cli
from graph2torch.errors import DependencyError, FolderError, OutputError
from graph2torch.view import no_browser, viewed
from tests.commands import check_trouble, left_over, run, unsafe
from tests.models import save_pair, tiny_policy

ROOT = Path(cli.__file__).parent
PAGE = b"<!doctype html><title>a report</title>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What `view` looks for in a built folder."""
    found = tmp_path / "out"
    found.mkdir()
    (found / "report.json").write_text("{}")
    (found / "report.html").write_bytes(PAGE)
    (found / "lifted.onnx").write_bytes(b"a model")
    return found


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a browser was told to open; there is one, on a display."""
    urls: list[str] = []

    def browser(url: str) -> bool:
        urls.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", browser)
    for name in ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "BROWSER", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    return urls


# ---------------------------------------------------------------------------------------------- the report as a file
def test_the_report_is_opened_as_a_file(folder: Path, opened: list[str]) -> None:
    result = run("view", folder)
    assert result.status == 0 and not result.err and "not opened" not in result.out
    assert opened == [(folder / "report.html").resolve().as_uri()]
    document = json.loads(run("view", folder, "--json").out)
    assert document == {"file": str(folder / "report.html"), "url": opened[1], "served": False, "not_opened": None}


def test_what_build_wrote_can_be_viewed(tmp_path: Path, opened: list[str]) -> None:
    path, _ = save_pair(tmp_path, tiny_policy())
    assert run("build", path, "-o", tmp_path / "built").status == 0
    assert run("view", tmp_path / "built").status == 0
    assert Path(opened[0].removeprefix("file://")).read_bytes().startswith(b"<!doctype html>")
    with viewed(tmp_path / "built", port=0, browser=False) as found, urllib.request.urlopen(found.url, timeout=20) as answer:
        assert answer.read() == (tmp_path / "built" / "report.html").read_bytes()


@pytest.mark.parametrize("name", ["SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"])
def test_over_ssh_the_place_is_told(folder: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "10.0.0.1 1 10.0.0.2 22")
    result = run("view", folder)
    text = " ".join(result.out.split())
    assert result.status == 0 and not opened
    assert "not opened, because this is an SSH session" in text and "report.html" in text


def test_where_no_browser_is_tried() -> None:
    assert no_browser({}, "linux") == "there is no display"
    assert no_browser({"WAYLAND_DISPLAY": "wayland-0"}, "linux") == ""
    assert no_browser({}, "darwin") == no_browser({}, "win32") == ""
    assert no_browser({"SSH_TTY": "/dev/pts/0", "DISPLAY": ":10"}, "darwin") == "this is an SSH session"
    assert no_browser({"SSH_TTY": "/dev/pts/0", "BROWSER": "code"}, "linux") == ""  # whoever sets it knows


def test_a_browser_that_fails_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    assert "no browser was found" in run("view", folder).out

    def broken(_: str) -> bool:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "open", broken)
    assert "could not locate runnable browser" in run("view", folder).out
    assert json.loads(run("view", folder, "--no-browser", "--json").out)["not_opened"] == "--no-browser was given"


def test_what_is_not_there_is_told(folder: Path, tmp_path: Path, opened: list[str]) -> None:
    (folder / "report.html").unlink()
    check_trouble(run("view", folder), "has no report.html", "graph2torch report")
    (folder / "lifted.onnx").unlink()
    check_trouble(run("view", folder, "--netron"), "has no lifted.onnx", "graph2torch build")
    check_trouble(run("view", tmp_path), "has no report.json")
    check_trouble(run("view", tmp_path / "nowhere"), "not there")
    check_trouble(run("view", folder / "report.json"), "a file, not a folder")
    (tmp_path / "loop").symlink_to("loop")
    check_trouble(run("view", tmp_path / "loop"), "graph2torch build")
    with pytest.raises(FolderError, match=r"no usable path|not there"), viewed("x\0y"):
        pass
    assert not opened


def test_names_of_folders_do_nothing(folder: Path, tmp_path: Path, opened: list[str]) -> None:
    odd = tmp_path / "a b\x1b[31m\u202e#?%"
    folder.rename(odd)
    result = run("view", odd)
    assert result.status == 0 and not unsafe(result.out)
    assert opened[0].startswith("file:///") and not set(opened[0]) & set(" #?\x1b\u202e")


# ---------------------------------------------------------------------------------------------- the report, served
@pytest.fixture
def served(folder: Path, opened: list[str]) -> Iterator[tuple[str, int]]:
    with viewed(folder, port=0) as found:
        assert opened == [found.url] and found.served
        host, port = found.url.removeprefix("http://").rstrip("/").split(":")
        yield host, int(port)


def asked(served: tuple[str, int], path: str = "/", method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(*served, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_the_page_and_nothing_else_is_served(served: tuple[str, int], folder: Path) -> None:
    assert asked(served) == asked(served, "/report.html") == asked(served, "/?x=1") == (200, PAGE)
    assert asked(served, method="HEAD") == (200, b"")
    for path in ("/report.json", "/lifted.onnx", "/../out/report.json", "//etc/passwd", "/%2e%2e/report.json", "/report.html/"):
        assert asked(served, path)[0] == 404, path
    assert asked(served, method="POST")[0] == 501
    (folder / "report.html").write_bytes(b"another")
    assert asked(served) == (200, b"another")
    (folder / "report.html").unlink()
    assert asked(served)[0] == 404


def test_it_is_served_to_this_machine_alone(served: tuple[str, int]) -> None:
    host, port = served
    assert host == "127.0.0.1"
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"}
    for other in others:
        with pytest.raises(OSError), socket.create_connection((str(other), port), 1):  # noqa: PT011
            pass
    for name in ("localhost", f"localhost:{port}", "127.0.0.1:9", "[::1]:80", "LOCALHOST"):
        assert asked(served, Host=name)[0] == 200, name
    for name in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "", "localhost:80:80"):
        assert asked(served, Host=name)[0] == 421, name


def test_a_port_that_is_taken_is_told(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        check_trouble(run("view", folder, "--port", port), f"--port {port} can't be used", "choose another")
    assert run("view", folder, "--port", "70000").status == 2
    with pytest.raises(OutputError), viewed(folder, port=70_000):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_ended(folder: Path, number: signal.Signals) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")}
    process = subprocess.Popen(
        [sys.executable, "-m", "graph2torch", "view", str(folder), "--port", "0"],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout
    line = process.stdout.readline()
    with urllib.request.urlopen(line.split()[-1], timeout=20) as answer:
        assert answer.read() == PAGE
    process.send_signal(number)
    out = process.stdout.read()
    assert process.wait(20) == 0
    assert "Ctrl-C ends it" in out and "no display" in out and "interrupted" not in out


# ---------------------------------------------------------------------------------------------- Netron
def test_without_netron_it_says_how_to_get_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "netron", None)
    check_trouble(run("view", folder, "--netron"), "pip install 'graph2torch[netron]'", "lifted.onnx")
    with pytest.raises(DependencyError), viewed(folder, netron=True):
        pass


def test_netron_gets_a_copy_that_lies_alone(folder: Path, opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It hands out what lies beside the model, and writes the path into its page as it is."""
    calls: list[tuple[str, Any]] = []
    fake = ModuleType("netron")

    def start(file: str, address: tuple[str, int | None], browse: bool) -> tuple[str, int]:
        assert Path(file).read_bytes() == b"a model" and left_over(Path(file).parent) == ["lifted.onnx"]
        assert not browse and Path(file).is_relative_to(tempfile.gettempdir()) and not set(file) & set("\"'<> ")
        calls.append((file, address))
        return address[0], address[1] or 8080

    fake.start, fake.stop = start, lambda address: calls.append(("stop", address))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "netron", fake)
    odd = folder.with_name('x" onload="alert(1)')
    folder.rename(odd)
    with viewed(odd, netron=True) as found:
        assert found.url == "http://127.0.0.1:8080/" and opened == [found.url] and not found.unopened
    with viewed(odd, netron=True, port=9):
        pass
    assert [call[1] for call in calls] == [("127.0.0.1", None), ("127.0.0.1", 8080), ("127.0.0.1", 9), ("127.0.0.1", 9)]
    assert not Path(calls[0][0]).parent.exists()

    def busy(*_: Any, **__: Any) -> None:
        raise OSError(98, "Address already in use")

    fake.start = busy  # type: ignore[attr-defined]
    check_trouble(run("view", odd, "--netron", "--port", 9), "--port 9 can't be used", "already in use")


def test_the_real_netron(folder: Path) -> None:
    pytest.importorskip("netron", reason="needs netron")
    with viewed(folder, netron=True, browser=False) as found:
        assert found.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{found.url}data/lifted.onnx", timeout=20) as answer:
            assert answer.read() == b"a model"
        with urllib.request.urlopen(found.url, timeout=20) as answer:
            assert b"/data/lifted.onnx" in answer.read()
