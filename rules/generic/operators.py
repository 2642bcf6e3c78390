"""The table of ONNX operators that are rebuilt one by one.

A row's text is the torch expression that torch's exporter turns into this very node; a row without one, or where the
text doesn't hold, calls the function that layer.py keeps for the operator. `refuse` says what can't be rebuilt exactly.
"""

from collections.abc import Callable

import numpy as np

from graph2torch.graph import Array
from graph2torch.operators import Operator, Use, floats


# ---------------------------------------------------------------------------------------------- where texts hold
def divided(use: Use) -> bool:
    """A number divided by a tensor is exported as something else."""
    return floats(use) and use.constant(0) is None


def clamp(use: Use) -> str:
    low, high = use.constant(1), use.constant(2)
    if not use.has(1) or not use.has(2) or low is None or high is None or low.ndim or high.ndim:
        return ""
    return f"torch.clamp(x, {low.item()!r}, {high.item()!r})" if abs(low) < 1e30 and abs(high) < 1e30 else ""


def last_axis(text: str) -> Callable[[Use], str]:
    """`text` where the axis is the last one, which means the same in every opset."""
    return lambda use: text.format(axis=use.integer("axis")) if use.rank() and use.integer("axis") in (-1, (use.rank() or 0) - 1) else ""


def permute(use: Use) -> str:
    perm = use.integers("perm")
    return f"x.permute({', '.join(map(str, perm))})" if perm and list(perm) != sorted(perm) else ""


def leaky_relu(use: Use) -> str:
    return f"nn.functional.leaky_relu(x, {use.node.attributes.get('alpha', 0.01):.7g})"


def concatenate(use: Use) -> str:
    parts = ", ".join("xyz"[i] if i < 3 else f"x{i + 1}" for i in range(len(use.node.inputs)))
    return f"torch.cat([{parts}], dim={use.integer('axis')})"


def several(name: str) -> Callable[[Use], str]:
    """Before opset 13 a softmax goes over all axes from `axis` on."""

    def function(use: Use) -> str:
        rank = use.rank()
        last = rank is not None and use.integer("axis") in (-1, rank - 1)
        return name if use.graph.opset >= 13 or last else f"{name}_flat"

    return function


# ---------------------------------------------------------------------------------------------- what is refused
def only(**values: tuple[object, ...]) -> Callable[[Use], str]:
    """Refuses attributes with other values than these; the default always goes."""

    def refuse(use: Use) -> str:
        for name, allowed in values.items():
            given = use.attribute(name)
            if given is not None and given not in allowed:
                return f"its attribute {name} is {given}"
        return ""

    return refuse


def without(**operands: int) -> Callable[[Use], str]:
    """Refuses these operands, by their places."""
    return lambda use: next((f"it has the operand {name}" for name, place in operands.items() if use.has(place)), "")


def types(*allowed: str) -> Callable[[Use], str]:
    """Refuses a first operand of another type."""
    return lambda use: "" if use.dtype() in allowed else f"it works on {use.dtype() or 'an unknown type'}, not on {' or '.join(allowed)}"


FLOAT = ("float32", "float64", "float16")
number = types(*FLOAT)


def training(use: Use) -> str:
    if use.integer("training_mode") or (len(use.node.outputs) > 1 and use.node.op == "BatchNormalization"):
        return "it is in training mode"
    mode = use.constant(2) if use.node.op == "Dropout" else None
    return "it is in training mode" if use.node.op == "Dropout" and use.has(2) and (mode is None or bool(mode.any())) else ""


def recurrent(use: Use) -> str:
    if use.has(4):
        return "its sequences have lengths of their own"
    return only(layout=(0,))(use)


reduction = types(*FLOAT, "int32", "int64", "int8", "uint8")
extreme = types(*FLOAT, "int32", "int64", "int8", "uint8", "bool")


def power(use: Use) -> str:
    whole = {use.dtype(0), use.dtype(1)} <= {"int32", "int64"}
    return "" if whole or use.dtype() in FLOAT else "it cuts a power off to a whole number"


def whole(numbers: Array | None) -> bool:
    """Whether the numbers are known and whole."""
    return numbers is not None and numbers.size > 0 and bool((numbers.astype(np.float64) % 1 == 0).all())


def resize(use: Use) -> str:
    if use.integer("antialias"):
        return "it smooths what it shrinks (antialias)"
    if use.text("coordinate_transformation_mode", "half_pixel") not in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
        return f"its coordinates are {use.text('coordinate_transformation_mode')}"
    scales = use.constant(2)
    if use.text("coordinate_transformation_mode") == "align_corners" and use.has(2) and not whole(scales):
        return "it aligns the corners of a size that is no whole number, or not known before it runs"
    return only(keep_aspect_ratio_policy=("stretch",), extrapolation_value=())(use)


def upsample(use: Use) -> str:
    scales = use.constant(1) if use.has(1) else None
    given = use.node.attributes.get("scales")
    if not whole(np.asarray(given, np.float32) if isinstance(given, tuple) else scales):
        return "it scales by what is no whole number, or not known before it runs"
    return only(mode=("nearest",))(use)


def sampled(use: Use) -> str:
    cubic = use.text("mode") in ("cubic", "bicubic")
    return "it samples a volume by cubic interpolation" if cubic and use.rank() != 4 else ""


def quantised(use: Use) -> str:
    return only(block_size=(0,), output_dtype=(), precision=())(use)


OPERATORS = (
    # arithmetic
    Operator("Abs", "torch.abs(x)"),
    Operator("Neg", "-x"),
    Operator("Add", "x + y"),
    Operator("Sub", "x - y"),
    Operator("Mul", "x * y"),
    Operator("Div", "x / y", plain_if=divided),
    Operator("Pow", refuse=power),
    Operator("Mod"),
    Operator("Sqrt", "torch.sqrt(x)"),
    Operator("Exp", "torch.exp(x)"),
    Operator("Log", "torch.log(x)"),
    Operator("Reciprocal"),
    Operator("Floor", "torch.floor(x)"),
    Operator("Ceil", "torch.ceil(x)"),
    Operator("Round"),
    Operator("Sign", "torch.sign(x)"),
    Operator("Erf", "torch.erf(x)"),
    Operator("Sin", "torch.sin(x)"),
    Operator("Cos", "torch.cos(x)"),
    Operator("Tan", "torch.tan(x)"),
    Operator("Asin", "torch.asin(x)"),
    Operator("Acos", "torch.acos(x)"),
    Operator("Atan", "torch.atan(x)"),
    Operator("Sinh"),
    Operator("Cosh"),
    Operator("Asinh"),
    Operator("Acosh"),
    Operator("Atanh"),
    Operator("Max", rounds=False),
    Operator("Min", rounds=False),
    Operator("Sum"),
    Operator("Mean"),
    Operator("Clip", clamp),
    Operator("CumSum"),
    Operator("BitShift"),
    Operator("BitwiseAnd"),
    Operator("BitwiseOr"),
    Operator("BitwiseXor"),
    Operator("BitwiseNot"),
    Operator("Det"),
    # comparison, logic, types
    Operator("Equal", rounds=False),
    Operator("Greater", rounds=False),
    Operator("Less", rounds=False),
    Operator("GreaterOrEqual", rounds=False),
    Operator("LessOrEqual", rounds=False),
    Operator("And", rounds=False),
    Operator("Or", rounds=False),
    Operator("Xor", rounds=False),
    Operator("Not", rounds=False),
    Operator("IsNaN", rounds=False),
    Operator("IsInf", rounds=False),
    Operator("Where", rounds=False),
    Operator("Cast", refuse=only(to=(1, 2, 3, 5, 6, 7, 9, 10, 11)), rounds=False),
    Operator("CastLike", rounds=False),
    Operator("Identity", rounds=False),
    # activations
    Operator("Relu", "torch.relu(x)"),
    Operator("Sigmoid", "torch.sigmoid(x)"),
    Operator("Tanh", "torch.tanh(x)"),
    Operator("LeakyRelu", leaky_relu),
    Operator("PRelu"),
    Operator("Elu"),
    Operator("Celu"),
    Operator("Selu"),
    Operator("Gelu"),
    Operator("Swish"),
    Operator("HardSigmoid"),
    Operator("HardSwish"),
    Operator("Mish"),
    Operator("Softplus"),
    Operator("Softsign"),
    Operator("ThresholdedRelu"),
    Operator("Shrink"),
    Operator("Softmax", last_axis("torch.softmax(x, dim={axis})"), function=several("softmax")),
    Operator("LogSoftmax", last_axis("torch.log_softmax(x, dim={axis})"), function=several("log_softmax")),
    Operator("Hardmax", function=several("hardmax")),
    # reduction
    Operator("ReduceSum", refuse=reduction),
    Operator("ReduceMean", refuse=number),
    Operator("ReduceMax", refuse=extreme, rounds=False),
    Operator("ReduceMin", refuse=extreme, rounds=False),
    Operator("ReduceProd", refuse=reduction),
    Operator("ReduceL1", refuse=reduction),
    Operator("ReduceL2", refuse=number),
    Operator("ReduceSumSquare", refuse=reduction),
    Operator("ReduceLogSum", refuse=number),
    Operator("ReduceLogSumExp", refuse=number),
    Operator("ArgMax"),
    Operator("ArgMin"),
    Operator("TopK", refuse=only(sorted=(1,))),
    # shape and indexing
    Operator("Shape", rounds=False),
    Operator("Size", rounds=False),
    Operator("Reshape", rounds=False),
    Operator("Flatten", rounds=False),
    Operator("Squeeze", rounds=False),
    Operator("Unsqueeze", rounds=False),
    Operator("Transpose", permute, rounds=False),
    Operator("Concat", concatenate, rounds=False),
    Operator("Split", rounds=False),
    Operator("Slice", rounds=False),
    Operator("Gather", rounds=False),
    Operator("GatherElements", rounds=False),
    Operator("GatherND", rounds=False),
    Operator("ScatterElements"),
    Operator("Scatter", rounds=False),
    Operator("ScatterND"),
    Operator("Expand", rounds=False),
    Operator("Tile", rounds=False),
    Operator("Pad", rounds=False),
    Operator("ConstantOfShape", rounds=False),
    Operator("Range"),
    Operator("EyeLike", rounds=False),
    Operator("OneHot", rounds=False),
    Operator("Trilu", rounds=False),
    Operator("NonZero", rounds=False),
    Operator("Compress", rounds=False),
    Operator("Unique", rounds=False),
    Operator("DepthToSpace", rounds=False),
    Operator("SpaceToDepth", rounds=False),
    Operator("ReverseSequence", rounds=False),
    Operator("Einsum"),
    # matrices and convolution
    Operator("MatMul", "torch.matmul(x, y)"),
    Operator("Gemm"),
    Operator("MatMulInteger"),
    Operator("Conv"),
    Operator("ConvTranspose"),
    # pooling
    Operator("MaxPool"),
    Operator("AveragePool"),
    Operator("LpPool"),
    Operator("GlobalAveragePool"),
    Operator("GlobalMaxPool"),
    Operator("GlobalLpPool"),
    Operator("MaxUnpool", refuse=without(output_shape=2)),
    # normalisation
    Operator("BatchNormalization", refuse=training),
    Operator("InstanceNormalization"),
    Operator("GroupNormalization", since=21),
    Operator("LayerNormalization"),
    Operator("RMSNormalization"),
    Operator("LpNormalization"),
    Operator("LRN"),
    Operator("MeanVarianceNormalization"),
    Operator("Dropout", refuse=training),
    # recurrent
    Operator("LSTM", refuse=recurrent),
    Operator("GRU", refuse=recurrent),
    Operator("RNN", refuse=recurrent),
    # images, quantisation, windows
    Operator("Resize", since=11, refuse=resize),
    Operator("Upsample", since=9, refuse=upsample),
    Operator("GridSample", refuse=sampled),
    Operator("AffineGrid"),
    Operator("CenterCropPad", rounds=False),
    Operator("QuantizeLinear", refuse=quantised),
    Operator("DequantizeLinear", refuse=quantised),
    Operator("DynamicQuantizeLinear"),
    Operator("HannWindow"),
    Operator("HammingWindow"),
    Operator("BlackmanWindow"),
    # losses
    Operator("NegativeLogLikelihoodLoss"),
    Operator("SoftmaxCrossEntropyLoss"),
    # random draws
    Operator("Multinomial", refuse=only(dtype=(6, 7)), draw="uniform"),
    Operator("RandomNormalLike", refuse=only(dtype=(1,)), draw="itself"),
    Operator("RandomUniformLike", refuse=only(dtype=(1,)), draw="itself"),
)
