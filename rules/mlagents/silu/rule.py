"""SiLU: x · sigmoid(x), ML-Agents' activation ("Swish" in its code), torch's nn.SiLU."""

from dataclasses import replace

from graph2torch.match import Match
from graph2torch.spec import Block, Module, Place, block_of

PATTERNS = "SiLU (x) => (y) { s = Sigmoid (x)  y = Mul (x, s) }"

EXAMPLE = (
    "silu (float[batch, n] x) => (float[batch, n] y) { s = Sigmoid (x) y = Mul (x, s) }",
    "commuted (float[batch, n] x) => (float[batch, n] y) { s = Sigmoid (x) y = Mul (s, x) }",
)
NEAR_MISS = (
    "gate (float[batch, n] x, float[batch, n] z) => (float[batch, n] y) { s = Sigmoid (z) y = Mul (x, s) }",
    "kept (float[batch, n] x) => (float[batch, n] y, float[batch, n] s) { s = Sigmoid (x) y = Mul (x, s) }",
)


def lift(match: Match) -> Block:
    return block_of(match, Module("nn.SiLU"))


def describe(block: Block, place: Place) -> Block:
    if "residual_block" in place.makers:
        role = f"encoder of {place.source or 'the observations'}: activation"
        return replace(block, name=f"silu_{place.number + 1}", sequence=f"resnet{place.suffix}", role=role)
    if "entity_embedding" in place.readers:
        role = "activation of the agent's own encoding, for the entities"
        return replace(block, name=f"silu_{place.number + 1}", label="x_self", sequence="x_self_encoder", role=role)
    if "entity_embedding" in place.makers:
        name = f"entity_embedding{place.suffix}"
        return replace(
            block, name=f"silu_{place.number + 1}", sequence=name, role=f"activation of the entities of {place.source or 'a buffer'}"
        )
    return replace(block, name=f"silu_{place.number + 1}", sequence="body", role="activation of hidden layer {number}")
