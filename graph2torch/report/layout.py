"""Where the boxes of a graph are drawn, and the lines between them: layer by layer, from the top down.

The usual four steps of layered drawing (Sugiyama, Tagawa and Toda, 1981): a rank for each node, the longest path from a source;
and as near to it as its readers pull it; nodes in a rank ordered by the mean place of their neighbours, the fewest crossings kept; places
across after Brandes and Köpf (2001), which draws long lines straight; lines through what lies between.
Everything is numbers of Python, so that the page needs no script to be seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

GAP_ACROSS, GAP_DOWN = 22.0, 32.0
THREAD = 14.0  # width that a line through a rank takes
LINES = 3_000  # and the ranks that they pass on their way; a policy has some hundred
SWEEPS = 12  # over the ranks, for their order
TIGHTENED = 4  # times that nodes are pulled down


class Size(NamedTuple):
    """A box before it has a place, in CSS pixels."""

    width: float
    height: float


class Place(NamedTuple):
    """The top left corner of a box, in CSS pixels."""

    x: float
    y: float


class Layout(NamedTuple):
    """places: of the boxes, in their order; wires: an SVG path for each edge, in their order; ranks: of the boxes, from the top."""

    width: float
    height: float
    places: tuple[Place, ...]
    wires: tuple[str, ...]
    ranks: tuple[int, ...]


def lay_out(sizes: Sequence[Size], edges: Sequence[tuple[int, int]]) -> Layout | None:
    """Places `sizes`, whose `edges` go from one's number to another's and have no cycle (those that would make one are left out).

    None if they are so many, or pass so many ranks, that nobody could follow them.
    """
    if not sizes:
        return Layout(0, 0, (), ("",) * len(edges), ())
    if len(edges) > LINES:
        return None
    ranks = _ranks(len(sizes), edges)
    if sum(max(ranks[b] - ranks[a] - 1, 0) for a, b in edges) > LINES:
        return None
    return _Drawing(sizes, edges, ranks).run()


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The longest path from a source, but as near to its readers as that makes no line longer."""
    after: list[list[int]] = [[] for _ in range(count)]
    before: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for a, b in edges:
        after[a].append(b)
        before[b].append(a)
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
    order = sorted(range(count), key=ranks.__getitem__)
    for _ in range(TIGHTENED):
        moved = False
        for i in reversed(order):  # down to what reads it, if that makes its lines shorter
            room = min((ranks[j] for j in after[i]), default=ranks[i] + 1) - 1 - ranks[i]
            if room > 0 and len(after[i]) >= len(before[i]):
                ranks[i] += room
                moved = True
        if not moved:
            break
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
            for i, j in pairwise(self.chains[-1]):
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
        for row, following in pairwise(self.rows):
            at = {i: n for n, i in enumerate(following)}
            ends = [at[j] for i in row for j in sorted(self.below[i], key=at.__getitem__)]
            found += _inversions(ends)
        return found

    # ------------------------------------------------------------------------------------------ places across
    def across(self) -> list[float]:
        """The middle of each node: the mean of the two inner of four drawings, each pushed to another corner (Brandes and Köpf, 2001)."""
        conflicts = self.conflicts()
        drawings = []
        for down in (True, False):
            for left in (True, False):
                rows = [row if left else row[::-1] for row in (self.rows if down else self.rows[::-1])]
                drawings.append(self.pushed(rows, self.above if down else self.below, conflicts, 1 if left else -1))
        ends = [
            (min(x[i] - s.width / 2 for i, s in enumerate(self.sizes)), max(x[i] + s.width / 2 for i, s in enumerate(self.sizes)))
            for x in drawings
        ]
        left_end, right_end = min(ends, key=lambda e: e[1] - e[0])
        shifts = [left_end - e[0] if n % 2 == 0 else right_end - e[1] for n, e in enumerate(ends)]
        middle = []
        for i in range(len(self.sizes)):
            places = sorted(x[i] + shift for x, shift in zip(drawings, shifts, strict=True))
            middle.append((places[1] + places[2]) / 2)
        start = min(middle[i] - size.width / 2 for i, size in enumerate(self.sizes))
        return [m - start for m in middle]

    def conflicts(self) -> set[tuple[int, int]]:
        """Edges that cross a part of a long edge: the long one is drawn straight."""
        found = set()
        for row, following in pairwise(self.rows):
            at = {i: n for n, i in enumerate(row)} | {i: n for n, i in enumerate(following)}
            edges = [(i, j) for i in row for j in self.below[i]]
            inner = [(i, j) for i, j in edges if i >= self.count and j >= self.count]
            for i, j in edges if inner else ():
                if (i < self.count or j < self.count) and any((at[i] - at[k]) * (at[j] - at[m]) < 0 for k, m in inner):
                    found |= {(i, j), (j, i)}
        return found

    def pushed(
        self, rows: Sequence[Sequence[int]], neighbours: Sequence[Sequence[int]], conflicts: Collection[tuple[int, int]], sign: int
    ) -> list[float]:
        """Every node below the middle one of its neighbours, where that crosses nothing, and all of them as far to one side as they go."""
        at = {i: n for row in rows for n, i in enumerate(row)}
        root, following = list(range(len(self.sizes))), list(range(len(self.sizes)))
        for row in rows:
            last = -1
            for i in row:
                near = sorted(neighbours[i], key=at.__getitem__)
                for j in near[(len(near) - 1) // 2 : len(near) // 2 + 1]:
                    if following[i] == i and last < at[j] and (i, j) not in conflicts:
                        following[j] = i
                        root[i] = following[i] = root[j]
                        last = at[j]
        after: dict[int, dict[int, float]] = {i: {} for i in set(root)}
        before: dict[int, dict[int, float]] = {i: {} for i in after}
        for row in rows:
            for i, j in pairwise(row):
                room = (self.sizes[i].width + self.sizes[j].width) / 2 + GAP_ACROSS
                a, b = root[i], root[j]
                after[a][b] = before[b][a] = max(room, after[a].get(b, 0.0))
        waiting = {i: len(before[i]) for i in before}
        order = [i for i in waiting if not waiting[i]]
        for i in order:  # which grows meanwhile
            for j in after[i]:
                waiting[j] -= 1
                if not waiting[j]:
                    order.append(j)
        x = dict.fromkeys(root, 0.0)
        for i in order:
            x[i] = max((x[j] + room for j, room in before[i].items()), default=0.0)
        for i in reversed(order):  # what has room on its other side goes there, so that the drawing is not torn apart
            if after[i]:
                x[i] = max(x[i], min(x[j] - room for j, room in after[i].items()))
        return [sign * x[root[i]] for i in range(len(self.sizes))]

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
