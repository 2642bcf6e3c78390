"""The page of a difference: both sides, what was added, removed and changed, and where they first part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.commands import check_trouble, left_over, run
from tests.models import FAMILIES, save_pair, tiny_checkpoint, tiny_policy
from tests.pages import Read, check_page
from tests.report.test_page import generic_policy, hostile_policy


def page_of(folder: Path, a: str, b: str, status: int) -> Read:
    html = folder / "page.html"
    result = run("diff", folder / a, folder / b, "--html", html, "--force")
    assert result.status == status, result.err
    assert "Written to " in result.out
    return check_page(html.read_text("utf-8"))[0]


def marked(read: Read) -> list[tuple[str, str]]:
    """(name, mark) of the boxes that lead to a row, on both sides in turn."""
    boxes = [given for tag, given in read.tags if tag == "a" and str(given.get("class")).startswith("box")]
    assert all(str(given["href"])[1:] in read.ids for given in boxes)
    return [(str(given["aria-label"]).partition(", other")[0], " ".join(str(given["class"]).split()[2:])) for given in boxes]


def with_noise(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for t in copy.graph.initializer:
        if t.name.endswith(name):
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t) + np.float32(0.5), t.name))
    return copy


def test_other_weights_in_one_layer(tmp_path: Path) -> None:
    """That block alone is marked, on both sides, and first parts there."""
    model = tiny_policy()
    save_pair(tmp_path, model, name="a")
    save_pair(tmp_path, with_noise(model, "seq_layers.2.weight"), name="b")
    read = page_of(tmp_path, "a.onnx", "b.onnx", 1)
    assert [mark for _, mark in marked(read)] == ["other first", "other first"]
    assert "Different" in read.text and "First divergence." in read.text and "hidden layer 2: weight" in read.text
    told = json.loads(run("diff", tmp_path / "a.onnx", tmp_path / "b.onnx", "--json").out)
    assert told["verdict"][1:] in read.text and told["graphs"]["divergence"]["words"][1:] in read.text


def test_titles_say_what_the_networks_are_also_where_nothing_differs(tmp_path: Path) -> None:
    save_pair(tmp_path, tiny_policy(), name="a")
    read = page_of(tmp_path, "a.onnx", "a.onnx", 0)
    assert read.text.count("4 observations → 8 → 8 → 2 continuous actions") == 2 and "nodes (" not in read.text


def test_a_layer_more(tmp_path: Path) -> None:
    save_pair(tmp_path, tiny_policy(layers=2), name="a")
    save_pair(tmp_path, tiny_policy(layers=3), name="b")
    read = page_of(tmp_path, "a.onnx", "b.onnx", 1)
    added = [name for name, mark in marked(read) if "added" in mark]
    assert len(added) == 2 and any("activation" in name for name in added), added
    assert not [name for name, mark in marked(read) if "removed" in mark]
    read = page_of(tmp_path, "b.onnx", "a.onnx", 1)
    assert sum("removed" in mark for _, mark in marked(read)) == 2
    assert "in a only" in read.text


def test_the_same_network(tmp_path: Path) -> None:
    model = tiny_policy(**FAMILIES["attention"])
    save_pair(tmp_path, model, name="a")
    for i, node in enumerate(model.graph.node):
        node.name = f"other{i}"
    save_pair(tmp_path, model, name="b")
    read = page_of(tmp_path, "a.onnx", "b.onnx", 0)
    assert marked(read) == [] and "Equal" in read.text and "Block by block the same." in read.text


@pytest.mark.parametrize("policy", [hostile_policy, generic_policy])
def test_hostile_names_are_text(tmp_path: Path, policy: Any) -> None:
    save_pair(tmp_path, policy(), name="a")
    save_pair(tmp_path, tiny_policy(), name="b")
    read = page_of(tmp_path, "a.onnx", "b.onnx", 1)
    assert "<script>document.title='executed'</script>" in read.text


def test_checkpoints_and_pairs(tmp_path: Path) -> None:
    import torch

    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    save_pair(tmp_path, model, checkpoint, "a")
    key = next(k for k in checkpoint["Policy"] if k.endswith("seq_layers.0.weight"))
    checkpoint["Policy"][key] = torch.as_tensor(np.asarray(checkpoint["Policy"][key])) + 1
    checkpoint["Policy"]["<script>executed=1</script>"] = torch.ones(2)
    save_pair(tmp_path, model, checkpoint, "b")
    read = page_of(tmp_path, "a.pt", "b.pt", 1)
    assert key in read.text and "<script>executed=1</script>" in read.text
    read = page_of(tmp_path, "a.onnx", "b.pt", 1)
    assert "Different" in read.text and "elements differ" in read.text
    assert "Equal" in page_of(tmp_path, "a.onnx", "a.pt", 0).text
    assert "Equal" in page_of(tmp_path, "a.pt", "a.pt", 0).text


def test_the_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    save_pair(tmp_path, tiny_policy(), name="a")
    (tmp_path / "there.html").write_text("mine")
    check_trouble(run("diff", tmp_path / "a.onnx", tmp_path / "a.onnx", "--html", tmp_path / "there.html"), "--html", "--force")
    check_trouble(run("diff", tmp_path / "a.onnx", tmp_path / "none.onnx", "--html", tmp_path / "x.html"), "none.onnx")
    assert left_over(tmp_path) == ["a.onnx", "there.html"] and (tmp_path / "there.html").read_text() == "mine"
    result = run("diff", tmp_path / "a.onnx", tmp_path / "a.onnx", "--html", tmp_path / "x.html", "--json")
    assert json.loads(result.out)["equal"] and left_over(tmp_path) == ["a.onnx", "there.html", "x.html"]
