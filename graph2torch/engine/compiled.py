"""A policy's step compiled by AOTInductor, torch's ahead-of-time compiler, for one number of agents.

Two ways to compile are tried, and what is faster here is kept: products by the BLAS library that torch has, and products compiled
with the policy, their weights packed for it. Which wins depends on the batch and the machine.
"""

from __future__ import annotations

import copy
import hashlib
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graph2torch.act.contract import Contract
from graph2torch.act.folder import Folder
from graph2torch.errors import EngineError, FolderError, Graph2TorchError
from graph2torch.files import read_file

from . import cache

if TYPE_CHECKING:
    import torch

    from graph2torch.graph import Array

    from .engines import Call

WAYS: Mapping[str, Mapping[str, Any]] = {
    "blas": {},
    "packed": {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP"},
}
ROUNDS = 11


def identity(opened: Folder, threads: int) -> dict[str, Any]:
    """Everything that decides what is compiled and how fast it is, apart from the batch."""
    import onnxruntime
    import torch

    from graph2torch import __version__

    weights = read_file(opened.path / "weights.safetensors", "the weights of a built policy", FolderError)
    return {
        "graph2torch": __version__,
        "torch": torch.__version__,
        "onnxruntime": onnxruntime.__version__,
        "model.py": hashlib.sha256(opened.source.encode()).hexdigest(),
        "weights": hashlib.sha256(weights).hexdigest(),
        "machine": [platform.system(), platform.machine(), torch.backends.cpu.get_cpu_capability(), _processor()],
        "threads": threads,
    }


def _processor() -> str:
    """What tells one processor from another whose instructions are not the same."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    lines = dict.fromkeys(line for line in text.splitlines() if line.startswith(("model name", "flags", "Features", "CPU part")))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def compiled(
    key: Mapping[str, Any],
    policy: Any,
    contract: Contract,
    eager: Call,
    example: Sequence[Array],
    may_compile: bool,
    progress: Callable[[str], None],
) -> Call:
    """The step for inputs (and noise) in the shapes of `example`, from the cache or compiled now. EngineError if it can't be had."""
    import torch

    if not hasattr(torch, "_inductor") or not hasattr(torch._inductor, "aoti_compile_and_package"):
        raise EngineError(f"torch {torch.__version__} has no AOTInductor packages; it takes torch 2.6 or newer")
    shapes = [tuple(a.shape) for a in example]
    if (found := cache.find(key)) is not None:
        return _loaded(found[0], shapes)
    if not may_compile:
        raise EngineError(f"it is not compiled for a batch of {key['batch']:,} yet; `graph2torch bench --compile` does it once")
    arguments = tuple(torch.from_numpy(a) for a in example)
    module = _module(policy, contract, bool(key["sampled"]))
    made: dict[str, bytes] = {}
    problems: list[str] = []
    for way, options in WAYS.items():
        progress(f"compiling for a batch of {key['batch']:,}")
        try:
            made[way] = _made(module, arguments, options)
        except (MemoryError, EngineError):
            raise
        except Exception as error:  # whatever the compiler raises
            problems.append(cache.told(error))
    if not made:
        raise EngineError(f"torch {torch.__version__} can't compile this policy ({problems[0]})")
    best = _fastest({way: _loaded(data, shapes) for way, data in made.items()}, arguments)
    cache.keep(key, made[best], {"way": best})
    return _loaded(made[best], shapes)


def _module(policy: Any, contract: Contract, sampled: bool) -> torch.nn.Module:
    """A copy of the policy whose forward is the step, with its weights by rows, as the compilers' products like them best."""
    import torch

    from .engines import flat

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.policy = copy.deepcopy(policy)
            for layer in self.policy.modules():
                if isinstance(layer, torch.nn.Linear):
                    layer.weight.data = layer.weight.data.contiguous()
            self.call = flat(self.policy, contract, sampled)

        def forward(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(self.call(arguments))

    return Step().eval()


def _made(module: torch.nn.Module, arguments: tuple[torch.Tensor, ...], options: Mapping[str, Any]) -> bytes:
    import torch

    from graph2torch.target.programs import check_compiler, quiet

    try:
        check_compiler()
    except Graph2TorchError as error:
        raise EngineError(str(error)) from None
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache.folder("inductor"))  # torch's own default is a name in /tmp that anybody may take
    try:
        with quiet(), tempfile.TemporaryDirectory(prefix="graph2torch-") as scratch, torch.no_grad():
            file = Path(scratch) / "policy.pt2"
            program = torch.export.export(module, arguments)
            torch._inductor.aoti_compile_and_package(program, package_path=str(file), inductor_configs=dict(options))
            return file.read_bytes()
    finally:
        if before is None:
            del os.environ["TORCHINDUCTOR_CACHE_DIR"]
        else:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = before


def _loaded(data: bytes, shapes: Sequence[tuple[int, ...]]) -> Call:
    """The step from a package's bytes. Compiled code reads as many numbers as it was compiled for, so shapes are looked at here."""
    import torch

    from graph2torch.target.programs import quiet

    try:
        with quiet(), tempfile.TemporaryDirectory(prefix="graph2torch-") as scratch:
            file = Path(scratch) / "policy.pt2"
            file.write_bytes(data)
            package = torch._inductor.aoti_load_package(str(file))
    except Exception as error:
        raise EngineError(f"what was compiled can't be loaded ({cache.told(error)})") from None
    run: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]] | None = getattr(getattr(package, "loader", None), "run", None)

    def call(arguments: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        given = [t if t.is_contiguous() else t.contiguous() for t in arguments]
        if [tuple(t.shape) for t in given] != shapes:
            raise EngineError("it was compiled for other sizes than these")
        # the loader itself: what is around it sorts arguments into trees, 20 µs a step
        return run(given) if run is not None else tuple(package(*given))

    return call


def _fastest(calls: Mapping[str, Call], arguments: Sequence[torch.Tensor]) -> str:
    """The one with the least median, the calls taking turns."""
    import torch

    taken: dict[str, list[float]] = {name: [] for name in calls}
    with torch.inference_mode():
        for call in calls.values():
            call(arguments)
        for _ in range(ROUNDS):
            for name, call in calls.items():
                start = time.perf_counter()
                for _ in range(3):
                    call(arguments)
                taken[name].append(time.perf_counter() - start)
    return min(taken, key=lambda name: statistics.median(taken[name]))
