"""The engines: what each gives is what eager torch gives, or it isn't used; what is compiled is run only from a cache of one's own."""

from __future__ import annotations

import copy
import json
import os
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graph2torch.act.folder import Folder, open_folder
from graph2torch.act.run import Runner, act_on
from graph2torch.build import build
from graph2torch.engine import cache
from graph2torch.engine.compiled import identity
from graph2torch.engine.engines import Compiled, Eager, OnnxRuntime, Step, checked, choose, flat, trial, wanted
from graph2torch.errors import EngineError
from tests.commands import check_trouble, run
from tests.models import FAMILIES, save_pair, tiny_policy

AOT = hasattr(torch, "_inductor") and hasattr(torch._inductor, "aoti_compile_and_package")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Each family, built."""
    root = tmp_path_factory.mktemp("built")
    made = {}
    for name, arguments in FAMILIES.items():
        (root / name).mkdir()
        path, _ = save_pair(root / name, tiny_policy(**arguments))
        build(path, output=root / name / "out")
        made[name] = root / name / "out"
    return made


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRAPH2TORCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def opened(folder: Path) -> tuple[Folder, Any]:
    found = open_folder(folder)
    return found, found.load()


@pytest.mark.parametrize("family", FAMILIES)
def test_onnxruntime_acts_as_eager_torch_does(folders: Mapping[str, Path], family: str) -> None:
    eager, other = Runner.load(folders[family], group=0), Runner.load(folders[family], group=0, engine="onnxruntime")
    a, b = (act_on(runner, steps=3, batch=5).actions for runner in (eager, other))  # with memory: each its own
    assert a.keys() == b.keys() and a
    for name, array in a.items():
        assert array.dtype == b[name].dtype and np.allclose(array, b[name], rtol=0, atol=1e-5), name


def test_onnxruntime_leaves_sampling_to_others(folders: Mapping[str, Path]) -> None:
    check_trouble(run("run", folders["continuous"], "--engine", "onnxruntime", "--sample"), "no seed reaches", "leave --engine out")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_of_any_engine_is_a_step_of_the_policy(folders: Mapping[str, Path], family: str) -> None:
    found, policy = opened(folders[family])
    step = Eager(found, policy).step(False, 3)
    arguments = [torch.from_numpy(a) for a in trial(found.contract, False, 3, 0)]
    given = step.call(arguments)
    assert len(given) == len(wanted(found.contract, False)[1])
    acted = policy.act(*arguments)
    assert all(torch.equal(a, b) for a, b in zip(given, acted if isinstance(acted, tuple) else (acted,), strict=True))
    if found.contract.draws:
        sampled = flat(policy, found.contract, True)([torch.from_numpy(a) for a in trial(found.contract, True, 3, 0)])
        assert len(sampled) == len(wanted(found.contract, True)[1])


@pytest.mark.parametrize("family", ["discrete", "hybrid"])
def test_made_up_masks_allow_something_in_each_branch(folders: Mapping[str, Path], family: str) -> None:
    found, _ = opened(folders[family])
    place = next(n for n, i in enumerate(found.contract.inputs) if i.kind == "mask")
    mask = trial(found.contract, False, 500, 1)[place]
    assert set(np.unique(mask)) == {0, 1} and mask[:, :3].any(1).all() and mask[:, 3:].any(1).all()


def test_what_gives_something_else_is_refused(folders: Mapping[str, Path]) -> None:
    found, policy = opened(folders["continuous"])
    eager = flat(policy, found.contract, False)
    names = wanted(found.contract, False)[0]

    def off(arguments: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return [t + 1e-4 for t in eager(arguments)]

    def short(arguments: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return []

    assert checked("it", Step(names, eager), eager, found.contract, False, 2).call is eager
    with pytest.raises(EngineError, match=r"another 'deterministic_continuous_actions' than model\.py"):
        checked("it", Step(names, off), eager, found.contract, False, 2)
    with pytest.raises(EngineError, match="another number of outputs"):
        checked("it", Step(names, short), eager, found.contract, False, 2)


def test_weights_of_one_and_graph_of_another_are_noticed(folders: Mapping[str, Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "changed"
    folder.mkdir()
    for file in folders["continuous"].iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    state = load_file(folder / "weights.safetensors")
    save_file({name: t + 0.1 if name == "mu.bias" else t for name, t in state.items()}, folder / "weights.safetensors")
    shown = run("run", folder, "--engine", "onnxruntime")
    assert shown.status == 2 and "onnxruntime gives another 'deterministic_continuous_actions' than model.py" in shown.err


def test_refusals(folders: Mapping[str, Path]) -> None:
    folder = folders["continuous"]
    check_trouble(run("run", folder, "--engine", "fastest"), "no engine", "auto")
    with pytest.raises(EngineError, match="on the CPU in float32 only"):
        Runner.load(folder, dtype="bfloat16", engine="auto")
    (folder.parent / "bare").mkdir()
    for name in ("model.py", "weights.safetensors", "report.json"):
        (folder.parent / "bare" / name).write_bytes((folder / name).read_bytes())
    check_trouble(run("run", folder.parent / "bare", "--engine", "onnxruntime"), "onnxruntime can't be used", "rebuilt.onnx")


def test_a_runner_with_an_engine_can_be_copied(folders: Mapping[str, Path]) -> None:
    runner = Runner.load(folders["continuous"], engine="onnxruntime")
    feed = dict(zip([i.name for i in runner.contract.inputs], trial(runner.contract, False, 1, 0), strict=True))
    actions = runner.act(feed)
    for again in (copy.deepcopy(runner), pickle.loads(pickle.dumps(runner))):
        assert all(np.array_equal(value, actions[name]) for name, value in again.act(feed).items())


# ---------------------------------------------------------------------------------------------- auto
def test_auto_takes_the_fastest_that_was_measured(folders: Mapping[str, Path]) -> None:
    found, policy = opened(folders["continuous"])
    key = {**identity(found, 1), "batch": 2}
    auto = choose(found, policy, "auto", 1)
    auto.step(False, 2)
    assert auto.choices == ["batch 2: eager, since nothing was measured; `graph2torch bench` does that"]
    cache.remember(key, {"eager": 2e-4, "onnxruntime": 1e-4, "compiled": 5e-5, "unheard of": 1e-6})
    auto = choose(found, policy, "auto", 1)
    auto.step(False, 2)
    auto.step(False, 2)  # decided once
    assert len(auto.choices) == 2
    assert auto.choices[0].startswith("batch 2: not compiled: ") and auto.choices[1] == "batch 2: onnxruntime, measured at 100 µs a step"
    if found.contract.draws:
        auto.step(True, 2)
        assert auto.choices[-1] == "batch 2: eager, measured at 200 µs a step"
    cache.remember(key, {"eager": 1e-5, "onnxruntime": 1e-4})
    assert choose(found, policy, "auto", 1).step(False, 2).call.__name__ == "act"
    assert cache.measured({**key, "threads": 2}) == {}


def test_bench_measures_for_auto(folders: Mapping[str, Path], own_cache: Path) -> None:
    folder = folders["continuous"]
    assert run("bench", folder, "--batch", 1, "--rounds", 1).status == 0
    (note,) = (own_cache / "measured").glob("*.json")
    seconds = json.loads(note.read_text())["seconds"]
    assert seconds.keys() == {"eager", "onnxruntime"} and all(value > 0 for value in seconds.values())
    fastest = min(seconds, key=lambda name: seconds[name])
    document = json.loads(run("run", folder, "--engine", "auto", "--json").out)
    assert document["engine"] == "auto" and document["engine_choices"][0].startswith(f"batch 1: {fastest}, measured at")
    assert json.loads(run("run", folder, "--json").out)["engine"] == "eager"


# ---------------------------------------------------------------------------------------------- the cache
def test_only_what_was_written_is_read_again(own_cache: Path) -> None:
    key = {"a": 1, "b": ["x", None]}
    assert cache.find(key) is None
    cache.keep(key, b"code", {"way": "blas"})
    found = cache.find(dict(reversed(key.items())))
    assert found is not None and found[0] == b"code" and found[1]["way"] == "blas"
    assert cache.find({**key, "a": 2}) is None
    path = own_cache / "compiled" / f"{cache.digest(key)}.pt2"
    path.write_bytes(b"other code")
    assert cache.find(key) is None
    cache.keep(key, b"code", {})
    path.with_suffix(".json").write_text("[[")
    assert cache.find(key) is None


def test_the_oldest_go(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "KEPT", 3)
    for n in range(5):
        cache.keep({"n": n}, b"code", {})
        os.utime(own_cache / "compiled" / f"{cache.digest({'n': n})}.pt2", (n, n))
    assert [cache.find({"n": n}) is not None for n in range(5)] == [False, False, True, True, True]
    cache.keep({"n": 5}, b"code", {})
    assert len(list((own_cache / "compiled").iterdir())) == 2 * 3


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no POSIX permissions")
def test_a_cache_that_others_may_write_to_is_not_used(own_cache: Path, folders: Mapping[str, Path]) -> None:
    cache.keep({"a": 1}, b"code", {})
    assert (own_cache / "compiled").stat().st_mode & 0o777 == 0o700
    (own_cache / "compiled").chmod(0o777)
    with pytest.raises(EngineError, match="others may write to it"):
        cache.find({"a": 1})
    found, policy = opened(folders["continuous"])
    if AOT:
        with pytest.raises(EngineError, match="others may write to it"):
            Compiled(found, policy).step(False, 1)
    assert run("run", folders["continuous"]).status == 0  # eager torch needs none
    own_cache.chmod(0o722)
    assert run("bench", folders["continuous"], "--batch", 1, "--rounds", 1).status == 0  # and is timed without


def test_a_cache_that_is_a_file(own_cache: Path, folders: Mapping[str, Path]) -> None:
    own_cache.write_text("")
    with pytest.raises(EngineError, match=r"can't be used.*GRAPH2TORCH_CACHE"):
        cache.find({"a": 1})
    found = json.loads(run("run", folders["continuous"], "--engine", "auto", "--json").out)  # which needs no cache
    assert "can't be used" in found["engine_choices"][0]


def test_nobody_has_no_cache(own_cache: Path, folders: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a home folder, as in a container."""

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("GRAPH2TORCH_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(EngineError, match="no home folder"):
        cache.find({"a": 1})
    assert run("run", folders["continuous"], "--engine", "auto").status == 0
    assert run("bench", folders["continuous"], "--batch", 1, "--rounds", 1).status == 0


@pytest.mark.parametrize("seconds", ["1" + "0" * 400, "1e999", "-1.0", "NaN", "true", "[]", '"1"', "null"])
def test_measurements_that_are_none(own_cache: Path, seconds: str) -> None:
    cache.remember({"a": 1}, {"eager": 1.5})
    assert cache.measured({"a": 1}) == {"eager": 1.5}
    path = own_cache / "measured" / f"{cache.digest({'a': 1})}.json"
    path.write_text(path.read_text().replace("1.5", seconds))
    assert cache.measured({"a": 1}) == {}


def test_a_compiled_policy_in_a_built_folder_is_not_looked_at(folders: Mapping[str, Path]) -> None:
    """A folder may come from anybody; code in it is model.py alone."""
    found, policy = opened(folders["continuous"])
    key = {**identity(found, 1), "sampled": False, "batch": 1}
    for name in ("compiled", "."):
        (found.path / name).mkdir(exist_ok=True)
        (found.path / name / f"{cache.digest(key)}.pt2").write_bytes(b"code")
    with pytest.raises(EngineError, match=r"not compiled for a batch of 1 yet|has no AOTInductor"):
        Compiled(found, policy, may_compile=False).step(False, 1)


def test_other_weights_are_another_policy(folders: Mapping[str, Path]) -> None:
    a, b = (open_folder(folders[name]) for name in ("continuous", "sac"))
    keys = [identity(a, 1), identity(b, 1), identity(a, 2), identity(replace(a, source=a.source + "\n"), 1)]
    assert len({cache.digest(key) for key in keys}) == 4


# ---------------------------------------------------------------------------------------------- compiled
@pytest.fixture(scope="module")
def one_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For all that is compiled here: the compiler's own headers are compiled once in it."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
@pytest.mark.skipif(not AOT, reason="this torch has no AOTInductor packages")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_compiled_policy_acts_as_eager_torch_does(
    folders: Mapping[str, Path], family: str, one_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPH2TORCH_CACHE", str(one_cache))
    found, policy = opened(folders[family])
    for sampled in [False, *([True] if family == "hybrid" else [])]:
        step = Compiled(found, policy).step(sampled, 2)
        arguments = [torch.from_numpy(a) for a in trial(found.contract, sampled, 2, 9)]
        with torch.inference_mode():
            for a, b in zip(step.call(arguments), flat(policy, found.contract, sampled)(arguments), strict=True):
                assert a.dtype == b.dtype and torch.allclose(a, b, rtol=0, atol=1e-5)
    again = Compiled(found, policy, may_compile=False).step(False, 2)  # from the cache
    with pytest.raises(EngineError, match="other sizes"):
        again.call([torch.from_numpy(a) for a in trial(found.contract, False, 3, 0)])
    runner = Runner.load(folders[family], group=2, engine="compiled")
    assert act_on(runner, batch=4, steps=2).actions


def test_onnxruntime_takes_threads(folders: Mapping[str, Path]) -> None:
    found, policy = opened(folders["continuous"])
    assert OnnxRuntime(found, policy, threads=2).step(False, 4).names == ("continuous_actions",)
