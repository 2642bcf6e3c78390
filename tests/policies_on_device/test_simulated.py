"""What only the simulated npu can tell: how often it is launched and fed, and that it refuses what an NPU does badly."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from onnx import TensorProto, helper

from graph2torch.build import build_policy
from graph2torch.devices.device import Device
from graph2torch.devices.on_device import check_on_device
from graph2torch.errors import DeviceError
from graph2torch.module import build_module
from tests.models import save_pair

pytestmark = pytest.mark.skipif(os.environ["GRAPH2TORCH_DEVICE"] != "npu", reason="this is no simulated npu")


@pytest.fixture(autouse=True)
def simulated(device: Device) -> None:
    assert device.simulated and device.status.model == "stand-in"


@pytest.fixture
def counts() -> Any:
    import torch_npu

    torch_npu.COUNTS.clear()
    return torch_npu.COUNTS


def test_a_step_of_huggy_launches_twelve_times_and_moves_twice(huggy: Any, counts: Any) -> None:
    policy: Any = huggy.load(device="npu")
    obs = torch.zeros(1, 59)
    counts.clear()
    with torch.inference_mode():
        policy.act(obs.to("npu")).cpu()
    assert 0 < counts["launches"] <= 12
    assert (counts["to_device"], counts["to_host"], counts["copies"], counts["waits"]) == (1, 1, 0, 0)
    assert sum(n for name, n in counts.items() if name.startswith("op ")) == counts["launches"]


def test_a_sampled_step_moves_its_noise_and_nothing_else(huggy: Any, counts: Any) -> None:
    policy: Any = huggy.load(device="npu")
    obs = torch.zeros(1, 59).to("npu")
    counts.clear()
    with torch.inference_mode():
        policy(obs)
    assert (counts["to_device"], counts["to_host"], counts["copies"], counts["waits"]) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: torch.randn(3, device="npu"),
        torch.randn_like,
        torch.rand_like,
        lambda x: x.normal_(),
        lambda x: x.uniform_(),
        torch.bernoulli,
        lambda x: torch.multinomial(x, 1),
        lambda x: torch.randperm(3, device="npu"),
        lambda x: torch.nn.functional.dropout(x, 0.5, training=True),
        lambda x: torch.normal(x, x),
    ],
    ids=["randn", "randn_like", "rand_like", "normal_", "uniform_", "bernoulli", "multinomial", "randperm", "dropout", "normal"],
)
def test_random_numbers_are_not_drawn_there(draw: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(RuntimeError, match="random"):
        draw(torch.ones(3).to("npu"))


@pytest.mark.parametrize(
    "convert",
    [
        lambda: torch.ones(3, dtype=torch.float64).to("npu"),
        lambda: torch.ones(3).to("npu").double(),
        lambda: torch.zeros(3, dtype=torch.float64, device="npu"),
        lambda: torch.ones(3).to("npu").sum(dtype=torch.float64),
    ],
    ids=["move", "convert", "make", "sum"],
)
def test_there_is_no_float64(convert: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match=r"no torch\.float64"):
        convert()


def test_operands_on_two_devices() -> None:
    x = torch.ones(3).to("npu")
    mixtures: list[Callable[[], Any]] = [lambda: x + torch.ones(3), lambda: torch.ones(3) * x, lambda: torch.cat([x, torch.ones(3)])]
    for mixed in mixtures:
        with pytest.raises(RuntimeError, match="on the same device"):
            mixed()
    assert (x + 1).tolist() == [2, 2, 2]


def test_other_ways_out() -> None:
    x = torch.ones(3).to("npu")
    with pytest.raises(TypeError, match=r"Use Tensor\.cpu"):
        x.numpy()
    with pytest.raises(RuntimeError, match="there is no npu:1"):
        torch.ones(3).to("npu:1")


def test_views_share_what_they_show() -> None:
    """Else a policy that writes into a part of a tensor would be simulated wrongly."""
    here = torch.arange(6.0).reshape(2, 3)
    there = here.to("npu")
    turned = there.t()
    there.add_(1)
    assert turned.stride() == (1, 3) and torch.equal(turned.cpu(), (here + 1).t()) and torch.equal(turned[1].cpu(), here.t()[1] + 1)


def test_a_policy_in_float64_is_refused(device: Device, tmp_path: Path) -> None:
    """An NPU would compute it in float32 with no more than a warning."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3]) for name in ("x", "y"))
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Add", ["wide", "wide"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(nodes, "wide", [x], [y])
    path, _ = save_pair(tmp_path, helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)]))
    made = build_policy(path)
    with pytest.raises(DeviceError, match=r"float64.*[Ll]eave --device out"):
        check_on_device(made.recognised.model.proto, build_module(made.source, made.bindings), made.spec, device, 7)
