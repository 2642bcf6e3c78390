"""report.html: what it says, whether it is one file of known parts, and whether names of a model can be more than text in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph2torch.build import build, build_policy
from graph2torch.output import MADE
from graph2torch.report.facts import facts
from graph2torch.report.folder import read_tensors
from graph2torch.report.page import breakable, embedded, report_page, sentence
from tests.commands import check_trouble, left_over, run
from tests.models import FAMILIES, save_pair, tiny_checkpoint, tiny_policy
from tests.pages import check_page

HOSTILE = [
    *("<script>document.title='executed'</script>", "</script><script>executed=1</script>", "</style><script>executed=1</script>"),
    *("<img src=x onerror=executed=1>", '"><svg/onload=executed=1>', "' onmouseover='executed=1", '" onfocus="executed=1" autofocus="'),
    *("</title><script>executed=1</script>", "</text></svg><script>executed=1</script>", "]]><script>executed=1</script>", "<!-- x"),
    *("<a href='javascript:executed=1'>x</a>", "javascript:executed=1", "#block-0", "L1", "<base href=http://127.0.0.1:9/>"),
    *("{{ 7*7 }}", "{% raw %}", "{# x #}", "${executed=1}", "%3Cscript%3E", "&lt;script&gt;", "&#60;b>", "\\u003cscript>"),
    *("x;}*{display:none}", "url(http://127.0.0.1:9/x)", "@import 'http://127.0.0.1:9/x'", "expression(executed=1)"),
    *(
        "\u202egnp.exe",
        "\u2066x\u2069",
        "\u200bx",
        "\u2028executed=1",
        "\ufeff",
        "\x00",
        "\x1b[31m",
        "a\r\nb",
        "\t",
        "<",
        ">",
        "&",
        "'",
        '"',
        "`",
    ),
    *("__proto__", "constructor", "toString", "日本語", "😀", "\ud7ff", "x" * 5000),
]


def hostile_policy() -> onnx.ModelProto:
    """Every name that a page may show is one of HOSTILE: inputs, outputs, nodes, values inside, initializers, and what it says of itself."""
    model = tiny_policy(observations=[1] * 40, layers=2, hidden=4)
    taken: dict[str, str] = {}

    def other(name: str) -> str:
        if name not in taken:
            number, place = divmod(len(taken), len(HOSTILE))
            taken[name] = HOSTILE[place] + str(number or "")
        return taken[name]

    for i, node in enumerate(model.graph.node):
        node.name = HOSTILE[-i % len(HOSTILE)] + str(i // len(HOSTILE) or "")
        for values in (node.input, node.output):
            values[:] = [other(v) for v in values]
    for value in (*model.graph.initializer, *model.graph.input, *model.graph.output):
        value.name = other(value.name)
    for i, name in enumerate(HOSTILE):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray([i / 2], np.float32), f"{name}!"))
        model.graph.output.append(helper.make_tensor_value_info(f"{name}!", TensorProto.FLOAT, [1]))
    model.producer_name, model.producer_version = HOSTILE[0], HOSTILE[3]
    return model


def generic_policy() -> onnx.ModelProto:
    nodes = [helper.make_node("Relu", [name], [f"{name}/relu"], name) for name in HOSTILE]
    nodes.append(helper.make_node("Concat", [f"{name}/relu" for name in HOSTILE], ["all"], HOSTILE[0] + "1", axis=1))
    nodes.append(helper.make_node("MatMul", ["all", HOSTILE[1] + "w"], ["out"], HOSTILE[2] + "1"))
    weight = numpy_helper.from_array(np.ones((len(HOSTILE), 2), np.float32), HOSTILE[1] + "w")
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 1]) for name in HOSTILE]
    made = [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", 2])]
    graph = helper.make_graph(nodes, "g", given, made, [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_single_operators_are_told_from_layers(tmp_path: Path) -> None:
    read, _ = check_page(made_page(tmp_path, generic_policy()))
    assert len([given for tag, given in read.tags if tag == "a" and "single" in str(given.get("class")).split()]) == len(HOSTILE) + 2
    assert "Dotted ones are single operators" in read.text and f"Relu {len(HOSTILE)} as single operators" in read.text
    assert "model.py against the original: bit-equal" in read.text


def made_page(folder: Path, model: onnx.ModelProto, checkpoint: Mapping[str, Any] | None = None, name: str = "Tiny") -> str:
    save_pair(folder, model, checkpoint, name)
    build(folder / f"{name}.onnx", folder / f"{name}.pt" if checkpoint is not None else None, folder / "out")
    return (folder / "out" / "report.html").read_text("utf-8")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(tmp_path: Path, family: str) -> None:
    """All blocks are drawn and told, every tensor with its histogram, and each link goes somewhere."""
    model = tiny_policy(**FAMILIES[family])
    save_pair(tmp_path, model, tiny_checkpoint(model))
    made = build(tmp_path / "Tiny.onnx", tmp_path / "Tiny.pt", tmp_path / "out")
    html = (tmp_path / "out" / "report.html").read_text("utf-8")
    read, data = check_page(html)
    blocks = made.spec.blocks
    boxes = [given for tag, given in read.tags if tag == "a" and "data-block" in given and "box" in str(given.get("class"))]
    assert [given["href"] for given in boxes] == [f"#block-{i}" for i in range(len(blocks))]
    assert {f"block-{i}" for i in range(len(blocks))} <= set(read.ids)
    assert len(data["keys"]) == len(blocks)
    assert all(str(i) in data["lines"] for i in range(len(blocks)))
    for block in blocks:
        assert block.role in read.text
    for name, meaning in [(i.name, i.meaning) for i in made.spec.inputs] + [(o.name, o.meaning) for o in made.spec.outputs]:
        assert name in read.text and meaning in read.text
    for tensor in made.bindings.tensors:
        assert tensor.path in read.text
    assert made.recognised.model.sha256 in read.text and made.source.splitlines()[-1].strip() in read.text
    assert len(html) < 2**21


def test_the_page_says_what_the_report_says(tmp_path: Path) -> None:
    html = made_page(tmp_path, model := tiny_policy(), tiny_checkpoint(model))
    told = json.loads((tmp_path / "out" / "report.json").read_text())
    read, _ = check_page(html)
    assert told["equal"] is True and "Equal" in read.text and "Different" not in read.text
    compared = sum(f["compared"] for f in told["verification"]["rebuilt"])
    assert f"all {compared:,} numbers bit-equal" in read.text
    assert told["reason"] in read.text


def test_where_a_weight_comes_from_and_what_is_left_out(tmp_path: Path) -> None:
    """A std within rounding isn't called bit-equal; a checkpoint's name is whole in the table; inert nodes are named; so is what is bit-equal."""
    made = build_policy("assets/Huggy.onnx", "assets/Huggy.pt")
    document = facts(made, {})
    tensors = {"normalizer.normalization_steps": np.asarray(2_000_050)}
    read, _ = check_page(report_page(document, made.source, tensors))
    rows = dict(re.findall(r"(\S+)\s*← (.*?)\s*\[", read.text))
    assert rows["body.0.weight"] == "network_body._body_endoder.seq_layers.0.weight"
    assert rows["normalizer.std"].endswith("normalizer.running_variance, made by sqrt(running_variance / normalization_steps)")
    origins = [text for text in read.texts["td"] if text.startswith(("bit-equal in both", "both, within rounding"))]
    assert origins.count("both, within rounding") == 1 and origins.count("bit-equal in both") == 10
    nodes = document["inert_nodes"]
    assert len(nodes) == document["coverage"]["inert"] == 3
    assert all(made.spec.graph.file_nodes[n["index"]].name == n["name"] and n["name"] in read.text for n in nodes)
    equal = [f["output"] for f in document["verification"]["torch"] if not f["differing"]]
    assert equal and f"Bit-equal: {', '.join(equal)}." in read.text


def test_a_sentence_begins_with_a_capital_unless_with_a_name() -> None:
    assert [sentence(text) for text in ("the weights are", "hidden layer 1: x", "onnxruntime gave", "sqrt(variance + eps)", "model.py is", "'x'", "")] == [
        "The weights are", "Hidden layer 1: x", "onnxruntime gave", "sqrt(variance + eps)", "model.py is", "'x'", "",
    ]  # fmt: skip


def test_what_the_page_does_not_know_it_says(tmp_path: Path) -> None:
    """Without a checkpoint: tensors that were derived come from no file, and no column is said to have changed; without verify: how to get it."""
    read, _ = check_page(made_page(tmp_path, tiny_policy()))
    assert read.texts["td"].count("derived") == 2 and "both" not in read.texts["dt"]
    assert "only a checkpoint tells" in read.text and "marked ×" not in read.text
    assert "made from Tiny.onnx and the weights in it" in " ".join(read.text.split())
    assert read.text.count("graph2torch report DIR --verify") == 2


def test_a_long_name_breaks_behind_dots_and_slashes() -> None:
    assert str(breakable("/a.b<c>/d.")) == "/<wbr>a.<wbr>b&lt;c&gt;/<wbr>d."
    assert str(breakable("layers.0.weight at -1.25")) == "layers.0.<wbr>weight at -1.25"


def test_a_pair_that_drifted(tmp_path: Path) -> None:
    """Different in a word, and each tensor that drifted with how far."""
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    import torch

    key = next(k for k in checkpoint["Policy"] if k.endswith("seq_layers.0.weight"))
    checkpoint["Policy"][key] = torch.as_tensor(np.asarray(checkpoint["Policy"][key])) + 0.001
    save_pair(tmp_path, model, checkpoint)
    assert run("build", tmp_path / "Tiny.onnx", tmp_path / "Tiny.pt", "-o", tmp_path / "out").status == 1
    read, _ = check_page((tmp_path / "out" / "report.html").read_text("utf-8"))
    told = json.loads((tmp_path / "out" / "report.json").read_text())
    (drift,) = told["checkpoint"]["disagreements"]
    assert "Different" in read.text and told["equal"] is False
    assert f"{drift['elements']:,} of {drift['of']:,} numbers differ, by up to {drift['max_abs']:.3g}" in read.text
    assert [given["aria-label"] for _, given in read.tags if "drift" in str(given.get("class")) and "href" in given] == [
        "hidden layer 1, drift"
    ]
    assert run("build", tmp_path / "Tiny.onnx", tmp_path / "Tiny.pt", "-o", tmp_path / "out", "--force", "--weights", "onnx").status == 0
    read, _ = check_page((tmp_path / "out" / "report.html").read_text("utf-8"))
    assert "Equal" in read.text and "graph; the checkpoint differs" in read.text


@pytest.mark.parametrize("policy", [hostile_policy, generic_policy])
def test_hostile_names_are_text(tmp_path: Path, policy: Callable[[], onnx.ModelProto]) -> None:
    """The structure of the page is that of any other, and the names stand in it as they are, escapes for what can't be seen."""
    html = made_page(tmp_path, policy())
    read, _ = check_page(html)
    for name in HOSTILE[:4] + HOSTILE[6:8] + HOSTILE[16:19]:
        assert name in read.text, name
    for shown in ("\\u202egnp.exe", "\\u2066x\\u2069", "\\u200bx", "\\u2028executed=1", "\\x1b[31m", "\\x00"):
        assert shown in read.text, shown


@pytest.mark.parametrize("name", ["<script>executed=1<", "'\"><img src=x onerror=executed=1>", "\u202ex", "{{ 7*7 }}", "&amp;"])
def test_hostile_file_names(tmp_path: Path, name: str) -> None:
    from graph2torch.text import printable

    html = made_page(tmp_path, model := tiny_policy(), tiny_checkpoint(model), name)
    read, _ = check_page(html)
    assert printable(name) in read.text


def test_what_stands_in_a_script_element() -> None:
    text = embedded({"</script>": ["<!--", "]]>", "&", "\u2028", "é"]})
    assert text.isascii() and not set("<>&") & set(text)
    assert json.loads(text) == {"</script>": ["<!--", "]]>", "&", "\u2028", "é"]}


def test_a_generic_graph_of_many_nodes_stays_small(tmp_path: Path) -> None:
    """What is too large to draw is not drawn; the page says so."""
    nodes = [helper.make_node("Relu" if i % 2 else "Tanh", [f"v{i}"], [f"v{i + 1}"], f"node{i}") for i in range(600)]
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2]) for name in ("v0", "v600"))
    model = helper.make_model(helper.make_graph(nodes, "g", [given], [made]), opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    html = made_page(tmp_path, model)
    read, _ = check_page(html)
    assert "more than a drawing can show" in read.text and len(html) < 2**21


def test_entangled_graphs_are_told_without_a_drawing(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["v0"], ["v1"], "node0")]
    for i in range(1, 120):
        nodes.append(helper.make_node("Sum", [f"v{j}" for j in range(i + 1)], [f"v{i + 1}"], f"node{i}"))
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 2]) for name in ("v0", "v120"))
    graph = helper.make_graph(nodes, "g", [given], [made])
    read, _ = check_page(made_page(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)))
    assert "more than a drawing can show" in read.text and "block-119" in read.ids


# ---------------------------------------------------------------------------------------------- report DIR
def test_written_again_from_the_folder(tmp_path: Path) -> None:
    """The same page, byte for byte, whether the weights were in memory or are read again."""
    html = made_page(tmp_path, model := tiny_policy(), tiny_checkpoint(model))
    (tmp_path / "out" / "report.html").unlink()
    result = run("report", tmp_path / "out")
    assert result.status == 0, result.err
    assert (tmp_path / "out" / "report.html").read_text("utf-8") == html
    check_trouble(run("report", tmp_path / "out", "-o", tmp_path / "out" / "model.py"), "--force")
    assert run("report", tmp_path / "out", "-o", tmp_path / "other.html").status == 0
    assert (tmp_path / "other.html").read_text("utf-8") == html
    check_trouble(run("report", tmp_path / "out", "-o", tmp_path / "missing" / "x.html"), "missing")
    assert left_over(tmp_path) == ["Tiny.onnx", "Tiny.pt", "other.html", "out"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_of_16_bits(tmp_path: Path, dtype: str) -> None:
    """The histograms are of what was written; what rounding does is one of the facts."""
    model = tiny_policy(hidden=16)
    save_pair(tmp_path, model, tiny_checkpoint(model))
    assert run("build", tmp_path / "Tiny.onnx", tmp_path / "Tiny.pt", "-o", tmp_path / "out", "--dtype", dtype).status == 0
    html = (tmp_path / "out" / "report.html").read_text("utf-8")
    read, _ = check_page(html)
    told = json.loads((tmp_path / "out" / "report.json").read_text())
    assert f"{told['precision']['verdict']}: off by up to" in read.text and f"{dtype}" in read.text
    assert run("report", tmp_path / "out").status == 0
    assert (tmp_path / "out" / "report.html").read_text("utf-8") == html


def test_verified_first(tmp_path: Path) -> None:
    """Errors block by block are there then, each block's with itself."""
    made_page(tmp_path, model := tiny_policy(), tiny_checkpoint(model))
    assert run("report", tmp_path / "out", "--verify").status == 0
    read, _ = check_page((tmp_path / "out" / "report.html").read_text("utf-8"))
    assert "By block" in read.text and "verify" in read.text
    rows = [given["href"] for tag, given in read.tags if tag == "a" and given.get("data-block") and "class" not in given]
    assert "#block-1" in rows
    check_trouble(run("report", tmp_path / "out", tmp_path / "none.onnx", "--verify"), "none.onnx")
    assert run("report", tmp_path / "out", tmp_path / "Tiny.onnx").status == 2


def test_changed_since_the_build(tmp_path: Path) -> None:
    """Lines of another model.py would be the wrong ones: none are told. Nothing of it is run."""
    made_page(tmp_path, model := tiny_policy(), tiny_checkpoint(model))
    source = tmp_path / "out" / "model.py"
    source.write_text("raise SystemExit('run')\n# \u202e </pre><script>executed=1</script>\nx = '''open\n", "utf-8")
    assert run("report", tmp_path / "out").status == 0
    read, data = check_page((tmp_path / "out" / "report.html").read_text("utf-8"))
    assert "Changed since the build:" in read.text and not data["lines"]
    assert "</pre><script>executed=1</script>" in read.text and "\\u202e" in read.text


@pytest.mark.parametrize("name", [*MADE[:2], "report.json"])
def test_no_folder_of_build(tmp_path: Path, name: str) -> None:
    made_page(tmp_path, model := tiny_policy(), tiny_checkpoint(model))
    path = tmp_path / "out" / name
    data = path.read_bytes()
    path.unlink()
    check_trouble(run("report", tmp_path / "out"), name)
    path.write_bytes(b"\xff" + data[: len(data) // 2])
    check_trouble(run("report", tmp_path / "out"), name)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a JSON document."""
    found = [at] if at else []
    entries = value.items() if isinstance(value, dict) else list(enumerate(value))[:3] if isinstance(value, list) else ()
    for key, entry in entries:
        found += places(entry, (*at, key))
    return found


def test_any_report_is_shown_or_refused() -> None:
    """report.json may come from anyone: whatever stands anywhere in it, the page is one or there is none; never another exception."""
    made = build_policy("assets/Huggy.onnx", "assets/Huggy.pt")
    document = json.loads(json.dumps(facts(made, {})))
    tensors = {"normalizer.running_mean": np.ones(59, np.float32), "normalizer.std": np.full(59, np.nan, np.float32)}
    others: list[Any] = [None, True, -1, 2**70, "<script>executed=1</script>", "inf", [], [[]], {}, {"a": 1}, 1e308]
    rng = np.random.default_rng(1)
    shown = 0
    spots = places(document)
    for spot in (spots[i] for i in rng.choice(len(spots), 120, replace=False)):
        copy = json.loads(json.dumps(document))
        holder = copy
        for key in spot[:-1]:
            holder = holder[key]
        holder[spot[-1]] = others[int(rng.integers(len(others)))]
        try:
            html = report_page(copy, made.source, tensors)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError):
            continue
        check_page(html)
        shown += 1
    assert 10 < shown < 120


def test_tensors_of_every_type(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    given = {str(d): torch.tensor([1.5, -2.0, 3.0]).to(d) for d in (torch.float64, torch.float32, torch.float16, torch.bfloat16)}
    given |= {str(d): torch.tensor([1, 0, 3]).to(d) for d in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)}
    given["empty"], given["one"] = torch.zeros(0, 3), torch.tensor(7)
    save_file(given, tmp_path / "x.safetensors")
    found = read_tensors(tmp_path / "x.safetensors")
    assert found.keys() == given.keys()
    for name, tensor in given.items():
        assert found[name].shape == tuple(tensor.shape) and (found[name] == tensor.double().numpy()).all()
