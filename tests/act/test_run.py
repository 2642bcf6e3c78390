"""Acting: what a built policy does for one agent and for many, sampled, with memory and masks, and what it refuses."""

from __future__ import annotations

import copy
import io
import json
import pickle
import subprocess
import sys
import tracemalloc
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch

from graph2torch.act.run import Runner, act_on, draw_noise
from graph2torch.build import build
from graph2torch.errors import ActingError, FolderError, ObservationError
from graph2torch.graph import Array
from tests.commands import check_trouble, run
from tests.models import FAMILIES, save_pair, tiny_policy

SAMPLED = ("continuous", "discrete", "hybrid", "sac", "lstm", "attention")


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
def one_torch_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def observed(runner: Runner, rows: int, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    sizes = {i.name: [rows, *(d if isinstance(d, int) else 1 for d in i.shape[1:])] for i in runner.contract.inputs}
    return {i.name: rng.standard_normal(sizes[i.name]).astype(np.float32) for i in runner.contract.inputs if i.kind == "observation"}


def same(a: Mapping[str, Array], b: Mapping[str, Array]) -> bool:
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and a[k].tobytes() == b[k].tobytes() for k in a)


@pytest.mark.parametrize("family", FAMILIES)
def test_deterministic_actions_are_those_of_the_original(folders: Mapping[str, Path], family: str) -> None:
    runner = Runner.load(folders[family])
    feed = observed(runner, 5)
    actions = runner.act(feed)
    session = ort.InferenceSession(str(folders[family].parent / "Tiny.onnx"), providers=["CPUExecutionProvider"])
    taken: dict[str, Array] = dict(feed)
    for value in session.get_inputs():
        if value.name not in taken:  # masks allow everything; memory is that of a first step
            shape = [5, *(d if isinstance(d, int) else 1 for d in value.shape[1:])]
            taken[value.name] = np.full(shape, "mask" in value.name, np.float32)
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, taken), strict=True))
    assert actions
    for name, value in actions.items():
        wanted = found[f"deterministic_{name}"]
        assert value.shape == wanted.shape and np.allclose(value, wanted, rtol=0, atol=1e-5), name


@pytest.mark.parametrize("family", SAMPLED)
def test_a_sample_depends_on_its_place_alone(folders: Mapping[str, Path], family: str) -> None:
    """Agents together, alone, in another order and beside others: the same bits, step after step."""
    together, alone = Runner.load(folders[family]), Runner.load(folders[family])
    for step in range(3):
        feed = observed(together, 6, step)
        actions = together.act(feed, sample=True, seed=11)
        for agent in (4, 0, 5, 2, 1, 3):
            one = alone.act({k: v[agent : agent + 1] for k, v in feed.items()}, sample=True, seed=11, agents=[agent])
            assert same(one, {k: v[agent : agent + 1] for k, v in actions.items()}), (step, agent)
    other = Runner.load(folders[family]).act(observed(together, 6, 0), sample=True, seed=12)
    first = Runner.load(folders[family]).act(observed(together, 6, 0), sample=True, seed=11)
    assert not same(first, other)


@pytest.mark.parametrize("family", ["hybrid", "lstm"])
def test_a_batch_of_64_is_64_batches_of_one(folders: Mapping[str, Path], family: str) -> None:
    """Through three steps, each agent by a runner of its own that never hears of the others."""
    together = Runner.load(folders[family])
    feeds = [observed(together, 64, step) for step in range(3)]
    acted = [together.act(feed, sample=True, seed=5) for feed in feeds]
    for agent in range(64):
        alone, rows = Runner.load(folders[family]), slice(agent, agent + 1)
        for feed, actions in zip(feeds, acted, strict=True):
            one = alone.act({k: v[rows] for k, v in feed.items()}, sample=True, seed=5, agents=[agent])
            assert same(one, {k: v[rows] for k, v in actions.items()}), agent


def test_samples_are_what_the_policys_own_noise_makes(folders: Mapping[str, Path]) -> None:
    """The runner's actions are model.py's forward with the noise that philox.py defines."""
    runner = Runner.load(folders["continuous"])
    feed = observed(runner, 4)
    agents, steps = np.arange(4), np.zeros(4, np.int64)
    noise = [draw_noise(d, 9, agents, steps, n) for n, d in enumerate(runner.contract.draws)]
    policy = runner.policy
    with torch.inference_mode():
        namespace = type(policy).forward.__globals__
        rows = []
        for row in range(4):  # as the runner computes them, each by itself
            given = namespace["Noise"](*(torch.from_numpy(z[row : row + 1]) for z in noise))
            rows.append(policy(*(torch.from_numpy(feed[i.name][row : row + 1]) for i in runner.contract.inputs), noise=given))
    wanted = np.concatenate([r.continuous_actions.numpy() for r in rows])
    assert runner.act(feed, sample=True, seed=9)["continuous_actions"].tobytes() == wanted.tobytes()


def test_memory_is_kept_for_each_agent_and_can_be_reset(folders: Mapping[str, Path]) -> None:
    runner = Runner.load(folders["lstm"])
    feed = observed(runner, 2)
    first, second = runner.act(feed), runner.act(feed)
    assert not same(first, second)
    runner.reset([1])
    third = runner.act(feed)
    name = next(iter(first))
    assert third[name][1].tobytes() == first[name][1].tobytes() and third[name][0].tobytes() != first[name][0].tobytes()
    runner.reset()
    assert same(runner.act(feed), first)


def test_what_fails_leaves_no_trace(folders: Mapping[str, Path]) -> None:
    runner, other = Runner.load(folders["lstm"]), Runner.load(folders["lstm"])
    feed = observed(runner, 2)
    with pytest.raises(ObservationError):
        runner.act({"obs_0": np.full((2, 4), np.nan, np.float32)})
    assert same(runner.act(feed, sample=True), other.act(feed, sample=True))


def test_an_input_of_no_numbers_is_given_or_left_out(tmp_path: Path) -> None:
    """torch's newer exporter leaves the mask of a policy without branches, [batch, 0]."""
    model = tiny_policy()
    model.graph.input.append(onnx.helper.make_tensor_value_info("action_masks", onnx.TensorProto.FLOAT, ["batch", 0]))
    path, _ = save_pair(tmp_path, model)
    build(path, output=tmp_path / "out")
    runner = Runner.load(tmp_path / "out")
    rows = observed(runner, 3)
    assert same(runner.act(rows), runner.act(rows | {"action_masks": np.zeros((3, 0), np.float32)}))
    with pytest.raises(ObservationError, match="as many of each"):
        runner.act(rows | {"action_masks": np.zeros((2, 0), np.float32)})
    with pytest.raises(ObservationError, match="is empty"):
        runner.act({"obs_0": np.zeros((0, 4), np.float32)})


def test_forbidden_options_are_never_drawn(folders: Mapping[str, Path]) -> None:
    runner = Runner.load(folders["discrete"], group=0)
    feed = observed(runner, 400)
    mask = np.tile(np.array([0, 1, 1, 1, 0], np.float32), (400, 1))
    drawn = runner.act({**feed, "action_masks": mask}, sample=True)["discrete_actions"]
    assert set(drawn[:, 0].tolist()) == {1, 2} and set(drawn[:, 1].tolist()) == {0}


@pytest.mark.parametrize(
    ("family", "feed", "words"),
    [
        ("continuous", {}, ["no 'obs_0'", "'obs_0' [n, 4]"]),
        ("continuous", {"obs_0": np.zeros((2, 4)), "obs_1": np.zeros((3, 3))}, ["2 of 'obs_0'", "3 of 'obs_1'"]),
        ("continuous", {"obs_0": np.zeros((2, 5)), "obs_1": np.zeros((2, 3))}, ["obs_0", "5", "4"]),
        ("continuous", {"obs_0": [[1, 2], [3]], "obs_1": [[0, 0, 0]]}, ["different lengths"]),
        ("continuous", {"obs_0": [["a", "b", "c", "d"]], "obs_1": [[0, 0, 0]]}, ["no number"]),
        ("continuous", {"obs_0": np.full((1, 4), np.inf), "obs_1": np.zeros((1, 3))}, ["inf in row 0"]),
        ("continuous", {"other": [1]}, ["no input 'other'"]),
        ("discrete", {"obs_0": np.zeros((3, 4)), "action_masks": [[1] * 5, [1] * 5, [0, 0, 0, 1, 1]]}, ["no option of branch 0", "row 2"]),
        ("discrete", {"obs_0": np.zeros((1, 4)), "action_masks": [[1, 1, 2, 1, 1]]}, ["other numbers than 1", "row 0"]),
    ],
)
def test_wrong_observations_are_told_with_what_was_expected(
    folders: Mapping[str, Path], family: str, feed: Mapping[str, Any], words: list[str]
) -> None:
    with pytest.raises(ObservationError) as told:
        Runner.load(folders[family]).act(feed)
    assert all(word in str(told.value) for word in words), told.value


@pytest.mark.parametrize("agents", [[0], [0, 0], [0, -1], [0, 2**32], [0.0, 1.0], "ab"])
def test_agents_are_whole_numbers_each_once(folders: Mapping[str, Path], agents: Any) -> None:
    runner = Runner.load(folders["continuous"])
    with pytest.raises(ActingError):
        runner.act(observed(runner, 2), agents=agents)


def test_agents_that_are_named_and_those_that_are_not(folders: Mapping[str, Path]) -> None:
    """Without names they are 0 to n − 1, whoever acted just before."""
    runner, other = Runner.load(folders["lstm"]), Runner.load(folders["lstm"])
    row = observed(runner, 1)
    first = runner.act(row, agents=[5])
    runner.act(row, agents=[5])
    assert same(runner.act(row), first)
    wanted = [other.act(row) for _ in range(3)]
    assert same(runner.act(row, agents=[0]), wanted[1]) and same(runner.act(row), wanted[2])
    assert same(
        {k: v[:1] for k, v in runner.act(observed(runner, 2)).items()}, other.act({k: v[:1] for k, v in observed(runner, 2).items()})
    )


def test_memory_does_not_grow_with_the_steps(folders: Mapping[str, Path]) -> None:
    runner = Runner.load(folders["lstm"])
    feed = observed(runner, 1)
    for _ in range(300):
        runner.act(feed, sample=True)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(700):
            runner.act(feed, sample=True)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 50_000  # 700 actions that were kept would be more


def test_the_arrays_of_a_step_are_gone_when_the_next_is_over(folders: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Many steps hold their actions and no more: each array would hold its tensor."""
    runner = Runner.load(folders["lstm"])
    act = runner.act
    made: list[weakref.ref[Array]] = []
    alive: list[int] = []

    def watched(*arguments: Any, **options: Any) -> dict[str, Array]:
        found = act(*arguments, **options)
        alive.append(sum(reference() is not None for reference in made))
        made.extend(weakref.ref(value) for value in found.values())
        return found

    monkeypatch.setattr(runner, "act", watched)
    acted = act_on(runner, "random", steps=20, batch=2)
    assert len(made) == 20 * len(acted.actions) and max(alive) <= len(acted.actions)
    first = act_on(Runner.load(folders["lstm"]), "random", steps=1, batch=2).actions
    assert same(first, {name: value[:1] for name, value in acted.actions.items()})


def test_actions_of_another_shape_at_a_later_step_are_refused(folders: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner.load(folders["continuous"])
    shapes = iter([(1, 2), (1, 1)])  # which numpy would spread over both
    monkeypatch.setattr(runner, "act", lambda *_, **__: {"continuous_actions": np.zeros(next(shapes), np.float32)})
    with pytest.raises(ActingError, match=r"\[1, 1\] at step 1 and was \[1, 2\]"):
        act_on(runner, "random", steps=2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_acts_nearly_the_same(folders: Mapping[str, Path], dtype: str) -> None:
    exact, half = Runner.load(folders["continuous"]), Runner.load(folders["continuous"], dtype=dtype)
    feed = observed(exact, 8)
    a, b = exact.act(feed)["continuous_actions"], half.act(feed)["continuous_actions"]
    assert b.dtype == np.float32 and 0 < np.abs(np.subtract(a, b)).max() < 0.05


def test_running_needs_neither_onnx_nor_onnxruntime(folders: Mapping[str, Path]) -> None:
    code = (
        "import sys; sys.modules.update(onnx=None, onnxruntime=None, onnx_graphsurgeon=None)\n"
        "from graph2torch.act.run import Runner, act_on\n"
        "print(act_on(Runner.load(sys.argv[1]), 'random', batch=2, sample=True).actions['continuous_actions'].shape)"
    )
    done = subprocess.run([sys.executable, "-c", code, folders["continuous"]], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(1, 2, 2)"


# ---------------------------------------------------------------------------------------------- the command
def test_the_command_prints_actions_by_name(folders: Mapping[str, Path]) -> None:
    found = json.loads(run("run", folders["hybrid"], "--steps", 2, "--batch", 3, "--sample", "--seed", 4, "--json").out)
    assert np.shape(found["actions"]["continuous_actions"]) == (2, 3, 2) and np.shape(found["actions"]["discrete_actions"]) == (2, 3, 2)
    assert (found["seed"], found["sampled"], found["device"], found["threads"]) == (4, True, "cpu", 1)
    shown = run("run", folders["hybrid"])
    assert shown.status == 0 and "continuous_actions" in shown.out and "discrete_actions" in shown.out


@pytest.mark.parametrize("ending", [".npz", ".json", ".csv", ".jsonl"])
def test_actions_are_written_and_not_over_another_file(folders: Mapping[str, Path], tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"actions{ending}"
    asked = ("run", folders["hybrid"], "--steps", 2, "--batch", 3, "-o", path)
    assert run(*asked).status == 0
    wanted = act_on(Runner.load(folders["hybrid"]), "random", steps=2, batch=3).actions
    if ending == ".npz":
        with np.load(path) as data:
            assert same(dict(data), wanted)
    elif ending == ".json":
        assert np.array_equal(json.loads(path.read_text())["actions"]["discrete_actions"], wanted["discrete_actions"])
    else:
        lines = path.read_text().splitlines()
        assert len(lines) == 6 + (ending == ".csv")
        last = lines[-1].split(",") if ending == ".csv" else None
        if last:
            assert [int(x) for x in last[:2]] == [1, 2]
            numbers = [float(x) for x in last[2:]]
        else:
            told = json.loads(lines[-1])
            assert (told["step"], told["agent"]) == (1, 2)
            numbers = [*told["continuous_actions"], *told["discrete_actions"]]
        assert np.array_equal(numbers, [*wanted["continuous_actions"][1, 2].tolist(), *wanted["discrete_actions"][1, 2].tolist()])
    check_trouble(run(*asked), "--force")
    assert run(*asked, "--force").status == 0


def test_a_file_of_observations_is_acted_on_row_by_row(folders: Mapping[str, Path], tmp_path: Path) -> None:
    runner = Runner.load(folders["lstm"])
    rows = observed(runner, 6)
    np.savez(tmp_path / "rows.npz", **rows)  # type: ignore[arg-type]
    found = json.loads(run("run", folders["lstm"], "--observations", tmp_path / "rows.npz", "--batch", 2, "--json").out)
    wanted = [runner.act({k: v[i : i + 2] for k, v in rows.items()}) for i in (0, 2, 4)]
    for name, value in found["actions"].items():
        assert np.array_equal(np.array(value, np.float32), [w[name] for w in wanted])
    check_trouble(run("run", folders["lstm"], "--observations", tmp_path / "rows.npz", "--batch", 4), "6 rows", "batch of 4")
    check_trouble(run("run", folders["lstm"], "--observations", tmp_path / "none.npz"), "none.npz")


def test_changed_files_are_named(folders: Mapping[str, Path], tmp_path: Path) -> None:
    for name in ("model.py", "weights.safetensors", "report.json"):
        (tmp_path / name).write_bytes((folders["continuous"] / name).read_bytes())
    (tmp_path / "model.py").write_text((tmp_path / "model.py").read_text() + "\n# changed\n")
    result = run("run", tmp_path)
    assert result.status == 0 and "model.py changed since the build" in result.err


@pytest.mark.parametrize("missing", ["model.py", "weights.safetensors", "report.json"])
def test_a_folder_that_is_none(folders: Mapping[str, Path], tmp_path: Path, missing: str) -> None:
    for name in {"model.py", "weights.safetensors", "report.json"} - {missing}:
        (tmp_path / name).write_bytes((folders["continuous"] / name).read_bytes())
    with pytest.raises(FolderError):
        Runner.load(tmp_path)
    check_trouble(run("run", tmp_path), missing)
    check_trouble(run("run", tmp_path / "nowhere"), "nowhere")


@pytest.mark.parametrize(
    "report", ["", "[]", "{}", '{"architecture": 3}', "[" * 100_000, '{"architecture": {"inputs": [{"name": 1}]}}', "\udcff"]
)
def test_a_report_that_is_none(folders: Mapping[str, Path], tmp_path: Path, report: str) -> None:
    for name in ("model.py", "weights.safetensors"):
        (tmp_path / name).write_bytes((folders["continuous"] / name).read_bytes())
    (tmp_path / "report.json").write_bytes(report.encode("utf-8", "surrogateescape"))
    check_trouble(run("run", tmp_path), "report.json" if not report else "build")


# ---------------------------------------------------------------------------------------------- copies, other processes
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("family", ["lstm", "hybrid", "attention"])
def test_a_copy_goes_on_where_the_first_one_was(folders: Mapping[str, Path], family: str, dtype: str) -> None:
    """Memory, steps and noise drawn ahead are the runner's; each copy has its own from there on."""
    runner = Runner.load(folders[family], dtype=dtype)
    feed = observed(runner, 3)
    for _ in range(3):
        runner.act(feed, sample=True, seed=4)
    buffer = io.BytesIO()
    torch.save(runner, buffer)
    buffer.seek(0)
    copies = [copy.deepcopy(runner), pickle.loads(pickle.dumps(runner)), torch.load(buffer, weights_only=False)]
    wanted = [runner.act(feed, sample=True, seed=4) for _ in range(2)]
    for other in copies:
        assert all(same(a, other.act(feed, sample=True, seed=4)) for a in wanted)
        assert type(other.policy) is type(runner.policy) and other.policy is not runner.policy


def test_a_pickle_is_read_by_another_process(folders: Mapping[str, Path], tmp_path: Path) -> None:
    """It knows neither the folder nor its model.py: the source comes along. The policy alone, its outputs and copies of either do, too."""
    runner = Runner.load(folders["lstm"], dtype="float16")
    feed = observed(runner, 2)
    runner.act(feed)
    policy: Any = runner.policy
    given = [torch.zeros(2, *(d if isinstance(d, int) else 1 for d in i.shape[1:])) for i in runner.contract.inputs]
    (tmp_path / "it.pickle").write_bytes(pickle.dumps((runner, copy.deepcopy(policy), policy(*given), feed)))
    script = """
import pickle, sys
import numpy, torch
torch.set_num_threads(1)
with open(sys.argv[1], "rb") as file:
    runner, policy, outputs, feed = pickle.load(file)
assert type(runner.policy) is type(policy) and type(outputs)._fields == type(policy).forward.__globals__["Outputs"]._fields
sys.stdout.buffer.write(runner.act(feed)["continuous_actions"].tobytes())
"""
    command = [sys.executable, "-c", script, str(tmp_path / "it.pickle")]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == runner.act(feed)["continuous_actions"].tobytes()


def test_steps_and_memory_of_agents_in_turn(folders: Mapping[str, Path]) -> None:
    """What is kept for the next step of the same agents is written down before others act, and before a reset."""
    turns, alone = Runner.load(folders["lstm"]), Runner.load(folders["lstm"])
    feeds = [{k: v[n : n + 1] for k, v in observed(turns, 3).items()} for n in range(3)]
    wanted = {n: [alone.act(feeds[n], agents=[n], sample=True) for _ in range(5)] for n in (0, 1, 2)}
    found: dict[int, list[dict[str, Array]]] = {0: [], 1: [], 2: []}
    for n in (0, 0, 1, 2, 1, 0, 2, 2, 1, 0, 1, 2, 0, 1, 2):
        found[n].append(turns.act(feeds[n], agents=[n], sample=True))
    assert all(same(a, b) for n in found for a, b in zip(wanted[n], found[n], strict=True))
    for runner in (turns, alone):
        runner.reset([2])
    first = Runner.load(folders["lstm"]).act(feeds[2])
    assert same(turns.act(feeds[2], agents=[2]), first) and same(alone.act(feeds[2], agents=[2]), first)
    assert not same(turns.act(feeds[0], agents=[0]), Runner.load(folders["lstm"]).act(feeds[0]))  # who wasn't reset remembers


@pytest.mark.parametrize(
    "value",
    [[0.5, 1.0, -2.0, 1e-40], [[0.5, 1.0, -2.0, 1e-40]], np.array([[1, 2, 3, 4]]), np.arange(4.0)[::-1], torch.ones(1, 4)],
    ids=["list", "row", "whole numbers", "backwards", "tensor"],
)
def test_observations_as_they_come(folders: Mapping[str, Path], value: Any) -> None:
    runner = Runner.load(folders["discrete"])
    plain = np.asarray(value, np.float64).reshape(1, 4).astype(np.float32)
    assert same(runner.act({"obs_0": value}), runner.act({"obs_0": plain}))
    large = [3e38, 3e38, -3e38, 3e38]  # whose sum is infinite in float32
    assert runner.act({"obs_0": large})["discrete_actions"].shape == (1, 2)
    for bad in ([1e39, 0, 0, 0], [1.0, float("inf"), float("-inf"), 0], [1.0, float("nan"), 0, 0]):
        with pytest.raises(ObservationError, match="'obs_0'"):
            runner.act({"obs_0": bad})
