"""What doctor says, and its exit status: of this machine, and of one where things are wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from graph2torch.devices import doctor
from graph2torch.devices.kinds import Kind
from graph2torch.devices.probe import Status
from graph2torch.devices.providers import CPU, Provider, examine_providers
from tests.commands import check_trouble, run, unsafe

READY = Status("cpu", "ready", count=1)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine of which everything is known: its devices by name, its providers, its packages."""
    here: dict[str, Any] = {
        "cpu": READY,
        "providers": ([Provider(CPU, True)], ""),
        "packages": (doctor.Package("torch", "2.13.0", "2.1", True),),
        "runtimes": [],
    }

    def probe(kind: Kind, index: int, timeout: float) -> Status:
        name = kind.type if kind.type in ("cpu", "mps") else f"{kind.type}:{index}"
        found: Status = here.get(name, Status(name, "not-installed"))
        return found

    monkeypatch.setattr(doctor, "probe", probe)
    monkeypatch.setattr(doctor, "probe_all", lambda devices, timeout: [probe(k, i, timeout) for k, i in devices])
    monkeypatch.setattr(doctor, "examine_providers", lambda timeout: here["providers"])
    monkeypatch.setattr(doctor, "examine_packages", lambda: here["packages"])
    monkeypatch.setattr(doctor, "runtimes", lambda: here["runtimes"])
    return here


def test_this_machine() -> None:
    """The CPU's addition, and onnxruntime's, are really done."""
    result = run("doctor", "--json")
    found = json.loads(result.out)
    assert result.status == 0 and not result.err and found["healthy"] and found["usable"]
    states = {d["device"]: d["state"] for d in found["devices"]}
    assert set(states) == {"cpu", "npu:0", "cuda:0", "xpu:0", "mps"} and states["cpu"] == "ready"
    assert {p["name"]: p["obtained"] for p in found["onnxruntime"]}[CPU]
    versions = {p["name"]: p for p in found["packages"]}
    assert versions["torch"]["version"] and all(p["fits"] for p in versions.values())


def test_the_page(machine: dict[str, Any]) -> None:
    machine["npu:0"] = Status("npu:0", "ready", model="Ascend910B3", simulated=True, versions={"torch_npu": "2.13.0"})
    machine["providers"] = ([Provider("CANNExecutionProvider", False, "it leaves the addition to the CPU"), Provider(CPU, True)], "")
    result = run("doctor", "--device", "npu")
    assert result.status == 0 and not result.err and not unsafe(result.out)
    page = " ".join(result.out.split())
    for words in (
        "npu:0 ready",
        "simulated",
        "CANNExecutionProvider NOT OBTAINED it leaves",
        "npu:0 works, simulated",
        "cuda:0 not-installed",
    ):
        assert words in page, words


def test_the_device_asked_for_must_work(machine: dict[str, Any]) -> None:
    machine["npu:0"] = Status("npu:0", "crashed", "it was ended by SIGSEGV while importing torch_npu")
    assert run("doctor").status == 0
    result = run("doctor", "--device", "npu")
    assert result.status == 3 and "npu:0 is NOT usable" in result.out and "SIGSEGV" in result.out
    assert run("doctor", "--device", "cuda:1").status == 3
    assert run("doctor", "--device", "cpu").status == 0
    check_trouble(run("doctor", "--device", "cpu:1"), "only one cpu", status=3)
    found = doctor.examine("npu:0")
    assert found.healthy and not found.usable and len(found.problems) == 1


def test_another_number_of_a_device(machine: dict[str, Any]) -> None:
    machine["cuda:0"] = machine["cuda:3"] = Status("cuda:0", "ready", count=4)
    machine["cuda:3"] = replace(machine["cuda:3"], device="cuda:3")
    found = doctor.examine("cuda:3")
    assert found.usable and found.asked == "cuda:3" and found.exit_status == 0
    assert [s.device for s in found.devices].count("cuda:3") == 1


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("cpu", Status("cpu", "import-failed", "torch or numpy can't be loaded: OSError: x"), "torch doesn't work on the CPU"),
        ("providers", ([], "onnxruntime can't be loaded: ImportError: DLL"), "judges every build"),
        ("providers", ([Provider(CPU, False, "Fail: x")], ""), "Fail: x"),
        ("providers", ([Provider("CUDAExecutionProvider", True)], ""), f"lists no {CPU}"),
        ("packages", (doctor.Package("onnx", "1.12.0", "1.14", False),), "onnx 1.12.0 is installed, and 1.14 or newer is needed"),
        ("packages", (doctor.Package("onnx", "", "1.14", False),), "onnx is not installed"),
        ("runtimes", ["onnxruntime", "onnxruntime-gpu"], "overwrite each other"),
    ],
)
def test_what_is_wrong_on_the_cpu(machine: dict[str, Any], key: str, value: Any, words: str) -> None:
    machine[key] = value
    found = doctor.examine()
    assert not found.healthy and found.exit_status in (2, 3)
    assert len(found.problems) == 1 and words in found.problems[0]
    result = run("doctor")
    assert result.status == 2 and "something is wrong on the CPU" in result.out
    assert json.loads(run("doctor", "--json").out)["problems"] == list(found.problems)


def test_versions() -> None:
    found = {p.name: p for p in doctor.examine_packages()}
    assert found["torch"].oldest == "2.1" and found["torch"].fits
    assert not found["torch_npu"].oldest and found["torch_npu"].fits
    assert doctor._numbers("2.13.0+cpu") == (2, 13) and doctor._numbers("1.9") < doctor._numbers("1.14") and doctor._numbers("2.0") >= (2,)


def test_a_provider_that_hands_its_work_on_is_not_obtained() -> None:
    providers, trouble = examine_providers(60)
    assert not trouble and CPU in {p.name for p in providers if p.obtained}
    assert all(p.detail for p in providers if not p.obtained)
