"""Exports the emitted torch module to ONNX by tracing its real forward, with the original's opset, IR and names.

The graph comes out of torch alone; nothing of it is taken from the original but names. Which of torch's exporters does
it is decided in one place (`Exporter`): the TorchScript one writes opset 7 to 20 and the same operators that
ML-Agents' own exports hold.
"""

from __future__ import annotations

import inspect
import io
import logging
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import onnx

from .canonical import canonicalise
from .errors import UnsupportedGraph
from .graph import Graph, read_graph
from .isomorphism import align
from .module import example_inputs
from .spec import PolicySpec
from .text import one_line

if TYPE_CHECKING:
    import torch


class Exporter(Protocol):
    """torch module → ONNX, at an opset, with names for inputs and outputs."""

    def __call__(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], spec: PolicySpec) -> onnx.ModelProto: ...


def torchscript(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], spec: PolicySpec) -> onnx.ModelProto:
    """torch's TorchScript-based exporter."""
    import torch

    axes = {
        v.name: {k: str(d or f"{v.name}_{k}") for k, d in enumerate(v.shape) if not isinstance(d, int)}
        for v in (*spec.graph.inputs, *spec.graph.outputs)
    }
    buffer = io.BytesIO()
    options: dict[str, Any] = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.onnx._internal")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            torch.onnx.export(
                module,
                inputs,
                buffer,  # type: ignore[arg-type] # newer torch declares paths only, but writes to files as before
                input_names=[i.name for i in spec.inputs],
                output_names=[o.name for o in spec.outputs],
                dynamic_axes={name: free for name, free in axes.items() if free},
                opset_version=spec.graph.opset,
                **options,
            )
        except Exception as error:
            raise UnsupportedGraph(
                f"torch {torch.__version__} can't export the rebuilt policy at opset {spec.graph.opset} ({type(error).__name__}: {one_line(str(error), 160)}); "
                "another torch version may."
            ) from error
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
    return onnx.load_model_from_string(buffer.getvalue())


def export(module: torch.nn.Module, spec: PolicySpec, exporter: Exporter = torchscript) -> onnx.ModelProto:
    """`module` as ONNX, at the original's opset and IR version, tensors under the original's names where they align.

    Raises UnsupportedGraph if torch's exporter refuses.
    """
    module = _traceable(module)
    try:
        proto = exporter(module, example_inputs(spec), spec)
    except UnsupportedGraph:  # some policies take one agent at a time only
        proto = exporter(module, example_inputs(spec, batch=1), spec)
    _only_arguments(proto)
    _rename_clashes(proto, [v.name for v in (*spec.graph.inputs, *spec.graph.outputs)])
    rebuilt = canonicalise(read_graph(proto, "rebuilt.onnx"))
    _rename(proto, {theirs: ours for ours, theirs in reversed(align(spec.graph, rebuilt).constants)}, spec.graph)
    proto.ir_version = spec.graph.ir_version
    if proto.ir_version < 4:  # before IR 4 every initializer is an input as well
        known = {i.name for i in proto.graph.input}
        proto.graph.input.extend(
            onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in proto.graph.initializer if t.name not in known
        )
    return proto


def _traceable(module: torch.nn.Module) -> torch.nn.Module:
    """The tracer only takes state_dict entries for constants; fixed outputs are buffers outside of it."""
    import copy

    module = copy.copy(module)
    module._non_persistent_buffers_set = set()
    return module


def _only_arguments(proto: onnx.ModelProto) -> None:
    """Below opset 9 torch makes inputs of all initializers, whatever it is told."""
    initializers = {t.name for t in proto.graph.initializer}
    for index in reversed([i for i, v in enumerate(proto.graph.input) if v.name in initializers]):
        del proto.graph.input[index]


def _rename_clashes(proto: onnx.ModelProto, names: Sequence[str]) -> None:
    """Nothing to do unless torch called an inner value like an input or output of the original."""
    graph = proto.graph
    ends = {v.name for v in (*graph.input, *graph.output)}
    inner = {o for n in graph.node for o in n.output} | {t.name for t in graph.initializer}
    clashes = {name: f"{name}/inner" for name in names if name in inner - ends}
    if clashes:
        _apply(proto, clashes)


def _rename(proto: onnx.ModelProto, names: dict[str, str], original: Graph) -> None:
    """Initializers get the original's names, where those are free."""
    initializers = {t.name for t in proto.graph.initializer}
    taken = (
        {v for n in proto.graph.node for v in (*n.input, *n.output)}
        | {v.name for v in (*proto.graph.input, *proto.graph.output)}
        | initializers
    )
    wanted: dict[str, str] = {}
    for old, new in names.items():
        if (
            old in initializers
            and old != new
            and new not in wanted.values()
            and (new not in taken or (new in initializers and new in names and names[new] != new))
        ):
            wanted[old] = new
    _apply(proto, wanted)


def _apply(proto: onnx.ModelProto, names: dict[str, str]) -> None:
    for tensor in proto.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in proto.graph.node:
        for values in (node.input, node.output):
            for i, value in enumerate(values):
                if value in names:
                    values[i] = names[value]


__all__ = ["Exporter", "export", "torchscript"]
