"""Convolution of a visual encoder, torch's nn.Conv2d.

ML-Agents' simple, nature_cnn and match3 encoders follow each with LeakyReLU (`conv_layers`), the resnet one with a
MaxPool (`sequential`); they differ in kernels and strides alone.
"""

from dataclasses import replace

import numpy as np

from graph2torch.match import Match, Refusal
from graph2torch.spec import Block, Module, Parameter, Place, block_of

PATTERNS = """Convolution <kernel, strides, pads, dilations> (x, weight, bias) => (y) {
    y = Conv <kernel_shape: ints = @kernel, strides: ints = @strides, pads: ints = @pads, dilations: ints = @dilations> (x, weight, bias)
}"""
CONSTANTS = ("weight", "bias")

EXAMPLE = (
    """simple (float[batch, c, 12, 13] x, float[m, c, 8, 8] weight, float[m] bias) => (float[batch, m, h, w] y) {
        y = Conv <kernel_shape = [8, 8], strides = [4, 4], pads = [0, 0, 0, 0], dilations = [1, 1]> (x, weight, bias) }""",
    """padded (float[batch, c, 5, 6] x, float[m, c, 3, 2] weight, float[m] bias) => (float[batch, m, h, w] y) {
        y = Conv <kernel_shape = [3, 2], strides = [1, 2], pads = [1, 0, 1, 0], dilations = [1, 1]> (x, weight, bias) }""",
    """dilated (float[batch, c, 7, 7] x, float[m, c, 3, 3] weight, float[m] bias) => (float[batch, m, h, w] y) {
        y = Conv <kernel_shape = [3, 3], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [2, 2]> (x, weight, bias) }""",
)
NEAR_MISS = (
    """lopsided (float[batch, c, 5, 6] x, float[m, c, 3, 3] weight, float[m] bias) => (float[batch, m, h, w] y) {
        y = Conv <kernel_shape = [3, 3], strides = [1, 1], pads = [0, 0, 1, 1], dilations = [1, 1]> (x, weight, bias) }""",
    """same (float[batch, c, 5, 6] x, float[m, c, 3, 3] weight, float[m] bias) => (float[batch, m, h, w] y) {
        y = Conv <auto_pad = "SAME_UPPER", kernel_shape = [3, 3]> (x, weight, bias) }""",
    """grouped (float[batch, 4, 5, 6] x, float[4, 2, 3, 3] weight, float[4] bias) => (float[batch, 4, h, w] y) {
        y = Conv <group = 2, kernel_shape = [3, 3]> (x, weight, bias) }""",
    """doubles (double[batch, c, 5, 6] x, double[m, c, 3, 3] weight, double[m] bias) => (double[batch, m, h, w] y) {
        y = Conv <kernel_shape = [3, 3]> (x, weight, bias) }""",
    """smaller (float[batch, c, 5, 6] x, float[m, c, 3, 3] weight, float[m] bias) => (float[batch, m, h, w] y) {
        y = Conv <kernel_shape = [2, 2]> (x, weight, bias) }""",
    """stride (float[batch, c, 5, 6] x, float[m, c, 3, 3] weight, float[m] bias) => (float[batch, m, h, w] y) {
        y = Conv <kernel_shape = [3, 3], strides = [2]> (x, weight, bias) }""",
    """line (float[batch, c, 5] x, float[m, c, 3] weight, float[m] bias) => (float[batch, m, h] y) {
        y = Conv <kernel_shape = [3]> (x, weight, bias) }""",
)


def check(match: Match) -> Refusal | None:
    weight, bias, node = match.constant("weight"), match.constant("bias"), match.nodes[0]
    if weight.ndim != 4 or bias.shape != weight.shape[:1]:
        return Refusal(f"its weight has shape {list(weight.shape)}, its bias {list(bias.shape)}: no convolution of images", node)
    if weight.dtype != np.float32 or bias.dtype != np.float32:
        return Refusal(f"its weights are {weight.dtype}, not float32", node)
    if _numbers(match, "kernel", weight.shape[2:]) != weight.shape[2:]:
        return Refusal(f"its kernel_shape is {match.attributes['kernel']}, its weight's {weight.shape[2:]}", node)
    strides, pads, dilations = (_numbers(match, name, default) for name, default in DEFAULTS.items())
    if len(strides) != 2 or len(dilations) != 2 or len(pads) != 4 or min(strides + dilations) < 1 or min(pads) < 0:
        return Refusal(f"its strides {strides}, pads {pads} and dilations {dilations} are not those of an image", node)
    if pads[:2] != pads[2:]:
        return Refusal(f"it pads by {pads}, more on one side", node)
    return None


DEFAULTS = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}


def lift(match: Match) -> Block:
    outputs, inputs, *kernel = match.constant("weight").shape
    strides, pads, dilations = (_numbers(match, name, default) for name, default in DEFAULTS.items())
    options = {"stride": (strides, 1), "padding": (pads[:2], 0), "dilation": (dilations, 1)}
    keywords = [("kernel_size", _size(tuple(kernel)))]
    keywords += [(name, _size(sizes)) for name, (sizes, usual) in options.items() if sizes != (usual, usual)]
    parameters = tuple(Parameter(name, match.values[name], key=name) for name in CONSTANTS)
    return block_of(match, Module("nn.Conv2d", (inputs, outputs), tuple(keywords)), parameters)


def _numbers(match: Match, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    given = match.attributes.get(name)
    return given if isinstance(given, tuple) else default  # type: ignore[return-value]


def _size(sizes: tuple[int, ...]) -> int | tuple[int, ...]:
    return sizes[0] if sizes[0] == sizes[1] else sizes


def describe(block: Block, place: Place) -> Block:
    ours, theirs = ("resnet", "sequential") if "max_pool" in place.readers else ("conv_layers", "conv_layers")
    prefixes = tuple(
        f"network_body.{kind}processors.{place.observation}.{theirs}.{{n}}" for kind in ("observation_encoder.", "", "visual_")
    )
    role = f"encoder of {place.source or 'the observations'}: convolution {{number}}"
    return replace(block, name=f"convolution_{place.number + 1}", sequence=ours + place.suffix, role=role, prefixes=prefixes)
