"""Rules that fail on a graph they didn't think of: the graph is told about, not the rule's traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import check_trouble, run, unsafe
from tests.models import save_pair, tiny_policy

FAMILY = """
from graph2torch.spec import PolicySpec

def detect(graph): return False
def policy_module(): return "Policy"
"""
RULE = '''"""A rule of the test's own."""
from graph2torch.spec import Expression, block_of

PATTERNS = "Mine (x) => (y) { y = Sigmoid (x) }"

def lift(match): return block_of(match, Expression("torch.sigmoid(x)"))
'''


def rules(folder: Path, rule: str, family: str = FAMILY) -> Path:
    (folder / "rules" / "mine" / "gate").mkdir(parents=True)
    (folder / "rules" / "mine" / "family.py").write_text(family)
    (folder / "rules" / "mine" / "gate" / "rule.py").write_text(rule)
    return folder / "rules"


@pytest.mark.parametrize(
    ("rule", "family", "words"),
    [
        ("def this is wrong", FAMILY, "SyntaxError"),
        ("1 / 0", FAMILY, "ZeroDivisionError"),
        ("raise ValueError('first\\nsecond \\x1b[31m')", FAMILY, "ValueError: first second \\x1b[31m"),
        (RULE.replace('"""A rule of the test\'s own."""', ""), FAMILY, "docstring"),
        (RULE.replace("PATTERNS", "OTHERS"), FAMILY, "PATTERNS"),
        (RULE.replace("y = Sigmoid (x)", "this is no ONNX"), FAMILY, "rule.py"),
        (RULE, "import nonsense_that_is_not_installed", "ModuleNotFoundError"),
    ],
    ids=["syntax", "error", "text", "docstring", "patterns", "pattern", "family"],
)
def test_a_rule_that_can_not_be_used_is_named(tmp_path: Path, rule: str, family: str, words: str) -> None:
    model, _ = save_pair(tmp_path, tiny_policy())
    check_trouble(run("build", model, "-o", tmp_path / "out", "--rules", rules(tmp_path, rule, family)), words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("rule", [RULE.replace('"""A rule of the test\'s own."""', ""), RULE.replace("PATTERNS", "OTHERS"), "1 / 0"])
def test_a_faulty_rule_is_told_by_the_path_that_it_has(tmp_path: Path, rule: str) -> None:
    folder = rules(tmp_path, rule).rename(tmp_path / "my\x1b[31mown")
    check_trouble(run("rules", "--rules", folder), str(Path("my\\x1b[31mown") / "mine" / "gate" / "rule.py"))


@pytest.mark.parametrize("folder", ["none", "empty", "file"])
def test_a_folder_without_rules_is_named(tmp_path: Path, folder: str) -> None:
    model, _ = save_pair(tmp_path, tiny_policy())
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    check_trouble(run("build", model, "--rules", tmp_path / folder), "rules folder", folder)


def test_a_check_that_fails_refuses_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a built-in rule didn't think of is rebuilt by others; the reason is told by `rules --explain`."""
    from graph2torch.rulebook import load_rules

    def broken(match: object) -> None:
        raise TypeError("object of type 'float' has no len() \x1b[31m")

    silu = next(rule for rule in load_rules().rules if rule.name == "silu")
    monkeypatch.setattr(silu.module, "check", broken, raising=False)
    model, _ = save_pair(tmp_path, tiny_policy())
    result = run("build", model, "-o", tmp_path / "out")
    assert result.status == 0, result
    told = run("rules", "--explain", model)
    assert told.status == 0
    assert not unsafe(told.out)


def test_a_lift_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graph2torch.rulebook import load_rules

    def broken(match: object) -> None:
        raise KeyError("weight")

    silu = next(rule for rule in load_rules().rules if rule.name == "silu")
    monkeypatch.setattr(silu.module, "lift", broken)
    model, _ = save_pair(tmp_path, tiny_policy())
    check_trouble(run("build", model, "-o", tmp_path / "out"), "silu", "can't lift it", "KeyError", "report")
