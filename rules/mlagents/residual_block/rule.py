"""Residual block of ML-Agents' resnet encoder (`ResNetBlock`): x + conv(silu(conv(silu(x)))), 3×3 convolutions."""

from dataclasses import replace

import numpy as np

from graph2torch.match import Match, Refusal
from graph2torch.spec import Block, Module, Parameter, Place, block_of

PATTERNS = """ResNetBlock (x, weight_1, bias_1, weight_2, bias_2) => (y) {
    s1 = Sigmoid (x)
    a1 = Mul (x, s1)
    c1 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a1, weight_1, bias_1)
    s2 = Sigmoid (c1)
    a2 = Mul (c1, s2)
    c2 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a2, weight_2, bias_2)
    y = Add (x, c2)
}"""
CONSTANTS = ("weight_1", "bias_1", "weight_2", "bias_2")
RANGES = dict.fromkeys(CONSTANTS, (-0.5, 0.5))

EXAMPLE = """block (float[batch, c, 5, 6] x, float[c, c, 3, 3] weight_1, float[c] bias_1, float[c, c, 3, 3] weight_2, float[c] bias_2) => (float[batch, c, 5, 6] y) {
    s1 = Sigmoid (x) a1 = Mul (x, s1)
    c1 = Conv <kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]> (a1, weight_1, bias_1)
    s2 = Sigmoid (c1) a2 = Mul (c1, s2)
    c2 = Conv <kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]> (a2, weight_2, bias_2)
    y = Add (c2, x) }"""
NEAR_MISS = (
    """other (float[batch, c, 5, 6] x, float[batch, c, 5, 6] z, float[c, c, 3, 3] weight_1, float[c] bias_1, float[c, c, 3, 3] weight_2, float[c] bias_2)
        => (float[batch, c, 5, 6] y) {
        s1 = Sigmoid (x) a1 = Mul (x, s1)
        c1 = Conv <kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]> (a1, weight_1, bias_1)
        s2 = Sigmoid (c1) a2 = Mul (c1, s2)
        c2 = Conv <kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]> (a2, weight_2, bias_2)
        y = Add (c2, z) }""",
    """narrow (float[batch, 4, 5, 6] x, float[2, 4, 3, 3] weight_1, float[2] bias_1, float[4, 2, 3, 3] weight_2, float[4] bias_2) => (float[batch, 4, 5, 6] y) {
        s1 = Sigmoid (x) a1 = Mul (x, s1)
        c1 = Conv <kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]> (a1, weight_1, bias_1)
        s2 = Sigmoid (c1) a2 = Mul (c1, s2)
        c2 = Conv <kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]> (a2, weight_2, bias_2)
        y = Add (c2, x) }""",
)


def check(match: Match) -> Refusal | None:
    channels = match.constant("bias_1").size
    for name in CONSTANTS:
        array, wanted = match.constant(name), (channels, channels, 3, 3) if name.startswith("weight") else (channels,)
        if array.shape != wanted or array.dtype != np.float32:
            return Refusal(f"{name} has shape {list(array.shape)} and type {array.dtype}, not {list(wanted)} in float32", match.nodes[-1])
    return None


def lift(match: Match) -> Block:
    keys = {"weight_1": "layers.1.weight", "bias_1": "layers.1.bias", "weight_2": "layers.3.weight", "bias_2": "layers.3.bias"}
    parameters = tuple(Parameter(key, match.values[name], key=key) for name, key in keys.items())
    return block_of(match, Module("ResNetBlock", (match.constant("bias_1").size,)), parameters)


def describe(block: Block, place: Place) -> Block:
    prefixes = tuple(
        f"network_body.{kind}processors.{place.observation}.sequential.{{n}}" for kind in ("observation_encoder.", "", "visual_")
    )
    role = f"encoder of {place.source or 'the observations'}: residual block {{number}}"
    return replace(block, name=f"residual_block_{place.number + 1}", sequence=f"resnet{place.suffix}", role=role, prefixes=prefixes)
