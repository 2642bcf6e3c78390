"""Histograms, the normaliser's columns, errors on a logarithmic scale: numbers that are drawn are those that were given."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph2torch.report.charts import BINS, Measured, error_chart, exactly, histogram, shortly, statistics

NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=32)


def heights(path: str) -> list[float]:
    """Of each bin's bar, from the outline."""
    return [48 - float(y) for y in re.findall(r"V([-\d.]+)h", path)]


def test_a_histogram_counts() -> None:
    values = np.concatenate([np.zeros(30), np.full(10, 4.7), [48.0]]).astype(np.float32)
    found = histogram(values)
    assert found is not None and (found.low, found.high, found.size, found.zeros, found.odd) == (0, 48, 41, 30, 0)
    bars = heights(found.path)
    assert len(bars) == BINS
    assert bars[0] == 48 and bars[4] == pytest.approx(16, abs=0.1) and bars[-1] == pytest.approx(1.6, abs=0.1)
    assert sum(bar > 0 for bar in bars) == 3 and found.zero == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(NUMBERS, max_size=40), st.sampled_from(["f4", "f8", "f2", "i8", "u1", "?"]))
def test_any_tensor(numbers: list[float], dtype: str) -> None:
    with np.errstate(all="ignore"):
        values = np.asarray(numbers, dtype=np.float32).astype(dtype)
        found = histogram(values)
    finite = values[np.isfinite(values)]
    if found is None:
        assert not finite.size
        return
    assert found.odd == values.size - finite.size and found.low == finite.min() and found.high == finite.max()
    assert len(heights(found.path)) == BINS and "nan" not in found.path and "inf" not in found.path


def test_constant_columns_are_crosses_and_have_no_bar() -> None:
    mean, std = np.asarray([0.0, 2.0, -3.0]), np.asarray([1.0, 0.001, 2.0])
    found = statistics(mean, std, [1])
    assert found.bands.count("M") == 2 and found.constant.count("M") == 1 and found.means.count("M") == 2
    assert found.never == (1,) and found.columns[2] == (-3.0, 2.0) and found.linear
    x, top, bottom = map(float, re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)", found.bands)[1])
    assert x == pytest.approx(800) and top < bottom
    ticks = {t.label: t.at for t in found.ticks}
    assert ticks["0"] == pytest.approx(top + (bottom - top) * 7 / 20, abs=0.2)  # from 7 down to −13


def test_a_scale_for_columns_of_other_magnitudes() -> None:
    found = statistics(np.asarray([0.0, 0.1, 5000.0, -0.2]), np.asarray([1.0, 1.0, 900.0, 1.0]), [])
    assert not found.linear and "1000" in {t.label for t in found.ticks}
    places = [t.at for t in found.ticks]
    assert places == sorted(places, reverse=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30), st.sets(st.integers(0, 40)))
def test_any_statistics(pairs: list[tuple[float, float]], never: set[int]) -> None:
    with np.errstate(all="ignore"):
        found = statistics(np.asarray([m for m, _ in pairs]), np.asarray([s for _, s in pairs]), sorted(never))
    for text in (found.bands, found.means, found.constant):
        assert "nan" not in text and "inf" not in text
    assert len(found.columns) == len(pairs)


def test_many_columns_are_cut_and_counted() -> None:
    found = statistics(np.zeros(5000), np.ones(5000), [4000])
    assert found.total == 5000 and len(found.columns) == 2000 and found.never == ()


def test_errors_on_a_scale() -> None:
    rows = [Measured("a", 1e-7, 1e-5, "1", "", 1.0), Measured("b", 0.0, 1e-5, "0", "", 1.0), Measured("c", 1e-3, 1e-5, "9", "", 1.0)]
    found = error_chart(rows)
    assert found is not None
    a, b, c = found.rows
    assert (a.at, b.at, c.at) == (0, None, 100) and a.limit_at == 50
    assert (a.within, b.within, c.within) == (True, True, False)
    assert [t.label for t in found.ticks] == ["1e−7", "1e−6", "1e−5", "1e−4", "1e−3"]
    assert error_chart([]) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NUMBERS.map(abs), st.none() | NUMBERS.map(abs)), min_size=1, max_size=12))
def test_any_errors(pairs: list[tuple[float, float | None]]) -> None:
    """A NaN is never within its limit."""
    found = error_chart([Measured("x", error, limit, "", "", 1.0) for error, limit in pairs])
    assert found is not None
    for row, (error, limit) in zip(found.rows, pairs, strict=True):
        assert row.at is None or 0 <= row.at <= 100
        assert row.within == (limit is None or error <= limit)


def test_numbers_for_people() -> None:
    assert [shortly(x) for x in (0.0, 2.0, -1.5, 1e-7, 123456.0, 1.23456e9, float("inf"), float("nan"))] == [
        "0", "2", "−1.5", "1e−7", "123456", "1.235e9", "∞", "NaN",
    ]  # fmt: skip
    assert shortly(2.3245811e-06, 2) == "2.3e−6"
    assert [exactly(x) for x in (2000050.0, -3.0, 0.123456789)] == ["2,000,050", "−3", "0.123456789"]
