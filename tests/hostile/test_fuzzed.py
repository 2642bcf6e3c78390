"""What `python -m tests.fuzz` found, each find as small as it can be; and that the fuzzer itself sees what it looks for."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph2torch.build import build_policy
from graph2torch.errors import ModelError, RuleError
from graph2torch.match import parse_pattern
from graph2torch.operators import Operator, read_functions, table
from tests.commands import check_trouble, run, unsafe
from tests.fuzz.case import WrongError
from tests.fuzz.equality import check_bits
from tests.fuzz.kinds import KINDS, check_source
from tests.models import save_pair, tiny_checkpoint, tiny_policy


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# ---------------------------------------------------------------------------------------------- finds: graphs
def test_nodes_of_one_name_print_nothing_of_a_librarys(capfd: pytest.CaptureFixture[str]) -> None:
    """onnx-graphsurgeon tells of them on stdout, with the names as they are."""
    model = tiny_policy(opset=11)
    for node in [n for n in model.graph.node if n.op_type == "Constant"][:2]:  # onnxruntime takes these
        node.name = "twice\x1b[31m"
    save_pair(Path.cwd(), model)
    result = run("build", "Tiny.onnx", "-o", "out", "--json")
    assert result.status == 0
    json.loads(result.out)
    assert capfd.readouterr().out == ""


def test_a_draw_may_not_make_an_invalid_graph_valid() -> None:
    """Its draws become inputs of another type; the file itself is what onnxruntime has to accept."""
    model = tiny_policy()
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 2)), "doubles"))
    model.graph.node.append(helper.make_node("RandomNormalLike", ["doubles"], ["drawn"]))
    model.graph.output.append(helper.make_tensor_value_info("drawn", TensorProto.FLOAT, [1, 2]))
    path, _ = save_pair(Path.cwd(), model)
    with pytest.raises(ModelError, match="refuses the original"):
        build_policy(path)


def test_a_weight_that_is_an_output_too_is_still_read_directly() -> None:
    """torch would put an Identity before it, which onnxruntime doesn't look through without its optimiser: other bits for one agent."""
    model = tiny_policy()
    weight = next(t for t in model.graph.initializer if t.name.endswith("0.weight"))
    model.graph.output.append(helper.make_tensor_value_info(weight.name, TensorProto.FLOAT, list(weight.dims)))
    path, _ = save_pair(Path.cwd(), model)
    rebuilt = build_policy(path).rebuilt
    constants = {t.name for t in rebuilt.graph.initializer}
    products = [n for n in rebuilt.graph.node if n.op_type == "Gemm"]
    assert products and all(n.input[1] in constants and n.input[2] in constants for n in products)
    assert weight.name in {o.name for o in rebuilt.graph.output}
    check_bits(model, rebuilt, "graph")


@pytest.mark.parametrize(("name", "value"), [("mean", 3.0), ("scale", 2.0), ("seed", 1.0)])
def test_graphs_that_draw_otherwise_are_not_equal(name: str, value: float) -> None:
    """diff runs them with the same noise for both, which would hide it."""
    model = tiny_policy()
    save_pair(Path.cwd(), model, name="A")
    draw = next(n for n in model.graph.node if n.op_type == "RandomNormalLike")
    draw.attribute.append(helper.make_attribute(name, value))
    save_pair(Path.cwd(), model, name="B")
    result = run("diff", "A.onnx", "B.onnx", "--json")
    assert result.status == 1, result
    found = json.loads(result.out)
    assert not found["equal"] and name in found["verdict"], found["verdict"]


def test_draws_of_a_graph_in_any_order_are_found() -> None:
    """Nodes may stand before what they read; onnxruntime sorts them as well."""
    model = tiny_policy(branches=(3, 2))
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in reversed(model.graph.node)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    path, _ = save_pair(Path.cwd(), model)
    assert build_policy(path).verification.level == "graph"


def test_a_gaussian_around_a_constant() -> None:
    """Its sample reads no value that is called sigma."""
    model = tiny_policy()
    product = next(n for n in model.graph.node if n.op_type == "Mul" and "/RandomNormalLike_output_0" in n.input)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 2), np.float32), "fixed"))
    product.input[1] = "fixed"
    save_pair(Path.cwd(), model)
    result = run("inspect", "Tiny.onnx")
    assert result.status == 0, result.err


def test_complex_numbers_are_no_policys(tmp_path: Path) -> None:
    """JSON can't write them, and as real numbers they would lose half of themselves."""
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    for key in ("version_number", next(key for key in checkpoint["Policy"] if key.endswith("running_mean"))):
        checkpoint["Policy"][key] = checkpoint["Policy"][key].cfloat()
        save_pair(tmp_path, model, checkpoint)
        for files in (["Tiny.pt"], ["Tiny.onnx", "Tiny.pt"]):
            result = run("inspect", *files, "--json")
            assert result.status == 0, result.err
            assert key in result.out


def test_a_source_whose_load_gives_no_policy_is_named() -> None:
    """Cut off before its last line it is still Python."""
    save_pair(Path.cwd(), tiny_policy())
    assert run("build", "Tiny.onnx", "-o", "out").status == 0
    source = Path("out/model.py")
    lines = source.read_text("utf-8").splitlines()
    source.write_text("\n".join([*lines[:-1], "    policy.eval()"]), "utf-8")
    result = run("run", "out")
    assert result.status == 2
    assert "model.py gives a NoneType" in result.err and "build it again" in result.err


# ---------------------------------------------------------------------------------------------- finds: rules
PATTERNS = {
    "a name of escapes": 'Mine (x) => ("\x1b[31m") { y = Relu (x) }',
    "a Constant without a value": "Mine (x) => (y) { k = Constant () \n y = Add (x, k) }",
    "a Constant of another kind": "Mine (x) => (y) { k = Constant <value_float = 1.0> () \n y = Add (x, k) }",
    "a number out of range": "Mine (x) => (y) { y = Elu <alpha = 1e999999> (x) }",
    "an integer out of range": "Mine (x) => (y) { y = Concat <axis = 99999999999999999999999> (x) }",
    "a graph": "Mine (x) => (y) { y = If <then_branch = g () => () {}> (x) }",
    "a tensor of texts": 'Mine (x) => (y) { k = Constant <value = string[1] {"a"}> () \n y = Add (x, k) }',
    "a node that makes nothing": "Mine (x) => (y) { y = Relu (x) \n Relu (x) }",
    "many names from nowhere": "Mine (x) => (y) { y = Sum (" + ", ".join(f"v{i}" for i in range(2000)) + ") }",
    "no text": "Mine (x) => (y) { y = Relu (x) } \udcff",
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_that_make_no_sense(pattern: str) -> None:
    with pytest.raises(RuleError) as found:
        parse_pattern(PATTERNS[pattern], "rule.py", ["\x1b[31m"], "\u202e")
    assert not unsafe(str(found.value)) and len(str(found.value)) < 1500


@pytest.mark.parametrize("plain", ["(", "yield x", "x; y", "\0", "[" * 300, "x\x1b[31m"])
def test_rows_of_a_table_that_are_no_expressions(tmp_path: Path, plain: str) -> None:
    with pytest.raises(RuleError, match="is not a Python expression") as found:
        table("own", [Operator("Relu", plain)], tmp_path / "layer.py")
    assert not unsafe(str(found.value))


@pytest.mark.parametrize("source", ["def (", "\0", "(" * 500])
def test_a_layer_that_is_not_python(tmp_path: Path, source: str) -> None:
    (tmp_path / "layer.py").write_text(source)
    with pytest.raises(RuleError, match="is not Python"):
        read_functions(tmp_path / "layer.py")


def test_marks_of_a_layer_that_name_no_operator(tmp_path: Path) -> None:
    (tmp_path / "layer.py").write_text("@node()\ndef f(x): pass\n\n@node\ndef g(x): pass\n\n@node(name)\ndef h(x): pass\n")
    assert not read_functions(tmp_path / "layer.py")


@pytest.mark.parametrize(
    ("function", "made", "words"),
    [("detect", 1 / 2, ""), ("describe", None, "PolicySpec"), ("lift", None, "a Block")],
)
def test_what_rules_give_back_is_checked(monkeypatch: pytest.MonkeyPatch, function: str, made: object, words: str) -> None:
    from graph2torch.rulebook import load_rules

    book = load_rules()
    target = next(rule for rule in book.rules if rule.name == "silu").module if function == "lift" else book.families[0][1]
    monkeypatch.setattr(target, function, lambda *_: made)
    save_pair(Path.cwd(), tiny_policy())
    result = run("inspect", "Tiny.onnx")
    if words:
        check_trouble(result, words)
    else:  # it only counts whether it is true
        assert result.status == 0


def test_a_family_that_can_not_tell_a_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from graph2torch.rulebook import load_rules

    def broken(*_: object) -> None:
        raise KeyError("\x1b[31m")

    monkeypatch.setattr(load_rules().families[0][1], "detect", broken)
    save_pair(Path.cwd(), tiny_policy())
    check_trouble(run("inspect", "Tiny.onnx"), "mlagents", "KeyError", "report this model")


def test_a_family_that_can_not_describe_a_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from graph2torch.rulebook import load_rules

    def broken(*_: object) -> None:
        raise KeyError("sigma")

    monkeypatch.setattr(load_rules().families[0][1], "describe", broken)
    save_pair(Path.cwd(), tiny_policy())
    check_trouble(run("inspect", "Tiny.onnx"), "mlagents", "KeyError", "report this model")


# ---------------------------------------------------------------------------------------------- the fuzzer itself
def test_a_case_is_the_same_every_time() -> None:
    for name in ("onnx-bytes", "onnx-graphs", "patterns", "tables", "observations", "names", "file-names"):
        first, second = ([KINDS[name].make(random.Random(f"{name} 1 {n}")).files for n in range(5)] for _ in range(2))
        assert first == second
        assert len({repr(files) for files in first}) > 1


def test_another_graph_called_equal_is_seen() -> None:
    model = tiny_policy()
    other = onnx.ModelProto.FromString(model.SerializeToString())
    weight = next(t for t in other.graph.initializer if t.name.endswith("0.weight"))
    array = numpy_helper.to_array(weight).copy()
    array[0] = np.nextafter(array[0], np.float32(np.inf))
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    check_bits(model, model, "graph")
    check_bits(model, other, "close")  # promises nothing
    with pytest.raises(WrongError, match="called graph"):
        check_bits(model, other, "graph")
    with pytest.raises(WrongError, match="another"):
        check_bits(model, other, "bytes")


@pytest.mark.parametrize("source", ["x = 1\n__import__('os')", "eval('1')", "f'{exec(1)}'", "os.system('x')", "x = '\x1b'"])
def test_code_in_a_source_is_seen(source: str) -> None:
    check_source("policy.eval()\nx = '__import__(1)'  # __import__(1)\n")
    with pytest.raises(WrongError, match=r"model\.py"):
        check_source(source)


FAULTS = r"""
import os, pathlib, sys, tempfile, random, subprocess
from tests.fuzz.case import Case, WrongError
from tests.fuzz.worker import Watch, one
from graph2torch.errors import ModelError

def raises(error):
    def act(folder):
        raise error
    return act

def leaves(folder):
    pathlib.Path("left").touch()
    return "read"

def half(folder):
    pathlib.Path("out").mkdir()
    raise ModelError("refused, with half an output")

FAULTS = {
    "fine": lambda folder: "read",
    "told": raises(ModelError("what, where, what to do")),
    "escaped": raises(KeyError("x")),
    "exits": raises(SystemExit(0)),
    "wrong": raises(WrongError("half")),
    "unsafe": raises(ModelError("a \x1b[31m name")),
    "lines": raises(ModelError("two\nlines")),
    "long": raises(ModelError("x" * 5000)),
    "leaves": leaves,
    "half": half,
    "outside": lambda folder: open("../outside", "w").close() or "read",
    "beyond": lambda folder: open(folder / ".." / "beyond", "ab").close() or "read",
    "runs": lambda folder: subprocess.run(["true"]) and "read",
    "shell": lambda folder: os.system("true") or "read",
    "moves": lambda folder: os.rename(folder / "given", folder.parent / "moved") or "read",
    "grows": lambda folder: "read" if bytearray(b"1") * 2**28 else "",
}
scratch = pathlib.Path(tempfile.mkdtemp())
watch = Watch(scratch / "case")
with open(scratch / "faults", "w") as faults:
    for name, act in FAULTS.items():
        outcome, _ = one(lambda rng: Case({"given": b"1"}, act, ("out",)), random.Random(1), watch, scratch / "case", faults, 2**27)
        print(name, outcome)
"""


def test_every_kind_of_fault_is_seen() -> None:
    """In a process of its own: an audit hook stays for good."""
    line = [sys.executable, "-c", FAULTS]
    result = subprocess.run(line, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert result.returncode == 0, result.stderr
    found = dict(row.split(" ", 1) for row in result.stdout.splitlines())
    assert found == {
        "fine": "read",
        "told": "ModelError",
        "escaped": "FAILED: KeyError",
        "exits": "FAILED: SystemExit",
        "wrong": "FAILED: WrongError",
        **dict.fromkeys(("unsafe", "lines", "long"), "FAILED: message"),
        **dict.fromkeys(("leaves", "half"), "FAILED: left behind"),
        **dict.fromkeys(("outside", "beyond", "runs", "shell", "moves"), "FAILED: audit"),
        "grows": "FAILED: memory",
    }


def test_a_run_counts_and_a_crash_and_a_hang_are_told_apart(tmp_path: Path) -> None:
    """The worker ends where a case ends it; the next one goes on behind it."""
    script = r"""
import os, pathlib, sys, time
from tests.fuzz import __main__ as main, kinds, worker
from tests.fuzz.case import Case, Kind
worker.LIMIT = 1.0
def make(rng):
    number = rng.randrange(4)
    return Case({"given": b""}, lambda folder: os.abort() if number == 0 else time.sleep(30) if number == 1 else "read")
kinds.KINDS["patterns"] = Kind(make, 1)
sys.exit(main.main())
"""
    (tmp_path / "faulty.py").write_text(script)
    root = Path(__file__).parents[2]
    line = [sys.executable, str(tmp_path / "faulty.py"), "--only", "patterns", "--cases", "6", "--keep", str(tmp_path / "kept")]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    result = subprocess.run(line, capture_output=True, text=True, cwd=root, check=False, env=environment)
    assert result.returncode == 1, result.stderr
    assert "6 cases" in result.stdout
    kept = {p.name: (p / "why.txt").read_text().splitlines()[0] for p in (tmp_path / "kept").iterdir()}
    expected = {}
    for number in range(6):
        drawn = random.Random(f"patterns 1 {number}").randrange(4)
        if drawn < 2:
            expected[f"patterns-1-{number}"] = "FAILED: crash (-6)" if drawn == 0 else "FAILED: hang"
    assert len(expected) > 1 and kept == expected
