"""Each state of a device, made by packages that behave so; the probe's child finds them where this process would."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from graph2torch.devices.device import resolve
from graph2torch.devices.kinds import KINDS
from graph2torch.devices.probe import State, Status, explain, probe, probe_all
from graph2torch.errors import DeviceError
from tests.commands import check_trouble, run, unsafe

NPU = KINDS["npu"]

# as much of torch as a probe needs, in a fraction of a second
TORCH = """
import types
__version__ = "2.13.0+cpu"
version = types.SimpleNamespace(cuda=None, hip=None)
_C = types.SimpleNamespace(_has_xpu=False)
backends = types.SimpleNamespace(
    mps=types.SimpleNamespace(is_built=lambda: False), cpu=types.SimpleNamespace(get_cpu_capability=lambda: "none")
)

class Tensor:
    wrong = 0
    def __init__(self, values): self.values = values
    def to(self, device): return self
    def __add__(self, other): return Tensor(self.values + other + Tensor.wrong)
    def cpu(self): return self
    def numpy(self): return self.values

from_numpy = Tensor
cpu = types.SimpleNamespace()
"""
PACKAGE = """
import torch, types
__version__ = "2.13.0"
torch.npu = types.SimpleNamespace(
    device_count=lambda: 2, synchronize=lambda: None, get_device_name=lambda i: f"number {i}\\x1b[31m", set_device=lambda i: None
)
"""
Fake = Callable[..., None]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Puts a torch and a torch_npu where the child finds them before the real ones."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delenv(NPU.visible, raising=False)

    def write(package: str | None = PACKAGE, torch: str = TORCH, stated: str = "") -> None:
        (tmp_path / "torch.py").write_text(torch)
        if package is not None:
            (tmp_path / "torch_npu.py").write_text(package)
        if stated:
            (tmp_path / f"torch_npu-{stated}.dist-info").mkdir()
            (tmp_path / f"torch_npu-{stated}.dist-info" / "METADATA").write_text(f"Name: torch_npu\nVersion: {stated}\n")
        for name, version in {"torch": "2.13.0+cpu"}.items():
            (tmp_path / f"{name}-{version}.dist-info").mkdir()
            (tmp_path / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")

    return write


def check(status: Status, state: State, *words: str) -> None:
    told = explain(status)
    assert status.state == state, status
    assert not unsafe(told) and "\n" not in told
    for word in words:
        assert word in told, (word, told)


def test_ready(fake: Fake) -> None:
    fake(PACKAGE + "print('loading …')\n")
    status = probe(NPU, 1)
    check(status, "ready", "number 1")
    assert status.device == "npu:1" and status.count == 2 and not status.simulated
    assert status.versions == {"torch": "2.13.0+cpu", "torch_npu": "2.13.0"}


def test_ready_and_simulated(fake: Fake) -> None:
    fake(PACKAGE + "graph2torch_simulated = True\n")
    status = probe(NPU)
    assert status.simulated
    check(status, "ready", "simulated")


@pytest.mark.skipif(importlib.util.find_spec("torch_npu") is not None, reason="torch_npu is installed here")
def test_not_installed(fake: Fake) -> None:
    fake(None, "raise ImportError('not even looked at')")
    check(probe(NPU), "not-installed", "torch_npu is not installed", "torch-npu==2.13.0", "CANN")


def test_a_build_of_torch_without_the_device(fake: Fake) -> None:
    fake()
    for kind in ("cuda", "xpu", "mps"):
        check(probe(KINDS[kind]), "not-installed", "torch 2.13.0+cpu is built without it")


def test_a_library_is_missing(fake: Fake) -> None:
    fake("raise ImportError('libhccl.so: cannot open shared object file: No such file or directory')")
    check(probe(NPU), "import-failed", "libhccl.so is CANN's", "set_env.sh")


def test_torch_itself_is_broken(fake: Fake) -> None:
    fake(torch="raise OSError('libtorch_cpu.so: file too short\\nmore')")
    check(probe(KINDS["cpu"]), "import-failed", "torch or numpy can't be loaded", "file too short", "Install torch again")


def test_another_version_is_told_before_it_is_loaded(fake: Fake) -> None:
    fake("import os; os.abort()", stated="2.12.0.post1")
    check(probe(NPU), "version-mismatch", "torch_npu 2.12.0.post1 is made for torch 2.12.0", "torch 2.13.0+cpu", "torch-npu==2.13.0")


def test_another_version_that_only_the_package_states(fake: Fake) -> None:
    fake(PACKAGE.replace("2.13.0", "2.14.0"))
    check(probe(NPU), "version-mismatch", "torch_npu 2.14.0", "torch-npu==2.13.0")


def test_no_device(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(PACKAGE.replace("lambda: 2", "lambda: 0"))
    check(probe(NPU), "no-device", "no Ascend NPU is found", "npu-smi info")
    monkeypatch.setenv(NPU.visible, "3,1")
    check(probe(NPU), "no-device", f"{NPU.visible} is '3,1', and its numbers must ascend")


def test_a_number_that_is_too_high(fake: Fake) -> None:
    fake()
    check(probe(NPU, 99), "no-device", "there are only npu:0 to npu:1")


def test_the_driver_fails(fake: Fake) -> None:
    fake(torch=TORCH.replace("def to(self, device): return self", "def to(self, device): raise RuntimeError('error 507033\\nmore')"))
    check(probe(NPU), "device-failed", "RuntimeError: error 507033")


def test_a_wrong_sum(fake: Fake) -> None:
    fake(torch=TORCH.replace("wrong = 0", "wrong = 1"))
    check(probe(NPU), "wrong-result", "[1, 2, 3, 4] + 1 gave [3.0, 4.0, 5.0, 6.0]")


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")
def test_a_crash_says_when(fake: Fake) -> None:
    fake("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    check(probe(NPU), "crashed", "SIGSEGV", "while importing torch_npu")


def test_an_exit_says_its_last_line(fake: Fake) -> None:
    fake("import os, sys; sys.stderr.write('first\\nlast \\x1b[31m words\\n'); sys.stderr.flush(); os._exit(9)")
    check(probe(NPU), "crashed", "exit status 9", "words", "while importing torch_npu")


def test_a_device_that_hangs_is_given_up(fake: Fake) -> None:
    fake("import time; time.sleep(60)")
    check(probe(NPU, timeout=1.0), "timed-out", "no answer within 1 s", "while importing torch_npu")


def test_a_crash_at_the_end_takes_nothing_back(fake: Fake) -> None:
    fake(PACKAGE + "import atexit, os\natexit.register(os._exit, 11)\n")
    check(probe(NPU), "ready", "number 0")


def test_one_that_crashes_hides_no_other(fake: Fake) -> None:
    fake(PACKAGE.replace("device_count=lambda: 2", "device_count=lambda: __import__('os')._exit(5)"))
    npu, cpu = probe_all([(NPU, 0), (KINDS["cpu"], 0)])
    check(npu, "crashed", "while counting npu devices")
    check(cpu, "ready")


def test_the_current_folder_is_no_place_for_modules(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("torch", "torch_npu", "json", "numpy"):
        (elsewhere / f"{name}.py").write_text("raise SystemExit('run from the current folder')")
    monkeypatch.chdir(elsewhere)
    check(probe(NPU), "ready")


def test_the_child_loads_no_device_by_itself(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
    fake(torch="import os\nassert os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] == '0'\n" + TORCH)
    check(probe(NPU), "ready")


def test_what_is_not_usable_is_an_error_and_nothing_else(fake: Fake, tmp_path: Path) -> None:
    """Exit status 3, one paragraph, nothing written; and never the CPU instead."""
    fake("raise ImportError('libhccl.so: \\u202e cannot open shared object file')")
    with pytest.raises(DeviceError, match=r"libhccl\.so is CANN's"):
        resolve("npu")
    result = run("build", tmp_path / "Tiny.onnx", "-o", tmp_path / "out", "--device", "npu")
    check_trouble(result, "npu:0 can't be used", "Nothing was computed on the CPU instead", status=3)
    assert not (tmp_path / "out").exists()
    check_trouble(run("build", tmp_path / "Tiny.onnx", "--device", "gpu"), "'gpu' is no device", status=3)


def test_variables_that_forbid_falling_back(fake: Fake) -> None:
    fake("import os\nassert os.environ['TORCH_NPU_FALLBACK_CPU_DISABLE'] == '1'\n" + PACKAGE)
    check(probe(NPU), "ready")
    assert os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"
