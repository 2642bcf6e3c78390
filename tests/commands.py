"""Runs the command line inside the test's process, and holds what it prints against the rules for every message."""

from __future__ import annotations

import contextlib
import io
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import cli


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str


def run(*arguments: object) -> Result:
    """`graph2torch ARGUMENTS`: its exit status and what it printed. Any exception that gets out is the test's failure."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    status = None
    cli.Settings.debug = False
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.app([str(a) for a in arguments])
        except SystemExit as stop:
            status = stop.code
    assert isinstance(status, int)
    texts = []
    for stream in (out, err):
        stream.flush()
        assert isinstance(stream.buffer, io.BytesIO)
        texts.append(stream.buffer.getvalue().decode("utf-8"))
    return Result(status, *texts)


def unsafe(text: str) -> list[str]:
    """Characters that would act on a terminal, or that turn the direction of what follows."""
    return [c for c in text if c != "\n" and unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}]


def check_trouble(result: Result, *words: str, status: int = 2) -> None:
    """One paragraph on stderr that says what, where and what to do; nothing on stdout; nothing that acts on a terminal."""
    assert result.status == status, result
    assert not result.out
    assert result.err.startswith("graph2torch: ")
    assert result.err.endswith("\n") and result.err.count("\n") == 1, result.err
    assert len(result.err) < 1500, result.err
    assert not unsafe(result.err)
    assert "should not happen" not in result.err and "Traceback" not in result.err, result.err
    for word in words:
        assert word in result.err, (word, result.err)


def left_over(folder: Path) -> list[str]:
    """Names in `folder`, hidden ones too: temporary folders start with a dot."""
    return sorted(p.name for p in folder.iterdir())
