"""Names that come from a file, made safe to show and to write: escaped, shortened, turned into identifiers."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Container

_SHOWN = 120
_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # control, format (right-to-left marks), surrogates, separators

# What the emitted source calls its own things, which an argument of that name would hide.
_SOURCE = """
CHECKPOINT F METADATA Noise OUTPUT_NAMES Outputs Path Policy Tensor functional load load_file math namedtuple nn self torch
"""
RESERVED = frozenset(name for name in dir(builtins) if not name.startswith("_")) | frozenset(_SOURCE.split())

# Attributes of every torch.nn.Module (2.1 to 2.13), of the emitted class and of named tuples; no output may be called so.
_MEMBERS = """
T_destination act add_module apply bfloat16 buffers call_super_init children compile count cpu cuda distribution double
dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half index ipu
load_state_dict modules mtia named_buffers named_children named_modules named_parameters parameters
register_backward_hook register_buffer register_forward_hook register_forward_pre_hook register_full_backward_hook
register_full_backward_pre_hook register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module
register_parameter register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state
set_submodule share_memory state_dict to to_empty train training type xpu zero_grad
"""
MEMBERS = frozenset(_MEMBERS.split())


def printable(name: str, limit: int = _SHOWN) -> str:
    """`name` on one line, without control or direction characters (shown as escapes), at most `limit` characters."""
    shown = name if len(name) <= limit else f"{name[: limit // 2]}…{name[-(limit // 2 - 1) :]}"
    if shown.isascii() and shown.isprintable():  # nearly always, and much faster
        return shown
    return "".join(_escape(c) if unicodedata.category(c) in _UNSAFE else c for c in shown)


def quoted(name: str) -> str:
    """`name` as `printable` shows it, in single quotes."""
    return f"'{printable(name)}'"


def one_line(message: str, limit: int = 300) -> str:
    """The text of somebody else's error, on one line and shortened."""
    return printable(" ".join(message[: 20 * limit].split()), limit)


def counted(count: int, what: str) -> str:
    """`1 number`, `1,234 numbers`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def docstring(text: str) -> str:
    """`text` as it may stand between triple quotes, on lines of its own: what it says when run is `text` again.

    No escape and no quote of it is left active, and control and direction characters are escaped, so that an editor
    shows what Python reads.
    """
    quiet = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return "".join(_escape(c) if c != "\n" and unicodedata.category(c) in _UNSAFE else c for c in quiet)


def literal(text: str) -> str:
    """`text` as a Python string in double quotes, in ASCII."""
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if " " <= c <= "~" else _escape(c) for c in inner) + '"'


def identifier(name: str, taken: Container[str] = (), fallback: str = "value") -> str:
    """A Python identifier like `name` (`my-output.1` → `my_output_1`) that is not in `taken` and hides nothing of the source's."""
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    word = re.sub(r"\W+", "_", ascii_name).strip("_")[:60]
    if not word:
        word = fallback
    if word[0].isdigit():
        word = f"{fallback}_{word}"
    if keyword.iskeyword(word) or keyword.issoftkeyword(word) or word in RESERVED:
        word += "_"
    return word if word not in taken else f"{word}_{_free_number(word, taken)}"


def file_name(name: str, fallback: str, limit: int = 100) -> str:
    """A name like `name` that a file or folder may have on any system: no separators, control characters or dots at its ends."""
    safe = "".join("_" if c in '/\\:*?"<>|' or unicodedata.category(c) in _UNSAFE else c for c in name[:limit])
    return safe.strip(" .") or fallback


def _free_number(word: str, taken: Container[str]) -> int:
    """The first number from 2 on that makes `word` unique; among more than 16 one after a number that is taken, found in few steps."""
    for number in range(2, 17):
        if f"{word}_{number}" not in taken:
            return number
    low, high = 16, 32
    while f"{word}_{high}" in taken:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if f"{word}_{middle}" in taken else (low, middle)
    return high


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode() if not 0xD800 <= ord(character) <= 0xDFFF else f"\\u{ord(character):04x}"
