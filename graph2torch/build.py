"""The main job: a graph and a checkpoint become a readable torch module, proved equal, in a folder of its own."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from safetensors.numpy import save

from . import __version__
from .act.contract import to_json
from .bind import Bindings, Weights, bind, check_weights
from .canonical import canonicalise
from .checkpoint import Checkpoint, load_checkpoint
from .emit import Provenance, emit
from .errors import ModelError, OutputError, PairError, UnsupportedGraph
from .files import check_input, deferred, where
from .graph import MAX_NODES, Array, Graph, Model, check_memory, load, read_graph
from .judge.figures import finite
from .lifted import check_lifted, lifted
from .pair import Pair, judge, with_match
from .precisions import PRECISIONS, check_dtype
from .rulebook import RuleBook, Rules, folders_of, load_rules
from .spec import Coverage, Module, PolicySpec
from .text import one_line, printable, quoted

if TYPE_CHECKING:
    import torch

    from .devices.device import Device
    from .devices.on_device import DeviceCheck
    from .judge.causes import Cause
    from .judge.divergence import Divergence
    from .judge.precision import PrecisionCheck
    from .judge.verify import Verification

MAX_BUILT = (
    5_000  # nodes; a policy has up to 200. Graphs are read and compared up to MAX_NODES, but torch's exporter takes milliseconds a node
)
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Recognised:
    """A graph that was read and understood; no torch needed so far."""

    model: Model
    spec: PolicySpec
    book: RuleBook


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


def recognise(path: str | Path, rules: Rules = (), most: int = MAX_NODES) -> Recognised:
    """Reads an .onnx and tells what it is, without torch. Raises UnsupportedGraph if it has more nodes than `most`."""
    book = load_rules(*folders_of(rules))
    model = load(path)
    if len(model.graph.file_nodes) > most:
        raise UnsupportedGraph(
            f"{where(model.path)} has {len(model.graph.file_nodes):,} nodes, more than the {most:,} that are rebuilt; a policy has fewer."
        )
    return Recognised(model, book.recognise(canonicalise(model.graph)), book)


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


MADE = ("model.py", "weights.safetensors", "rebuilt.onnx", "lifted.onnx")  # whose sha256 the report holds
FILES = (*MADE, "report.json", "report.html")


def check_output(target: Path, force: bool) -> None:
    """OutputError if `target` can't become the output folder, before any work is done."""
    shown = quoted(str(target))
    try:
        os.fsencode(target.absolute()).decode("utf-8")  # safetensors opens no others
        if target.is_symlink() or (target.exists() and not target.is_dir()):
            raise OutputError(f"The output {shown} exists and is not a folder; choose another with -o.")
        if str(target) in ("", ".", "..") or target.resolve() == Path.cwd():
            raise OutputError(f"The output {shown} is the current folder or the one above; name one of its own with -o.")
        inside = sorted(target.iterdir()) if target.is_dir() else []
        if inside and not force:
            raise OutputError(f"The output folder {shown} exists and is not empty; choose another with -o, or replace it with --force.")
        for path in inside:
            if path.name not in (*FILES, "__pycache__") or (path.is_dir() and not path.is_symlink()) != (path.name == "__pycache__"):
                raise OutputError(
                    f"The output folder {shown} holds {quoted(path.name)}, which graph2torch didn't write, so --force does not replace it; "
                    f"choose another with -o."
                )
        if inside and not (target / "report.json").is_file():
            raise OutputError(
                f"The output folder {shown} holds {quoted(inside[0].name)}, but no report.json, so graph2torch didn't write it and --force "
                f"does not replace it; choose another with -o."
            )
        above = next(p for p in target.absolute().parents if p.exists())
        if not above.is_dir():
            raise OutputError(
                f"The output folder {shown} can't be made, because {quoted(str(above))} is not a folder; choose another with -o."
            )
        if not os.access(above, os.W_OK | os.X_OK):
            raise OutputError(
                f"The output folder {shown} can't be made, because nothing may be written to {quoted(str(above))}; choose another with -o."
            )
    except UnicodeDecodeError:
        raise OutputError(f"The output {shown} has a name that is not text (UTF-8); choose another with -o.") from None
    except OSError as error:
        raise OutputError(f"The output {shown} can't be used: {error.strerror or error}; choose another with -o.") from None
    except (RuntimeError, ValueError) as error:  # symbolic links in a circle, an embedded null byte
        raise OutputError(f"The output {shown} is no usable path ({one_line(str(error), 80)}); choose another with -o.") from None


def write(made: Build, target: Path, force: bool = False) -> None:
    """Writes the build into a temporary folder beside `target`, then moves it into place."""
    contents = {
        "model.py": made.source.encode(),
        "weights.safetensors": made.weights,
        "rebuilt.onnx": made.rebuilt.SerializeToString(),
        "lifted.onnx": made.lifted.SerializeToString(),
    }
    from .report.page import report_page
    from .report.weights import tensors_in

    tensors = {b.path: b.value for b in made.bindings.tensors} if made.dtype == PRECISIONS[0] else tensors_in(made.weights)
    document = report(made, {k: hashlib.sha256(v).hexdigest() for k, v in contents.items()}, target)
    contents["report.json"] = (_short_lists(json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False)) + "\n").encode()
    contents["report.html"] = report_page(document, made.source, tensors).encode()
    with deferred() as stop_if_asked, _staged(target, force, stop_if_asked) as folder:
        for name, data in contents.items():
            with (folder / name).open("wb") as file:
                for start in range(0, len(data), CHUNK):
                    stop_if_asked()
                    file.write(data[start : start + CHUNK])
                file.flush()
                os.fsync(file.fileno())


def _short_lists(text: str) -> str:
    """Indented JSON with each list of plain values on one line. No string of it holds a line break."""
    return re.sub(r"\[\n[^\[\]{}]*\n\s*\]", lambda found: re.sub(r"\n\s*", " ", found.group()).replace("[ ", "[", 1)[:-2] + "]", text)


CHUNK = 2**24


@contextmanager
def _staged(target: Path, force: bool, stop_if_asked: Callable[[], None] = lambda: None) -> Iterator[Path]:
    """A temporary folder that becomes `target` if all goes well; if not, it and the folders above that it needed disappear."""
    token = secrets.token_hex(4)
    temporary, old = (target.parent / f".graph2torch-{token}{end}" for end in ("", "-old"))
    missing = [p for p in (target.parent, *target.parent.parents) if not _exists(p)]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        stop_if_asked()
        check_output(target, force)
        if target.is_dir():
            target.rename(old)
        temporary.rename(target)
    except OSError as error:
        raise OutputError(
            f"The output folder {quoted(str(target))} can't be written: {error.strerror or error}. Nothing was written; make room or "
            f"choose another with -o."
        ) from None
    finally:
        if _exists(old) and not _exists(target):
            old.rename(target)
        for leftover in (temporary, old):
            shutil.rmtree(leftover, ignore_errors=True)
        if not _exists(target):
            for folder in missing:
                with suppress(OSError):  # somebody else put something there
                    folder.rmdir()


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the name is too long
        return False


# ---------------------------------------------------------------------------------------------- words
def _provenance(recognised: Recognised, checkpoint: Checkpoint | None, bindings: Bindings, module: str) -> Provenance:
    model, spec = recognised.model, recognised.spec
    files = f"{where(model.path)} (sha256 {model.sha256[:12]}…, {printable(spec.graph.producer, 40)}, opset {spec.graph.opset})"
    if checkpoint:
        step = "" if checkpoint.step is None else f", step {checkpoint.step}"
        files += f" and {where(checkpoint.path)} (sha256 {checkpoint.sha256[:12]}…{step})"
    title = f"{printable(model.path.stem, 60)}: {spec.title}, made by graph2torch {__version__} from"
    return Provenance(title, (files + ".",), bindings.keys, module)


def unbuildable(recognised: Recognised) -> str:
    """Every node that can't be built, with its reason; nodes with one reason together."""
    spec = recognised.spec
    reasons: dict[str, list[str]] = {}
    for node in spec.unexplained:
        refusal = spec.refusals.get(node.index)
        reasons.setdefault(refusal.reason if refusal else "no rule explains it", []).append(str(node))
    parts = []
    for reason, nodes in reasons.items():
        more = f" and {len(nodes) - 12} more" if len(nodes) > 12 else ""
        parts.append(f"{', '.join(nodes[:12])}{more}: {reason}")
    return (
        f"{where(recognised.model.path)}: {len(spec.unexplained)} of its {len(spec.graph.file_nodes)} nodes can't be built. {'; '.join(parts)}. "
        "`graph2torch rules --explain` shows which rule came nearest; docs/writing-a-rule.md tells how to add one."
    )


def _seen_from(target: Path, path: Path) -> str:
    """`path` as it is reached from the folder `target`, so that both can be moved together."""
    there = os.path.abspath(path)  # noqa: PTH100 # links stay: data kept outside a model lies beside the link
    try:
        return Path(os.path.relpath(there, os.path.realpath(target))).as_posix()
    except ValueError:  # on another drive
        return there


def report(made: Build, files: dict[str, str], target: Path | None = None) -> dict[str, Any]:
    """The facts of a build as JSON: level, inputs, architecture, every parameter's origin, coverage, figures, what corresponds.

    target: the folder it is written to; with it the report says where the original lies, seen from there
    """
    model, spec, bindings, checked = made.recognised.model, made.spec, made.bindings, made.verification
    checkpoint, coverage, used = bindings.checkpoint, spec.coverage(), {b.rule for b in spec.blocks}

    def number(x: float | None) -> float | str | None:
        return x if x is None or np.isfinite(x) else str(x)

    return {
        "graph2torch": __version__,
        "level": checked.level,
        "equal": made.equal,
        "reason": checked.reason,
        "dtype": made.dtype,
        "original": {
            "file": model.path.name,
            "path": _seen_from(target, model.path) if target else None,
            "sha256": model.sha256,
            "bytes": model.size,
            "exporter": spec.graph.producer,
            "opset": spec.graph.opset,
            "ir_version": spec.graph.ir_version,
            "warnings": list(spec.graph.warnings),
        },
        "checkpoint": None
        if checkpoint is None
        else {
            "file": checkpoint.path.name,
            "path": _seen_from(target, checkpoint.path) if target else None,
            "sha256": checkpoint.sha256,
            "bytes": checkpoint.size,
            "step": checkpoint.step,
            **asdict(made.pair),
            "disagreements": [
                {
                    "parameter": b.path,
                    "checkpoint": b.key,
                    "graph": b.initializer,
                    **asdict(b.disagreement),
                    "max_abs": number(b.disagreement.max_abs),
                }
                for b in bindings.disagreements
                if b.disagreement
            ]
            + [{"metadata": text} for text in bindings.metadata],
            "modules": {name: {"tensors": tensors, "numbers": numbers} for name, (tensors, numbers) in checkpoint.modules.items()},
            "unused": list(bindings.unused),
        },
        "architecture": {
            "family": spec.family,
            "title": spec.title,
            **to_json(spec.inputs, spec.draws(), spec.acting),
            "outputs": [
                {
                    "name": o.name,
                    "field": o.field,
                    "shape": o.size,
                    "dtype": o.dtype,
                    "meaning": o.meaning,
                    "constant": None if o.constant is None else [number(float(x)) for x in o.constant.reshape(-1)],
                    "value": o.value,
                }
                for o in spec.outputs
            ],
            "blocks": _blocks(made),
            "rules": {rule.name: rule.summary for rule in made.recognised.book.rules if rule.name in used},
        },
        "parameters": [
            {
                "path": b.path,
                "shape": list(b.value.shape),
                "dtype": made.dtype if b.path in made.halves else b.value.dtype.name,
                "trainable": b.trainable,
                "source": b.source,
                "checkpoint": b.key,
                "graph": b.initializer,
                "transform": b.transform,
                "bit_equal": b.agrees,
                "note": b.note,
            }
            for b in bindings.tensors
        ],
        "coverage": {
            "nodes": coverage.total,
            "by_rule": {rule: len(nodes) for rule, nodes in coverage.by_rule.items()},
            "generic": len(coverage.generic),
            "inert": len(coverage.inert),
            "unexplained": len(coverage.unexplained),
        },
        "inert_nodes": _inert(spec, coverage),
        "near_misses": _near_misses(made.recognised),
        "verification": {
            "rebuilt": [finite(asdict(f)) for f in checked.rebuilt],
            "torch": [finite(asdict(f)) for f in checked.module],
            "runs": list(checked.runs),
            "not_run_by_the_original": list(checked.refused),
            "seed": checked.seed,
            "isomorphic": checked.isomorphic,
        },
        "witness": dict(made.witness),
        "divergence": made.divergence
        and {**made.divergence.told(), "causes": [{"name": cause.name, "words": cause.words} for cause in made.causes]},
        "device": made.on_device and made.on_device.told(),
        "precision": made.precision and made.precision.told(),
        "threads": made.threads,
        "versions": versions(),
        "files": files,
    }


def _blocks(made: Build) -> list[dict[str, Any]]:
    """What each block is, where it hangs, its nodes, its tensors (a normaliser's statistics among them), its lines of model.py."""
    from .inspect import source_of
    from .lines import lines_of

    spec, nodes = made.spec, made.spec.graph.file_nodes
    held: dict[str, list[str]] = {}
    for tensor in made.bindings.tensors:
        held.setdefault(tensor.path.rpartition(".")[0], []).append(tensor.path)
    found = []
    for block, lines in zip(spec.blocks, lines_of(made.source, spec), strict=True):
        own = [spec.parameter_path(block, p) for p in block.parameters]
        tensors = held.get(spec.module_path(block), own) if isinstance(block.code, Module) else own
        found.append(
            {
                "rule": block.rule,
                "family": block.family,
                "role": block.role,
                "module": spec.module_path(block) or None,
                "code": source_of(block),
                "reads": list(block.reads),
                "makes": list(block.outputs),
                "parameters": tensors,
                "nodes": [nodes[i].name or i for i in block.nodes],
                "indices": list(block.nodes),
                "operators": [nodes[i].op for i in block.nodes],
                "lines": asdict(lines),
            }
        )
    return found


def _inert(spec: PolicySpec, coverage: Coverage) -> list[dict[str, Any]]:
    """The first thousand nodes that are inert, as the file has them; `coverage` has their number."""
    nodes = spec.graph.file_nodes
    return [{"index": i, "name": nodes[i].name, "op": nodes[i].op} for i in coverage.inert[:1000]]


def _near_misses(recognised: Recognised) -> list[dict[str, Any]]:
    """For each node that is rebuilt by itself: the architecture rule that came nearest, and what stopped it, with the node."""
    from .inspect import nearest_misses, shown_miss

    spec = recognised.spec
    nearest = nearest_misses(spec, recognised.book)
    generic = {index for block in spec.blocks if block.family == "generic" for index in block.nodes}
    return [
        {"node": n.name or n.index, "op": n.op, "index": n.index, "nearest": shown_miss(nearest.get(n.index))}
        for n in spec.graph.nodes
        if n.index in generic
    ]


def versions() -> dict[str, str]:
    """What the figures were measured with."""
    import platform

    import onnxruntime
    import torch

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "onnx": onnx.__version__,
        "onnxruntime": onnxruntime.__version__,
        "numpy": np.__version__,
    }
