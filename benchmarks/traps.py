"""What goes wrong when a policy is rebuilt by hand: each trap alone, in numbers, against the graph in onnxruntime.

    python -m benchmarks.traps [MODEL.onnx CHECKPOINT.pt] [--samples 1000] [--seed 0] [--json FILE]

The policy is built as `graph2torch build` does it; then one thing in the torch module is changed, the deterministic
actions are computed, and compared with those of the original graph. The observations are mean + width · std · z with z
standard normal: once as wide as in training (1), once so wide that most of the normalised ones are clipped (50).
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

from graph2torch.build import build_policy
from graph2torch.module import build_module

from .measure import ROOT, figure, table, versions, write_json

EPS = 1e-5
WIDTHS = (1, 50)
OUTPUT = "deterministic_continuous_actions"
Policy = Any  # the emitted class: a module of its own for every policy


def variance_with_eps(policy: Policy) -> Policy:
    policy.normalizer.std.copy_(torch.sqrt(policy.normalizer.running_variance + EPS))
    return policy


def variance_alone(policy: Policy) -> Policy:
    policy.normalizer.std.copy_(torch.sqrt(policy.normalizer.running_variance))
    return policy


def divided_with_eps(policy: Policy) -> Policy:
    policy.normalizer.std.copy_(torch.sqrt(policy.normalizer.running_variance / policy.normalizer.normalization_steps + EPS))
    return policy


def without_bounds(policy: Policy) -> Policy:
    policy.normalizer.forward = lambda x: (x - policy.normalizer.running_mean) / policy.normalizer.std
    return policy


def float16_statistics(policy: Policy) -> Policy:
    n = policy.normalizer
    mean, variance, steps = n.running_mean.half(), n.running_variance.half(), n.normalization_steps.half()
    n.forward = lambda x: torch.clamp((x.half() - mean) / torch.sqrt(variance / steps), -5, 5).float()
    return policy


def relu(policy: Policy) -> Policy:
    for i, layer in enumerate(policy.body):
        if isinstance(layer, nn.SiLU):
            policy.body[i] = nn.ReLU()
    return policy


def no_normaliser(policy: Policy) -> Policy:
    policy.normalizer = nn.Identity()
    return policy


def act(policy: Policy, x: Tensor) -> Tensor:
    return policy.act(x)


def mu(policy: Policy, x: Tensor) -> Tensor:
    return policy.distribution(x).base_dist.loc


Head = Callable[[Policy, Tensor], Tensor]
TRAPS: dict[str, tuple[Callable[[Policy], Policy] | None, Head]] = {
    "as built": (None, act),
    "normaliser: sqrt(running_variance + 1e-5)": (variance_with_eps, act),
    "normaliser: sqrt(running_variance)": (variance_alone, act),
    "normaliser: sqrt(running_variance / steps + 1e-5)": (divided_with_eps, act),
    "normaliser: not clipped to ±5": (without_bounds, act),
    "normaliser: left out": (no_normaliser, act),
    "normaliser: statistics in float16": (float16_statistics, act),
    "activation: ReLU instead of SiLU": (relu, act),
    "head: mu, without clip and without / 3": (None, mu),
    "head: clip(mu, ±3), without / 3": (None, lambda policy, x: torch.clamp(mu(policy, x), -3, 3)),
    "head: mu / 3, without clip": (None, lambda policy, x: mu(policy, x) / 3),
    "head: clip(mu, ±1)": (None, lambda policy, x: torch.clamp(mu(policy, x), -1, 1)),
    "head: tanh(mu)": (None, lambda policy, x: torch.tanh(mu(policy, x))),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", nargs="?", type=Path, default=ROOT / "assets" / "Huggy.onnx")
    parser.add_argument("checkpoint", nargs="?", type=Path, default=ROOT / "assets" / "Huggy.pt")
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    made = build_policy(options.model, options.checkpoint)
    policy: Policy = build_module(made.source, made.bindings)
    n = policy.normalizer
    session = onnxruntime.InferenceSession(str(options.model), providers=["CPUExecutionProvider"])
    z = np.random.default_rng(options.seed).standard_normal((options.samples, n.std.numel()))
    document = []
    print(
        f"std in the graph {n.std.min():.3g} … {n.std.max():.3g}; running_variance up to {n.running_variance.max():.3g}; {int(n.normalization_steps):,} steps"
    )
    for width in WIDTHS:
        x = torch.from_numpy((n.running_mean.numpy() + width * n.std.numpy() * z).astype(np.float32))
        (expected,) = session.run([OUTPUT], {made.spec.inputs[0].name: x.numpy()})
        with torch.inference_mode():
            outside = int((mu(policy, x).abs() > 3).sum())
            found = [compare(name, change, head, policy, x, expected) for name, (change, head) in TRAPS.items()]
        document.append({"width": width, "samples": options.samples, "seed": options.seed, "mu_beyond_3": outside, "traps": found})
        print(f"\nwidth {width}: {expected.size:,} actions of {options.samples:,} observations, |mu| > 3 in {outside:,} of them")
        head = ["trap", "normalised, max abs", "NaN or inf", "actions, max abs", "mean abs", "off by > 0.01", "NaN or inf"]
        print(table(head, [row(f) for f in found]))
    figures = [
        figure(f"{f['trap']}, width {d['width']}: actions off by up to", f["actions_max_abs"], unit="max abs")
        for d in document
        for f in d["traps"]
        if f["actions_max_abs"] is not None
    ]
    write_json(options.json, {"versions": versions("torch", "onnxruntime"), "widths": document, "figures": figures})


def compare(
    name: str, change: Callable[[Policy], Policy] | None, head: Head, policy: Policy, x: Tensor, expected: np.ndarray
) -> dict[str, Any]:
    """One trap: the normalised observations against the policy's own, the actions against the graph's."""
    changed = change(copy.deepcopy(policy)) if change else policy
    given = head(changed, x).numpy().astype(np.float64)
    finite = np.isfinite(given)
    apart = np.abs(given - expected)
    normalised, right = changed.normalizer(x), policy.normalizer(x)
    known = normalised.isfinite()
    return {
        "trap": name,
        "observations_max_abs": float((normalised - right)[known].abs().max()) if known.any() else None,
        "observations_not_finite": int((~known).sum()),
        "actions_max_abs": float(apart[finite].max()) if finite.any() else None,
        "actions_mean_abs": float(apart[finite].mean()) if finite.any() else None,
        "off": float((~(apart <= 0.01)).mean()),
        "actions_not_finite": int((~finite).sum()),
    }


def row(found: dict[str, Any]) -> list[str]:
    def short(x: float | None) -> str:
        return "–" if x is None else f"{x:.2g}"

    return [
        found["trap"],
        short(found["observations_max_abs"]),
        f"{found['observations_not_finite']:,}",
        short(found["actions_max_abs"]),
        short(found["actions_mean_abs"]),
        f"{100 * found['off']:.1f} %",
        f"{found['actions_not_finite']:,}",
    ]


if __name__ == "__main__":
    main()
