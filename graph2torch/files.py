"""Files, read as untrusted input and written whole or not at all."""

from __future__ import annotations

import os
import secrets
import signal
import threading
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import OutputError
from .text import one_line, printable, quoted

MAX_BYTES = 2**31 - 1  # of a file: protobuf's own limit; external data counts too
MAX_RANK = 16  # of an array


def where(path: Path) -> str:
    """The file's name, safe to print."""
    return printable(path.name or str(path))


def check_input(path: Path, what: str, error: type[Exception]) -> None:
    """`error` unless `path` is a file."""
    name = where(path)
    try:
        if path.is_dir():
            raise error(f"{name} is a folder, not {what}; give the file itself.")
        if not path.exists():
            raise error(f"{name} does not exist; check the path {quoted(str(path))}.")
        if not path.is_file():
            raise error(f"{name} is not a regular file; give {what}.")
    except OSError as problem:
        raise error(f"{name} can't be read: {problem.strerror or problem}; check the path and its permissions.") from None
    except ValueError as problem:  # an embedded null byte
        raise error(f"{name} is no usable path: {problem}.") from None


def looks_like(data: bytes) -> str:
    """What a file is that was given for another, by its first bytes: "JSON"; "" where they don't tell."""
    head = data[:512].lstrip()
    if data[8:9] == b"{" and int.from_bytes(data[:8], "little") <= len(data) - 8:
        return "weights alone (safetensors)"
    if head[:9].lower() == b"<!doctype" or head[:5].lower() == b"<html":
        return "a web page"
    try:
        text = getincrementaldecoder("utf-8")().decode(head)  # the last character may be cut
    except UnicodeDecodeError:
        return ""
    if text and all(character in "\t\n\f\r" or character.isprintable() for character in text):
        return "JSON" if text[0] in "{[" else "text"
    return ""


def read_file(path: Path, what: str, error: type[Exception], limit: int = MAX_BYTES) -> bytes:
    """The bytes of `path`, at most `limit`, after the checks that any input file gets."""
    name = where(path)
    check_input(path, what, error)
    try:
        size = path.stat().st_size
        if size == 0:
            raise error(f"{name} is empty; export or download it again.")
        if size > limit:
            raise error(f"{name} has {size:,} bytes, more than the {limit:,} that {what} may have here.")
        data = path.read_bytes()
    except OSError as problem:
        raise error(f"{name} can't be read: {problem.strerror or problem}; check the path and its permissions.") from None
    except ValueError as problem:  # an embedded null byte
        raise error(f"{name} is no usable path: {problem}.") from None
    if data.startswith(b"version https://git-lfs"):
        raise error(f"{name} is a Git LFS pointer ({len(data)} bytes), not {what}; fetch the real file with `git lfs pull`.")
    return data


def is_archive(path: Path) -> bool:
    """Whether it is a .pt by its first bytes: a zip archive, or a pickle as torch wrote before 1.6."""
    try:
        if not path.is_file():  # opening a pipe would wait for someone to write
            return False
        with path.open("rb") as file:
            return file.read(2).startswith((b"PK", b"\x80"))
    except (OSError, ValueError):
        return False  # whoever loads it says what is wrong


def is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False  # whoever opens it says what is wrong


def check_file(path: Path, force: bool, option: str) -> None:
    """OutputError if the file `path` can't be written, before any work is done. `option`: how the user named it."""
    shown = quoted(str(path))
    try:
        if path.is_dir():
            raise OutputError(f"{option} {shown} is a folder; name a file in it.")
        if path.exists() and not path.is_file():
            raise OutputError(f"{option} {shown} exists and is not a regular file; choose another.")
        if (path.exists() or path.is_symlink()) and not force:
            raise OutputError(f"{option} {shown} exists; choose another, or replace it with --force.")
        if not path.absolute().parent.is_dir():
            raise OutputError(f"{option} {shown} would be in a folder that does not exist; make it first.")
        if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
            raise OutputError(f"{option} {shown} can't be written, because nothing may be written to its folder; choose another.")
    except OSError as error:
        raise OutputError(f"{option} {shown} can't be used: {error.strerror or error}; choose another.") from None
    except (RuntimeError, ValueError) as error:  # symbolic links in a circle, an embedded null byte
        raise OutputError(f"{option} {shown} is no usable path ({one_line(str(error), 80)}); choose another.") from None


def write_file(path: Path, data: bytes, force: bool, option: str) -> None:
    """Writes `data` to a temporary file beside `path`, then moves it into place. OutputError if that can't be done."""
    temporary = path.with_name(f".graph2torch-{secrets.token_hex(4)}")
    with deferred() as stop_if_asked:
        try:
            check_file(path, force, option)
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            stop_if_asked()
            temporary.replace(path)
        except OSError as error:
            raise OutputError(
                f"{option} {quoted(str(path))} can't be written: {error.strerror or error}. Nothing of it was written; make room or choose another."
            ) from None
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


class _StoppedError(BaseException):
    """A signal came while files were written. Not an Exception, so that nothing on the way takes it for one."""


@contextmanager
def deferred() -> Iterator[Callable[[], None]]:
    """Ctrl-C and SIGTERM wait until the function that this gives is called, so that no folder is left between two renames.

    The signal is sent again once everything is tidied up. One that comes too late to stop the writing has no effect.
    """
    came: list[int] = []
    before: dict[signal.Signals, Any] = {}

    def stop_if_asked() -> None:
        if came:
            raise _StoppedError

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, lambda n, _: came.append(n))
    stopped = False
    try:
        yield stop_if_asked
    except _StoppedError:
        stopped = True
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if stopped:
        signal.raise_signal(came[0])
        raise KeyboardInterrupt
