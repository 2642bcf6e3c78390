"""Fully connected layer: x · weightᵀ + bias, torch's nn.Linear as the exporter writes it (Gemm with transB).

torch's dynamo exporter (2.9 and later) leaves a bias of zeros away; adding one would turn −0 into 0, so it stays away.
"""

from dataclasses import replace

import numpy as np

from graph2torch.match import Match, Refusal
from graph2torch.spec import Block, Module, Parameter, Place, block_of

PATTERNS = (
    "Linear (x, weight, bias) => (y) { y = Gemm <transB = 1> (x, weight, bias) }",
    "LinearTransposed (x, weight_t, bias) => (y) { y = Gemm (x, weight_t, bias) }",
    "LinearWithoutBias (x, weight) => (y) { y = Gemm <transB = 1> (x, weight) }",
)
CONSTANTS = ("weight", "weight_t", "bias")
OPSETS = {"unbiased": 11}  # of the examples; the bias may be left out from opset 11 on

EXAMPLE = (
    "linear (float[batch, n] x, float[m, n] weight, float[m] bias) => (float[batch, m] y) { y = Gemm <transB = 1> (x, weight, bias) }",
    "transposed (float[batch, n] x, float[n, m] weight_t, float[m] bias) => (float[batch, m] y) { y = Gemm (x, weight_t, bias) }",
    "unbiased (float[batch, n] x, float[m, n] weight) => (float[batch, m] y) { y = Gemm <transB = 1> (x, weight) }",
)
NEAR_MISS = (
    "scaled (float[batch, n] x, float[m, n] weight, float[m] bias) => (float[batch, m] y) { y = Gemm <transB = 1, alpha = 0.5> (x, weight, bias) }",
    "doubles (double[batch, n] x, double[m, n] weight, double[m] bias) => (double[batch, m] y) { y = Gemm <transB = 1> (x, weight, bias) }",
    "row (float[batch, n] x, float[m, n] weight, float[1] bias) => (float[batch, m] y) { y = Gemm <transB = 1> (x, weight, bias) }",
)


def check(match: Match) -> Refusal | None:
    weight = match.constant(_weight(match))
    if weight.ndim != 2 or weight.dtype != np.float32:
        return Refusal(f"its weight has shape {list(weight.shape)} and type {weight.dtype}, not two axes of float32", match.nodes[0])
    if "bias" not in match.values:
        return None
    bias = match.constant("bias")
    if bias.shape != (weight.shape[1 if "weight_t" in match.values else 0],) or bias.dtype != np.float32:
        return Refusal(f"the bias has shape {list(bias.shape)} and type {bias.dtype}, the weight {list(weight.shape)}", match.nodes[0])
    return None


def lift(match: Match) -> Block:
    name = _weight(match)
    outputs, inputs = match.constant(name).shape if name == "weight" else match.constant(name).shape[::-1]
    weight = Parameter("weight", match.values[name], key="weight", transform="as is" if name == "weight" else "transposed")
    if "bias" not in match.values:
        return block_of(match, Module("LinearWithoutBias", (inputs, outputs)), (weight,), zeros=("bias",))
    bias = Parameter("bias", match.values["bias"], key="bias")
    return block_of(match, Module("nn.Linear", (inputs, outputs)), (weight, bias))


def _weight(match: Match) -> str:
    return "weight_t" if "weight_t" in match.values else "weight"


MEANS = frozenset({"gaussian_scale", "gaussian_sample", "bounded_action"})
BRANCHES = frozenset({"action_mask", "softmax"})


def describe(block: Block, place: Place) -> Block:
    if place.readers & MEANS:
        return replace(
            block, name="mu", label="mu", role="head: mean of the actions, mu", prefixes=("action_model._continuous_distribution.mu",)
        )
    if "conditional_scale" in place.readers:
        layer = "action_model._continuous_distribution.log_sigma"
        return replace(block, name="log_sigma", role="head: logarithm of the standard deviation", prefixes=(layer,))
    if place.readers & BRANCHES:
        layer = f"action_model._discrete_distribution.branches.{place.turn}"
        return replace(block, name=f"branch_{place.turn}", role=f"head: logits of branch {place.turn}", prefixes=(layer,))
    if "greedy_action" in place.readers:
        return replace(block, name="values", label="q", role="head: value of each option, Q")
    if "flatten" in place.makers:
        role = f"encoder of {place.source or 'the observations'}: dense layer"
        dense = "dense" if "relu" in place.readers else "dense.{n}"  # the resnet encoder has its ReLU elsewhere
        prefixes = tuple(f"network_body.{kind}processors.{place.observation}.{dense}" for kind in ("observation_encoder.", "", "visual_"))
        return replace(block, name=f"dense{place.suffix}", sequence=f"dense{place.suffix}", role=role, prefixes=prefixes)
    if "entity_embedding" in place.beyond:
        prefixes = tuple(f"network_body.{middle}x_self_encoder.seq_layers.{{n}}" for middle in ("observation_encoder.", ""))
        role = "the agent's own encoding, for the entities"
        return replace(block, name="x_self_encoder", sequence="x_self_encoder", role=role, prefixes=prefixes)
    bodies = ("_body_endoder.seq_layers", "linear_encoder.seq_layers", "_body_endoder.layers")  # the last with goal conditioning
    prefixes = tuple(f"network_body.{body}.{{n}}" for body in bodies)
    return replace(block, name=f"layer_{place.number + 1}", sequence="body", role="hidden layer {number}", prefixes=prefixes)
