"""model.py in colours: its lines as pieces of one kind each."""

from __future__ import annotations

import io
import keyword
import tokenize
from typing import TypeAlias

from graph2torch.text import printable

Line: TypeAlias = (
    "tuple[tuple[str, str], ...]"  # (kind, text): "k" keyword, "s" string, "c" comment, "n" number, "d" a definition's name, "" else
)

WIDE = 400  # characters of a line that are shown
MOST = 20_000  # lines


def highlighted(source: str) -> tuple[Line, ...]:
    """The lines of `source`, in pieces. What is no Python is shown without colours; control and direction characters as escapes."""
    lines = source.split("\n")[:MOST]
    if lines and not lines[-1]:
        lines.pop()
    kinds: list[list[tuple[int, int, str]]] = [[] for _ in lines]
    before = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            kind = _kind(token, before)
            before = token.string if token.type == tokenize.NAME else ""
            if not kind:
                continue
            (first, start), (last, end) = token.start, token.end
            for row in range(first, min(last, len(lines)) + 1):
                kinds[row - 1].append((start if row == first else 0, end if row == last else len(lines[row - 1]), kind))
    except (tokenize.TokenError, SyntaxError, IndexError):
        kinds = [[] for _ in lines]
    return tuple(_pieces(line, found) for line, found in zip(lines, kinds, strict=True))


def shifted(line: Line, indent: int) -> Line:
    """The line without its first `indent` characters, which are spaces."""
    if not line or not indent:
        return line
    (kind, text), *rest = line
    return ((kind, text[indent:]), *rest) if text[:indent].isspace() else line


def _kind(token: tokenize.TokenInfo, before: str) -> str:
    if token.type == tokenize.NAME:
        return "d" if before in ("def", "class") else "k" if keyword.iskeyword(token.string) else ""
    return {tokenize.STRING: "s", tokenize.COMMENT: "c", tokenize.NUMBER: "n"}.get(token.type, "")


def _pieces(line: str, kinds: list[tuple[int, int, str]]) -> Line:
    found, at = [], 0
    for start, end, kind in kinds:
        if start > at:
            found.append(("", line[at:start]))
        found.append((kind, line[start:end]))
        at = max(at, end)
    found.append(("", line[at:]))
    room, pieces = WIDE, []
    for kind, text in found:
        if text and room > 0:
            pieces.append((kind, printable(text, max(room, 8))))
            room -= len(text)
    return tuple(pieces)
