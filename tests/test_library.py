"""graph2torch from Python, as somebody writes it who has read no source: devices and precisions by name or as torch has them, a folder of
rules by itself, what is refused. docs/python.md is run by tests/test_docs.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from graph2torch.act.run import Runner
from graph2torch.bench import bench_folder
from graph2torch.build import Build, build, build_policy
from graph2torch.diff.diff import diff
from graph2torch.errors import DeviceError, FolderError, ObservationError, PairError, RuleError, TargetError
from graph2torch.inspect.file import inspect_file
from graph2torch.judge.deep import verify_folder
from graph2torch.selftest.selftest import selftest
from graph2torch.target.target import Target, export_folder
from tests.models import save_pair, tiny_checkpoint, tiny_policy

FAMILY = "def detect(graph):\n    return False\n"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    model = tiny_policy()
    path, checkpoint = save_pair(folder, model, tiny_checkpoint(model))
    assert checkpoint is not None
    return path, checkpoint


@pytest.fixture(scope="module")
def folder(pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("built") / "Tiny"
    build(*pair, target)
    return target


def test_a_device_is_named(pair: tuple[Path, Path], folder: Path) -> None:
    assert build_policy(*pair, device="cpu").on_device is None
    assert verify_folder(folder, device="cpu").on_device is None
    assert Runner.load(folder, device="cpu").device == torch.device("cpu")
    assert Runner.load(folder, device=torch.device("cpu")).device == torch.device("cpu")


@pytest.mark.parametrize("name", ["xpu", "nonsense", "cuda:one"])
def test_a_device_that_is_none_is_refused_wherever_it_is_named(pair: tuple[Path, Path], folder: Path, tmp_path: Path, name: str) -> None:
    if name == "xpu" and hasattr(torch, "xpu") and torch.xpu.is_available():
        pytest.skip("there is one")
    with pytest.raises(DeviceError, match=name):
        build(*pair, tmp_path / "out", device=name)
    assert not (tmp_path / "out").exists()
    for call in (Runner.load, verify_folder, selftest, bench_folder):
        with pytest.raises(DeviceError, match=name):
            call(folder, device=name)


def test_a_precision_is_named_or_torchs(pair: tuple[Path, Path], folder: Path) -> None:
    def halved(dtype: str | torch.dtype) -> Build:
        return build_policy(*pair, dtype=dtype)

    named, torchs = halved("float16"), halved(torch.float16)
    assert named.weights == torchs.weights and named.dtype == torchs.dtype == "float16" and named.halves
    assert Runner.load(folder, dtype=torch.bfloat16).dtype == Runner.load(folder, dtype="bfloat16").dtype == torch.bfloat16
    found = verify_folder(folder, dtype=torch.float16)
    assert found.precision is not None and found.precision.dtype == "float16"


def test_whose_weights_must_be_one_of_two(pair: tuple[Path, Path]) -> None:
    assert build_policy(*pair, weights="onnx").weights_from == "onnx"
    for weights in ("graph", "", None):
        with pytest.raises(PairError, match="'checkpoint' or 'onnx'"):
            build_policy(*pair, weights=weights)  # type: ignore[arg-type]


def test_a_folder_of_rules_by_itself(pair: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "mine" / "mlagents").mkdir(parents=True)
    (tmp_path / "mine" / "mlagents" / "family.py").write_text(FAMILY)
    path, checkpoint = pair
    for rules in (tmp_path / "mine", str(tmp_path / "mine"), (tmp_path / "mine",), [str(tmp_path / "mine")]):
        assert len(build_policy(path, rules=rules).recognised.book.families) == len(build_policy(path).recognised.book.families) + 1
        assert diff(path, path, rules=rules).equal
        assert inspect_file(path, checkpoint, rules)["pair"]["verdict"] == "same"
    with pytest.raises(RuleError, match="nowhere"):
        build_policy(path, rules="nowhere")
    with pytest.raises(RuleError, match="a family itself; give the folder that it lies in"):
        build_policy(path, rules=tmp_path / "mine" / "mlagents")


def test_observations_without_a_name(folder: Path) -> None:
    runner = Runner.load(folder)
    for given in (np.zeros((1, 4), np.float32), torch.zeros(1, 4), [[0.0] * 4], None):
        with pytest.raises(ObservationError, match=r"by the inputs' names.*'obs_0' \[n, "):
            runner.act(given)  # type: ignore[arg-type]


def test_an_exports_format_is_that_of_its_ending(folder: Path, tmp_path: Path) -> None:
    made = export_folder(folder, tmp_path / "tiny.ts", Target())
    assert made.target.kind == "torchscript"
    assert len(torch.jit.load(str(tmp_path / "tiny.ts"))(torch.zeros(2, 4), *[torch.zeros(2, 2)])) == len(made.kept)  # type: ignore[no-untyped-call]
    assert export_folder(folder, tmp_path / "tiny.onnx", Target()).target.kind == "onnx"
    with pytest.raises(TargetError, match="tells no format"):
        export_folder(folder, tmp_path / "tiny", Target())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tiny.onnx", "tiny.ts"]


def test_a_folder_that_was_moved(folder: Path, pair: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "deep" / "Moved")
    with pytest.raises(FolderError, match=r"as seen from the folder, so one of the two was moved; give the \.onnx"):
        verify_folder(tmp_path / "deep" / "Moved")
    assert verify_folder(tmp_path / "deep" / "Moved", pair[0]).equal
