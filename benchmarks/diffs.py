"""Tools that compare two .onnx files, on pairs whose answer is known, beside `graph2torch diff`.

    python -m benchmarks.diffs [--peer NAME=VENV …] [--json FILE]

Each tool runs in an environment of its own; nothing is installed here:

    python -m venv peers/diffonnx   && peers/diffonnx/bin/pip install diffonnx onnxruntime
    python -m venv peers/onnx-diff  && peers/onnx-diff/bin/pip install onnx-diff
    python -m venv peers/onnxdiffer && peers/onnxdiffer/bin/pip install onnxdiffer onnxruntime
    python -m venv peers/polygraphy && peers/polygraphy/bin/pip install polygraphy onnx onnxruntime numpy
    python -m benchmarks.diffs --peer diffonnx=peers/diffonnx --peer onnx-diff=peers/onnx-diff …

The pairs are the Huggy of assets/, as it is and again without its sampled output (tools that run both files draw each their own), and

    itself      a copy of the file
    renamed     a copy whose nodes, weights and inner values have other names: the same computation
    one ulp     one number of one weight moved to the next float32
    other step  the weights of the linear layers a hundredth apart, as after more training

`itself` and `renamed` compute the same, `one ulp` and `other step` don't. Told are the tool's own words for it, whether these are
right, and the exit status. onnx-diff and onnxdiffer compare what is written in the files; diffonnx does that and runs both;
polygraphy runs both (its `run`, with onnxruntime) on one random input. What a tool draws at random is the tool's affair.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from graph2torch.graph import load
from graph2torch.target.prune import pruned, undrawn_outputs

from .measure import ROOT, environment, table, versions, write_json

HUGGY = ROOT / "assets" / "Huggy.onnx"
SAME = {"itself": True, "renamed": True, "one ulp": False, "other step": False}


# ---------------------------------------------------------------------------------------------- the pairs
def renamed(model: onnx.ModelProto) -> None:
    kept = {v.name for v in (*model.graph.input, *model.graph.output)}

    def other(name: str) -> str:
        return name if name in kept or not name else f"other_{name}"

    for node in model.graph.node:
        node.name = f"other_{node.name}"
        node.input[:] = map(other, node.input)
        node.output[:] = map(other, node.output)
    for tensor in model.graph.initializer:
        tensor.name = other(tensor.name)


def one_ulp(model: onnx.ModelProto) -> None:
    largest = max(model.graph.initializer, key=lambda t: int(np.prod(t.dims)))
    numbers = numpy_helper.to_array(largest).copy()
    numbers.flat[1000] = np.nextafter(numbers.flat[1000], np.float32(np.inf))
    largest.CopyFrom(numpy_helper.from_array(numbers, largest.name))


def other_step(model: onnx.ModelProto) -> None:
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        numbers = numpy_helper.to_array(tensor)
        if numbers.dtype == np.float32 and numbers.ndim == 2:
            moved = numbers * (1 + 0.01 * rng.standard_normal(numbers.shape))
            tensor.CopyFrom(numpy_helper.from_array(moved.astype(np.float32), tensor.name))


CHANGES: Mapping[str, Callable[[onnx.ModelProto], None]] = {"renamed": renamed, "one ulp": one_ulp, "other step": other_step}


def pairs(base: Path, folder: Path) -> dict[str, Path]:
    """What `base` is compared with, written to `folder`."""
    made = {"itself": folder / "itself.onnx"}
    shutil.copy(base, made["itself"])
    for name, change in CHANGES.items():
        model = onnx.load(base)
        change(model)
        made[name] = folder / f"{name.replace(' ', '_')}.onnx"
        onnx.save(model, made[name])
    return made


# ---------------------------------------------------------------------------------------------- the tools
@dataclass(frozen=True)
class Tool:
    """commands: with {bin}, {a}, {b} and {scratch} filled in; words: its verdicts, found in what the last one prints.

    same: the verdicts that say that there is no difference
    package: whose version is told
    """

    commands: tuple[tuple[str, ...], ...]
    words: str
    same: frozenset[str]
    package: str


POLYGRAPHY = "{bin}/polygraphy", "run"
TOOLS = {
    "diffonnx": Tool((("{bin}/diffonnx", "{a}", "{b}"),), r"^(?:Not )?Exact Match$", frozenset({"Exact Match"}), "diffonnx"),
    "onnx-diff": Tool((("{bin}/onnxdiff", "{a}", "{b}"),), r"Exact Match|Difference Detected", frozenset({"Exact Match"}), "onnx-diff"),
    "onnxdiffer": Tool(
        (("{bin}/onnxdiff", "--onnx_a", "{a}", "--onnx_b", "{b}", "--ort", "1"),),
        r"Exact Match|Difference Detected|(?<=verify complete:)\s+(?:True|False)",
        frozenset({"Exact Match", "True"}),
        "onnxdiffer",
    ),
    "polygraphy": Tool(
        (
            (*POLYGRAPHY, "{a}", "--onnxrt", "--save-inputs", "{scratch}/in.json", "--save-outputs", "{scratch}/a.json"),
            (*POLYGRAPHY, "{b}", "--onnxrt", "--load-inputs", "{scratch}/in.json", "--load-outputs", "{scratch}/a.json"),
        ),
        r"(?:PASSED|FAILED)(?= \| Runtime)",
        frozenset({"PASSED"}),
        "polygraphy",
    ),
    "graph2torch": Tool(((sys.executable, "-m", "graph2torch", "diff", "{a}", "{b}"),), r"\A[^\n,:]+", frozenset(), "graph2torch"),
}


def asked(tool: Tool, binaries: str, base: Path, other: Path, scratch: Path) -> dict[str, Any]:
    """What the tool says of `base` and `other`: its verdicts, whether they amount to "the same", and its exit status."""
    text, status = "", 0
    for command in tool.commands:
        words = [part.format(bin=binaries, a=base, b=other, scratch=scratch) for part in command]
        done = subprocess.run(
            words, cwd=scratch, env=environment(str(scratch / "cache")), capture_output=True, text=True, timeout=300, check=False
        )
        text, status = done.stdout, done.returncode
        text += "" if tool.same == frozenset() else done.stderr
    said = [" ".join(found.split()) for found in re.findall(tool.words, text, re.MULTILINE)]
    same = status == 0 if not tool.same else bool(said) and all(verdict in tool.same for verdict in said)
    return {"said": said, "status": status, "same": same if said else None}


def version(binaries: str, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([f"{binaries}/python", "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=VENV", help=f"NAME: {', '.join(TOOLS)}")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    given = {name: str(Path(venv).resolve() / "bin") for name, _, venv in (p.partition("=") for p in options.peer)}
    if unknown := given.keys() - TOOLS.keys():
        parser.error(f"--peer {', '.join(sorted(unknown))}: known are {', '.join(TOOLS)}")
    given["graph2torch"] = str(Path(sys.executable).parent)
    used = {name: version(binaries, TOOLS[name].package) for name, binaries in given.items()}
    document: dict[str, Any] = {}
    print("the tool's words (exit status): whether they are right")
    for title, keep in (("Huggy", None), ("Huggy without the sampled actions", undrawn_outputs)):
        rows = []
        document[title] = {}
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder)
            model = onnx.load(HUGGY)
            base = scratch / "base.onnx"
            onnx.save(model if keep is None else pruned(model, keep(load(HUGGY).graph)), base)
            against = pairs(base, scratch)
            for name, binaries in given.items():
                answers = {pair: asked(TOOLS[name], binaries, base, path, scratch) for pair, path in against.items()}
                document[title][name] = answers
                rows.append([f"{name} {used[name]}", *(cell(answer, SAME[pair]) for pair, answer in answers.items())])
        print(f"\n{table([title, *against], rows)}", flush=True)
    write_json(options.json, {"versions": {**versions("onnx", "onnxruntime"), **used}, "same": SAME, "answers": document})


def cell(answer: Mapping[str, Any], same: bool) -> str:
    right = "no verdict" if answer["same"] is None else "right" if answer["same"] == same else "wrong"
    return f"{', '.join(answer['said'])} ({answer['status']}): {right}"


if __name__ == "__main__":
    main()
