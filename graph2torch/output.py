"""The folder that a build writes: which files, whether it may be written, and whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import OutputError
from .text import one_line, quoted

MADE = ("model.py", "weights.safetensors", "rebuilt.onnx", "lifted.onnx")  # whose sha256 the report holds
FILES = (*MADE, "report.json", "report.html")


def check_output(target: Path, force: bool) -> None:
    """OutputError if `target` can't become the output folder, before any work is done."""
    shown = quoted(str(target))
    try:
        os.fsencode(target.absolute()).decode("utf-8")  # safetensors opens no others
        if target.is_symlink() or (target.exists() and not target.is_dir()):
            raise OutputError(f"The output {shown} exists and is not a folder; choose another with -o.")
        if str(target) in ("", ".", "..") or target.resolve() == Path.cwd():
            raise OutputError(f"The output {shown} is the current folder or the one above; name one of its own with -o.")
        inside = sorted(target.iterdir()) if target.is_dir() else []
        if inside and not force:
            raise OutputError(f"The output folder {shown} exists and is not empty; choose another with -o, or replace it with --force.")
        for path in inside:
            if path.name not in (*FILES, "__pycache__") or (path.is_dir() and not path.is_symlink()) != (path.name == "__pycache__"):
                raise OutputError(
                    f"The output folder {shown} holds {quoted(path.name)}, which graph2torch didn't write, so --force does not replace it; "
                    f"choose another with -o."
                )
        if inside and not (target / "report.json").is_file():
            raise OutputError(
                f"The output folder {shown} holds {quoted(inside[0].name)}, but no report.json, so graph2torch didn't write it and --force "
                f"does not replace it; choose another with -o."
            )
        above = next(p for p in target.absolute().parents if p.exists())
        if not above.is_dir():
            raise OutputError(
                f"The output folder {shown} can't be made, because {quoted(str(above))} is not a folder; choose another with -o."
            )
        if not os.access(above, os.W_OK | os.X_OK):
            raise OutputError(
                f"The output folder {shown} can't be made, because nothing may be written to {quoted(str(above))}; choose another with -o."
            )
    except UnicodeDecodeError:
        raise OutputError(f"The output {shown} has a name that is not text (UTF-8); choose another with -o.") from None
    except OSError as error:
        raise OutputError(f"The output {shown} can't be used: {error.strerror or error}; choose another with -o.") from None
    except (RuntimeError, ValueError) as error:  # symbolic links in a circle, an embedded null byte
        raise OutputError(f"The output {shown} is no usable path ({one_line(str(error), 80)}); choose another with -o.") from None


@contextmanager
def staged(target: Path, force: bool, stop_if_asked: Callable[[], None] = lambda: None) -> Iterator[Path]:
    """A temporary folder that becomes `target` if all goes well; if not, it and the folders above that it needed disappear."""
    token = secrets.token_hex(4)
    temporary, old = (target.parent / f".graph2torch-{token}{end}" for end in ("", "-old"))
    missing = [p for p in (target.parent, *target.parent.parents) if not _exists(p)]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        stop_if_asked()
        check_output(target, force)
        if target.is_dir():
            target.rename(old)
        temporary.rename(target)
    except OSError as error:
        raise OutputError(
            f"The output folder {quoted(str(target))} can't be written: {error.strerror or error}. Nothing was written; make room or "
            f"choose another with -o."
        ) from None
    finally:
        if _exists(old) and not _exists(target):
            old.rename(target)
        for leftover in (temporary, old):
            shutil.rmtree(leftover, ignore_errors=True)
        if not _exists(target):
            for folder in missing:
                with suppress(OSError):  # somebody else put something there
                    folder.rmdir()


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the name is too long
        return False
