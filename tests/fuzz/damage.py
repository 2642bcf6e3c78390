"""Damage to bytes, and the numbers and texts that programs tend to stumble over."""

from __future__ import annotations

import random
from collections.abc import Sequence

INTEGERS = (0, 1, -1, 2, 3, 4, 7, 16, 17, 100, 255, 256, 2**16, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 3.0, 5.0, 1e-45, 3e38, -3e38, 0.1, float("nan"), float("inf"), float("-inf"))
CODE = '__import__("pathlib").Path("executed").touch()'
TEXTS = (
    *('"', "'", '"""', "'''", f'"""\n{CODE}\n"""', f'"); {CODE}; ("', f"'); {CODE}; ('", f"\n{CODE}\n", f"\r{CODE}\r", f"# {CODE}", CODE),
    *("{x}", "{0}", "{" + CODE + "}", "%s%n", "\\", "\\n", '\\"', "\\N{DIGIT ONE}", "\\x22", "$(touch executed)", "`touch executed`"),
    *("\x1b[31m", "\x1b]0;title\x07", "\x1bP", "\x1b[2J", "\r", "\n", "\t", "\0", "\x7f", "\x85", "\x9b31m", "\u202e", "\u2066", "\u2069"),
    *("\u200b", "\u200f", "\ufeff", "\u2028", "\u2029", "\ud7ff", "\ue000", "\ufffe", "\U000e0041", "\U0010ffff", "a\u0301" * 5),
    *("../../executed", "/etc/passwd", "..", ".", "C:\\x", "-o", "--force", "[bold red]x[/]", "[/]", "<script>", "&amp;", " ", "a b", ""),
    *("Möwe", "日本語", "😀", "ﬁ", "\u017f", "\u212a", "42", "0", "1e5", "a.b", "a_b", "a-b", "a/b", "_", "__", "²"),
    *("class", "None", "True", "match", "lambda", "__class__", "__init__", "__builtins__", "__import__", "_fields", "_asdict", "count"),
    *("self", "torch", "nn", "Tensor", "Path", "namedtuple", "load_file", "print", "str", "type", "super", "input", "float", "F", "math"),
    *("noise", "Noise", "Outputs", "Policy", "METADATA", "OUTPUT_NAMES", "CHECKPOINT", "load", "path", "device", "dtype", "weights"),
    *("mu", "sigma", "sampled", "log_sigma", "z", "body", "normalizer", "x", "name", "value", "state", "theirs", "layer", "obs_0"),
    *("forward", "act", "distribution", "training", "state_dict", "register_buffer", "eval", "to", "half", "T_destination"),
)


def text(rng: random.Random) -> str:
    """A hostile text: one of the known ones, several in a row, any characters at all, or a very long one."""
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(TEXTS)
    if kind < 0.8:
        return "".join(rng.choice(TEXTS) for _ in range(rng.randint(2, 4)))
    if kind < 0.97:
        return "".join(character(rng) for _ in range(rng.randint(1, 12)))
    return rng.choice(TEXTS) * rng.choice((100, 10_000))


def character(rng: random.Random) -> str:
    """Any character that UTF-8 has, most often of the lower planes."""
    code = rng.choice((rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0x10000), rng.randrange(0x110000)))
    return chr(code) if not 0xD800 <= code <= 0xDFFF else "?"


def integer(rng: random.Random) -> int:
    return rng.choice(INTEGERS) if rng.random() < 0.8 else rng.randint(-(2**63), 2**63 - 1)


def damaged(rng: random.Random, data: bytes, others: Sequence[bytes] = (), most: int = 4) -> bytes:
    """`data` with bits flipped, parts taken out, doubled, moved or from one of `others`, numbers replaced, or its end cut off."""
    out = bytearray(data)
    for _ in range(rng.randint(1, most)):
        place, length = rng.randrange(len(out) + 1), rng.choice((1, 2, 4, 8, 16, 64, 300))
        kind = rng.randrange(9)
        if kind == 0 and place < len(out):
            out[place] ^= 1 << rng.randrange(8)
        elif kind == 1 and place < len(out):
            out[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2 and rng.random() < 0.3:
            del out[place:]
        elif kind == 3:
            out[place:place] = out[(other := rng.randrange(len(out) + 1)) : other + length]
        elif kind == 4:
            del out[place : place + length]
        elif kind == 5:
            out[place : place + length] = out[(other := rng.randrange(len(out) + 1)) : other + length]
        elif kind == 6 and others:
            source = rng.choice(others)
            out[place : place + rng.choice((0, length))] = source[(other := rng.randrange(len(source) + 1)) : other + length]
        elif kind == 7:
            width = rng.choice((2, 4, 8))
            out[place : place + width] = (integer(rng) % 256**width).to_bytes(width, rng.choice(("little", "big")))
        elif kind == 8:
            out[place:place] = rng.randbytes(length)
    return bytes(out)
