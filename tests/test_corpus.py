"""Over a corpus of pairs, where GRAPH2TORCH_CORPUS tells of one: inner values, origins, inert nodes, the lifted model.

A folder of the corpus's `generated` part holds a pair and what its maker knows of it: graph.json says which tensor of
the checkpoint each initializer is, reference.npz holds inner values of ML-Agents' own policy.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph2torch.act.run import Runner
from graph2torch.bind import Binding
from graph2torch.build import Build, build, build_policy
from graph2torch.errors import Graph2TorchError
from graph2torch.graph import load
from graph2torch.judge.divergence import first_divergence
from graph2torch.module import build_module
from graph2torch.recognise import recognise
from tests.drawing import check_drawing
from tests.faults import plant
from tests.inert import check_inert
from tests.lifting import check_lifting
from tests.pages import check_page

ROOT = Path(os.environ.get("GRAPH2TORCH_CORPUS", ""))
CORPUS = bool(os.environ.get("GRAPH2TORCH_CORPUS"))
GENERATED = sorted(path.parent for path in (ROOT / "generated").rglob("graph.json")) if CORPUS else []
MODELS = sorted(ROOT.rglob("*.onnx")) if CORPUS else []
REFERENCES = [folder for folder in GENERATED if folder.parent.name.startswith("a_")]

pytestmark = pytest.mark.skipif(not CORPUS, reason="GRAPH2TORCH_CORPUS is not set")


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


def pair(folder: Path) -> Build:
    return build_policy(next(folder.glob("*.onnx")), next(folder.glob("*.pt")))


# ---------------------------------------------------------------------------------------------- divergence
@pytest.mark.parametrize("path", MODELS, ids=label)
def test_a_planted_fault_is_found_at_its_node(path: Path) -> None:
    """One fault a model, of a kind and at a place that its name decides."""
    try:
        model = load(path)
    except Graph2TorchError:
        pytest.skip("refused")
    fault = plant(model.proto, np.random.default_rng(list(label(path).encode())))
    if fault is None:
        pytest.skip("the model has no place for the kind that was drawn")
    found = first_divergence(model, fault.model, blocks=())
    assert found is not None and found.node is not None, fault.words
    assert found.twin is not None and found.twin.index == fault.node, fault.words  # its counterpart may be merged with an equal node
    assert first_divergence(model, model, blocks=()) is None


# ---------------------------------------------------------------------------------------------- inner values
@pytest.mark.parametrize("folder", REFERENCES, ids=label)
def test_inner_values_are_those_of_the_training(folder: Path) -> None:
    """Encoding, mu, std and logits of the rebuilt module against ML-Agents' own policy, on the reference's 64 observations."""
    made = pair(folder)
    with np.load(folder / "reference.npz") as archive:
        reference = {key: archive[key] for key in archive.files}
    found = inner_values(made, reference)
    wanted = {key.removeprefix("torch_"): value for key, value in reference.items()}
    names = {name for name in wanted if re.fullmatch(r"encoding|mu|std|logits_\d+", name)}
    assert "encoding" in names and len(names) > 1
    assert set(found) == names
    for name in names:
        apart = np.abs(found[name].astype(np.float64) - wanted[name]) / np.maximum(1, np.abs(wanted[name]))
        assert found[name].shape == wanted[name].shape
        assert apart.max() < 1e-5, f"{name} is off by {apart.max()}"


def inner_values(made: Build, reference: dict[str, Any]) -> dict[str, Any]:
    """What `policy.distribution` makes its distributions of, and what the heads read."""
    import torch

    policy = build_module(made.source, made.bindings)
    module = type(policy).distribution.__globals__  # type: ignore[attr-defined] # the emitted module's own
    found: dict[str, Any] = {}

    def heard(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        found["encoding"] = inputs[0].numpy()

    heads = [layer for name, layer in policy.named_children() if re.fullmatch(r"mu|branch_\d+", name)]
    hooks = [head.register_forward_pre_hook(heard) for head in heads]

    def branches(*logits: torch.Tensor) -> None:  # torch's Categorical would shift them
        found.update({f"logits_{i}": values.numpy() for i, values in enumerate(logits)})

    module["Branches"], kept = branches, module.get("Branches")
    module["Hybrid"], kept_hybrid = lambda continuous, _: continuous, module.get("Hybrid")
    with torch.no_grad():
        distribution = policy.distribution(*(torch.from_numpy(reference[f"in_{i.name}"]) for i in made.spec.inputs))  # type: ignore[operator]
    module["Branches"], module["Hybrid"] = kept, kept_hybrid
    for hook in hooks:
        hook.remove()
    if distribution is not None:
        found["mu"], found["std"] = distribution.base_dist.loc.numpy(), distribution.base_dist.scale.numpy()
    return found


# ---------------------------------------------------------------------------------------------- origins
@pytest.mark.parametrize("folder", GENERATED, ids=label)
def test_every_parameter_comes_from_where_the_graph_says(folder: Path) -> None:
    """Each parameter's key is the one that its initializer was made of, and that the graph calls it by where it is used."""
    made = pair(folder)
    graph = json.loads((folder / "graph.json").read_text())
    sources = {name: source for name, _, _, source in graph["initializers"]}
    same = {outputs[0]: inputs[0] for op, _, inputs, outputs, _ in graph["nodes"] if op == "Identity"}
    checkpoint = made.bindings.checkpoint
    assert checkpoint is not None
    keys = {once(key) for key in checkpoint.tensors}
    bound = {b.path: b for b in made.bindings.tensors}
    uses = 0
    direct = Counter(name for _, _, inputs, _, _ in graph["nodes"] for name in inputs)
    for block in made.spec.blocks:
        operands = [name for index in block.nodes for name in graph["nodes"][index][2]]
        for parameter in block.parameters:
            binding = bound[made.spec.parameter_path(block, parameter)]
            assert binding.key is not None and binding.agrees, binding.path
            names = {name for name in operands if initializer(name, same) == binding.initializer}
            named = {once(name) for name in names if once(name) in keys and (name in same or direct[name] == 1)}  # others are shared
            assert once(binding.key) in (named or {once(binding.key)}), (binding.path, binding.key, named)
            assert binding.initializer is not None
            check_source(binding, sources[initializer(binding.initializer, same)], checkpoint.tensors)
            uses += 1
        if block.statistics:
            std = bound[f"{made.spec.module_path(block)}.std"]
            assert std.initializer is not None and std.key is not None and "sqrt" in std.transform
            source = sources[initializer(std.initializer, same)]
            assert once(std.key) in once(source) or equal(std.key, source, checkpoint.tensors), (std.key, source)
    assert uses >= 4


def once(key: str) -> str:
    """ML-Agents registers its encoders under two names; this is the longer one."""
    return re.sub(r"network_body\.(processors\.)", r"network_body.observation_encoder.\1", key)


def initializer(name: str, same: dict[str, str]) -> str:
    while name in same:
        name = same[name]
    return name


def check_source(binding: Binding, source: str, tensors: dict[str, Any] | Any) -> None:
    """graph.json's word for an initializer: a key (`= key` under another name), T(key), or iofc(key) of an LSTM."""
    assert binding.key is not None
    key = binding.key
    if once(key) not in once(source):  # equal tensors are one initializer, and graph.json names the first of them
        assert equal(key, source, tensors), (binding.path, key, source)
    transforms = {"T(": "transposed", "iofc(": "gates"}
    wanted = next((words for start, words in transforms.items() if source.startswith(start)), "as is")
    if once(key) in once(source):
        assert wanted in binding.transform, (binding.path, binding.transform, source)


def equal(key: str, source: str, tensors: Any) -> bool:
    """Whether the tensor that graph.json names holds the same numbers."""
    named = re.findall(r"[\w.]+\.[\w.]+", source)
    return any(np.array_equal(tensors[key], tensors[name]) for name in named if name in tensors)


# ---------------------------------------------------------------------------------------------- acting
@pytest.mark.parametrize("folder", GENERATED, ids=label)
def test_acting_gives_what_the_trainers_runtime_gave(folder: Path, tmp_path: Path) -> None:
    """Deterministic actions and memory against the reference's; samples are the same bits in one batch, in two and one by one."""
    build(next(folder.glob("*.onnx")), next(folder.glob("*.pt")), tmp_path / "out")
    html = (tmp_path / "out" / "report.html").read_text("utf-8")
    check_page(html)
    assert len(html) < 2**20
    runner = Runner.load(tmp_path / "out", group=1)
    with np.load(folder / "reference.npz") as archive:
        reference = {key: archive[key] for key in archive.files}
    feed = {i.name: reference[f"in_{i.name}"] for i in runner.contract.inputs if f"in_{i.name}" in reference}
    memory = next((i for i in runner.contract.inputs if i.kind == "memory"), None)
    acted = runner.act(feed)
    assert acted
    compared = 0
    for name, found in acted.items():
        wanted = reference.get(f"ort_deterministic_{name}")
        if wanted is not None:
            assert found.shape == wanted.shape
            assert np.abs(found - wanted).max() <= 1e-5 * max(1, np.abs(wanted).max()), name
            compared += 1
    assert compared == len(acted) or not any(key.startswith("ort_deterministic") for key in reference)
    if memory and memory.next:  # the second step goes on from the memory that the first one left
        again = runner.act({name: value for name, value in feed.items() if name != memory.name})
        given = Runner.load(tmp_path / "out", group=1).act(feed | {memory.name: reference[f"ort_{memory.next}"]})
        for name, found in again.items():
            apart = np.abs(found.astype(np.float64) - given[name].astype(np.float64))
            assert apart.max() <= 1e-4 * max(1, np.abs(found).max()), name
    if runner.contract.draws:
        parts = [Runner.load(tmp_path / "out", group=1) for _ in range(3)]
        whole = parts[0].act(feed, sample=True, seed=5)
        halves = [parts[1].act({k: v[rows] for k, v in feed.items()}, sample=True, seed=5, agents=range(64)[rows]) for rows in HALVES]
        ones = [parts[2].act({k: v[i : i + 1] for k, v in feed.items()}, sample=True, seed=5, agents=[i]) for i in reversed(range(64))]
        for name, value in whole.items():
            assert np.concatenate([half[name] for half in halves]).tobytes() == value.tobytes(), name
            assert np.concatenate([one[name] for one in ones[::-1]]).tobytes() == value.tobytes(), name


HALVES = (slice(0, 20), slice(20, 64))


# ---------------------------------------------------------------------------------------------- inert nodes
@pytest.mark.parametrize("path", MODELS, ids=label)
def test_inert_nodes_do_nothing(path: Path) -> None:
    try:
        recognised = recognise(path)
    except Graph2TorchError as refusal:
        pytest.skip(str(refusal))
    check_inert(recognised)


# ---------------------------------------------------------------------------------------------- lifted.onnx
@pytest.mark.parametrize("path", MODELS, ids=label)
def test_the_lifted_model_is_valid_bit_equal_and_inlined_the_original(path: Path) -> None:
    try:
        recognised = recognise(path)
    except Graph2TorchError as refusal:
        pytest.skip(str(refusal))
    check_lifting(recognised)


# ---------------------------------------------------------------------------------------------- TensorBoard's graph
@pytest.mark.parametrize("path", MODELS, ids=label)
def test_tensorboards_graph_has_every_operator_in_its_block(path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs tensorboard")
    try:
        spec = recognise(path).spec
    except Graph2TorchError as refusal:
        pytest.skip(str(refusal))
    check_drawing(spec)
