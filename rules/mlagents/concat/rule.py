"""Several observations side by side: what ML-Agents' ObservationEncoder gives to the network's body."""

from dataclasses import replace

from graph2torch.match import Match
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = "Concatenate <axis> (parts) => (y) { y = Concat <axis: int = @axis> (parts) }"
VARIADIC = "parts"

EXAMPLE = (
    "two (float[batch, n] a, float[batch, m] b) => (float[batch, k] y) { y = Concat <axis = 1> (a, b) }",
    "three (float[batch, n] a, float[batch, m] b) => (float[batch, k] y) { y = Concat <axis = 1> (b, a, b) }",
)
NEAR_MISS = ("sum (float[batch, n] a, float[batch, n] b) => (float[batch, n] y) { y = Add (a, b) }",)


def lift(match: Match) -> Block:
    return block_of(match, Expression(f"torch.cat([*parts], dim={match.attributes['axis']})", starred="parts"))


ACTIONS = frozenset({"draw_action", "best_action", "log_probability"})


def describe(block: Block, place: Place) -> Block:
    if place.makers & ACTIONS:
        what = (
            "sampled actions"
            if "draw_action" in place.makers
            else "likeliest options"
            if "best_action" in place.makers
            else "log-probabilities"
        )
        return replace(block, label=place.outputs[0] if place.outputs else "", role=f"head: {what} of all branches")
    return replace(block, role="observations side by side")
