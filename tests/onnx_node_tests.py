"""Runs onnx's own node tests through the whole pipeline, and tells for each what became of it.

python -m tests.onnx_node_tests              the summary that docs/generic-operators.md quotes
python -m tests.onnx_node_tests Resize Pad   the tests of some operators, one by one

pass      the torch module gives onnx's expected outputs, and the re-exported graph is equal; with the level reached
refused   the graph is not built, and the reason names what it is
wrong     anything else: another result, another graph, an error that is not one of ours
"""

from __future__ import annotations

import collections
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from graph2torch.build import rebuild
from graph2torch.canonical import canonicalise
from graph2torch.errors import Graph2TorchError, UnsupportedGraph
from graph2torch.graph import OPSETS, Model, read_graph
from graph2torch.judge.verify import EQUAL
from graph2torch.recognise import Recognised, unbuildable
from graph2torch.rulebook import RuleBook, load_rules

RTOL, ATOL = 1e-3, 1e-7  # onnx's own


@dataclass(frozen=True)
class Result:
    """What became of a node test. `detail`: the level reached, or why not."""

    name: str
    outcome: str
    detail: str
    operators: tuple[str, ...]


def node_tests() -> list[Any]:
    """Every node test that the installed onnx brings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return list(load_model_tests(kind="node"))


def run(case: Any, book: RuleBook) -> Result:
    """One node test through reading, recognising, emitting, exporting and verifying."""
    operators = tuple(sorted({node.op_type for node in case.model.graph.node}))
    try:
        outcome, detail = _run(lowered(case.model), case.data_sets, book)
    except Graph2TorchError as error:
        outcome, detail = "refused", str(error)
    except Exception as error:  # this is what the test is about
        outcome, detail = "wrong", f"{type(error).__name__}: {error}"
    return Result(case.name, outcome, detail, operators)


def lowered(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model at the newest opset that is read here, if its operators mean the same there."""
    newest = OPSETS[-1]
    (version,) = [o.version for o in model.opset_import if o.domain == ""] or [0]
    if version <= newest:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for opset in copy.opset_import:
        if opset.domain == "":
            opset.version = newest
    copy.ir_version = min(copy.ir_version, 10)
    try:
        onnx.checker.check_model(copy, full_check=True)
    except Exception:
        return model
    return copy


def _run(proto: onnx.ModelProto, data_sets: Sequence[Any], book: RuleBook) -> tuple[str, str]:
    graph = read_graph(proto, "node test")
    model = Model(Path("node_test.onnx"), "0" * 64, 0, proto, graph)
    recognised = Recognised(model, book.recognise(canonicalise(graph)), book)
    if recognised.spec.unexplained:
        raise UnsupportedGraph(unbuildable(recognised))
    samples, expected = [], []
    for inputs, outputs in data_sets:
        arrays = [numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else np.asarray(x) for x in inputs]
        samples.append(dict(zip([i.name for i in proto.graph.input], arrays, strict=True)))
        expected.append([numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else np.asarray(x) for x in outputs])
    made = rebuild(recognised, samples=samples)
    for sample, wanted in zip(samples, expected, strict=True):
        for output, given, want in zip(made.spec.outputs, outputs_of(made, sample), wanted, strict=True):
            fault = difference(given, want)
            if fault and not random(proto):
                return "wrong", f"{output.name}: {fault}"
    if made.verification.level not in EQUAL:
        return "wrong", f"level {made.verification.level}: {made.verification.reason}"
    return "pass", f"{made.verification.level}" + (f": {made.verification.reason}" if made.verification.level == "bits" else "")


def outputs_of(made: Any, sample: dict[str, np.ndarray[Any, Any]]) -> Iterator[np.ndarray[Any, Any]]:
    import torch

    from graph2torch.module import build_module

    module = build_module(made.source, made.bindings)
    with torch.inference_mode():
        yield from (t.numpy() for t in module(*(torch.from_numpy(np.array(sample[i.name])) for i in made.spec.inputs)))


def difference(given: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> str:
    if given.shape != want.shape or given.dtype != want.dtype:
        return f"{given.dtype} {list(given.shape)} instead of {want.dtype} {list(want.shape)}"
    if not np.allclose(given.astype(np.float64), want.astype(np.float64), RTOL, ATOL, equal_nan=True):
        return f"off by {np.nanmax(np.abs(given.astype(np.float64) - want.astype(np.float64))):.3g}"
    return ""


def random(proto: onnx.ModelProto) -> bool:
    return any(node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial") for node in proto.graph.node)


# what a refusal says → what it is called in the summary
KINDS = (
    (r"uses opset (\d+)", "an opset outside of 7 to 23, and with an operator that is not in 23 as it is there"),
    (
        r"the element type",
        "element types other than numbers and booleans of 8 to 64 bits (bfloat16, 8-bit and smaller floats, 4-bit integers, strings)",
    ),
    (r"is not a tensor", "sequences and optional values"),
    (r"holds a subgraph", "control flow (If, Loop, Scan), or an operator that is expanded into it"),
    (r"is of the domain|which opset of the standard", "operators of other domains"),
    (r"works on uint(16|32|64)", "uint16, uint32, uint64, for which torch has hardly any operators"),
    (r"computes in float16", "arithmetic in float16, which torch and onnxruntime round differently"),
    (r"in training mode", "training mode"),
    (r"onnxruntime .* refuses the original", "onnxruntime can't run the test, so there is no judge"),
    (r"could not be compared", "onnxruntime can't run the test, so there is no judge"),
    (r"can't export", "torch's exporter refuses"),
    (r"not among those", "operators that are not rebuilt"),
)


def kind(result: Result) -> str:
    """The kind of a refusal."""
    return next((name for pattern, name in KINDS if re.search(pattern, result.detail)), "forms of an operator that are not rebuilt")


def summary(results: Sequence[Result]) -> str:
    """What became of them all, as Markdown."""
    counts = collections.Counter(r.outcome for r in results)
    levels = collections.Counter(r.detail.split(":")[0] for r in results if r.outcome == "pass")
    reached = ", ".join(f"{n} at level `{level}`" for level, n in levels.most_common())
    kinds = collections.Counter(kind(r) for r in results if r.outcome == "refused")
    lines = [
        f"Of the {len(results):,} node tests of onnx {onnx.__version__}, **{counts['pass']:,} pass** ({reached}),",
        f"**{counts['refused']} are refused by name, {counts['wrong'] or 'none'} {'is' if counts['wrong'] < 2 else 'are'} wrong**.",
        "",
        "| refused | tests |",
        "|---|---|",
        *(f"| {name} | {n} |" for name, n in kinds.most_common()),
        "",
    ]
    for name, title in (("operators that are not rebuilt", "Operators"), ("forms of an operator that are not rebuilt", "Forms")):
        told: dict[str, None] = {}
        for result in results:
            if result.outcome == "refused" and kind(result) == name:
                for operator, reason in re.findall(r"node '[^']*' \((\w+)\): ([^`;]*)\.", result.detail):
                    told[operator if title == "Operators" else f"{operator}: {reason}"] = None
        lines.append(
            f"{title} that are not rebuilt: {', '.join(sorted(told))}."
            if title == "Operators"
            else "Forms that are not rebuilt: " + "; ".join(sorted(told)) + "."
        )
    return "\n".join(lines)


PAGE = Path(__file__).resolve().parents[1] / "docs" / "generic-operators.md"
BLOCK = re.compile(r"(<!-- node tests -->\n).*?(<!-- end -->\n)", re.DOTALL)


def main(arguments: Sequence[str]) -> int:
    """Prints the results; exit status 1 if one is wrong."""
    words = [a for a in arguments if a != "--write"]
    book = load_rules()
    results = []
    for case in node_tests():
        if not words or {node.op_type for node in case.model.graph.node} & set(words) or case.name in words:
            results.append(run(case, book))
            if words or results[-1].outcome == "wrong":
                print(f"{results[-1].outcome:8} {case.name}: {results[-1].detail[:300]}", flush=True)
    text = summary(results)
    print(text)
    if "--write" in arguments:
        PAGE.write_text(BLOCK.sub(lambda m: f"{m.group(1)}{text}\n{m.group(2)}", PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 1 if any(r.outcome == "wrong" for r in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
