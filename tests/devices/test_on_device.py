"""tests/policies_on_device, in a process of its own for each device: torch takes on a simulated one once and for all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils import backend_registration

from graph2torch.build import build_policy
from graph2torch.devices.device import cpu
from graph2torch.devices.on_device import check_on_device
from graph2torch.module import build_module
from tests.models import save_pair, tiny_checkpoint, tiny_policy

TESTS = Path(__file__).resolve().parents[1]
IN_PYTHON = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")


@pytest.mark.parametrize(
    "device",
    [
        pytest.param("npu", marks=pytest.mark.skipif(not IN_PYTHON, reason="this torch knows no devices written in Python alone")),
        pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="not run: there is no CUDA GPU here")),
        pytest.param("mps", marks=pytest.mark.skipif(not torch.backends.mps.is_available(), reason="not run: there is no Apple GPU here")),
    ],
    ids=["simulated npu", "cuda", "mps"],
)
def test_policies_on(device: str) -> None:
    folders = [str(TESTS.parent), *([str(TESTS / "simulated")] if device == "npu" else [])]
    environment = {**os.environ, "GRAPH2TORCH_DEVICE": device, "PYTHONPATH": os.pathsep.join(folders), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    for name in [n for n in environment if n.startswith("PYTEST_")]:
        del environment[name]
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-p", "no:xdist", str(TESTS / "policies_on_device")]
    done = subprocess.run(command, cwd=TESTS.parent, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) >= 20, done.stdout
    skipped = re.findall(r"(?m)^SKIPPED .*", done.stdout)
    assert device != "npu" or all("GRAPH2TORCH_CORPUS" in line for line in skipped), done.stdout


def test_a_device_that_computes_otherwise_is_not_within(tmp_path: Path) -> None:
    """The same comparison with a module that is off by a little more than the tolerance; the references are the two that are named."""
    model = tiny_policy()
    made = build_policy(*save_pair(tmp_path, model, tiny_checkpoint(model)))
    policy = build_module(made.source, made.bindings)
    checked = check_on_device(model, policy, made.spec, cpu(), 7)
    assert checked.within and not any(f.differing for f in checked.against_cpu) and checked.threads == 1
    with torch.no_grad():
        policy.mu.bias += 1e-3  # type: ignore[union-attr, operator]
    off = check_on_device(model, policy, made.spec, cpu(), 7)
    assert not off.within and not any(f.differing for f in off.against_cpu)
    assert {f.output for f in off.against_original if not f.within()} == {"continuous_actions", "deterministic_continuous_actions"}
