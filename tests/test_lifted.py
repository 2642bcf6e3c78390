"""lifted.onnx: a function a block, valid, equal to the original; and its own check sees what isn't."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from graph2torch.build import build
from graph2torch.errors import UnsupportedGraph
from graph2torch.graph import load
from graph2torch.lifted import check_lifted, lifted
from graph2torch.recognise import Recognised, recognise
from tests.lifting import check_bits, check_lifting, lift
from tests.models import FAMILIES, Era, save_pair, tiny_checkpoint, tiny_policy

HUGGY = Path(__file__).parent.parent / "assets" / "Huggy.onnx"
DOMAIN = "graph2torch.mlagents"


def recognised(folder: Path, model: onnx.ModelProto) -> Recognised:
    return recognise(save_pair(folder, model)[0])


def calls(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.domain]


def sizes(model: onnx.ModelProto) -> list[list[int | str]]:
    """Of what goes from node to node."""
    return [[d.dim_value or d.dim_param for d in v.type.tensor_type.shape.dim] for v in model.graph.value_info]


@pytest.fixture(scope="module")
def huggy() -> Recognised:
    return recognise(HUGGY)


# ---------------------------------------------------------------------------------------------- what it holds
def test_huggys_nodes_are_its_blocks(huggy: Recognised) -> None:
    model = check_lifting(huggy)
    hidden = ["linear", "silu"] * 3
    assert [n.op_type for n in calls(model)] == [
        "normalizer", *hidden, "linear", "gaussian_scale", "gaussian_sample", "bounded_action", "bounded_action",
    ]  # fmt: skip
    assert [n.op_type for n in model.graph.node if not n.domain] == ["Identity"] * 3  # fixed outputs
    assert [n.name for n in calls(model)][:3] == [
        "normalizer: normaliser of obs_0", "body.0: hidden layer 1", "body.1: activation of hidden layer 1",
    ]  # fmt: skip
    functions = {f.name: f for f in model.functions}
    assert len(functions) == len(model.functions) == 6 and {f.domain for f in model.functions} == {DOMAIN}
    rules = {rule.name: rule for rule in huggy.book.rules if rule.family == "mlagents"}
    assert all(f.doc_string == rules[name].summary for name, f in functions.items())
    assert list(functions["linear"].input) == ["x", "weight", "bias"]
    normalizer = functions["normalizer"]
    assert [n.op_type for n in normalizer.node] == ["Sub", "Div", "Clip"] and list(normalizer.input) == ["obs", "running_mean", "std"]
    assert {t.name for t in model.graph.initializer} == {t.name for t in huggy.model.proto.graph.initializer}
    assert sizes(model) == [["batch", 59], *[["batch", 512]] * 6, *[["batch", 21]] * 3]


@pytest.mark.parametrize(("era", "opset"), [("torch1.8", 9), ("torch2", 9), ("torch2", 11), ("torch2", 15), ("torch2", 18)])
@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_is_valid_bit_equal_and_inlined_the_original(tmp_path: Path, family: str, era: Era, opset: int) -> None:
    found = recognised(tmp_path, tiny_policy(**FAMILIES[family], era=era, opset=opset))
    model = check_lifting(found)
    assert Counter(function_rule(n.op_type) for n in calls(model)) == Counter(b.rule for b in found.spec.blocks)
    assert {n.op_type for n in model.graph.node if not n.domain} <= {"Identity"}
    declared = {o.name for o in model.graph.output}
    assert [v.name for v in model.graph.value_info] == [v for n in model.graph.node for v in n.output if v not in declared]
    names = [n.name for n in model.graph.node]
    assert all(names) and len(set(names)) == len(names)  # onnxruntime wants them so
    assert len({body(f) for f in model.functions}) == len(model.functions)
    assert {(n.domain, n.op_type) for n in calls(model)} == {(f.domain, f.name) for f in model.functions}


def function_rule(name: str) -> str:
    return name.rstrip("0123456789").rstrip("_") if name[-1].isdigit() else name


def body(function: onnx.FunctionProto) -> bytes:
    copy = onnx.FunctionProto.FromString(function.SerializeToString())
    copy.ClearField("name")
    return bytes(copy.SerializeToString(deterministic=True))


def test_equal_bodies_are_one_function_and_different_ones_several(tmp_path: Path) -> None:
    model = lift(recognised(tmp_path, tiny_policy(**FAMILIES["simple"])))
    used = Counter(n.op_type for n in calls(model))
    assert used["convolution"] == used["convolution_2"] == 1  # of another kernel and stride
    assert used["linear"] == 4 and "linear_2" not in used


def test_what_no_rule_explains_stays_an_operator(tmp_path: Path) -> None:
    model = tiny_policy()
    for node in model.graph.node:
        if node.op_type == "Sigmoid":
            node.op_type = "Softsign"
    found = recognised(tmp_path, model)
    plain = [n for n in check_lifting(found).graph.node if not n.domain and n.op_type != "Identity"]
    assert [n.op_type for n in plain] == [b.rule for b in found.spec.blocks if b.family == "generic"] == ["Softsign", "Mul"] * 2
    assert {n.name for n in plain} <= {n.name for n in model.graph.node}


@pytest.mark.parametrize("ir_version", [3, 4, 8, 10])
def test_whatever_can_be_replaced_in_the_original_can_here(tmp_path: Path, ir_version: int) -> None:
    model = tiny_policy(ir_version=ir_version)
    bias, spare = "network_body._body_endoder.seq_layers.0.bias", numpy_helper.from_array(np.zeros(3, np.float32), "spare")
    model.graph.initializer.append(spare)
    for name, size in ((bias, 8), ("spare", 3)):
        if name not in {i.name for i in model.graph.input}:
            model.graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [size]))
    found = recognised(tmp_path, model)
    made = check_lifting(found)
    assert made.ir_version == max(ir_version, 8)
    assert [i.name for i in made.graph.input] == (["obs_0"] if ir_version < 4 else ["obs_0", bias, "spare"])  # below 4, a caller can't
    if ir_version >= 4:
        assert found.spec.graph.overridable == {bias}
        assert bias in {v for n in calls(made) for v in n.input}


def test_external_data_becomes_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "Tiny.onnx"
    onnx.save_model(tiny_policy(hidden=32), str(path), save_as_external_data=True, location="Tiny.data", size_threshold=0)
    assert any(t.data_location == onnx.TensorProto.EXTERNAL for t in onnx.load(str(path), load_external_data=False).graph.initializer)
    made = check_lifting(recognise(path))
    assert not any(t.external_data for t in made.graph.initializer)


def test_a_fixed_output_is_declared_as_it_is(tmp_path: Path) -> None:
    """Some exporters declare one dimension for the number of options, which has two."""
    model = tiny_policy(**FAMILIES["discrete"])
    declared = next(o for o in model.graph.output if o.name == "discrete_action_output_shape")
    declared.CopyFrom(helper.make_tensor_value_info(declared.name, onnx.TensorProto.FLOAT, [2]))
    with pytest.raises(onnx.shape_inference.InferenceError):
        onnx.checker.check_model(model, full_check=True)
    check_lifting(recognised(tmp_path, model))


def test_what_is_invalid_in_the_original_may_be_here(tmp_path: Path) -> None:
    model = tiny_policy()
    declared = next(o for o in model.graph.output if o.name == "continuous_actions")
    declared.type.tensor_type.shape.dim[1].dim_value = 99
    found = recognised(tmp_path, model)
    made = lift(found)
    with pytest.raises(onnx.shape_inference.InferenceError):
        onnx.checker.check_model(made, full_check=True)
    check_lifted(made, found.spec, found.model.proto)


def test_hostile_names_are_data(tmp_path: Path) -> None:
    model = tiny_policy(observations=(4, 3))
    rename(model, {"obs_0": 'obs_0"\n<x>\u202e', "network_body._body_endoder.seq_layers.0.weight": "a b\t()", "continuous_actions": "🙂"})
    for node in model.graph.node:
        node.name = "twice the same"
        node.doc_string = "/home/somebody"
    found = recognised(tmp_path, model)
    made = lift(found)
    check_lifted(made, found.spec, found.model.proto)
    onnx.checker.check_model(made, full_check=True)
    assert all(f.name.isidentifier() and all(n.isidentifier() for n in (*f.input, *f.output)) for f in made.functions)
    assert not any("\n" in n.name or "\u202e" in n.name for n in calls(made))
    assert all("/home" not in str(f) for f in made.functions)


def rename(model: onnx.ModelProto, names: dict[str, str]) -> None:
    for node in model.graph.node:
        node.input[:] = [names.get(v, v) for v in node.input]
        node.output[:] = [names.get(v, v) for v in node.output]
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        value.name = names.get(value.name, value.name)


def test_a_block_that_would_need_its_own_result_stays_operators(huggy: Recognised) -> None:
    """No rule lifts such blocks; a block around another one must still not become a function."""
    spec = huggy.spec
    first, last = spec.blocks[1], spec.blocks[5]
    assert (first.rule, last.rule) == ("linear", "linear")
    around = replace(first, nodes=(*first.nodes, *last.nodes), outputs=(*first.outputs, *last.outputs))
    odd = replace(spec, blocks=(spec.blocks[0], around, *spec.blocks[2:5], *spec.blocks[6:]))
    made = lifted(odd, huggy.model.proto, huggy.book)
    check_lifted(made, spec, huggy.model.proto)
    assert Counter(n.op_type for n in made.graph.node)["Gemm"] == 2
    assert len(calls(made)) == len(spec.blocks) - 2


def test_what_two_blocks_make_comes_from_one(huggy: Recognised) -> None:
    spec = huggy.spec
    odd = replace(spec, blocks=(*spec.blocks, spec.blocks[1]))
    made = lifted(odd, huggy.model.proto, huggy.book)
    check_lifted(made, spec, huggy.model.proto)
    assert len(calls(made)) == len(spec.blocks)


def test_a_block_without_its_result_is_completed_by_operators(huggy: Recognised) -> None:
    spec = huggy.spec
    odd = replace(spec, blocks=(replace(spec.blocks[0], outputs=("nothing",)), *spec.blocks[1:]))
    made = lifted(odd, huggy.model.proto, huggy.book)
    check_lifted(made, spec, huggy.model.proto)
    assert [n.op_type for n in made.graph.node][:3] == ["Sub", "Div", "Clip"]


# ---------------------------------------------------------------------------------------------- its check
def number_in_a_function(model: onnx.ModelProto) -> None:
    clip = next(n for f in model.functions if f.name == "normalizer" for n in f.node if n.op_type == "Clip")
    next(a for a in clip.attribute if a.name == "max").f = 4.0


def operator_in_a_function(model: onnx.ModelProto) -> None:
    next(n for f in model.functions if f.name == "silu" for n in f.node if n.op_type == "Sigmoid").op_type = "Tanh"


def weights_of_another_layer(model: onnx.ModelProto) -> None:
    second, third = [n for n in calls(model) if n.op_type == "linear"][1:3]
    second.input[1], third.input[1] = third.input[1], second.input[1]


def short_weight(model: onnx.ModelProto) -> None:
    tensor = next(t for t in model.graph.initializer if t.name.endswith("log_sigma"))
    tensor.CopyFrom(numpy_helper.from_array(np.nextafter(numpy_helper.to_array(tensor), np.float32(9)), tensor.name))


def layer_left_out(model: onnx.ModelProto) -> None:
    silu = next(n for n in calls(model) if n.op_type == "silu")
    next(n for n in calls(model) if silu.output[0] in n.input).input[0] = silu.input[0]


def function_left_out(model: onnx.ModelProto) -> None:
    del model.functions[-1]


def size(model: onnx.ModelProto) -> None:
    next(i for i in model.graph.input if i.name == "obs_0").type.tensor_type.shape.dim[1].dim_value = 58


@pytest.mark.parametrize(
    "fault",
    [number_in_a_function, operator_in_a_function, weights_of_another_layer, short_weight, layer_left_out, function_left_out, size],
)
def test_faults_are_seen(huggy: Recognised, fault: Callable[[onnx.ModelProto], None]) -> None:
    made = lift(huggy)
    check_lifted(made, huggy.spec, huggy.model.proto)
    fault(made)
    with pytest.raises(UnsupportedGraph, match=r"lifted\.onnx.*please report this model"):
        check_lifted(made, huggy.spec, huggy.model.proto)


# ---------------------------------------------------------------------------------------------- build writes it
def test_build_writes_it(tmp_path: Path) -> None:
    model = tiny_policy()
    build(*save_pair(tmp_path, model, tiny_checkpoint(model)), tmp_path / "out")
    written = onnx.load(str(tmp_path / "out" / "lifted.onnx"))
    deterministic = [o for o in model.graph.output if o.name != "continuous_actions"]
    for proto in (model, written):
        del proto.graph.output[:]
        proto.graph.output.extend(deterministic)
    check_bits(model, written, load(save_pair(tmp_path, model)[0]).graph.inputs)
