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
Numbers = npt.NDArray[np.generic]

# era: (IR version, producer's version, the graph's name); the IR is the exporter's own at opset 9
_ERAS: Mapping[Era, tuple[int, str, str]] = {"torch1.8": (6, "1.8", "torch-jit-export"), "torch2": (4, "2.1.2", "main_graph")}
_ENCODER = "network_body.observation_encoder.processors"
_BODY = "network_body._body_endoder.seq_layers"  # ML-Agents spells it so
_LSTM = "network_body.lstm.lstm"
_HEAD = "action_model._continuous_distribution"


def tiny_policy(
    observations: Sequence[int | Image] = (4,),
    actions: int = 2,
    *,
    hidden: int = 8,
    layers: int = 2,
    normalize: bool = True,
    encoder: Encoder = "simple",
    memory: int = 0,
    deterministic: bool = True,
    opset: int = 9,
    ir_version: int | None = None,
    era: Era = "torch2",
    batch: int | str = "batch",
    seed: int = 0,
) -> onnx.ModelProto:
    """A policy of ML-Agents' PPO: one normaliser or encoder an observation, Linear + SiLU layers, a Gaussian head, fixed outputs.

    observations:  the size of each observation, or channels, height and width of an image
    encoder:       of the images; "simple" needs 20 × 20 pixels or more
    memory:        of an LSTM before the head: twice the features that the head gets
    deterministic: with the deterministic actions as an output (ML-Agents 0.27 and later)
    opset, ir_version: 7 to 21, and 3 to 10; below 4 every initializer is an input as well
    era:           "torch1.8": values are numbered, fixed outputs are initializers; "torch2": values are called after their
                   modules, fixed outputs are Identities of initializers
    batch:         a name for a free batch size, or a number for a fixed one
    """
    default_ir, version, name = _ERAS[era]
    graph = _Writer(np.random.default_rng(seed), era, opset)
    encoded = []
    for i, size in enumerate(observations):
        value = f"obs_{i}"
        if not isinstance(size, int):
            encoded.append(graph.image(value, size, encoder, hidden, f"{_ENCODER}.{i}"))
            continue
        if normalize:
            place = f"{_ENCODER}.{i}.normalizer"
            mean = graph.initializer(f"{place}.running_mean", graph.rng.normal(0, 2, size))
            # eighths: their squares, times the steps, are exact in float32, so the checkpoint's statistics agree to the bit
            std = graph.initializer(graph.folded("Div"), graph.rng.integers(4, 24, size) / 8)
            value = graph.node("Sub", [value, mean], place)
            value = graph.node("Div", [value, std], place)
            value = graph.clip(value, 5, place)
        encoded.append(value)
    value = graph.node("Concat", encoded, "network_body.observation_encoder", axis=1)
    width = sum(size if isinstance(size, int) else hidden for size in observations)
    for i in range(layers):
        value = graph.linear(value, width, hidden, f"{_BODY}.{2 * i}")
        gate = graph.node("Sigmoid", [value], f"{_BODY}.{2 * i + 1}")
        value = graph.node("Mul", [value, gate], f"{_BODY}.{2 * i + 1}")
        width = hidden
    if memory:
        value, width = graph.lstm(value, width, memory // 2), memory // 2
    mu = graph.linear(value, width, actions, f"{_HEAD}.mu")
    log_sigma = graph.initializer(f"{_HEAD}.log_sigma", graph.rng.normal(-0.5, 0.2, (1, actions)))
    scaled = graph.node("Mul", [mu, graph.node("Constant", [], _HEAD, value=_tensor("", np.float32(0)))], _HEAD)
    sigma = graph.node("Exp", [graph.node("Add", [scaled, log_sigma], _HEAD)], _HEAD)
    noise = graph.node("RandomNormalLike", [mu], "", dtype=TensorProto.FLOAT)
    sample = graph.node("Add", [mu, graph.node("Mul", [noise, sigma], "")], "")
    graph.bounded(sample, "continuous_actions")
    if deterministic:
        graph.bounded(mu, "deterministic_continuous_actions")
    graph.fixed("version_number", "version_number.1", 3)
    graph.fixed("memory_size", "memory_size_vector", memory)
    graph.fixed("continuous_action_output_shape", "continuous_act_size_vector", actions)

    shapes: list[tuple[str, list[int | str]]] = [("version_number", [1]), ("memory_size", [1]), ("continuous_actions", [batch, actions])]
    shapes.append(("continuous_action_output_shape", [1]))
    if deterministic:
        shapes.append(("deterministic_continuous_actions", [batch, actions]))
    sizes = [[size] if isinstance(size, int) else list(size) for size in observations]
    inputs = [helper.make_tensor_value_info(f"obs_{i}", TensorProto.FLOAT, [batch, *size]) for i, size in enumerate(sizes)]
    if memory:
        inputs.append(helper.make_tensor_value_info("recurrent_in", TensorProto.FLOAT, [batch, 1, memory]))
        shapes.append(("recurrent_out", [batch, 1, memory]))
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape) for output, shape in shapes]
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
    actions = initializers[f"{_HEAD}.log_sigma"].shape[1]
    policy: dict[str, Numbers] = {
        "version_number": np.asarray([3], np.float32),
        "is_continuous_int_deprecated": np.asarray([1], np.float32),
        "continuous_act_size_vector": np.asarray([actions], np.float32),
        "discrete_act_size_vector": np.zeros((1, 0), np.float32),
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
    policy |= {name: value for name, value in initializers.items() if name.startswith((_BODY, _HEAD, _ENCODER))}
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

    def clip(self, value: str, bound: float, module: str) -> str:
        """Within ±`bound`: attributes up to opset 10, then operands."""
        if self.opset < 11:
            return self.node("Clip", [value], module, min=-float(bound), max=float(bound))
        bounds = [self.node("Constant", [], module, value=_tensor("", np.float32(b))) for b in (-bound, bound)]
        return self.node("Clip", [value, *bounds], module)

    def linear(self, value: str, inputs: int, outputs: int, module: str) -> str:
        weight = self.initializer(f"{module}.weight", self.rng.normal(0, 0.4, (outputs, inputs)))
        bias = self.initializer(f"{module}.bias", self.rng.normal(0, 0.1, outputs))
        return self.node("Gemm", [value, weight, bias], module, alpha=1.0, beta=1.0, transB=1)

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

    def bounded(self, value: str, output: str) -> None:
        """The environment's actions: clip(value, ±3) / 3."""
        clipped = self.clip(value, 3, "")
        three = self.initializer(self.folded("Div"), 3) if self.old else self.node("Constant", [], "", value=_tensor("", np.float32(3)))
        self.node("Div", [clipped, three], "", output)

    def fixed(self, output: str, initializer: str, value: float) -> None:
        """An output that only tells a number."""
        if self.old:
            self.initializer(output, [value])
        else:
            self.node("Identity", [self.initializer(initializer, [value])], "", output)


def _tensor(name: str, value: Numbers) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value), name)
