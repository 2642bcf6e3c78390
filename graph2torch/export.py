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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnx

from .canonical import canonicalise
from .dynamo import dynamo
from .errors import UnsupportedGraph
from .graph import Array, Graph, read_graph
from .judge.isomorphism import Alignment, align
from .module import example_inputs
from .spec import PolicySpec, end_names
from .text import one_line

if TYPE_CHECKING:
    import torch


class Exporter(Protocol):
    """torch module → ONNX, at the opset of spec.graph, its inputs and outputs called as `end_names` says."""

    def __call__(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], spec: PolicySpec) -> onnx.ModelProto: ...


def torchscript(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], spec: PolicySpec) -> onnx.ModelProto:
    """torch's TorchScript-based exporter. Raises UnsupportedGraph if it refuses."""
    import torch

    inner, outer = end_names(spec)
    axes = {
        name: {k: str(d or f"{v.name}_{k}") for k, d in enumerate(v.shape) if not isinstance(d, int)}
        for name, v in zip((*inner, *outer), (*spec.graph.inputs, *spec.graph.outputs), strict=True)
    }
    buffer = io.BytesIO()
    options: dict[str, Any] = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.onnx._internal")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), _draws_of_anything(), _silent():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            torch.onnx.export(
                module,
                inputs,
                buffer,  # type: ignore[arg-type] # newer torch declares paths only, but writes to files as before
                input_names=inner,
                output_names=outer,
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


@contextmanager
def _silent() -> Iterator[None]:
    """torch writes the whole graph to stdout when it can't export it."""
    import torch

    before = torch._C._jit_onnx_log
    torch._C._jit_onnx_log = lambda *_: None
    try:
        yield
    finally:
        torch._C._jit_onnx_log = before


@contextmanager
def _draws_of_anything() -> Iterator[None]:
    """While tracing, `torch.multinomial` takes probabilities that are not finite (of weights gone NaN), as onnxruntime does."""
    import torch

    class Multinomial(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, p: torch.Tensor, samples: int) -> torch.Tensor:
            return torch.zeros(p.shape[0], samples, dtype=torch.int64)

        @staticmethod
        def symbolic(g: Any, p: Any, samples: int) -> Any:
            return g.op("Multinomial", g.op("Log", p), dtype_i=onnx.TensorProto.INT64, sample_size_i=samples)

    original = torch.multinomial

    def multinomial(p: torch.Tensor, samples: int, *more: Any, **options: Any) -> torch.Tensor:
        if np.isfinite(p.detach().numpy()).all():
            return original(p, samples, *more, **options)
        drawn: torch.Tensor = Multinomial.apply(p, samples)  # type: ignore[no-untyped-call]
        return drawn

    torch.multinomial = multinomial  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.multinomial = original


EXPORTERS: Mapping[str, Exporter] = {"torchscript": torchscript, "dynamo": dynamo}


def export(
    module: torch.nn.Module,
    spec: PolicySpec,
    exporter: Exporter = torchscript,
    example: Mapping[str, Array] | None = None,
    opset: int | None = None,
) -> onnx.ModelProto:
    """`module` as ONNX, at the original's opset and IR version, tensors under the original's names where they align.

    opset: another than the original's; the IR version is then at least the one that goes with it

    Raises UnsupportedGraph if torch's exporter refuses.
    """
    module = _traceable(module)
    asked = spec if opset is None else replace(spec, graph=replace(spec.graph, opset=opset))
    with _sealed(module):
        try:
            proto = exporter(module, example_inputs(spec, example=example), asked)
        except UnsupportedGraph:  # some policies take one agent at a time only
            if example is not None:
                raise
            proto = exporter(module, example_inputs(spec, batch=1), asked)
    inner, outer = end_names(spec)
    _name_ends(proto, dict(zip((*inner, *outer), [v.name for v in (*spec.graph.inputs, *spec.graph.outputs)], strict=True)))
    _unseal(proto)
    _only_arguments(proto)
    rebuilt = canonicalise(read_graph(proto, "rebuilt.onnx"))
    alignment = align(spec.graph, rebuilt)
    _read_directly(proto, alignment, spec.graph)
    _rename(proto, {theirs: ours for ours, theirs in reversed(alignment.constants)}, spec.graph)
    proto.ir_version = max(spec.graph.ir_version, 0 if opset is None else _ir_of(opset))
    if proto.ir_version < 4:  # before IR 4 every initializer is an input as well
        known = {i.name for i in proto.graph.input}
        proto.graph.input.extend(
            onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in proto.graph.initializer if t.name not in known
        )
    return proto


def _ir_of(opset: int) -> int:
    """The IR version that came with an opset."""
    found: int = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])
    return found


SEALED = "graph2torch"


@contextmanager
def _sealed(module: torch.nn.Module) -> Iterator[None]:
    """Single operators are exported under a domain of their own, which torch's passes leave alone.

    Those passes expect graphs as torch itself writes them: they compute what is constant, and guess sizes from shape
    arithmetic as other exporters write it wrongly, to the point of crashing.
    """
    node = type(module).forward.__globals__.get("Node")  # of rules/generic/layer.py, where the policy has single operators
    if node is None:
        yield
        return
    node.domain, before = SEALED, node.domain
    try:
        yield
    finally:
        node.domain = before


def _unseal(proto: onnx.ModelProto) -> None:
    for node in proto.graph.node:
        if node.domain == SEALED:
            node.domain = ""
    for index in reversed([i for i, opset in enumerate(proto.opset_import) if opset.domain == SEALED]):
        del proto.opset_import[index]


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


def _read_directly(proto: onnx.ModelProto, alignment: Alignment, original: Graph) -> None:
    """Where the original's node reads a constant itself, so does the exported one.

    torch puts an Identity behind an initializer for each further use of it. Without its optimiser, onnxruntime doesn't look
    through that, takes the operand for no constant, and may round the product otherwise.
    """
    sources = {t.name: t.name for t in proto.graph.initializer}
    for node in proto.graph.node:  # in topological order
        if node.op_type == "Identity" and node.input[0] in sources:
            sources[node.output[0]] = sources[node.input[0]]
    for mine, theirs in alignment.nodes:
        read = proto.graph.node[theirs.index].input
        for i, (ours, value) in enumerate(zip(mine.spelled, read, strict=False)):
            if ours in original.constants and value in sources:
                read[i] = sources[value]
    needed = {v for n in proto.graph.node for v in n.input} | {v.name for v in proto.graph.output}
    for index in reversed([i for i, n in enumerate(proto.graph.node) if n.output[0] in sources and n.output[0] not in needed]):
        del proto.graph.node[index]


def _name_ends(proto: onnx.ModelProto, names: Mapping[str, str]) -> None:
    """Inputs and outputs get the original's names; inner values that torch called so get others."""
    values = {v for n in proto.graph.node for v in (*n.input, *n.output)} | {t.name for t in proto.graph.initializer}
    taken = values | set(names.values())
    renamed = dict(names)
    for clash in (values - set(names)) & set(names.values()):
        fresh = f"{clash}/inner"
        while fresh in taken:
            fresh += "'"
        taken.add(fresh)
        renamed[clash] = fresh
    inputs = {v.name: names[v.name] for v in proto.graph.input if v.name in names}
    outputs = {v.name: names[v.name] for v in proto.graph.output if v.name in names}
    # an output that is an input itself: torch writes an Identity between the two
    kept = [n for n in proto.graph.node if n.op_type != "Identity" or inputs.get(n.input[0], "") != outputs.get(n.output[0])]
    if len(kept) < len(proto.graph.node):
        del proto.graph.node[:]
        proto.graph.node.extend(kept)
    _apply(proto, renamed)
    for value in (*proto.graph.input, *proto.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if value.name in names and value.name in dim.dim_param:  # torch calls sizes that it can't tell after the value
                dim.dim_param = dim.dim_param.replace(value.name, names[value.name])
        value.name = renamed.get(value.name, value.name)


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


def _apply(proto: onnx.ModelProto, names: Mapping[str, str]) -> None:
    for tensor in proto.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in proto.graph.node:
        for values in (node.input, node.output):
            for i, value in enumerate(values):
                if value in names:
                    values[i] = names[value]


__all__ = ["EXPORTERS", "Exporter", "export", "torchscript"]
