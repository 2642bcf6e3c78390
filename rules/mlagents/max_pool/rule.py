"""Largest value of each window, torch's nn.MaxPool2d: 3 wide in steps of 2 in ML-Agents' resnet encoder."""

from dataclasses import replace

from graph2torch.match import Match, Refusal
from graph2torch.spec import Block, Module, Place, block_of

PATTERNS = """MaxPool <kernel, strides, pads> (x) => (y) {
    y = MaxPool <kernel_shape: ints = @kernel, strides: ints = @strides, pads: ints = @pads> (x)
}"""

EXAMPLE = (
    """three (float[batch, c, 7, 8] x) => (float[batch, c, h, w] y) {
        y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [0, 0, 0, 0]> (x) }""",
    """wide (float[batch, c, 7, 8] x) => (float[batch, c, h, w] y) {
        y = MaxPool <kernel_shape = [2, 3], strides = [1, 2], pads = [0, 0, 0, 0]> (x) }""",
    "plain (float[batch, c, 7, 8] x) => (float[batch, c, h, w] y) { y = MaxPool <kernel_shape = [2, 2]> (x) }",
)
NEAR_MISS = (
    """padded (float[batch, c, 7, 8] x) => (float[batch, c, h, w] y) {
        y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x) }""",
    """average (float[batch, c, 7, 8] x) => (float[batch, c, h, w] y) {
        y = AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [0, 0, 0, 0]> (x) }""",
    """line (float[batch, c, 7] x) => (float[batch, c, h] y) { y = MaxPool <kernel_shape = [3], strides = [2]> (x) }""",
)


def check(match: Match) -> Refusal | None:
    kernel, strides, pads = match.attributes["kernel"], match.attributes.get("strides", (1, 1)), match.attributes.get("pads", (0, 0, 0, 0))
    for sizes in (kernel, strides):
        if not (isinstance(sizes, tuple) and len(sizes) == 2 and all(isinstance(n, int) and n > 0 for n in sizes)):
            return Refusal(f"its kernel {kernel} and strides {strides} are not those of an image", match.nodes[0])
    if pads != (0, 0, 0, 0):
        return Refusal(f"it pads by {pads}", match.nodes[0])
    return None


def lift(match: Match) -> Block:
    kernel, stride = (_size(match.attributes.get(name, (1, 1))) for name in ("kernel", "strides"))
    return block_of(match, Module("nn.MaxPool2d", (kernel,), (("stride", stride),)))


def _size(sizes: object) -> int | tuple[int, ...]:
    assert isinstance(sizes, tuple)
    return sizes[0] if sizes[0] == sizes[1] else sizes


def describe(block: Block, place: Place) -> Block:
    role = f"encoder of {place.source or 'the observations'}: pooling {{number}}"
    return replace(block, name=f"max_pool_{place.number + 1}", sequence=f"resnet{place.suffix}", role=role)
