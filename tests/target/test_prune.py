"""A graph with fewer outputs gives the same bits in those that are left, and holds nothing that they don't need."""

from __future__ import annotations

import numpy as np
import pytest

from graph2torch.errors import UnsupportedGraph
from graph2torch.graph import RANDOM, read_graph
from graph2torch.judge.runtime import session
from graph2torch.target.prune import pruned, undrawn_outputs
from tests.models import tiny_policy


def test_what_is_left_gives_the_same_bits() -> None:
    whole = tiny_policy()
    before = whole.SerializeToString()
    names = undrawn_outputs(read_graph(whole, "whole"))
    assert "deterministic_continuous_actions" in names and "continuous_actions" not in names
    part = pruned(whole, names)
    assert whole.SerializeToString() == before
    assert [o.name for o in part.graph.output] == list(names)
    assert any(n.op_type in RANDOM for n in whole.graph.node) and not any(n.op_type in RANDOM for n in part.graph.node)
    there, here = session(whole, True, "whole"), session(part, True, "part")
    rng = np.random.default_rng(1)
    feed = {i.name: rng.standard_normal([3, *i.shape[1:]]).astype(np.float32) for i in there.get_inputs()}
    for a, b in zip(there.run(list(names), feed), here.run(None, feed), strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


def test_what_only_other_outputs_need_is_gone() -> None:
    whole = tiny_policy()
    part = pruned(whole, ["version_number"])
    assert len(part.graph.node) <= 1 and len(part.graph.initializer) <= 1
    assert len(part.graph.node) + len(part.graph.initializer) > 0


@pytest.mark.parametrize("names", [(), ("nothing\x1b[31m",)])
def test_outputs_that_are_not_there(names: tuple[str, ...]) -> None:
    with pytest.raises(UnsupportedGraph) as found:
        pruned(tiny_policy(), names)
    assert "\x1b" not in str(found.value)
