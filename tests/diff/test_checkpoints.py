"""Two checkpoints, and a checkpoint with a graph: whose tensors are the same, renamed, other, or of another network."""

from __future__ import annotations

import io
import json
import re
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graph2torch.checkpoint import MAX_ENTRIES, load_modules
from graph2torch.diff.checkpoints import CheckpointDifference
from graph2torch.diff.diff import as_json, diff
from graph2torch.errors import CheckpointError
from tests import variants
from tests.commands import check_trouble, run, unsafe
from tests.models import FAMILIES, save_pair, tiny_checkpoint, tiny_policy

Checkpoint = dict[str, Any]


def changed(change: Callable[[Checkpoint], None], family: str = "continuous") -> tuple[Checkpoint, Checkpoint]:
    """A checkpoint, and a copy of it with one change."""
    model = tiny_policy(**FAMILIES[family])
    a, b = tiny_checkpoint(model), tiny_checkpoint(model)
    change(b)
    return a, b


def compared(folder: Path, a: object, b: object) -> tuple[bool, str, CheckpointDifference]:
    for name, value in (("a", a), ("b", b)):
        data = io.BytesIO()  # a file's name would stand in it
        torch.save(value, data)
        (folder / f"{name}.pt").write_bytes(data.getvalue())
    found = diff(folder / "a.pt", folder / "b.pt")
    assert found.checkpoints is not None and found.kind == "checkpoints" and "\n" not in found.verdict
    json.dumps(as_json(found), allow_nan=False)
    return found.equal, found.verdict, found.checkpoints


def test_the_same_file(tmp_path: Path) -> None:
    equal, verdict, found = compared(tmp_path, *changed(lambda c: None))
    assert equal and found.same_file and "byte for byte" in verdict


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_networks_of_other_steps_are_a_finding(family: str, tmp_path: Path) -> None:
    def change(c: Checkpoint) -> None:
        c["global_step"] = OrderedDict(_GlobalSteps__global_step=torch.tensor([6000]))
        c["Optimizer:value_optimizer"]["param_groups"][0]["lr"] = 0.0001

    equal, verdict, found = compared(tmp_path, *changed(change, family))
    assert equal and verdict.startswith("identical networks") and found.steps == (5000, 6000)
    assert "'global_step'" in verdict and "'Optimizer:value_optimizer'" in verdict
    values = {m.name: m.values for m in found.modules}
    assert values["Optimizer:value_optimizer"] == (("param_groups.0.lr", 0.0003, 0.0001),)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_number_by_one_ulp(family: str, tmp_path: Path) -> None:
    key = next(
        k for k, v in tiny_checkpoint(tiny_policy(**FAMILIES[family]))["Policy"].items() if v.numel() > 4 and v.dtype == torch.float32
    )

    def change(c: Checkpoint) -> None:
        tensor = c["Policy"][key].clone()
        flat = tensor.reshape(-1)
        flat[1] = torch.nextafter(flat[1], torch.tensor(np.inf))
        c["Policy"][key] = tensor

    equal, verdict, found = compared(tmp_path, *changed(change, family))
    (module,) = found.network
    assert not equal and verdict.startswith("the same network, other weights: 1 of")
    assert [(w.a, w.differing, w.max_ulps) for w in module.differing] == [(key, 1, 1)]


def test_what_was_0_has_no_relative_distance(tmp_path: Path) -> None:
    """It is no relative distance of 0; and one that was 0 doesn't hide how far the others are off."""

    def change(c: Checkpoint) -> None:
        weight, bias = (key for key in c["Policy"] if key.endswith((".mu.weight", ".mu.bias")))
        c["Policy"][weight] = c["Policy"][weight] * 1.5
        c["Policy"][bias] = torch.tensor([0.0, 3.0])

    one = tiny_checkpoint(tiny_policy())
    one["Policy"]["action_model._continuous_distribution.mu.bias"] = torch.tensor([0.0, 0.0])
    torch.save(one, tmp_path / "a.pt")
    change(one)
    torch.save(one, tmp_path / "b.pt")
    done = run("diff", tmp_path / "a.pt", tmp_path / "b.pt", "--html", tmp_path / "page.html")
    shown = [line.split() for line in done.out.splitlines()]
    assert ["1", "3", "–"] in [cells[2:5] for cells in shown if cells and cells[0].endswith("mu.bias")]
    assert ["0.5"] in [cells[5:6] for cells in shown if cells and cells[0].endswith("mu.weight")]
    assert re.search(
        r"mu\.(?:<wbr>)?bias.*?<td class=\"num\"[^>]*>1 of 2</td><td class=\"num\"[^>]*>3</td><td class=\"num\"[^>]*>–</td>",
        (tmp_path / "page.html").read_text(),
    )


def test_renamed_tensors_are_found_by_what_they_hold(tmp_path: Path) -> None:
    def change(c: Checkpoint) -> None:
        c["Policy"] = OrderedDict((f"actor.{key}", value) for key, value in c["Policy"].items())

    equal, verdict, found = compared(tmp_path, *changed(change))
    assert equal and "renamed" in verdict
    assert all(y == f"actor.{x}" or x.rpartition(".")[2] == y.rpartition(".")[2] for x, y in found.network[0].renamed)


def test_another_network(tmp_path: Path) -> None:
    equal, verdict, found = compared(tmp_path, tiny_checkpoint(tiny_policy((4,), hidden=8)), tiny_checkpoint(tiny_policy((4,), hidden=16)))
    assert not equal and verdict.startswith("different networks") and "→" in verdict
    equal, verdict, found = compared(tmp_path, tiny_checkpoint(tiny_policy((4,))), tiny_checkpoint(tiny_policy((4,), 0, branches=(3, 2))))
    assert not equal and verdict.startswith("different networks")
    assert found.network[0].removed and found.network[0].added


def test_another_module_differs_and_the_policy_does_not(tmp_path: Path) -> None:
    a, b = changed(lambda c: None)
    for checkpoint, number in ((a, 1.0), (b, 2.0)):
        checkpoint["Optimizer:critic"] = OrderedDict({"value_heads.weight": torch.full((2, 3), number)})
    equal, verdict, found = compared(tmp_path, a, b)
    assert equal and "'Optimizer:critic'" in verdict
    critic = next(m for m in found.modules if m.name == "Optimizer:critic")
    assert not critic.network and critic.differing[0].max_abs == 1


def test_checkpoints_of_other_frameworks(tmp_path: Path) -> None:
    """A bare state_dict, and one beside an optimiser's state, whose nested tensors are found but are no network."""
    layer = torch.nn.Linear(3, 2)
    other = {k: v + 1 for k, v in layer.state_dict().items()}
    equal, verdict, _ = compared(tmp_path, dict(layer.state_dict()), other)
    assert not equal and verdict.startswith("the same network, other weights: 2 of 2")
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    full = {"model": dict(layer.state_dict()), "optimizer": optimizer.state_dict(), "epoch": 3}
    later = {"model": dict(layer.state_dict()), "optimizer": torch.optim.Adam(layer.parameters(), 0.1).state_dict(), "epoch": 4}
    equal, verdict, found = compared(tmp_path, full, later)
    assert equal and "'optimizer'" in verdict
    modules = {m.name: m for m in found.modules}
    assert modules["model"].network and not modules["optimizer"].network
    assert "state.0.exp_avg" in modules["optimizer"].removed and ("epoch", 3, 4) in modules[""].values


def test_what_is_nested_deeply_or_endlessly_is_bounded(tmp_path: Path) -> None:
    deep: dict[str, Any] = {"w": torch.ones(2)}
    for _ in range(200):
        deep = {"d": deep, "w": torch.ones(2)}
    torch.save({"Policy": deep}, tmp_path / "deep.pt")
    assert len(load_modules(tmp_path / "deep.pt").tensors["Policy"]) < 20
    wide: dict[str, Any] = {"w": torch.ones(2)}
    for _ in range(6):  # a dictionary that stands in itself in effect: 40⁶ leaves
        wide = {str(i): wide for i in range(40)}
    torch.save({"Policy": wide}, tmp_path / "wide.pt")
    with pytest.raises(CheckpointError, match=f"more than {MAX_ENTRIES:,}"):
        load_modules(tmp_path / "wide.pt")


def test_what_holds_no_tensor(tmp_path: Path) -> None:
    values: tuple[object, ...] = ({}, {"Policy": {}}, {"a": 1}, [torch.ones(2)])
    for value in values:
        torch.save(value, tmp_path / "a.pt")
        check_trouble(run("diff", tmp_path / "a.pt", tmp_path / "a.pt"), "a.pt")


def test_keys_act_on_no_terminal(tmp_path: Path) -> None:
    evil = "\x1b[31m\u202e[bold]'\n"
    a = {evil: {f"{evil}w": torch.ones(3), f"{evil}v": torch.zeros(2), f"{evil}n": evil}}
    b = {evil: {f"{evil}w": torch.zeros(3), f"{evil}x": torch.zeros(3, 2), f"{evil}n": f"{evil}2"}, f"{evil}2": {"t": torch.ones(1)}}
    compared(tmp_path, a, b)
    for first, second in (("a", "b"), ("b", "a")):
        result = run("diff", tmp_path / f"{first}.pt", tmp_path / f"{second}.pt")
        assert result.status == 1 and not unsafe(result.out) and not result.err, result


# ---------------------------------------------------------------------------------------------- with a graph
def test_a_graph_and_its_checkpoint_in_either_order(tmp_path: Path) -> None:
    model = tiny_policy()
    onnx_path, pt_path = save_pair(tmp_path, model, tiny_checkpoint(model))
    for files in ((onnx_path, pt_path), (pt_path, onnx_path)):
        found = diff(*files)
        assert found.kind == "pair" and found.equal and found.verdict.startswith("the same network")
        assert found.a.name == onnx_path.name and found.b.step == 5000
    printed = run("diff", onnx_path, pt_path)
    assert printed.status == 0 and printed.out.startswith("the same network")


def test_a_graph_and_a_checkpoint_that_drifted(tmp_path: Path) -> None:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(variants.one_ulp(model))
    onnx_path, pt_path = save_pair(tmp_path, model, checkpoint)
    found = diff(onnx_path, pt_path)
    assert not found.equal and found.verdict.startswith("the same structure, other weights: 1 tensor of")
    assert run("diff", onnx_path, pt_path).status == 1


def test_a_graph_and_the_checkpoint_of_another_network(tmp_path: Path) -> None:
    onnx_path, pt_path = save_pair(tmp_path, tiny_policy(), tiny_checkpoint(tiny_policy(hidden=16)))
    found = diff(onnx_path, pt_path)
    assert not found.equal and found.verdict.startswith("different networks")


def test_nothing_compared_is_not_equal(tmp_path: Path) -> None:
    onnx_path, pt_path = save_pair(tmp_path, variants.classifier(), {"Policy": {"w": torch.ones(3)}})
    result = run("diff", onnx_path, pt_path)
    check_trouble(result, "nothing can be said")
