"""model.py in colours: its lines as pieces of one kind each."""

from __future__ import annotations

import keyword
import re
from typing import TypeAlias

from graph2torch.text import printable

Line: TypeAlias = (
    "tuple[tuple[str, str], ...]"  # (kind, text): "k" keyword, "s" string, "c" comment, "n" number, "d" a definition's name, "" else
)

WIDE = 400  # characters of a line that are shown
MOST = 20_000  # lines
LONG = 2**22  # characters
TOKENS = re.compile(
    r"""(?P<line>\n)
    |(?P<c>\#[^\n]*)
    |(?P<s>(?:\b[bBfFrRuU]{1,2})?(?:
        \"\"\"(?:[^\\]|\\[\s\S])*?(?:\"\"\"|\\?\Z) | \'\'\'(?:[^\\]|\\[\s\S])*?(?:\'\'\'|\\?\Z)
        | "(?:[^"\\\n]|\\.)*\\?(?:"|(?=\n)|\Z) | '(?:[^'\\\n]|\\.)*\\?(?:'|(?=\n)|\Z)  # to the end of the line, if it has no end
    ))
    |(?P<d>(?<=\bdef\ )\w+|(?<=\bclass\ )\w+)
    |(?P<k>\b(?:"""
    + "|".join(keyword.kwlist)
    + r""")\b)
    |(?P<n>\b\d[\w.]*)""",
    re.VERBOSE,
)


def highlighted(source: str) -> tuple[Line, ...]:
    """The lines of `source`, in pieces; control and direction characters as escapes."""
    source = source[:LONG]
    kinds: list[list[tuple[int, int, str]]] = [[]]
    line = start = 0  # start: of the line
    for found in TOKENS.finditer(source):
        kind = found.lastgroup or ""
        if kind == "line":
            kinds.append([])
            line, start = line + 1, found.end()
            continue
        at = found.start()
        for n, text in enumerate(found.group().split("\n")):  # a long string is a piece in each of its lines
            if n:
                kinds.append([])
                line, start = line + 1, at
            kinds[line].append((at - start, at - start + len(text), kind))
            at += len(text) + 1
    lines = source.split("\n")
    if not lines[-1]:
        lines.pop()
    return tuple(_pieces(text, found) for text, found in zip(lines[:MOST], kinds, strict=False))


def shifted(line: Line, indent: int) -> Line:
    """The line without its first `indent` characters, which are spaces."""
    if not line or not indent:
        return line
    (kind, text), *rest = line
    return ((kind, text[indent:]), *rest) if text[:indent].isspace() else line


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
