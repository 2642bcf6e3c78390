"""onnx2torch, onnx2pytorch and onnx-pytorch on ML-Agents policies, beside graph2torch.

    python -m benchmarks.peers [MODEL.onnx …] [--corpus FOLDER] [--peer NAME=VENV …] [--json FILE]

Each tool runs in an environment of its own, since they want different versions of onnx; nothing is installed here:

    python -m venv peers/onnx2torch   && peers/onnx2torch/bin/pip install onnx2torch onnxruntime
    python -m venv peers/onnx2pytorch && peers/onnx2pytorch/bin/pip install onnx2pytorch onnxruntime
    python -m venv peers/onnx-pytorch && peers/onnx-pytorch/bin/pip install onnx-pytorch onnxruntime "onnx<1.17"
    python -m benchmarks.peers --peer onnx2torch=peers/onnx2torch --peer onnx2pytorch=peers/onnx2pytorch --peer onnx-pytorch=peers/onnx-pytorch

Models that onnxruntime itself refuses, and copies of the same bytes, are left out. For each model and tool:

    builds      the tool makes a torch module of the .onnx, as it is
    runs        it computes, batch 1 and 3 (what onnxruntime can of them), without an error
    agrees      every output that depends on the inputs and on no random operator is within 1e-5 · max(1, largest) of
                onnxruntime's, and there is such an output
    re-exports  torch's TorchScript exporter writes it, at the original's opset
    same graph  the re-export computes, operator by operator, what the original does (graph2torch's canonical form)
    same bits   and gives, in onnxruntime, the original's bits on those outputs

A second table counts, by kind of policy, the models that each tool builds and those of which it re-exports the same graph.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import importlib.util
import io
import json
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
RANDOM = {"RandomNormalLike", "RandomUniformLike", "RandomNormal", "RandomUniform", "Multinomial", "Bernoulli"}
STAGES = ("builds", "runs", "agrees", "re-exports", "same graph", "same bits")
DTYPES = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64}


# ---------------------------------------------------------------------------------------------- a model, and its judge
def inputs_of(proto: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    initializers = {t.name for t in proto.graph.initializer}
    return [i for i in proto.graph.input if i.name not in initializers]


def deterministic(proto: onnx.ModelProto) -> list[int]:
    """Places of the outputs that depend on the inputs and on no random operator."""
    random: set[str] = set()
    fed = {i.name for i in inputs_of(proto)}
    for node in proto.graph.node:  # in topological order, as ONNX demands
        if node.op_type in RANDOM or random & set(node.input):
            random |= set(node.output)
        if fed & set(node.input):
            fed |= set(node.output)
    return [i for i, output in enumerate(proto.graph.output) if output.name in fed - random]


def observations(proto: onnx.ModelProto, batch: int) -> list[np.ndarray]:
    rng = np.random.default_rng(batch)
    arrays = []
    for value in inputs_of(proto):
        tensor = value.type.tensor_type
        shape = [
            d.dim_value if d.WhichOneof("value") == "dim_value" and (k or d.dim_value != 0) else batch
            for k, d in enumerate(tensor.shape.dim)
        ]
        array = rng.standard_normal(shape)
        if "mask" in value.name:
            array = np.ones(shape)
        arrays.append(array.astype(DTYPES[tensor.elem_type]))
    return arrays


def named(proto: onnx.ModelProto, arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    return dict(zip([i.name for i in inputs_of(proto)], arrays, strict=True))


def session(data: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def kind(proto: onnx.ModelProto) -> str:
    """What the policy does, and on what: one of KINDS."""
    operators = {n.op_type for n in proto.graph.node}
    if operators & {"Multinomial", "ArgMax"} or any("mask" in i.name for i in inputs_of(proto)):
        actions = "discrete or both"
    else:
        actions = "continuous, SAC" if "Tanh" in operators else "continuous"
    flat = all(len(i.type.tensor_type.shape.dim) == 2 for i in inputs_of(proto))
    return f"{actions}; {'vectors' if flat else 'also images, entities or memory'}"


KINDS = [f"{a}; {o}" for a in ("continuous", "continuous, SAC", "discrete or both") for o in ("vectors", "also images, entities or memory")]


# ---------------------------------------------------------------------------------------------- the tools
def onnx2torch(path: str, proto: onnx.ModelProto, folder: str) -> Any:
    return importlib.import_module("onnx2torch").convert(proto)


def onnx2pytorch(path: str, proto: onnx.ModelProto, folder: str) -> Any:
    return importlib.import_module("onnx2pytorch").ConvertModel(proto)


def onnx_pytorch(path: str, proto: onnx.ModelProto, folder: str) -> Any:
    code_gen = importlib.import_module("onnx_pytorch.code_gen")
    code_gen.gen(path, output_dir=folder)
    name = f"model_{hashlib.sha256(folder.encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, Path(folder) / "model.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Model()


def graph2torch(path: str, proto: onnx.ModelProto, folder: str) -> Any:
    sys.path.insert(0, str(ROOT))
    from graph2torch.build import build_policy
    from graph2torch.module import build_module

    made = build_policy(path)
    module: Any = build_module(made.source, made.bindings)
    module.made = made
    return module


TOOLS = {"onnx2torch": onnx2torch, "onnx2pytorch": onnx2pytorch, "onnx-pytorch": onnx_pytorch, "graph2torch": graph2torch}


def tried(tool: str, path: str, target: Path) -> dict[str, Any]:
    """One model in one tool: which stages it reaches, and the first error. `target` gets the re-export."""
    import torch

    proto = onnx.load(path)
    data = proto.SerializeToString()  # with external data, if it has any
    compared = deterministic(proto)
    found: dict[str, Any] = dict.fromkeys(STAGES, False)
    stage = "builds"
    try:
        with tempfile.TemporaryDirectory() as folder:
            module = TOOLS[tool](path, copy.deepcopy(proto), folder)
            module.eval()
            found[stage] = True
            if tool == "graph2torch":
                found["level"] = module.made.verification.level
                found["understood"] = all(b.family != "generic" for b in module.made.spec.blocks)
            stage = "runs"
            judge, near = session(data), bool(compared)
            tried_on = []
            for batch in (1, 3):
                arrays = observations(proto, batch)
                with contextlib.suppress(Exception):  # what the original can't do, no tool has to
                    tried_on.append((arrays, judge.run(None, named(proto, arrays))))
            for arrays, expected in tried_on:
                with torch.inference_mode():
                    given = module(*(torch.from_numpy(a) for a in arrays))
                given = [given] if isinstance(given, torch.Tensor) else list(given)
                for i in compared:
                    a, b = expected[i], np.asarray(given[i].detach().numpy())
                    near &= a.shape == b.shape and bool(
                        np.allclose(a, b, rtol=0, atol=1e-5 * max(1.0, float(np.abs(a).max(initial=0))), equal_nan=True)
                    )
            found[stage] = True
            found["agrees"] = near
            stage = "re-exports"
            exported = reexport(module, proto)
            found[stage] = True
            target.write_bytes(exported)
            stage = "same bits"
            theirs = session(exported)
            known = {i.name for i in theirs.get_inputs()}
            found[stage] = bool(compared)
            for arrays, expected in tried_on:
                given = theirs.run(None, {k: v for k, v in named(proto, arrays).items() if k in known})
                found[stage] &= all(expected[i].shape == given[i].shape and expected[i].tobytes() == given[i].tobytes() for i in compared)
    except Exception as error:
        found["error"] = f"{stage}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return found


def reexport(module: Any, proto: onnx.ModelProto) -> bytes:
    import torch

    if hasattr(module, "made"):
        return module.made.rebuilt.SerializeToString()
    names = [i.name for i in inputs_of(proto)]
    buffer = io.BytesIO()
    opset = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    torch.onnx.export(
        module,
        tuple(torch.from_numpy(a) for a in observations(proto, 2)),
        buffer,
        input_names=names,
        output_names=[o.name for o in proto.graph.output],
        dynamic_axes={name: {0: "batch"} for name in names},
        opset_version=opset,
        dynamo=False,
    )
    return buffer.getvalue()


def worker(tool: str) -> None:
    """Reads paths from stdin, writes a line of JSON for each; nothing that a tool prints reaches stdout."""
    out = sys.stdout
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        path, _, target = line.rstrip("\n").partition("\t")
        with contextlib.redirect_stdout(io.StringIO()):
            found = tried(tool, path, Path(target))
        out.write(json.dumps(found) + "\n")
        out.flush()


# ---------------------------------------------------------------------------------------------- all of them
def asked(tool: str, python: str, paths: list[Path]) -> list[dict[str, Any]]:
    """The worker's answers; one that dies is started again behind the model it died of."""
    answers: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        targets = [Path(folder) / f"{i}.onnx" for i in range(len(paths))]
        lines = [f"{path}\t{target}\n" for path, target in zip(paths, targets, strict=True)]
        while len(answers) < len(paths):
            todo = "".join(lines[len(answers) :])
            done = subprocess.run([python, __file__, "--worker", tool], input=todo, capture_output=True, text=True, check=False)
            answers += [json.loads(line) for line in done.stdout.splitlines()]
            if len(answers) < len(paths):
                answers.append(
                    {
                        **dict.fromkeys(STAGES, False),
                        "error": f"builds: the process ended with {done.returncode}: {done.stderr.strip()[-200:]}",
                    }
                )
        for answer, path, target in zip(answers, paths, targets, strict=True):
            answer["same graph"] = target.is_file() and same_graph(path, target)
    return answers


def same_graph(a: Path, b: Path) -> bool:
    from graph2torch.canonical import canonicalise
    from graph2torch.graph import load
    from graph2torch.judge.isomorphism import align

    return align(*(canonicalise(load(p).graph) for p in (a, b))).isomorphic


def usable(paths: list[Path]) -> list[Path]:
    """Those that onnxruntime runs, each content once."""
    seen: set[str] = set()
    kept = []
    for path in paths:
        data = path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        if digest in seen:
            continue
        seen.add(digest)
        try:
            proto = onnx.load(str(path))
            session(proto.SerializeToString())
            onnx.checker.check_model(proto)
        except Exception:
            continue
        kept.append(path)
    return kept


def versions_in(python: str) -> str:
    code = "import importlib.metadata as m\nfor p in ('torch', 'onnx', 'numpy', 'onnx2torch', 'onnx2pytorch', 'onnx-pytorch'):\n try: print(p, m.version(p))\n except m.PackageNotFoundError: pass"
    return ", ".join(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines())


def reason(error: str) -> str:
    """What stops it: the stage, and the operators if some are named; never a name out of the model."""
    stage, _, text = error.partition(": ")
    if unexplained := re.search(r"no rule explains \d+ of its \d+ nodes \((.*?)\)", text):
        return f"{stage}: no rule explains {re.sub(r'[0-9]+ ', '', unexplained.group(1))}"
    for mark, end in (("operation_type='", "'"), ("op_type=", " "), ("unimplemented for ", " ")):
        if mark in text:
            return f"{stage}: {text.split(mark, 1)[1].split(end, 1)[0].strip('.,')}"
    return f"{stage}: {text[:90]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="every .onnx below it")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=VENV")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker)
    from benchmarks.measure import table, write_json

    paths = options.models + sorted(p for folder in options.corpus for p in folder.rglob("*.onnx"))
    paths = usable(paths or sorted((ROOT / "assets").glob("*.onnx")))
    protos = [onnx.load(str(p)) for p in paths]
    kinds, comparable = [kind(p) for p in protos], sum(bool(deterministic(p)) for p in protos)
    pythons = {name: str(Path(venv) / "bin" / "python") for name, _, venv in (p.partition("=") for p in options.peer)}
    document: dict[str, Any] = {}
    by_kind = {k: [k, str(kinds.count(k))] for k in KINDS if k in kinds}
    print(f"{len(paths)} models that onnxruntime runs, {comparable} of them with an output that can be compared (agrees, same bits)\n")
    for tool, python in {**pythons, "graph2torch": sys.executable}.items():
        answers = asked(tool, python, paths)
        stops = Counter(reason(a["error"]) for a in answers if "error" in a)
        counts = {s: sum(a[s] for a in answers) for s in STAGES}
        each = {k: {s: sum(a[s] for a, b in zip(answers, kinds, strict=True) if b == k) for s in STAGES} for k in by_kind}
        document[tool] = {"versions": versions_in(python), "counts": counts, "kinds": each, "stopped": dict(stops.most_common())}
        for k, row in by_kind.items():
            row.append(f"{each[k]['builds']}, {each[k]['same graph']}")
    print(table(["tool", *STAGES], [[tool, *(str(found["counts"][s]) for s in STAGES)] for tool, found in document.items()]))
    print(f"\n{table(['builds, same graph', 'models', *document], list(by_kind.values()))}")
    levels = Counter(a.get("level", "not built") for a in answers)  # of graph2torch, which comes last
    print(f"\ngraph2torch's levels: {', '.join(f'{n} {level}' for level, n in levels.most_common())}")
    print(f"explained by rules of the architecture alone: {sum(a.get('understood', False) for a in answers)}")
    for tool, found in document.items():
        print(f"\n{tool} ({found['versions']}) was stopped by")
        for text, count in found["stopped"].items():
            print(f"{count:5}  {text}")
    write_json(options.json, {"models": len(paths), "comparable": comparable, "kinds": dict(Counter(kinds)), "tools": document})
    return None


if __name__ == "__main__":
    main()
