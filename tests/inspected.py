"""What the tests of `inspect` share: its finding by way of JSON, and places in a tiny policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper

from graph2torch.inspect.file import inspect_file

NORMALIZER = "network_body.observation_encoder.processors.0.normalizer"
ODD = """<ir_version: 8, opset_import: ["" : 13]>
odd (float[batch, 3] obs_0) => (float[batch, 3] continuous_actions, float[1] version_number)
    <float[3] mean = {0.0, 1.0, 2.0}, float[3] std = {1.0, 1.0, 1.0}, float[1] fixed = {3.0}, float lo = {-9.0}, float hi = {9.0}> {
    d = Sub (obs_0, mean)
    q = Div (d, std)
    c = Clip (q, lo, hi)
    two = Constant <value = float {2.0}> ()
    continuous_actions = Unheard (c, two)
    version_number = Identity (fixed)
    unused = Neg (obs_0)
}"""


def inspected(path: Path, checkpoint: Path | None = None) -> dict[str, Any]:
    """inspect_file's finding, by way of JSON, which it promises to fit in."""
    return dict(json.loads(json.dumps(inspect_file(path, checkpoint), allow_nan=False)))


def initializer(model: onnx.ModelProto, name: str) -> Any:
    return numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == name))


def std_name(model: onnx.ModelProto) -> str:
    return str(next(n.input[1] for n in model.graph.node if n.op_type == "Div"))
