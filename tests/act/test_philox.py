"""The noise: published test vectors, the exact inverse of the normal distribution, and that a number's place is all it depends on."""

from __future__ import annotations

import hashlib
from statistics import NormalDist

import numpy as np
import pytest

from graph2torch.act.philox import Words, normal, philox, uniform, words


def word(value: int) -> Words:
    return np.array([value], np.uint64)


@pytest.mark.parametrize(
    ("key", "counter", "wanted"),
    [  # kat_vectors of the authors' library, Random123: philox4x32, 10 rounds
        ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        ((0xA4093822, 0x299F31D0), (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)
def test_published_vectors(key: tuple[int, int], counter: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    assert philox(key[0] | key[1] << 32, *map(word, counter)).tolist() == [list(wanted)]


def test_vectors_of_the_noise_itself() -> None:
    """Those of docs/running.md: agent 2, step 3, draw 1, seed 7; and a hash over many places."""
    first = words(7, np.array([2]), np.array([3]), 1, 5)
    assert first.tolist() == [[3105188618, 2563409764, 2666121622, 1464387851, 3990825413]]
    assert uniform(first)[0].tolist() == [
        0.7229830622673035,
        0.5968403220176697,
        0.6207547783851624,
        0.34095436334609985,
        0.9291864037513733,
    ]
    assert normal(first)[0].tolist() == [
        0.5917263031005859,
        0.24517709016799927,
        0.30746379494667053,
        -0.40985989570617676,
        1.4697587490081787,
    ]
    many = words(2**63 + 5, np.arange(64), np.arange(64) * 1000, 2, 21)
    assert hashlib.sha256(normal(many).astype("<f4").tobytes() + uniform(many).astype("<f4").tobytes()).hexdigest() == (
        "d6f7bff106fe5ddbb7c5fc02a9369fa8721991804484d47fe3dffbb872fe1e6c"
    )


def test_normal_is_the_inverse_of_the_distribution() -> None:
    """Against Python's own AS 241, which takes the C library's logarithm: equal once rounded to float32, in the tails as well."""
    places = np.concatenate([np.arange(50), 2**32 - 1 - np.arange(50), np.linspace(0, 2**32 - 1, 4001)]).astype(np.uint64)
    wanted = np.array([NormalDist().inv_cdf((int(w) + 0.5) / 2**32) for w in places]).astype(np.float32)
    near = np.nextafter(wanted, np.float32(9))
    found = normal(places)
    assert ((found == wanted) | (found == near) | (near == np.nextafter(found, np.float32(9)))).all()
    assert (found == wanted).mean() > 0.999
    assert np.isfinite(found).all() and abs(found).max() < 6.34


def test_distributions() -> None:
    """Mean, variance and tails of 200,000 numbers; independence of neighbouring places, agents, steps and draws."""
    block = words(3, np.arange(1000), np.zeros(1000), 0, 200)
    z, u = normal(block).astype(np.float64), uniform(block).astype(np.float64)
    n = z.size
    assert abs(z.mean()) < 4 / n**0.5 and abs(z.var() - 1) < 4 * (2 / n) ** 0.5
    assert abs(u.mean() - 0.5) < 4 * (1 / 12 / n) ** 0.5 and u.min() >= 0 and u.max() < 1
    assert abs((abs(z) > 2).mean() - 0.0455) < 4 * (0.0455 / n) ** 0.5
    others = [
        words(3, np.arange(1000), np.ones(1000), 0, 200),  # the next step
        words(3, np.arange(1000), np.zeros(1000), 1, 200),  # another draw
        words(4, np.arange(1000), np.zeros(1000), 0, 200),  # another seed
        words(3 + 2**32, np.arange(1000), np.zeros(1000), 0, 200),
        np.roll(block, 1, axis=0),  # the next agent
        np.roll(block, 1, axis=1),  # the next place
    ]
    for other in others:
        assert abs(np.corrcoef(z.reshape(-1), normal(other).reshape(-1).astype(np.float64))[0, 1]) < 4 / n**0.5


def test_a_number_depends_on_its_place_alone() -> None:
    agents, steps = np.array([5, 0, 2**32 - 1]), np.array([9, 2**32 - 1, 0])
    together = words(1, agents, steps, 4, 21)
    for i in range(3):
        assert (words(1, agents[i : i + 1], steps[i : i + 1], 4, 21) == together[i]).all()
    assert (words(1, agents, steps, 4, 6) == together[:, :6]).all()
    assert (normal(together)[1] == normal(together[1])).all()
