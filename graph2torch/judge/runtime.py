"""onnxruntime, the judge: sessions that give the same numbers on every run."""

from __future__ import annotations

from typing import Any

import onnx
import onnxruntime as ort

from graph2torch.errors import Graph2TorchError, ModelError, UnsupportedGraph
from graph2torch.text import one_line


def session(proto: onnx.ModelProto, optimised: bool, what: str, threads: int = 1) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    try:
        return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        kind: type[Graph2TorchError] = ModelError if what == "the original" else UnsupportedGraph
        raise kind(
            f"onnxruntime {ort.__version__} refuses {what} ({one_line(str(error), 200)}); without it there is no judge. Export the policy again, or use another onnxruntime."
        ) from None


def check_accepted(original: onnx.ModelProto) -> None:
    """Raises ModelError if onnxruntime refuses the original."""
    session(original, True, "the original")
