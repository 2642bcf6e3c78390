"""The tests of samples: their p against known values, right on right samples, and wrong on each planted fault."""

from __future__ import annotations

import math

import numpy as np
import pytest

from graph2torch.judge.sampling import SampleTest, chi_square, kolmogorov_smirnov, kolmogorov_smirnov_of_two, variances
from graph2torch.judge.sampling import _discrete as discrete
from graph2torch.judge.sampling import _normal as normal
from graph2torch.judge.sampling import _two_samples as two_samples

N = 10_000
STRICT = 1e-6


@pytest.mark.parametrize(
    ("statistic", "degrees", "p"),
    [(3.841459, 1, 0.05), (18.307038, 10, 0.05), (6.634897, 1, 0.01), (2.0, 2, math.exp(-1))],
)
def test_chi_square_is_that_of_the_tables(statistic: float, degrees: int, p: float) -> None:
    expected = np.full(degrees + 1, 100.0)
    seen = expected.copy()
    seen[:2] += np.array([1, -1]) * math.sqrt(statistic * 100 / 2)
    found = chi_square(seen, expected)
    assert found[0] == pytest.approx(statistic) and found[1] == pytest.approx(p, rel=1e-5)


def test_kolmogorov_smirnov_is_that_of_the_tables() -> None:
    """For large n the 5 % point of √n · D is 1.358, the 1 % point 1.628."""
    for scaled, p in ((1.358, 0.05), (1.628, 0.01)):
        n = 10**6
        quantiles = (np.arange(n) + 0.5) / n
        import torch

        z = torch.special.ndtri(torch.from_numpy(np.clip(quantiles - scaled / math.sqrt(n), 1e-9, 1))).numpy()
        assert kolmogorov_smirnov(z)[1] == pytest.approx(p, rel=0.01)


def test_p_is_uniform_where_nothing_is_wrong() -> None:
    """Of 200 samples about a tenth falls below p = 0.1, in each test."""
    below: dict[str, list[bool]] = {}
    for seed in range(200):
        rng = np.random.default_rng(seed)
        a, b = rng.standard_normal((2, 500, 2))
        p = np.array([0.5, 0.3, 0.15, 0.05])
        for test in (*normal("torch", "", a), *two_samples("torch", "", a, b), *discrete("torch", "", rng.choice(4, 500, p=p), p)):
            below.setdefault(f"{test.of} {test.method}", []).append(test.p < 0.1)
    assert len(below) == 11
    for name, found in below.items():
        assert 0.03 < np.mean(found) < 0.18, name  # within 3.3 standard errors of 0.1, and a little for approximations


def failed(tests: list[SampleTest]) -> set[str]:
    return {test.method.partition(",")[0] for test in tests if test.p < STRICT}


def test_faults_of_normal_draws() -> None:
    z = np.random.default_rng(1).standard_normal((N, 3))
    assert not failed(normal("torch", "", z))
    assert "chi-square" in failed(normal("torch", "", 1.05 * z))
    assert "Kolmogorov-Smirnov" in failed(normal("torch", "", z + 0.08))
    assert "Kolmogorov-Smirnov" in failed(normal("torch", "", np.sign(z)))
    assert failed(normal("torch", "", np.repeat(z[:, :1], 3, 1))) == {"correlation"}
    assert failed(normal("torch", "", np.repeat(z[: N // 2], 2, 0))) == {"correlation"}
    assert {"Kolmogorov-Smirnov", "correlation"} <= failed(normal("torch", "", np.zeros((N, 3))))


def test_faults_of_options() -> None:
    p = np.array([0.6, 0.3, 0.1, 0.0])
    options = np.random.default_rng(1).choice(4, N, p=p)
    assert not failed(discrete("torch", "", options, p))
    assert failed(discrete("torch", "", options, np.array([0.55, 0.35, 0.1, 0.0]))) == {"chi-square"}
    assert failed(discrete("torch", "", np.zeros(N, dtype=np.int64), p)) == {"chi-square"}
    assert not discrete("torch", "", np.zeros(N, dtype=np.int64), np.array([1.0, 0.0])), "one option leaves nothing to test"


def test_faults_between_two_samples() -> None:
    rng = np.random.default_rng(1)
    a, b = (np.clip(rng.standard_normal((N, 2)), -1.5, 1.5) for _ in range(2))
    assert not failed(two_samples("torch", "", a, b))
    assert "variances" in failed(two_samples("torch", "", 1.1 * a, b))
    assert "Kolmogorov-Smirnov" in failed(two_samples("torch", "", a + 0.1, b))
    assert "correlation" in failed(two_samples("torch", "", np.repeat(a[:, :1], 2, 1), b))
    assert "variances" in failed(two_samples("torch", "", np.zeros((N, 2)), b))
    assert kolmogorov_smirnov_of_two(a[:, 0], a[:, 0]) == (0.0, 1.0) and variances(a[:, 0], a[:, 0]) == (0.0, 1.0)
