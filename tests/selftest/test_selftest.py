"""The self test: what passes, what isn't applicable, and that a fault planted in what a group looks at fails a case of it."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from safetensors.numpy import load_file, save_file

from graph2torch.act.fingerprint import Fingerprint
from graph2torch.act.run import Runner
from graph2torch.build import build
from graph2torch.devices.device import cpu
from graph2torch.selftest import cases as selftest_cases
from graph2torch.selftest import selftest as engine
from graph2torch.selftest.cases import CASES
from graph2torch.selftest.selftest import FailedError, Measured, NotApplicableError, Result, SelfTest, open_subject, selftest, tried
from tests.commands import check_trouble, run, unsafe
from tests.models import FAMILIES, save_pair, tiny_checkpoint, tiny_policy

POLICIES: Mapping[str, Mapping[str, Any]] = {
    "everything": {"observations": (4,), "branches": (3, 2), "memory": 6},
    "attention": FAMILIES["attention"],
    "sampled only": {"observations": (4,), "deterministic": False, "normalize": False},
    "three at a time": {"observations": (4,), "batch": 3},
    "sac": FAMILIES["sac"],
}
ELSEWHERE = {"the CPU's numbers", "the CPU's samples for a seed", "weights of half precision are the float32 network's, rounded"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    made = {}
    for name, arguments in POLICIES.items():
        folder = tmp_path_factory.mktemp("built")
        model = tiny_policy(**arguments)
        build(*save_pair(folder, model, tiny_checkpoint(model, steps=2_000_000)), folder / "out")
        made[name] = folder / "out"
    return made


@pytest.fixture(scope="module")
def found(folders: Mapping[str, Path]) -> Mapping[str, SelfTest]:
    return {name: selftest(folder) for name, folder in folders.items()}


@pytest.fixture
def copied(folders: Mapping[str, Path], tmp_path: Path) -> Path:
    """A folder of its own, to be spoilt, with its original beside it."""
    shutil.copytree(folders["everything"].parent, tmp_path / "pair")
    return tmp_path / "pair" / "out"


def status(found: SelfTest, name: str) -> str:
    return next(r.status for r in found.results if r.name == name)


# ---------------------------------------------------------------------------------------------- whole policies
def test_cases_have_names_of_their_own() -> None:
    assert len(CASES) >= 50
    assert [name for name, count in Counter((group, name) for group, name, _ in CASES).items() if count > 1] == []


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_fails_of_a_policy_as_it_was_built(found: Mapping[str, SelfTest], policy: str) -> None:
    result = found[policy]
    assert [r for r in result.results if r.status == "failed"] == [] and result.passed
    assert sum(result.counts.values()) == len(CASES) and result.counts["passed"] > 50
    assert all(r.said for r in result.results), "each says what it looked at, or why it is not applicable"
    assert all(r.status in ("measured", "not applicable") for r in result.results if r.group == "latency" or "how near" in r.name)


def test_every_case_applies_to_some_policy(found: Mapping[str, SelfTest]) -> None:
    applied = {(r.group, r.name) for result in found.values() for r in result.results if r.status != "not applicable"}
    never = {(group, name) for group, name, _ in CASES} - applied
    assert never == {(g, n) for g, n, _ in CASES if g == "devices' transfer" or n in ELSEWHERE}


def test_what_a_policy_lacks_is_not_applicable(found: Mapping[str, SelfTest]) -> None:
    for group in ("recurrent", "masks"):
        mine = [r for r in found["attention"].results if r.group == group]
        assert mine and all(r.status == "not applicable" for r in mine)
        assert all(r.status == "passed" for r in found["everything"].results if r.group == group)
    for r in found["sampled only"].results:
        if r.group == "precision" and ("statistics" in r.name or "half() leaves" in r.name):
            assert r.status == "not applicable" and "normaliser" in r.said
    assert status(found["three at a time"], "64 agents") == "not applicable"
    assert status(found["sac"], "no noise, the deterministic action") == "not applicable"


# ---------------------------------------------------------------------------------------------- planted faults
def result_of(group: str, name: str, folder: Path) -> Result:
    case = next(case for g, n, case in CASES if (g, n) == (group, name))
    return tried(group, name, case, open_subject(folder, None, cpu()))


Plant = Callable[[Path, pytest.MonkeyPatch], None]


def heavier(folder: Path, _: pytest.MonkeyPatch) -> None:
    """Other weights than the original's."""
    weights = load_file(folder / "weights.safetensors")
    weights["mu.weight"] = weights["mu.weight"] * np.float32(1.01)
    save_file(weights, folder / "weights.safetensors")


def not_a_number(folder: Path, _: pytest.MonkeyPatch) -> None:
    weights = load_file(folder / "weights.safetensors")
    weights["mu.bias"] = np.full_like(weights["mu.bias"], np.nan)
    save_file(weights, folder / "weights.safetensors")


def other_contract(folder: Path, _: pytest.MonkeyPatch) -> None:
    told = json.loads((folder / "report.json").read_text())
    told["architecture"]["acting"]["continuous"] += 1
    told["architecture"]["outputs"] = told["architecture"]["outputs"][::-1]
    (folder / "report.json").write_text(json.dumps(told))


def other_export(folder: Path, _: pytest.MonkeyPatch) -> None:
    model = onnx.load(folder / "rebuilt.onnx")
    bias = next(t for t in model.graph.initializer if t.name.endswith("mu.bias"))
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + np.float32(0.5), bias.name))
    onnx.save(model, folder / "rebuilt.onnx")


def converted_statistics(folder: Path, _: pytest.MonkeyPatch) -> None:
    """A normaliser as it is usually written: half() converts its sums."""
    source = (folder / "model.py").read_text()
    assert "def _apply(self" in source
    (folder / "model.py").write_text(source.replace("def _apply(self", "def _unused(self"))


def converted_by_load_alone(folder: Path, _: pytest.MonkeyPatch) -> None:
    """The layers' borders are known to load only: after half() they are given another type than they have."""
    source = (folder / "model.py").read_text()
    end = "return policy.to(device, dtype).eval()"
    assert end in source
    source = source.replace("def _apply(self", "def _known(self")
    (folder / "model.py").write_text(
        source.replace(
            end, "policy._apply = policy._known\n    policy = policy.to(device, dtype)\n    del policy._apply\n    return policy.eval()"
        )
    )


def too_large_for_half(folder: Path, _: pytest.MonkeyPatch) -> None:
    weights = load_file(folder / "weights.safetensors")
    weights["body.0.weight"] = weights["body.0.weight"] * np.float32(1e7)
    save_file(weights, folder / "weights.safetensors")


def drawn_anew(_: Path, patch: pytest.MonkeyPatch) -> None:
    """Deterministic actions that aren't."""
    forward = Runner._forward

    def noisy(self: Runner, *arguments: Any) -> Any:
        named, memory = forward(self, *arguments)
        return {k: v + torch.rand(v.shape).to(v.dtype) if v.is_floating_point() else v for k, v in named.items()}, memory

    patch.setattr(Runner, "_forward", noisy)


def noise_of_the_seed_alone(_: Path, patch: pytest.MonkeyPatch) -> None:
    """Every agent and step draws the same numbers."""
    made = Runner._noise

    def same(self: Runner, seed: int, acting: Any) -> Any:
        first = replace(acting, ids=np.zeros_like(acting.ids), begun=np.zeros_like(acting.begun), taken=0, noise=None)
        return [np.repeat(z[:1], len(acting.ids), 0) for z in made(self, seed, first)]

    patch.setattr(Runner, "_noise", same)


def drawn_from_elsewhere(folder: Path, _: pytest.MonkeyPatch) -> None:
    """As on a device whose own generator is drawn from."""
    source = (folder / "model.py").read_text()
    assert "torch.randn_like(mu)" in source
    (folder / "model.py").write_text(source.replace("torch.randn_like(mu)", "torch.randn(mu.shape, generator=torch.Generator())"))


def rows_mixed(_: Path, patch: pytest.MonkeyPatch) -> None:
    """Agents get each other's actions."""
    compute = Runner._compute

    def mixed(self: Runner, *arguments: Any) -> Any:
        actions, memory = compute(self, *arguments)
        return {name: np.roll(value, 1, axis=0) for name, value in actions.items()}, memory

    patch.setattr(Runner, "_compute", mixed)


def forgetful(_: Path, patch: pytest.MonkeyPatch) -> None:
    compute = Runner._compute
    patch.setattr(Runner, "_compute", lambda *arguments: (compute(*arguments)[0], None))


def never_reset(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Runner, "reset", lambda *_: None)


def masks_ignored(_: Path, patch: pytest.MonkeyPatch) -> None:
    feed = Runner._feed

    def unmasked(self: Runner, observations: Any) -> Any:
        return {name: np.ones_like(value) if "mask" in name else value for name, value in feed(self, observations).items()}

    patch.setattr(Runner, "_feed", unmasked)


def unchecked(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Runner, "_checked", lambda self, value, given: np.asarray(given))


def always_the_same_mark(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(selftest_cases, "fingerprint", lambda actions: Fingerprint("0" * 64, "", 0))


def silent_filter(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(selftest_cases, "serve", lambda runner, lines, out: out.write('{"continuous_actions": [0, 0]}'))


def shortened(_: Path, patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def on(device: Any) -> Iterator[Mapping[str, bool]]:
        yield {"backends.some.allow_tf32": True}

    patch.setattr(selftest_cases, "exact", on)


def lost_on_the_way(_: Path, patch: pytest.MonkeyPatch) -> None:
    """As if the CPU were a device to which weights are moved, and one of them changed on the way."""
    patch.setattr(engine.Subject, "need_device", lambda self: None)
    begin = engine.Subject.__init__

    def begun(self: engine.Subject, *arguments: Any) -> None:
        begin(self, *arguments)
        self.acting = self.folder.load()
        with torch.no_grad():
            next(self.acting.parameters()).view(-1)[0] += 1

    patch.setattr(engine.Subject, "__init__", begun)


@pytest.mark.parametrize(
    ("group", "plant", "name"),
    [
        ("files", heavier, "as build wrote them"),
        ("files", not_a_number, "every weight is finite"),
        ("contract", other_contract, "outputs are the original's"),
        ("contract", other_contract, "actions have their number and type"),
        ("refused", unchecked, "NaN in an observation"),
        ("refused", unchecked, "an observation of another size"),
        ("deterministic", drawn_anew, "the same observations, the same bits"),
        ("deterministic", drawn_anew, "nothing is drawn"),
        ("deterministic", not_a_number, "finite actions"),
        ("sampled", noise_of_the_seed_alone, "another step, other noise"),
        ("sampled", noise_of_the_seed_alone, "each agent has noise of its own"),
        ("sampled", drawn_from_elsewhere, "forward draws its noise on the CPU"),
        ("sampled", not_a_number, "finite actions"),
        ("cross-check", heavier, "ordinary observations"),
        ("cross-check", other_export, "ordinary observations"),
        ("extreme observations", other_export, "zeros"),
        ("extreme observations", not_a_number, "actions stay within their bounds"),
        ("batch", rows_mixed, "64 agents one by one, the same bits as together"),
        ("batch", rows_mixed, "agents don't see each other"),
        ("batch", heavier, "7 agents"),
        ("recurrent", forgetful, "memory changes what is done"),
        ("recurrent", forgetful, "the memory of a step is the next one's"),
        ("recurrent", never_reset, "after a reset, a first step again"),
        ("recurrent", never_reset, "one agent's reset leaves the others"),
        ("recurrent", heavier, "64 steps of memory fed back, as the original"),
        ("masks", masks_ignored, "one option allowed, that one chosen"),
        ("masks", masks_ignored, "what is forbidden is never sampled"),
        ("masks", unchecked, "a row that allows nothing is refused"),
        ("precision", converted_by_load_alone, "half() does what load(dtype=torch.float16) does"),
        ("precision", converted_statistics, "half() leaves the normaliser whole"),
        ("precision", converted_statistics, "statistics stay float32 in half precision"),
        ("precision", too_large_for_half, "float16 is finite where float32 is"),
        ("fingerprint", always_the_same_mark, "other observations have another one"),
        ("fingerprint", always_the_same_mark, "one bit of one action is seen"),
        ("re-export", other_export, "rebuilt.onnx is the original's graph"),
        ("re-export", heavier, "model.py exported anew is the original's graph"),
        ("filter", silent_filter, "a line of JSON, the same action"),
        ("filter", silent_filter, "a bad line is refused, with its number"),
        ("device", shortened, "whole float32"),
        ("devices' transfer", lost_on_the_way, "weights arrive there bit by bit"),
    ],
)
def test_a_fault_fails_what_looks_at_it(copied: Path, monkeypatch: pytest.MonkeyPatch, group: str, plant: Plant, name: str) -> None:
    plant(copied, monkeypatch)
    failed = result_of(group, name, copied)
    assert failed.status == "failed", failed
    assert failed.expected and failed.found and failed.expected != failed.found


def test_every_group_but_latency_has_a_planted_fault() -> None:
    marks = next(m for m in test_a_fault_fails_what_looks_at_it.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]
    assert {group for group, _, _ in CASES} - {"latency"} == {group for group, _, _ in marks.args[1]}


def test_whatever_a_case_raises_is_its_failure(folders: Mapping[str, Path]) -> None:
    subject = open_subject(folders["attention"], None, cpu())

    def raising(error: Exception) -> Callable[[Any], Any]:
        def case(_: Any) -> Any:
            raise error

        return case

    assert tried("g", "n", raising(ZeroDivisionError("odd")), subject) == Result(
        "g", "n", "failed", "", "no error", "ZeroDivisionError: odd"
    )
    assert tried("g", "n", raising(FailedError("1", "2")), subject) == Result("g", "n", "failed", "", "1", "2")
    assert tried("g", "n", raising(NotApplicableError("why")), subject) == Result("g", "n", "not applicable", "why")
    assert tried("g", "n", lambda _: Measured("3 s"), subject).status == "measured"
    with pytest.raises(MemoryError):
        tried("g", "n", raising(MemoryError()), subject)


# ---------------------------------------------------------------------------------------------- the command
def test_the_command(copied: Path, tmp_path: Path) -> None:
    state = torch.get_rng_state()
    result = run("selftest", copied, "--log", tmp_path / "cases.log")
    assert torch.equal(state, torch.get_rng_state()), "torch's generator is as before"
    assert result.status == 0 and not result.err and not unsafe(result.out)
    assert f"Self test  {len(CASES)} cases: " in result.out and "FAILED" not in result.out
    lines = (tmp_path / "cases.log").read_text(encoding="utf-8").splitlines()
    assert [line.split()[0] for line in lines if re.match(r" *\d+  (passed|failed|not applicable|measured) ", line)] == [
        str(n) for n in range(1, len(CASES) + 1)
    ]
    check_trouble(run("selftest", copied, "--log", tmp_path / "cases.log"), "--log", "--force")

    heavier(copied, pytest.MonkeyPatch())
    result = run("selftest", copied, "--json", "--log", tmp_path / "cases.log", "--force")
    told = json.loads(result.out)
    assert result.status == 1 and not told["passed"] and told["counts"]["failed"] > 0
    assert told["changed_since_build"] == ["weights.safetensors"] and told["device"] == "cpu"
    assert Counter(case["status"] for case in told["cases"]) == {k: v for k, v in told["counts"].items() if v}
    assert "failed" in (tmp_path / "cases.log").read_text(encoding="utf-8")
    result = run("selftest", copied)
    assert result.status == 1 and "FAILED" in result.out and "expected" in result.out


def test_a_folder_that_cant_be_tried(copied: Path, tmp_path: Path) -> None:
    check_trouble(run("selftest", tmp_path / "nowhere"), "nowhere")
    check_trouble(run("selftest", copied, copied / "rebuilt.onnx"), "is not the file", "sha256")
    check_trouble(run("selftest", copied, "--device", "xpu:7"), "xpu", status=3)
