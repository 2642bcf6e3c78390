"""The main job: a graph and a checkpoint become a readable torch module, proved equal, in a folder of its own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from safetensors.numpy import save

from . import __version__
from .bind import Bindings, Weights, bind, check_weights
from .canonical import canonicalise
from .checkpoint import Checkpoint, load_checkpoint
from .emit import Provenance, emit
from .errors import ModelError, PairError, UnsupportedGraph
from .files import check_input, deferred, where
from .graph import Array, Graph, check_memory, read_graph
from .lifted import check_lifted, lifted
from .output import check_output, staged
from .pair import Pair, judge, with_match
from .precisions import PRECISIONS, check_dtype
from .recognise import MAX_BUILT, Recognised, recognise, unbuildable
from .rulebook import Rules
from .spec import PolicySpec
from .text import printable

if TYPE_CHECKING:
    import torch

    from .devices.device import Device
    from .devices.on_device import DeviceCheck
    from .judge.causes import Cause
    from .judge.divergence import Divergence
    from .judge.precision import PrecisionCheck
    from .judge.verify import Verification

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Build:
    """What a build made: the source, the weights, the re-exported graph, the original with a function a block, how equal it is, and why.

    on_device: the same policy on another device than the CPU, where one was asked for
    dtype:     of the layers' weights as they are written, and as model.py loads them
    halves:    the tensors that are written in half precision; precision: what that does, against float32 and the original
    threads:   of torch, on the CPU
    """

    recognised: Recognised
    bindings: Bindings
    source: str
    weights: bytes
    rebuilt: onnx.ModelProto
    lifted: onnx.ModelProto
    verification: Verification
    pair: Pair
    weights_from: Weights = "checkpoint"
    witness: Mapping[str, Any] = field(default_factory=dict)
    divergence: Divergence | None = None
    causes: tuple[Cause, ...] = ()
    on_device: DeviceCheck | None = None
    dtype: str = PRECISIONS[0]
    halves: frozenset[str] = frozenset()
    precision: PrecisionCheck | None = None
    threads: int = 1

    @property
    def spec(self) -> PolicySpec:
        return self.recognised.spec

    @property
    def equal(self) -> bool:
        """Whether exit status 0 is due.

        It is if the rebuilt graph is bit-equal, the pair is one unless the graph's weights were asked for, a device that was
        asked for gives the same within the tolerance, and half precision that was asked for is good enough.
        """
        from .judge.verify import EQUAL

        apart = self.weights_from == "checkpoint" and self.pair.verdict in ("drift", "other step")
        off = self.on_device is not None and not self.on_device.within
        good = self.precision is None or self.precision.good
        return self.verification.level in EQUAL and not apart and not off and good


def build_policy(
    onnx_path: str | Path,
    checkpoint_path: str | Path | None = None,
    *,
    weights: Weights = "checkpoint",
    rules: Rules = (),
    device: Device | str | None = None,
    dtype: str | torch.dtype = PRECISIONS[0],
    threads: int | None = None,
    progress: Progress = lambda _: None,
) -> Build:
    """Rebuilds the policy in memory and verifies it (the quick tier), on `device` as well if it is another than the CPU; nothing is written.

    weights: "checkpoint", or "onnx" for the graph's; device: "npu", "cuda:1" …, or one that `devices.device.resolve` gave
    dtype: of the layers' weights in weights.safetensors: "float32", "float16" or "bfloat16". What is proved is the float32 network
    threads: of torch on the CPU, by default one

    Raises Graph2TorchError: the files can't be read, the graph holds operators that no rule explains, the checkpoint
    is of another network and `weights` isn't "onnx", or the device can't run the policy.
    """
    from .devices.device import asked_for

    dtype = check_dtype(dtype)
    check_weights(weights)
    device = asked_for(device)
    progress(f"reading {where(Path(onnx_path))}")
    recognised = recognise(onnx_path, rules, MAX_BUILT)
    if recognised.spec.unexplained:
        raise UnsupportedGraph(unbuildable(recognised))
    checkpoint = None
    if checkpoint_path is not None:
        progress(f"reading {where(Path(checkpoint_path))}")
        _, family, _ = recognised.book.family(recognised.spec.graph)
        checkpoint = load_checkpoint(checkpoint_path, family.policy_module())
    return rebuild(recognised, checkpoint, weights, progress, device=device, dtype=dtype, threads=threads)


def rebuild(
    recognised: Recognised,
    checkpoint: Checkpoint | None = None,
    weights: Weights = "checkpoint",
    progress: Progress = lambda _: None,
    samples: Sequence[Mapping[str, Array]] = (),
    device: Device | None = None,
    dtype: str = PRECISIONS[0],
    threads: int | None = None,
) -> Build:
    """From a policy that was recognised to one that is built, exported and verified, all in memory.

    samples: inputs that make sense, where made-up ones don't (a shape, the places that a Gather picks)
    """
    from .devices.device import threads as on_threads
    from .export import export
    from .judge.isomorphism import align
    from .judge.runtime import check_accepted
    from .judge.verify import EQUAL, verify
    from .judge.witness import witness
    from .module import build_module

    spec = recognised.spec
    _, family, _ = recognised.book.family(spec.graph)
    try:
        bindings = bind(spec, checkpoint, weights)
    except PairError as error:
        raise with_match(error, spec, recognised.model.path, checkpoint) from None
    pair = judge(spec, family, recognised.model.path, bindings)
    source = emit(spec, replace(_provenance(recognised, checkpoint, bindings, family.policy_module()), dtype=dtype))
    check_memory(recognised.model.proto, where(recognised.model.path))
    tensors = {b.path: np.ascontiguousarray(b.value).reshape(b.value.shape) for b in bindings.tensors}
    data, halves, precision = None, frozenset[str](), None
    with on_threads(threads) as count:
        module = build_module(source, bindings)
        progress("exporting")
        try:
            rebuilt = export(module, spec, example=samples[0] if samples else None)
        except UnsupportedGraph:
            check_accepted(recognised.model.proto)  # what onnxruntime refuses as well is no fault of torch's
            raise
        progress("verifying")
        copy = canonicalise(read_graph(rebuilt, "rebuilt.onnx"))
        alignment = align(spec.graph, copy)
        same_file = hashlib.sha256(rebuilt.SerializeToString()).hexdigest() == recognised.model.sha256
        verification = verify(recognised.model.proto, rebuilt, spec, alignment, module, same_file, samples=samples)
        divergence, causes = (None, ()) if verification.level in EQUAL else parting(recognised, rebuilt, copy, samples)
        on_device = None
        if device is not None and device.kind.type != "cpu":
            from .devices.on_device import check_on_device

            progress(f"running on {device.name}")
            on_device = check_on_device(recognised.model.proto, module, spec, device, verification.seed, samples, threads=threads)
        if dtype != PRECISIONS[0]:
            progress(f"rounding to {dtype}")
            data, halves, precision = _rounded(recognised, source, module, dtype, device, verification.seed)
    architecture = lifted(spec, recognised.model.proto, recognised.book)
    check_lifted(architecture, spec, recognised.model.proto)
    found = witness(alignment, spec.graph, copy)
    return Build(
        recognised,
        bindings,
        source,
        data or save(tensors),
        rebuilt,
        architecture,
        verification,
        pair,
        weights,
        found,
        divergence,
        causes,
        on_device,
        dtype,
        halves,
        precision,
        count,
    )


def _rounded(
    recognised: Recognised, source: str, module: torch.nn.Module, dtype: str, device: Device | None, seed: int
) -> tuple[bytes, frozenset[str], PrecisionCheck]:
    """weights.safetensors with the layers' weights in half precision, which tensors that are, and how the policy fares that loads it.

    module: the float32 network
    """
    import safetensors.torch
    import torch

    from .devices.device import cpu
    from .devices.on_device import moved
    from .judge.observations import ordinary
    from .judge.precision import Half, check_precision, with_rounding
    from .judge.torchside import TorchSide
    from .module import load_module, rounded

    state = {name: tensor.contiguous() for name, tensor in rounded(module, dtype).state_dict().items()}
    data = safetensors.torch.save(state)
    written = load_module(source, safetensors.torch.load(data), dtype)
    place = device or cpu()
    exact, half = TorchSide(moved(module, place), recognised.spec, place.name), Half(moved(written, place), recognised.spec, place.name)
    cases = ordinary(recognised.spec, seed)
    check = check_precision(recognised.model.proto, exact, half, dtype, recognised.spec, cases, seed)
    halves = frozenset(name for name, tensor in state.items() if tensor.dtype == getattr(torch, dtype))
    return data, halves, with_rounding(check, written, module, state, dtype)


def parting(
    recognised: Recognised, rebuilt: onnx.ModelProto, copy: Graph, samples: Sequence[Mapping[str, Array]] = ()
) -> tuple[Divergence | None, tuple[Cause, ...]]:
    """Where the rebuilt graph, `copy` in its canonical form, parts from the original, and the likely causes."""
    from .judge.causes import likely_causes
    from .judge.correspondence import correspond
    from .judge.divergence import first_divergence
    from .judge.observations import SEED, like

    found = correspond(recognised.spec.graph, copy)
    feeds = [(case.label, case.feed) for case in like(samples, SEED)] if samples else None
    divergence = first_divergence(recognised.model, rebuilt, feeds, found=found, blocks=recognised.spec.blocks)
    return divergence, likely_causes(recognised.spec.graph, copy, found, divergence) if divergence else ()


def build(
    onnx_path: str | Path,
    checkpoint_path: str | Path | None = None,
    output: str | Path | None = None,
    *,
    force: bool = False,
    weights: Weights = "checkpoint",
    rules: Rules = (),
    device: Device | str | None = None,
    dtype: str | torch.dtype = PRECISIONS[0],
    threads: int | None = None,
    progress: Progress = lambda _: None,
) -> Build:
    """`build_policy`, written to the folder `output` (default: the .onnx file's name without its ending).

    The folder appears whole or not at all. Raises OutputError if it exists (unless `force`) or can't be written.
    """
    target = Path(output) if output is not None else Path(Path(onnx_path).stem)
    check_input(Path(onnx_path), "an ONNX model", ModelError)
    check_output(target, force)
    made = build_policy(
        onnx_path, checkpoint_path, weights=weights, rules=rules, device=device, dtype=dtype, threads=threads, progress=progress
    )
    progress(f"writing {printable(str(target))}")
    write(made, target, force)
    return made


def write(made: Build, target: Path, force: bool = False) -> None:
    """Writes the build into a temporary folder beside `target`, then moves it into place."""
    contents = {
        "model.py": made.source.encode(),
        "weights.safetensors": made.weights,
        "rebuilt.onnx": made.rebuilt.SerializeToString(),
        "lifted.onnx": made.lifted.SerializeToString(),
    }
    from .report.facts import facts, written
    from .report.page import report_page
    from .report.weights import tensors_in

    tensors = {b.path: b.value for b in made.bindings.tensors} if made.dtype == PRECISIONS[0] else tensors_in(made.weights)
    document = facts(made, {k: hashlib.sha256(v).hexdigest() for k, v in contents.items()}, target)
    contents["report.json"] = written(document)
    contents["report.html"] = report_page(document, made.source, tensors).encode()
    with deferred() as stop_if_asked, staged(target, force, stop_if_asked) as folder:
        for name, data in contents.items():
            with (folder / name).open("wb") as file:
                for start in range(0, len(data), CHUNK):
                    stop_if_asked()
                    file.write(data[start : start + CHUNK])
                file.flush()
                os.fsync(file.fileno())


CHUNK = 2**24


def _provenance(recognised: Recognised, checkpoint: Checkpoint | None, bindings: Bindings, module: str) -> Provenance:
    model, spec = recognised.model, recognised.spec
    files = f"{where(model.path)} (sha256 {model.sha256[:12]}…, {printable(spec.graph.producer, 40)}, opset {spec.graph.opset})"
    if checkpoint:
        step = "" if checkpoint.step is None else f", step {checkpoint.step}"
        files += f" and {where(checkpoint.path)} (sha256 {checkpoint.sha256[:12]}…{step})"
    title = f"{printable(model.path.stem, 60)}: {spec.title}, made by graph2torch {__version__} from"
    return Provenance(title, (files + ".",), bindings.keys, module)
