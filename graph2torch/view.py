"""Looks at a built policy: its report in the browser, or its architecture in Netron.

What is served is served to this machine alone, at 127.0.0.1. Where no browser can be opened (no display, an SSH session), the place is
told instead.
"""

from __future__ import annotations

import http.server
import logging
import os
import signal
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from .errors import DependencyError, FolderError, OutputError
from .files import read_file
from .text import one_line, quoted

REPORT, ARCHITECTURE = "report.html", "lifted.onnx"
LOCAL = "127.0.0.1"
NAMES = ("localhost", LOCAL, "[::1]")  # what a request for this machine calls it, whatever the port: it may be forwarded


@dataclass(frozen=True, slots=True)
class View:
    """What is there to be looked at.

    file:     in the folder
    url:      where a browser finds it: a file:, or http: as long as it is served
    served:   whether it is, so that the command waits
    unopened: why no browser was opened; "" if one was
    """

    file: Path
    url: str
    served: bool
    unopened: str


@contextmanager
def viewed(folder: str | Path, netron: bool = False, port: int | None = None, browser: bool = True) -> Iterator[View]:
    """Opens a built folder's report, or with `netron` its architecture; what is served is so until the end of the context.

    port:    where to serve, 0 for any that is free; by default the report is opened as a file, and Netron finds a port by itself
    browser: whether to open one, if that can be done

    Raises FolderError if the file isn't there, DependencyError without Netron, OutputError if the port can't be had.
    """
    file = _file(Path(folder), ARCHITECTURE if netron else REPORT)
    if netron:
        with _netron(file, port) as url:
            yield View(file, url, True, _open(url, browser))
    elif port is not None:
        with _served(file, port) as url:
            yield View(file, url, True, _open(url, browser))
    else:
        url = file.resolve().as_uri()
        yield View(file, url, False, _open(url, browser))


def _file(folder: Path, name: str) -> Path:
    """FolderError unless `folder` is one that build wrote, with this file in it."""
    shown = quoted(str(folder))
    try:
        if not folder.is_dir():
            kind = "a file, not a folder" if folder.exists() else "not there; check the path"
            raise FolderError(f"{shown} is {kind}; give a folder that `graph2torch build` wrote.")
        if not (folder / "report.json").is_file():
            raise FolderError(f"{shown} has no report.json; give a folder that `graph2torch build` wrote.")
        if not (folder / name).is_file():
            advice = f"`graph2torch report {shown}` writes it" if name == REPORT else "build it again with `graph2torch build`"
            raise FolderError(f"{shown} has no {name}; {advice}.")
    except (OSError, ValueError) as error:
        raise FolderError(f"{shown} is no usable path ({one_line(str(error), 80)}).") from None
    return folder / name


# ---------------------------------------------------------------------------------------------- browser
def _open(url: str, wanted: bool) -> str:
    """Opens the browser; why not, if it can't be."""
    if not wanted:
        return "--no-browser was given"
    if reason := no_browser(os.environ, sys.platform):
        return reason
    try:
        return "" if webbrowser.open(url) else "no browser was found"
    except (webbrowser.Error, OSError) as error:
        return f"the browser can't be started ({one_line(str(error), 80)})"


def no_browser(environment: Mapping[str, str], platform: str) -> str:
    """Why no browser should be tried here; "" if one may be there.

    One that BROWSER names is always tried. Else webbrowser would take a text browser in the terminal, or one on the far side of SSH.
    """
    if environment.get("BROWSER"):
        return ""
    if any(environment.get(name) for name in ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")):
        return "this is an SSH session"
    if platform not in ("win32", "darwin", "cygwin") and not (environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")):
        return "there is no display"
    return ""


# ---------------------------------------------------------------------------------------------- serving
@contextmanager
def _served(file: Path, port: int) -> Iterator[str]:
    """Serves one page at 127.0.0.1, read anew for each request."""

    class Handler(_Page):
        page = file

    try:
        server = http.server.ThreadingHTTPServer((LOCAL, port), Handler)
    except (OSError, OverflowError) as error:
        raise _no_port(port, error) from None
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield f"http://{LOCAL}:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


class _Page(http.server.BaseHTTPRequestHandler):
    """Answers with the page, whatever else is beside it; not to a site that had its own name point here."""

    page: Path
    server_version, sys_version = "graph2torch", ""
    timeout = 30  # seconds for a request

    def do_GET(self) -> None:
        host = self.headers.get("Host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if name.lower() not in NAMES:
            return self.answer(HTTPStatus.MISDIRECTED_REQUEST)
        if self.path.partition("?")[0] not in ("/", f"/{REPORT}"):
            return self.answer(HTTPStatus.NOT_FOUND)
        try:
            return self.answer(HTTPStatus.OK, read_file(self.page, "a report", FolderError))
        except FolderError:  # it is gone
            return self.answer(HTTPStatus.NOT_FOUND)

    def do_HEAD(self) -> None:
        self.do_GET()

    def answer(self, status: HTTPStatus, body: bytes = b"") -> None:
        self.send_response(status)
        for key, value in {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
        }.items():
            self.send_header(key, value)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Requests are nobody's business."""


@contextmanager
def _netron(file: Path, port: int | None) -> Iterator[str]:
    """Netron's server with a copy of the model: it hands out whatever lies in the model's folder, and writes the path into its page."""
    try:
        import netron
    except ImportError as error:
        raise DependencyError(
            f"--netron needs the package netron, which can't be imported here ({one_line(str(error), 120)}); "
            f"`pip install 'graph2torch[netron]'` installs it. Or open {quoted(str(file))} at https://netron.app or in the Netron app."
        ) from None
    logging.getLogger("netron").setLevel(logging.WARNING)  # it would print the address, as we do
    with tempfile.TemporaryDirectory(prefix="graph2torch-") as scratch:
        copy = Path(scratch) / ARCHITECTURE
        copy.write_bytes(read_file(file, "a model", FolderError))
        try:
            host, at = netron.start(str(copy), address=(LOCAL, port), browse=False)
        except (OSError, OverflowError) as error:
            raise _no_port(port or 0, error) from None
        try:
            yield f"http://{host}:{at}/"
        finally:
            netron.stop((host, at))


def _no_port(port: int, error: Exception) -> OutputError:
    what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return OutputError(f"--port {port} can't be used here ({one_line(what, 80)}); choose another, or 0 for any that is free.")


@contextmanager
def until_ended() -> Iterator[Callable[[], None]]:
    """Gives a function that waits for Ctrl-C or SIGTERM, which from here on end it as they should: with no error, and all tidied up."""
    ended = threading.Event()

    def wait() -> None:
        while not ended.wait(0.2):  # a wait without an end hears nothing on some systems
            pass

    before = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wait
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
