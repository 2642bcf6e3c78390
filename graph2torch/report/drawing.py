"""A graph of blocks as boxes and lines: how each is labelled, and where it goes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from .layout import Size, lay_out, neighbours

DRAWN = 400  # blocks; beyond, a drawing shows nothing, and lifted.onnx in Netron shows more
BOX = 212.0  # CSS pixels
LETTERS = 28  # of a box's line


class Box(NamedTuple):
    """A box of the drawing: a block, an input or an output. mark: how it is drawn, besides its kind; link: the id that it leads to."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    title: tuple[str, ...]
    sub: str
    label: str
    block: int | None = None
    mark: str = ""
    link: str = ""


class Drawing(NamedTuple):
    """keys: for each box with a block, the blocks that the arrow keys go to (up, down, left, right)."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    wires: tuple[str, ...]
    keys: tuple[tuple[int, tuple[int, int, int, int]], ...]


def brief(code: str, module: str) -> str:
    """`59 → 512` for a linear layer or a convolution, the class of another layer, the expression of what has no tensors."""
    sizes = re.fullmatch(r"nn\.(?:Linear|Conv2d|ConvTranspose2d)\((\d+), (\d+)\b.*\)", code)
    if sizes:
        return " → ".join(sizes.groups())
    return code.removeprefix("nn.").removesuffix("()") if module else code


def _wrapped(text: str, letters: int = LETTERS) -> tuple[str, ...]:
    """On one line or two, cut with an ellipsis."""
    if len(text) <= letters:
        return (text,)
    cut = text.rfind(" ", 0, letters + 1)
    name = max(text.rfind(c, 0, letters) for c in "_./") + 1  # a long name is cut behind one of these
    if cut > letters // 2:
        first, rest = text[:cut], text[cut + 1 :]
    else:
        first, rest = (text[:name], text[name:]) if name > letters // 2 else (text[:letters], text[letters:])
    return first, rest if len(rest) <= letters else rest[: letters - 1] + "…"


def box(kind: str, title: str, sub: str, block: int | None = None, mark: str = "", link: str = "") -> Box:
    """A box without a place yet; its link is that of its block, if no other is given."""
    lines = _wrapped(title)
    sub = sub if len(sub) <= LETTERS + 3 else sub[: LETTERS + 2] + "…"
    return Box(
        0,
        0,
        BOX,
        30.0 + 17 * len(lines) + (0 if sub else -14),
        kind,
        lines,
        sub,
        title,
        block,
        mark,
        link or ("" if block is None else f"block-{block}"),
    )


def placed(boxes: Sequence[Box], edges: Sequence[tuple[int, int]]) -> Drawing | None:
    """The boxes where they belong, and the lines between them; None if there are too many lines to see anything."""
    margin = 4.0
    layout = lay_out([Size(b.width, b.height) for b in boxes], edges)
    if layout is None:
        return None
    at = tuple(
        Box(round(p.x + margin, 1), round(p.y + margin, 1), b.width, b.height, b.kind, b.title, b.sub, b.label, b.block, b.mark, b.link)
        for b, p in zip(boxes, layout.places, strict=True)
    )
    keys = []
    for i, near in sorted(neighbours(layout, edges).items()):
        number = boxes[i].block
        if number is not None:
            to = [boxes[j].block for j in near]
            keys.append((number, tuple(number if n is None else n for n in to)))
    return Drawing(layout.width + 2 * margin, layout.height + 2 * margin, at, layout.wires, tuple(keys))  # type: ignore[arg-type]
