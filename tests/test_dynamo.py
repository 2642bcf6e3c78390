"""torch's newer exporter: what is done around it, so that the graph it writes is the one that the older one writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import numpy_helper

from graph2torch.build import build_policy
from graph2torch.dynamo import dynamo, fold_moves, traced, zeros_hidden
from graph2torch.errors import UnsupportedGraph
from graph2torch.export import export
from graph2torch.module import build_module
from tests.models import save_pair, tiny_checkpoint, tiny_policy

MOVED = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[n, 4] x) => (float[n, 4] y, float[4, 1] z)
    <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}, int64[1] zero = {0}, float[2, 4] v = {0, 0, 0, 0, 0, 0, 0, 0}> {
        a, b = Split <axis = 0, num_outputs = 2> (w)
        c = Concat <axis = 0> (b, a)
        t = Transpose <perm = [1, 0]> (c)
        p = MatMul (x, c)
        y = MatMul (p, t)
        left, right = Split <axis = 1, num_outputs = 2> (c)
        doubled = Add (left, left)
        z = Identity (doubled)
    }"""


def test_moved_constants_are_constants() -> None:
    model = onnx.parser.parse_model(MOVED)
    before = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    fold_moves(model)
    onnx.checker.check_model(model, full_check=True)
    assert [n.op_type for n in model.graph.node] == ["MatMul", "MatMul", "Add", "Identity"]  # arithmetic stays
    held = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    assert sorted(held) == ["c", "left", "t"]
    np.testing.assert_array_equal(held["c"], [[5, 6], [7, 8], [1, 2], [3, 4]])
    after = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feed = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)}
    assert [a.tobytes() for a in before.run(None, feed)] == [b.tobytes() for b in after.run(None, feed)]


def test_what_moves_an_input_stays() -> None:
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[n, 4] x) => (float[4, n] y) { y = Transpose <perm = [1, 0]> (x) }'
    model = onnx.parser.parse_model(text)
    before = model.SerializeToString()
    fold_moves(model)
    assert model.SerializeToString() == before


def test_zeros_are_hidden_and_come_back() -> None:
    layers = [torch.nn.Linear(2, 3), torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)]
    module = torch.nn.Sequential(*layers)
    with torch.no_grad():
        layers[0].bias.zero_()
        layers[1].bias.copy_(torch.tensor([-0.0, 0.0, 0.0]))
    before = {name: value.numpy().tobytes() for name, value in module.state_dict().items()}

    def hidden() -> None:
        with zeros_hidden(module) as zeros:
            assert {name: array.tobytes() for name, array in zeros.items()} == {name: before[name] for name in ("0.bias", "1.bias")}
            assert layers[0].bias.all() and layers[1].bias.all() and not torch.equal(layers[0].bias, layers[1].bias)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        hidden()
    assert {name: value.numpy().tobytes() for name, value in module.state_dict().items()} == before


def test_an_lstm_is_traced_for_any_batch() -> None:
    class Recurrent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            shapes = (16, 3), (16, 4), (16,), (16,)
            self.weights = torch.nn.ParameterList(torch.nn.Parameter(torch.randn(shape)) for shape in shapes)

        def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
            return torch.lstm(x, (state, state), list(self.weights), True, 1, 0.0, False, False, True)[0]

    batch = torch.export.Dim("batch")
    module = Recurrent().eval()
    program = traced(module, (torch.zeros(2, 1, 3), torch.zeros(1, 2, 4)), ({0: batch}, {1: batch}))
    for n in (1, 5):
        x, state = torch.randn(n, 1, 3), torch.randn(1, n, 4)
        assert torch.equal(program.module()(x, state), module(x, state))


def test_without_onnxscript_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("graph2torch.dynamo.find_spec", lambda _: None)
    model = tiny_policy()
    made = build_policy(*save_pair(tmp_path, model, tiny_checkpoint(model)))
    with pytest.raises(UnsupportedGraph, match=r"graph2torch\[dynamo\]"):
        export(build_module(made.source, made.bindings), made.spec, dynamo, opset=18)


@pytest.mark.slow
def test_a_bias_of_zeros_stays(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    model = tiny_policy()
    for tensor in model.graph.initializer:
        if tensor.name.endswith(".bias"):
            tensor.CopyFrom(numpy_helper.from_array(np.zeros_like(numpy_helper.to_array(tensor)), tensor.name))
    path = tmp_path / "fresh.onnx"
    path.write_bytes(model.SerializeToString())
    made = build_policy(path)
    module = build_module(made.source, made.bindings)
    exported = export(module, made.spec, dynamo, opset=18)
    products = [n for n in exported.graph.node if n.op_type == "Gemm"]
    assert products and all(len(n.input) == 3 for n in products)
    held = {t.name: numpy_helper.to_array(t) for t in exported.graph.initializer}
    assert not any(held[n.input[2]].any() for n in products)
    assert not any(p.any() for name, p in module.named_parameters() if name.endswith(".bias"))
