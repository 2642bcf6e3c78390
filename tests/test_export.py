"""The re-export: the original's opset, IR, names; out of torch, never out of the original's nodes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from onnx import numpy_helper

from graph2torch.build import Build, rebuild
from graph2torch.canonical import canonicalise
from graph2torch.graph import Model, read_graph
from graph2torch.recognise import Recognised
from graph2torch.rulebook import load_rules
from tests.models import Era, tiny_policy

BOOK = load_rules()


def made_from(proto: onnx.ModelProto) -> Build:
    model = Model(Path("Tiny.onnx"), "0" * 64, 0, proto, read_graph(proto, "Tiny.onnx"))
    return rebuild(Recognised(model, BOOK.recognise(canonicalise(model.graph)), BOOK))


@pytest.mark.parametrize("opset", [7, 8, 9, 11, 13, 15, 18, 20])
def test_the_opset_is_the_originals(opset: int) -> None:
    newest = torch.onnx._constants.ONNX_MAX_OPSET if hasattr(torch.onnx, "_constants") else 20
    if opset > newest:
        pytest.skip(f"torch {torch.__version__} exports opset {newest} at most")
    made = made_from(tiny_policy(opset=opset))
    assert [(o.domain, o.version) for o in made.rebuilt.opset_import] == [("", opset)]
    assert made.verification.level == "graph", made.verification.reason


@pytest.mark.parametrize("ir_version", [3, 4, 6, 8, 10])
def test_the_ir_version_is_the_originals(ir_version: int) -> None:
    made = made_from(tiny_policy(ir_version=ir_version))
    assert made.rebuilt.ir_version == ir_version
    assert made.verification.level == "graph", made.verification.reason
    onnx.checker.check_model(made.rebuilt, full_check=True)


@pytest.mark.parametrize("era", ["torch1.8", "torch2"])
@pytest.mark.parametrize("batch", ["batch", "N", 1, 3])
def test_inputs_outputs_and_initializers_keep_their_names(era: Era, batch: int | str) -> None:
    proto = tiny_policy(observations=(3, 2), era=era, batch=batch)
    made = made_from(proto)

    def shape(value: onnx.ValueInfoProto) -> list[int | str]:
        return [d.dim_value or d.dim_param for d in value.type.tensor_type.shape.dim]

    for ends in ("input", "output"):
        assert [(v.name, shape(v)) for v in getattr(made.rebuilt.graph, ends)] == [(v.name, shape(v)) for v in getattr(proto.graph, ends)]
    mine = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    theirs = {t.name: numpy_helper.to_array(t) for t in made.rebuilt.graph.initializer}
    for name, array in mine.items():
        if array.ndim and name not in {o.name for o in proto.graph.output}:  # scalars may come out as Constant nodes
            assert theirs[name].tobytes() == array.tobytes(), name
    onnx.checker.check_model(made.rebuilt, full_check=True)


def test_the_export_carries_what_the_module_holds_not_what_the_original_holds() -> None:
    """Another weight in the module must come out in the export: nothing is copied from the original's file."""
    from graph2torch.export import export
    from graph2torch.module import build_module

    made = made_from(tiny_policy())
    module = build_module(made.source, made.bindings)
    parameters = dict(module.named_parameters())
    parameters["body.0.weight"].data.add_(1.0)
    rebuilt = export(module, made.spec)
    tensors = {t.name: numpy_helper.to_array(t) for t in rebuilt.graph.initializer}
    assert tensors["network_body._body_endoder.seq_layers.0.weight"].tobytes() == parameters["body.0.weight"].detach().numpy().tobytes()


def test_inner_values_called_like_outputs_do_not_break_the_export() -> None:
    proto = tiny_policy()
    for tensor in proto.graph.initializer:
        if tensor.name == "version_number.1":
            tensor.name = "memory_size_vector.x"
    for node in proto.graph.node:
        for i, value in enumerate(node.input):
            node.input[i] = "memory_size_vector.x" if value == "version_number.1" else value
    assert made_from(proto).verification.level == "graph"
