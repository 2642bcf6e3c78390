"""Breaks each rule and each layer of ML-Agents' family in one place at a time, and sees whether the tests notice.

    python -m tests.mutations [RULE …] [--most N] [--write docs/mutations.md]

A mutant is a copy of rules/ with one change: a number, two operands swapped, another operator or activation, another
order of axes or gates, a check that no longer refuses. It gets the tests of its rule (tests/rules), then the end-to-end
tests of every family that its rule is part of, up to the first failure. What passes them all survived. Run by hand:
hundreds of test runs take a while.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FAMILY = "mlagents"
LIMIT = 240  # seconds for one mutant; one that hangs is caught
# what the changed text is replaced with
NAMES = {
    "SiLU": "ReLU", "ReLU": "SiLU", "LeakyReLU": "ReLU", "silu": "relu", "tanh": "sigmoid", "softmax": "sigmoid", "argmax": "argmin",
    "exp": "expm1", "sqrt": "abs", "log": "log1p", "mean": "sum", "cumsum": "cumprod", "MaxPool2d": "AvgPool2d", "weight_ih_l0": "weight_hh_l0",
}  # fmt: skip
OPERATORS = {
    "Sigmoid": "Tanh", "Tanh": "Sigmoid", "Mul": "Add", "Add": "Mul", "Exp": "Log", "Log": "Exp", "Relu": "LeakyRelu", "LeakyRelu": "Relu",
    "ArgMax": "ArgMin", "Softmax": "LogSoftmax", "ReduceMean": "ReduceSum", "ReduceSum": "ReduceMean", "Sqrt": "Abs", "MaxPool": "AveragePool",
    "Less": "Greater",
}  # fmt: skip
# changes without an effect that a policy could have: (file, kind, text as it was) → why
EQUIVALENT: dict[tuple[str, str, str], str] = {
    ("normalizer/layer.py", "constant", "torch.tensor(1)"): "where the steps start before weights are loaded",
    ("lstm/layer.py", "constant", "dropout=0.0"): "torch.lstm drops nothing unless it trains",
    ("linear/rule.py", "order", "(weight, bias)"): "the order in which its tensors are listed",
    ("entity_embedding/rule.py", "order", "(weight, bias)"): "the order in which its tensors are listed",
}


@dataclass(frozen=True)
class Mutant:
    """One change: in which file and line, of what kind, the text before and after, and the whole file with it."""

    path: str
    line: int
    kind: str
    before: str
    after: str
    source: str

    @property
    def rule(self) -> str:
        return self.path.split("/")[0]


# ---------------------------------------------------------------------------------------------- changes
def mutants(path: str, source: str) -> Iterator[Mutant]:
    """Every change of one file: of all code in a layer.py; of patterns, checks and lifting in a rule.py."""
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = source.encode()

    def span(node: ast.AST) -> tuple[int, int]:
        at: Any = node
        return starts[at.lineno - 1] + at.col_offset, starts[at.end_lineno - 1] + at.end_col_offset

    def change(start: int, end: int, new: str, kind: str) -> Mutant:
        line = data[:start].count(b"\n")
        mutated = (data[:start] + new.encode() + data[end:]).decode()
        return Mutant(path, line + 1, kind, lines[line].strip(), mutated.splitlines()[line].strip(), mutated)

    if path.endswith("layer.py"):
        for start, end, new, kind in code_changes(tree, span, data):
            yield change(start, end, new, kind)
        return
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    assigned = {t.id: node.value for node in tree.body if isinstance(node, ast.Assign) for t in node.targets if isinstance(t, ast.Name)}
    for text in strings(assigned["PATTERNS"], assigned):
        begin, end = span(text)
        for start, stop, new, kind in pattern_changes(data[begin:end].decode()):
            offset = begin + len(data[begin:end].decode()[:start].encode())
            yield change(offset, offset + stop - start, new, kind)
    for name, function in functions.items():
        if name == "lift" or name.startswith("_torch"):
            for start, end, new, kind in code_changes(function, span, data):
                yield change(start, end, new, kind)
        elif name != "describe":
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refusal":
                    yield change(*span(node), "None", "dropped check")
    for name in ("PARAMETERS", "DRAW"):
        if name in assigned:
            for start, end, new, kind in code_changes(assigned[name], span, data):
                yield change(start, end, new, kind)


def strings(value: ast.AST, assigned: dict[str, ast.expr]) -> Iterator[ast.Constant]:
    """The texts that an expression is put together from."""
    for node in ast.walk(value):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node
        elif isinstance(node, ast.Name) and node.id in assigned and node.id.startswith("_"):
            yield from strings(assigned[node.id], assigned)


def pattern_changes(text: str) -> Iterator[tuple[int, int, str, str]]:
    """In a pattern: (start, end, new, kind)."""
    for m in re.finditer(r"float(?:\[\d+\])? \{(.*?)\}", text):
        yield m.start(1), m.end(1), repr(2 * float(m[1]) or 1.0), "constant"
    for m in re.finditer(r"int64(?:\[\d+\])? \{(-?\d+)\}", text):
        yield m.start(1), m.end(1), str(int(m[1]) + 1), "axis"
    for m in re.finditer(r"<axis = (-?\d+)>|keepdims = (\d)|transB = (\d)", text):
        group = m.lastindex or 1
        yield m.start(group), m.end(group), "0" if m[group] in ("1", "-1") else "1", "axis"
    for m in re.finditer(r"perm = \[([\d, ]+)\]", text):
        order = [n.strip() for n in m[1].split(",")]
        yield m.start(1), m.end(1), ", ".join([*order[:-2], order[-1], order[-2]]), "axis"
    for m in re.finditer(r"(?:Sub|Div|MatMul|Pow|Concat <[^>]*>) \((\w+), (\w+)\)", text):
        if m[1] != m[2] and not m[0].startswith(("Concat <axis: ", "Pow")):
            yield m.start(1), m.end(2), f"{m[2]}, {m[1]}", "operand order"
    for m in re.finditer(r"= (\w+) [(<]", text):
        if m[1] in OPERATORS:
            yield m.start(1), m.end(1), OPERATORS[m[1]], "operator"


def code_changes(tree: ast.AST, span: Any, data: bytes) -> Iterator[tuple[int, int, str, str]]:
    """In Python: (start, end, new, kind), positions as `span` tells them."""
    quiet = {id(n) for node in ast.walk(tree) for n in hints(node)}
    axes = {id(k.value) for n in ast.walk(tree) if isinstance(n, ast.Call) for k in n.keywords if k.arg in ("dim", "axis")}
    for node in ast.walk(tree):
        if id(node) in quiet:
            continue
        start, end = span(node) if hasattr(node, "lineno") else (0, 0)
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            new = node.value + 1 if isinstance(node.value, int) else 2 * node.value or 1.0  # 1e8 + 1 is 1e8 in float32
            yield start, end, repr(new), "axis" if id(node) in axes else "constant"
        elif isinstance(node, ast.Constant) and node.value in ("transposed", "squeezed"):
            yield start, end, '"as is"', "transform"
        elif isinstance(node, ast.BinOp):
            left, right = span(node.left), span(node.right)
            middle = data[left[1] : right[0]].decode()
            if isinstance(node.op, (ast.Sub, ast.Div, ast.MatMult)):
                yield start, end, f"({text(data, right)}){middle.strip('()')}({text(data, left)})", "operand order"
            swap = {"+": "-", "*": "+", "-": "+", "/": "*"}
            sign = middle.strip(" ()")
            if sign in swap and not isinstance(node.left, ast.List):
                yield left[1], right[0], middle.replace(sign, swap[sign]), "operator"
        elif isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) >= 2 and isinstance(node.ctx, ast.Load):
            (a, b), plain = [span(n) for n in node.elts[-2:]], all(isinstance(n, (ast.Constant, ast.Name)) for n in node.elts)
            if plain and text(data, a) != text(data, b):
                yield a[0], b[1], f"{text(data, b)}{data[a[1] : b[0]].decode()}{text(data, a)}", "order"
        elif isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Load):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            if name in NAMES:
                yield end - len(name), end, NAMES[name], "function"
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.LtE, ast.Lt)):
            yield start, end, f"not ({text(data, (start, end))})", "operator"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Expression":
            yield from expression_changes(node, span, data)


def expression_changes(call: ast.Call, span: Any, data: bytes) -> Iterator[tuple[int, int, str, str]]:
    """In the text of an Expression, whether it is one string, several or formatted."""
    pieces = {
        id(piece) for node in ast.walk(call.args[0]) if isinstance(node, ast.JoinedStr) for piece in ast.walk(node) if piece is not node
    }
    for node in ast.walk(call.args[0]):
        if id(node) in pieces:
            continue
        if not (isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))):
            continue
        start, end = span(node)
        written = data[start:end].decode()
        if not written.startswith(('"', 'f"')):  # a piece of a formatted one
            continue
        if isinstance(node, ast.Constant):
            inner = str(node.value)

            def place(n: Any) -> tuple[int, int]:
                return n.col_offset, n.end_col_offset

            for a, b, new, kind in code_changes(ast.parse(inner, mode="eval"), place, inner.encode()):
                yield start + 1 + a, start + 1 + b, new.replace('"', "'"), kind
            continue
        for m in re.finditer(r"(?<![\w{])\d+(?![\w}])", written):
            if written[: m.start()].count("{") == written[: m.start()].count("}"):
                yield start + m.start(), start + m.end(), str(int(m[0]) + 1), "constant"


def hints(node: ast.AST) -> Iterator[ast.AST]:
    for field in ("annotation", "returns"):
        if found := getattr(node, field, None):
            yield from ast.walk(found)


def text(data: bytes, place: tuple[int, int]) -> str:
    return data[place[0] : place[1]].decode()


def chosen(found: Sequence[Mutant], most: int) -> list[Mutant]:
    """Of each kind in each file `most`, spread evenly; all checks."""
    kept: list[Mutant] = []
    for kind in dict.fromkeys(m.kind for m in found):
        same = [m for m in found if m.kind == kind]
        count = len(same) if kind == "dropped check" else min(most, len(same))
        kept += [same[i * len(same) // count] for i in range(count)]
    return sorted(kept, key=lambda m: m.line)


# ---------------------------------------------------------------------------------------------- tests
def trial(mutant: Mutant, families: Sequence[str], pipe: int) -> None:
    """In a process of its own: the rules with the mutant in place of the real ones, and the tests that should notice."""
    import hypothesis
    import pytest

    from graph2torch import rulebook

    hypothesis.settings.register_profile("once", phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate], report_multiple_bugs=False)
    hypothesis.settings.load_profile("once")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "rules"
        shutil.copytree(ROOT / "rules", folder, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / FAMILY / mutant.path).write_text(mutant.source, encoding="utf-8")
        rulebook.builtin_folder = lambda: folder
        for name in [name for name in sys.modules if name.startswith("graph2torch_rules")]:
            del sys.modules[name]

        class First:
            name = ""

            def pytest_runtest_logreport(self, report: Any) -> None:
                self.name = self.name or (report.nodeid if report.failed else "")

            def pytest_collectreport(self, report: Any) -> None:
                self.name = self.name or (f"{report.nodeid}: not collected" if report.failed else "")

        first = First()
        quiet = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=no"]
        rule = f"[{mutant.rule}-"
        wanted = f"near_misses and {rule}" if mutant.kind == "dropped check" else f"{rule} or brings_examples or every_pattern"
        runs = [["tests/rules/test_every_rule.py", "-k", wanted]]
        if mutant.kind != "dropped check":  # the policies of the families have nothing that is to be refused
            own = [f"tests/rules/{FAMILY}/{name}.py" for name in OWN.get(mutant.rule, ())]
            runs += [[path, "-k", "not opset and not compile and not mix"] for path in own]
            kept = " or ".join(families[:2]) or "nothing"
            runs += [["tests/test_families.py", "-k", f"(test_each_family_reaches and torch2-9 and ({kept})) or distributions"]]
        for arguments in runs:
            if pytest.main([*quiet, *arguments], plugins=[first]) not in (0, 5):
                os.write(pipe, (first.name or "?").encode())
                return
    os.write(pipe, b"-")


OWN = {
    "lstm": ("test_lstm",), "turned_memory": ("test_lstm",), "hyper_network": ("test_goals",), "entity_embedding": ("test_entities",),
    "entity_layout": ("test_entities",), "padding_mask": ("test_entities",), "residual_self_attention": ("test_entities",),
}  # fmt: skip


def tried(mutant: Mutant, families: Sequence[str]) -> str:
    """The test that caught the mutant; "" if none did."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            trial(mutant, families, write)
        except BaseException as error:  # whatever happens, the child ends here
            os.write(write, f"?{error!r}".encode())
        finally:
            os._exit(0)
    os.close(write)
    ready, _, _ = select.select([read], [], [], LIMIT)
    answer = os.read(read, 10_000).decode() if ready else "it took too long"
    if not ready:
        os.kill(child, signal.SIGKILL)
    os.close(read)
    os.waitpid(child, 0)
    if answer.startswith("?"):
        raise RuntimeError(f"{mutant.path}:{mutant.line}: the tests could not be run{answer}")
    return "" if answer == "-" else answer or "it crashed"


def users() -> dict[str, list[str]]:
    """rule → families of tests/models.py that it is part of."""
    from graph2torch.recognise import recognise
    from tests.models import FAMILIES, save_pair, tiny_policy

    found: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for family, arguments in FAMILIES.items():
            path, _ = save_pair(Path(folder), tiny_policy(**arguments), name=family)
            for rule in {block.rule for block in recognise(path).spec.blocks}:
                found.setdefault(rule, []).append(family)
    found["discrete_distribution"], found["hybrid_distribution"] = ["discrete", "hybrid"], ["hybrid"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rules", nargs="*")
    parser.add_argument("--most", type=int, default=2, help="changes of one kind in one file (dropped checks: all)")
    parser.add_argument("--kind", help="changes of this kind alone")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--control", action="store_true", help="first see that each rule's tests pass as it is")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    os.chdir(ROOT)
    found: list[Mutant] = []
    for path in sorted((ROOT / "rules" / FAMILY).glob("*/*.py")):
        name = path.relative_to(ROOT / "rules" / FAMILY).as_posix()
        if not options.rules or name.split("/")[0] in options.rules:
            found += chosen([m for m in mutants(name, path.read_text(encoding="utf-8")) if valid(m)], options.most)
    found = [m for m in found if options.kind in (None, m.kind)]
    if options.list:
        for m in found:
            print(f"{m.path}:{m.line} {m.kind}: {m.before} → {m.after}")
        print(len(found))
        return 0
    for name in ("torch", "onnxruntime", "hypothesis", "graph2torch.build", "graph2torch.judge.verify"):
        importlib.import_module(name)  # once, before the processes part
    families, results, start = users(), [], time.time()
    for rule in dict.fromkeys(m.rule for m in found):
        name = f"{rule}/{'rule' if (ROOT / 'rules' / FAMILY / rule / 'rule.py').exists() else 'layer'}.py"
        same = Mutant(name, 0, "none", "", "", (ROOT / "rules" / FAMILY / name).read_text(encoding="utf-8"))
        if options.control and (by := tried(same, families.get(rule, ()))):
            raise RuntimeError(f"{rule} as it is fails {by}")
    for number, mutant in enumerate(found, 1):
        places = [p for p in EQUIVALENT if p[:2] == (mutant.path, mutant.kind) and p[2] in mutant.before]
        why = EQUIVALENT[places[0]] if places else ""
        by = "" if why else tried(mutant, families.get(mutant.rule, ()))
        results.append((mutant, by, why))
        verdict = f"equivalent: {why}" if why else f"caught by {by}" if by else "SURVIVED"
        print(f"{number}/{len(found)} {mutant.path}:{mutant.line} {mutant.kind}: {mutant.before} → {mutant.after}: {verdict}", flush=True)
    summary = table(results)
    print(summary)
    print(f"{time.time() - start:.0f} s")
    if options.write:
        options.write.write_text(page(summary, results), encoding="utf-8")
    return 1 if any(not by and not why for _, by, why in results) else 0


def valid(mutant: Mutant) -> bool:
    try:
        compile(mutant.source, mutant.path, "exec")
    except SyntaxError:
        return False
    return True


def table(results: Sequence[tuple[Mutant, str, str]]) -> str:
    """rule, then by kind how many were caught of how many."""
    kinds = list(dict.fromkeys(m.kind for m, _, _ in results))
    of = Counter((m.path, m.kind) for m, _, why in results if not why)
    caught = Counter((m.path, m.kind) for m, by, _ in results if by)
    rows = ["| file | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 1) + "|"]
    for path in dict.fromkeys(m.path for m, _, _ in results):
        rows.append(f"| {path} | " + " | ".join(f"{caught[path, k]} of {of[path, k]}" if of[path, k] else "" for k in kinds) + " |")
    sums = [(sum(n for (_, kind), n in c.items() if kind == k), k) for c in (caught, of) for k in kinds]
    together = [f"{sums[i][0]} of {sums[i + len(kinds)][0]}" for i in range(len(kinds))]
    return "\n".join([*rows, "| together | " + " | ".join(together) + " |"])


def page(summary: str, results: Sequence[tuple[Mutant, str, str]]) -> str:
    survived = [f"- `{m.path}:{m.line}`, {m.kind}: `{m.before}` → `{m.after}`" for m, by, why in results if not by and not why]
    same = [f"- `{m.path}:{m.line}`: `{m.before}` → `{m.after}`: {why}" for m, _, why in results if why]
    return "\n".join([
        "# Mutations", "", (__doc__ or "").strip().splitlines()[0], "",
        "Written by `python -m tests.mutations --write docs/mutations.md`: how many changes the tests noticed, of how many made.", "", summary, "",
        "Survived:", "", *(survived or ["- none"]), "", "Without an effect, so not tried:", "", *(same or ["- none"]), "",
    ])  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
