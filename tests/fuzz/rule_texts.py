"""Patterns and tables of rules with other words in them. A rules folder is code and is trusted; its texts may still be wrong."""

from __future__ import annotations

import random
import re
from functools import cache
from typing import Any

from graph2torch.canonical import canonicalise
from graph2torch.graph import Graph, read_graph
from graph2torch.operators import Operator
from graph2torch.rulebook import load_rules
from tests.models import tiny_policy

from .damage import damaged, text
from .graphs import OPERATORS

WORDS = (
    *("(", ")", "{", "}", "=>", "=", "<", ">", ",", ";", ":", "@", "@k", "[", "]", '"', "'", "//", "\n", "\\", "#", "\x00", "é", ""),
    *(
        "float",
        "int",
        "tensor",
        "ints",
        "floats",
        "string",
        "strings",
        "graph",
        "float[]",
        "float[1]",
        "float[1] {1}",
        "int64 {7}",
        "If",
        "Own.x",
    ),
    *(
        "-5.0",
        "1e400",
        "nan",
        "inf",
        "99999999999999999999",
        "-",
        "1",
        "{3.0}",
        "Constant",
        "Identity",
        "value",
        "axis",
        "x",
        "y",
        "a",
        "((((((",
    ),
    *(
        "<value = float {3.0}>",
        "<axis = 1>",
        "<axis: int = @axis>",
        "<k: float>",
        "<then_branch = g () => () {}>",
        "value: tensor = @k",
        '"text"',
    ),
)


@cache
def patterns() -> tuple[str, ...]:
    found: list[str] = []
    for rule in load_rules().rules:
        texts = rule.module.PATTERNS
        found += [texts] if isinstance(texts, str) else texts
    return tuple(found)


@cache
def words() -> tuple[str, ...]:
    return tuple(sorted({w for p in patterns() for w in tokens(p)}))


def tokens(pattern: str) -> list[str]:
    return re.findall(r"\w+|=>|\s+|.", pattern)


def pattern(rng: random.Random) -> str:
    """A genuine pattern with words taken out, doubled, moved or replaced."""
    parts = tokens(rng.choice(patterns()))
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
        place, length = rng.randrange(len(parts) + 1), rng.choice((1, 1, 2, 6))
        kind = rng.randrange(6)
        if kind == 0:
            del parts[place : place + length]
        elif kind == 1:
            parts[place:place] = parts[(other := rng.randrange(len(parts) + 1)) : other + length]
        elif kind == 2:
            parts[place : place + 1] = [rng.choice(WORDS)]
        elif kind == 3:
            parts[place : place + 1] = [rng.choice(words())]
        elif kind == 4:
            names = [i for i, p in enumerate(parts) if p.isidentifier()] or [0]
            parts[rng.choice(names) : rng.choice(names) + 1] = [rng.choice((*words(), *OPERATORS[:50], text(rng)[:20]))]
        else:
            parts[place:place] = [rng.choice(WORDS) * rng.choice((1, 2, 2000))]
    made = "".join(parts)
    return damaged(rng, made.encode("utf-8", "replace")).decode("utf-8", "replace") if rng.random() < 0.1 else made


def names(rng: random.Random, made: str) -> list[str]:
    """Some of a pattern's own, to be declared constant, variadic or shared."""
    own = re.findall(r"\w+", made) or ["x"]
    return [rng.choice((*own, text(rng)[:10])) for _ in range(rng.choice((0, 0, 0, 1, 2)))]


# ---------------------------------------------------------------------------------------------- tables
EXPRESSIONS = (
    *(
        "torch.relu(x)",
        "x + y",
        "x",
        "",
        "(",
        "x +",
        "def f(): pass",
        "x; y",
        "lambda: x",
        "{axis}",
        "{",
        "}",
        "{0}",
        "{nope}",
        "torch.relu({axis})",
    ),
    *(
        "nn.functional.elu(x, {alpha})",
        "yield x",
        "await x",
        "[" * 300,
        "x" + " + x" * 3000,
        "\0",
        "é",
        "x if",
        "x == {min}",
        "(z := x)",
        "x4",
    ),
)


def rows(rng: random.Random) -> list[Operator]:
    found = []
    for _ in range(rng.randint(1, 4)):
        name: Any = rng.choice(("Relu", "Sigmoid", "Elu", "Softmax", "Gelu", "Add", text(rng)[:20], *OPERATORS[:30]))
        plain: Any = rng.choice((*EXPRESSIONS, text(rng)[:50]))
        found.append(Operator(name, plain, since=rng.choice((1, 9, 99, -1)), draw=rng.choice(("", "", "itself", "uniform"))))
    return found


LAYERS = (
    *(
        'def node(name): return lambda f: f\n\n@node("Relu")\ndef relu(x): return x\n',
        '@node("Own")\ndef own(x, *rest, axis=0): return x\n',
    ),
    *(
        "@node()\ndef f(x): return x\n",
        "@node(5)\ndef f(x): return x\n",
        "def (",
        "\0",
        "@node(name)\ndef f(): pass\n",
        '@node("Elu")\nclass A: pass\n',
    ),
    *("", "import nothing_of_this_name\n", "@node\ndef f(x): pass\n", '@node("Relu")\ndef relu(x, /, y=1, *, z): return x\n', "(" * 500),
)

FAMILY = "def detect(graph): return {detect}\ndef policy_module(): return 'Policy'\ndef describe(graph, blocks, rules): {describe}\n"


def folder(rng: random.Random) -> dict[str, str]:
    """A folder of rules of one's own, as texts by path: a family, a rule, sometimes a table."""
    made = pattern(rng) if rng.random() < 0.7 else "Mine (x) => (y) { y = Sigmoid (x) }"
    settings = "".join(
        f"{name} = {value!r}\n"
        for name, value in (("CONSTANTS", names(rng, made)), ("VARIADIC", (names(rng, made) or [""])[0]), ("SHARED", names(rng, made)))
        if rng.random() < 0.4
    )
    doc = rng.choice(('"""A rule."""', '"""A rule."""', '"""A rule."""', "", '""" """', f"{text(rng)[:50]!r}"))
    lift = rng.choice(
        (
            "return block_of(match, Expression('torch.sigmoid(x)'))",
            "return None",
            "1 / 0",
            "return match",
            "return block_of(match, Expression(')'))",
        )
    )
    rule = f"{doc}\nfrom graph2torch.spec import Expression, block_of\nPATTERNS = {made!r}\n{settings}\ndef lift(match):\n    {lift}\n"
    describe = rng.choice(("return None", "1 / 0", "raise KeyError('x')", "return graph"))
    family = FAMILY.format(detect=rng.choice(("False", "True", "None", "1 / 0")), describe=describe)
    files = {"rules/own/family.py": family, "rules/own/gate/rule.py": rule}
    if rng.random() < 0.5:
        table = rows(rng)
        listed = ", ".join(f"Operator({r.name!r}, {r.plain!r}, since={r.since}, draw={r.draw!r})" for r in table)
        files["rules/own/operators.py"] = f"from graph2torch.operators import Operator\nOPERATORS = [{listed}]\n"
        files["rules/own/layer.py"] = rng.choice(LAYERS)
    return files


@cache
def graph() -> Graph:
    """A small policy's, canonical, for patterns to be looked for in."""
    return canonicalise(read_graph(tiny_policy((2, 1), actions=1, hidden=2, branches=(2,)), "Tiny.onnx"))
