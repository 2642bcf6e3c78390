"""Names that come from a file, made safe to show and to write: escaped, shortened, turned into identifiers."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Container

_SHOWN = 120
_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # control, format (right-to-left marks), surrogates, separators


def printable(name: str, limit: int = _SHOWN) -> str:
    """`name` on one line, without control or direction characters (shown as escapes), at most `limit` characters."""
    shown = name if len(name) <= limit else f"{name[: limit // 2]}…{name[-(limit // 2 - 1) :]}"
    return "".join(_escape(c) if unicodedata.category(c) in _UNSAFE else c for c in shown)


def quoted(name: str) -> str:
    """`name` as `printable` shows it, in single quotes."""
    return f"'{printable(name)}'"


def one_line(message: str, limit: int = 300) -> str:
    """The text of somebody else's error, on one line and shortened."""
    return printable(" ".join(message.split()), limit)


def docstring(text: str) -> str:
    """`text` as it may stand between triple quotes: no escape and no quote of it is left active."""
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def identifier(name: str, taken: Container[str] = (), fallback: str = "value") -> str:
    """A Python identifier like `name` (`my-output.1` → `my_output_1`) that is not in `taken`."""
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    word = re.sub(r"\W+", "_", ascii_name).strip("_")[:60]
    if not word:
        word = fallback
    if word[0].isdigit():
        word = f"{fallback}_{word}"
    if keyword.iskeyword(word) or keyword.issoftkeyword(word):
        word += "_"
    unique, number = word, 1
    while unique in taken:
        number += 1
        unique = f"{word}_{number}"
    return unique


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode() if ord(character) < 0xD800 or ord(character) > 0xDFFF else f"\\u{ord(character):04x}"
