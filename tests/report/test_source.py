"""model.py in colours: every character stays, wherever the pieces are cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph2torch.report.source import highlighted, shifted

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.txt"))


def text(source: str) -> list[str]:
    return ["".join(piece for _, piece in line) for line in highlighted(source)]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.name)
def test_every_line_stays(path: Path) -> None:
    source = path.read_text("utf-8")
    assert text(source) == source.splitlines()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["'", '"', '"""', "'''", "\\", "\n", "#", "def ", "class", "f", "rb", "1", " ", "x", "é", "{"]), max_size=40)
)
def test_any_text(parts: list[str]) -> None:
    source = "".join(parts)
    lines = source.split("\n")
    assert text(source) == (lines if lines[-1] else lines[:-1])


def test_kinds() -> None:
    found = highlighted('def load(x=1):  # c\n    return """a\nb""" if x else None\n')
    assert found[0] == (("k", "def"), ("", " "), ("d", "load"), ("", "(x="), ("n", "1"), ("", "):  "), ("c", "# c"))
    assert found[1][-1] == ("s", '"""a') and found[2][0] == ("s", 'b"""') and ("k", "None") in found[2]


def test_control_and_direction_characters_are_escapes() -> None:
    assert text("x = '\u202e\x1b[31m'\r\n") == ["x = '\\u202e\\x1b[31m'\\r"]


@pytest.mark.parametrize("part", ['"', "'\\", '"""\\', "f'", "def ", '"a\\\n', "'''x\\", "rb", "#"])
def test_hostile_text_is_no_trap(part: str) -> None:
    """Patterns that look for an end from each of many beginnings would be at it for hours."""
    source = part * 100_000
    assert len(highlighted(source)) == min(len(source.splitlines()), 20_000)


def test_indentation() -> None:
    (line,) = highlighted("        x = 1")
    assert shifted(line, 8) == (("", "x = "), ("n", "1")) and shifted((), 8) == ()
