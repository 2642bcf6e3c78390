"""verify DIR: what build wrote is found equal, planted faults that build's own runs miss are found, and folders are told apart."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from graph2torch.build import build
from graph2torch.errors import FolderError, ObservationError
from graph2torch.judge.deep import Deep, report, verify_folder
from graph2torch.judge.observations import BATCHES, STEPS
from tests.commands import check_trouble, run
from tests.models import FAMILIES, save_pair, tiny_policy

QUICK_LEVELS = {"graph", "bits", "bytes"}


def built(folder: Path, **options: Any) -> Path:
    """A folder that build wrote, with its original beside it."""
    model, _ = save_pair(folder, tiny_policy(**options))
    made = build(model, None, folder / "Tiny")
    assert made.equal and made.verification.level == "graph"
    return folder / "Tiny"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a family, built once; tests that change something copy it."""
    made: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in made:
            place = tmp_path_factory.mktemp(family)
            made[family] = built(place, **FAMILIES[family])
        return made[family]

    return folder


@pytest.fixture
def copied(folders: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    def copy(family: str) -> Path:
        shutil.copytree(folders(family).parent, tmp_path / family)
        return tmp_path / family / "Tiny"

    return copy


def edit(folder: Path, before: str, after: str) -> None:
    source = (folder / "model.py").read_text()
    assert source.count(before) >= 1, before
    (folder / "model.py").write_text(source.replace(before, after))


def edit_graph(folder: Path, change: Callable[[onnx.ModelProto], None]) -> None:
    proto = onnx.load(folder / "rebuilt.onnx")
    change(proto)
    onnx.save(proto, folder / "rebuilt.onnx")


def failing(found: Deep) -> set[str]:
    assert found.sampling is not None
    return {test.method.partition(",")[0] for test in found.sampling.failed}


# ---------------------------------------------------------------------------------------------- equal
@pytest.mark.parametrize("family", ["continuous", "hybrid", "sac", "lstm", "attention"])
def test_what_build_wrote_is_equal(folders: Callable[[str], Path], family: str) -> None:
    found = verify_folder(folders(family), samples=100)
    assert found.equal and found.verification.level == "graph" and not found.changed
    kinds = {"ordinary", "sample", "normaliser edges", "saturating", "not finite"}
    kinds |= {"mask"} if family == "hybrid" else {"sequence"} if family == "lstm" else {"buffer"} if family == "attention" else set()
    assert kinds <= set(found.cases)
    assert found.sampling is not None and found.sampling.right and not found.sampling.untested
    assert not any("deterministic" in test.of or "recurrent" in test.of for test in found.sampling.tests), "they only round from row to row"
    assert len(found.drift) == (STEPS if family == "lstm" else 0)
    assert found.blocks and all(b.figures.compared for b in found.blocks) and found.alone is not None
    assert {o.name for o in found.spec.outputs} <= {f.output for f in found.verification.rebuilt}
    json.dumps(report(found), allow_nan=False)


def test_every_block_is_compared(folders: Callable[[str], Path]) -> None:
    found = verify_folder(folders("hybrid"))
    drawn = {value for block in found.spec.blocks for _, value in block.drawn}
    expected = [block.role for block in found.spec.blocks if not set(block.outputs) & drawn]
    assert [b.role for b in found.blocks] == expected and len(expected) > 10
    assert {"body.0", "body.1", "body.2", "body.3"} <= {b.module for b in found.blocks}
    assert max(b.figures.max_abs for b in found.blocks) < 1e-5


def test_a_fixed_batch_is_verified(tmp_path: Path) -> None:
    found = verify_folder(built(tmp_path, observations=(3,), batch=2, branches=(2,)), samples=5)
    assert found.equal and found.alone is None and found.cases["sample"] == 3 and found.cases["mask"] > 3


def test_the_same_seed_gives_the_same_report(folders: Callable[[str], Path]) -> None:
    one, two, other = (report(verify_folder(folders("hybrid"), seed=seed)) for seed in (7, 7, 8))
    assert one == two and one["sampling"]["tests"] != other["sampling"]["tests"]
    assert one["seed"] == 7 and one["versions"]["onnxruntime"]


# ---------------------------------------------------------------------------------------------- faults in rebuilt.onnx
def clip(proto: onnx.ModelProto, which: int, **bounds: float) -> None:
    node = [n for n in proto.graph.node if n.op_type == "Clip"][which]
    for attribute in node.attribute:
        attribute.f = bounds.get(attribute.name, attribute.f)


def constant(proto: onnx.ModelProto, before: float, after: float) -> None:
    found = 0
    for node in proto.graph.node:
        for attribute in node.attribute:
            if attribute.name == "value" and numpy_helper.to_array(attribute.t).size == 1 and numpy_helper.to_array(attribute.t) == before:
                attribute.t.CopyFrom(numpy_helper.from_array(np.float32(after)))
                found += 1
    assert found


def test_a_bound_that_only_large_means_meet(tmp_path: Path) -> None:
    """No observation of build's own drives the mean so far: the level bits there, differs here."""
    model, _ = save_pair(tmp_path, tiny_policy(observations=(3, 2)))
    build(model, None, tmp_path / "Tiny")
    limit = 2.5
    edit_graph(tmp_path / "Tiny", lambda proto: clip(proto, -1, max=limit))
    found = verify_folder(tmp_path / "Tiny")
    assert found.changed == ("rebuilt.onnx",)
    reached = {f.output: f for f in found.verification.rebuilt}["deterministic_continuous_actions"].reference_max * 3
    assert (found.verification.level == "differs") == (reached > limit), "seen exactly where some observation reaches it"
    assert found.bounds[1] == 4


def test_a_bound_of_the_normaliser(copied: Callable[[str], Path]) -> None:
    folder = copied("continuous")
    edit_graph(folder, lambda proto: clip(proto, 0, max=4.999))
    found = verify_folder(folder)
    assert not found.equal and found.verification.level in ("close", "differs")
    assert found.divergence is not None and "normaliser" in found.divergence.words and report(found)["divergence"]["node"]["op"] == "Clip"


def test_a_mask_that_pushes_less_far(copied: Callable[[str], Path]) -> None:
    """Masks of 0 and 1 give the same bits with 1e7 as with 1e8; one an ulp below 1 does not."""
    folder = copied("discrete")
    edit_graph(folder, lambda proto: constant(proto, 1e8, 1e7))
    found = verify_folder(folder)
    assert found.verification.level == "differs" and not found.verification.isomorphic


def test_an_option_that_is_not_drawn(copied: Callable[[str], Path]) -> None:
    folder = copied("discrete")

    def take_the_likeliest(proto: onnx.ModelProto) -> None:
        for node in proto.graph.node:
            if node.op_type == "Multinomial":
                node.op_type = "ArgMax"
                del node.attribute[:]
                node.attribute.extend([onnx.helper.make_attribute("axis", 1), onnx.helper.make_attribute("keepdims", 1)])

    edit_graph(folder, take_the_likeliest)
    found = verify_folder(folder)
    assert found.verification.level == "differs" and "draws 2 times and the rebuilt graph 0 times" in found.verification.reason
    assert run("verify", folder).status == 1 and json.loads(run("verify", folder, "--json").out)["equal"] is False


# ---------------------------------------------------------------------------------------------- faults in model.py
def test_a_sigma_that_is_sampled_wrong(copied: Callable[[str], Path]) -> None:
    """With noise given the outputs are right, so only the samples show it."""
    folder = copied("continuous")
    edit(folder, "torch.randn_like(mu) if", "1.1 * torch.randn_like(mu) if")
    found = verify_folder(folder)
    assert found.verification.level == "graph" and not found.equal and found.changed == ("model.py",)
    assert "variances" in failing(found)
    assert found.sampling is not None and {t.side for t in found.sampling.failed} == {"torch"}


def test_one_draw_for_all_actions(copied: Callable[[str], Path]) -> None:
    folder = copied("continuous")
    edit(folder, "torch.randn_like(mu) if", "torch.randn_like(mu[:, :1]).expand_as(mu) if")
    assert "correlation" in failing(verify_folder(folder))


def test_options_that_are_drawn_wrong(copied: Callable[[str], Path]) -> None:
    folder = copied("discrete")
    edit(folder, "u = torch.rand(p.shape[0], 1)", "u = 0.9 * torch.rand(p.shape[0], 1)")
    found = verify_folder(folder)
    assert found.verification.level == "graph" and not found.equal and failing(found) == {"chi-square"}


def test_forbidden_options_that_are_drawn(copied: Callable[[str], Path]) -> None:
    folder = copied("discrete")
    edit(folder, "ends = p.cumsum(1)", "ends = (p + 1e-3).cumsum(1) if u.shape[0] > 999 else p.cumsum(1)")
    found = verify_folder(folder)
    assert found.sampling is not None and sum(found.sampling.forbidden.values()) > 0 and not found.equal


def test_memory_that_drifts(copied: Callable[[str], Path]) -> None:
    """Within the tolerance in every single step; fed back it grows."""
    folder = copied("lstm")
    edit(
        folder,
        "return hidden, torch.cat([hidden, cell], dim=-1).unsqueeze(0)",
        "return hidden, torch.cat([hidden, cell + 8e-6], dim=-1).unsqueeze(0)",
    )
    found = verify_folder(folder)
    assert found.verification.level == "differs" and "torch's 'recurrent_out, memory fed back'" in found.verification.reason
    assert found.drift[-1][1] > found.drift[0][1] and found.drift[0][1] < 1e-5


@pytest.mark.parametrize(
    ("family", "before", "after", "output"),
    [
        ("continuous", "-3, 3) / 3", "-3, 3) / 3.1", "deterministic_continuous_actions"),
        ("discrete", "p_0.argmax(1", "p_0.argmin(1", "deterministic_discrete_actions"),
        ("lstm", "memory.transpose(0, 1)", "memory.transpose(0, 1) * 2", "recurrent_out"),
    ],
)
def test_act_is_held_against_the_original_as_well(copied: Callable[[str], Path], family: str, before: str, after: str, output: str) -> None:
    folder = copied(family)
    head, act, rest = re.split(r"(    def act.*?)(?=    def distribution)", (folder / "model.py").read_text(), flags=re.DOTALL)
    assert act.count(before) == 1
    (folder / "model.py").write_text(head + act.replace(before, after) + rest)
    found = verify_folder(folder)
    assert found.verification.level == "differs" and f"'{output}, by act'" in found.verification.reason.replace(", memory fed back", "")


def test_another_layout_of_the_same_policy_is_judged_by_its_outputs(copied: Callable[[str], Path]) -> None:
    folder = copied("continuous")
    edit(folder, "self.body", "self.trunk")
    edit(folder, "policy.load_state_dict(", "load_renamed(policy, ")
    rename = "policy.load_state_dict({k.replace('body.', 'trunk.'): v for k, v in state.items()})"
    (folder / "model.py").write_text((folder / "model.py").read_text() + f"\n\ndef load_renamed(policy, state):\n    {rename}\n")
    found = verify_folder(folder)
    assert found.equal and not found.blocks and "model.py" in found.unblocked and found.changed == ("model.py",)


# ---------------------------------------------------------------------------------------------- folders
def test_the_original_is_found_where_it_lay(copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copied("continuous")
    monkeypatch.chdir(folder)
    assert json.loads((folder / "report.json").read_text())["original"]["path"] == "../Tiny.onnx"
    assert verify_folder(".").equal
    original = folder.parent / "Tiny.onnx"
    original.rename(folder.parent / "Moved.onnx")
    check_trouble(run("verify", folder), "is not at", "Tiny.onnx", "was moved", "second argument")
    assert verify_folder(folder, folder.parent / "Moved.onnx").equal
    onnx.save(tiny_policy(seed=1), original)
    check_trouble(run("verify", folder), "is not the file that", "sha256")


def test_folders_that_build_did_not_write(copied: Callable[[str], Path], tmp_path: Path) -> None:
    check_trouble(run("verify", tmp_path / "none"), "is not there")
    check_trouble(run("verify", tmp_path), "has no report.json")
    folder = copied("continuous")
    told = (folder / "report.json").read_text()
    for text in (
        "{",
        "[]",
        "7",
        '{"original": {"sha256": 7}, "files": {}}',
        "[" * 100_000,
        '{"original": {"sha256": "", "path": 7}, "files": {}}',
    ):
        (folder / "report.json").write_text(text)
        check_trouble(run("verify", folder), "report.json", "build it again")
    document = json.loads(told)
    for path in ("", "../\x1b[31m.onnx", "x" * 5000, "\x00"):
        document["original"]["path"] = path
        (folder / "report.json").write_text(json.dumps(document))
        check_trouble(run("verify", folder), "second argument")
    (folder / "report.json").write_text(told)
    for source, words in (
        ("raise SystemExit(0)", "SystemExit"),
        ("x = (", "SyntaxError"),
        ("x = 1", "AttributeError"),
        ("\udcff", "not text"),
    ):
        (folder / "model.py").write_bytes(source.encode("utf-8", "surrogateescape"))
        check_trouble(run("verify", folder), "can't be run", words)
    (folder / "model.py").unlink()
    check_trouble(run("verify", folder), "has no model.py")


def test_a_module_that_fails_when_it_is_run(copied: Callable[[str], Path]) -> None:
    folder = copied("continuous")
    edit(folder, "return Outputs(", "raise RuntimeError('\\x1b[31mno')\n        return Outputs(")
    check_trouble(run("verify", folder), "can't be run as build wrote it", "no")


def test_observations_of_a_file_are_tried(folders: Callable[[str], Path], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "seen.npz", obs_0=rng.normal(0, 2, (70, 4)), obs_1=rng.normal(0, 2, (70, 3)))
    found = verify_folder(folders("continuous"), observations=tmp_path / "seen.npz")
    assert found.equal and found.cases["given"] == 2
    np.save(tmp_path / "seen.npy", np.zeros((2, 4)))
    with pytest.raises(ObservationError, match="2 observations"):
        verify_folder(folders("continuous"), observations=tmp_path / "seen.npy")


def test_the_tolerance_decides(folders: Callable[[str], Path]) -> None:
    assert run("verify", folders("continuous"), "--tolerance", "0").status == 1
    assert run("verify", folders("continuous"), "--tolerance", "1e-4").status == 0


def test_what_is_printed(folders: Callable[[str], Path], copied: Callable[[str], Path]) -> None:
    result = run("verify", folders("lstm"), "--samples", "10")
    assert result.status == 0 and not result.err
    printed = re.sub(r"\n +", " ", result.out)
    for words in (
        "Equality  graph:",
        "numbers bit-equal",
        "10 ordinary",
        "block by block",
        "memory: one step of an LSTM",
        "in step 64",
        "Samples  ",
        "none failed",
    ):
        assert words in printed, words
    folder = copied("continuous")
    edit(folder, "torch.randn_like(mu) if", "1.1 * torch.randn_like(mu) if")
    result = run("verify", folder)
    assert result.status == 1
    for words in ("changed since the build: model.py", "failed:", "variances", "Exit status 1"):
        assert words in result.out, words


def test_batches_are_those_promised(folders: Callable[[str], Path]) -> None:
    runs = verify_folder(folders("continuous")).verification.runs
    for batch in BATCHES:
        assert f"batch {batch}, ordinary again, optimiser off" in runs


def test_a_folder_without_report_is_no_finding(tmp_path: Path) -> None:
    with pytest.raises(FolderError):
        verify_folder(tmp_path)
