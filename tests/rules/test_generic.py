"""What no architecture rule explains: rebuilt operator by operator, exported as the very same operators."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper

from graph2torch.build import Build, build_policy
from graph2torch.errors import PairError, RuleError, UnsupportedGraph
from graph2torch.explain import explain_model
from graph2torch.operators import Operator, number, table
from graph2torch.report.facts import facts
from graph2torch.rulebook import load_rules
from tests.models import save_pair, tiny_checkpoint, tiny_policy
from tests.onnx_node_tests import node_tests, run

BOOK = load_rules()
(TABLE,) = BOOK.tables
# one test of these operators each, beyond what the graphs below hold; all of them with GRAPH2TORCH_NODE_TESTS=all
EVERY = 1 if os.environ.get("GRAPH2TORCH_NODE_TESTS") == "all" else 48


def built(folder: Path, text: str, opset: int = 13) -> Build:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')
    path = folder / "odd.onnx"
    path.write_bytes(model.SerializeToString())
    return build_policy(path)


def body(made: Build) -> list[str]:
    """The lines of forward."""
    lines = made.source.split("class Policy")[1].split("    def forward(")[1].split("\n\n\n")[0].splitlines()[1:]
    return [line.strip() for line in lines]


# ---------------------------------------------------------------------------------------------- onnx's own node tests
def test_onnx_node_tests_are_passed_or_refused_by_name() -> None:
    cases = node_tests()
    assert len(cases) > 1000
    results = [run(case, BOOK) for case in cases[::EVERY]]
    assert [r for r in results if r.outcome == "wrong"] == []
    assert sum(r.outcome == "pass" for r in results) > len(results) / 4
    assert {r.detail.split(":")[0] for r in results if r.outcome == "pass"} <= {"graph", "bits"}


# ---------------------------------------------------------------------------------------------- what the source reads like
def test_each_operator_is_a_line(tmp_path: Path) -> None:
    made = built(
        tmp_path,
        """g (float[batch, 3] obs) => (float[batch, 2] y) <float[3, 2] "net.w" = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, float half = {0.5}> {
            h = MatMul (obs, "net.w")
            s = Mul (h, half)
            y = Tanh (s)
        }""",
    )
    assert body(made) == ["x = torch.matmul(obs, self.net_w)", "x = x * 0.5", "x = torch.tanh(x)", "return Outputs(x)"]
    assert made.verification.level == "graph", made.verification.reason
    assert [(b.path, b.initializer, b.trainable) for b in made.bindings.tensors] == [("net_w", "net.w", True)]
    assert "class Node" not in made.source


def test_parameters_go_through_functions_and_are_trainable(tmp_path: Path) -> None:
    import torch

    from graph2torch.module import build_module

    made = built(
        tmp_path,
        """g (float[batch, 3] obs) => (float[batch, 2] y) <float[3, 2] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, float[2] b = {1.0, 2.0}> {
            h = Gemm <alpha = 0.5> (obs, w, b)
            y = Gelu (h)
        }""",
        20,
    )
    assert body(made) == ["x = gemm(obs, self.w, self.b, alpha=0.5)", "x = gelu(x)", "return Outputs(x)"]
    assert made.verification.level == "graph", made.verification.reason
    policy = build_module(made.source, made.bindings)
    policy(torch.ones(4, 3)).y.sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in policy.parameters())


def test_a_variable_is_kept_as_long_as_it_is_needed(tmp_path: Path) -> None:
    made = built(
        tmp_path,
        """g (float[batch, 3] obs) => (float[batch, 3] y) {
            a = Tanh (obs)
            b = Relu (a)
            c = Sub (b, a)
            y = Add (c, obs)
        }""",
    )
    assert body(made) == ["x = torch.tanh(obs)", "x_2 = torch.relu(x)", "x_2 = x_2 - x", "x_2 = x_2 + obs", "return Outputs(x_2)"]
    assert made.verification.level == "graph"


@pytest.mark.parametrize("opset", [9, 13, 18])
def test_computed_shapes_stay_computed(tmp_path: Path, opset: int) -> None:
    """Shape, Gather, Concat, Reshape, as a converter writes a flatten: no batch size is frozen."""
    unsqueeze = "Unsqueeze <axes = [0]> (n)" if opset < 13 else "Unsqueeze (n, zeros)"
    made = built(
        tmp_path,
        f"""g (float[batch, 2, 3] obs) => (float[batch, k] y) <int64 zero = {{0}}, int64[1] zeros = {{0}}, int64[1] rest = {{-1}}> {{
            s = Shape (obs)
            n = Gather <axis = 0> (s, zero)
            u = {unsqueeze}
            t = Concat <axis = 0> (u, rest)
            r = Reshape (obs, t)
            y = Relu (r)
        }}""",
        opset,
    )
    assert made.verification.level == "graph", made.verification.reason
    assert made.spec.coverage().generic == tuple(range(6))
    assert not made.verification.refused


def test_a_sample_of_a_fixed_size_is_not_needed_where_sizes_are_free(tmp_path: Path) -> None:
    made = built(
        tmp_path,
        "g (float[batch, n] obs) => (float[batch, 1] y) { y = ReduceSum <keepdims = 1> (obs, axes) axes = Constant <value_ints = [1]> () }",
    )
    assert made.verification.level == "graph"


@pytest.mark.parametrize("opset", [9, 12, 13, 20])
def test_bounds_and_axes_are_written_as_the_opset_has_them(tmp_path: Path, opset: int) -> None:
    text = (
        "g (float[batch, 3] obs) => (float[batch, 1] y) { c = Clip <min = -0.1, max = 3.0> (obs) y = ReduceMean <axes = [1]> (c) }"
        if opset < 11
        else "g (float[batch, 3] obs) => (float[batch, 1] y) <float lo = {-0.1}> { c = Clip (obs, lo) y = ReduceMean <axes = [1]> (c) }"
        if opset < 18
        else "g (float[batch, 3] obs) => (float[batch, 1] y) <float lo = {-0.1}, int64[1] one = {1}> { c = Clip (obs, lo) y = ReduceMean (c, one) }"
    )
    made = built(tmp_path, text, opset)
    assert made.verification.level == "graph", made.verification.reason


def test_numbers_are_as_short_as_they_can_be() -> None:
    assert [number(np.float32(x)) for x in (0.1, 2, 1e-7, -0.0)] == ["0.1", "2.0", "1e-07", "-0.0"]
    assert [number(np.float32(x)) for x in (np.inf, -np.inf, np.nan)] == ['float("inf")', 'float("-inf")', 'float("nan")']
    rng = np.random.default_rng(0)
    for x in rng.standard_normal(1000).astype(np.float32):
        assert np.float32(float(number(x))) == x


def test_names_of_tensors_hide_nothing(tmp_path: Path) -> None:
    """Initializers and inputs called like functions, like members of a module, like Python's own words."""
    names = ("train", "forward", "load", "def", "torch", "x", "noise", "1")
    made = built(
        tmp_path,
        "g (float[batch, 2] torch, float[batch, 2] gelu) => (float[batch, 2] y) <"
        + ", ".join(f'float[2] "{"weight." if n in ("torch", "x", "1") else ""}{n}" = {{{i}.5, 1.0}}' for i, n in enumerate(names))
        + "> { v0 = Gelu (torch) v1 = Sub (v0, gelu) "
        + " ".join(f'v{i + 2} = Add (v{i + 1}, "{"weight." if n in ("torch", "x", "1") else ""}{n}")' for i, n in enumerate(names))
        + f" y = Neg (v{len(names) + 1}) }}",
        20,
    )
    assert made.verification.level == "graph", made.verification.reason


@pytest.mark.parametrize("size", [1, 3])
def test_draws_take_noise_and_export_as_the_original_draws(tmp_path: Path, size: int) -> None:
    made = built(
        tmp_path,
        f"""g (float[batch, 4] obs) => (int32[batch, {size}] option, float[batch, 4] noisy, float[batch, 4] level) {{
            option = Multinomial <sample_size = {size}> (obs)
            z = RandomNormalLike <mean = 1.0, scale = 0.5> (obs)
            noisy = Add (obs, z)
            u = RandomUniformLike (obs)
            level = Mul (u, obs)
        }}""",
    )
    assert made.verification.level == "graph", made.verification.reason
    assert len(made.spec.noise) == 3


# ---------------------------------------------------------------------------------------------- what can't be built
def test_all_nodes_that_cannot_be_built_are_listed_at_once(tmp_path: Path) -> None:
    text = """g (float[batch, 3] obs) => (float[batch, 3] y, float[batch, 3] z) {
        a = Frobnicate (obs)
        b = Tanh (a)
        y = Frobnicate (b)
        z = Whirl (obs)
    }"""
    with pytest.raises(UnsupportedGraph) as refused:
        built(tmp_path, text)
    message = str(refused.value)
    assert "3 of its 4 nodes can't be built" in message
    for name in ("'a' (Frobnicate)", "'y' (Frobnicate)", "'z' (Whirl)"):
        assert name in message


def test_all_nodes_outside_of_reach_are_listed_at_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gelu", ["obs"], ["a"], name="one", domain="com.microsoft"),
        helper.make_node("Fft", ["a"], ["y"], name="two", domain="ai.other"),
    ]
    info = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["batch", 3]) for n in ("obs", "y")]
    opsets = [helper.make_opsetid(*o) for o in (("", 13), ("com.microsoft", 1), ("ai.other", 1))]
    model = helper.make_model(helper.make_graph(nodes, "g", info[:1], info[1:]), opset_imports=opsets, ir_version=8)
    (tmp_path / "odd.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UnsupportedGraph, match=r"'one'.*com\.microsoft.*'two'.*ai\.other"):
        build_policy(tmp_path / "odd.onnx")


def test_a_table_is_checked_when_it_is_loaded(tmp_path: Path) -> None:
    layer = tmp_path / "layer.py"
    layer.write_text('@node("Gelu")\ndef gelu(x): ...\n')
    with pytest.raises(RuleError, match="two rows for Relu"):
        table("mine", [Operator("Relu", "torch.relu(x)")] * 2, layer)
    with pytest.raises(RuleError, match="Tanh needs a torch expression"):
        table("mine", [Operator("Tanh")], layer)
    with pytest.raises(RuleError, match=r"Gelu, which operators\.py doesn't list"):
        table("mine", [Operator("Relu", "torch.relu(x)")], layer)


# ---------------------------------------------------------------------------------------------- beside the architecture's rules
def test_architecture_comes_first_and_near_misses_are_kept(tmp_path: Path) -> None:
    """A policy of ML-Agents whose second SiLU gates another value: one SiLU is a layer, the other two operators."""
    model = tiny_policy()
    gates = [n for n in model.graph.node if n.op_type == "Sigmoid"]
    gates[1].op_type = "Tanh"
    path, _ = save_pair(tmp_path, model)
    made = build_policy(path)
    assert made.verification.level == "graph", made.verification.reason
    rules = made.spec.coverage().by_rule
    assert {"silu", "Tanh", "Mul"} <= rules.keys()
    assert len(made.spec.coverage().generic) == 2
    entries = {n["op"]: n for n in facts(made, {})["near_misses"]}
    assert set(entries) == {"Tanh", "Mul"}
    nearest = entries["Mul"]["nearest"]
    assert (nearest["rule"], nearest["matched"], nearest["of"]) == ("silu", 1, 2)
    assert "Sigmoid is wanted" in nearest["reason"]
    explained = {n["op"]: n for n in explain_model(path)["nodes"] if n["status"] == "generic"}
    assert explained["Mul"]["nearest"] == nearest


def test_a_single_operators_tensor_comes_from_the_checkpoint(tmp_path: Path) -> None:
    """By its name, and by its numbers where the exporter renamed and transposed it."""
    model = tiny_policy()
    weight = next(t for t in model.graph.initializer if t.name.endswith("seq_layers.2.weight"))
    checkpoint = tiny_checkpoint(model)
    gemm = next(n for n in model.graph.node if weight.name in n.input)
    key, bias = weight.name, gemm.input[2]
    weight.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(numpy_helper.to_array(weight).T), "onnx::MatMul_9"))
    place = list(model.graph.node).index(gemm)
    model.graph.node.insert(place, helper.make_node("MatMul", [gemm.input[0], "onnx::MatMul_9"], ["product"]))
    gemm.CopyFrom(helper.make_node("Add", ["product", bias], list(gemm.output)))
    made = build_policy(*save_pair(tmp_path, model, checkpoint))
    bound = {b.initializer: b for b in made.bindings.tensors}
    if made.spec.coverage().generic:
        assert (bound["onnx::MatMul_9"].key, bound["onnx::MatMul_9"].transform) == (key, "transposed")
        assert bound[bias].key == bias
    assert made.bindings.verdict == "same"
    assert made.verification.level == "graph", made.verification.reason


def test_a_checkpoint_with_another_size_under_the_name_is_of_another_network(tmp_path: Path) -> None:
    import torch

    text = 'g (float[batch, 3] obs) => (float[batch, 3] y) <float[3] "net.b" = {1.0, 2.0, 3.0}> { y = Sub (obs, "net.b") }'
    built(tmp_path, text)
    torch.save({"Policy": {"net.b": torch.ones(4)}}, tmp_path / "odd.pt")
    with pytest.raises(PairError, match="another network"):
        build_policy(tmp_path / "odd.onnx", tmp_path / "odd.pt")
