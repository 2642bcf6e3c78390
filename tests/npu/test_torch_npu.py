"""The real torch_npu, without CANN and on a stand-in for it (stub_cann.c). `make test-npu` runs this in an environment of its own.

Without CANN, the state is the genuine one. On the stand-in, torch_npu's own dispatcher, allocator and checks are at work, and
what they compute with is the host: that shows the use of its interface, and nothing of an NPU's precision or speed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.models import FAMILIES, save_pair, tiny_checkpoint, tiny_policy

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
HUGGY = (ROOT / "assets" / "Huggy.onnx", ROOT / "assets" / "Huggy.pt")
LIBRARIES = ("ascendcl", "acl_op_compiler", "ge_runner", "graph", "hccl", "acl_tdt_channel")
CANN = [name for name in os.environ if name.startswith("ASCEND_")]

pytestmark = pytest.mark.skipif(bool(CANN), reason="CANN is set up in this shell; these tests are about machines without it")

Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with CANN's libraries, each of them the stand-in."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "a C compiler is needed"
    folder = tmp_path_factory.mktemp("cann")
    for name in LIBRARIES:
        flags = ["-O1", "-Wall", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,lib{name}.so"]
        subprocess.run([compiler, *flags, "-o", folder / f"lib{name}.so", HERE / "stub_cann.c", "-lm"], check=True)
    return folder


def python(folder: Path, *arguments: object, **environment: str) -> Done:
    """Python in a process of its own in `folder`, where nothing but `environment` speaks of devices."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("TORCH_DEVICE_BACKEND_AUTOLOAD", "LD_LIBRARY_PATH")}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def bare(tmp_path: Path) -> Command:
    """graph2torch where torch_npu is installed and CANN is not."""
    return lambda *arguments: python(tmp_path, ROOT / "cli.py", *arguments)


@pytest.fixture
def stubbed(tmp_path: Path, libraries: Path) -> Command:
    """graph2torch, or Python (`-c`), on the stand-in with one device."""

    def command(*arguments: object, count: int = 1) -> Done:
        program = () if arguments[0] == "-c" else (ROOT / "cli.py",)
        settings = {"LD_LIBRARY_PATH": str(libraries), "STUB_NPU_COUNT": str(count), "TASK_QUEUE_ENABLE": "0"}
        return python(tmp_path, *program, *arguments, **settings)

    return command


def npu(done: Done) -> dict[str, Any]:
    """What doctor says of npu:0."""
    found: dict[str, Any] = next(d for d in json.loads(done.stdout)["devices"] if d["device"] == "npu:0")
    return found


# ---------------------------------------------------------------------------------------------- without CANN
def test_torch_by_itself_is_broken_without_cann(tmp_path: Path) -> None:
    """Why TORCH_DEVICE_BACKEND_AUTOLOAD=0 is set: torch_npu without CANN takes `import torch` down."""
    done = python(tmp_path, "-c", "import torch")
    assert done.returncode != 0 and "libhccl.so" in done.stderr
    assert python(tmp_path, "-c", "import torch", TORCH_DEVICE_BACKEND_AUTOLOAD="0").returncode == 0


def test_the_cpu_is_unharmed_without_cann(bare: Command, tmp_path: Path) -> None:
    done = bare("build", *HUGGY, "-o", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Equality  graph" in done.stdout and (tmp_path / "out" / "model.py").is_file()
    assert json.loads((tmp_path / "out" / "report.json").read_text())["device"] is None


def test_without_cann_the_npu_is_refused(bare: Command, tmp_path: Path) -> None:
    done = bare("build", *HUGGY, "-o", tmp_path / "out", "--device", "npu")
    assert done.returncode == 3 and not done.stdout
    assert done.stderr.count("\n") == 1 and "libhccl.so is CANN's" in done.stderr and "set_env.sh" in done.stderr
    assert "Nothing was computed on the CPU instead" in done.stderr and not (tmp_path / "out").exists()


def test_doctor_without_cann(bare: Command) -> None:
    done = bare("doctor", "--json")
    assert done.returncode == 0 and npu(done)["state"] == "import-failed" and not npu(done)["simulated"]
    assert json.loads(done.stdout)["healthy"]
    done = bare("doctor", "--device", "npu")
    assert done.returncode == 3 and "npu:0 is NOT usable" in done.stdout and "libhccl.so" in done.stdout


# ---------------------------------------------------------------------------------------------- on the stand-in
def test_doctor_on_the_stand_in(stubbed: Command) -> None:
    done = stubbed("doctor", "--device", "npu", "--json")
    found = npu(done)
    assert done.returncode == 0 and (found["state"], found["simulated"], found["model"]) == ("ready", True, "Ascend910B1")
    assert found["versions"]["torch_npu"] == found["versions"]["torch"].partition("+")[0]


def test_no_device_and_another_number(stubbed: Command) -> None:
    done = stubbed("doctor", "--device", "npu", "--json", count=0)
    assert done.returncode == 3 and npu(done)["state"] == "no-device" and "npu-smi" in npu(done)["message"]
    done = stubbed("build", HUGGY[0], "--device", "npu:1")
    assert done.returncode == 3 and "there is only npu:0" in done.stderr


def test_huggy_is_built_and_run_there(stubbed: Command, tmp_path: Path) -> None:
    done = stubbed("build", *HUGGY, "-o", tmp_path / "out", "--device", "npu", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["level"] == "graph" and told == json.loads((tmp_path / "out" / "report.json").read_text()) | {
        "files": told["files"],
        "output": told["output"],
    }
    device = told["device"]
    assert device["simulated"] and device["within"] and device["name"] == "npu:0"
    assert device["precision"]["npu.conv.allow_hf32"] is False and device["precision"]["npu.matmul.allow_hf32"] is False
    assert device["environment"] == {"TORCH_NPU_FALLBACK_CPU_DISABLE": "1"}
    actions = next(f for f in device["against_cpu"] if f["output"] == "deterministic_continuous_actions")
    assert actions["differing"] > 0, (
        "another order of summing rounds otherwise; equal bits would mean that the CPU was compared with itself"
    )
    page = stubbed("build", *HUGGY, "-o", tmp_path / "out", "--force", "--device", "npu")
    assert page.returncode == 0 and "simulated" in page.stdout


def test_what_the_device_lacks_is_an_error(stubbed: Command, tmp_path: Path) -> None:
    model = tiny_policy(**FAMILIES["discrete"])
    paths = save_pair(tmp_path, model, tiny_checkpoint(model))
    done = stubbed("build", *paths, "-o", tmp_path / "out", "--device", "npu")
    assert done.returncode == 3 and "The device npu:0 can't run this policy" in done.stderr and not (tmp_path / "out").exists()


SCRIPT = """
import json, sys
import torch
sys.path.insert(0, "out")
from graph2torch.devices.device import exact, resolve
import model

device = resolve("npu")
policy, there = model.load(), model.load(device="npu")
obs, z = torch.randn(4, 59), torch.randn(4, 21)
with torch.inference_mode():
    here, far = policy(obs, model.Noise(z)), there(obs.to("npu"), model.Noise(z.to("npu")))
    act = (policy.act(obs) - there.act(obs.to("npu")).cpu()).abs().max().item()
    torch.manual_seed(5)
    drawn = policy(obs).continuous_actions
    torch.manual_seed(5)
    sampled = (drawn - there(obs.to("npu")).continuous_actions.cpu()).abs().max().item()
with exact(device):
    inside = torch.npu.conv.allow_hf32
refused = []
for name, operator in {"topk": lambda: torch.topk(obs.to("npu"), 2), "half": lambda: obs.half().to("npu") + 1}.items():
    try:
        operator()
        device.synchronise()
    except RuntimeError as error:
        refused.append(name)
json.dump({
    "where": sorted({t.device.type for t in (*there.parameters(), *there.buffers(), *far)}),
    "off": max((a - b.cpu()).abs().max().item() for a, b in zip(here, far)),
    "act": act, "sampled": sampled, "simulated": device.simulated, "refused": refused,
    "hf32": [torch.npu.conv.allow_hf32, inside],
}, open("told.json", "w"))
"""


def test_model_py_there(stubbed: Command, bare: Command, tmp_path: Path) -> None:
    """What is kept, model.py, by itself: loading, acting, given noise, and a seed that means the same there."""
    assert bare("build", *HUGGY, "-o", tmp_path / "out").returncode == 0
    done = stubbed("-c", SCRIPT)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["where"] == ["npu"] and told["simulated"]
    assert max(told["off"], told["act"], told["sampled"]) < 1e-5
    assert told["hf32"] == [True, False], "on by default, off while comparing, and on again"
    assert told["refused"] == ["topk", "half"], "nothing goes to the CPU without a word"
