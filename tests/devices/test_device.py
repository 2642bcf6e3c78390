"""Precision switches, threads and the CPU as a device; other devices are in tests/policies_on_device."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest
import torch

from graph2torch.devices.device import cpu, exact, resolve, thread_count, threads, usable_cpus
from graph2torch.devices.kinds import KINDS
from graph2torch.errors import DeviceError


def test_the_cpu_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph2torch.devices.device.probe", lambda *_: pytest.fail("a process was started"))
    device = resolve("cpu")
    assert device == cpu() and device.torch == torch.device("cpu") and device.module is torch.cpu and device.name == "cpu"
    assert not device.simulated
    device.synchronise()


def test_short_floats_are_off_and_afterwards_as_before() -> None:
    """The switches of CUDA can be set without one."""
    device = replace(cpu(), kind=KINDS["cuda"])
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32, torch.get_float32_matmul_precision()
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.set_float32_matmul_precision("high")
    try:
        with exact(device) as switches:
            assert switches["float32_matmul_precision"] == "highest"
            assert set(switches) == {"float32_matmul_precision", *(path for path, _ in KINDS["cuda"].switches)}
            assert not any(value for name, value in switches.items() if name != "float32_matmul_precision")
            assert not torch.backends.cudnn.allow_tf32 and not torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.cudnn.allow_tf32 and torch.backends.cuda.matmul.allow_tf32
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before[2])
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before[:2]


def test_a_switch_that_stays_on_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck:
        allow_hf32 = property(lambda _: True, lambda _, value: None)

    monkeypatch.setattr(torch, "stuck", Stuck(), raising=False)
    device = replace(cpu(), kind=replace(KINDS["cpu"], switches=(("stuck.allow_hf32", False),)))
    with pytest.raises(DeviceError, match=r"stuck\.allow_hf32 can't be set to False"), exact(device):
        pytest.fail("went on")


def test_a_switch_that_this_torch_lacks_is_said_to_be_absent() -> None:
    device = replace(cpu(), kind=replace(KINDS["cpu"], switches=(("backends.none.such", False),)))
    with exact(device) as switches:
        assert switches["backends.none.such"] == "absent"


def test_computing_elsewhere_is_forbidden_where_it_is_decided_early(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "torch" in sys.modules
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    with pytest.raises(DeviceError, match="PYTORCH_ENABLE_MPS_FALLBACK is '1'"):
        resolve("mps")
    assert os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] == "1"


def test_threads() -> None:
    before = torch.get_num_threads()
    assert thread_count() == 1 and thread_count(usable_cpus()) == usable_cpus()
    with threads() as count:
        assert count == torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    for wrong in (0, -1, usable_cpus() + 1):
        with pytest.raises(DeviceError, match=f"ask for 1 to {usable_cpus()}"):
            thread_count(wrong)
