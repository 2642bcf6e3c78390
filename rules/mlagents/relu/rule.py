"""ReLU, after the dense layer of ML-Agents' resnet encoder and throughout networks written by hand, torch's nn.ReLU."""

from dataclasses import replace

from graph2torch.match import Match
from graph2torch.spec import Block, Module, Place, block_of

PATTERNS = "ReLU (x) => (y) { y = Relu (x) }"

EXAMPLE = "relu (float[batch, n] x) => (float[batch, n] y) { y = Relu (x) }"
NEAR_MISS = "clip (float[batch, n] x) => (float[batch, n] y) { y = Clip <min = 0.0> (x) }"


def lift(match: Match) -> Block:
    return block_of(match, Module("nn.ReLU"))


def describe(block: Block, place: Place) -> Block:
    if "linear" in place.makers and "flatten" not in place.before:
        return replace(block, name=f"relu_{place.number + 1}", sequence="body", role="activation of hidden layer {number}")
    sequence, what = ("conv_layers", "convolution {number}") if "convolution" in place.makers else ("dense", "dense layer")
    role = f"encoder of {place.source or 'the observations'}: activation of {what}"
    return replace(block, name=f"relu_{place.number + 1}", sequence=sequence + place.suffix, role=role)
