"""Which nodes and constants correspond, as the report says it."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import onnx.parser
from onnx import helper

from graph2torch.build import build
from graph2torch.canonical import canonicalise
from graph2torch.graph import Graph, read_graph
from graph2torch.judge.isomorphism import align
from graph2torch.judge.witness import witness

ASSETS = Path(__file__).resolve().parents[2] / "assets"


def graph_of(text: str) -> Graph:
    model = helper.make_model(onnx.parser.parse_graph(text), opset_imports=[helper.make_opsetid("", 13)])
    for node in model.graph.node:
        node.name = f"make {node.output[0]}"
    return canonicalise(read_graph(model, "graph"))


def test_merged_nodes_form_a_class_and_the_others_pairs() -> None:
    one = graph_of(
        """g (float[n] x) => (float[n] y) <float[1] k = {2.0}> {
            i = Identity (x) e = Exp (i) f = Exp (x) p = Mul (e, k) q = Mul (k, f) y = Div (p, q) }"""
    )
    two = graph_of("g (float[n] x) => (float[n] y) <float[1] c = {2.0}> { e = Exp (x) p = Mul (e, c) y = Div (p, p) }")
    found = witness(align(one, two), one, two)
    assert found == {
        "nodes": [[5, "make y", 2, "make y"]],
        "classes": [
            [[[1, "make e"], [2, "make f"]], [[0, "make e"]]],
            [[[3, "make p"], [4, "make q"]], [[1, "make p"]]],
        ],
        "initializers": [["k", "c"]],
        "differing": [],
        "refusal": None,
    }


def test_what_differs_is_named() -> None:
    text = "g (float[n] x) => (float[n] y) <float[1] k = {%s}> { p = Mul (x, k) y = %s (p) }"
    one = graph_of(text % ("2.0", "Exp"))
    drifted, other = graph_of(text % ("2.5", "Exp")), graph_of(text % ("2.0", "Log"))
    found = witness(align(one, drifted), one, drifted)
    assert found["differing"] == [["k", "k"]] and found["refusal"] is None and len(found["nodes"]) == 2
    found = witness(align(one, other), one, other)
    assert found["nodes"] == [] and "Exp" in found["refusal"]


def test_the_report_of_a_build_holds_it(tmp_path: Path) -> None:
    build(ASSETS / "Huggy.onnx", ASSETS / "Huggy.pt", tmp_path / "out")
    found = json.loads((tmp_path / "out" / "report.json").read_text())["witness"]
    original, rebuilt = onnx.load(ASSETS / "Huggy.onnx"), onnx.load(tmp_path / "out" / "rebuilt.onnx")
    assert found["refusal"] is None and found["differing"] == []
    paired = found["nodes"] + [[*a, *b] for mine, theirs in found["classes"] for a in mine for b in theirs]
    others = ("Constant", "Identity", "Concat")  # the only Concat has one operand
    computing = {i for i, n in enumerate(original.graph.node) if n.op_type not in others}
    assert {row[0] for row in paired} == computing
    for i, name, j, other in paired:
        one, two = original.graph.node[i], rebuilt.graph.node[j]
        assert (one.name, two.name, one.op_type) == (name, other, two.op_type)
    tensors = [{t.name: t for t in model.graph.initializer} for model in (original, rebuilt)]
    stored = [(tensors[0][a], tensors[1][b]) for a, b in found["initializers"] if a in tensors[0]]
    assert len(stored) >= 10
    assert all(onnx.numpy_helper.to_array(a).tobytes() == onnx.numpy_helper.to_array(b).tobytes() for a, b in stored)
