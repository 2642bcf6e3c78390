"""Observation normaliser: clip((x − mean) / std, ±5).

ML-Agents' `Normalizer` keeps a running mean, a running variance (a sum over all steps) and the number of steps, and
computes (x − mean) / sqrt(variance / steps), clipped to ±5. The exporter folds sqrt(variance / steps) into one
constant, the std; an export without constant folding leaves the division and the root in the graph.
"""

import re
from dataclasses import replace

import numpy as np

from graph2torch.match import Match, Refusal
from graph2torch.spec import Block, Module, Parameter, Place, Statistics, block_of

PATTERNS = (
    """Normalizer (obs, mean, std) => (y) {
        lo = Constant <value = float {-5.0}> ()
        hi = Constant <value = float {5.0}> ()
        d = Sub (obs, mean)
        q = Div (d, std)
        y = Clip (q, lo, hi)
    }""",
    """NormalizerUnfolded (obs, mean, variance, steps) => (y) {
        lo = Constant <value = float {-5.0}> ()
        hi = Constant <value = float {5.0}> ()
        d = Sub (obs, mean)
        v = Div (variance, steps)
        std = Sqrt (v)
        q = Div (d, std)
        y = Clip (q, lo, hi)
    }""",
    """NormalizerUnfoldedCast (obs, mean, variance, steps) => (y) {
        lo = Constant <value = float {-5.0}> ()
        hi = Constant <value = float {5.0}> ()
        d = Sub (obs, mean)
        f = Cast <to = 1> (steps)
        v = Div (variance, f)
        std = Sqrt (v)
        q = Div (d, std)
        y = Clip (q, lo, hi)
    }""",
)
CONSTANTS = ("mean", "std", "variance", "steps")
RANGES = {"std": (0.01, 4.0), "variance": (0.01, 1e6), "steps": (1, 1e6)}  # of the examples' random constants

EXAMPLE = (
    "folded (float[batch, n] obs, float[n] mean, float[n] std) => (float[batch, n] y) { d = Sub (obs, mean) q = Div (d, std) y = Clip <min = -5.0, max = 5.0> (q) }",
    """unfolded (float[batch, n] obs, float[n] mean, float[n] variance, float steps) => (float[batch, n] y) {
        d = Sub (obs, mean) v = Div (variance, steps) s = Sqrt (v) q = Div (d, s) y = Clip <min = -5.0, max = 5.0> (q) }""",
    """cast (float[batch, n] obs, float[n] mean, float[n] variance, int64 steps) => (float[batch, n] y) {
        d = Sub (obs, mean) f = Cast <to = 1> (steps) v = Div (variance, f) s = Sqrt (v) q = Div (d, s) y = Clip <min = -5.0, max = 5.0> (q) }""",
)
NEAR_MISS = (
    "ten (float[batch, n] obs, float[n] mean, float[n] std) => (float[batch, n] y) { d = Sub (obs, mean) q = Div (d, std) y = Clip <min = -10.0, max = 10.0> (q) }",
    "doubles (double[batch, n] obs, double[n] mean, double[n] std) => (double[batch, n] y) { d = Sub (obs, mean) q = Div (d, std) y = Clip <min = -5.0, max = 5.0> (q) }",
    "one_std (float[batch, 2] obs, float[2] mean, float[1] std) => (float[batch, 2] y) { d = Sub (obs, mean) q = Div (d, std) y = Clip <min = -5.0, max = 5.0> (q) }",
    """steps (float[batch, 2] obs, float[2] mean, float[2] variance, float[2] steps) => (float[batch, 2] y) {
        d = Sub (obs, mean) v = Div (variance, steps) s = Sqrt (v) q = Div (d, s) y = Clip <min = -5.0, max = 5.0> (q) }""",
    "turned (float[batch, n] obs, float[n] mean, float[n] std) => (float[batch, n] y) { d = Sub (mean, obs) q = Div (d, std) y = Clip <min = -5.0, max = 5.0> (q) }",
)


def check(match: Match) -> Refusal | None:
    mean = match.constant("mean")
    if mean.ndim != 1 or mean.dtype != np.float32:
        return Refusal(f"the mean has shape {list(mean.shape)} and type {mean.dtype}, not one float32 number a feature", match.nodes[0])
    for name in ("std", "variance"):
        if name in match.values and match.is_constant(name) and match.constant(name).shape != mean.shape:
            return Refusal(f"the {name} has shape {list(match.constant(name).shape)}, the mean {list(mean.shape)}", match.nodes[0])
    if "steps" in match.values and match.constant("steps").size != 1:
        return Refusal("the steps are not one number", match.nodes[0])
    return None


def lift(match: Match) -> Block:
    size = match.constant("mean").size
    folded = "variance" not in match.values
    statistics = Statistics(
        mean=match.values["mean"],
        std=match.values["std"] if folded else None,
        variance=None if folded else match.values["variance"],
        steps=None if folded else match.values["steps"],
    )
    mean = Parameter("running_mean", match.values["mean"], key="running_mean", trainable=False)
    return block_of(match, Module("Normalizer", (size,)), (mean,), statistics=statistics)


def describe(block: Block, place: Place) -> Block:
    observation = re.fullmatch(r"obs_(\d+)", place.source)
    number = observation.group(1) if observation else str(place.number)
    prefixes = tuple(f"network_body.{middle}processors.{number}.normalizer" for middle in ("observation_encoder.", ""))
    name = f"normalizer_{number}" if place.siblings > 1 else "normalizer"
    return replace(block, name=name, role=f"normaliser of {place.source or 'the observations'}", prefixes=prefixes)
