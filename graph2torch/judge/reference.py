"""The original in onnxruntime, its random operators pinned: what torch is held against, case by case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx

from graph2torch.spec import PolicySpec

from .observations import Case
from .randomness import Drawn, Randomness, choices_of, needed_draws, pin
from .runtime import session

if TYPE_CHECKING:
    from graph2torch.graph import Array


@dataclass(frozen=True)
class Answer:
    """outputs: of the original, in its order; noise: what was drawn; by_value: the module's noise, by the graph's names."""

    outputs: list[Array]
    noise: Drawn
    by_value: Mapping[str, Array]


class Reference:
    """choices: output → what its options are chosen from; see `randomness.choices_of`. Raises ModelError if onnxruntime refuses it."""

    def __init__(self, original: onnx.ModelProto, spec: PolicySpec, seed: int) -> None:
        self.seed, self.draws, self.choices = seed, needed_draws(original), choices_of(spec.graph)
        self.noises = Randomness(original, self.draws, [], self.choices)
        self.judge = session(pin(original, self.draws), True, "the original")

    def answer(self, case: Case) -> Answer | None:
        """What the original gives for a case, on noise that only the seed and the case's label decide; None if it can't do it."""
        noise = self.noises.draw(case.feed, np.random.default_rng([self.seed, *case.label.encode()]))
        if noise is None:
            return None
        try:
            outputs = self.judge.run(None, {**case.feed, **dict(zip(self.draws, noise.drawn, strict=True))})
        except Exception:  # onnxruntime has no common class for what it can't run: another number of rows, say
            return None
        return Answer(outputs, noise, dict(zip(self.draws, noise.noise, strict=True)))
