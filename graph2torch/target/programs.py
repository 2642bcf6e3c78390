"""Artefacts of torch: torch.export and AOTInductor packages, TorchScript. Made, loaded again from their bytes, and run.

The policy's draws are inputs of the artefact, behind its observations: standard normal numbers or uniform ones, as `Noise` of
model.py says. So it is a function of its inputs, and who runs it decides where chance comes from.
"""

from __future__ import annotations

import io
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import torch

from graph2torch.dynamo import traced
from graph2torch.errors import TargetError
from graph2torch.graph import Array
from graph2torch.judge.torchside import TorchSide
from graph2torch.spec import PolicySpec
from graph2torch.text import one_line

from .target import Format, Target


class Artefact:
    """The policy in one of torch's formats, loaded again.

    feed, noise: what it is traced with; noise by the graph's value. With a fixed batch in the target it takes no other.
    """

    def __init__(self, side: TorchSide, target: Target, kept: Sequence[str], feed: Mapping[str, Array], noise: Mapping[str, Array]) -> None:
        self.spec, self.kept = side.spec, kept
        self.fields = {field: value for field, value in side.spec.noise.items() if value in noise}
        self.noise = tuple(self.fields)
        rows = next((len(a) for i in side.spec.inputs if (a := feed[i.name]).ndim), 1)
        unused = {f: torch.zeros(_sizes(side.spec, f)) for f in side.spec.noise if f not in self.fields}
        wrapped = _selected(side, kept, self.noise, unused)
        arguments = [np.array(feed[i.name]) for i in side.spec.inputs] + [np.array(noise[v]) for v in self.fields.values()]
        if target.batch is None and rows == 1:  # a batch of one would be taken for a fixed size
            arguments = [np.repeat(a, 2, 0) if self._is_free(k) else a for k, a in enumerate(arguments)]
        free = [target.batch is None and self._is_free(k) for k in range(len(arguments))]
        self.data = _made(target.kind, wrapped, tuple(map(torch.from_numpy, arguments)), free)
        self.loaded = _loaded(target.kind, self.data)

    def _is_free(self, place: int) -> bool:
        if place >= len(self.spec.inputs):
            return True
        shape = self.spec.inputs[place].shape
        return bool(shape) and not isinstance(shape[0], int)

    def filled(self, noise: Mapping[str, Array]) -> dict[str, Array]:
        """`noise`, with zeros for what the artefact doesn't draw."""
        return {v: noise[v] if v in noise else np.zeros(_sizes(self.spec, f), np.float32) for f, v in self.spec.noise.items()}

    def run(self, feed: Mapping[str, Array], noise: Mapping[str, Array]) -> list[Array]:
        """The kept outputs. TargetError if the artefact doesn't run."""
        arguments = [torch.from_numpy(np.array(feed[i.name])) for i in self.spec.inputs]
        arguments += [torch.from_numpy(np.array(noise[v])) for v in self.fields.values()]
        try:
            with torch.inference_mode():
                return [t.detach().cpu().numpy() for t in self.loaded(*arguments)]
        except MemoryError:
            raise
        except Exception as error:
            raise TargetError(
                f"What torch {torch.__version__} wrote can't be run again ({type(error).__name__}: {one_line(str(error), 200)}); "
                "fix the number of agents with --batch, or choose another --format."
            ) from None


def _sizes(spec: PolicySpec, field: str) -> tuple[int, ...]:
    """Those of a field of Noise for one agent, which stands for any number."""
    shape = next(d.shape for d in spec.draws() if d.field == field)
    return () if shape is None else tuple(d if isinstance(d, int) else 1 for d in shape)


def _selected(side: TorchSide, kept: Sequence[str], drawn: Sequence[str], unused: Mapping[str, torch.Tensor]) -> torch.nn.Module:
    """The policy with observations and noise as arguments, and the kept outputs as a plain tuple."""
    count = len(side.spec.inputs)
    places = [i for i, o in enumerate(side.spec.outputs) if o.name in kept]
    fields, make = tuple(side.spec.noise), side.globals.get("Noise")

    class Selected(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.policy = side.module

        def forward(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
            noise = {**unused, **dict(zip(drawn, arguments[count:], strict=True))}
            options = {"noise": make(*(noise[f] for f in fields))} if fields and make is not None else {}
            outputs = tuple(self.policy(*arguments[:count], **options))
            return tuple(outputs[i].clone() for i in places)  # an output may be a constant, or an input itself

    return Selected().eval()


def _made(kind: Format, module: torch.nn.Module, arguments: tuple[torch.Tensor, ...], free: Sequence[bool]) -> bytes:
    """The artefact's bytes. TargetError if torch can't make it."""
    with quiet(), tempfile.TemporaryDirectory(prefix="graph2torch-") as scratch:
        file = Path(scratch) / "policy.pt2"
        try:
            if kind == "torchscript":
                with torch.no_grad():
                    torch.jit.save(torch.jit.trace(module, arguments, check_trace=False), str(file))  # type: ignore[no-untyped-call]
            else:
                batch = torch.export.Dim("batch")
                shapes = (tuple({0: batch} if f else None for f in free),) if any(free) else None
                program = traced(module, arguments, shapes)
                if kind == "torch-export":
                    torch.export.save(program, str(file))
                else:
                    check_compiler()
                    torch._inductor.aoti_compile_and_package(program, package_path=str(file))
            return file.read_bytes()
        except (TargetError, MemoryError):
            raise
        except Exception as error:
            raise TargetError(
                f"torch {torch.__version__} can't write this policy as {kind} ({type(error).__name__}: {one_line(str(error), 200)}); "
                f"{'fix the number of agents with --batch, or ' if any(free) else ''}choose another --format."
            ) from None


def check_compiler() -> None:
    """TargetError if AOTInductor would find no C++ compiler, or torch has no AOTInductor."""
    if not hasattr(torch._inductor, "aoti_compile_and_package"):
        raise TargetError(f"torch {torch.__version__} has no AOTInductor packages; install torch 2.6 or newer, or choose another --format.")
    named = os.environ.get("CXX", "")
    if shutil.which(named.split()[0]) is None if named.split() else not any(map(shutil.which, ("g++", "clang++", "cl"))):
        raise TargetError(
            f"AOTInductor compiles C++, and there is no compiler{' called ' + one_line(named, 60) if named else ''}; install g++ (or set CXX), "
            "or choose --format torch-export."
        )


def _loaded(kind: Format, data: bytes) -> Callable[..., Sequence[torch.Tensor]]:
    """The artefact from its bytes, as whoever gets the file loads it."""
    try:
        with quiet():
            if kind == "torchscript":
                script: Callable[..., Sequence[torch.Tensor]] = torch.jit.load(io.BytesIO(data))  # type: ignore[no-untyped-call]
                return script
            if kind == "torch-export":
                return torch.export.load(io.BytesIO(data)).module()
            with tempfile.TemporaryDirectory(prefix="graph2torch-") as scratch:
                file = Path(scratch) / "policy.pt2"
                file.write_bytes(data)
                package: Callable[..., Sequence[torch.Tensor]] = torch._inductor.aoti_load_package(str(file))
                return package
    except MemoryError:
        raise
    except Exception as error:
        raise TargetError(
            f"What torch {torch.__version__} wrote as {kind} can't be loaded again ({type(error).__name__}: {one_line(str(error), 200)}); "
            "choose another --format."
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    """torch's own warnings and logs are not for who exports."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # torch's loggers have handlers and levels of their own
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
