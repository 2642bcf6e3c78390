"""Loading rules: once for all builds of a process, and again when a file has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graph2torch.errors import RuleError
from graph2torch.rulebook import load_rules

FAMILY = """
def detect(graph): return False
def describe(graph, blocks, rules): return None
def policy_module(): return "Policy"
"""
RULE = '"""{doc}"""\nPATTERNS = "One (x) => (y) {{ y = {op} (x) }}"\nEXAMPLE = NEAR_MISS = ()\ndef lift(match): return None\n'


def write(folder: Path, rule: str, doc: str = "A rule.", op: str = "Relu", age: int = 0) -> None:
    path = folder / "mine" / rule / "rule.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    (folder / "mine" / "family.py").write_text(FAMILY)
    path.write_text(RULE.format(doc=doc, op=op))
    os.utime(path, ns=(10**18 + age, 10**18 + age))


def names(folder: Path) -> list[str]:
    return [f"{rule.name}: {rule.patterns[0].nodes[0].op}, {rule.summary}" for rule in load_rules(folder).rules if rule.family == "mine"]


def test_rules_are_parsed_once(tmp_path: Path) -> None:
    write(tmp_path, "one")
    first, second = load_rules(tmp_path), load_rules(tmp_path)
    assert all(a is b for a, b in zip(first.rules, second.rules, strict=True))
    assert all(a is b for a, b in zip(first.tables, second.tables, strict=True))


def test_a_rule_that_was_changed_added_or_removed_is_seen(tmp_path: Path) -> None:
    write(tmp_path, "one")
    assert names(tmp_path) == ["one: Relu, A rule."]
    write(tmp_path, "one", op="Tanh", age=10**10)  # of the same size
    assert names(tmp_path) == ["one: Tanh, A rule."]
    write(tmp_path, "two", doc="Another rule.", op="Exp")
    assert names(tmp_path) == ["one: Tanh, A rule.", "two: Exp, Another rule."]
    (tmp_path / "mine" / "one" / "rule.py").unlink()
    assert names(tmp_path) == ["two: Exp, Another rule."]


def test_a_rule_that_failed_fails_again_until_it_is_mended(tmp_path: Path) -> None:
    write(tmp_path, "one", op="(")
    for _ in range(2):
        with pytest.raises(RuleError, match="not a valid ONNX function"):
            load_rules(tmp_path)
    write(tmp_path, "one", op="Relu", age=10**10)
    assert names(tmp_path) == ["one: Relu, A rule."]
