"""Whether two graphs that were called equal are: by onnxruntime on inputs of this module's own, apart from how `verify` does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from graph2torch.graph import ELEMENT_TYPES, RANDOM

from .case import WrongError


def check_bits(original: onnx.ModelProto, rebuilt: onnx.ModelProto, level: str, optimised: Sequence[bool] = (True, False)) -> str:
    """Raises WrongError if `level` promises equal bits for every input and an output differs.

    Gives the level; where it speaks of what was tried alone ("bits"), also that other inputs were found where the bits differ.
    Every random operator is given the same seed in both graphs: each then draws the same numbers wherever it stands.
    """
    if level not in ("bytes", "graph", "bits"):
        return level
    if level == "bytes" and original.SerializeToString() != rebuilt.SerializeToString():
        raise WrongError("called the same file, but is another")
    names = [o.name for o in original.graph.output]
    if names != [o.name for o in rebuilt.graph.output]:
        raise WrongError("the outputs are called otherwise")
    rng = np.random.default_rng(7)
    feeds = [feed(original, batch, scale, rng) for batch, scale in ((1, 1.0), (3, 30.0), (7, 0.1))]
    unread = feed(rebuilt, 1, 1.0, rng)  # inputs of the second alone
    for on in optimised:
        mine, theirs = session(original, on), session(rebuilt, on)
        taken = {i.name for i in theirs.get_inputs()}
        for given in feeds:
            try:
                expected = mine.run(None, given)
            except Exception:  # the original can't do this batch
                continue
            found = theirs.run(None, {k: v for k, v in (unread | given).items() if k in taken})
            for name, a, b in zip(names, expected, found, strict=True):
                if a.dtype != b.dtype or a.shape != b.shape or bits(a) != bits(b):
                    if level == "bits":
                        return "bits, but not elsewhere"
                    raise WrongError(f"called {level}, but {name!r} differs: {a.reshape(-1)[:8]} and {b.reshape(-1)[:8]}")
    return level


def bits(x: Any) -> bytes:
    """The bits, but that one NaN is like another."""
    given: bytes = (np.where(np.isnan(x), np.nan, x).astype(x.dtype) if x.dtype.kind == "f" else x).tobytes()
    return given


def feed(model: onnx.ModelProto, batch: int, scale: float, rng: np.random.Generator) -> dict[str, Any]:
    constants, found = {t.name for t in model.graph.initializer}, {}
    for value in model.graph.input:
        if value.name not in constants:
            tensor = value.type.tensor_type
            shape = [d.dim_value if d.WhichOneof("value") == "dim_value" else batch for d in tensor.shape.dim]
            dtype = ELEMENT_TYPES[tensor.elem_type]
            numbers = rng.normal(0, scale, shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
            found[value.name] = np.asarray(numbers).astype(dtype)
    return found


def session(model: onnx.ModelProto, optimised: bool) -> ort.InferenceSession:
    seeded = onnx.ModelProto.FromString(model.SerializeToString())
    for node in seeded.graph.node:
        if node.op_type in RANDOM:
            kept = [a for a in node.attribute if a.name != "seed"]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute("seed", 5.0)])
    options = ort.SessionOptions()
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return ort.InferenceSession(seeded.SerializeToString(), options, providers=["CPUExecutionProvider"])
