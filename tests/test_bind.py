"""Which tensor becomes which parameter: by use, with its transform, and what a pair that isn't one is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from graph2torch.bind import Bindings, bind, compare
from graph2torch.checkpoint import load_checkpoint
from graph2torch.errors import PairError
from graph2torch.judge.figures import max_ulps, same_bits
from graph2torch.recognise import recognise
from tests.models import save_pair, tiny_checkpoint, tiny_policy

BODY = "network_body._body_endoder.seq_layers"
NORMALIZER = "network_body.observation_encoder.processors.0.normalizer"


def bindings(folder: Path, model: onnx.ModelProto, checkpoint: dict[str, Any] | None, weights: Any = "checkpoint") -> Bindings:
    onnx_path, pt_path = save_pair(folder, model, checkpoint)
    return bind(recognise(onnx_path).spec, load_checkpoint(pt_path) if checkpoint is not None else None, weights)


def replace_initializer(model: onnx.ModelProto, name: str, array: np.ndarray[Any, Any]) -> None:
    next(t for t in model.graph.initializer if t.name == name).CopyFrom(numpy_helper.from_array(array, name))


def test_every_parameter_gets_the_tensor_of_its_name(tmp_path: Path) -> None:
    model = tiny_policy(observations=(3, 2))
    bound = bindings(tmp_path, model, tiny_checkpoint(model))
    assert bound.verdict == "same"
    for tensor in bound.tensors:
        if tensor.initializer and not tensor.path.endswith(".std"):
            assert tensor.key == tensor.initializer and tensor.agrees and tensor.source == "checkpoint"
    assert bound.keys == {
        "normalizer_0": NORMALIZER,
        "normalizer_1": NORMALIZER.replace(".0.", ".1."),
        "body": BODY,
        "mu": "action_model._continuous_distribution.mu",
        "log_sigma": "action_model._continuous_distribution.log_sigma",
    }


def merged(model: onnx.ModelProto, aliased: bool) -> onnx.ModelProto:
    """Layer 2 reads layer 0's bias, as torch >= 1.11 exports equal biases: behind an Identity, or directly."""
    zero = np.zeros(8, np.float32)
    replace_initializer(model, f"{BODY}.0.bias", zero)
    kept = [t for t in model.graph.initializer if t.name != f"{BODY}.2.bias"]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    if aliased:
        model.graph.node.insert(0, onnx.helper.make_node("Identity", [f"{BODY}.0.bias"], [f"{BODY}.2.bias"], "Identity_0"))
    else:
        for node in model.graph.node:
            for i, value in enumerate(node.input):
                if value == f"{BODY}.2.bias":
                    node.input[i] = f"{BODY}.0.bias"
    return model


@pytest.mark.parametrize("aliased", [True, False])
@pytest.mark.parametrize("drifted", [True, False])
def test_merged_initializers_are_told_apart_by_use(tmp_path: Path, aliased: bool, drifted: bool) -> None:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    for layer in (0, 2):
        checkpoint["Policy"][f"{BODY}.{layer}.bias"] = torch.full((8,), float(layer) if drifted else 0.0)
    bound = bindings(tmp_path, merged(model, aliased), checkpoint)
    by_path = {b.path: b for b in bound.tensors}
    assert by_path["body.0.bias"].key == f"{BODY}.0.bias"
    assert by_path["body.2.bias"].key == f"{BODY}.2.bias"
    assert by_path["body.2.bias"].initializer == f"{BODY}.0.bias"
    if drifted:
        assert by_path["body.2.bias"].value.tolist() == [2.0] * 8
    assert bound.verdict == ("drift" if drifted else "same")


def test_names_that_mean_nothing_are_bound_by_what_the_block_is(tmp_path: Path) -> None:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    names = {t.name: f"w{i}" for i, t in enumerate(model.graph.initializer)}
    for tensor in model.graph.initializer:
        tensor.name = names[tensor.name]
    for node in model.graph.node:
        for i, value in enumerate(node.input):
            node.input[i] = names.get(value, value)
    bound = bindings(tmp_path, model, checkpoint)
    assert bound.verdict == "same"
    assert {b.path: b.key for b in bound.tensors}["body.2.weight"] == f"{BODY}.2.weight"


def test_a_transposed_weight_is_turned(tmp_path: Path) -> None:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    gemm = next(n for n in model.graph.node if n.op_type == "Gemm")
    weight = next(t for t in model.graph.initializer if t.name == gemm.input[1])
    replace_initializer(model, weight.name, numpy_helper.to_array(weight).T.copy())
    kept = [a for a in gemm.attribute if a.name != "transB"]
    del gemm.attribute[:]
    gemm.attribute.extend(kept)
    bound = bindings(tmp_path, model, checkpoint)
    first = {b.path: b for b in bound.tensors}["body.0.weight"]
    assert (first.transform, first.agrees) == ("transposed", True)
    assert same_bits(first.value, checkpoint["Policy"][f"{BODY}.0.weight"].numpy())


@pytest.mark.parametrize(("ulps", "agrees"), [(0, True), (1, True), (2, True), (3, False), (1000, False)])
def test_the_std_may_be_rounded_otherwise_but_not_be_another(tmp_path: Path, ulps: int, agrees: bool) -> None:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    std_name = next(n for n in model.graph.node if n.op_type == "Div").input[1]
    std = numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == std_name)).copy()
    formula = std.copy()
    for _ in range(ulps):
        std[0] = np.nextafter(std[0], np.float32(np.inf))
    replace_initializer(model, std_name, std)
    bound = {b.path: b for b in bindings(tmp_path, model, checkpoint).tensors}["normalizer.std"]
    assert bound.agrees is agrees
    assert same_bits(bound.value, std if agrees else formula)  # within rounding the graph's rules, else the checkpoint's
    if not agrees:
        assert bound.disagreement is not None and bound.disagreement.elements == 1 and bound.disagreement.max_ulps == ulps


def test_drift_names_the_tensors_and_how_far_they_are_off(tmp_path: Path) -> None:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    tensor = checkpoint["Policy"][f"{BODY}.2.weight"]
    tensor[1, 3] += 0.25
    bound = bindings(tmp_path, model, checkpoint)
    assert bound.verdict == "drift"
    (apart,) = bound.disagreements
    assert (apart.path, apart.key) == ("body.2.weight", f"{BODY}.2.weight")
    assert apart.disagreement is not None and (apart.disagreement.elements, apart.disagreement.of) == (1, 64)
    assert abs(apart.disagreement.max_abs - 0.25) < 1e-6
    assert same_bits(apart.value, tensor.numpy())
    graphs = bindings(tmp_path, model, checkpoint, "onnx")
    assert not same_bits({b.path: b for b in graphs.tensors}["body.2.weight"].value, tensor.numpy())


def test_another_network_is_refused_unless_the_graphs_weights_are_asked_for(tmp_path: Path) -> None:
    model = tiny_policy()
    with pytest.raises(PairError, match=r"hidden layer 1 \(weight \[8, 4\], bias \[8\]; there weight \[16, 4\]"):
        bindings(tmp_path, model, tiny_checkpoint(tiny_policy(hidden=16)))
    bound = bindings(tmp_path, model, tiny_checkpoint(tiny_policy(hidden=16)), "onnx")
    assert bound.verdict == "other network" and "hidden layer 1" in bound.missing
    assert all(b.source != "checkpoint" or "running" in b.path or "steps" in b.path for b in bound.tensors)


def test_metadata_that_disagrees_is_drift(tmp_path: Path) -> None:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    checkpoint["Policy"]["memory_size_vector"] = torch.tensor([64.0])
    bound = bindings(tmp_path, model, checkpoint)
    assert bound.verdict == "drift" and "memory_size" in bound.metadata[0]


@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_a_bias_left_away_as_zeros_must_be_zero_in_the_checkpoint(tmp_path: Path, bias: float) -> None:
    model = tiny_policy(opset=18)
    checkpoint = tiny_checkpoint(model)
    checkpoint["Policy"][f"{BODY}.0.bias"] = torch.full((8,), bias)
    first = next(n for n in model.graph.node if n.op_type == "Gemm")
    del first.input[2]
    bound = bindings(tmp_path, model, checkpoint)
    assert bound.verdict == ("drift" if bias else "same")
    assert not bias or f"{BODY}.0.bias" in bound.metadata[0]


def test_without_a_checkpoint_everything_comes_from_the_graph(tmp_path: Path) -> None:
    bound = bindings(tmp_path, tiny_policy(), None)
    assert bound.verdict == "no checkpoint"
    assert {b.source for b in bound.tensors} == {"graph", "derived"}
    assert bound.keys["body"] == BODY  # the table for a later .pt, by the graph's names


def test_ulps_and_bits() -> None:
    one = np.asarray([1.0, -0.0, 0.0], np.float32)
    assert max_ulps(one, np.nextafter(one, np.float32(2))) == 1
    assert max_ulps(np.asarray([-1e-45], np.float32), np.asarray([1e-45], np.float32)) == 2
    assert max_ulps(one, np.asarray([1.0, np.nan, 0.0], np.float32)) is None
    assert not same_bits(np.asarray([0.0], np.float32), np.asarray([-0.0], np.float32))
    apart = compare(one, np.asarray([1.5, -0.0, 0.0], np.float32))
    assert (apart.elements, apart.of, apart.max_abs) == (1, 3, 0.5)
