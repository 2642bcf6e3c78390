"""Where the boxes of a graph are drawn, and the lines between them: layer by layer, from the top down.

The usual four steps of layered drawing (Sugiyama, Tagawa and Toda, 1981): a rank for each node, the longest path from a source;
nodes in a rank ordered by the mean place of their neighbours, the fewest crossings kept; places across as near to the neighbours'
as the boxes' widths allow (least squares under an order, by pooling adjacent violators); lines through what lies between.
Everything is numbers of Python, so that the page needs no script to be seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

GAP_ACROSS, GAP_DOWN = 28.0, 34.0
THREAD = 14.0  # width that a line through a rank takes
SWEEPS = 12


@dataclass(frozen=True, slots=True)
class Size:
    """A box before it has a place, in CSS pixels."""

    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Place:
    """The top left corner of a box, in CSS pixels."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Layout:
    """places: of the boxes, in their order; wires: an SVG path for each edge, in their order; ranks: of the boxes, from the top."""

    width: float
    height: float
    places: tuple[Place, ...]
    wires: tuple[str, ...]
    ranks: tuple[int, ...]


def lay_out(sizes: Sequence[Size], edges: Sequence[tuple[int, int]]) -> Layout:
    """Places `sizes`, whose `edges` go from one's number to another's and have no cycle (those that would make one are left out)."""
    if not sizes:
        return Layout(0, 0, (), ("",) * len(edges), ())
    ranks = _ranks(len(sizes), edges)
    return _Drawing(sizes, edges, ranks).run()


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The longest path from a source; a source itself stands right above what reads it."""
    after: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for a, b in edges:
        after[a].append(b)
        waiting[b] += 1
    sources = [i for i in range(count) if not waiting[i]]
    ranks, todo = [0] * count, list(sources)
    while todo:
        i = todo.pop()
        for j in after[i]:
            ranks[j] = max(ranks[j], ranks[i] + 1)
            waiting[j] -= 1
            if not waiting[j]:
                todo.append(j)
    for i in sources:
        if after[i]:
            ranks[i] = max(min(ranks[j] for j in after[i]) - 1, 0)
    return ranks


class _Drawing:
    """Nodes are numbers; those beyond the boxes are where a long edge passes a rank."""

    def __init__(self, sizes: Sequence[Size], edges: Sequence[tuple[int, int]], ranks: list[int]) -> None:
        self.sizes, self.ranks, self.count = list(sizes), ranks, len(sizes)
        self.rows: list[list[int]] = [[] for _ in range(max(ranks) + 1)]
        for i, rank in enumerate(ranks):
            self.rows[rank].append(i)
        self.above: list[list[int]] = [[] for _ in sizes]
        self.below: list[list[int]] = [[] for _ in sizes]
        self.chains: list[list[int]] = []
        for a, b in edges:
            chain = [a]
            for rank in range(ranks[a] + 1, ranks[b]):
                self.sizes.append(Size(THREAD, 0))
                self.above.append([])
                self.below.append([])
                chain.append(len(self.sizes) - 1)
                self.rows[rank].append(chain[-1])
            chain.append(b)
            self.chains.append(chain if ranks[a] < ranks[b] else [])
            for i, j in zip(self.chains[-1], self.chains[-1][1:], strict=False):
                self.below[i].append(j)
                self.above[j].append(i)

    def run(self) -> Layout:
        self.order()
        middle = self.across()
        heights = [max((self.sizes[i].height for i in row), default=0.0) for row in self.rows]
        tops = [sum(heights[:r]) + GAP_DOWN * r for r in range(len(heights))]
        places = tuple(
            Place(middle[i] - self.sizes[i].width / 2, tops[self.ranks[i]] + (heights[self.ranks[i]] - self.sizes[i].height) / 2)
            for i in range(self.count)
        )
        wires = tuple(self.wire(chain, middle, places, tops, heights) for chain in self.chains)
        width = max(middle[i] + size.width / 2 for i, size in enumerate(self.sizes))
        return Layout(width, tops[-1] + heights[-1], places, wires, tuple(self.ranks))

    # ------------------------------------------------------------------------------------------ order within a rank
    def order(self) -> None:
        """Downwards and upwards in turn, each rank by the mean place of what it hangs on; the best order of all is kept."""
        best, fewest = [list(row) for row in self.rows], self.crossings()
        for sweep in range(SWEEPS):
            if not fewest:
                break
            down = sweep % 2 == 0
            neighbours = self.above if down else self.below
            for row in self.rows if down else reversed(self.rows):
                at = {i: n for other in self.rows for n, i in enumerate(other)}
                means = {i: sum(at[j] for j in neighbours[i]) / len(neighbours[i]) if neighbours[i] else at[i] for i in row}
                row.sort(key=means.__getitem__)
            if (crossed := self.crossings()) < fewest:
                best, fewest = [list(row) for row in self.rows], crossed
        self.rows = best

    def crossings(self) -> int:
        found = 0
        for row, following in zip(self.rows, self.rows[1:], strict=False):
            at = {i: n for n, i in enumerate(following)}
            ends = [at[j] for i in row for j in sorted(self.below[i], key=at.__getitem__)]
            found += _inversions(ends)
        return found

    # ------------------------------------------------------------------------------------------ places across
    def across(self) -> list[float]:
        """The middle of each node."""
        middle = [0.0] * len(self.sizes)
        for row in self.rows:
            x = 0.0
            for i in row:
                middle[i] = x + self.sizes[i].width / 2
                x += self.sizes[i].width + GAP_ACROSS
            for i in row:
                middle[i] -= x / 2
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            for row in self.rows if down else reversed(self.rows):
                self.settle(row, middle, self.above if down else self.below)
        for row in self.rows:
            self.settle(row, middle, [a + b for a, b in zip(self.above, self.below, strict=True)])
        left = min(middle[i] - size.width / 2 for i, size in enumerate(self.sizes))
        return [m - left for m in middle]

    def settle(self, row: Sequence[int], middle: list[float], neighbours: Sequence[Sequence[int]]) -> None:
        """The places of a rank that are nearest to the means of the neighbours', in the rank's order and without overlap."""
        offset, offsets = 0.0, []
        for n, i in enumerate(row):
            if n:
                offset += (self.sizes[row[n - 1]].width + self.sizes[i].width) / 2 + GAP_ACROSS
            offsets.append(offset)
        pools: list[tuple[float, int]] = []  # mean, how many
        for i, offset in zip(row, offsets, strict=True):
            near = neighbours[i]
            wanted = (sum(middle[j] for j in near) / len(near) if near else middle[i]) - offset
            pools.append((wanted, 1))
            while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
                (a, m), (b, n) = pools[-2:]
                pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
        means = (mean for mean, members in pools for _ in range(members))
        for i, offset, mean in zip(row, offsets, means, strict=True):
            middle[i] = mean + offset

    # ------------------------------------------------------------------------------------------ lines
    def wire(
        self, chain: Sequence[int], middle: Sequence[float], places: Sequence[Place], tops: Sequence[float], heights: Sequence[float]
    ) -> str:
        """From the bottom of a box to the top of another, past the ranks between them."""
        if not chain:
            return ""
        first, last = chain[0], chain[-1]
        x, y = middle[first], places[first].y + self.sizes[first].height
        path = [f"M{_n(x)} {_n(y)}"]
        rank = self.ranks[first]
        for i in chain[1:-1]:
            rank += 1
            path += [_curve(x, y, middle[i], tops[rank]), f"V{_n(tops[rank] + heights[rank])}"]
            x, y = middle[i], tops[rank] + heights[rank]
        path.append(_curve(x, y, middle[last], places[last].y))
        return "".join(path)


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    half = (y + to_y) / 2
    return f"V{_n(to_y)}" if abs(x - to_x) < 0.05 else f"C{_n(x)} {_n(half)} {_n(to_x)} {_n(half)} {_n(to_x)} {_n(to_y)}"


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _inversions(numbers: Sequence[int]) -> int:
    """How many pairs stand in the wrong order, counted while merging."""
    found, runs = 0, [[n] for n in numbers]
    while len(runs) > 1:
        merged = []
        for a, b in zip(runs[::2], runs[1::2], strict=False):
            row, i, j = list[int](), 0, 0
            while i < len(a) and j < len(b):
                if a[i] <= b[j]:
                    row.append(a[i])
                    i += 1
                else:
                    row.append(b[j])
                    found += len(a) - i
                    j += 1
            merged.append([*row, *a[i:], *b[j:]])
        runs = merged + (runs[-1:] if len(runs) % 2 else [])
    return found


def neighbours(layout: Layout, edges: Sequence[tuple[int, int]]) -> Mapping[int, tuple[int, int, int, int]]:
    """For each box the ones that the arrow keys go to: up and down along its first line, left and right in its rank; itself if none."""
    up: dict[int, int] = {}
    down: dict[int, int] = {}
    for a, b in edges:
        nearer = abs(layout.places[a].x - layout.places[b].x)
        if b not in up or nearer < abs(layout.places[up[b]].x - layout.places[b].x):
            up[b] = a
        if a not in down or nearer < abs(layout.places[down[a]].x - layout.places[a].x):
            down[a] = b
    rows: dict[int, list[int]] = {}
    for i, rank in enumerate(layout.ranks):
        rows.setdefault(rank, []).append(i)
    found = {}
    for row in rows.values():
        row.sort(key=lambda i: layout.places[i].x)
        for n, i in enumerate(row):
            found[i] = (up.get(i, i), down.get(i, i), row[max(n - 1, 0)], row[min(n + 1, len(row) - 1)])
    return found
