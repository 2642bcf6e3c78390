# ruff: noqa: A002, B008, B905, N803
"""Operators of ONNX in torch: operands and attributes under ONNX's names, with ONNX's defaults.

Each function, exported, is the one node that it is named after. What it can't do is refused by operators.py before it
gets here. Only those that a policy needs are copied into its model.py, and they need to be exact before they are fast.
"""

import math

import torch
from torch import Tensor, nn


class Node(torch.autograd.Function):  # what torch.onnx.export writes as one node
    domain = "onnx"

    @staticmethod
    def forward(ctx, function, operator, attributes, outputs, *operands):
        state = torch._C._get_tracing_state()
        torch._C._set_tracing_state(None)  # what computes it is not part of the graph
        try:
            return function(*operands, **attributes)
        finally:
            torch._C._set_tracing_state(state)

    @staticmethod
    def symbolic(g, function, operator, attributes, outputs, *operands):
        kinds = {bool: "i", int: "i", float: "f", str: "s", Tensor: "t"}
        typed = {f"{k}_{kinds[type((v or [0])[0] if isinstance(v, list) else v)]}": v for k, v in attributes.items()}
        missing = g.op("prim::Constant")
        missing.setType(torch._C.OptionalType.ofTensor())
        return g.op(f"{Node.domain}::{operator}", *(missing if x is None else x for x in operands), outputs=outputs, **typed)


def node(operator, counted=False):
    """Computes with torch; exported, it is the ONNX operator of that name."""

    def mark(function):
        def call(*operands, outputs=1, **attributes):
            while operands and operands[-1] is None:
                operands = operands[:-1]

            def compute(*operands, **attributes):
                results = function(*operands, **attributes, **({"outputs": outputs} if counted else {}))
                return results if isinstance(results, Tensor) else results[0] if outputs == 1 else results[:outputs]

            if torch.onnx.is_in_onnx_export() and torch.jit.is_tracing():
                with torch.no_grad():
                    return Node.apply(compute, operator, attributes, outputs, *operands)
            return compute(*operands, **attributes)

        return call

    return mark


@node("Abs")
def absolute(x):
    return torch.abs(x)


@node("Neg")
def neg(x):
    return -x


@node("Exp")
def exp(x):
    return torch.exp(x)


@node("Log")
def log(x):
    return torch.log(x)


@node("Sqrt")
def sqrt(x):
    return torch.sqrt(x)


@node("Relu")
def relu(x):
    return torch.relu(x)


@node("Sigmoid")
def sigmoid(x):
    return torch.sigmoid(x)


@node("Tanh")
def tanh(x):
    return torch.tanh(x)


@node("Sin")
def sin(x):
    return torch.sin(x)


@node("Cos")
def cos(x):
    return torch.cos(x)


@node("Tan")
def tan(x):
    return torch.tan(x)


@node("Asin")
def asin(x):
    return torch.asin(x)


@node("Acos")
def acos(x):
    return torch.acos(x)


@node("Atan")
def atan(x):
    return torch.atan(x)


@node("Sinh")
def sinh(x):
    return torch.sinh(x)


@node("Cosh")
def cosh(x):
    return torch.cosh(x)


@node("Asinh")
def asinh(x):
    return torch.asinh(x)


@node("Acosh")
def acosh(x):
    return torch.acosh(x)


@node("Atanh")
def atanh(x):
    return torch.atanh(x)


@node("Erf")
def erf(x):
    return torch.erf(x)


@node("Floor")
def floor(x):
    return torch.floor(x)


@node("Ceil")
def ceil(x):
    return torch.ceil(x)


@node("Round")
def round_even(x):
    return torch.round(x)


@node("Sign")
def sign(x):
    return torch.sign(x)


@node("Reciprocal")
def reciprocal(x):
    return 1 / x


@node("Softsign")
def softsign(x):
    return x / (1 + torch.abs(x))


@node("Softplus")
def softplus(x):
    return nn.functional.softplus(x, threshold=1e9)


@node("Not")
def logical_not(x):
    return torch.logical_not(x)


@node("IsNaN")
def is_nan(x):
    return torch.isnan(x)


@node("BitwiseNot")
def bitwise_not(x):
    return torch.bitwise_not(x)


@node("HardSwish")
def hard_swish(x):
    return x * torch.clamp(x / 6 + 0.5, 0, 1)


@node("Mish")
def mish(x):
    return x * torch.tanh(nn.functional.softplus(x, threshold=1e9))


@node("Det")
def det(x):
    return torch.linalg.det(x)


@node("Identity")
def identity(x):
    return x.clone()


@node("NonZero")
def non_zero(x):
    return torch.nonzero(x).t()


@node("Size")
def size(x):
    return torch.tensor(x.numel())


@node("GlobalAveragePool")
def global_average_pool(x):
    return x.mean(dim=tuple(range(2, x.ndim)), keepdim=True)


@node("GlobalMaxPool")
def global_max_pool(x):
    return x.amax(dim=tuple(range(2, x.ndim)), keepdim=True)


@node("Add")
def add(x, y):
    return x + y


@node("Sub")
def sub(x, y):
    return x - y


@node("Mul")
def mul(x, y):
    return x * y


@node("Equal")
def equal(x, y):
    return x == y


@node("Greater")
def greater(x, y):
    return x > y


@node("Less")
def less(x, y):
    return x < y


@node("GreaterOrEqual")
def greater_or_equal(x, y):
    return x >= y


@node("LessOrEqual")
def less_or_equal(x, y):
    return x <= y


@node("And")
def logical_and(x, y):
    return torch.logical_and(x, y)


@node("Or")
def logical_or(x, y):
    return torch.logical_or(x, y)


@node("Xor")
def logical_xor(x, y):
    return torch.logical_xor(x, y)


@node("BitwiseAnd")
def bitwise_and(x, y):
    return x & y


@node("BitwiseOr")
def bitwise_or(x, y):
    return x | y


@node("BitwiseXor")
def bitwise_xor(x, y):
    return x ^ y


@node("MatMul")
def matmul(x, y):
    return torch.matmul(x, y)


@node("Div")
def div(x, y):
    return x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


@node("PRelu")
def prelu(x, y):
    return torch.where(x < 0, x * y, x)


@node("Tile")
def tile(x, y):
    return x.repeat(y.tolist())


@node("CastLike")
def cast_like(x, y):
    return x.to(y.dtype)


@node("Pow")
def power(x, y):
    return torch.pow(x, y.to(x.dtype) if x.is_floating_point() else y).to(x.dtype)


@node("Mod")
def mod(x, y, *, fmod=0):
    return torch.fmod(x, y) if fmod else torch.remainder(x, y)


@node("BitShift")
def bit_shift(x, y, *, direction):
    return x << y if direction == "LEFT" else x >> y


@node("Max")
def maximum(*x):
    result = x[0]
    for other in x[1:]:
        result = torch.maximum(result, other)
    return result.clone()


@node("Min")
def minimum(*x):
    result = x[0]
    for other in x[1:]:
        result = torch.minimum(result, other)
    return result.clone()


@node("Sum")
def total(*x):
    return sum(x[1:], x[0]).clone()


@node("Mean")
def mean(*x):
    return sum(x[1:], x[0]) / len(x)


@node("Where")
def where(condition, x, y):
    return torch.where(condition, x, y)


@node("Clip")
def clip(x, min=None, max=None):
    low, high = (b if b is None or isinstance(b, Tensor) else torch.tensor(b, dtype=x.dtype) for b in (min, max))
    x = x if low is None else torch.maximum(x, low)
    return (x if high is None else torch.minimum(x, high)).clone()


@node("IsInf")
def is_inf(x, *, detect_negative=1, detect_positive=1):
    return torch.isinf(x) & ((x > 0) & bool(detect_positive) | (x < 0) & bool(detect_negative))


@node("Cast")
def cast(x, *, to, saturate=1):
    names = {1: "float32", 2: "uint8", 3: "int8", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64"}
    return x.to(getattr(torch, names[to]), copy=True)


# ------------------------------------------------------------------------------------------------ activations
@node("LeakyRelu")
def leaky_relu(x, *, alpha=0.01):
    return nn.functional.leaky_relu(x, alpha)


@node("Elu")
def elu(x, *, alpha=1.0):
    return torch.where(x < 0, alpha * (torch.exp(x) - 1), x)


@node("Celu")
def celu(x, *, alpha=1.0):
    return nn.functional.celu(x, alpha)


@node("Selu")
def selu(x, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875):
    return gamma * torch.where(x > 0, x, alpha * torch.exp(x) - alpha)


@node("Gelu")
def gelu(x, *, approximate="none"):
    return nn.functional.gelu(x, approximate=approximate)


@node("Swish")
def swish(x, *, alpha=1.0):
    return x * torch.sigmoid(alpha * x)


@node("HardSigmoid")
def hard_sigmoid(x, *, alpha=0.2, beta=0.5):
    return torch.clamp(alpha * x + beta, 0, 1)


@node("ThresholdedRelu")
def thresholded_relu(x, *, alpha=1.0):
    return torch.where(x > alpha, x, torch.zeros_like(x))


@node("Shrink")
def shrink(x, *, bias=0.0, lambd=0.5):
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, torch.zeros_like(x)))


@node("Softmax")
def softmax(x, *, axis):
    return torch.softmax(x, axis)


@node("Softmax")
def softmax_flat(x, *, axis):  # before opset 13: over all axes from this one on
    return torch.softmax(x.flatten(axis), axis).reshape(x.shape)


@node("LogSoftmax")
def log_softmax(x, *, axis):
    return torch.log_softmax(x, axis)


@node("LogSoftmax")
def log_softmax_flat(x, *, axis):  # before opset 13: over all axes from this one on
    return torch.log_softmax(x.flatten(axis), axis).reshape(x.shape)


@node("Hardmax")
def hardmax(x, *, axis):
    return torch.zeros_like(x).scatter(axis, x.argmax(axis, keepdim=True), 1)


@node("Hardmax")
def hardmax_flat(x, *, axis):  # before opset 13: over all axes from this one on
    flat = x.flatten(axis)
    return torch.zeros_like(flat).scatter(axis, flat.argmax(axis, keepdim=True), 1).reshape(x.shape)


# ------------------------------------------------------------------------------------------------ reductions
def axes_of(x, axes, noop):
    axes = axes.tolist() if isinstance(axes, Tensor) else axes
    return [a % x.ndim for a in axes] if axes else [] if noop else list(range(x.ndim))


def lowest(dtype):
    return -math.inf if dtype.is_floating_point else False if dtype == torch.bool else torch.iinfo(dtype).min


def highest(dtype):
    return math.inf if dtype.is_floating_point else True if dtype == torch.bool else torch.iinfo(dtype).max


@node("ReduceSum")
def reduce_sum(x, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    axes = axes_of(x, axes, noop_with_empty_axes)
    return x.sum(axes, bool(keepdims), dtype=x.dtype) if axes else x.clone()


@node("ReduceMean")
def reduce_mean(x, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    axes = axes_of(x, axes, noop_with_empty_axes)
    return x.mean(axes, bool(keepdims)) if axes else x.clone()


@node("ReduceMax")
def reduce_max(x, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    axes = axes_of(x, axes, noop_with_empty_axes)
    if any(x.shape[a] == 0 for a in axes):
        return x.new_full(x.sum(axes, bool(keepdims)).shape, lowest(x.dtype))
    return x.amax(axes, bool(keepdims)) if axes else x.clone()


@node("ReduceMin")
def reduce_min(x, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    axes = axes_of(x, axes, noop_with_empty_axes)
    if any(x.shape[a] == 0 for a in axes):
        return x.new_full(x.sum(axes, bool(keepdims)).shape, highest(x.dtype))
    return x.amin(axes, bool(keepdims)) if axes else x.clone()


@node("ReduceProd")
def reduce_prod(x, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    result = x.clone()
    for axis in sorted(axes_of(x, axes, noop_with_empty_axes), reverse=True):
        result = result.prod(axis, bool(keepdims), dtype=x.dtype)
    return result


@node("ReduceL1")
def reduce_l1(x, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    axes = axes_of(x, axes, noop_with_empty_axes)
    return x.abs().sum(axes, bool(keepdims), dtype=x.dtype) if axes else x.abs()


@node("ReduceL2")
def reduce_l2(x, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    axes = axes_of(x, axes, noop_with_empty_axes)
    return (x * x).sum(axes, bool(keepdims)).sqrt() if axes else x.abs()


@node("ReduceSumSquare")
def reduce_sum_square(x, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    axes = axes_of(x, axes, noop_with_empty_axes)
    return (x * x).sum(axes, bool(keepdims), dtype=x.dtype) if axes else x * x


@node("ReduceLogSum")
def reduce_log_sum(x, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    axes = axes_of(x, axes, noop_with_empty_axes)
    return x.sum(axes, bool(keepdims)).log() if axes else x.log()


@node("ReduceLogSumExp")
def reduce_log_sum_exp(x, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    axes = axes_of(x, axes, noop_with_empty_axes)
    return torch.logsumexp(x, axes, bool(keepdims)) if axes else x.clone()


@node("ArgMax")
def arg_max(x, *, axis=0, keepdims=1, select_last_index=0):
    if select_last_index:
        return x.shape[axis] - 1 - x.flip(axis).argmax(axis, bool(keepdims))
    return x.argmax(axis, bool(keepdims))


@node("ArgMin")
def arg_min(x, *, axis=0, keepdims=1, select_last_index=0):
    if select_last_index:
        return x.shape[axis] - 1 - x.flip(axis).argmin(axis, bool(keepdims))
    return x.argmin(axis, bool(keepdims))


@node("TopK")
def top_k(x, k, *, axis=-1, largest=1, sorted=1):  # equal numbers in the order of their places
    k = int(k) if isinstance(k, int) else int(k.reshape(()))
    values, places = torch.sort(x, dim=axis, descending=bool(largest), stable=True)
    return values.narrow(axis, 0, k).clone(), places.narrow(axis, 0, k).clone()


@node("CumSum")
def cum_sum(x, axis, *, exclusive=0, reverse=0):
    axis = int(axis.reshape(()))
    flipped = x.flip(axis) if reverse else x
    sums = flipped.cumsum(axis, dtype=x.dtype)
    if exclusive:
        sums = torch.cat([torch.zeros_like(x.narrow(axis, 0, 1)), sums.narrow(axis, 0, x.shape[axis] - 1)], axis)
    return sums.flip(axis) if reverse else sums


# ------------------------------------------------------------------------------------------------ shapes
@node("Shape")
def shape(x, *, start=0, end=None):
    return torch.tensor(x.shape[start:end], dtype=torch.int64)


@node("Reshape")
def reshape(x, shape, *, allowzero=0):
    return x.reshape([n if n or allowzero else x.shape[i] for i, n in enumerate(shape.tolist())]).clone()


@node("Flatten")
def flatten(x, *, axis=1):
    return x.reshape(math.prod(x.shape[: axis + x.ndim if axis < 0 else axis]), -1).clone()


@node("Squeeze")
def squeeze(x, axes=None):
    axes = [i for i, n in enumerate(x.shape) if n == 1] if axes is None else axes.tolist() if isinstance(axes, Tensor) else axes
    dropped = {a % x.ndim for a in axes}
    return x.reshape([n for i, n in enumerate(x.shape) if i not in dropped]).clone()


@node("Unsqueeze")
def unsqueeze(x, axes):
    axes = axes.tolist() if isinstance(axes, Tensor) else axes
    for axis in sorted(a % (x.ndim + len(axes)) for a in axes):
        x = x.unsqueeze(axis)
    return x.clone()


@node("Transpose")
def transpose(x, *, perm=None):
    return x.permute(perm or list(range(x.ndim))[::-1]).contiguous()


@node("Concat")
def concat(*x, axis):
    return torch.cat(x, axis)


@node("Split", counted=True)
def split(x, split=None, *, axis=0, num_outputs=0, outputs=1):
    sizes = split.tolist() if isinstance(split, Tensor) else split
    size = -(-x.shape[axis] // (num_outputs or outputs))
    return tuple(part.clone() for part in torch.split(x, sizes or size, axis))


@node("Slice")
def slice_axes(x, starts, ends, axes=None, steps=None):
    starts, ends, axes, steps = (v.tolist() if isinstance(v, Tensor) else v for v in (starts, ends, axes, steps))
    axes = range(len(starts)) if axes is None else axes
    for start, end, axis, step in zip(starts, ends, axes, steps or [1] * len(starts)):
        places = range(x.shape[axis])[slice(start, end if step > 0 or end >= -x.shape[axis] else None, step)]
        x = x.index_select(axis, torch.tensor(list(places), dtype=torch.int64, device=x.device))
    return x.clone()


@node("Gather")
def gather(x, indices, *, axis=0):
    indices = torch.where(indices < 0, indices + x.shape[axis], indices).to(x.device, torch.int64)
    picked = x.index_select(axis, indices.reshape(-1))
    axis %= x.ndim
    return picked.reshape(x.shape[:axis] + indices.shape + x.shape[axis + 1 :])


@node("GatherElements")
def gather_elements(x, indices, *, axis=0):
    return x.gather(axis, torch.where(indices < 0, indices + x.shape[axis], indices).to(torch.int64))


@node("GatherND")
def gather_nd(x, indices, *, batch_dims=0):
    batch, depth = math.prod(x.shape[:batch_dims]), indices.shape[-1]
    rows, places = x.reshape(batch, *x.shape[batch_dims:]), indices.reshape(batch, -1, depth).to(torch.int64)
    picked = [row[tuple(place[:, i] for i in range(depth))] for row, place in zip(rows, places)]
    return torch.stack(picked).reshape(indices.shape[:-1] + x.shape[batch_dims + depth :])


@node("ScatterElements")
def scatter_elements(x, indices, updates, *, axis=0, reduction="none"):
    indices = torch.where(indices < 0, indices + x.shape[axis], indices).to(torch.int64)
    if reduction == "none":
        return x.scatter(axis, indices, updates)
    return x.scatter_reduce(axis, indices, updates, {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[reduction])


@node("Scatter")
def scatter(x, indices, updates, *, axis=0):
    return x.scatter(axis, torch.where(indices < 0, indices + x.shape[axis], indices).to(torch.int64), updates)


@node("ScatterND")
def scatter_nd(x, indices, updates, *, reduction="none"):
    result = x.clone()
    functions = {"add": torch.add, "mul": torch.mul, "max": torch.maximum, "min": torch.minimum}
    for place, update in zip(indices.reshape(-1, indices.shape[-1]).tolist(), updates.reshape(-1, *x.shape[indices.shape[-1] :])):
        result[tuple(place)] = update if reduction == "none" else functions[reduction](result[tuple(place)], update)
    return result


@node("Expand")
def expand(x, shape):
    return x.expand(torch.broadcast_shapes(x.shape, shape.tolist())).clone()


@node("Pad")
def pad(x, pads, value=None, axes=None, *, mode="constant"):
    pads, axes = (v.tolist() if isinstance(v, Tensor) else v for v in (pads, axes))
    axes = range(x.ndim) if axes is None else axes
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :]):
        places = torch.arange(-before, x.shape[axis] + after, device=x.device)
        inside, last = (places >= 0) & (places < x.shape[axis]), x.shape[axis] - 1
        if mode == "reflect":
            places = last - (last - places % (2 * last)).abs() if last else places * 0
        elif mode == "wrap":
            places = places % x.shape[axis]
        x = x.index_select(axis, places.clamp(0, last))
        if mode == "constant":
            along = inside.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
            x = torch.where(along, x, torch.as_tensor(0 if value is None else value, dtype=x.dtype, device=x.device))
    return x.clone()


@node("ConstantOfShape")
def constant_of_shape(shape, *, value=torch.zeros(1)):
    return value.expand(shape.tolist()).clone() if shape.numel() else value.reshape(()).clone()


@node("Range")
def arange(start, limit, delta):
    count = max(math.ceil((limit.item() - start.item()) / delta.item()), 0)
    return start + delta * torch.arange(count, dtype=start.dtype, device=start.device)


@node("EyeLike")
def eye_like(x, *, dtype=0, k=0):
    names = {1: "float32", 2: "uint8", 3: "int8", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64"}
    rows, columns = (torch.arange(n, device=x.device) for n in x.shape)
    return (rows[:, None] + k == columns).to(getattr(torch, names[dtype]) if dtype else x.dtype)


@node("OneHot")
def one_hot(indices, depth, values, *, axis=-1):
    places = torch.arange(int(depth.reshape(())), device=indices.device)
    indices = torch.where(indices < 0, indices + len(places), indices).to(torch.int64)
    axis = axis + indices.ndim + 1 if axis < 0 else axis
    hot = indices.unsqueeze(axis) == places.reshape([-1 if i == axis else 1 for i in range(indices.ndim + 1)])
    return torch.where(hot, values[1], values[0])


@node("Trilu")
def trilu(x, k=None, *, upper=1):
    k = 0 if k is None else int(k.reshape(()))
    rows, columns = (torch.arange(n, device=x.device) for n in x.shape[-2:])
    kept = columns - rows[:, None] >= k if upper else columns - rows[:, None] <= k
    return torch.where(kept, x, torch.zeros_like(x))


@node("Compress")
def compress(x, condition, *, axis=None):
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    return x.index_select(axis, torch.nonzero(condition[: x.shape[axis]]).reshape(-1).to(x.device))


@node("Unique")
def unique(x, *, axis=None, sorted=1):
    axis = 0 if axis is None and x.ndim == 1 else axis
    source = x.reshape(-1) if axis is None else x
    values, inverse, counts = torch.unique(source, sorted=True, return_inverse=True, return_counts=True, dim=axis or 0)
    first = torch.stack([torch.nonzero(inverse == i)[0, 0] for i in range(len(counts))])
    if not sorted:
        order = first.argsort()
        values, first, counts, inverse = values.index_select(axis or 0, order), first[order], counts[order], order.argsort()[inverse]
    return values, first, inverse, counts


@node("DepthToSpace")
def depth_to_space(x, *, blocksize, mode="DCR"):
    b, c, h, w = x.shape
    if mode == "DCR":
        x = x.reshape(b, blocksize, blocksize, c // blocksize**2, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(b, c // blocksize**2, blocksize, blocksize, h, w).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(b, c // blocksize**2, h * blocksize, w * blocksize)


@node("SpaceToDepth")
def space_to_depth(x, *, blocksize):
    b, c, h, w = x.shape
    x = x.reshape(b, c, h // blocksize, blocksize, w // blocksize, blocksize).permute(0, 3, 5, 1, 2, 4)
    return x.reshape(b, c * blocksize**2, h // blocksize, w // blocksize)


@node("ReverseSequence")
def reverse_sequence(x, sequence_lens, *, batch_axis=1, time_axis=0):
    x = x.movedim((batch_axis, time_axis), (0, 1)).clone()
    for row, length in zip(x, sequence_lens.tolist()):
        row[:length] = row[:length].flip(0)
    return x.movedim((0, 1), (batch_axis, time_axis)).contiguous()


@node("Einsum")
def einsum(*x, equation):
    return torch.einsum(equation, *x).clone()


# ------------------------------------------------------------------------------------------------ matrices
@node("Gemm")
def gemm(x, y, z=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    product = alpha * torch.matmul(x.t() if transA else x, y.t() if transB else y)
    return product if z is None else product + beta * z


@node("MatMulInteger")
def matmul_integer(x, y, x_zero_point=None, y_zero_point=None):
    x = x.to(torch.int32) if x_zero_point is None else x.to(torch.int32) - x_zero_point.to(torch.int32)
    y = y.to(torch.int32) if y_zero_point is None else y.to(torch.int32) - y_zero_point.to(torch.int32)
    return torch.matmul(x, y)


def padding_of(x, kernel, strides, dilations, pads, auto_pad):
    """What is added before and after each of the axes from the third on."""
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        needs = [max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0) for n, k, s, d in zip(x.shape[2:], kernel, strides, dilations)]
        return [(need - need // 2, need // 2) if auto_pad == "SAME_LOWER" else (need // 2, need - need // 2) for need in needs]
    return list(zip(pads[: len(kernel)], pads[len(kernel) :])) if pads and auto_pad == "NOTSET" else [(0, 0)] * len(kernel)


@node("Conv")
def conv(x, w, b=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
    kernel = w.shape[2:]
    strides, dilations = strides or [1] * len(kernel), dilations or [1] * len(kernel)
    around = padding_of(x, kernel, strides, dilations, pads, auto_pad)
    x = nn.functional.pad(x, [n for pair in reversed(around) for n in pair])
    function = (nn.functional.conv1d, nn.functional.conv2d, nn.functional.conv3d)[len(kernel) - 1]
    return function(x, w, b, strides, 0, dilations, group)


@node("ConvTranspose")
def conv_transpose(
    x,
    w,
    b=None,
    *,
    auto_pad="NOTSET",
    dilations=None,
    group=1,
    kernel_shape=None,
    output_padding=None,
    output_shape=None,
    pads=None,
    strides=None,
):
    kernel = w.shape[2:]
    strides, dilations, extra = strides or [1] * len(kernel), dilations or [1] * len(kernel), output_padding or [0] * len(kernel)
    full = [(n - 1) * s + (k - 1) * d + 1 + e for n, k, s, d, e in zip(x.shape[2:], kernel, strides, dilations, extra)]
    if output_shape or auto_pad.startswith("SAME"):
        wanted = output_shape or [n * s for n, s in zip(x.shape[2:], strides)]
        cut = [f - n for f, n in zip(full, wanted)]
        around = [(c // 2, c - c // 2) if auto_pad == "SAME_UPPER" else (c - c // 2, c // 2) for c in cut]
    else:
        around = padding_of(x, kernel, strides, dilations, pads, auto_pad)
    function = (nn.functional.conv_transpose1d, nn.functional.conv_transpose2d, nn.functional.conv_transpose3d)[len(kernel) - 1]
    y = function(x, w, None, strides, 0, 0, group, dilations)
    y = nn.functional.pad(y, [n for (before, after), e in zip(reversed(around), reversed(extra)) for n in (-before, e - after)])
    return y if b is None else y + b.reshape(-1, *[1] * len(kernel))


def windows(x, kernel, strides, dilations, around, ceil_mode, fill):
    """The windows of a pooling, side by side in the last axis. The first result that `ceil_mode` adds may look past the padding."""
    for axis, (k, s, d, (before, after)) in enumerate(zip(kernel, strides, dilations, around), 2):
        reach, size = (k - 1) * d + 1, x.shape[axis] + before + after
        count = (size - reach + (s - 1 if ceil_mode else 0)) // s + 1
        count -= ceil_mode and (count - 1) * s >= x.shape[axis] + before
        places = torch.arange(count, device=x.device)[:, None] * s + torch.arange(k, device=x.device) * d
        room = [0, 0] * (x.ndim - 1 - axis) + [before, max(int(places.max()) + 1 - before - x.shape[axis], 0)]
        x = nn.functional.pad(x, room, value=fill).index_select(axis, places.reshape(-1))
        x = x.reshape(*x.shape[:axis], count, k, *x.shape[axis + 1 :]).movedim(axis + 1, -1)
    return x.flatten(x.ndim - len(kernel))


@node("MaxPool", counted=True)
def max_pool(x, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, dilations=None, pads=None, storage_order=0, strides=None, outputs=1):
    strides, dilations = strides or [1] * len(kernel_shape), dilations or [1] * len(kernel_shape)
    around = padding_of(x, kernel_shape, strides, dilations, pads, auto_pad)
    values, place = windows(x, kernel_shape, strides, dilations, around, ceil_mode, lowest(x.dtype)).max(-1)
    if outputs == 1:
        return values
    numbers = torch.arange(x[0, 0].numel(), device=x.device)
    numbers = numbers.reshape(x.shape[:1:-1]).permute(*reversed(range(x.ndim - 2))) if storage_order else numbers.reshape(x.shape[2:])
    numbers = windows(numbers[None, None], kernel_shape, strides, dilations, around, ceil_mode, 0).expand(*values.shape, -1)
    maps = torch.arange(x.shape[0] * x.shape[1], device=x.device).reshape(*x.shape[:2], *[1] * (x.ndim - 2))
    return values, numbers.gather(-1, place[..., None])[..., 0] + maps * x[0, 0].numel()


@node("AveragePool")
def average_pool(x, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, dilations=None, pads=None, strides=None):
    strides, dilations = strides or [1] * len(kernel_shape), dilations or [1] * len(kernel_shape)
    around = padding_of(x, kernel_shape, strides, dilations, pads, auto_pad)
    total = windows(x, kernel_shape, strides, dilations, around, ceil_mode, 0).sum(-1)
    counted = torch.ones_like(x[:1, :1])
    if count_include_pad:
        counted = nn.functional.pad(counted, [n for pair in reversed(around) for n in pair], value=1)
        around = [(0, 0)] * len(kernel_shape)
    counts = windows(counted, kernel_shape, strides, dilations, around, ceil_mode, 0).sum(-1)
    return total / counts[tuple([slice(None)] * 2 + [slice(n) for n in total.shape[2:]])]


@node("LpPool")
def lp_pool(x, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, dilations=None, p=2, pads=None, strides=None):
    strides, dilations = strides or [1] * len(kernel_shape), dilations or [1] * len(kernel_shape)
    around = padding_of(x, kernel_shape, strides, dilations, pads, auto_pad)
    return windows(x.abs() ** p, kernel_shape, strides, dilations, around, ceil_mode, 0).sum(-1) ** (1 / p)


@node("GlobalLpPool")
def global_lp_pool(x, *, p=2):
    return (x.abs() ** p).sum(dim=tuple(range(2, x.ndim)), keepdim=True) ** (1 / p)


@node("MaxUnpool")
def max_unpool(x, indices, output_shape=None, *, kernel_shape, pads=None, strides=None):
    strides, pads = strides or [1] * len(kernel_shape), pads or [0] * 2 * len(kernel_shape)
    sizes = [
        (n - 1) * s + k - before - after
        for n, s, k, before, after in zip(x.shape[2:], strides, kernel_shape, pads, pads[len(kernel_shape) :])
    ]
    natural = torch.zeros(x.shape[0] * x.shape[1] * math.prod(sizes), dtype=x.dtype, device=x.device)
    natural[indices.reshape(-1)] = x.reshape(-1)
    natural = natural.reshape(*x.shape[:2], *sizes)
    if output_shape is None:
        return natural
    return nn.functional.pad(natural, [n for want, have in zip(output_shape.tolist()[:1:-1], sizes[::-1]) for n in (0, want - have)])


# ------------------------------------------------------------------------------------------------ normalisation
def along(x, v):
    """A number for each channel, to go with [batch, channel, …]."""
    return v.reshape(-1, *[1] * (x.ndim - 2))


@node("BatchNormalization")
def batch_normalization(x, scale, b, mean, var, *, epsilon=1e-5, momentum=0.9):
    return (x - along(x, mean)) / torch.sqrt(along(x, var) + epsilon) * along(x, scale) + along(x, b)


@node("InstanceNormalization")
def instance_normalization(x, scale, b, *, epsilon=1e-5):
    axes = tuple(range(2, x.ndim))
    d = x - x.mean(axes, keepdim=True)
    return d / torch.sqrt((d * d).mean(axes, keepdim=True) + epsilon) * along(x, scale) + along(x, b)


@node("GroupNormalization")
def group_normalization(x, scale, b, *, num_groups, epsilon=1e-5):
    return nn.functional.group_norm(x, num_groups, None, None, epsilon) * along(x, scale) + along(x, b)


@node("LayerNormalization")
def layer_normalization(x, scale, b=None, *, axis=-1, epsilon=1e-5, stash_type=1):
    axes = tuple(range(axis % x.ndim, x.ndim))
    mean = x.mean(axes, keepdim=True)
    inverse = 1 / torch.sqrt(((x - mean) ** 2).mean(axes, keepdim=True) + epsilon)
    y = (x - mean) * inverse * scale
    return y if b is None else y + b, mean, inverse


@node("RMSNormalization")
def rms_normalization(x, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    return x / torch.sqrt((x * x).mean(tuple(range(axis % x.ndim, x.ndim)), keepdim=True) + epsilon) * scale


@node("LpNormalization")
def lp_normalization(x, *, axis=-1, p=2):
    norm = torch.linalg.vector_norm(x, p, axis, keepdim=True)
    return torch.where(norm == 0, torch.zeros_like(x), x / norm)


@node("LRN")
def lrn(x, *, size, alpha=0.0001, beta=0.75, bias=1.0):
    squares = nn.functional.pad((x * x).movedim(1, -1), [(size - 1) // 2, size // 2]).unfold(-1, size, 1).sum(-1).movedim(-1, 1)
    return x / (bias + alpha / size * squares) ** beta


@node("MeanVarianceNormalization")
def mean_variance_normalization(x, *, axes=(0, 2, 3)):
    mean = x.mean(tuple(axes), keepdim=True)
    return (x - mean) / torch.sqrt(((x - mean) ** 2).mean(tuple(axes), keepdim=True))


@node("Dropout")
def dropout(x, ratio=0.5, training_mode=None, *, seed=0):
    return x.clone(), torch.ones_like(x, dtype=torch.bool)


# ------------------------------------------------------------------------------------------------ recurrent
def both_ways(x, direction, layout, initial, cell):
    """Runs `cell(number, x_t, *state)` over time, in each direction: all the results, and the last state."""
    x = x.transpose(0, 1) if layout else x
    ways = ["forward", "reverse"] if direction == "bidirectional" else [direction]
    steps, last = [], []
    for i, way in enumerate(ways):
        state, made = tuple(s[i] for s in initial), []
        for x_t in x if way == "forward" else x.flip(0):
            state = cell(i, x_t, *state)
            made.append(state[0])
        steps.append(torch.stack(made if way == "forward" else made[::-1]))
        last.append(state)
    return (torch.stack(steps, 1), *(torch.stack([state[k] for state in last]) for k in range(len(initial))))


def start_of(x, w, hidden, layout, given):
    """The state given, or zeros: [direction, batch, hidden]."""
    return torch.zeros(w.shape[0], x.shape[0 if layout else 1], hidden, dtype=x.dtype, device=x.device) if given is None else given


@node("LSTM")
def lstm(x, w, r, b=None, sequence_lens=None, initial_h=None, initial_c=None, p=None, *, hidden_size, direction="forward", layout=0):
    state = [start_of(x, w, hidden_size, layout, s) for s in (initial_h, initial_c)]

    def cell(k, x_t, h, c):
        gates = x_t @ w[k].t() + h @ r[k].t()
        gates = gates if b is None else gates + b[k].reshape(2, -1).sum(0)
        i, o, f, g = gates.chunk(4, -1)  # ONNX's order: input, output, forget, cell
        p_i, p_o, p_f = (0, 0, 0) if p is None else p[k].chunk(3)
        c_next = torch.sigmoid(f + p_f * c) * c + torch.sigmoid(i + p_i * c) * torch.tanh(g)
        return torch.sigmoid(o + p_o * c_next) * torch.tanh(c_next), c_next

    return both_ways(x, direction, layout, state, cell)


@node("GRU")
def gru(x, w, r, b=None, sequence_lens=None, initial_h=None, *, hidden_size, direction="forward", layout=0, linear_before_reset=0):
    state = [start_of(x, w, hidden_size, layout, initial_h)]

    def cell(k, x_t, h):
        b_w, b_r = torch.zeros(2, 3 * hidden_size, dtype=x.dtype, device=x.device) if b is None else b[k].chunk(2)
        (w_z, w_r, w_h), (r_z, r_r, r_h) = w[k].chunk(3), r[k].chunk(3)
        (bw_z, bw_r, bw_h), (br_z, br_r, br_h) = b_w.chunk(3), b_r.chunk(3)
        z = torch.sigmoid(x_t @ w_z.t() + h @ r_z.t() + bw_z + br_z)
        reset = torch.sigmoid(x_t @ w_r.t() + h @ r_r.t() + bw_r + br_r)
        recurrent = reset * (h @ r_h.t() + br_h) if linear_before_reset else (reset * h) @ r_h.t() + br_h
        return ((1 - z) * torch.tanh(x_t @ w_h.t() + recurrent + bw_h) + z * h,)

    return both_ways(x, direction, layout, state, cell)


@node("RNN")
def rnn(x, w, r, b=None, sequence_lens=None, initial_h=None, *, hidden_size, direction="forward", layout=0):
    state = [start_of(x, w, hidden_size, layout, initial_h)]

    def cell(k, x_t, h):
        y = x_t @ w[k].t() + h @ r[k].t()
        return (torch.tanh(y if b is None else y + b[k].reshape(2, -1).sum(0)),)

    return both_ways(x, direction, layout, state, cell)


# ------------------------------------------------------------------------------------------------ losses
@node("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(x, target, weight=None, *, ignore_index=-100, reduction="mean"):
    weight = torch.ones(x.shape[1], dtype=x.dtype, device=x.device) if weight is None else weight
    kept = target != ignore_index
    target = torch.where(kept, target, torch.zeros_like(target)).to(torch.int64)
    scale = weight[target] * kept
    loss = -x.gather(1, target.unsqueeze(1)).squeeze(1) * scale
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.sum() / scale.sum()


@node("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(x, target, weight=None, *, ignore_index=-100, reduction="mean"):
    log = torch.log_softmax(x, 1)
    weight = torch.ones(x.shape[1], dtype=x.dtype, device=x.device) if weight is None else weight
    kept = target != ignore_index
    target = torch.where(kept, target, torch.zeros_like(target)).to(torch.int64)
    scale = weight[target] * kept
    loss = -log.gather(1, target.unsqueeze(1)).squeeze(1) * scale
    loss = loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.sum() / scale.sum()
    return loss, log


# ------------------------------------------------------------------------------------------------ random draws
@node("Multinomial")
def multinomial(x, u=None, *, dtype=6, sample_size=1):  # options, by chance or where u, uniform in [0, 1), falls
    p = torch.softmax(x, 1)
    if u is None:
        drawn = torch.multinomial(p.cpu(), sample_size, replacement=True).to(x.device)
    else:
        ends = p.cumsum(1)
        drawn = (ends[:, None] <= (u * ends[:, -1:])[:, :, None]).sum(2)
    return drawn.to(torch.int32 if dtype == 6 else torch.int64)


@node("RandomNormalLike")
def random_normal_like(x, *, dtype=1, mean=0.0, scale=1.0):
    return torch.randn(x.shape).to(x.device) * scale + mean


@node("RandomUniformLike")
def random_uniform_like(x, *, dtype=1, low=0.0, high=1.0):
    return torch.rand(x.shape).to(x.device) * (high - low) + low


# ------------------------------------------------------------------------------------------------ images
@node("Resize")
def resize(
    x, roi=None, scales=None, sizes=None, *, axes=None, coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75,
    exclude_outside=0, mode="nearest", nearest_mode="round_prefer_floor"
):  # fmt: skip
    axes = range(x.ndim) if axes is None else axes
    by_size = sizes is not None and sizes.numel() > 0
    for axis, wanted in zip(axes, (sizes if by_size else scales).tolist()):
        before = x.shape[axis]
        after = int(wanted) if by_size else math.floor(before * wanted)
        scale = torch.tensor(after / before if by_size else wanted, dtype=torch.float32)
        if after == before and scale == 1:
            continue
        places = torch.arange(after, dtype=torch.float32)
        if coordinate_transformation_mode == "align_corners":
            places = places * (before - 1) / (after - 1) if after > 1 else places * 0
        elif coordinate_transformation_mode == "asymmetric":
            places = places / scale
        elif coordinate_transformation_mode == "pytorch_half_pixel" and after == 1:
            places = places * 0
        else:
            places = (places + 0.5) / scale - 0.5
        if mode == "nearest":
            rounded = {
                "round_prefer_floor": torch.ceil(places - 0.5),
                "round_prefer_ceil": torch.floor(places + 0.5),
                "floor": torch.floor(places),
                "ceil": torch.ceil(places),
            }[nearest_mode]
            x = x.index_select(axis, rounded.clamp(0, before - 1).to(x.device, torch.int64))
            continue
        if mode == "linear":
            places = places.clamp(0, before - 1)
            taps = torch.floor(places)[:, None] + torch.arange(2)
            weights = (1 - (places[:, None] - taps).abs()).clamp(min=0)
        else:
            taps = torch.floor(places)[:, None] + torch.arange(-1, 3)
            d, a = (places[:, None] - taps).abs(), cubic_coeff_a
            near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
            weights = torch.where(d <= 1, near, far)
            if exclude_outside:
                weights = weights * ((taps >= 0) & (taps < before))
                weights = weights / weights.sum(1, keepdim=True)
        taps, weights = taps.clamp(0, before - 1).to(x.device, torch.int64), weights.to(x.device, x.dtype)
        shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
        x = sum(x.index_select(axis, taps[:, k]) * weights[:, k].reshape(shape) for k in range(taps.shape[1]))
    return x.clone()


@node("Upsample")
def upsample(x, scales, *, mode="nearest"):
    for axis, scale in enumerate(scales if isinstance(scales, list) else scales.tolist()):
        x = x.repeat_interleave(int(scale), axis)
    return x.clone()


@node("GridSample")
def grid_sample(x, grid, *, align_corners=0, mode="linear", padding_mode="zeros"):
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return nn.functional.grid_sample(x, grid, mode, padding_mode, bool(align_corners))


@node("AffineGrid")
def affine_grid(theta, size, *, align_corners=0):
    return nn.functional.affine_grid(theta, size.tolist(), bool(align_corners))


@node("CenterCropPad")
def center_crop_pad(x, shape, *, axes=None):
    for axis, wanted in zip(range(x.ndim) if axes is None else axes, shape.tolist()):
        room = wanted - x.shape[axis]
        around = [0, 0] * (x.ndim - 1 - axis % x.ndim) + [
            room // 2 if room > 0 else -(-room // 2),
            room - (room // 2 if room > 0 else -(-room // 2)),
        ]
        x = nn.functional.pad(x, around)
    return x.clone()


# ------------------------------------------------------------------------------------------------ quantisation
@node("QuantizeLinear")
def quantize_linear(x, scale, zero_point=None, *, axis=1, saturate=1):
    shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)] if scale.ndim and x.ndim else ()
    zero = torch.zeros((), dtype=torch.uint8) if zero_point is None else zero_point
    limits = torch.iinfo(zero.dtype)
    rounded = torch.round(x / scale.reshape(shape)) + (zero.reshape(shape) if zero.ndim else zero)
    return rounded.nan_to_num(limits.min).clamp(limits.min, limits.max).to(zero.dtype)


@node("DequantizeLinear")
def dequantize_linear(x, scale, zero_point=None, *, axis=1):
    shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)] if scale.ndim and x.ndim else ()
    zero = 0 if zero_point is None else zero_point.to(torch.int32).reshape(shape) if zero_point.ndim else zero_point.to(torch.int32)
    return (x.to(torch.int32) - zero).to(scale.dtype) * scale.reshape(shape)


@node("DynamicQuantizeLinear")
def dynamic_quantize_linear(x):
    low, high = x.min().clamp(max=0), x.max().clamp(min=0)
    scale = torch.where(high == low, torch.ones_like(low), (high - low) / 255)
    zero = torch.round((0 - low) / scale).clamp(0, 255)
    return (torch.round(x / scale) + zero).clamp(0, 255).to(torch.uint8), scale, zero.to(torch.uint8)


# ------------------------------------------------------------------------------------------------ windows
def cosine_window(size, periodic, a, b, c, dtype):
    n = torch.arange(int(size), dtype=torch.float64) * (2 * math.pi / (int(size) - (0 if periodic else 1)))
    names = {1: torch.float32, 6: torch.int32, 7: torch.int64, 11: torch.float64}
    return (a - b * torch.cos(n) + c * torch.cos(2 * n)).to(names[dtype])


@node("HannWindow")
def hann_window(size, *, output_datatype=1, periodic=1):
    return cosine_window(size, periodic, 0.5, 0.5, 0, output_datatype)


@node("HammingWindow")
def hamming_window(size, *, output_datatype=1, periodic=1):
    return cosine_window(size, periodic, 25 / 46, 21 / 46, 0, output_datatype)


@node("BlackmanWindow")
def blackman_window(size, *, output_datatype=1, periodic=1):
    return cosine_window(size, periodic, 0.42, 0.5, 0.08, output_datatype)
