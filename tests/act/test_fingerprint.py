"""Fingerprints: equal for equal actions, tolerant of rounding, and not of anything else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph2torch.act.fingerprint import EXACT, TOLERANT, fingerprint
from graph2torch.graph import Array
from tests.commands import check_trouble, run
from tests.models import save_pair, tiny_policy


def actions(seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {"continuous_actions": rng.uniform(-1, 1, (32, 4, 21)).astype(np.float32), "discrete_actions": rng.integers(0, 3, (32, 4, 2))}


def test_it_is_the_hash_of_the_bits() -> None:
    mark = fingerprint(actions())
    assert EXACT.fullmatch(mark.exact) and TOLERANT.fullmatch(mark.tolerant) and mark.numbers == 32 * 4 * 23
    assert fingerprint(actions()) == mark and mark.agrees(mark.exact) and mark.agrees(mark.tolerant)
    changed = actions()
    changed["continuous_actions"][0, 0, 0] = np.nextafter(changed["continuous_actions"][0, 0, 0], np.float32(2))
    assert fingerprint(changed).exact != mark.exact and fingerprint(changed).agrees(mark.tolerant)


@pytest.mark.parametrize("seed", range(20))
def test_rounding_is_tolerated_and_another_policy_is_not(seed: int) -> None:
    given = actions(seed)
    mark = fingerprint(given)
    rng = np.random.default_rng([seed, 1])
    rounded = {**given, "continuous_actions": given["continuous_actions"] + rng.uniform(-1e-6, 1e-6, (32, 4, 21)).astype(np.float32)}
    assert fingerprint(rounded).agrees(mark.tolerant)
    assert not fingerprint(actions(seed + 1000)).agrees(mark.tolerant)
    one = {k: v.copy() for k, v in given.items()}
    one["discrete_actions"][3, 1, 0] = (one["discrete_actions"][3, 1, 0] + 1) % 3
    assert not fingerprint(one).agrees(mark.tolerant)


def test_actions_that_are_not_finite_have_no_tolerant_one() -> None:
    given = actions()
    given["continuous_actions"][0, 0, 0] = np.nan
    mark = fingerprint(given)
    assert mark.tolerant == "" and mark.agrees(mark.exact) and not mark.agrees("t" + "+0" * 8)


def test_the_command_tells_whether_it_is_the_expected_one(tmp_path: Path) -> None:
    path, _ = save_pair(tmp_path, tiny_policy())
    assert run("build", path, "-o", tmp_path / "out").status == 0
    import json

    asked = ("run", tmp_path / "out", "--fingerprint", "--sample", "--seed", 3)
    mark = json.loads(run(*asked, "--json").out)["fingerprint"]
    for expected in (mark["exact"], mark["tolerant"]):
        assert run(*asked, "--expect", expected).status == 0
    assert run(*asked[:-1], 4, "--expect", mark["tolerant"]).status == 1
    check_trouble_of_usage = run(*asked, "--expect", "abc")
    assert check_trouble_of_usage.status == 2 and "--expect" in check_trouble_of_usage.err
    check_trouble(run("run", tmp_path / "out", "--fingerprint", "--observations", tmp_path / "no.npy"), "no.npy")
