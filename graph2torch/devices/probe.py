"""Whether a device works, told by a process of its own: a broken plugin or driver may abort or hang whoever asks.

not-installed     torch has no such device here, or the package that brings it is missing
import-failed     torch, or that package, can't be loaded
version-mismatch  the package is made for another version of torch
no-device         it loads, but there is no such device, or not of this number
device-failed     a first addition on it failed
wrong-result      a first addition on it gave a wrong sum
crashed           the process died of it
timed-out         the process didn't answer
ready             the addition is right
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from graph2torch.text import one_line, printable

from .cann import set_env
from .kinds import KINDS, Kind

State = Literal[
    "not-installed",
    "import-failed",
    "version-mismatch",
    "no-device",
    "device-failed",
    "wrong-result",
    "crashed",
    "timed-out",
    "ready",
]
TIME_OUT = 120.0  # seconds; a cold start of CANN takes tens of them
MARK = "graph2torch-probe "  # libraries print to stdout, too


@dataclass(frozen=True)
class Status:
    """What a probe found.

    device:    "npu:0"
    detail:    of a failure: the first line of the error, or what was going on; printable
    model:     the device's name for itself
    count:     devices of this kind
    versions:  of torch and of the package that brings the device, as far as they are known
    simulated: it is a stand-in that computes on the CPU, for tests: it says nothing of precision or speed
    """

    device: str
    state: State
    detail: str = ""
    model: str = ""
    count: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    simulated: bool = False

    @property
    def ready(self) -> bool:
        return self.state == "ready"


def probe(kind: Kind, index: int = 0, timeout: float = TIME_OUT) -> Status:
    """The state of one device, after at most `timeout` seconds; whatever it does, it does to a child process."""
    return probe_all([(kind, index)], timeout)[0]


def probe_all(devices: Sequence[tuple[Kind, int]], timeout: float = TIME_OUT) -> list[Status]:
    """The states of several devices that torch has built in, by one process; by one each if that comes to harm."""
    names = [name_of(kind, index) for kind, index in devices]
    answer, harm = ask("graph2torch.devices.probe", [f"{kind.type}:{index}" for kind, index in devices], timeout)
    found = {item["device"]: item for item in answer if "state" in item}
    if not harm and len(found) == len(names):
        return [_status(found[name]) for name in names]
    if len(devices) > 1:
        return [probe(kind, index, timeout) for kind, index in devices]
    if names[0] in found:  # it was done with its work, and ended badly
        return [_status(found[names[0]])]
    stage = next((item["stage"] for item in reversed(answer) if "stage" in item), "starting Python")
    state: State = "timed-out" if harm.startswith("no answer") else "crashed"
    return [Status(names[0], state, f"{harm} while {printable(stage, 60)}")]


def name_of(kind: Kind, index: int = 0) -> str:
    """As torch writes it: cpu, mps, npu:0."""
    return kind.type if kind.type in ("cpu", "mps") else f"{kind.type}:{index}"


def ask(module: str, arguments: Sequence[str], timeout: float) -> tuple[list[dict[str, Any]], str]:
    """Runs `module.answer(arguments)` in a process of its own; what it told, and what became of the process ("" if it ended well).

    The process finds modules where this one does, and not in the current folder.
    """
    start = f"import os, sys; sys.path[:] = sys.argv[1].split(os.pathsep); from {module} import answer; answer(sys.argv[2:])"
    command = [sys.executable, "-c", start, os.pathsep.join(p for p in sys.path if p), *arguments]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:  # not pipes: a grandchild could hold them open
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment)
        try:
            status = process.wait(timeout)
            harm = "" if status == 0 else _death(status)
        except subprocess.TimeoutExpired:
            harm = f"no answer within {timeout:g} s"
        finally:
            if process.poll() is None:
                process.kill()
                with suppress(subprocess.TimeoutExpired):  # in the hands of a driver that hangs
                    process.wait(5)
        out.seek(0)
        lines = out.read().decode("utf-8", "replace").splitlines()
        if harm and status_of_python(harm):
            err.seek(0)
            last = err.read().decode("utf-8", "replace").strip().splitlines()[-1:]
            harm += f" ({one_line(last[0], 200)})" if last else ""
    told = []
    for line in lines:
        if line.startswith(MARK):
            with suppress(ValueError):
                told.append(json.loads(line.removeprefix(MARK)))
    return told, harm


def status_of_python(harm: str) -> bool:
    """Whether the process ended with an exit status, not by a signal or the clock; then its last line says why."""
    return harm.startswith("it ended with")


def _death(status: int) -> str:
    if status >= 0:
        return f"it ended with exit status {status}"
    with suppress(ValueError):
        return f"it was ended by {signal.Signals(-status).name}"
    return f"it was ended by signal {-status}"


def _status(item: Mapping[str, Any]) -> Status:
    """A child's answer; it is as trustworthy as the libraries that it loaded, so it is made printable."""
    versions = {printable(str(k), 40): printable(str(v), 40) for k, v in dict(item.get("versions", {})).items()}
    state: State = item["state"] if item["state"] in get_args(State) else "crashed"
    return Status(
        item["device"],
        state,
        one_line(str(item.get("detail", "")), 240),
        one_line(str(item.get("model", "")), 80),
        int(item.get("count", 0)),
        versions,
        bool(item.get("simulated", False)),
    )


# ---------------------------------------------------------------------------------------------- in words
def explain(status: Status) -> str:
    """What is the matter with the device and what to do about it, in a sentence or two; of one that is ready, its name."""
    kind = KINDS[status.device.partition(":")[0]]
    versions = status.versions
    ours = versions.get("torch", "").partition("+")[0]
    what = kind.package or f"torch {versions.get('torch', '')}".strip()
    fix = kind.remedy.replace("{torch}", ours or "the version of torch")
    if status.state == "ready":
        simulated = ", simulated: it computes on the CPU and says nothing of precision or speed" if status.simulated else ""
        return f"{status.model or kind.words}{simulated}"
    if status.state == "not-installed":
        return f"{lacking(status)}: {fix}."
    if status.state == "import-failed":
        return f"{status.detail}. {_loading(kind, status.detail)}"
    if status.state == "version-mismatch":
        return f"{status.detail}: `pip install {kind.package.replace('_', '-')}=={ours}`."
    if status.state == "no-device":
        if status.count:
            few = f"only {name_of(kind)}" if status.count == 1 else f"only {name_of(kind)} to {name_of(kind, status.count - 1)}"
            return f"there {'is' if status.count == 1 else 'are'} {few}{_hidden(kind)}."
        reason = f" ({status.detail})" if status.detail else ""
        return f"no {kind.words} is found{reason}{_hidden(kind)}: {kind.driver}."
    if status.state == "wrong-result":
        return f"a first addition is wrong: {status.detail}. Don't use it; look after its driver and {what}."
    if status.state == "device-failed":
        return f"a first addition failed: {status.detail}. Another program may hold the device, or its driver may not fit {what}."
    return (
        f"the process that tried it came to harm: {status.detail}. Its driver may not fit {what}; `python -c 'import "
        f"{kind.package or 'torch'}'` shows the whole of it."
    )


def lacking(status: Status) -> str:
    """What isn't there of a device that is not installed."""
    kind = KINDS[status.device.partition(":")[0]]
    return f"{kind.package} is not installed" if kind.package else f"torch {status.versions.get('torch', '')} is built without it"


def _loading(kind: Kind, error: str) -> str:
    library = re.search(r"(lib[\w.+-]+\.so[\w.]*)", error)
    if kind.package and library:
        script = set_env()
        run = f"run `source {script}`" if script else "run `source …/set_env.sh` of CANN's folder"
        return f"{library[1]} is CANN's: {run} in this shell first, or install CANN."
    return f"Install {kind.package or 'torch'} again."


def _hidden(kind: Kind) -> str:
    """What the environment hides; Ascend's variable must ascend, else there is no device at all."""
    value = os.environ.get(kind.visible) if kind.visible else None
    if value is None:
        return ""
    shown = f"; {kind.visible} is '{printable(value, 40)}'"
    numbers = re.findall(r"\d+", value)
    if kind.type == "npu" and [int(n) for n in numbers] != sorted({int(n) for n in numbers}):
        return f"{shown}, and its numbers must ascend"
    return shown


# ---------------------------------------------------------------------------------------------- in the child process
def answer(arguments: Sequence[str]) -> None:
    """Tells the state of each device ("npu:0"), a line each, and before each step what comes next."""
    for argument in arguments:
        type_, _, index = argument.partition(":")
        kind = KINDS[type_]
        found: dict[str, Any] = {"device": name_of(kind, int(index)), "versions": {}}
        found |= _look(kind, int(index), found["versions"])
        tell(found)


def tell(item: Mapping[str, Any]) -> None:
    sys.stdout.write(f"\n{MARK}{json.dumps(item)}\n")
    sys.stdout.flush()


def _look(kind: Kind, index: int, versions: dict[str, str]) -> dict[str, Any]:
    with suppress(importlib.metadata.PackageNotFoundError):
        versions["torch"] = importlib.metadata.version("torch")
    if kind.package:
        if importlib.util.find_spec(kind.package) is None:
            return {"state": "not-installed"}
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[kind.package] = importlib.metadata.version(kind.package)
            if mismatch := _mismatch(kind, versions):
                return mismatch
    tell({"stage": "importing torch"})
    try:
        import numpy as np
        import torch
    except BaseException as error:
        return {"state": "import-failed", "detail": f"torch or numpy can't be loaded: {_first_line(error)}"}
    versions["torch"] = str(torch.__version__)
    simulated = False
    if kind.package:
        tell({"stage": f"importing {kind.package}"})
        for name, value in kind.environment.items():
            os.environ[name] = value
        try:
            package = importlib.import_module(kind.package)
        except BaseException as error:
            return {"state": "import-failed", "detail": f"{kind.package} can't be loaded: {_first_line(error)}"}
        versions[kind.package] = str(getattr(package, "__version__", versions.get(kind.package, "")))
        if mismatch := _mismatch(kind, versions):
            return mismatch
        simulated = is_simulated(package)
    elif not _built_in(torch, kind):
        return {"state": "not-installed"}
    device = name_of(kind, index)
    module: Any = getattr(torch, kind.type, None)
    tell({"stage": f"counting {kind.type} devices"})
    try:
        count = int(module.device_count()) if hasattr(module, "device_count") and kind.type != "cpu" else 1
        if kind.type == "mps" and not torch.backends.mps.is_available():
            count = 0
        if index >= count:
            return {"state": "no-device", "count": count, "detail": _why_none(module) if count == 0 and kind.type == "cuda" else ""}
        tell({"stage": f"adding on {device}"})
        total = (torch.from_numpy(np.array([1, 2, 3, 4], np.float32)).to(device) + 1).cpu()
        if hasattr(module, "synchronize"):
            module.synchronize()
        result = [float(x) for x in total.numpy()]
        if result != [2.0, 3.0, 4.0, 5.0]:
            return {"state": "wrong-result", "count": count, "detail": f"[1, 2, 3, 4] + 1 gave {result}"}
    except BaseException as error:
        return {"state": "device-failed", "detail": _first_line(error), "simulated": simulated}
    model = ""
    with suppress(Exception):
        model = str(module.get_device_name(index)) if kind.type != "cpu" else torch.backends.cpu.get_cpu_capability()
    return {"state": "ready", "count": count, "model": model, "simulated": simulated}


def _mismatch(kind: Kind, versions: Mapping[str, str]) -> dict[str, Any] | None:
    """Such a package works with the torch of its own version only (2.13.0 and 2.13.0.post1 with torch 2.13.0)."""
    ours, theirs = (re.match(r"\d+\.\d+\.\d+", versions.get(name, "")) for name in ("torch", kind.package))
    if ours is None or theirs is None or ours[0] == theirs[0]:
        return None
    told = f"{kind.package} {versions[kind.package]} is made for torch {theirs[0]}, and torch {versions['torch']} is installed"
    return {"state": "version-mismatch", "detail": told}


def _built_in(torch: Any, kind: Kind) -> bool:
    """Whether this build of torch knows the device, be there one or not."""
    if kind.type == "cuda":
        return bool(torch.version.cuda or torch.version.hip)
    if kind.type == "xpu":
        return bool(getattr(torch._C, "_has_xpu", False))
    return kind.type == "cpu" or bool(torch.backends.mps.is_built())


def _why_none(module: Any) -> str:
    try:
        module.current_device()
    except Exception as error:
        return _first_line(error)
    return ""


def is_simulated(package: Any) -> bool:
    """Whether a package that brings a device stands for one: it says so itself, or the libraries below it do."""
    import ctypes

    if getattr(package, "graph2torch_simulated", False):
        return True
    try:
        return hasattr(ctypes.CDLL("libascendcl.so"), "graph2torch_stub_cann")  # loaded already; a library is found by its name
    except OSError:
        return False


def _first_line(error: BaseException) -> str:
    cause = error.__cause__ or error
    lines = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {lines[0] if lines else ''}"[:400]
