"""Memory turned from [batch, 1, size], as the policy's caller keeps it, to [1, batch, size], as an LSTM takes it, or back."""

from dataclasses import replace

from graph2torch.match import Match
from graph2torch.spec import Block, Expression, Place, block_of

PATTERNS = "TurnedMemory (memory) => (turned) { turned = Transpose <perm = [1, 0, 2]> (memory) }"

EXAMPLE = "turned (float[batch, 1, n] memory) => (float[1, batch, n] turned) { turned = Transpose <perm = [1, 0, 2]> (memory) }"
NEAR_MISS = "inner (float[batch, m, n] memory) => (float[batch, n, m] turned) { turned = Transpose <perm = [0, 2, 1]> (memory) }"


def lift(match: Match) -> Block:
    return block_of(match, Expression("memory.transpose(0, 1)"))


def describe(block: Block, place: Place) -> Block:
    return replace(block, role="memory, turned back" if "lstm" in place.makers else "memory, turned as the LSTM takes it")
