"""A topological order that stays near a given one."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence


def topological(before: Sequence[Collection[int]], keys: Sequence[int]) -> tuple[int, ...]:
    """Every item after those in its `before`, otherwise by its key.

    An item in a cycle, and every item after one, is left out.
    """
    after: dict[int, list[int]] = {}
    for item, earlier in enumerate(before):
        for other in earlier:
            after.setdefault(other, []).append(item)
    waiting = [len(earlier) for earlier in before]
    ready = [(keys[item], item) for item, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, item = heapq.heappop(ready)
        order.append(item)
        for later in after.get(item, ()):
            waiting[later] -= 1
            if not waiting[later]:
                heapq.heappush(ready, (keys[later], later))
    return tuple(order)
