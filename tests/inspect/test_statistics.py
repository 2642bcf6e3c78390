"""How far other formulas of the normaliser are off."""

from __future__ import annotations

import numpy as np
import pytest

from graph2torch.inspect.statistics import GRID, formula_errors


def test_the_naive_formulas_are_off_by_what_they_must_be() -> None:
    steps = 1024
    mean, std = np.asarray([2.0, 0.0], np.float32), np.asarray([0.5, 8.0], np.float32)
    variance = (std.astype(np.float64) ** 2 * steps).astype(np.float32)
    errors = {f["name"]: f for f in formula_errors(mean, std, variance, steps)}
    right, naive, half = errors["right"], errors["naive"], errors["float16 statistics"]
    assert (right["std"], right["before_clip"], right["after_clip"], right["of"]) == (0, 0, 0, 2 * len(GRID))
    assert naive["std"] == 8 * 32 - 8
    assert naive["before_clip"] == pytest.approx(6 * (1 - 1 / 32))  # at k = ±6
    assert naive["after_clip"] == pytest.approx(5 * (1 - 1 / 32))  # at k = ±5: beyond, the clip helps
    assert errors["naive, with eps"]["std"] == pytest.approx(naive["std"])
    assert errors["divided, with eps"]["std"] == pytest.approx(1e-5, rel=0.05)  # 1e-5 / (2 · 0.5)
    assert (half["overflowed"], half["not_finite"], half["after_clip"]) == (1, 0, 5)  # 8² · 1024 is infinite, so all of that column is 0


def test_float16_statistics_overflow_to_nothing() -> None:
    mean, std = np.asarray([1.0], np.float32), np.asarray([0.5], np.float32)
    half = formula_errors(mean, std, std**2 * np.float32(2_000_050), 2_000_050)[-1]
    assert (half["overflowed"], half["not_finite"], half["of"], half["after_clip"]) == (2, len(GRID), len(GRID), None)
