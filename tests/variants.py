"""What may be done to a graph without changing the network, and with: for the tests of comparing graphs.

Each function gives a changed copy. Foreign models, which no rules know, stand here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min"})


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    copy: onnx.ModelProto = onnx.ModelProto.FromString(model.SerializeToString())
    return copy


# ---------------------------------------------------------------------------------------------- the same network
def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every name another one: inputs, outputs, initializers, values, nodes."""
    model = copied(model)
    names: dict[str, str] = {}

    def fresh(name: str) -> str:
        return names.setdefault(name, f"n{len(names)}") if name else ""

    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        value.name = fresh(value.name)
    for i, node in enumerate(model.graph.node):
        node.name = f"node {i}"
        for values in (node.input, node.output):
            values[:] = [fresh(v) for v in values]
    del model.graph.value_info[:]
    return model


def reordered(model: onnx.ModelProto) -> onnx.ModelProto:
    """The nodes in another valid order: whatever is ready and comes last in the file is taken first."""
    model = copied(model)
    left, done = list(model.graph.node), {"", *(v.name for v in (*model.graph.input, *model.graph.initializer))}
    del model.graph.node[:]
    while left:
        node = next(n for n in reversed(left) if done.issuperset(n.input))
        left.remove(node)
        model.graph.node.append(node)
        done.update(node.output)
    return model


def commuted(model: onnx.ModelProto) -> onnx.ModelProto:
    """The two operands of every commutative operator swapped."""
    model = copied(model)
    for node in model.graph.node:
        if node.op_type in COMMUTATIVE and len(node.input) == 2:
            node.input[:] = [node.input[1], node.input[0]]
    return model


def moved(model: onnx.ModelProto) -> onnx.ModelProto:
    """Initializers as Constant nodes, Constant nodes as initializers."""
    model = copied(model)
    constants = [n for n in model.graph.node if n.op_type == "Constant" and n.attribute[0].name == "value"]
    overridable = {i.name for i in model.graph.input}
    fixed = {o.name for o in model.graph.output} | overridable
    tensors = [t for t in model.graph.initializer if t.name not in fixed]
    others = [n for n in model.graph.node if n not in constants]
    kept = [t for t in model.graph.initializer if t.name in fixed]
    del model.graph.node[:]
    model.graph.node.extend(helper.make_node("Constant", [], [t.name], value=t) for t in tensors)
    model.graph.node.extend(others)
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    for node in constants:
        tensor = model.graph.initializer.add()
        tensor.CopyFrom(node.attribute[0].t)
        tensor.name = node.output[0]
    return model


def merged(model: onnx.ModelProto) -> onnx.ModelProto:
    """Initializers of the same bits as one."""
    model = copied(model)
    first: dict[bytes, str] = {}
    names: dict[str, str] = {}
    kept = []
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        names[tensor.name] = first.setdefault(repr((array.dtype, array.shape)).encode() + array.tobytes(), tensor.name)
        if names[tensor.name] == tensor.name:
            kept.append(tensor)
    for node in model.graph.node:
        node.input[:] = [names.get(v, v) for v in node.input]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    return model


def with_twins(model: onnx.ModelProto) -> onnx.ModelProto:
    """An initializer that a node reads is doubled, under another name, for one more reader of the same numbers."""
    model = copied(model)
    tensor = weights(model)[0]
    twin = model.graph.initializer.add()
    twin.CopyFrom(tensor)
    twin.name = "twin"
    shape = list(tensor.dims)
    model.graph.output.add().CopyFrom(helper.make_tensor_value_info("sum of twins", TensorProto.FLOAT, shape))
    model.graph.node.append(helper.make_node("Mul", [tensor.name, "twin"], ["sum of twins"], "twins"))
    return model


def documented(model: onnx.ModelProto) -> onnx.ModelProto:
    """Another producer, texts and metadata."""
    model = copied(model)
    model.producer_name, model.producer_version, model.doc_string = "somebody", "0.1", "what it is"
    model.metadata_props.add(key="step", value="12")
    return model


def at_opset_18(model: onnx.ModelProto) -> onnx.ModelProto:
    converted: onnx.ModelProto = onnx.version_converter.convert_version(model, 18)
    return converted


# ---------------------------------------------------------------------------------------------- another network
def weights(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Trained tensors: float initializers of more than one number that a node reads."""
    read = {v for n in model.graph.node for v in n.input}
    return [t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT and t.name in read and np.prod(t.dims) > 1]


def _with(tensor: onnx.TensorProto, array: npt.NDArray[np.generic]) -> None:
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))


def one_ulp(model: onnx.ModelProto) -> onnx.ModelProto:
    """One number of the last weight is the next float."""
    model = copied(model)
    tensor = weights(model)[-1]
    array = numpy_helper.to_array(tensor).copy()
    array.reshape(-1)[0] = np.nextafter(array.reshape(-1)[0], np.float32(np.inf))
    _with(tensor, array)
    return model


def other_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every weight a little larger, as at a later step."""
    model = copied(model)
    for tensor in weights(model):
        _with(tensor, numpy_helper.to_array(tensor) * np.float32(1.03))
    return model


def rounded(model: onnx.ModelProto) -> onnx.ModelProto:
    """Weights that went through float16."""
    model = copied(model)
    for tensor in weights(model):
        _with(tensor, numpy_helper.to_array(tensor).astype(np.float16).astype(np.float32))
    return model


def halved(model: onnx.ModelProto) -> onnx.ModelProto:
    """A float16 copy: weights, constants, inputs and outputs."""
    model = copied(model)
    half, single = TensorProto.FLOAT16, TensorProto.FLOAT
    tensors = [*model.graph.initializer, *(a.t for n in model.graph.node for a in n.attribute if a.type == onnx.AttributeProto.TENSOR)]
    for tensor in tensors:
        if tensor.data_type == single:
            _with(tensor, numpy_helper.to_array(tensor).astype(np.float16))
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == single:
            value.type.tensor_type.elem_type = half
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type in ("RandomNormalLike", "Cast") and attribute.name in ("dtype", "to") and attribute.i == single:
                attribute.i = half
    del model.graph.value_info[:]
    return model


def with_input(model: onnx.ModelProto) -> onnx.ModelProto:
    """An input of 4 more, called extra, added to what the first output is."""
    model = copied(model)
    first = model.graph.output[0].name
    for node in model.graph.node:
        for values in (node.input, node.output):
            values[:] = [f"{v}.before" if v == first else v for v in values]
    for tensor in model.graph.initializer:
        tensor.name = f"{first}.before" if tensor.name == first else tensor.name
    model.graph.input.add().CopyFrom(helper.make_tensor_value_info("extra", TensorProto.FLOAT, ["batch", 4]))
    nodes = [
        helper.make_node("ReduceSum", ["extra"], ["extra.sum"], "sum of extra", keepdims=0),
        helper.make_node("Add", [f"{first}.before", "extra.sum"], [first], "with extra"),
    ]
    model.graph.node.extend(nodes)
    return model


def other_activation(model: onnx.ModelProto, to: str = "Tanh") -> onnx.ModelProto:
    """The first Sigmoid or Relu is a Tanh."""
    model = copied(model)
    next(n for n in model.graph.node if n.op_type in ("Sigmoid", "Relu", "Gelu", "Erf")).op_type = to
    return model


def relu_for_silu(model: onnx.ModelProto) -> onnx.ModelProto:
    """The first x · sigmoid(x) is a ReLU."""
    model = copied(model)
    sigmoid = next(n for n in model.graph.node if n.op_type == "Sigmoid")
    product = next(n for n in model.graph.node if sigmoid.output[0] in n.input)
    relu = helper.make_node("Relu", [sigmoid.input[0]], [product.output[0]], "relu")
    product.CopyFrom(relu)
    model.graph.node.remove(sigmoid)
    return model


SAME: Mapping[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "renamed": renamed, "reordered": reordered, "commuted": commuted, "moved": moved, "merged": merged, "documented": documented,
}  # fmt: skip


# ---------------------------------------------------------------------------------------------- models of no family
def classifier(seed: int = 0, channels: int = 6) -> onnx.ModelProto:
    """A CNN: two convolutions with batch normalisation, pooling, a residual, a linear layer, softmax; [N, 3, 12, 12] → [N, 5]."""
    rng = np.random.default_rng(seed)
    tensors: dict[str, npt.NDArray[np.generic]] = {
        "conv1.weight": rng.normal(0, 0.3, (channels, 3, 3, 3)),
        "conv1.bias": rng.normal(0, 0.1, channels),
        "bn.scale": rng.uniform(0.5, 1.5, channels),
        "bn.bias": rng.normal(0, 0.1, channels),
        "bn.mean": rng.normal(0, 0.1, channels),
        "bn.var": rng.uniform(0.5, 1.5, channels),
        "conv2.weight": rng.normal(0, 0.3, (channels, channels, 3, 3)),
        "fc.weight": rng.normal(0, 0.3, (5, channels)),
        "fc.bias": rng.normal(0, 0.1, 5),
    }
    nodes = [
        helper.make_node("Conv", ["image", "conv1.weight", "conv1.bias"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c1", "bn.scale", "bn.bias", "bn.mean", "bn.var"], ["b1"], "bn"),
        helper.make_node("Relu", ["b1"], ["r1"], "relu1"),
        helper.make_node("MaxPool", ["r1"], ["p1"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "conv2.weight"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "p1"], ["s"], "residual"),
        helper.make_node("Relu", ["s"], ["r2"], "relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["g"], "average"),
        helper.make_node("Flatten", ["g"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "fc.weight", "fc.bias"], ["logits"], "fc", transB=1),
        helper.make_node("Softmax", ["logits"], ["classes"], "softmax", axis=1),
    ]
    return _model(nodes, tensors, ("image", ["N", 3, 12, 12]), ("classes", ["N", 5]), 13)


def transformer(seed: int = 0, width: int = 8) -> onnx.ModelProto:
    """A block of one attention head and a feed-forward layer, each with a residual and a layer norm; [N, 4, width]."""
    rng = np.random.default_rng(seed)
    tensors: dict[str, npt.NDArray[np.generic]] = {n: rng.normal(0, 0.4, (width, width)) for n in ("q", "k", "v", "o")}
    tensors |= {"up": rng.normal(0, 0.4, (width, 2 * width)), "down": rng.normal(0, 0.4, (2 * width, width))}
    tensors |= {name: rng.uniform(0.5, 1.5, width) for name in ("norm1.scale", "norm1.bias", "norm2.scale", "norm2.bias")}
    tensors |= {"root": np.asarray(width**0.5), "half": np.asarray(0.5), "one": np.asarray(1.0), "two": np.asarray(2**0.5)}
    nodes = [
        helper.make_node("LayerNormalization", ["tokens", "norm1.scale", "norm1.bias"], ["n1"], "norm1", axis=-1),
        *(helper.make_node("MatMul", ["n1", name], [f"{name}.y"], name) for name in "qkv"),
        helper.make_node("Transpose", ["k.y"], ["k.t"], "turned", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q.y", "k.t"], ["scores"], "scores"),
        helper.make_node("Div", ["scores", "root"], ["scaled"], "scale"),
        helper.make_node("Softmax", ["scaled"], ["attention"], "softmax", axis=-1),
        helper.make_node("MatMul", ["attention", "v.y"], ["mixed"], "mix"),
        helper.make_node("MatMul", ["mixed", "o"], ["out"], "o"),
        helper.make_node("Add", ["tokens", "out"], ["x1"], "residual1"),
        helper.make_node("LayerNormalization", ["x1", "norm2.scale", "norm2.bias"], ["n2"], "norm2", axis=-1),
        helper.make_node("MatMul", ["n2", "up"], ["u"], "up"),
        helper.make_node("Div", ["u", "two"], ["d"], "gelu1"),
        helper.make_node("Erf", ["d"], ["e"], "gelu2"),
        helper.make_node("Add", ["e", "one"], ["a"], "gelu3"),
        helper.make_node("Mul", ["u", "a"], ["m"], "gelu4"),
        helper.make_node("Mul", ["m", "half"], ["h"], "gelu5"),
        helper.make_node("MatMul", ["h", "down"], ["w"], "down"),
        helper.make_node("Add", ["x1", "w"], ["states"], "residual2"),
    ]
    return _model(nodes, tensors, ("tokens", ["N", 4, width]), ("states", ["N", 4, width]), 17)


def _model(
    nodes: list[onnx.NodeProto],
    tensors: Mapping[str, npt.NDArray[np.generic]],
    given: tuple[str, list[str | int]],
    made: tuple[str, list[str | int]],
    opset: int,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "foreign",
        [helper.make_tensor_value_info(given[0], TensorProto.FLOAT, given[1])],
        [helper.make_tensor_value_info(made[0], TensorProto.FLOAT, made[1])],
        [numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in tensors.items()],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)], producer_name="tests")
