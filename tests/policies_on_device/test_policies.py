"""Policies on the device that GRAPH2TORCH_DEVICE names; tests/devices/test_on_device.py starts this as a process of its own.

A real device gives the CPU's numbers within a tolerance; the simulated one, which computes on the CPU, gives its bits.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graph2torch.act.run import Runner, act_on
from graph2torch.build import Build, build, build_policy
from graph2torch.devices.device import Device, exact
from graph2torch.devices.on_device import check_on_device
from graph2torch.judge.deep import report, verify_folder
from graph2torch.judge.figures import TOLERANCE, different_bits
from graph2torch.judge.observations import observation
from graph2torch.module import build_module
from graph2torch.selftest.cases import CASES
from graph2torch.selftest.selftest import log, open_subject, selftest, tried
from graph2torch.show.verify import show_verification
from tests.commands import check_trouble, run
from tests.models import FAMILIES, save_pair, tiny_checkpoint, tiny_policy

CORPUS = Path(os.environ["GRAPH2TORCH_CORPUS"]) if os.environ.get("GRAPH2TORCH_CORPUS") else None
GENERATED = sorted(p.parent for p in (CORPUS / "generated").rglob("graph.json")) if CORPUS else []


def observations(made: Build, batch: int = 5) -> list[torch.Tensor]:
    rng = np.random.default_rng(0)
    return [torch.from_numpy(observation(i, batch, "ordinary", rng)) for i in made.spec.graph.inputs]


def several(actions: Any) -> list[torch.Tensor]:
    return [actions] if isinstance(actions, torch.Tensor) else list(actions)


def check_same(device: Device, made: Build, here: list[torch.Tensor], there: list[torch.Tensor]) -> None:
    """Each tensor lies on the device, and holds the CPU's numbers: the same bits if the device is simulated and the operators are the same."""
    assert here and len(here) == len(there)
    composed = any(b.rule == "lstm" for b in made.spec.blocks)  # a device's LSTM is several operators, the CPU's is one
    for a, b in zip(here, there, strict=True):
        assert b.device.type == device.torch.type
        want, got = a.numpy(), b.cpu().numpy()
        assert want.dtype == got.dtype and want.shape == got.shape
        if device.simulated and not composed:
            assert not different_bits(want, got).any()
        elif want.dtype.kind == "f":
            assert np.abs(want - got).max(initial=0) <= TOLERANCE * max(1.0, np.abs(want).max(initial=0))
        else:
            assert np.mean(want != got) < 0.1, "options that are nearly equally good may change places, not many of them"


def check_policy(device: Device, made: Build) -> None:
    """Given noise and outputs as in `build --device`; then deterministic actions, and sampled ones of one seed."""
    policy: Any = build_module(made.source, made.bindings)
    checked = check_on_device(made.recognised.model.proto, policy, made.spec, device, 7)
    assert checked.within and checked.runs
    assert {f.output for f in checked.against_cpu} == {o.name for o in made.spec.outputs}
    if device.simulated and not any(b.rule == "lstm" for b in made.spec.blocks):
        assert not any(f.differing for f in checked.against_cpu)
    there: Any = build_module(made.source, made.bindings).to(device.torch)
    assert {t.device.type for t in (*there.parameters(), *there.buffers())} <= {device.torch.type}
    inputs = observations(made)
    moved = [x.to(device.torch) for x in inputs]
    with torch.inference_mode(), exact(device):
        check_same(device, made, several(policy.act(*inputs)), several(there.act(*moved)))
        torch.manual_seed(3)
        here = list(policy(*inputs))
        torch.manual_seed(3)
        check_same(device, made, here, list(there(*moved)))


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family(device: Device, tmp_path: Path, family: str) -> None:
    model = tiny_policy(**FAMILIES[family])
    check_policy(device, build_policy(*save_pair(tmp_path, model, tiny_checkpoint(model), family)))


@pytest.mark.parametrize("folder", GENERATED or [pytest.param(None, marks=pytest.mark.skip("GRAPH2TORCH_CORPUS is not set"))], ids=str)
def test_each_generated_case(device: Device, folder: Path) -> None:
    check_policy(device, build_policy(next(folder.glob("*.onnx")), next(folder.glob("*.pt"))))


def test_build_says_how_it_went_there(device: Device, tmp_path: Path) -> None:
    """The command line: figures in report.json and on the page, and the word "simulated" wherever it is."""
    model = tiny_policy()
    paths = save_pair(tmp_path, model, tiny_checkpoint(model))
    result = run("build", *paths, "-o", tmp_path / "out", "--device", device.name)
    assert result.status == 0 and not result.err
    assert f"Device {device.name}" in result.out and ("simulated" in result.out) == device.simulated
    told = json.loads((tmp_path / "out" / "report.json").read_text())["device"]
    assert told["name"] == device.name and told["within"] and told["simulated"] == device.simulated
    assert told["precision"]["float32_matmul_precision"] == "highest"
    assert not any(told["precision"].get(path) for path, _ in device.kind.switches)
    assert sum(f["compared"] for f in told["against_cpu"]) == sum(f["compared"] for f in told["against_original"]) > 0


def test_a_folder_is_judged_there(device: Device, tmp_path: Path) -> None:
    """`verify --device`: torch's side of the deep tier on the device, memory fed back and samples included."""
    model = tiny_policy(**FAMILIES["lstm"])
    build(*save_pair(tmp_path, model, tiny_checkpoint(model)), tmp_path / "out")
    found = verify_folder(tmp_path / "out", device=device)
    assert found.equal and found.on_device is not None and found.on_device.device == device
    assert found.blocks and found.drift and found.sampling is not None
    assert report(found)["device"]["simulated"] == device.simulated
    show_verification(found)


def test_the_self_test(device: Device, tmp_path: Path) -> None:
    """`selftest --device`: the cases about devices apply and nothing fails; a simulated one has no times."""
    model = tiny_policy(**FAMILIES["hybrid"])
    build(*save_pair(tmp_path, model, tiny_checkpoint(model)), tmp_path / "out")
    found = selftest(tmp_path / "out", device=device)
    assert [r for r in found.results if r.status == "failed"] == []
    assert {r.status for r in found.results if r.group in ("device", "devices' transfer")} == {"passed"}
    assert {r.status for r in found.results if r.group == "latency"} == {"not applicable" if device.simulated else "measured"}
    assert ("simulated" in log(found)) == device.simulated


def test_noise_that_is_drawn_on_the_device_is_named(device: Device, tmp_path: Path) -> None:
    model = tiny_policy()
    build(*save_pair(tmp_path, model, tiny_checkpoint(model)), tmp_path / "out")
    case = next(case for case in CASES if case[1] == "forward draws its noise on the CPU")
    assert tried(*case, open_subject(tmp_path / "out", None, device)).status == "passed"
    source = (tmp_path / "out" / "model.py").read_text()
    there = "torch.randn_like(mu) if mu.is_cpu else torch.randn(mu.shape).to(mu.device)"
    assert there in source
    (tmp_path / "out" / "model.py").write_text(source.replace(there, "torch.randn_like(mu)"))
    assert tried(*case, open_subject(tmp_path / "out", None, device)).status == "failed"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("family", ["continuous", "lstm", "attention"])
def test_weights_that_are_stored_in_half_precision(device: Device, tmp_path: Path, family: str, dtype: str) -> None:
    """Built, judged and acting there: finite, and as near to the CPU as rounding allows."""
    model = tiny_policy(**FAMILIES[family])
    made = build(*save_pair(tmp_path, model, tiny_checkpoint(model)), tmp_path / "out", dtype=dtype, device=device)
    assert made.precision is not None and made.precision.not_finite == 0 and made.on_device is not None and made.on_device.within
    acted = [act_on(Runner.load(tmp_path / "out", device=place), batch=3, steps=2).actions for place in ("cpu", device.torch)]
    for name, numbers in acted[0].items():
        assert np.abs(numbers.astype(np.float64) - acted[1][name].astype(np.float64)).max() < 0.05


@pytest.mark.parametrize("family", ["continuous", "hybrid", "lstm"])
def test_the_same_samples_as_on_the_cpu(device: Device, tmp_path: Path, family: str) -> None:
    """`run --sample`: noise by its place alone, moved there; memory stays there from step to step."""
    model = tiny_policy(**FAMILIES[family])
    build(*save_pair(tmp_path, model, tiny_checkpoint(model)), tmp_path / "out")
    acted = {}
    for place in ("cpu", device.torch):
        runner = Runner.load(tmp_path / "out", device=place, group=1)
        acted[str(place)] = act_on(runner, "random", steps=4, batch=3, sample=True, seed=11).actions
    here, there = acted["cpu"], acted[device.name]
    for name, want in here.items():
        if device.simulated and family != "lstm":
            assert not different_bits(want, there[name]).any()
        elif want.dtype.kind == "f":
            assert np.abs(want.astype(np.float64) - there[name].astype(np.float64)).max() <= TOLERANCE


def test_run_says_where(device: Device, tmp_path: Path) -> None:
    build(save_pair(tmp_path, tiny_policy())[0], None, tmp_path / "out")
    found = json.loads(run("run", tmp_path / "out", "--device", device.name, "--json").out)
    assert (found["device"], found["simulated"], found["group"]) == (device.name, device.simulated, 0)


def test_another_number_than_there_are(device: Device, tmp_path: Path) -> None:
    path, _ = save_pair(tmp_path, tiny_policy())
    check_trouble(run("build", path, "-o", tmp_path / "out", "--device", f"{device.kind.type}:99"), "99", "there", status=3)
    assert not (tmp_path / "out").exists()


def test_float32_is_whole_while_comparing(device: Device) -> None:
    for path, value in device.kind.switches:
        owner: Any = torch
        *above, attribute = path.split(".")
        for part in above:
            owner = getattr(owner, part)
        before = getattr(owner, attribute)
        setattr(owner, attribute, not value)
        try:
            with exact(device) as switches:
                assert switches[path] == getattr(owner, attribute) == value
            assert getattr(owner, attribute) == (not value)
        finally:
            setattr(owner, attribute, before)


def test_model_py_loads_there(device: Device, huggy: Any) -> None:
    """What is kept, model.py alone: `load(device=…)` gives what `load()` gives, by columns as there."""
    obs = torch.from_numpy(np.random.default_rng(1).standard_normal((4, 59)).astype(np.float32))
    there = huggy.load(device=device.torch)
    with torch.inference_mode(), exact(device):
        here, got = huggy.load().act(obs), there.act(obs.to(device.torch)).cpu()
    assert (here - got).abs().max() <= (0 if device.simulated else TOLERANCE)
    assert {k: v.shape for k, v in there.state_dict().items()} == {k: v.shape for k, v in huggy.load().state_dict().items()}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_leaves_the_statistics_whole(device: Device, huggy: Any, dtype: torch.dtype) -> None:
    there = huggy.load(device=device.torch, dtype=dtype)
    obs = torch.from_numpy(np.random.default_rng(1).standard_normal((4, 59)).astype(np.float32))
    with torch.inference_mode():
        here, got = huggy.load().act(obs), there.act(obs.to(device.torch)).cpu().float()
    assert there.mu.weight.dtype == dtype and there.normalizer.std.dtype == torch.float32
    assert there.normalizer.running_variance.device.type == device.torch.type
    assert torch.isfinite(got).all() and 0 < (here - got).abs().max() < 0.1


def test_weights_come_back(device: Device, huggy: Any) -> None:
    there = {k: v.cpu() for k, v in huggy.load(device=device.torch).state_dict().items()}
    assert all(torch.equal(v, there[k]) for k, v in huggy.load().state_dict().items())
