"""Which lines of model.py a block is: found by following the source, so each is checked against what the block's code is."""

from __future__ import annotations

import ast

import pytest

from graph2torch.build import Build, build_policy
from graph2torch.lines import lines_of
from graph2torch.spec import Module
from tests.models import FAMILIES, save_pair, tiny_policy


@pytest.fixture(params=FAMILIES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Build:
    path, _ = save_pair(tmp_path_factory.mktemp("lines"), tiny_policy(**FAMILIES[request.param]))
    return build_policy(path)


def test_every_block_is_found_where_its_code_is(made: Build) -> None:
    source = made.source.splitlines()
    found = lines_of(made.source, made.spec)
    assert len(found) == len(made.spec.blocks)
    for block, lines in zip(made.spec.blocks, found, strict=True):
        forward = "\n".join(line for a, b in lines.forward for line in source[a - 1 : b])
        assert forward, block.role
        if isinstance(block.code, Module):
            name = block.sequence or block.name
            assert f"self.{name}" in forward
            (a, b), *more = lines.constructor
            assert source[a - 1].strip().startswith(f"self.{name} = ") and not more
            assert block.code.class_name in "\n".join(source[a - 1 : b])
        else:
            names = {n.id for n in ast.walk(ast.parse(block.code.text)) if isinstance(n, ast.Name)} & block.globals
            assert all(name in forward for name in names), (block.role, forward)
        for name, a, _ in lines.definitions:
            assert source[a - 1].startswith((f"class {name}", f"def {name}"))


def test_equal_code_on_other_values_is_another_block(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sampled and deterministic actions are bounded by the same expression: each has its own line."""
    path, _ = save_pair(tmp_path_factory.mktemp("lines"), tiny_policy())
    made = build_policy(path)
    found = lines_of(made.source, made.spec)
    bounded = [lines.forward for block, lines in zip(made.spec.blocks, found, strict=True) if block.rule == "bounded_action"]
    source = made.source.splitlines()
    assert len(bounded) == 2 and bounded[0] != bounded[1]
    assert sorted(source[a - 1].strip().split()[0] for ((a, _),) in bounded) == ["return", "sampled"]


def test_another_source_has_no_lines(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What isn't there is not told: nothing is guessed by a name."""
    path, _ = save_pair(tmp_path_factory.mktemp("lines"), tiny_policy())
    made = build_policy(path)
    for source in ("", "x = 1", "class Policy:\n    def forward(self, obs_0, noise=None):\n        return self.body(self.mu(obs_0))\n"):
        assert not [lines for lines in lines_of(source, made.spec) if lines.forward]
