"""A tiny policy of each family: proven equal, the same without inert nodes, trained further and exported anew."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from graph2torch.build import Build, build_policy
from graph2torch.export import export
from graph2torch.judge.observations import observation
from graph2torch.module import build_module
from graph2torch.recognise import recognise
from graph2torch.spec import PolicySpec
from tests.inert import check_inert
from tests.models import FAMILIES, Era, save_pair, tiny_checkpoint, tiny_policy
from tests.variants import other_activation, relu_for_silu


def built(folder: Path, family: str, era: Era = "torch2", opset: int = 9) -> Build:
    model = tiny_policy(**FAMILIES[family], era=era, opset=opset)
    return build_policy(*save_pair(folder, model, tiny_checkpoint(model), family))


@pytest.mark.parametrize(("era", "opset"), [("torch1.8", 9), ("torch2", 9), ("torch2", 15)])
@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_reaches_level_graph(tmp_path: Path, family: str, era: Era, opset: int) -> None:
    made = built(tmp_path, family, era, opset)
    assert made.verification.level == "graph", made.verification.reason
    assert made.bindings.verdict == "same" and not made.bindings.metadata
    coverage = made.spec.coverage()
    assert not coverage.unexplained and not coverage.generic
    assert check_inert(made.recognised) == (0 if era == "torch1.8" else sum(o.constant is not None for o in made.spec.outputs))


# ---------------------------------------------------------------------------------------------- order
WIDE: dict[str, Any] = {
    "branches": {"observations": (4, 3), "actions": 2, "branches": (3, 2, 3)},
    "images": {"observations": ((2, 20, 21), 3, (2, 20, 21))},
}


@pytest.mark.parametrize("name", [*FAMILIES, *WIDE])
def test_what_a_policy_is_does_not_depend_on_the_order_of_nodes(tmp_path: Path, name: str) -> None:
    """Branch 0 is the first action wherever its nodes stand: `act`, `distribution`, the mask's meaning and the checkpoint's keys go by it."""
    model = tiny_policy(**({**FAMILIES, **WIDE})[name])
    checkpoint = tiny_checkpoint(model)
    first = build_policy(*save_pair(tmp_path, model, checkpoint, "first"))
    inputs = [torch.from_numpy(observation(i, 16, "ordinary", np.random.default_rng(0))) for i in first.spec.graph.inputs]
    nodes = list(model.graph.node)
    for seed in range(3):
        other = onnx.ModelProto.FromString(model.SerializeToString())
        del other.graph.node[:]
        other.graph.node.extend(nodes[::-1] if seed == 0 else [nodes[i] for i in np.random.default_rng(seed).permutation(len(nodes))])
        made = build_policy(*save_pair(tmp_path, other, checkpoint, f"other{seed}"))
        assert made.verification.level == "graph", made.verification.reason
        assert made.bindings.verdict == "same" and dict(made.bindings.keys) == dict(first.bindings.keys)
        assert made.spec.title == first.spec.title
        assert [i.meaning for i in made.spec.inputs] == [i.meaning for i in first.spec.inputs]
        policies: list[Any] = [build_module(m.source, m.bindings) for m in (first, made)]
        here, there = (policy.act(*inputs) for policy in policies)
        for a, b in zip(here, there, strict=True) if isinstance(here, tuple) else [(here, there)]:
            assert torch.equal(a, b)
        actions = sampled(policies[0].distribution(*inputs))
        a, b = (policy.distribution(*inputs).log_prob(*actions) for policy in policies)
        assert torch.equal(a, b)


# ---------------------------------------------------------------------------------------------- names
def recognised(folder: Path, model: onnx.ModelProto) -> PolicySpec:
    return recognise(save_pair(folder, model)[0]).spec


@pytest.mark.parametrize("name", [*FAMILIES, *WIDE])
def test_no_two_blocks_are_called_alike(tmp_path: Path, name: str) -> None:
    spec = recognised(tmp_path, tiny_policy(**({**FAMILIES, **WIDE})[name]))
    assert [role for role, n in Counter(b.role for b in spec.blocks).items() if n > 1] == []


@pytest.mark.parametrize("other", [relu_for_silu, other_activation])
def test_a_layer_with_another_activation_is_still_a_hidden_layer(
    tmp_path: Path, other: Callable[[onnx.ModelProto], onnx.ModelProto]
) -> None:
    """Layers are numbered through, and the title counts them all, whether the activation is one that the rules know or a single operator."""
    spec = recognised(tmp_path, other(tiny_policy(layers=3)))
    assert [b.role for b in spec.blocks if b.rule == "linear"][:3] == ["hidden layer 1", "hidden layer 2", "hidden layer 3"]
    assert spec.title == "4 observations → 8 → 8 → 8 → 2 continuous actions"
    if other is relu_for_silu:
        assert [b.role for b in spec.blocks if b.rule in ("silu", "relu")] == [f"activation of hidden layer {n}" for n in (1, 2, 3)]


def test_layers_beside_each_other_count_once_in_a_title(tmp_path: Path) -> None:
    """As in a gated layer: one gives the values, the other the gate."""
    model = tiny_policy(layers=2)
    first = next(n for n in model.graph.node if n.op_type == "Gemm")
    sigmoid = next(n for n in model.graph.node if n.op_type == "Sigmoid")
    bias = next(t for t in model.graph.initializer if t.name == first.input[2])
    model.graph.initializer.append(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + np.float32(1), "shifted"))
    gate = onnx.helper.make_node("Gemm", [*first.input[:2], "shifted"], ["gate"], "gate", transB=1)
    sigmoid.input[0] = "gate"
    model.graph.node.insert(list(model.graph.node).index(first) + 1, gate)
    spec = recognised(tmp_path, model)
    assert [b.role for b in spec.blocks if b.rule == "linear"][:3] == ["hidden layer 1", "hidden layer 2", "hidden layer 3"]
    assert spec.title == "4 observations → 8 → 8 → 2 continuous actions"


def test_titles_in_the_singular(tmp_path: Path) -> None:
    assert recognised(tmp_path, tiny_policy((1,), 1)).title == "1 observation → 8 → 8 → 1 continuous action"
    assert recognised(tmp_path, tiny_policy((2,), 1, branches=(3,))).title.endswith(" → 1 continuous and 3 discrete actions")


# ---------------------------------------------------------------------------------------------- training
@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_can_be_trained_and_exported_again(tmp_path: Path, family: str) -> None:
    """Adam on the actions' squared error, then a step up the policy gradient; the export holds the weights that came of it."""
    made = built(tmp_path, family)
    policy: Any = build_module(made.source, made.bindings)
    rng = np.random.default_rng(0)
    inputs = [torch.from_numpy(observation(i, 32, "ordinary", rng)) for i in made.spec.graph.inputs]
    before = {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}
    optimiser = torch.optim.Adam(policy.parameters(), lr=0.003)
    torch.manual_seed(0)

    def step(loss: Any) -> float:
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return float(loss.item())

    if family != "discrete":  # whose actions are integers
        losses = [step((continuous(policy.act(*inputs)) - 0.5).square().mean()) for _ in range(20)]
        assert losses[-1] < 0.9 * losses[0]

    distribution = policy.distribution(*inputs)
    actions = sampled(distribution)
    rewards = torch.randn(32)
    probabilities = distribution.log_prob(*actions)
    assert probabilities.shape == distribution.entropy().shape == (32,)
    step(-(probabilities * rewards).mean() - 0.001 * distribution.entropy().mean())
    with torch.no_grad():
        gained = policy.distribution(*inputs).log_prob(*actions) - probabilities
    assert (gained * rewards).mean() > 0

    trained = {name: parameter.detach() for name, parameter in policy.named_parameters()}
    assert [name for name in trained if torch.equal(trained[name], before[name])] == []
    check_export(made, policy, export(policy, made.spec), tmp_path)


@pytest.mark.parametrize("family", ["discrete", "hybrid"])
def test_distributions_are_those_by_hand(tmp_path: Path, family: str) -> None:
    """log_prob and entropy: sums over the branches, and over the continuous actions."""
    made = built(tmp_path, family)
    policy: Any = build_module(made.source, made.bindings)
    inputs = [torch.from_numpy(observation(i, 6, "zero", np.random.default_rng(2))) for i in made.spec.graph.inputs]
    inputs[-1] = torch.tensor(
        [[1, 1, 1, 1, 1], [1, 0, 1, 1, 1], [1, 1, 1, 0, 1], [0, 0, 1, 1, 0], [1, 1, 1, 1, 1], [0, 1, 1, 1, 1]]
    ).float()
    with torch.no_grad():
        distribution = policy.distribution(*inputs)
        x = policy.body(policy.normalizer(inputs[0]))
        logits = [policy.branch_0(x), policy.branch_1(x)]
        masks = inputs[1][:, :3], inputs[1][:, 3:]
        chances = [torch.softmax(z.masked_fill(m == 0, -torch.inf), 1).double() for z, m in zip(logits, masks, strict=True)]
        options = torch.stack([p.argmax(1) for p in chances], dim=1)
        expected: Any = sum(p.gather(1, options[:, i : i + 1])[:, 0].log() for i, p in enumerate(chances))
        entropy: Any = sum(-torch.special.xlogy(p, p).sum(1) for p in chances)
        actions: tuple[torch.Tensor, ...] = (options,)
        if family == "hybrid":
            drawn, mu, sigma = torch.randn(6, 2), policy.mu(x), policy.log_sigma.exp()
            expected = expected + (-0.5 * ((drawn - mu) / sigma) ** 2 - sigma.log() - 0.5 * np.log(2 * np.pi)).sum(1)
            entropy = entropy + (0.5 + 0.5 * np.log(2 * np.pi) + sigma.log()).sum(1)
            actions = (drawn, options)
        torch.testing.assert_close(distribution.log_prob(*actions).double(), expected.double(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(distribution.entropy().double(), entropy.double(), atol=1e-5, rtol=1e-5)


def continuous(actions: Any) -> torch.Tensor:
    """Of a hybrid policy's actions, or of actions and memory, the former."""
    first: torch.Tensor = actions[0] if isinstance(actions, tuple) else actions
    return first


def sampled(distribution: Any) -> tuple[torch.Tensor, ...]:
    parts = [getattr(distribution, kind, None) for kind in ("continuous", "discrete")]
    if not any(parts):
        parts = [distribution, None] if hasattr(distribution, "sample") else [None, distribution]
    gaussian, branches = parts
    drawn = [gaussian.sample()] if gaussian else []
    return (*drawn, torch.stack([branch.sample() for branch in branches.branches], dim=1)) if branches else tuple(drawn)


def check_export(made: Build, policy: torch.nn.Module, exported: onnx.ModelProto, folder: Path) -> None:
    """The exported graph is recognised, holds the policy's tensors to the bit, and does what the policy does."""
    onnx.checker.check_model(exported, full_check=True)
    path = folder / "trained.onnx"
    path.write_bytes(exported.SerializeToString())
    again = build_policy(path)
    assert again.verification.level in ("bytes", "graph"), again.verification.reason
    assert Counter(block.rule for block in again.spec.blocks) == Counter(block.rule for block in made.spec.blocks)
    tensors = {b.path: b.value for b in again.bindings.tensors if b.source == "graph"}
    state = policy.state_dict()
    assert set(dict(policy.named_parameters())) <= set(tensors)
    assert [name for name, value in tensors.items() if value.tobytes() != state[name].contiguous().numpy().tobytes()] == []
    rng = np.random.default_rng(1)
    feed = {i.name: observation(i, 8, "ordinary", rng) for i in made.spec.graph.inputs}
    wanted = [o.name for o in made.spec.outputs if o.name.startswith("deterministic") or o.name == "recurrent_out"]
    results = [
        ort.InferenceSession(str(p), providers=["CPUExecutionProvider"]).run(wanted, feed) for p in (path, made.recognised.model.path)
    ]
    with torch.no_grad():
        ours = policy.act(*map(torch.from_numpy, feed.values()))  # type: ignore[operator]
    for given, new, old in zip(ours if isinstance(ours, tuple) else (ours,), *results, strict=True):
        assert np.abs(given.numpy() - new).max() < 1e-5
        assert new.dtype == np.int64 or np.abs(new - old).max() > 1e-3


# ---------------------------------------------------------------------------------------------- half precision
def check_half(made: Build, dtype: torch.dtype) -> tuple[Any, list[torch.Tensor]]:
    """Layers are converted, whatever way that is asked for; everything around them stays as it was."""
    policy: Any = build_module(made.source, made.bindings)
    half: Any = build_module(made.source, made.bindings).to(dtype)
    layers = {name for name, p in half.named_parameters() if p.dtype == dtype}
    own = {name for name, _ in half.named_parameters() if "." not in name}
    statistics = {name for name, _ in half.named_parameters() if "normalizer" in name}
    assert layers == {name for name, _ in half.named_parameters()} - own - statistics and layers
    assert {name: b.dtype for name, b in half.named_buffers()} == {name: b.dtype for name, b in policy.named_buffers()}
    rng = np.random.default_rng(0)
    inputs = [torch.from_numpy(observation(i, 16, "ordinary", rng)) for i in made.spec.graph.inputs]
    given = []
    for module in (policy, half):
        torch.manual_seed(4)
        acted = module.act(*inputs)
        given.append([*module(*inputs), *([acted] if isinstance(acted, torch.Tensor) else acted)])
        module.distribution(*inputs)
    for a, b in zip(*given, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype == torch.float32:
            assert torch.isfinite(b).all() and (a - b).abs().max() < 0.1
    return half, inputs


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_in_half_precision(tmp_path: Path, family: str, dtype: torch.dtype) -> None:
    check_half(built(tmp_path, family), dtype)


@pytest.mark.parametrize("family", ["lstm", "attention", "hybrid", "simple"])
def test_half_precision_can_be_copied_pickled_and_taken_back(tmp_path: Path, family: str) -> None:
    made = built(tmp_path, family)
    half, inputs = check_half(made, torch.float16)
    torch.manual_seed(4)
    expected = half(*inputs)
    for other in (copy.deepcopy(half), pickle.loads(pickle.dumps(half)), build_module(made.source, made.bindings).half()):
        torch.manual_seed(4)
        assert all(torch.equal(a, b) for a, b in zip(expected, other(*inputs), strict=True))
    whole = half.float()
    assert {p.dtype for p in whole.parameters()} == {torch.float32}
    whole(*inputs)


def test_a_hidden_layer_that_is_an_output_gives_float32(tmp_path: Path) -> None:
    model = tiny_policy()
    inner = next(n.output[0] for n in model.graph.node if n.op_type == "Mul")  # SiLU, x · sigmoid(x)
    model.graph.output.append(onnx.helper.make_tensor_value_info(inner, onnx.TensorProto.FLOAT, ["batch", 8]))
    made = build_policy(*save_pair(tmp_path, model, tiny_checkpoint(model)))
    assert made.verification.level == "graph" and "self.body_2" in made.source
    check_half(made, torch.float16)
