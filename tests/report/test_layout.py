"""Where boxes and lines are drawn: nothing overlaps, everything goes down, and equal input gives an equal drawing."""

from __future__ import annotations

import re

import numpy as np
import pytest

from graph2torch.report.layout import LINES, Layout, Size, lay_out, neighbours


def drawn(sizes: list[Size], edges: list[tuple[int, int]]) -> Layout:
    found = lay_out(sizes, edges)
    assert found is not None
    return found


def random_graph(seed: int, count: int) -> tuple[list[Size], list[tuple[int, int]]]:
    rng = np.random.default_rng(seed)
    sizes = [Size(float(rng.integers(40, 240)), float(rng.integers(20, 70))) for _ in range(count)]
    pairs = {(int(min(a, b)), int(max(a, b))) for a, b in rng.integers(0, count, (int(count * 1.4), 2)) if a != b}
    return sizes, sorted(pairs)


@pytest.mark.parametrize("seed", range(30))
def test_any_graph(seed: int) -> None:
    """Boxes lie within the drawing and apart, what reads stands below what it reads, and each line ends at its boxes."""
    sizes, edges = random_graph(seed, 1 + 2 * seed)
    found = drawn(sizes, edges)
    boxes = [(p.x, p.y, p.x + s.width, p.y + s.height) for p, s in zip(found.places, sizes, strict=True)]
    for i, (left, top, right, bottom) in enumerate(boxes):
        assert left >= -0.01 and right <= found.width + 0.01 and top >= -0.01 and bottom <= found.height + 0.01
        for other in boxes[:i]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
    for (a, b), wire in zip(edges, found.wires, strict=True):
        assert boxes[a][3] < boxes[b][1]
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", wire)]
        assert wire.startswith("M") and numbers[0] == pytest.approx((boxes[a][0] + boxes[a][2]) / 2, abs=0.06)
        assert numbers[1] == pytest.approx(boxes[a][3], abs=0.06) and numbers[-1] == pytest.approx(boxes[b][1], abs=0.06)
    assert drawn(sizes, edges) == found


def test_a_chain_is_straight_and_a_diamond_is_even() -> None:
    chain = drawn([Size(100, 40)] * 4, [(0, 1), (1, 2), (2, 3)])
    assert (
        len({p.x for p in chain.places}) == 1 and chain.width == 100 and all(re.fullmatch(r"M[\d.]+ [\d.]+V[\d.]+", w) for w in chain.wires)
    )
    diamond = drawn([Size(100, 40)] * 4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    left, right = sorted(p.x for p in diamond.places[1:3])
    assert diamond.places[0].x == diamond.places[3].x == pytest.approx((left + right) / 2)


def test_a_long_line_passes_beside_what_lies_between() -> None:
    sizes, edges = [Size(100, 40)] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)]
    found = drawn(sizes, edges)
    across = [float(x) for x in re.findall(r"C[-\d.]+ [-\d.]+ ([-\d.]+)", found.wires[3])]
    assert across and all(not p.x - 1 < across[0] < p.x + 101 for p in found.places[1:3])


def test_crossings_are_undone() -> None:
    """Two chains whose ends are listed in the other order do not cross."""
    found = drawn([Size(50, 20)] * 4, [(0, 3), (1, 2)])
    assert (found.places[0].x < found.places[1].x) == (found.places[3].x < found.places[2].x)


def test_a_source_stands_near_its_reader() -> None:
    found = drawn([Size(50, 20)] * 5, [(0, 1), (1, 2), (2, 3), (4, 3)])
    assert found.ranks == (0, 1, 2, 3, 2)


def test_nothing_and_a_circle() -> None:
    assert drawn([], []).places == ()
    found = drawn([Size(10, 10)] * 2, [(0, 1), (1, 0)])  # which no policy has: nothing is drawn between them
    assert found.wires == ("", "") and len(found.places) == 2


def test_where_the_arrow_keys_go() -> None:
    edges = [(0, 1), (0, 2), (1, 3), (2, 3)]
    found = drawn([Size(100, 40)] * 4, edges)
    keys = neighbours(found, edges)
    left, right = sorted((1, 2), key=lambda i: found.places[i].x)
    assert keys[left] == (0, 3, left, right) and keys[right] == (0, 3, left, right)
    assert keys[0][0] == 0 and keys[0][1] in (1, 2) and keys[3][1] == 3


def test_what_nobody_could_follow_is_not_drawn() -> None:
    """Each of 200 boxes reads all above it: twenty thousand lines, which pass more than a million times by a box."""
    count = 200
    assert lay_out([Size(100, 40)] * count, [(i, j) for j in range(count) for i in range(j)]) is None
    chain = [(i, i + 1) for i in range(count - 1)]
    assert lay_out([Size(100, 40)] * count, [*chain, *((0, j) for j in range(100, 140))]) is None
    assert len(chain) < LINES and lay_out([Size(100, 40)] * count, [*chain, (0, 150)]) is not None
