"""Tiny policies for the tests: graphs as ML-Agents' exporter writes them, and the checkpoints that go with them.

    model = tiny_policy(observations=(4, 3), opset=11)
    save_pair(tmp_path, model, tiny_checkpoint(model))

A few hundred numbers each, so that a test can build one from end to end in a fraction of a second.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Era = Literal["torch1.8", "torch2"]
Encoder = Literal["simple", "resnet", "fully_connected"]
Image = tuple[int, int, int]
Buffer = tuple[int, int]
Numbers = npt.NDArray[np.generic]

# era: (IR version, producer's version, the graph's name); the IR is the exporter's own at opset 9
_ERAS: Mapping[Era, tuple[int, str, str]] = {"torch1.8": (6, "1.8", "torch-jit-export"), "torch2": (4, "2.1.2", "main_graph")}
_ENCODER = "network_body.observation_encoder.processors"
_BODY = "network_body._body_endoder.seq_layers"  # ML-Agents spells it so
_CONDITIONAL = "network_body._body_endoder.layers"
_LSTM = "network_body.lstm.lstm"
_HEAD = "action_model._continuous_distribution"
_BRANCHES = "action_model._discrete_distribution"
_EMBEDDING = 8  # of entities; ML-Agents' is 128, with four heads as here

# one of each family, as arguments of `tiny_policy`
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "continuous": {"observations": (4, 3)},
    "discrete": {"observations": (4,), "actions": 0, "branches": (3, 2)},
    "hybrid": {"observations": (4,), "branches": (3, 2)},
    "sac": {"observations": (4,), "sac": True},
    "lstm": {"observations": (4,), "memory": 6},
    "attention": {"observations": (4, (3, 2))},
    "hypernetwork": {"observations": (4, 3), "goals": (1,)},
    "simple": {"observations": ((2, 20, 21), 3)},
    "resnet": {"observations": ((2, 20, 21),), "encoder": "resnet"},
}


def tiny_policy(
    observations: Sequence[int | Image | Buffer] = (4,),
    actions: int = 2,
    *,
    hidden: int = 8,
    layers: int = 2,
    normalize: bool = True,
    encoder: Encoder = "simple",
    memory: int = 0,
    goals: Sequence[int] = (),
    branches: Sequence[int] = (),
    sac: bool = False,
    deterministic: bool = True,
    opset: int = 9,
    ir_version: int | None = None,
    era: Era = "torch2",
    batch: int | str = "batch",
    seed: int = 0,
) -> onnx.ModelProto:
    """A policy of ML-Agents: one normaliser or encoder an observation, Linear + SiLU layers, PPO's or SAC's heads, fixed outputs.

    observations:  the size of each observation, or channels, height and width of an image, or entities and features of a buffer
    encoder:       of the images; "simple" needs 20 × 20 pixels or more
    memory:        of an LSTM before the head: twice the features that the head gets
    goals:         which observations are goals: with some, the last hidden layer gets its weights from them
    actions:       continuous ones, none or some; branches: options of each discrete branch
    sac:           sigma is made from the observations, and tanh bounds the continuous actions
    deterministic: with the deterministic actions as an output (ML-Agents 0.27 and later)
    opset, ir_version: 7 to 21, and 3 to 10; below 4 every initializer is an input as well
    era:           "torch1.8": values are numbered, fixed outputs are initializers; "torch2": values are called after their
                   modules, fixed outputs are Identities of initializers
    batch:         a name for a free batch size, or a number for a fixed one
    """
    default_ir, version, name = _ERAS[era]
    graph = _Writer(np.random.default_rng(seed), era, opset)
    encoded: dict[int, str] = {}
    buffers: dict[int, Buffer] = {}
    for i, size in enumerate(observations):
        value = f"obs_{i}"
        if isinstance(size, int) and normalize:
            place = f"{_ENCODER}.{i}.normalizer"
            mean = graph.initializer(f"{place}.running_mean", graph.rng.normal(0, 2, size))
            # eighths: their squares, times the steps, are exact in float32, so the checkpoint's statistics agree to the bit
            std = graph.initializer(graph.folded("Div"), graph.rng.integers(4, 24, size) / 8)
            value = graph.node("Sub", [value, mean], place)
            value = graph.node("Div", [value, std], place)
            encoded[i] = graph.clip(value, 5, place)
        elif isinstance(size, int):
            encoded[i] = value
        elif len(size) == 3:
            encoded[i] = graph.image(value, size, encoder, hidden, f"{_ENCODER}.{i}")
        else:
            buffers[i] = size
    width = sum(size if isinstance(size, int) else hidden for i, size in enumerate(observations) if i in encoded)
    value = graph.node("Concat", list(encoded.values()), "network_body.observation_encoder", axis=1) if encoded else ""
    if buffers:
        attended = graph.attention(value, width, buffers)
        value = graph.node("Concat", [value, attended] if value else [attended], "network_body.observation_encoder", axis=1)
        width += _EMBEDDING
    for i in range(layers):
        place = f"{_CONDITIONAL if goals else _BODY}.{2 * i}"
        if goals and i == layers - 1:
            goal = graph.node("Concat", [encoded[j] for j in goals], "network_body.observation_encoder", axis=1)
            value = graph.hyper_network(
                value, goal, width, sum(size for j in goals if isinstance(size := observations[j], int)), hidden, place
            )
        else:
            value = graph.linear(value, width, hidden, place)
        value = graph.swish(value, f"{_CONDITIONAL if goals else _BODY}.{2 * i + 1}")
        width = hidden
    if memory:
        value, width = graph.lstm(value, width, memory // 2), memory // 2
    shapes: list[tuple[str, int, list[int | str]]] = []
    float32, int64 = TensorProto.FLOAT, TensorProto.INT64
    if actions:
        (graph.squashed if sac else graph.gaussian)(value, width, actions, deterministic)
        shapes += [("continuous_actions", float32, [batch, actions]), ("continuous_action_output_shape", float32, [1])]
        shapes += [("deterministic_continuous_actions", float32, [batch, actions])] * deterministic
    if branches:
        graph.discrete(value, width, branches, deterministic)
        shapes += [("discrete_actions", int64, [batch, len(branches)]), ("discrete_action_output_shape", float32, [1, len(branches)])]
        shapes += [("deterministic_discrete_actions", int64, [batch, len(branches)])] * deterministic
    graph.fixed("version_number", "version_number.1", [3])
    graph.fixed("memory_size", "memory_size_vector", [memory])
    if actions:
        graph.fixed("continuous_action_output_shape", "continuous_act_size_vector", [actions])
    if branches:
        graph.fixed("discrete_action_output_shape", "discrete_act_size_vector", [branches])

    shapes[:0] = [("version_number", float32, [1]), ("memory_size", float32, [1])]
    sizes = [[size] if isinstance(size, int) else list(size) for size in observations]
    inputs = [helper.make_tensor_value_info(f"obs_{i}", TensorProto.FLOAT, [batch, *size]) for i, size in enumerate(sizes)]
    if branches:
        inputs.append(helper.make_tensor_value_info("action_masks", float32, [batch, sum(branches)]))
    if memory:
        inputs.append(helper.make_tensor_value_info("recurrent_in", float32, [batch, 1, memory]))
        shapes.append(("recurrent_out", float32, [batch, 1, memory]))
    outputs = [helper.make_tensor_value_info(*output) for output in shapes]
    if (ir_version or default_ir) < 4:
        inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in graph.initializers]
    proto = helper.make_graph(graph.nodes, name, inputs, outputs, graph.initializers)
    return helper.make_model(
        proto,
        ir_version=ir_version or default_ir,
        opset_imports=[helper.make_opsetid("", opset)],
        producer_name="pytorch",
        producer_version=version,
    )


def tiny_checkpoint(model: onnx.ModelProto, steps: int = 1024, global_step: int = 5000) -> dict[str, Any]:
    """The checkpoint that `tiny_policy`'s graph was exported from, as `torch.load` gives it: module → state_dict.

    steps:       normalization_steps; the running variance is such that sqrt(running_variance / steps) is the graph's std
    global_step: the training step
    """
    import torch

    initializers = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    deviations = {n.input[0]: n.input[1] for n in model.graph.node if n.op_type == "Div" and n.input[1] in initializers}
    given = {f"{_HEAD}.log_sigma": 1, f"{_HEAD}.log_sigma.bias": 0}
    actions = next((initializers[name].shape[axis] for name, axis in given.items() if name in initializers), 0)
    options = next(
        (initializers[name] for name in ("discrete_act_size_vector", "discrete_action_output_shape") if name in initializers), None
    )
    policy: dict[str, Numbers] = {
        "version_number": np.asarray([3], np.float32),
        "is_continuous_int_deprecated": np.asarray([options is None], np.float32),
        "continuous_act_size_vector": np.asarray([actions], np.float32),
        "discrete_act_size_vector": np.zeros((1, 0), np.float32) if options is None else options,
        "act_size_vector_deprecated": np.asarray([actions], np.float32),
        "memory_size_vector": initializers["memory_size_vector" if "memory_size_vector" in initializers else "memory_size"],
    }
    for node in model.graph.node:
        if node.op_type == "Sub" and node.input[1].endswith(".running_mean"):
            place = node.input[1].removesuffix(".running_mean")
            variance = initializers[deviations[node.output[0]]].astype(np.float64) ** 2 * steps
            statistics = {
                "normalization_steps": np.asarray(steps),
                "running_mean": initializers[node.input[1]],
                "running_variance": variance.astype(np.float32),
            }
            for prefix in (place, place.replace(".observation_encoder.", ".")):  # the encoder's processors stand in the body, too
                policy.update({f"{prefix}.{key}": value for key, value in statistics.items()})
    policy |= {name: value for name, value in initializers.items() if name.startswith(("network_body.", "action_model."))}
    products = {n.output[0]: n.input[1] for n in model.graph.node if n.op_type == "MatMul" and n.input[1] in initializers}
    for node in model.graph.node:
        if node.op_type == "Add" and node.input[1] in products:  # a Linear over a list
            policy[node.input[0].replace(".bias", ".weight")] = initializers[products[node.input[1]]].T
    for node in model.graph.node:
        if node.op_type == "LSTM":
            weight, recurrence, bias = (initializers[name][0] for name in node.input[1:4])
            first, second = np.split(bias, 2)
            tensors = {"weight_ih_l0": weight, "weight_hh_l0": recurrence, "bias_ih_l0": first, "bias_hh_l0": second}
            for name, value in tensors.items():
                i, o, f, c = np.split(value, 4)
                policy[f"{_LSTM}.{name}"] = np.concatenate([i, f, c, o])
    return {
        "Policy": OrderedDict((key, torch.from_numpy(np.array(value))) for key, value in policy.items()),
        "global_step": OrderedDict(_GlobalSteps__global_step=torch.tensor([global_step])),
        "Optimizer:value_optimizer": {"state": {}, "param_groups": [{"lr": 0.0003, "betas": (0.9, 0.999), "params": [0, 1]}]},
    }


def save_pair(folder: Path, model: onnx.ModelProto, checkpoint: Mapping[str, Any] | None = None, name: str = "Tiny") -> tuple[Path, Path]:
    """Writes NAME.onnx and, if there is a checkpoint, NAME.pt; both paths."""
    paths = folder / f"{name}.onnx", folder / f"{name}.pt"
    paths[0].write_bytes(model.SerializeToString())
    if checkpoint is not None:
        import torch

        torch.save(dict(checkpoint), paths[1])
    return paths


class _Writer:
    """Nodes and initializers in the spelling of an era and an opset."""

    def __init__(self, rng: np.random.Generator, era: Era, opset: int) -> None:
        self.rng, self.old, self.opset = rng, era == "torch1.8", opset
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def initializer(self, name: str, value: npt.ArrayLike) -> str:
        self.initializers.append(_tensor(name, np.asarray(value, np.float32)))
        return name

    def folded(self, op: str) -> str:
        """What the exporter calls a constant that it computed itself."""
        number = 100 + len(self.initializers)
        return str(number) if self.old else f"onnx::{op}_{number}"

    def node(self, op: str, inputs: Sequence[str], module: str, output: str = "", **attributes: Any) -> str:
        """Adds a node of `module`, and gives its output, called `output` or as the era calls it."""
        number = sum(n.op_type == op for n in self.nodes)
        path = "".join(f"/{part}" for part in module.split(".") if part)
        if self.old:
            name = f"{op}_{len(self.nodes)}"
            output = output or str(200 + len(self.nodes))
        else:
            name = f"{path}/{op}" + (f"_{number}" if number else "")
            output = output or f"{name}_output_0"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name, **attributes))
        return output

    def clip(self, value: str, bound: float, module: str, low: float | None = None) -> str:
        """Within ±`bound`, or from `low` on: attributes up to opset 10, then operands."""
        low = -bound if low is None else low
        if self.opset < 11:
            return self.node("Clip", [value], module, min=float(low), max=float(bound))
        bounds = [self.node("Constant", [], module, value=_tensor("", np.float32(b))) for b in (low, bound)]
        return self.node("Clip", [value, *bounds], module)

    def linear(self, value: str, inputs: int, outputs: int, module: str, output: str = "") -> str:
        weight = self.initializer(f"{module}.weight", self.rng.normal(0, 0.4, (outputs, inputs)))
        bias = self.initializer(f"{module}.bias", self.rng.normal(0, 0.1, outputs))
        return self.node("Gemm", [value, weight, bias], module, output, alpha=1.0, beta=1.0, transB=1)

    def convolution(self, value: str, inputs: int, outputs: int, module: str, kernel: int, stride: int, padding: int = 0) -> str:
        weight = self.initializer(f"{module}.weight", self.rng.normal(0, 0.2, (outputs, inputs, kernel, kernel)))
        bias = self.initializer(f"{module}.bias", self.rng.normal(0, 0.1, outputs))
        operands, window = [value, weight, bias], [kernel, kernel]
        return self.node("Conv", operands, module, kernel_shape=window, strides=[stride] * 2, pads=[padding] * 4, dilations=[1, 1], group=1)

    def swish(self, value: str, module: str) -> str:
        return self.node("Mul", [value, self.node("Sigmoid", [value], module)], module)

    def image(self, value: str, size: Image, encoder: Encoder, hidden: int, place: str) -> str:
        channels, height, width = size
        if encoder == "simple":
            for i, (filters, kernel, stride) in enumerate([(4, 8, 4), (6, 4, 2)]):
                value = self.convolution(value, channels, filters, f"{place}.conv_layers.{2 * i}", kernel, stride)
                value = self.node("LeakyRelu", [value], f"{place}.conv_layers.{2 * i + 1}", alpha=0.01)
                channels, height, width = filters, (height - kernel) // stride + 1, (width - kernel) // stride + 1
        elif encoder == "resnet":
            value = self.convolution(value, channels, 3, f"{place}.sequential.0", 3, 1, 1)
            value = self.node("MaxPool", [value], f"{place}.sequential.1", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 0, 0])
            channels, height, width = 3, (height - 3) // 2 + 1, (width - 3) // 2 + 1
            for i in (2, 3):
                block = f"{place}.sequential.{i}"
                inner = self.convolution(self.swish(value, f"{block}.layers.0"), 3, 3, f"{block}.layers.1", 3, 1, 1)
                inner = self.convolution(self.swish(inner, f"{block}.layers.2"), 3, 3, f"{block}.layers.3", 3, 1, 1)
                value = self.node("Add", [value, inner], block)
            value = self.swish(value, f"{place}.sequential.4")
        features = channels * height * width
        shape = self.constant([-1, features], place)
        value = self.node("Reshape", [value, shape], place)
        if encoder == "resnet":
            return self.node("Relu", [self.linear(value, features, hidden, f"{place}.dense")], place)
        return self.node("LeakyRelu", [self.linear(value, features, hidden, f"{place}.dense.0")], f"{place}.dense.1", alpha=0.01)

    def lstm(self, value: str, inputs: int, hidden: int) -> str:
        """One step, its memory from recurrent_in to recurrent_out."""
        body = "network_body"

        def reshape(value: str, shape: Sequence[int]) -> str:
            return self.node("Reshape", [value, self.constant(shape, body)], body)

        def turn(value: str, output: str = "") -> str:
            return self.node("Transpose", [value], f"{body}.lstm", output, perm=[1, 0, 2])

        steps = reshape(value, [-1, 1, inputs])
        memory = turn("recurrent_in")
        h, c = (self.slice(memory, start, end, 2, f"{body}.lstm") for start, end in ((0, hidden), (hidden, 2**63 - 1)))
        sizes = (1, 4 * hidden, inputs), (1, 4 * hidden, hidden), (1, 8 * hidden)
        tensors = [self.initializer(self.folded("LSTM"), self.rng.normal(0, 0.4, size)) for size in sizes]
        outputs = [self.folded("LSTM") + name for name in ("_y", "_h", "_c")]
        self.nodes.append(helper.make_node("LSTM", [turn(steps), *tensors, "", h, c], outputs, "LSTM", hidden_size=hidden))
        turn(self.node("Concat", outputs[1:], f"{body}.lstm", axis=-1), "recurrent_out")
        return reshape(turn(self.squeeze(outputs[0], 1, f"{body}.lstm")), [-1, hidden])

    def attention(self, x_self: str, width: int, buffers: Mapping[int, Buffer]) -> str:
        """The entities of all buffers, attending to each other, as one vector."""
        place, half = "network_body.observation_encoder", _EMBEDDING // 4
        entities = {i: f"obs_{i}" for i in buffers}
        if self.old:
            turned = {i: self.node("Transpose", [value], "", perm=[0, 2, 1]) for i, value in entities.items()}
            entities = {i: self.reshape(value, [-1, *buffers[i]], "") for i, value in turned.items()}
        masks, embedded = [], []
        for value in entities.values():
            size = self.reduced("ReduceSum", self.node("Pow", [value, self.number(2, place)], place), 2, False, place)
            masks.append(self.node("Cast", [self.node("Less", [size, self.number(0.01, place)], place)], place, to=TensorProto.FLOAT))
        if x_self:
            x_self = self.swish(self.linear(x_self, width, _EMBEDDING, f"{place}.x_self_encoder.seq_layers.0"), f"{place}.x_self_encoder")
        for i, (count, features) in buffers.items():
            value = entities[i]
            if x_self:
                row = self.reshape(x_self, [-1, 1, _EMBEDDING], f"{_ENCODER}.{i}")
                rows = self.node("Concat", [row] * count, f"{_ENCODER}.{i}", axis=1)
                value = self.node("Concat", [rows, value], f"{_ENCODER}.{i}", axis=2)
            encoder = f"{_ENCODER}.{i}.self_ent_encoder.seq_layers"
            value = self.product(value, features + bool(x_self) * _EMBEDDING, f"{encoder}.0")
            embedded.append(self.swish(value, f"{encoder}.1"))
        x, mask = self.node("Concat", embedded, place, axis=1), self.node("Concat", masks, f"{place}.rsa", axis=1)

        rsa, count = f"{place}.rsa", sum(count for count, _ in buffers.values())
        x = self.norm(x, f"{rsa}.embedding_norm")
        parts = [self.product(x, _EMBEDDING, f"{rsa}.fc_{name}") for name in "qkv"]
        heads = [self.reshape(part, [-1, count, 4, half], rsa) for part in parts]
        query, key, item = (self.node("Transpose", [head], rsa, perm=[0, 2, 1, 3]) for head in heads)
        key = self.node("Add", [self.node("Sub", [key, self.number(1, rsa)], rsa), self.number(1, rsa)], rsa)
        scores = self.node("MatMul", [query, self.node("Transpose", [key], rsa, perm=[0, 1, 3, 2])], rsa)
        hidden = self.reshape(mask, [-1, 1, 1, count], rsa)
        scores = self.node("Mul", [self.node("Sub", [self.number(1, rsa), hidden], rsa), scores], rsa)
        scores = self.node("Div", [scores, self.number(_EMBEDDING**0.5, rsa)], rsa)
        scores = self.node("Add", [scores, self.node("Mul", [hidden, self.number(-1e6, rsa)], rsa)], rsa)
        value = self.node("MatMul", [self.node("Softmax", [scores], rsa, axis=3), item], rsa)
        value = self.reshape(self.node("Transpose", [value], rsa, perm=[0, 2, 1, 3]), [-1, count, _EMBEDDING], rsa)
        value = self.norm(self.node("Add", [self.product(value, _EMBEDDING, f"{rsa}.fc_out"), x], rsa), f"{rsa}.residual_norm")
        there = self.node("Sub", [self.number(1, rsa), mask], rsa)
        total = self.reduced("ReduceSum", self.node("Mul", [value, self.reshape(there, [-1, count, 1], rsa)], rsa), 1, False, rsa)
        if self.old:
            there = self.node("Sub", [self.number(1, rsa), mask], rsa)
        number = self.reduced("ReduceSum", there, 1, True, rsa)
        return self.node("Div", [total, self.node("Add", [number, self.number(1e-7, rsa)], rsa)], rsa)

    def hyper_network(self, value: str, goal: str, width: int, goals: int, hidden: int, place: str) -> str:
        """A linear layer whose weights are made from the goal."""
        for i in (0, 2):
            goal = self.swish(self.linear(goal, goals, hidden, f"{place}.hypernet.{i}"), f"{place}.hypernet.{i + 1}")
            goals = hidden
        flat = self.linear(self.norm(goal, f"{place}.hypernet.4"), hidden, width * hidden, f"{place}.hypernet.5")
        weight = self.reshape(flat, [-1, width, hidden], place)
        row = self.unsqueeze(value, 1, place)
        value = self.squeeze(self.node("MatMul", [row, weight], place), 1, place)
        return self.node("Add", [value, self.initializer(f"{place}.bias", self.rng.normal(0, 0.1, hidden))], place)

    def product(self, value: str, inputs: int, module: str) -> str:
        """A linear layer over a list, to the size of the embedding."""
        weight = self.initializer(self.folded("MatMul"), self.rng.normal(0, 0.4, (inputs, _EMBEDDING)))
        bias = self.initializer(f"{module}.bias", self.rng.normal(0, 0.1, _EMBEDDING))
        return self.node("Add", [bias, self.node("MatMul", [value, weight], module)], module)

    def norm(self, value: str, module: str) -> str:
        mean = self.reduced("ReduceMean", value, -1, True, module)
        centred = self.node("Sub", [value, mean], module)
        variance = self.reduced("ReduceMean", self.node("Pow", [centred, self.number(2, module)], module), -1, True, module)
        deviation = self.node("Sqrt", [self.node("Add", [variance, self.number(1e-5, module)], module)], module)
        return self.node("Div", [self.node("Sub", [value, mean], module) if self.old else centred, deviation], module)

    def reduced(self, op: str, value: str, axis: int, keep: bool, module: str) -> str:
        if self.opset < {"ReduceSum": 13, "ReduceMean": 18}[op]:
            return self.node(op, [value], module, axes=[axis], keepdims=int(keep))
        return self.node(op, [value, self.constant([axis], module)], module, keepdims=int(keep))

    def reshape(self, value: str, shape: Sequence[int], module: str) -> str:
        return self.node("Reshape", [value, self.constant(shape, module)], module)

    def unsqueeze(self, value: str, axis: int, module: str) -> str:
        if self.opset < 13:
            return self.node("Unsqueeze", [value], module, axes=[axis])
        return self.node("Unsqueeze", [value, self.constant([axis], module)], module)

    def number(self, value: float, module: str) -> str:
        return self.node("Constant", [], module, value=_tensor("", np.float32(value)))

    def constant(self, values: Sequence[int], module: str) -> str:
        return self.node("Constant", [], module, value=_tensor("", np.asarray(values, np.int64)))

    def slice(self, value: str, start: int, end: int, axis: int, module: str) -> str:
        if self.opset < 10:
            return self.node("Slice", [value], module, starts=[start], ends=[end], axes=[axis])
        return self.node("Slice", [value, *(self.constant([number], module) for number in (start, end, axis))], module)

    def squeeze(self, value: str, axis: int, module: str) -> str:
        if self.opset < 13:
            return self.node("Squeeze", [value], module, axes=[axis])
        return self.node("Squeeze", [value, self.constant([axis], module)], module)

    def gaussian(self, value: str, width: int, actions: int, deterministic: bool) -> None:
        """PPO's continuous head: one sigma for all observations."""
        mu = self.linear(value, width, actions, f"{_HEAD}.mu")
        log_sigma = self.initializer(f"{_HEAD}.log_sigma", self.rng.normal(-0.5, 0.2, (1, actions)))
        scaled = self.node("Mul", [mu, self.number(0, _HEAD)], _HEAD)
        sigma = self.node("Exp", [self.node("Add", [scaled, log_sigma], _HEAD)], _HEAD)
        self.bounded(self.sample(mu, sigma), "continuous_actions")
        if deterministic:
            self.bounded(mu, "deterministic_continuous_actions")

    def squashed(self, value: str, width: int, actions: int, deterministic: bool) -> None:
        """SAC's continuous head: a sigma of its own for each observation; the deterministic actions are mu as it is."""
        mu = self.linear(value, width, actions, f"{_HEAD}.mu", "deterministic_continuous_actions" if deterministic else "")
        log_sigma = self.linear(value, width, actions, f"{_HEAD}.log_sigma")
        sigma = self.node("Exp", [self.clip(log_sigma, 2, _HEAD, -20)], _HEAD)
        self.node("Tanh", [self.sample(mu, sigma)], "", "continuous_actions")

    def sample(self, mu: str, sigma: str) -> str:
        noise = self.node("RandomNormalLike", [mu], "", dtype=TensorProto.FLOAT)
        return self.node("Add", [mu, self.node("Mul", [noise, sigma], "")], "")

    def discrete(self, value: str, width: int, branches: Sequence[int], deterministic: bool) -> None:
        """Discrete heads with masks: sampled and likeliest options."""
        ends = [sum(branches[: i + 1]) for i in range(len(branches))]
        masks = [self.slice("action_masks", end - size, end, 1, _BRANCHES) for size, end in zip(branches, ends, strict=True)]
        chances = []
        for i, (size, mask) in enumerate(zip(branches, masks, strict=True)):
            logits = self.linear(value, width, size, f"{_BRANCHES}.branches.{i}")
            negative = self.node("Mul", [mask, self.number(-1, _BRANCHES)], _BRANCHES)
            forbidden = self.node("Add", [negative, self.number(1, _BRANCHES)], _BRANCHES)
            kept = self.node("Mul", [logits, mask], _BRANCHES)
            pushed = self.node("Mul", [forbidden, self.number(1e8, _BRANCHES)], _BRANCHES)
            chances.append(self.node("Softmax", [self.node("Sub", [kept, pushed], _BRANCHES)], _BRANCHES, axis=1))
        drawn = [self.node("Multinomial", [self.node("Log", [p], "")], "", dtype=TensorProto.INT64, sample_size=1) for p in chances]
        self.node("Concat", drawn, "", "discrete_actions", axis=1)
        if deterministic:
            best = [self.node("ArgMax", [p], "", axis=1, keepdims=1) for p in chances]
            self.node("Concat", best, "", "deterministic_discrete_actions", axis=1)

    def bounded(self, value: str, output: str) -> None:
        """The environment's actions: clip(value, ±3) / 3."""
        clipped = self.clip(value, 3, "")
        three = self.initializer(self.folded("Div"), 3) if self.old else self.node("Constant", [], "", value=_tensor("", np.float32(3)))
        self.node("Div", [clipped, three], "", output)

    def fixed(self, output: str, initializer: str, value: npt.ArrayLike) -> None:
        """An output that only tells numbers."""
        if self.old:
            self.initializer(output, value)
        else:
            self.node("Identity", [self.initializer(initializer, value)], "", output)


def _tensor(name: str, value: Numbers) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value), name)
