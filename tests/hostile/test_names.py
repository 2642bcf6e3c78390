"""Names that try to be code, or to act on the terminal, in every place a file has for them.

Each policy must be built and proved as any other; the emitted source must compile, run and give back the names as they
are; nothing of them may have run, which would have left a file called `executed`.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph2torch.module import import_source
from tests.commands import check_trouble, left_over, run, unsafe
from tests.models import save_pair, tiny_checkpoint, tiny_policy
from tests.pages import check_page

CODE = '__import__("pathlib").Path("executed").touch()'
NAMES = [
    # ends of texts, and what is code between them
    *('"', "'", '"""', "'''", f'"""\n{CODE}\n"""', f'"); {CODE}; ("', f"'); {CODE}; ('", f"\n{CODE}\n", f"\r{CODE}\r", f"# {CODE}"),
    *("{x}", "{0}", "{" + CODE + "}", "%s%n", "\\", "\\n", '\\"', "\\N{DIGIT ONE}", "$(touch executed)", "`touch executed`"),
    # what acts on terminals, editors and systems
    *(
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07",
        "\r",
        "\t",
        "\0",
        "\x7f",
        "\x9b31m",
        "\u202egnp.exe",
        "\u2066",
        "\ufeff",
        "\u2028",
        "\ud7ff",
    ),
    *("../../etc/passwd", "/etc/passwd", "C:\\x", "-o", "--force", "[bold red]markup[/]", "<script>", "&amp;", " ", "a b"),
    # no identifiers
    *("Möwe", "日本語", "😀", "ﬁ", "42", "0", "1e5", "a.b", "a_b", "a-b", "a/b"),
    # names of Python, of torch and of the emitted source
    *("class", "None", "True", "match", "lambda", "__class__", "__init__", "__builtins__", "_fields", "_asdict", "count", "index"),
    *("self", "torch", "nn", "Tensor", "Path", "namedtuple", "load_file", "print", "str", "type", "super", "input", "float"),
    *("noise", "Noise", "Outputs", "Policy", "policy", "METADATA", "OUTPUT_NAMES", "CHECKPOINT", "load", "path", "device", "dtype"),
    *("mu", "sigma", "sampled", "log_sigma", "z", "body", "normalizer", "x", "name", "value", "state", "theirs", "layer"),
    *("forward", "act", "distribution", "training", "state_dict", "register_buffer", "eval", "to", "half", "T_destination"),
    "x" * 100_000,
]


def rename(model: onnx.ModelProto, names: Mapping[str, str]) -> None:
    """Calls values otherwise, everywhere."""
    for node in model.graph.node:
        for values in (node.input, node.output):
            values[:] = [names.get(v, v) for v in values]
    for value in (*model.graph.initializer, *model.graph.input, *model.graph.output):
        value.name = names.get(value.name, value.name)


def inner_values(model: onnx.ModelProto) -> list[str]:
    ends = {v.name for v in (*model.graph.input, *model.graph.output)}
    return [o for n in model.graph.node for o in n.output if o not in ends]


def inputs() -> onnx.ModelProto:
    model = tiny_policy(observations=[1] * len(NAMES), normalize=False)
    rename(model, {f"obs_{i}": name for i, name in enumerate(NAMES)})
    return model


def fixed_outputs() -> onnx.ModelProto:
    model = tiny_policy()
    for i, name in enumerate(NAMES):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray([i / 2], np.float32), name))
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]))
    return model


def computed_outputs() -> onnx.ModelProto:
    model = tiny_policy()
    mu = next(n for n in model.graph.node if n.op_type == "RandomNormalLike").input[0]
    for name in NAMES:
        model.graph.node.append(helper.make_node("Identity", [mu], [name]))
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2]))
    return model


def values_inside() -> onnx.ModelProto:
    model = tiny_policy(observations=[1] * 40)
    values = inner_values(model)[: len(NAMES)]
    rename(model, dict(zip(values, NAMES, strict=False)))
    return model


def initializers() -> onnx.ModelProto:
    """With the endings that the checkpoint's keys are guessed from."""
    model = tiny_policy(layers=40, hidden=2)
    modules = dict.fromkeys(t.name.removesuffix(".weight") for t in model.graph.initializer if t.name.endswith(".weight"))
    hostile = dict(zip(modules, NAMES, strict=False))
    rename(
        model,
        {
            t.name: f"{hostile[module]}.{kind}"
            for t in model.graph.initializer
            if (module := (parts := t.name.rpartition("."))[0]) in hostile and (kind := parts[2])
        },
    )
    return model


def nodes() -> onnx.ModelProto:
    model = tiny_policy(observations=[1] * 40)
    for name, node in zip(NAMES, model.graph.node, strict=False):
        node.name = name
    return model


def everything_else() -> onnx.ModelProto:
    model = tiny_policy()
    text = "".join(NAMES[:-1])
    model.producer_name = model.producer_version = model.domain = model.doc_string = text
    model.graph.name = model.graph.doc_string = text
    helper.set_model_props(model, {name: name for name in NAMES})
    for node, name in zip(model.graph.node, NAMES, strict=False):
        node.doc_string = name
    for value in (*model.graph.input, *model.graph.output):
        value.doc_string = text
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = text
    return model


def single_operators() -> onnx.ModelProto:
    """No policy of a known family: every node becomes a line of its own."""
    nodes = [helper.make_node("Relu", [name], [f"{name}/relu"], name) for name in NAMES]
    nodes.append(helper.make_node("Concat", [f"{name}/relu" for name in NAMES], ["all"], axis=1))
    nodes += [helper.make_node("Tanh", ["all"], [f"{name}/out"]) for name in NAMES]
    weight = numpy_helper.from_array(np.ones((len(NAMES), 2), np.float32), CODE)
    nodes.append(helper.make_node("MatMul", ["all", CODE], ["continuous_actions"]))
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 1]) for name in NAMES]
    made = [helper.make_tensor_value_info(f"{name}/out", TensorProto.FLOAT, ["batch", len(NAMES)]) for name in NAMES]
    made.append(helper.make_tensor_value_info("continuous_actions", TensorProto.FLOAT, ["batch", 2]))
    return helper.make_model(
        helper.make_graph(nodes, "g", given, made, [weight]), opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    )


def check_folder(folder: Path, model: onnx.ModelProto) -> Any:
    """The emitted source is ASCII but for what people may read, compiles, runs, and knows the names as they are."""
    source = (folder / "model.py").read_bytes().decode("utf-8")
    assert not unsafe(source)
    check_page((folder / "report.html").read_text("utf-8"))
    for text in (source, (folder / "report.json").read_text("utf-8"), (folder / "report.html").read_text("utf-8")):
        assert len(text) < 2_000_000
    json.loads((folder / "report.json").read_text("utf-8"))
    tree = ast.parse(source)
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "__import__"]
    before = left_over(Path.cwd())
    module = import_source(source)
    assert list(module.OUTPUT_NAMES.values()) == [o.name for o in model.graph.output]
    policy = module.load(folder / "weights.safetensors")
    import torch

    sizes = [v.type.tensor_type.shape.dim[1].dim_value for v in model.graph.input]
    observations = [torch.ones(3, size) for size in sizes]
    found = policy(*observations)
    assert len(found) == len(model.graph.output)
    assert not hasattr(policy, "act") or policy.act(*observations).shape == (3, 2)
    assert left_over(Path.cwd()) == before and "executed" not in before
    return found


POSITIONS: Iterable[Callable[[], onnx.ModelProto]] = (
    inputs,
    fixed_outputs,
    computed_outputs,
    values_inside,
    initializers,
    nodes,
    single_operators,
    everything_else,
)


@pytest.mark.parametrize("position", POSITIONS)
def test_built_proved_and_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, position: Callable[[], onnx.ModelProto]) -> None:
    monkeypatch.chdir(tmp_path)
    model = position()
    save_pair(tmp_path, model)
    result = run("build", "Tiny.onnx", "-o", "out")
    assert result.status == 0, result.err
    assert not unsafe(result.out) and not result.err
    assert json.loads((tmp_path / "out" / "report.json").read_text())["level"] == "graph"
    found = check_folder(tmp_path / "out", model)
    if position is fixed_outputs:
        assert [float(x) for x in found[5:]] == [i / 2 for i in range(len(NAMES))]
    for arguments in (["inspect", "Tiny.onnx"], ["inspect", "Tiny.onnx", "--json"], ["rules", "--explain", "Tiny.onnx"]):
        result = run(*arguments)
        assert result.status == 0, result.err
        assert not unsafe(result.out) and not result.err
        assert len(result.out) < 2_000_000
    assert left_over(tmp_path) == ["Tiny.onnx", "out"]


def test_keys_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by what they hold; the emitted source refers to them, and loads the next checkpoint by them."""
    monkeypatch.chdir(tmp_path)
    model = tiny_policy(layers=40, hidden=2)
    checkpoint = tiny_checkpoint(model)
    policy = checkpoint["Policy"]
    modules = dict.fromkeys(key.removesuffix(".weight") for key in policy if key.endswith(".weight"))
    hostile = dict(zip(modules, NAMES, strict=False))
    for key in list(policy):
        module, _, kind = key.rpartition(".")
        if module in hostile:
            policy[f"{hostile[module]}.{kind}"] = policy.pop(key)
    checkpoint.update({name: {} for name in NAMES if name != "Policy"})
    policy.update(dict.fromkeys(NAMES, "no tensor"))
    save_pair(tmp_path, model, checkpoint)
    result = run("build", "Tiny.onnx", "Tiny.pt", "-o", "out")
    assert result.status == 0, result.err
    assert not unsafe(result.out) and not result.err
    check_folder(tmp_path / "out", model)
    module = import_source((tmp_path / "out" / "model.py").read_text("utf-8"))
    assert {place.removesuffix(".") for place in module.CHECKPOINT.values()} >= {hostile[m] for m in list(modules)[:20]}
    for arguments in (["inspect", "Tiny.pt"], ["inspect", "Tiny.onnx", "Tiny.pt"], ["inspect", "Tiny.pt", "--json"]):
        result = run(*arguments)
        assert result.status == 0, result.err
        assert not unsafe(result.out) and not result.err


FILES = [
    f'"""; {CODE}; """',
    f"\n{CODE}\n#",
    "Möwe 日本語",
    "\x1b[31mred\x1b[0m\u202e",
    "{x}%s\\N{DIGIT ONE}",
    "[bold]b[/]",
    "a.b.c",
    "x" * 200,
    "-o",
]


@pytest.mark.skipif(sys.platform == "win32", reason="its file names can't have these characters")
@pytest.mark.parametrize("name", FILES)
def test_file_and_behaviour_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """ML-Agents calls its files after the behaviour."""
    monkeypatch.chdir(tmp_path)
    name = name.replace("/", "_")
    model = tiny_policy()
    try:
        save_pair(tmp_path, model, tiny_checkpoint(model), name)
    except OSError:
        pytest.skip("the file system doesn't take this name")
    result = run("build", "--", f"{name}.onnx", f"{name}.pt")
    assert result.status == 0, result.err
    assert not unsafe(result.out) and not result.err
    assert left_over(tmp_path) == sorted([name, f"{name}.onnx", f"{name}.pt"])
    check_folder(tmp_path / name, model)
    again = run("build", "--", f"{name}.onnx", f"{name}.pt")
    assert again.status == 2 and "--force" in again.err
    assert not unsafe(again.err) and again.err.count("\n") == 1
    assert run("build", "--force", "--json", "--", f"{name}.onnx").status == 0
    result = run("inspect", "--", f"{name}.onnx", f"{name}.pt")
    assert result.status == 0
    assert not unsafe(result.out)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all file names are text")
def test_file_names_that_are_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They can be read; but safetensors couldn't open what is written under such a name."""
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"\xff\xfe")
    model = tiny_policy()
    save_pair(tmp_path, model, tiny_checkpoint(model), name)
    check_trouble(run("build", f"{name}.onnx", f"{name}.pt"), "'\\udcff\\udcfe'", "choose another with -o")
    assert run("build", f"{name}.onnx", f"{name}.pt", "-o", "out").status == 0
    check_folder(tmp_path / "out", model)
    result = run("inspect", f"{name}.onnx")
    assert result.status == 0
    assert not unsafe(result.out)
