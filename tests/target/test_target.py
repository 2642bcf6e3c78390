"""The policy for a target: what is written is what was compared, for one policy of each family, and what differs is not written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from graph2torch.build import Build, build_policy
from graph2torch.errors import TargetError
from graph2torch.graph import RANDOM
from graph2torch.module import build_module
from graph2torch.target.graph import halved, restricted
from graph2torch.target.target import Exported, Format, Target, export_module, format_of, kept_outputs
from tests.commands import check_trouble, left_over, run
from tests.models import FAMILIES, save_pair, tiny_checkpoint, tiny_policy

HUGGY = Path(__file__).resolve().parents[2] / "assets" / "Huggy"
SLOW_FORMATS = [pytest.param("torch-export", marks=pytest.mark.slow), pytest.param("aot-inductor", marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Build]:
    return {name: built(tmp_path_factory.mktemp(name), name) for name in FAMILIES}


def built(folder: Path, family: str) -> Build:
    model = tiny_policy(**FAMILIES[family])
    return build_policy(*save_pair(folder, model, tiny_checkpoint(model), family))


def exported(made: Build, target: Target) -> Exported:
    return export_module(build_module(made.source, made.bindings), made.recognised, target)


# ---------------------------------------------------------------------------------------------- graphs
@pytest.mark.parametrize("family", FAMILIES)
def test_deterministic_only_draws_nothing_and_is_the_same_graph(builds: dict[str, Build], family: str) -> None:
    found = exported(builds[family], Target(deterministic_only=True))
    assert found.comparison.level == "graph", found.comparison.reason
    proto = onnx.load_model_from_string(found.data)
    assert not {n.op_type for n in proto.graph.node} & RANDOM
    assert found.left_out and all(name in found.kept for name in ("version_number", "memory_size"))
    assert [o.name for o in proto.graph.output] == list(found.kept)
    assert len(proto.graph.node) < len(builds[family].rebuilt.graph.node)


@pytest.mark.parametrize("opset", [n if n in (10, 15) else pytest.param(n, marks=pytest.mark.slow) for n in range(9, 16)])
@pytest.mark.parametrize("family", FAMILIES)
def test_another_opset(builds: dict[str, Build], family: str, opset: int) -> None:
    found = exported(builds[family], Target(opset=opset))
    assert found.comparison.level == "graph", found.comparison.reason
    assert [o.version for o in onnx.load_model_from_string(found.data).opset_import] == [opset]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fixed_batch(builds: dict[str, Build], family: str) -> None:
    found = exported(builds[family], Target(batch=3))
    assert found.comparison.level == "graph", found.comparison.reason
    session = ort.InferenceSession(found.data, providers=["CPUExecutionProvider"])
    assert {i.shape[0] for i in session.get_inputs()} == {3}
    feed = {i.name: np.zeros([2, *i.shape[1:]], np.float32) for i in session.get_inputs()}
    with pytest.raises(Exception, match="invalid dimensions"):
        session.run(None, feed)


@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_is_near_and_rounds(builds: dict[str, Build], family: str) -> None:
    found = exported(builds[family], Target(fp16=True))
    expected = "bits" if family == "discrete" else "close"  # the options chosen are the same
    assert found.comparison.level == expected, (found.comparison.level, found.comparison.reason)
    assert found.halves
    proto = onnx.load_model_from_string(found.data)
    floats = {i.name: i.type.tensor_type.elem_type for i in (*proto.graph.input, *proto.graph.output)}
    assert onnx.TensorProto.FLOAT16 not in floats.values()
    kinds = {t.data_type for t in proto.graph.initializer}
    assert onnx.TensorProto.FLOAT16 in kinds


def test_half_precision_leaves_what_it_cannot_hold() -> None:
    text = '<ir_version: 8, opset_import: ["" : 13]> g (float[n, 1] x) => (float[n, 1] y) <float[1, 1] w = {1e6}> { y = MatMul(x, w) }'
    assert halved(onnx.parser.parse_model(text))[1] == 0
    assert halved(onnx.parser.parse_model(text.replace("1e6", "2.0")))[1] == 1


def test_weights_that_differ_are_not_equal(builds: dict[str, Build]) -> None:
    made = builds["continuous"]
    module = build_module(made.source, made.bindings)
    with torch.no_grad():
        next(p for name, p in module.named_parameters() if name.startswith("mu")).mul_(1.01)
    for target in (Target(), Target(format="torchscript")):
        found = export_module(module, made.recognised, target)
        assert found.comparison.level == "differs" and not found.equal


def test_without_metadata(builds: dict[str, Build]) -> None:
    found = exported(builds["continuous"], Target(deterministic_only=True, metadata=False))
    assert found.kept == ("deterministic_continuous_actions",) and found.comparison.level == "graph"


def test_a_policy_without_deterministic_actions_says_so(tmp_path: Path) -> None:
    model = tiny_policy(deterministic=False)
    made = build_policy(*save_pair(tmp_path, model, tiny_checkpoint(model)))
    with pytest.raises(TargetError, match="no deterministic actions"):
        kept_outputs(made.spec, Target(deterministic_only=True))


def test_restricting_drops_inputs_that_only_the_others_needed() -> None:
    text = """<ir_version: 8, opset_import: ["" : 13]>
        g (float[n] a, float[n] b, float[n] unread) => (float[n] x, float[n] y) { x = Neg(a) y = Neg(b) }"""
    proto = restricted(onnx.parser.parse_model(text), ["x"])
    assert [i.name for i in proto.graph.input] == ["a", "unread"] and len(proto.graph.node) == 1


def test_a_batch_that_is_fixed_already() -> None:
    with pytest.raises(TargetError, match="fixed to 2 agents"):
        restricted(tiny_policy(batch=2), ["deterministic_continuous_actions"], 3)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_dynamo_exporter(builds: dict[str, Build], family: str) -> None:
    pytest.importorskip("onnxscript")
    found = exported(builds[family], Target(exporter="dynamo", opset=18))
    assert found.comparison.level == "graph", found.comparison.reason


# ---------------------------------------------------------------------------------------------- artefacts of torch
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("kind", ["torchscript", *SLOW_FORMATS])
@pytest.mark.parametrize("family", FAMILIES)
def test_artefacts_of_torch(builds: dict[str, Build], family: str, kind: Format, deterministic: bool) -> None:
    if kind == "aot-inductor" and deterministic:
        pytest.skip("compiled once a family")
    found = exported(builds[family], Target(format=kind, deterministic_only=deterministic))
    assert found.equal, found.comparison.reason
    assert bool(found.noise) != deterministic
    assert [f.output for f in found.comparison.against_module] == list(found.kept)
    assert any("batch 16" in r for r in found.comparison.runs) and any("batch 1 " in r for r in found.comparison.runs)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["lstm", "continuous"])
def test_an_artefact_for_a_fixed_batch(builds: dict[str, Build], family: str) -> None:
    found = exported(builds[family], Target(format="torch-export", batch=3))
    assert found.equal, found.comparison.reason
    assert found.comparison.runs and all("batch 3" in run for run in found.comparison.runs)


def test_no_compiler_is_told(monkeypatch: pytest.MonkeyPatch, builds: dict[str, Build]) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(TargetError, match=r"no-such-compiler.*install g"):
        exported(builds["continuous"], Target(format="aot-inductor"))


# ---------------------------------------------------------------------------------------------- the command
def test_the_command_writes_what_it_compared(tmp_path: Path) -> None:
    folder, out = tmp_path / "Huggy", tmp_path / "there" / "d.onnx"
    out.parent.mkdir()
    assert run("build", f"{HUGGY}.onnx", f"{HUGGY}.pt", "-o", folder).status == 0
    done = run("export", folder, "--deterministic-only", "-o", out)
    assert done.status == 0 and "graph: operator by operator" in done.out and "left out: continuous_actions" in done.out
    before = out.read_bytes()
    check_trouble(run("export", folder, "-o", out), "--force")
    done = run("export", folder, "--fp16", "--tolerance", "1e-7", "-o", out, "--force")
    assert done.status == 1 and "nothing was written" in done.out
    assert out.read_bytes() == before and left_over(out.parent) == ["d.onnx"]
    document = json.loads(run("export", folder, "--batch", "2", "-o", out, "--force", "--json").out)
    assert document["level"] == "graph" and document["target"]["batch"] == 2 and document["bytes"] == out.stat().st_size
    check_trouble(run("export", folder, "-o", tmp_path / "x.bin"), "--format")
    check_trouble(run("export", folder, "-o", tmp_path / "x.onnx", "--format", "no\x1b"), "--format")
    check_trouble(run("export", folder, "-o", tmp_path / "x.ts", "--fp16"), "--fp16", "onnx")
    check_trouble(run("export", tmp_path, "-o", tmp_path / "x.onnx"), "report.json")


def test_the_ending_tells_the_format() -> None:
    endings = {"a.onnx": "onnx", "a.PT2": "torch-export", "a.ts": "torchscript", "a.pt": "torchscript"}
    assert {name: format_of(Path(name), None) for name in endings} == endings
    assert replace(Target(), fp16=True).allowed == 1e-2 and Target().allowed == 1e-5
