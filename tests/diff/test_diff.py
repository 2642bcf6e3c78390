"""What `diff` says of two graphs, on every variant that should make no difference and on those that should.

The variants stand in tests/variants.py; each is tried on the policies of all families and on models that no rules know.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph2torch.diff.diff import Difference, GraphDifference, as_json, diff
from graph2torch.errors import Graph2TorchError
from graph2torch.judge.figures import TOLERANCE
from tests import variants
from tests.commands import check_trouble, run, unsafe
from tests.models import FAMILIES, tiny_policy

ROOT = Path(__file__).resolve().parents[2]
MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    **{family: partial(tiny_policy, **given) for family, given in FAMILIES.items()},
    "Huggy": lambda: onnx.load(ROOT / "assets" / "Huggy.onnx"),
    "classifier": variants.classifier,
    "transformer": variants.transformer,
}
every = pytest.mark.parametrize("name", MODELS)


def compared(folder: Path, a: onnx.ModelProto, b: onnx.ModelProto, **options: Any) -> Difference:
    for name, model in (("a", a), ("b", b)):
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    return diff(folder / "a.onnx", folder / "b.onnx", **options)


def details(found: Difference) -> GraphDifference:
    assert found.graphs is not None
    json.dumps(as_json(found), allow_nan=False)
    assert "\n" not in found.verdict and not unsafe(found.verdict)
    return found.graphs


# ---------------------------------------------------------------------------------------------- the same network
@every
def test_itself(name: str, tmp_path: Path) -> None:
    found = compared(tmp_path, MODELS[name](), MODELS[name]())
    assert found.equal and details(found).level == "bytes"


@every
def test_spelled_otherwise_it_is_the_same_network(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    told = {
        "renamed": r"input.* renamed",
        "reordered": "nodes in another order",
        "commuted": "operands commuted",
        "moved": "moved",
        "documented": "",
    }
    for variant, words in told.items():
        other = variants.SAME[variant](model)
        if other == model:  # a chain has one order only
            assert (name, variant) == ("classifier", "reordered")
            continue
        found = compared(tmp_path, model, other)
        graphs = details(found)
        assert found.equal, (variant, found.verdict)
        assert graphs.level == "graph" and found.verdict.startswith("identical networks"), (variant, found.verdict, graphs.reason)
        assert graphs.structure.same and not graphs.structure.words
        assert graphs.weights.equal == graphs.weights.compared and not graphs.numbers.differing and not graphs.numbers.not_compared
        assert any(re.search(words, text) for text in graphs.spelled) if words else not graphs.spelled, (variant, graphs.spelled)
        assert bool(found.metadata) == (variant == "documented")


@every
def test_another_opset_is_another_spelling(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    found = compared(tmp_path, model, variants.at_opset_18(model))
    assert found.equal and details(found).level == "graph", (found.verdict, details(found).reason)
    assert any(re.fullmatch(r"opset \d+ → 18", text) for text in details(found).spelled)


def test_an_axis_that_means_something_else_in_another_opset_is_no_spelling(tmp_path: Path) -> None:
    """Softmax over axis 1 of three: up to opset 12 over both that remain, then over the middle one."""

    def model(opset: int) -> onnx.ModelProto:
        value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 3, 4]) for n in ("x", "y")]
        graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"], "soft", axis=1)], "g", value[:1], value[1:])
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])

    found = compared(tmp_path, model(12), model(13))
    assert not found.equal and details(found).level == "differs" and not details(found).structure.same
    assert compared(tmp_path, model(13), model(17)).equal


def test_an_operator_defined_anew_is_compared_by_its_numbers_only(tmp_path: Path) -> None:
    def model(opset: int) -> onnx.ModelProto:
        value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 2, 4, 4]) for n in ("x", "y")]
        node = helper.make_node("Dropout", ["x"], ["y"], "drop")
        return helper.make_model(
            helper.make_graph([node], "g", value[:1], value[1:]), ir_version=8, opset_imports=[helper.make_opsetid("", opset)]
        )

    found = compared(tmp_path, model(10), model(13))
    assert found.equal and details(found).level == "bits" and "Dropout" in details(found).reason


@every
def test_merged_and_split_initializers(name: str, tmp_path: Path) -> None:
    model = variants.with_twins(MODELS[name]())
    merged = variants.merged(model)
    assert len(merged.graph.initializer) < len(model.graph.initializer)
    for a, b in ((model, merged), (merged, model)):
        found = compared(tmp_path, a, b)
        assert found.equal and details(found).level == "graph", (found.verdict, details(found).reason)
        assert any("merged" in text for text in details(found).spelled)
    weights = details(found).weights
    assert weights.split and not weights.merged


# ---------------------------------------------------------------------------------------------- other weights
@every
def test_one_weight_by_one_ulp(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    changed = variants.one_ulp(model)
    found = compared(tmp_path, model, changed)
    graphs = details(found)
    assert not found.equal and graphs.structure.same
    (weight,) = graphs.weights.differing
    assert (weight.a, weight.differing, weight.max_ulps, weight.relation) == (variants.weights(model)[-1].name, 1, 1, "differs")
    assert 0 < weight.max_abs < 1e-6 and 0 < weight.max_rel < 3e-7
    assert "by up to 1 ulp" in found.verdict and "1 of" in found.verdict


@every
def test_another_checkpoint(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    found = compared(tmp_path, model, variants.other_weights(model))
    graphs = details(found)
    assert not found.equal and graphs.level == "differs" and graphs.structure.same
    assert found.verdict.startswith("the same structure, other weights")
    assert {w.a for w in graphs.weights.differing} == {t.name for t in variants.weights(model)}
    assert graphs.divergence is not None and graphs.divergence["kind"] == "constant"
    assert graphs.numbers.worst > TOLERANCE


@every
def test_weights_rounded_to_float16_are_told_as_such(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    both = ((model, variants.rounded(model), "b"), (variants.rounded(model), model, "a"))
    for a, b, which in both if name == "continuous" else both[:1]:
        found = compared(tmp_path, a, b)
        assert not found.equal and "rounded to float16" in found.verdict, found.verdict
        assert {(w.relation, w.rounded) for w in details(found).weights.differing} == {("rounded to float16", which)}


@pytest.mark.parametrize("name", ["classifier", "transformer", "sac"])
def test_a_float16_copy(name: str, tmp_path: Path) -> None:
    """Weights, values, inputs and outputs in float16; random operators, which have a type of their own, aside."""
    model = MODELS[name]()
    found = compared(tmp_path, model, variants.halved(model))
    graphs = details(found)
    assert not found.equal and "float16" in found.verdict, found.verdict
    assert graphs.numbers.figures or graphs.numbers.not_compared
    if name != "sac":
        assert graphs.numbers.ordinary[0].differing and graphs.numbers.ordinary[0].max_abs < 0.1


def test_transposed_weights_are_told_as_such(tmp_path: Path) -> None:
    model = variants.classifier()
    other = variants.copied(model)
    fc = next(n for n in other.graph.node if n.op_type == "Gemm")
    del fc.attribute[:]
    weight = next(t for t in other.graph.initializer if t.name == "fc.weight")
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).T.copy(), "fc.weight"))
    found = compared(tmp_path, model, other)
    assert found.equal and details(found).level == "bits", found.verdict
    assert [(w.a, w.relation) for w in details(found).weights.differing] == [("fc.weight", "transposed")]


# ---------------------------------------------------------------------------------------------- built differently
@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"hidden": 16}, "hidden layer 1: 8 → 16 units"),
        ({"observations": (4, 3, 4)}, "an observation of 4 more: 'obs_2'"),
        ({"observations": (4,)}, "an observation of 3 less: 'obs_1'"),
        ({"observations": (4, 5)}, "observation 'obs_1' [batch, 3] → [batch, 5]"),
        ({"layers": 3}, "added: hidden layer 3, Linear(8, 8)"),
        ({"layers": 1}, "removed: hidden layer 2, Linear(8, 8)"),
        ({"actions": 3}, "head: mean of the actions, mu: 2 → 3 units"),
        ({"normalize": False}, "removed: normaliser of obs_0, Normalizer(4)"),
        ({"memory": 6}, "added: memory: one step of an LSTM, LSTM(8, 3)"),
    ],
)
def test_differences_of_policies_in_words(other: dict[str, Any], words: str, tmp_path: Path) -> None:
    given = FAMILIES["continuous"]
    found = compared(tmp_path, tiny_policy(**given), tiny_policy(**{**given, **other}))
    graphs = details(found)
    assert not found.equal and graphs.level == "differs" and not graphs.structure.unrelated
    assert words in graphs.structure.words, graphs.structure.words
    assert len(graphs.structure.words) <= 6


def test_a_wider_layer_is_one_difference(tmp_path: Path) -> None:
    """That the next layer reads more is a consequence, and not told."""
    model, other = (tiny_policy((4,), hidden=8), tiny_policy((4,), hidden=16))
    words = details(compared(tmp_path, model, other)).structure.words
    assert words == ("hidden layer 1: 8 → 16 units", "hidden layer 2: 8 → 16 units")


def test_another_activation(tmp_path: Path) -> None:
    model = tiny_policy()
    found = compared(tmp_path, model, variants.relu_for_silu(model))
    assert details(found).structure.words == ("activation of hidden layer 1: SiLU → ReLU",)
    assert found.verdict.startswith("different networks: activation of hidden layer 1: SiLU → ReLU")
    assert any("ReLU in place of SiLU" in cause for cause in details(found).causes)
    divergence = details(found).divergence
    assert divergence is not None and divergence["block"] == "activation of hidden layer 1"


@every
def test_another_operator(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    found = compared(tmp_path, model, variants.other_activation(model))
    graphs = details(found)
    assert not found.equal and graphs.structure.changed == 1 and not graphs.structure.removed and not graphs.structure.added
    assert len(graphs.structure.words) == 1 and graphs.structure.words[0].endswith(" → Tanh"), graphs.structure.words
    assert graphs.divergence is not None and graphs.divergence["kind"] == "operator"


@every
def test_an_extra_input(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    found = compared(tmp_path, model, variants.with_input(model))
    graphs = details(found)
    assert not found.equal and graphs.structure.words[0] == "an input more: 'extra' [batch, 4]"
    assert graphs.weights.equal == graphs.weights.compared
    assert graphs.structure.added == 2 and not graphs.structure.removed
    assert graphs.numbers.not_compared == ("everything: the inputs are not the same",)


def test_an_output_more_leaves_the_others_compared(tmp_path: Path) -> None:
    model = variants.classifier()
    other = variants.copied(model)
    other.graph.output.add().CopyFrom(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 5]))
    found = compared(tmp_path, model, other)
    graphs = details(found)
    assert not found.equal and graphs.level == "differs"
    assert graphs.structure.words == ("an output more: 'logits' ['N', 5]".replace("'N'", "N"),)
    assert [f.output for f in graphs.numbers.figures] == ["classes"] and not graphs.numbers.differing


def test_an_input_that_nothing_reads_is_no_difference(tmp_path: Path) -> None:
    """torch's newer exporter leaves them in, of size 0."""
    model = tiny_policy()
    other = variants.copied(model)
    other.graph.input.add().CopyFrom(helper.make_tensor_value_info("action_masks", TensorProto.FLOAT, ["batch", 0]))
    for a, b in ((model, other), (other, model)):
        found = compared(tmp_path, a, b)
        assert found.equal and details(found).level == "graph", found.verdict
        assert any("action_masks" in text for text in details(found).spelled)


def test_a_batch_that_is_fixed_is_told(tmp_path: Path) -> None:
    found = compared(tmp_path, tiny_policy(), tiny_policy(batch=3))
    assert found.equal and details(found).level == "graph"
    assert "'obs_0' [batch, 4] → [3, 4]" in details(found).spelled


def test_nodes_of_foreign_models_in_words(tmp_path: Path) -> None:
    model, wider = variants.classifier(), variants.classifier(channels=8)
    other = variants.copied(model)
    next(n for n in other.graph.node if n.name == "conv2").attribute[0].ints[:] = [0, 0, 2, 2]
    words = details(compared(tmp_path, model, other)).structure.words
    assert len(words) == 1 and "conv2" in words[0] and "pads" in words[0]
    found = compared(tmp_path, model, wider)
    assert "conv1.weight" in found.verdict and not found.equal
    assert "policy" not in json.dumps(as_json(found))


# ---------------------------------------------------------------------------------------------- unrelated ones
@pytest.mark.parametrize("pair", [("classifier", "transformer"), ("attention", "classifier"), ("Huggy", "transformer")])
def test_unrelated_networks_are_told_shortly(pair: tuple[str, str], tmp_path: Path) -> None:
    found = compared(tmp_path, *(MODELS[name]() for name in pair))
    assert not found.equal and details(found).level == "differs" and details(found).structure.unrelated
    assert found.verdict.startswith("unrelated networks")
    printed = run("diff", tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert printed.status == 1 and printed.out.count("\n") <= 25, printed.out


@pytest.mark.parametrize("pair", [("continuous", "discrete"), ("lstm", "sac"), ("hypernetwork", "simple"), ("attention", "continuous")])
def test_pages_stay_short(pair: tuple[str, str], tmp_path: Path) -> None:
    compared(tmp_path, *(MODELS[name]() for name in pair), run=False)
    printed = run("diff", tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert printed.status == 1 and printed.out.count("\n") <= 60, printed.out


# ---------------------------------------------------------------------------------------------- what is compared
def test_what_is_drawn_from_is_compared(tmp_path: Path) -> None:
    """Options are given, so that they are the same; the probabilities they would be drawn by are not."""
    model = tiny_policy((4,), 0, branches=(3, 2), deterministic=False)
    other = variants.copied(model)
    bias = next(t for t in other.graph.initializer if t.name.endswith("branches.0.bias"))
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + np.array([1, 0, 0], np.float32), bias.name))
    found = compared(tmp_path, model, other)
    graphs = details(found)
    assert not found.equal and graphs.level == "differs"
    assert not any(f.differing for f in graphs.numbers.figures) and any(f.differing for f in graphs.numbers.drawn_from)
    assert "only what is drawn from differs" in found.verdict
    assert graphs.reason.startswith("what random numbers are drawn from and scaled with differs in ")


def test_a_draw_that_only_one_makes_is_not_compared(tmp_path: Path) -> None:
    model = tiny_policy(deterministic=True)
    other = variants.copied(model)
    draw = next(n for n in other.graph.node if n.op_type == "RandomNormalLike")
    draw.op_type = "Neg"
    del draw.attribute[:]
    graphs = details(compared(tmp_path, model, other))
    assert graphs.level == "differs" and any("continuous_actions" in text for text in graphs.numbers.not_compared)
    assert "deterministic_continuous_actions" in {f.output for f in graphs.numbers.figures}


def test_absurd_deviations_are_compared(tmp_path: Path) -> None:
    """Their ratio squared is no 64-bit integer."""
    model = tiny_policy()
    other = variants.copied(model)
    std = next(t for t in other.graph.initializer if t.name.startswith("onnx::Div"))
    std.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(std) * np.float32(1e20), std.name))
    assert not compared(tmp_path, model, other).equal


def test_near_is_near_in_each_case(tmp_path: Path) -> None:
    """Where huge inputs pass through, their size is no measure of what ordinary ones give."""

    def model(offset: float) -> onnx.ModelProto:
        value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 2]) for n in ("x", "y")]
        weights = [numpy_helper.from_array(np.array([offset], np.float32), "offset")]
        graph = helper.make_graph([helper.make_node("Add", ["x", "offset"], ["y"])], "g", value[:1], value[1:], weights)
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])

    assert details(compared(tmp_path, model(0.5), model(0.75))).level == "differs"
    assert details(compared(tmp_path, model(0.5), model(0.500001))).level == "close"


def test_equal_numbers_that_never_vary_make_no_equal_networks(tmp_path: Path) -> None:
    """Behind a saturated layer another operator shows nowhere."""

    def model(op: str) -> onnx.ModelProto:
        value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 2]) for n in ("x", "y")]
        nodes = [
            helper.make_node(op, ["x"], ["a"], "first"),
            helper.make_node("Sub", ["a", "much"], ["b"]),
            helper.make_node("Relu", ["b"], ["y"]),
        ]
        graph = helper.make_graph(nodes, "g", value[:1], value[1:], [numpy_helper.from_array(np.array(9.0, np.float32), "much")])
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])

    found = compared(tmp_path, model("Sigmoid"), model("Tanh"))
    assert not found.equal and details(found).level == "bits" and details(found).numbers.unvaried == ("y",)
    assert "'first': Sigmoid → Tanh" in found.verdict and "never varied" in found.verdict


def test_not_running_reaches_no_level(tmp_path: Path) -> None:
    model = tiny_policy()
    found = compared(tmp_path, model, variants.reordered(model), run=False)
    assert found.equal and details(found).level is None and "not run" in found.verdict
    assert not compared(tmp_path, model, variants.one_ulp(model), run=False).equal


def test_nothing_is_equal_that_was_not_run(tmp_path: Path) -> None:
    """A shape that onnxruntime refuses whatever is fed."""

    def model(name: str) -> onnx.ModelProto:
        value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 3]) for n in ("x", "y")]
        nodes = [helper.make_node("Reshape", ["x", "shape"], ["z"], name), helper.make_node("Add", ["z", "z"], ["y"])]
        graph = helper.make_graph(nodes, "g", value[:1], value[1:], [numpy_helper.from_array(np.array([5, 7], np.int64), "shape")])
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])

    with pytest.raises(Graph2TorchError, match="look the same, but their numbers could not be compared"):
        compared(tmp_path, model("one"), model("two"))
    check_trouble(run("diff", tmp_path / "a.onnx", tmp_path / "b.onnx"), "--no-run")


def test_more_samples_and_another_seed(tmp_path: Path) -> None:
    model = variants.classifier()
    few = details(compared(tmp_path, model, variants.renamed(model))).numbers
    more = details(compared(tmp_path, model, variants.renamed(model), samples=3, seed=7)).numbers
    assert len(more.runs) == len(few.runs) + 6 and more.seed == 7


# ---------------------------------------------------------------------------------------------- the command
def test_the_command(tmp_path: Path) -> None:
    model = tiny_policy()
    names = {"a": model, "same": variants.renamed(model), "other": variants.one_ulp(model)}
    for name, proto in names.items():
        (tmp_path / f"{name}.onnx").write_bytes(proto.SerializeToString())
    same = run("diff", tmp_path / "a.onnx", tmp_path / "same.onnx")
    assert same.status == 0 and same.out.startswith("identical networks") and not same.err
    other = run("diff", tmp_path / "a.onnx", tmp_path / "other.onnx")
    assert other.status == 1 and other.out.startswith("the same structure, other weights")
    document = json.loads(run("diff", tmp_path / "a.onnx", tmp_path / "other.onnx", "--json").out)
    assert document["kind"] == "graphs" and document["equal"] is False and document["graphs"]["weights"]["differing"][0]["max_ulps"] == 1
    check_trouble(run("diff", tmp_path / "a.onnx", tmp_path / "nowhere.onnx"), "nowhere.onnx")


def test_two_graphs_are_compared_without_torch() -> None:
    huggy = ROOT / "assets" / "Huggy.onnx"
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from graph2torch.diff.diff import diff; diff({str(huggy)!r}, {str(huggy)!r})"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules"], check=True)


def test_names_act_on_no_terminal(tmp_path: Path) -> None:
    """Every name with control and direction characters, quotes, markup; in words, tables and JSON."""
    evil = "\x1b[31m\u202e[bold]'\"\n\x9b"
    model = variants.classifier()
    for i, value in enumerate((*model.graph.initializer, *model.graph.node)):
        if isinstance(value, onnx.NodeProto):
            value.name = f"{evil}{i}"
    names = {t.name: f"{evil}{t.name}" for t in model.graph.initializer} | {"image": f"{evil}image", "classes": f"{evil}classes"}
    for value in (*model.graph.initializer, *model.graph.input, *model.graph.output):
        value.name = names[value.name]
    for node in model.graph.node:
        node.input[:] = [names.get(v, v) for v in node.input]
        node.output[:] = [names.get(v, v) for v in node.output]
    model.doc_string = model.producer_name = model.graph.name = evil
    model.metadata_props.add(key=evil, value=evil)
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    others = [
        variants.one_ulp(model),
        variants.other_activation(model),
        variants.with_input(model),
        variants.classifier(seed=1),
        tiny_policy(),
    ]
    for other in others:
        (tmp_path / "b.onnx").write_bytes(other.SerializeToString())
        for arguments in ((tmp_path / "a.onnx", tmp_path / "b.onnx"), (tmp_path / "b.onnx", tmp_path / "a.onnx")):
            result = run("diff", *arguments)
            assert result.status == 1 and not unsafe(result.out) and not result.err, result
            assert json.loads(run("diff", *arguments, "--json").out)["equal"] is False


@pytest.mark.skipif("GRAPH2TORCH_CORPUS" not in os.environ, reason="needs GRAPH2TORCH_CORPUS")
def test_dynamo_against_legacy_exports_of_the_corpus() -> None:
    """One network, two exporters: nothing but the folded std may differ, and that by rounding."""
    corpus = Path(os.environ["GRAPH2TORCH_CORPUS"]) / "generated"
    pairs = 0
    for case in sorted((corpus / "c_1.1.0_t2.13_dynamo").iterdir()):
        for legacy in ("c_1.1.0_t2.13_legacy", "a_1.1.0_t2.1.2"):
            files = [next(iter(sorted((corpus / era / case.name).glob("*.onnx"))), None) for era in (case.parent.name, legacy)]
            if files[0] is None or files[1] is None:
                continue
            pairs += 1
            found = diff(files[0], files[1])
            graphs = details(found)
            if graphs.weights.differing:
                assert not found.equal and graphs.level == "close" and graphs.structure.same, found.verdict
                assert all(w.max_ulps is not None and w.max_ulps <= 2 and "std" in w.place for w in graphs.weights.differing)
            else:
                assert found.equal and graphs.level in ("graph", "bits"), found.verdict
    assert pairs > 10
