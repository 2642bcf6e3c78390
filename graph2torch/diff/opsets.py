"""Graphs of different opsets, made comparable: an operator's name and attributes may mean something else in another opset.

The canonical form spells bounds and axes in one way whatever the opset. What remains is told here: the axis of Softmax, which up
to opset 12 meant "this axis and all behind it", and operators whose definition changed in what they compute.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import onnx.defs

from graph2torch.graph import Graph, Node
from graph2torch.text import printable

FLATTENING = frozenset({"Softmax", "LogSoftmax", "Hardmax"})  # up to opset 12 over `axis` and all behind it, then over `axis` alone

# Operators whose definitions differ, from opset 7 to 23, in nothing but the types they take, in optional attributes whose
# default is what they did before, in attributes that became operands, and in operands and outputs that are newly allowed
# (https://github.com/onnx/onnx/blob/main/docs/Changelog.md). Not among them: Resize and Upsample (coordinates), AveragePool
# (ceil_mode), GroupNormalization (scale by group, then by channel), Scatter, DequantizeLinear.
_UNCHANGED = """
Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh BatchNormalization Cast Ceil Clip Concat Constant ConstantOfShape Conv
ConvTranspose Cos Cosh CumSum DepthToSpace Div Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements
GatherND Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual HardSigmoid HardSwish Hardmax Identity
InstanceNormalization IsInf IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization MatMul Max
MaxPool Mean Min Mish Mod Mul Multinomial Neg NonZero Not OneHot Or PRelu Pad Pow RNN RandomNormal RandomNormalLike RandomUniform
RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
ReduceSumSquare Relu Reshape Round ScatterElements ScatterND Selu Shape Sigmoid Sign Sin Sinh Size Slice Softmax Softplus Softsign
SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh Tile TopK Transpose Trilu Unsqueeze Where Xor
"""
UNCHANGED = frozenset(_UNCHANGED.split())


def counted_from_the_end(graph: Graph) -> Graph:
    """The graph with the axes of Softmax and its like counted from the last, where the number of axes is known.

    An axis that has others behind it in opset 12 or earlier becomes a text, which equals no axis of a later opset.
    """
    if not any(node.op in FLATTENING for node in graph.nodes):
        return graph
    return replace(graph, nodes=tuple(_counted(graph, node) if node.op in FLATTENING else node for node in graph.nodes))


def _counted(graph: Graph, node: Node) -> Node:
    axis = node.attributes.get("axis")
    if not isinstance(axis, int):
        return node
    known = graph.types.get(node.spelled[0] if node.spelled else node.inputs[0]) or graph.types.get(node.inputs[0])
    rank = len(known.shape) if known is not None and known.shape is not None else None
    if rank is not None and 0 <= axis < rank:
        axis -= rank
    if axis == -1 or graph.opset >= 13:
        return replace(node, attributes={**node.attributes, "axis": axis})
    return replace(node, attributes={**node.attributes, "axis": f"{axis} and those behind it"})


def other_meaning(a: Graph, b: Graph) -> str:
    """An operator of both graphs that may compute something else in one of the two opsets, in words; "" if there is none."""
    for op in sorted({n.op for n in a.nodes} & {n.op for n in b.nodes}) if a.opset != b.opset else ():
        if op not in UNCHANGED and _since(op, a.opset) != _since(op, b.opset):
            return f"{printable(op, 40)} is not defined alike in opset {a.opset} and opset {b.opset}"
    return ""


@cache
def _since(op: str, opset: int) -> int:
    try:
        return int(onnx.defs.get_schema(op, opset).since_version)
    except onnx.defs.SchemaError:
        return 0
