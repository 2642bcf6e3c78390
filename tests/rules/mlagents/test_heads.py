"""Heads of every kind and era, from end to end: masks, branches, draws, log-probabilities, SAC's and DQN's."""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
import torch
from onnx import helper, numpy_helper

from graph2torch.build import Build, build
from graph2torch.canonical import canonicalise
from graph2torch.graph import read_graph
from graph2torch.judge.isomorphism import align
from graph2torch.judge.verify import verify
from graph2torch.module import build_module, import_source


def branch(i: int, start: int, end: int) -> str:
    """A branch's logits, masked, and its probabilities p0, p1, as ML-Agents writes them since 2.0."""
    return f"""
        m{i} = Slice <axes = [1], starts = [{start}], ends = [{end}]> (action_masks)
        l{i} = Gemm <transB = 1> (h, branch{i}_w, branch{i}_b)
        n{i} = Mul (m{i}, minus) f{i} = Add (n{i}, one) k{i} = Mul (l{i}, m{i}) q{i} = Mul (f{i}, far) s{i} = Sub (k{i}, q{i})
        p{i} = Softmax <axis = 1> (s{i})"""


def former_branch(i: int, start: int, end: int) -> str:
    """The same before 2.0: the mask multiplies probabilities."""
    return f"""
        m{i} = Slice <axes = [1], starts = [{start}], ends = [{end}]> (action_masks)
        l{i} = Gemm <transB = 1> (h, branch{i}_w, branch{i}_b)
        r{i} = Softmax <axis = 1> (l{i}) k{i} = Mul (r{i}, m{i}) t{i} = ReduceSum <axes = [-1], keepdims = 0> (k{i})
        u{i} = Unsqueeze <axes = [1]> (t{i}) d{i} = Div (k{i}, u{i}) e{i} = Add (d{i}, tiny) g{i} = Log (e{i}) p{i} = Softmax <axis = 1> (g{i})"""


BODY = "h0 = Gemm <transB = 1> (obs_0, body_w, body_b) g = Sigmoid (h0) h = Mul (h0, g)"
BRANCHES = branch(0, 0, 3) + branch(1, 3, 5)
SAMPLED = """
        lp0 = Log (p0) a0 = Multinomial <dtype = 7, sample_size = 1> (lp0) lp1 = Log (p1) a1 = Multinomial <dtype = 7, sample_size = 1> (lp1)
        discrete_actions = Concat <axis = 1> (a0, a1)"""
BEST = """
        b0 = ArgMax <axis = 1, keepdims = 1> (p0) b1 = ArgMax <axis = 1, keepdims = 1> (p1)
        deterministic_discrete_actions = Concat <axis = 1> (b0, b1)"""
GAUSSIAN = """
        mu = Gemm <transB = 1> (h, mu_w, mu_b) z0 = Mul (mu, zero) z1 = Add (z0, log_sigma) sigma = Exp (z1)
        z = RandomNormalLike <dtype = 1> (mu) zs = Mul (z, sigma) x = Add (mu, zs)
        c = Clip <min = -3.0, max = 3.0> (x) continuous_actions = Div (c, three)
        cd = Clip <min = -3.0, max = 3.0> (mu) deterministic_continuous_actions = Div (cd, three)"""
SAC = """
        deterministic_continuous_actions = Gemm <transB = 1> (h, mu_w, mu_b) ls = Gemm <transB = 1> (h, sigma_w, sigma_b)
        cl = Clip <min = -20.0, max = 2.0> (ls) sigma = Exp (cl) z = RandomNormalLike <dtype = 1> (deterministic_continuous_actions)
        zs = Mul (z, sigma) x = Add (deterministic_continuous_actions, zs) continuous_actions = Tanh (x)"""
LOGS = """
        e0 = Add (p0, tiny) g0 = Log (e0) e1 = Add (p1, tiny) g1 = Log (e1)
        discrete_actions = Concat <axis = 1> (g0, g1) action = Concat <axis = 1> (g0, g1)"""
FORMER = (
    former_branch(0, 0, 3)
    + former_branch(1, 3, 5)
    + """
        o0 = Log (p0) o1 = Log (p1) discrete_actions = Concat <axis = 1> (o0, o1)"""
)
Q = """
        q = Gemm <transB = 1> (h, branch0_w, branch0_b) m = Slice <axes = [1], starts = [0], ends = [3]> (action_masks)
        qm = Mul (q, m) discrete_actions = ArgMax <axis = 1, keepdims = 1> (qm)"""
DISCRETE = ("int64[batch, 2] discrete_actions", "int64[batch, 2] deterministic_discrete_actions")
CONTINUOUS = ("float[batch, 2] continuous_actions", "float[batch, 2] deterministic_continuous_actions")
POLICIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "discrete": (BODY + BRANCHES + SAMPLED + BEST, DISCRETE),
    "discrete, sampled only": (BODY + BRANCHES + SAMPLED, DISCRETE[:1]),
    "hybrid": (BODY + GAUSSIAN + BRANCHES + SAMPLED + BEST, CONTINUOUS + DISCRETE),
    "sac": (BODY + SAC, CONTINUOUS),
    "sac hybrid": (BODY + SAC + BRANCHES + SAMPLED + BEST, CONTINUOUS + DISCRETE),
    "log-probabilities": (BODY + BRANCHES + LOGS, ("float[batch, 5] discrete_actions", "float[batch, 5] action")),
    "former masks": (BODY + FORMER, ("float[batch, 5] discrete_actions",)),
    "q values": (BODY + Q, ("int64[batch, 1] discrete_actions",)),
}
KEYS = {
    "body": "network_body._body_endoder.seq_layers.0",
    "mu": "action_model._continuous_distribution.mu",
    "sigma": "action_model._continuous_distribution.log_sigma",
    "branch0": "action_model._discrete_distribution.branches.0",
    "branch1": "action_model._discrete_distribution.branches.1",
}
SHAPES = {"body": (8, 4), "mu": (2, 8), "sigma": (2, 8), "branch0": (3, 8), "branch1": (2, 8)}


def policy(name: str) -> onnx.ModelProto:
    """A policy of four observations."""
    nodes, outputs = POLICIES[name]
    masks = ", float[batch, 5] action_masks" if "action_masks" in nodes else ""
    text = f"policy (float[batch, 4] obs_0{masks}) => ({', '.join((*outputs, 'float[1] version_number'))}) {{ {nodes} }}"
    graph = onnx.parser.parse_graph(text)
    rng = np.random.default_rng(5)
    for short, (rows, columns) in SHAPES.items():
        if f"{short}_w" in nodes:
            graph.initializer.append(
                numpy_helper.from_array(rng.normal(0, 0.4, (rows, columns)).astype(np.float32), f"{KEYS[short]}.weight")
            )
            graph.initializer.append(numpy_helper.from_array(rng.normal(0, 0.1, rows).astype(np.float32), f"{KEYS[short]}.bias"))
    if "log_sigma" in nodes and "sigma_w" not in nodes:
        log_sigma = rng.normal(-0.5, 0.2, (1, 2)).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(log_sigma, "action_model._continuous_distribution.log_sigma"))
    scalars = {"minus": -1.0, "one": 1.0, "far": 1e8, "zero": 0.0, "three": 3.0, "tiny": 1e-7}
    used = {v for n in graph.node for v in n.input}
    graph.initializer.extend(numpy_helper.from_array(np.float32(v), k) for k, v in scalars.items() if k in used)
    graph.initializer.append(numpy_helper.from_array(np.asarray([3], np.float32), "version_number"))
    names = {f"{short}_{end[0]}": f"{key}.{end}" for short, key in KEYS.items() for end in ("weight", "bias")}
    names["log_sigma"] = "action_model._continuous_distribution.log_sigma"
    for node in graph.node:
        for i, value in enumerate(node.input):
            node.input[i] = names.get(value, value)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4, producer_name="pytorch", producer_version="2.1.2"
    )


def checkpoint(model: onnx.ModelProto) -> dict[str, Any]:
    tensors = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.name.startswith(("network_body", "action_model"))}
    policy = OrderedDict((k, torch.from_numpy(np.array(v))) for k, v in tensors.items())
    return {"Policy": policy, "global_step": OrderedDict(_GlobalSteps__global_step=torch.tensor([7]))}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Build, types.ModuleType, Any]]:
    """name → the build, its emitted module, and the policy with its weights."""
    known: dict[str, tuple[Build, types.ModuleType, Any]] = {}

    def get(name: str) -> tuple[Build, types.ModuleType, Any]:
        if name not in known:
            folder = tmp_path_factory.mktemp("heads")
            model = policy(name)
            onnx.save(model, str(folder / "Tiny.onnx"))
            torch.save(checkpoint(model), folder / "Tiny.pt")
            made = build(folder / "Tiny.onnx", folder / "Tiny.pt", folder / "out")
            module = import_source((folder / "out" / "model.py").read_text(encoding="utf-8"))
            known[name] = (made, module, module.load(folder / "out" / "weights.safetensors"))
        return known[name]

    return get


def observations(batch: int = 64) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).normal(0, 1, (batch, 4)).astype(np.float32))


def masks(batch: int = 64) -> torch.Tensor:
    """At least one option of each branch is allowed."""
    mask = (np.random.default_rng(2).random((batch, 5)) < 0.6).astype(np.float32)
    mask[:, 2] = mask[:, 4] = 1
    return torch.from_numpy(mask)


def inputs(name: str, batch: int = 64) -> tuple[torch.Tensor, ...]:
    return (observations(batch), masks(batch)) if "action_masks" in POLICIES[name][0] else (observations(batch),)


@pytest.mark.parametrize("name", POLICIES)
def test_every_head_is_rebuilt_operator_by_operator(built: Any, name: str) -> None:
    made, _, _ = built(name)
    assert made.verification.level == "graph", made.verification.reason
    assert made.bindings.verdict == "same"
    assert not made.spec.unexplained and {b.family for b in made.spec.blocks} == {"mlagents"}
    assert all(b.source == "checkpoint" and b.agrees for b in made.bindings.tensors)
    assert all(b.key == b.initializer for b in made.bindings.tensors)


@pytest.mark.parametrize("name", POLICIES)
def test_act_gives_the_deterministic_actions(built: Any, name: str) -> None:
    _, _, net = built(name)
    out = net(*inputs(name))
    given = net.act(*inputs(name))
    given = list(given) if isinstance(given, tuple) else [given]
    wanted = [getattr(out, f) for f in out._fields if f.startswith("deterministic")]
    if wanted:
        assert all(torch.equal(a, b) for a, b in zip(given, wanted, strict=True))
    elif name == "q values":
        assert torch.equal(given[0], out.discrete_actions)
    elif "former" in name or "log" in name:
        best = [out.discrete_actions[:, :3].argmax(1), out.discrete_actions[:, 3:].argmax(1)]
        assert torch.equal(given[0], torch.stack(best, 1))


@pytest.mark.parametrize("name", ["discrete", "hybrid", "sac hybrid"])
def test_no_forbidden_option_is_ever_drawn(built: Any, name: str) -> None:
    _, module, net = built(name)
    x, mask = inputs(name, 200)
    for field_value in (0.0, 1 - 2**-24):  # the ends of [0, 1)
        edge = torch.full((200, 1), field_value)
        noise = module.Noise(**{f: edge if f.startswith("branch") else torch.zeros(200, 2) for f in module.Noise._fields})
        for actions in (net(x, mask).discrete_actions, net(x, mask, noise=noise).discrete_actions):
            assert bool((mask[:, :3].gather(1, actions[:, :1]) == 1).all() and (mask[:, 3:].gather(1, actions[:, 1:]) == 1).all())


def test_samples_follow_the_probabilities(built: Any) -> None:
    _, _, net = built("discrete")
    x, mask = observations(1).repeat(20000, 1), torch.ones(20000, 5)
    torch.manual_seed(0)
    actions = net(x, mask).discrete_actions
    for i, categorical in enumerate(net.distribution(x[:1], mask[:1]).branches):
        share = torch.bincount(actions[:, i], minlength=categorical.probs.shape[1]) / 20000
        assert torch.allclose(share, categorical.probs[0], atol=0.015)
    torch.manual_seed(0)
    assert torch.equal(net(x, mask).discrete_actions, actions)


@pytest.mark.parametrize("name", ["discrete", "hybrid", "sac hybrid", "log-probabilities", "former masks"])
def test_distribution_tells_probabilities(built: Any, name: str) -> None:
    made, _, net = built(name)
    found = net.distribution(*inputs(name))
    branches = found.discrete.branches if "hybrid" in name else found.branches
    graph = onnx.ModelProto.FromString(made.recognised.model.proto.SerializeToString())
    graph.graph.output.extend(helper.make_empty_tensor_value_info(p) for p in ("p0", "p1"))
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    feed = dict(zip(("obs_0", "action_masks"), (t.numpy() for t in inputs(name)), strict=True))
    for categorical, p in zip(branches, session.run(["p0", "p1"], feed), strict=True):
        assert np.allclose(categorical.probs.detach(), p, atol=1e-5)
        assert categorical.logits.shape == categorical.probs.shape
    actions = net.act(*inputs(name))
    discrete = actions[1] if "hybrid" in name else actions
    chosen = torch.stack([b.probs.gather(1, discrete[:, i : i + 1]).log()[:, 0] for i, b in enumerate(branches)]).sum(0)
    entropy = torch.stack([-(b.probs * b.probs.clamp_min(1e-30).log()).sum(1) for b in branches]).sum(0)
    if "hybrid" in name:
        assert torch.allclose(found.log_prob(*actions), chosen + found.continuous.log_prob(actions[0]), atol=1e-5)
        assert torch.allclose(found.entropy(), entropy + found.continuous.entropy(), atol=1e-5)
        assert found.continuous.mean.shape == found.continuous.stddev.shape == (64, 2)
    else:
        assert torch.allclose(found.log_prob(actions), chosen, atol=1e-5)
        assert torch.allclose(found.entropy(), entropy, atol=1e-5)


def test_the_contract_tells_what_is_what(built: Any) -> None:
    meanings = {name: {v.name: v.meaning for v in (*m.spec.inputs, *m.spec.outputs)} for name in POLICIES for m in [built(name)[0]]}
    assert meanings["discrete"]["action_masks"] == "a mask of 3+2 options, 1 allows, 0 forbids"
    assert meanings["discrete"]["discrete_actions"] == "discrete actions: one of 3 and 2 options, sampled"
    assert meanings["discrete"]["deterministic_discrete_actions"] == "discrete actions, deterministic: the likeliest of 3 and 2 options"
    assert meanings["log-probabilities"]["discrete_actions"] == "discrete actions: log-probabilities of 3+2 options: columns 0:3, 3:5"
    assert meanings["log-probabilities"]["action"].startswith("discrete_actions under its former name")
    assert "neither squashed nor clipped" in meanings["sac"]["deterministic_continuous_actions"]
    assert meanings["q values"]["discrete_actions"] == "discrete actions: the option of 3 with the highest value"
    assert built("hybrid")[0].spec.title == "4 observations → 8 → 2 continuous and 3+2 discrete actions"
    assert list(built("hybrid")[0].spec.noise) == ["continuous_actions", "branch_0", "branch_1"]


def test_sac_keeps_raw_mu_and_says_so(built: Any) -> None:
    made, _, net = built("sac")
    x = observations() * 20
    out = net(x)
    assert torch.equal(out.deterministic_continuous_actions, net.distribution(x).mean)
    assert out.deterministic_continuous_actions.abs().max().item() > 1 >= out.continuous_actions.abs().max().item()
    assert "def act(self, obs_0: Tensor) -> Tensor:  # deterministic actions alone: mu as it is" in made.source


def test_weights_gone_nan_are_rebuilt_too(tmp_path: Path) -> None:
    model = policy("discrete")
    for tensor in model.graph.initializer:
        if tensor.name.endswith("branches.1.bias"):
            tensor.CopyFrom(numpy_helper.from_array(np.asarray([np.nan, 0], np.float32), tensor.name))
    onnx.save(model, str(tmp_path / "Tiny.onnx"))
    made = build(tmp_path / "Tiny.onnx", output=tmp_path / "out")
    assert made.verification.level == "graph"
    net = import_source(made.source).load(tmp_path / "out" / "weights.safetensors")
    assert net(*inputs("discrete")).discrete_actions[:, 1].tolist() == [0] * 64


@pytest.mark.parametrize("fault", ["p.cumsum(1) ** 0.9", "p.flip(1).cumsum(1)"])
def test_a_sampler_of_other_probabilities_is_seen(built: Any, fault: str) -> None:
    """The draws are pinned in both graphs, so only the torch module can show it."""
    made, _, _ = built("discrete")
    original, rebuilt = made.recognised.model.proto, made.rebuilt
    alignment = align(made.spec.graph, canonicalise(read_graph(rebuilt, "b")))
    assert "ends = p.cumsum(1)" in made.source
    module = build_module(made.source.replace("ends = p.cumsum(1)", f"ends = {fault}"), made.bindings)
    found = verify(original, rebuilt, made.spec, alignment, module)
    assert found.level == "differs" and "discrete_actions" in found.reason


def test_probabilities_that_the_module_draws_from_are_compared(built: Any) -> None:
    made, _, _ = built("hybrid")
    compared = [f.output for f in made.verification.module]
    assert {"p of branch_0", "p of branch_1", "mu of continuous_actions", "sigma of continuous_actions"} <= set(compared)
