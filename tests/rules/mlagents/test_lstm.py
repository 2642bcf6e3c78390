"""Policies that remember: the LSTM end to end, its gates and its memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from graph2torch.build import build, build_policy
from graph2torch.module import import_source
from tests.models import Era, save_pair, tiny_checkpoint, tiny_policy


@pytest.mark.parametrize("era", ["torch1.8", "torch2"])
@pytest.mark.parametrize("opset", [9, 11, 15])
def test_gates_come_from_the_checkpoint(tmp_path: Path, era: Era, opset: int) -> None:
    model = tiny_policy((3, 2), memory=6, era=era, opset=opset)
    made = build_policy(*save_pair(tmp_path, model, tiny_checkpoint(model)))
    assert made.verification.level == "graph", made.verification.reason
    assert made.bindings.verdict == "same" and made.bindings.keys["lstm"] == "network_body.lstm.lstm"
    gates = {b.path: b for b in made.bindings.tensors if b.path.startswith("lstm.")}
    assert {b.key for b in gates.values()} == {f"network_body.{b.path.replace('lstm.', 'lstm.lstm.')}" for b in gates.values()}
    assert all(b.agrees and "gates" in b.transform for b in gates.values())


def test_swapped_gates_are_a_drift(tmp_path: Path) -> None:
    model = tiny_policy(memory=6)
    checkpoint = tiny_checkpoint(model)
    weight = checkpoint["Policy"]["network_body.lstm.lstm.weight_hh_l0"]
    checkpoint["Policy"]["network_body.lstm.lstm.weight_hh_l0"] = weight.reshape(4, -1, 3)[[0, 1, 3, 2]].reshape(weight.shape)
    made = build_policy(*save_pair(tmp_path, model, checkpoint))
    assert made.bindings.verdict == "drift" and made.verification.level == "differs"
    assert [b.path for b in made.bindings.disagreements] == ["lstm.weight_hh_l0"]


def test_memory_goes_from_step_to_step(tmp_path: Path) -> None:
    import onnxruntime as ort
    import torch

    model = tiny_policy((3,), memory=6)
    made = build_policy(*save_pair(tmp_path, model, tiny_checkpoint(model)))
    module = import_source(made.source)
    policy = module.Policy()
    policy.load_state_dict({b.path: torch.from_numpy(np.array(b.value)) for b in made.bindings.tensors})
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = ["deterministic_continuous_actions", "recurrent_out"]
    memory, theirs = torch.zeros(4, 1, 6), np.zeros((4, 1, 6), np.float32)
    for step in range(5):
        obs = np.random.default_rng(step).normal(size=(4, 3)).astype(np.float32)
        action, theirs = session.run(wanted, {"obs_0": obs, "recurrent_in": theirs})
        with torch.inference_mode():
            ours, memory = policy.act(torch.from_numpy(obs), memory)
        np.testing.assert_allclose(ours.numpy(), action, atol=1e-5)
        np.testing.assert_allclose(memory.numpy(), theirs, atol=1e-5)


def test_a_policy_with_memory_compiles_whole_and_takes_another_dtype(tmp_path: Path) -> None:
    import torch

    model = tiny_policy(((1, 20, 20), 3), memory=6)
    build(*save_pair(tmp_path, model, tiny_checkpoint(model)), tmp_path / "built")
    module = import_source((tmp_path / "built" / "model.py").read_text())
    policy = module.load(tmp_path / "built" / "weights.safetensors")
    given = torch.rand(4, 1, 20, 20), torch.rand(4, 3), torch.zeros(4, 1, 6)
    with torch.no_grad():
        action, memory = policy.act(*given)
        compiled: Any = torch.compile(policy.act, fullgraph=True, backend="eager")
        assert torch.equal(compiled(*given)[0], action)
        for shape in ((3, 1, 6), (4, 2, 6), (4, 1, 8), (1, 1, 6)):
            with pytest.raises(ValueError, match="one row of 6 numbers for each of 4 agents"):
                policy.act(*given[:2], torch.zeros(shape))
        half = module.load(tmp_path / "built" / "weights.safetensors", dtype=torch.bfloat16)
        rough, state = half.act(*given)
        assert state.dtype == rough.dtype == torch.float32 and (rough - action).abs().max() < 0.05
        rough, state = half.act(*given[:2], state)  # the next step takes it as it is
        assert (rough - policy.act(*given[:2], memory)[0]).abs().max() < 0.05


def test_memory_that_is_not_batched_is_built_for_one_agent(tmp_path: Path) -> None:
    """The form of ML-Agents' first exports with torch: the memory goes into the LSTM as it comes."""
    model = tiny_policy(memory=6)
    turns = {n.output[0]: n.input[0] for n in model.graph.node if n.op_type == "Transpose" and n.input[0] == "recurrent_in"}
    last = next(n for n in model.graph.node if n.output[0] == "recurrent_out")
    kept: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.output[0] in turns or node is last:
            continue
        for i, value in enumerate(node.input):
            node.input[i] = turns.get(value, value)
        if node.output[0] == last.input[0]:
            node.output[0] = "recurrent_out"
        kept.append(node)
    model.graph.ClearField("node")
    model.graph.node.extend(kept)
    made = build_policy(*save_pair(tmp_path, model, tiny_checkpoint(model)))
    assert made.verification.level == "graph", made.verification.reason
    assert made.verification.refused and "batch 1 ordinary" not in made.verification.refused


def test_another_order_of_memory_is_refused(tmp_path: Path) -> None:
    from graph2torch.recognise import recognise

    model = tiny_policy(memory=6)
    lstm = next(n for n in model.graph.node if n.op_type == "LSTM")
    lstm.input[5], lstm.input[6] = lstm.input[6], lstm.input[5]
    spec = recognise(save_pair(tmp_path, model)[0]).spec
    rules = {b.rule: b.family for b in spec.blocks}
    assert rules["LSTM"] == "generic" and "lstm" not in rules
    misses = {miss.rule: str(miss.refusal) for miss in spec.near_misses}
    assert "lstm" in misses
