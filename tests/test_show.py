"""What the command line prints: honest words, nothing read as markup, and lines that fit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from graph2torch.build import Build, build_policy
from graph2torch.explain import cover_folder, explain_model, list_rules
from graph2torch.inspect.file import inspect_file
from graph2torch.judge.verify import Level
from graph2torch.report.facts import facts
from graph2torch.show.build import show_build
from graph2torch.show.inspect import show_inspection
from graph2torch.show.page import WIDTH, Page
from graph2torch.show.parts import LEVELS
from graph2torch.show.rules import show_coverage, show_explanation, show_rules
from tests.models import save_pair, tiny_checkpoint, tiny_policy

ROOT = Path(__file__).resolve().parents[1]
MU = "action_model._continuous_distribution.mu.weight"

Printed = Callable[..., str]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """Calls a function and gives what it printed, after the checks that hold for anything piped."""

    def call(function: Callable[..., None], *arguments: Any) -> str:
        capsys.readouterr()
        function(*arguments)
        out = capsys.readouterr().out
        lines = out.splitlines()
        assert max(map(cell_len, lines)) <= WIDTH
        assert [line for line in lines if line != line.rstrip()] == []
        assert "\x1b" not in out
        assert "\n\n\n" not in out
        return out

    return call


def words(out: str) -> str:
    """The text, however it was wrapped."""
    return " ".join(out.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def same(folder: Path) -> Build:
    model = tiny_policy(observations=(4, 3))
    return build_policy(*save_pair(folder, model, tiny_checkpoint(model), "Same"))


@pytest.fixture(scope="module")
def drifted(folder: Path) -> tuple[Path, Path]:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    checkpoint["Policy"][MU][0, :3] += 0.02
    (folder / "drifted").mkdir()
    return save_pair(folder / "drifted", model, checkpoint, "Drifted")


# ---------------------------------------------------------------------------------------------- build
def test_a_build_tells_the_architecture_the_weights_and_the_level(same: Build, printed: Printed) -> None:
    out = printed(show_build, same, Path("out/Same"))
    assert out.startswith("Same: 7 observations → 8 → 8 → 2 continuous actions\n")
    assert "hidden layers 1 to 2, silu" in out
    assert "7 → 8 → 8" in out
    assert "normalizer_0 ← network_body.observation_encoder.processors.0.normalizer" in out
    assert "0.weight [8, 7], 0.bias [8], 2.weight [8, 8], 2.bias [8]: as is, bit-equal to the graph's" in words(out)
    assert "Pair same:" in words(out)
    assert f"Equality {same.verification.level}: {LEVELS[same.verification.level]}" in words(out)
    assert "0 unexplained" in out
    assert "Written to out/Same model.py, weights.safetensors, rebuilt.onnx, lifted.onnx, report.json" in words(out)
    assert "Exit status" not in out
    assert "Warnings" not in out


def test_what_was_compared_is_counted(same: Build, printed: Printed) -> None:
    checked = same.verification
    out = words(printed(show_build, same, Path("out")))
    assert f"all {sum(f.compared for f in checked.rebuilt):,} numbers bit-equal (5 outputs and 2 values inside" in out
    assert f"{len(checked.runs)} runs: batch 1, 2, 3, 4, 5, 16; ordinary, extreme," in out
    for figures in checked.module:
        assert figures.output in out


def test_a_weaker_level_says_what_differs_and_why_it_is_not_stronger(same: Build, printed: Printed) -> None:
    first, *others = same.verification.rebuilt
    off = replace(first, differing=7, max_abs=0.25, cosine=0.5)
    verification = replace(
        same.verification, level="differs", reason="the output is off", rebuilt=(off, *others), refused=("batch 3 ordinary",)
    )
    out = words(printed(show_build, replace(same, verification=verification), Path("out")))
    assert LEVELS["differs"] in out
    assert "not close, because the output is off" in out
    assert f"{first.output} 7 of {first.compared} 0.25" in out
    assert "not tried, because onnxruntime does not run the original on it: batch 3 ordinary" in out
    assert "all" not in out.split("in onnxruntime: ")[1].split("(")[0]
    assert "Exit status 1" in out


def test_no_level_is_without_words_and_none_but_the_strongest_speaks_of_every_input() -> None:
    assert set(LEVELS) == set(get_args(Level))
    assert [level for level in LEVELS if "whatever the input" in LEVELS[level]] == ["graph"]
    assert "everything tried" in LEVELS["bits"]
    assert "everything tried" in LEVELS["close"]


def test_a_drifted_pair_names_the_tensor_and_the_way_out(drifted: tuple[Path, Path], printed: Printed) -> None:
    out = words(printed(show_build, build_policy(*drifted), Path("out")))
    assert "Pair drift:" in out
    assert "mu.weight: 3 of 16 elements differ, by up to 0.02" in out
    assert "weight [2, 8]: the checkpoint's, NOT the graph's" in out
    assert "a training with threads saves the .pt and the .onnx a moment apart." in out
    assert "too far" not in out
    assert "steps: 5,000 in global_step" in out
    assert "normalization_steps, a count of its own: 1,024 in normalizer" in out
    assert "--weights onnx takes the graph's" in out
    assert "Equality differs:" in out
    assert "Exit status 1" in out


def test_a_weaker_level_names_the_first_divergence_and_its_cause(folder: Path, drifted: tuple[Path, Path], printed: Printed) -> None:
    made = build_policy(*drifted)
    out = words(printed(show_build, made, Path("out")))
    assert "the rebuilt graph (the second) parts from the original (the first) at head: mean of the actions, mu: node" in out
    assert f"of the constant '{MU}', 3 of 16 numbers differ" in out
    told = facts(made, {})["divergence"]
    assert (told["kind"], told["rule"], told["node"]["op"], told["causes"]) == ("constant", "linear", "Gemm", [])
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    checkpoint["Policy"][MU] *= 0.5
    (folder / "halved").mkdir()
    made = build_policy(*save_pair(folder / "halved", model, checkpoint, "Halved"))
    assert "likely cause: '" + MU + "': in the second graph 0.5 times as large" in words(printed(show_build, made, Path("out")))
    assert facts(made, {})["divergence"]["causes"][0]["name"] == "scaled weights"


def test_an_equal_build_diverges_nowhere(same: Build, printed: Printed) -> None:
    assert same.divergence is None and facts(same, {})["divergence"] is None
    assert "parts from" not in printed(show_build, same, Path("out"))


def test_the_graphs_weights_can_be_taken_from_a_pair_that_drifts(drifted: tuple[Path, Path], printed: Printed) -> None:
    out = words(printed(show_build, build_policy(*drifted, weights="onnx"), Path("out")))
    assert "trained numbers, from the graph" in out
    assert "NOT the checkpoint's" in out
    assert "The graph's weights were used, as --weights onnx asks." in out
    assert "Pair drift:" in out
    assert "Exit status" not in out


def test_another_networks_checkpoint_is_not_called_the_same(folder: Path, printed: Printed) -> None:
    paths = save_pair(folder, tiny_policy(hidden=8), tiny_checkpoint(tiny_policy(hidden=16)), "Other")
    out = words(printed(show_build, build_policy(*paths, weights="onnx"), Path("out")))
    assert "Pair other network: the checkpoint's network is built otherwise" in out
    assert "The first place: it has no module for the hidden layer 1 (weight [8, 4], bias [8]; there weight [16, 4], bias [16])." in out
    assert "body.0.weight" in out.split("the checkpoint has no counterpart of")[1]


def test_a_pair_of_two_steps_names_the_checkpoint_that_fits(tmp_path: Path, printed: Printed) -> None:
    model = tiny_policy()
    save_pair(tmp_path, model, tiny_checkpoint(model, global_step=500), "Agent-500")
    later = tiny_checkpoint(model, global_step=900)
    later["Policy"][MU] += 0.5
    _, path = save_pair(tmp_path, model, later, "Agent-900")
    (tmp_path / "configuration.yaml").write_text(
        "behaviors: {Agent: {threaded: true, network_settings: {normalize: true, num_layers: 3}}}\n"
    )
    for out in (
        words(printed(show_build, build_policy(tmp_path / "Agent-500.onnx", path), Path("out"))),
        words(printed(show_inspection, inspect_file(tmp_path / "Agent-500.onnx", path))),
    ):
        assert "other step" in out
        assert "too far for a race" in out
        assert "Agent-500.pt beside the checkpoint (step 500) holds the graph's numbers: give that one." in out
        assert "steps: 500 in Agent-500.onnx, 900 in Agent-900.pt, 900 in global_step: they do not agree" in out
        assert "configuration.yaml, behaviour 'Agent', against the graph:" in out
        assert "agrees normalize true DISAGREES num_layers 3 (2 in the graph) can't be told threaded true" in out


def test_threads_are_the_cause_of_a_drift_only_where_there_were_some(tmp_path: Path, printed: Printed) -> None:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    checkpoint["Policy"][MU] += 0.001
    paths = save_pair(tmp_path, model, checkpoint)
    for threaded, said in (("true", "says that this one had them"), ("false", "says that this one had none")):
        (tmp_path / "configuration.yaml").write_text(f"behaviors: {{Tiny: {{threaded: {threaded}}}}}\n")
        out = words(printed(show_inspection, inspect_file(*paths)))
        assert f"a moment apart; configuration.yaml {said}." in out


def test_without_a_checkpoint_the_weights_are_the_graphs(folder: Path, printed: Printed) -> None:
    path, _ = save_pair(folder, tiny_policy(), name="Alone")
    out = words(printed(show_build, build_policy(path), Path("out")))
    assert "from the graph" in out
    assert "Pair none: no checkpoint was given" in out
    assert f"the graph's '{MU}'" in out


def test_a_std_of_another_rounding_is_not_called_bit_equal(folder: Path, printed: Printed) -> None:
    model = tiny_policy()
    checkpoint = tiny_checkpoint(model)
    for key, tensor in checkpoint["Policy"].items():
        if key.endswith("running_variance"):
            tensor *= 1 + 2.0**-22
    out = words(printed(show_build, build_policy(*save_pair(folder, model, checkpoint, "Rounded")), Path("out")))
    assert "Pair same: 8 tensors bit-equal in graph and checkpoint, 1 std within rounding" in out
    assert re.search(r"is within [12] ulp", out)


def test_warnings_and_odd_values_of_a_build_are_visible(folder: Path, printed: Printed) -> None:
    model = tiny_policy()
    model.graph.output.append(onnx.helper.make_tensor_value_info("nowhere", onnx.TensorProto.FLOAT, [1]))
    weight = next(t for t in model.graph.initializer if t.name == MU)
    numbers = onnx.numpy_helper.to_array(weight).copy()
    numbers[0, 0] = np.nan
    weight.CopyFrom(onnx.numpy_helper.from_array(numbers, MU))
    out = words(printed(show_build, build_policy(save_pair(folder, model, name="Odd")[0]), Path("out")))
    assert "'nowhere' is declared, but nothing produces it" in out
    assert "mu.weight: 1 NaN of 16" in out


# ---------------------------------------------------------------------------------------------- inspect, rules
def test_a_graph_is_printed(folder: Path, same: Build, printed: Printed) -> None:
    out = words(printed(show_inspection, inspect_file(folder / "Same.onnx")))
    assert "pytorch 2.1.2, opset 9, IR 4" in out
    assert "obs_1 [batch, 3] float32 observation 1" in out
    assert "version_number [1] float32 version of ML-Agents' model format = 3" in out
    assert "nn.Linear(7, 8) hidden layer 1" in out
    assert "100 % of what is not inert" in out
    assert "Sigma exp(log_sigma), 2 actions" in out
    assert "Odd values none" in out


def test_a_checkpoint_is_printed(folder: Path, same: Build, printed: Printed) -> None:
    out = words(printed(show_inspection, inspect_file(folder / "Same.pt")))
    assert "Same.pt: step 5,000" in out
    assert "global_step 1 tensor 1 number" in out
    assert "continuous_act_size_vector = 2" in out
    assert "4 features, 1,024 steps" in out
    assert "a sum over the steps" in out


def test_a_pair_is_printed(folder: Path, same: Build, drifted: tuple[Path, Path], printed: Printed) -> None:
    out = words(printed(show_inspection, inspect_file(folder / "Same.onnx", folder / "Same.pt")))
    assert "Pair: same" in out
    assert "bit-equal, rounded as numpy and double does" in out
    assert "sqrt(var / steps), in float16" in out
    out = words(printed(show_inspection, inspect_file(*drifted)))
    assert "Pair: drift" in out
    assert "mu.weight: 3 of 16 elements differ" in out


def test_unexplained_nodes_are_printed(folder: Path, printed: Printed) -> None:
    model = tiny_policy()
    for node in model.graph.node:
        if node.op_type == "Sigmoid":
            node.op_type = "Unheard"
    path, _ = save_pair(folder, model, name="Unheard")
    out = words(printed(show_inspection, inspect_file(path)))
    assert "Unexplained 2 Unheard" in out
    assert "2 of them as single operators" in out
    out = words(printed(show_explanation, explain_model(path)))
    assert out.count("NOT EXPLAINED: the operator is not among those that can be rebuilt") == 2
    assert out.count("operator Mul, by itself; nearest is silu, 1 of 2: node") == 2
    assert "linear: hidden layer 1" in out
    assert "inert" in out


def test_rules_are_printed(printed: Printed) -> None:
    out = words(printed(show_rules, list_rules()))
    for rule in list_rules()["rules"]:
        assert rule["summary"] in out
    assert "patterns: SiLU (2)" in out


def test_coverage_is_printed_as_a_table(tmp_path: Path, printed: Printed) -> None:
    save_pair(tmp_path, tiny_policy(), name="plain")
    single = tiny_policy()
    for node in single.graph.node:
        node.op_type = {"Sigmoid": "Tanh"}.get(node.op_type, node.op_type)
    name = "[bold]x" * 20
    save_pair(tmp_path, single, name=name)
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    lines = printed(show_coverage, cover_folder(tmp_path)).splitlines()
    table = {line.split()[0]: line.split()[1:] for line in lines if line.startswith("  ")}
    assert table["plain.onnx"] == ["27", "24", "0", "3", "0"]
    assert table[f"…{f'{name}.onnx'[-43:]}"] == ["27", "20", "4", "3", "0"]
    assert table["together"] == ["54", "44", "4", "6", "0"]
    out = words("\n".join(lines))
    assert "nodes of 3 models" in out and "Refused 1 model broken.onnx:" in out
    assert "91.6 % of what is not inert is explained by the architecture, all of it in 1 model" in out
    assert "generic: 2 Tanh, 2 Mul" in out and "unexplained:" not in out


# ---------------------------------------------------------------------------------------------- names and lines
def test_names_of_files_and_tensors_are_neither_markup_nor_escapes(tmp_path: Path, printed: Printed) -> None:
    model = tiny_policy()
    evil = "[bold red]x[/]\x1b[31m\u202e:smile:\n"
    for node in model.graph.node:
        node.input[:] = [evil if value == MU else value for value in node.input]
        node.name = evil + node.name
    next(t for t in model.graph.initializer if t.name == MU).name = evil
    path, _ = save_pair(tmp_path, model, name="[bold]evil\x1b[2J")
    for out in (printed(show_inspection, inspect_file(path)), printed(show_build, build_policy(path), tmp_path / evil)):
        assert "[bold]evil\\x1b[2J" in out
        assert "[bold red]x[/]\\x1b[31m\\u202e:smile:\\n" in out
        assert "\u202e" not in out
    assert "[bold red]x[/]\\x1b" in printed(show_explanation, explain_model(path))


text = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FFF, exclude_categories=("Cc", "Cf", "Cn", "Co", "Cs", "Mn", "Me", "Zl", "Zp", "Zs")),
    min_size=1,
    max_size=150,
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(*[st.lists(text, max_size=4).map(" ".join)] * 3), min_size=1, max_size=4), st.integers(0, 8))
@example([("a" * 90, "b", "c" * 20), ("d", "", "e f")], 2)
def test_tables_lose_nothing(capsys: pytest.CaptureFixture[str], rows: list[tuple[str, str, str]], indent: int) -> None:
    capsys.readouterr()
    Page().table(rows, indent)
    out = capsys.readouterr().out
    assert "".join(out.split()) == "".join("".join(row) for row in rows).replace(" ", "")
    assert all(cell_len(line) <= WIDTH for line in out.splitlines())


def test_a_wide_cell_leaves_the_others_their_room(capsys: pytest.CaptureFixture[str]) -> None:
    """It stands in a row of its own form; what is wide in most rows stays aligned."""
    words = "what this one does, told in some words"
    Page().table([("first", "a" * 70, words), *[(f"row {i}", "short", words) for i in range(9)]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"  first  {'a' * 70}", f"      {words}"]
    assert lines[2:] == [f"  row {i}  short  {words}" for i in range(9)]
    Page().table([(f"row {i}", "a" * 60, words) for i in range(9)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 18 and all(line.startswith(f"  row {i}  {'a' * 60}  what") for i, line in enumerate(lines[::2]))


def test_on_a_terminal_lines_are_as_wide_as_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    page = Page()
    page.heading("Label", "word " * 40)
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in capsys.readouterr().out.splitlines()]
    assert 50 < max(map(len, lines)) <= 60


def test_an_encoding_without_arrows_is_no_error(folder: Path, same: Build) -> None:
    code = "import sys; from graph2torch.inspect.file import *; from graph2torch.show.inspect import *; show_inspection(inspect_file(sys.argv[1]))"
    run = subprocess.run(
        [sys.executable, "-c", code, folder / "Same.onnx"],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "7 observations ? 8" in run.stdout
