"""The emitted source: read as a golden, run on its own, trained, moved between precisions, and never trusting a name."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch

from graph2torch.build import Build, build
from graph2torch.emit import substitute, wrap
from graph2torch.module import import_source
from tests.models import FAMILIES, save_pair, tiny_checkpoint, tiny_policy

ROOT = Path(__file__).parent.parent
HUGGY = ROOT / "assets" / "Huggy.onnx", ROOT / "assets" / "Huggy.pt"
GOLDEN = Path(__file__).parent / "golden"


def golden(name: str, source: str) -> str:
    """The source as it was last read by a person. When it changes on purpose: GRAPH2TORCH_WRITE_GOLDENS=1, and read the difference."""
    path = GOLDEN / f"{name}.py.txt"
    if os.environ.get("GRAPH2TORCH_WRITE_GOLDENS"):
        path.write_text(source, encoding="utf-8")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def huggy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Build, Path]:
    target = tmp_path_factory.mktemp("huggy") / "Huggy"
    return build(*HUGGY, target), target


def loaded(folder: Path) -> ModuleType:
    module = import_source((folder / "model.py").read_text(encoding="utf-8"))
    module.__file__ = str(folder / "model.py")
    return module


def test_huggy_reads_as_it_did(huggy: tuple[Build, Path]) -> None:
    assert huggy[0].source == golden("huggy", huggy[0].source)
    assert len(huggy[0].source.splitlines()) <= 90


POLICIES: dict[str, dict[str, Any]] = {
    "two_observations": {"observations": (3, 2), "era": "torch1.8", "deterministic": False},
    "memory": {"observations": ((1, 20, 20), 3), "memory": 6},
    "resnet": {"observations": ((2, 20, 20),), "encoder": "resnet"},
    **{family: dict(FAMILIES[family]) for family in ("hybrid", "sac", "attention", "hypernetwork")},
}
LINES = {"two_observations": 89, "memory": 135, "resnet": 92, "hybrid": 148, "sac": 89, "attention": 148, "hypernetwork": 115}


@pytest.mark.parametrize("name", POLICIES)
def test_policies_read_as_they_did(tmp_path: Path, name: str) -> None:
    model = tiny_policy(**POLICIES[name])
    made = build(*save_pair(tmp_path, model, tiny_checkpoint(model)), tmp_path / "out")
    source = made.source.replace(made.recognised.model.sha256[:12], "…")
    checkpoint = made.bindings.checkpoint
    assert checkpoint is not None
    source = source.replace(checkpoint.sha256[:12], "…")
    assert source == golden(name, source)
    assert len(source.splitlines()) == LINES[name]


def test_it_imports_the_standard_library_torch_and_safetensors_alone(huggy: tuple[Build, Path]) -> None:
    imports = set()
    for node in ast.walk(ast.parse(huggy[0].source)):
        if isinstance(node, ast.Import):
            imports |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imports.add((node.module or "").split(".")[0])
    assert imports - set(sys.stdlib_module_names) == {"torch", "safetensors"}


def test_it_runs_alone_and_agrees_with_onnxruntime(huggy: tuple[Build, Path]) -> None:
    """In a process that can't import this package, onnx or onnxruntime."""
    _, folder = huggy
    observations = np.random.default_rng(0).standard_normal((7, 59)).astype(np.float32) * 2
    np.save(folder.parent / "observations.npy", observations)
    script = textwrap.dedent("""
        import json, sys
        sys.modules.update({name: None for name in ("graph2torch", "onnx", "onnxruntime", "onnx_graphsurgeon")})
        sys.path.insert(0, sys.argv[1])
        import numpy, torch, model
        policy = model.load()
        out = policy(torch.from_numpy(numpy.load(sys.argv[2])))
        print(json.dumps({model.OUTPUT_NAMES[k]: v.tolist() for k, v in out._asdict().items()}))
    """)
    run = [sys.executable, "-I", "-c", script, str(folder), str(folder.parent / "observations.npy")]
    out = json.loads(subprocess.run(run, capture_output=True, text=True, check=True, timeout=120).stdout)
    session = ort.InferenceSession(str(HUGGY[0]), providers=["CPUExecutionProvider"])
    expected = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"obs_0": observations}), strict=True))
    assert list(out) == list(expected)
    for name, array in expected.items():
        if name != "continuous_actions":  # sampled
            assert np.abs(np.asarray(out[name]) - np.asarray(array)).max() < 1e-5
    assert np.abs(np.asarray(out["continuous_actions"])).max() <= 1


def test_noise_decides_the_sample(huggy: tuple[Build, Path]) -> None:
    module = loaded(huggy[1])
    policy, x = module.load(), torch.randn(5, 59)
    zero = module.Noise(torch.zeros(5, 21))
    out = policy(x, noise=zero)
    assert torch.equal(out.continuous_actions, out.deterministic_continuous_actions)
    assert torch.allclose(policy.act(x), out.deterministic_continuous_actions, atol=1e-6)
    assert not torch.equal(policy(x).continuous_actions, policy(x).continuous_actions)
    torch.manual_seed(3)
    first = policy(x).continuous_actions
    torch.manual_seed(3)
    assert torch.equal(first, policy(x).continuous_actions)


def test_the_distribution_is_the_one_that_is_sampled(huggy: tuple[Build, Path]) -> None:
    module = loaded(huggy[1])
    policy, x = module.load(), torch.randn(4, 59)
    distribution = policy.distribution(x)
    z = torch.randn(4, 21)
    mu, sigma = distribution.base_dist.loc, distribution.base_dist.scale
    assert torch.allclose(policy(x, noise=module.Noise(z)).continuous_actions, torch.clamp(mu + z * sigma, -3, 3) / 3, atol=1e-6)
    by_hand = (-0.5 * z**2 - sigma.log() - 0.5 * np.log(2 * np.pi)).sum(1)
    assert torch.allclose(distribution.log_prob(mu + z * sigma), by_hand, atol=1e-3)
    assert distribution.entropy().shape == (4,)


def test_a_later_checkpoint_of_the_run_loads_and_another_does_not(tmp_path: Path) -> None:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    build(*save_pair(tmp_path, model, checkpoint), tmp_path / "out")
    body = "network_body._body_endoder.seq_layers"
    checkpoint["Policy"][f"{body}.0.weight"] += 1
    normalizer = "network_body.observation_encoder.processors.0.normalizer"
    checkpoint["Policy"][f"{normalizer}.running_variance"] *= 4
    torch.save(checkpoint, tmp_path / "later.pt")
    module = loaded(tmp_path / "out")
    before, after = module.load(), module.load(tmp_path / "later.pt")
    assert torch.equal(after.body[0].weight, before.body[0].weight + 1)
    assert torch.equal(after.normalizer.std, before.normalizer.std * 2)

    del checkpoint["Policy"][f"{body}.2.bias"]
    checkpoint["Policy"][f"{body}.4.weight"] = torch.zeros(8, 8)
    torch.save(checkpoint, tmp_path / "other.pt")
    with pytest.raises(RuntimeError, match=r"(?s)Missing key.*body\.2\.bias.*Unexpected key.*body\.4\.weight"):
        module.load(tmp_path / "other.pt")


def test_statistics_keep_their_precision(huggy: tuple[Build, Path]) -> None:
    """Huggy's steps are two million and its variances sums over them: float16 would make infinity, then NaN."""
    module = loaded(huggy[1])
    x = torch.randn(16, 59)
    reference = module.load().act(x)
    for dtype, limit in ((torch.float16, 2e-2), (torch.bfloat16, 2e-1)):
        policy = module.load(dtype=dtype)
        assert policy.body[0].weight.dtype == dtype
        assert policy.normalizer.running_variance.dtype == torch.float32
        assert policy.normalizer.normalization_steps.dtype == torch.int64
        try:
            actions = policy.act(x)
        except RuntimeError as error:  # torch 2.1 has no float16 products on the CPU
            if "not implemented for 'Half'" not in str(error):
                raise
            continue
        assert torch.isfinite(actions).all() and (actions.float() - reference).abs().max() < limit
    assert module.load().half().normalizer.std.dtype == torch.float32
    assert module.load().share_memory().normalizer.std.is_shared()


def test_it_can_be_trained_and_saved(huggy: tuple[Build, Path], tmp_path: Path) -> None:
    from safetensors.torch import save_file

    module = loaded(huggy[1])
    policy, x = module.load(), torch.randn(32, 59)
    optimiser = torch.optim.Adam(policy.parameters(), lr=1e-3)
    losses = []
    for _ in range(20):
        loss = (policy.act(x) - 0.5).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    save_file({k: v.contiguous() for k, v in policy.state_dict().items()}, tmp_path / "trained.safetensors")
    assert torch.equal(module.load(tmp_path / "trained.safetensors").act(x), policy.act(x))


@pytest.mark.skipif(torch.__version__.startswith("2.1."), reason="torch.export of torch 2.1 can't return a buffer as an output")
def test_torch_export_takes_it(huggy: tuple[Build, Path]) -> None:
    policy = loaded(huggy[1]).load()
    x = torch.randn(2, 59)
    program = torch.export.export(policy, (x,))
    assert torch.equal(program.module()(x).deterministic_continuous_actions, policy(x).deterministic_continuous_actions)


def test_ruff_finds_nothing(huggy: tuple[Build, Path]) -> None:
    pytest.importorskip("ruff", reason="ruff is not installed")
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", str(huggy[1] / "model.py")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


def test_substitution_brackets_what_needs_it() -> None:
    places: dict[str, Any] = {"a": ast.parse("p + q", mode="eval").body, "b": ast.Name("r"), "parts": [ast.Name("s"), ast.Name("t")]}
    assert ast.unparse(substitute("a * b", places)) == "(p + q) * r"
    assert ast.unparse(substitute("torch.cat([*parts, a], dim=1)", places)) == "torch.cat([s, t, p + q], dim=1)"


def test_wrapping_keeps_to_the_width() -> None:
    assert wrap("f", ["a", "b"], 4) == ["    f(a, b)"]
    long = ["x" * 50, "y" * 50, "z" * 50]
    assert wrap("f", long, 0) == ["f(", *(f"    {a}," for a in long), ")"]
