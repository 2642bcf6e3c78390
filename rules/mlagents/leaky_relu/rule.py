"""LeakyReLU with a slope of 0.01, the activation of ML-Agents' visual encoders, torch's nn.LeakyReLU."""

from dataclasses import replace

from graph2torch.match import Match
from graph2torch.spec import Block, Module, Place, block_of

PATTERNS = "LeakyReLU (x) => (y) { y = LeakyRelu (x) }"

EXAMPLE = (
    "vector (float[batch, n] x) => (float[batch, n] y) { y = LeakyRelu <alpha = 0.01> (x) }",
    "image (float[batch, c, h, w] x) => (float[batch, c, h, w] y) { y = LeakyRelu (x) }",
)
NEAR_MISS = ("steep (float[batch, n] x) => (float[batch, n] y) { y = LeakyRelu <alpha = 0.2> (x) }",)


def lift(match: Match) -> Block:
    return block_of(match, Module("nn.LeakyReLU"))


def describe(block: Block, place: Place) -> Block:
    if "linear" in place.makers and "flatten" not in place.before:
        return replace(block, name=f"leaky_relu_{place.number + 1}", sequence="body", role="activation of hidden layer {number}")
    sequence, what = ("dense", "dense layer") if "linear" in place.makers else ("conv_layers", "convolution {number}")
    role = f"encoder of {place.source or 'the observations'}: activation of {what}"
    return replace(block, name=f"leaky_relu_{place.number + 1}", sequence=sequence + place.suffix, role=role)
