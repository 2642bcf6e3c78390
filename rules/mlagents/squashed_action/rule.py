"""Continuous action of SAC as the environment gets it: tanh(x), so within ±1."""

from dataclasses import replace

from graph2torch.match import Match, Refusal
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = "SquashedAction (x) => (y) { y = Tanh (x) }"

EXAMPLE = "squashed (float[batch, n] x) => (float[batch, n] y) { y = Tanh (x) }"
NEAR_MISS = (
    "sigmoid (float[batch, n] x) => (float[batch, n] y) { y = Sigmoid (x) }",
    "inner (float[batch, n] x) => (float[batch, n] y) { t = Tanh (x) y = Mul (t, x) }",
)


def check(match: Match) -> Refusal | None:
    action = match.values["y"]
    return (
        None
        if action in match.graph.results and action not in match.graph.readers
        else Refusal("it is no action: something else reads it", match.nodes[0])
    )


def lift(match: Match) -> Block:
    return block_of(match, Expression("torch.tanh(x)"))


def describe(block: Block, place: Place) -> Block:
    drawn = "gaussian_sample" in place.makers
    return replace(block, label="sampled" if drawn else "", role=f"head: {'sampled' if drawn else 'deterministic'} actions within ±1")
