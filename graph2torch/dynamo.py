"""torch's newer ONNX exporter (dynamo), which traces with torch.export, made to write the operators that its older one writes.

It writes opset 18 and later. Left alone, it traces an LSTM as a loop, drops biases that are zero, and makes a MatMul of a linear
layer without bias; each of these would be another graph than the original.
"""

from __future__ import annotations

import inspect
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from .errors import UnsupportedGraph
from .graph import Array
from .spec import PolicySpec, end_names
from .text import one_line

if TYPE_CHECKING:
    import torch


def dynamo(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], spec: PolicySpec) -> onnx.ModelProto:
    """torch's newer exporter, which traces with torch.export; it needs onnxscript (the extra `dynamo`) and writes opset 18 and later.

    Lower opsets come of onnx's version converter, which can't go down everywhere: UnsupportedGraph if another opset comes out.
    """
    import torch

    if find_spec("onnxscript") is None or "dynamo" not in inspect.signature(torch.onnx.export).parameters:
        raise UnsupportedGraph(
            f"torch {torch.__version__}'s dynamo exporter needs torch 2.5 or newer and onnxscript; install them with "
            "`pip install 'graph2torch[dynamo]'`, or use the torchscript exporter."
        )
    inner, outer = end_names(spec)
    free = torch.export.Dim("batch")
    shapes = (tuple({0: free} if i.shape and not isinstance(i.shape[0], int) else {} for i in spec.inputs),)
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # torch's loggers have handlers and levels of their own
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            # traced here: torch.onnx.export would trace an LSTM as a loop, and fail at its memory's strides
            plain = _plain(module)
            with _layers_told():
                traced_policy = traced(plain, inputs, shapes)
            with zeros_hidden(plain) as zeros:
                program = torch.onnx.export(
                    traced_policy,
                    inputs,
                    dynamo=True,
                    input_names=inner,
                    output_names=outer,
                    opset_version=spec.graph.opset,
                    custom_translation_table={torch.ops.aten.linear.default: _linear, torch.ops.aten.lstm.input: _lstm},
                    verbose=False,
                )
                assert program is not None
                proto: onnx.ModelProto = onnx.load_model_from_string(program.model_proto.SerializeToString())  # shares nothing with it
    except Exception as error:
        raise UnsupportedGraph(
            f"torch {torch.__version__}'s dynamo exporter can't export the policy ({type(error).__name__}: {one_line(str(error), 160)}); "
            "use the torchscript exporter."
        ) from error
    finally:
        logging.disable(level)
    reached = next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), 0)
    if reached != spec.graph.opset:
        raise UnsupportedGraph(
            f"torch's dynamo exporter wrote opset {reached} instead of {spec.graph.opset}; ask for --opset {reached}, or use the torchscript exporter."
        )
    for tensor in proto.graph.initializer:
        if tensor.name in zeros:
            tensor.CopyFrom(onnx.numpy_helper.from_array(zeros[tensor.name], tensor.name))
    fold_moves(proto)
    _constants_through_nodes(proto)
    return proto


@contextmanager
def zeros_hidden(module: torch.nn.Module) -> Iterator[Mapping[str, Array]]:
    """Meanwhile, biases that are zero are not; their true numbers by name.

    onnxscript leaves a bias of zeros away, which the original has. Adding it makes 0 of −0, so the two are not the same graph.
    """
    import torch

    zeros = {n: p for n, p in module.named_parameters() if n.rpartition(".")[2] == "bias" and not p.any()}
    before = {name: parameter.detach().clone() for name, parameter in zeros.items()}
    with torch.no_grad():
        for number, parameter in enumerate(zeros.values(), 1):
            parameter.fill_(number)  # each its own, or equal ones would be merged
    try:
        yield {name: tensor.numpy() for name, tensor in before.items()}
    finally:
        with torch.no_grad():
            for name, parameter in zeros.items():
                parameter.copy_(before[name])


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:  # noqa: A002
    """torch's linear layer as one Gemm, where onnxscript's has a MatMul if there is no bias. The names are those of `aten::linear`."""
    from onnxscript import opset18 as op

    if len(input.shape) == 2:
        return op.Gemm(input, weight, *(() if bias is None else (bias,)), transB=1)
    y = op.MatMul(input, op.Transpose(weight, perm=[1, 0]))
    return y if bias is None else op.Add(y, bias)


def _lstm(
    input: Any,  # noqa: A002
    hx: Sequence[Any],
    params: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """torch.lstm of one layer and one direction in ONNX as torch's other exporter writes it, where onnxscript's has slices and shapes around it.

    The arguments are those of `aten::lstm.input`, whose names they must have.
    """
    from onnxscript import opset18 as op

    if num_layers != 1 or bidirectional:
        raise NotImplementedError("an LSTM of several layers or directions")
    weights = [op.Unsqueeze(_gates(op, tensor), [0]) for tensor in params]
    x = op.Transpose(input, perm=[1, 0, 2]) if batch_first else input
    biases = op.Concat(*weights[2:], axis=1) if has_biases else None
    y, hidden, cell = op.LSTM(x, weights[0], weights[1], biases, None, hx[0], hx[1], hidden_size=hx[0].shape[2])
    y = op.Squeeze(y, [1])
    return (op.Transpose(y, perm=[1, 0, 2]) if batch_first else y), hidden, cell


def _gates(op: Any, tensor: Any) -> Any:
    """torch's gates are input, forget, cell, output; those of ONNX input, output, forget, cell."""
    i, f, g, o = op.Split(tensor, axis=0, num_outputs=4)
    return op.Concat(i, o, f, g, axis=0)


@contextmanager
def _layers_told() -> Iterator[None]:
    """What layers ask, `torch.onnx.is_in_onnx_export()`, is true, though torch.onnx.export isn't running yet.

    Strict tracing answers no for torch's own function, whatever that says, by tables made when it first meets it; so it has to meet it
    before another stands in its place, or that other would be in those tables for good.
    """
    import torch

    class Asks(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if torch.onnx.is_in_onnx_export() else x + 2

    torch.export.export(Asks(), (torch.zeros(1),), strict=True)
    before = torch.onnx.is_in_onnx_export
    torch.onnx.is_in_onnx_export = lambda: True
    try:
        yield
    finally:
        torch.onnx.is_in_onnx_export = before


def traced(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], shapes: Any) -> torch.export.ExportedProgram:
    """What torch.export makes of `module`, with torch's dynamic shapes. Raises what torch raises.

    Its plain tracing takes the batch of an LSTM for a fixed size. The strict one, by way of Python's bytecode, is slower and doesn't.
    """
    import torch

    with torch.no_grad():
        try:
            return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=False)
        except Exception as error:
            torch._dynamo.reset()  # what it noted of the sizes of another policy's code at the same lines
            try:
                return torch.export.export(module, inputs, dynamic_shapes=shapes, strict=True)
            except Exception:
                raise error from None


MOVES = frozenset({"Concat", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})


def fold_moves(proto: onnx.ModelProto) -> None:
    """What only moves the numbers of constants becomes a constant, however large: onnxruntime rounds an LSTM otherwise whose weights are computed.

    onnxscript folds small ones, and not through a Split.
    """
    from onnx.reference import ReferenceEvaluator

    constants = {t.name: t for t in proto.graph.initializer}
    folded: dict[str, Array] = {}
    nodes = []
    for node in proto.graph.node:  # in topological order
        read = [v for v in node.input if v]
        if node.op_type not in MOVES or not read or any(v not in constants and v not in folded for v in read):
            nodes.append(node)
            continue
        feed = {v: folded[v] if v in folded else onnx.numpy_helper.to_array(constants[v]) for v in read}
        folded |= dict(zip(node.output, map(np.asarray, ReferenceEvaluator(node).run(None, feed)), strict=True))
    if not folded:
        return
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del proto.graph.node[:]
    proto.graph.node.extend(kept)
    needed = {v for n in kept for v in n.input} | {o.name for o in proto.graph.output}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in folded.items() if name in needed)
    for index in reversed([i for i, t in enumerate(proto.graph.initializer) if t.name not in needed]):
        del proto.graph.initializer[index]


def _constants_through_nodes(proto: onnx.ModelProto) -> None:
    """An output that is an initializer itself, which onnx's checker refuses, comes through an Identity, as torch's other exporter has it."""
    outputs = {o.name for o in proto.graph.output}
    for tensor in [t for t in proto.graph.initializer if t.name in outputs]:
        constant = f"{tensor.name}.constant"
        for node in proto.graph.node:
            for i, value in enumerate(node.input):
                if value == tensor.name:
                    node.input[i] = constant
        proto.graph.node.append(onnx.helper.make_node("Identity", [constant], [tensor.name]))
        tensor.name = constant


def _plain(module: torch.nn.Module) -> torch.nn.Module:
    """The module with a plain tuple for its outputs: torch.export can't save types that it doesn't know."""
    import torch

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.policy = module

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(self.policy(*inputs))

    return Plain().eval()
