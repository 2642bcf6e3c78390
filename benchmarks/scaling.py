"""How time and memory grow with a graph: reading, canonical form, matching, laying on each other.

    python -m benchmarks.scaling [--sizes 1000 10000 100000] [--shapes policy chain …] [--repeats 3] [--seed 0] [--json FILE]

Synthetic graphs of each shape and size, made from the seed; each is measured in processes of its own, so that the peak
of memory is its own. What it is laid on is the same graph with other names, its nodes in another order and the operands
of additions and products swapped. Times are of the processor, without the imports and without making the graph; of several repeats the
smallest counts. Shapes:

    policy    blocks as ML-Agents' exporter writes them (normaliser, layers with SiLU, Gaussian head) in a row
    chain     equal layers, one after the other
    branches  64 equal branches side by side, their layers sharing weights
    hub       one value read by half of all nodes, which end in one Concat
    sums      commutative operators with a thousand operands each
    random    a random acyclic graph of single operators
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .measure import environment, figure, table, versions, write_json

WIDTH = 4
STAGES = ("load", "canonicalise", "match", "align")
TWO = "diff"  # of both files, read already: canonical forms, alignment, weights and all that is told, without running them


class Writer:
    """Nodes and weights of a graph that is being made; every value is [batch, WIDTH] unless it is a weight."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op: str, inputs: list[str], **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], f"n{len(self.nodes)}", **attributes))
        return name

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(self.rng.standard_normal(shape, np.float32), name))
        return name

    def silu_layer(self, value: str, weights: tuple[str, str] | None = None) -> str:
        weight, bias = weights or (self.weight(WIDTH, WIDTH), self.weight(WIDTH))
        value = self.node("Gemm", [value, weight, bias], transB=1)
        return self.node("Mul", [value, self.node("Sigmoid", [value])])

    def model(self, result: str) -> onnx.ModelProto:
        shape = ["batch", WIDTH]
        graph = helper.make_graph(
            [*self.nodes, helper.make_node("Relu", [result], ["result"])],
            "synthetic",
            [helper.make_tensor_value_info("obs_0", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("result", TensorProto.FLOAT, None)],
            self.weights,
        )
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])


def policy(w: Writer, size: int) -> str:
    value = "obs_0"
    low, high, scaled_low, scaled_high, three = (scalar(w, x) for x in (-5, 5, -3, 3, 3))
    while len(w.nodes) < size:
        value = w.node("Clip", [w.node("Div", [w.node("Sub", [value, w.weight(WIDTH)]), w.weight(WIDTH)]), low, high])
        for _ in range(3):
            value = w.silu_layer(value)
        mu = w.node("Gemm", [value, w.weight(WIDTH, WIDTH), w.weight(WIDTH)], transB=1)
        sigma = w.node("Exp", [w.node("Add", [w.node("Mul", [mu, scalar(w, 0)]), w.weight(1, WIDTH)])])
        drawn = w.node("Add", [mu, w.node("Mul", [w.node("RandomNormalLike", [mu], dtype=1), sigma])])
        value = w.node("Div", [w.node("Clip", [drawn, scaled_low, scaled_high]), three])
    return value


def scalar(w: Writer, value: float) -> str:
    name = f"w{len(w.weights)}"
    w.weights.append(numpy_helper.from_array(np.float32(value), name))
    return name


def chain(w: Writer, size: int) -> str:
    value = "obs_0"
    while len(w.nodes) < size:
        value = w.silu_layer(value)
    return value


def branches(w: Writer, size: int) -> str:
    ends = ["obs_0"] * 64
    heads = [scalar(w, 1 + i / 64) for i in range(64)]
    ends = [w.node("Mul", [end, head]) for end, head in zip(ends, heads, strict=True)]
    while len(w.nodes) < size - 63:
        weights = w.weight(WIDTH, WIDTH), w.weight(WIDTH)
        ends = [w.silu_layer(end, weights) for end in ends]
    while len(ends) > 1:
        ends = [w.node("Add", list(pair)) for pair in zip(ends[::2], ends[1::2], strict=True)]
    return ends[0]


def hub(w: Writer, size: int) -> str:
    centre = w.node("Tanh", ["obs_0"])
    return w.node("Concat", [w.node("Relu", [w.node("Mul", [centre, w.weight(WIDTH)])]) for _ in range(size // 2)], axis=1)


def sums(w: Writer, size: int) -> str:
    value = "obs_0"
    while len(w.nodes) < size:
        count = min(1000, size // 2)
        op = ("Sum", "Max", "Mean", "Min")[int(w.rng.integers(4))]
        value = w.node(op, [w.node("Add", [value, w.weight(WIDTH)]) for _ in range(count)])
    return value


def random(w: Writer, size: int) -> str:
    values = ["obs_0"]
    shared = [w.weight(WIDTH) for _ in range(20)]
    while len(w.nodes) < size:
        recent = [values[int(i)] for i in w.rng.integers(max(0, len(values) - 100), len(values), 2)]
        op = ("Relu", "Sigmoid", "Tanh", "Neg", "Add", "Mul", "Sub", "Div", "Max", "Weighted")[int(w.rng.integers(10))]
        if op == "Weighted":
            values.append(w.node("Mul", [recent[0], shared[int(w.rng.integers(20))]]))
        else:
            values.append(w.node(op, recent if op in ("Add", "Mul", "Sub", "Div", "Max") else recent[:1]))
    read = {v for n in w.nodes for v in n.input}
    return w.node("Concat", [v for v in values if v not in read], axis=1)


SHAPES: dict[str, Callable[[Writer, int], str]] = {f.__name__: f for f in (policy, chain, branches, hub, sums, random)}


def make(shape: str, size: int, seed: int) -> onnx.ModelProto:
    writer = Writer(seed)
    return writer.model(SHAPES[shape](writer, size))


def disguised(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """The same computation: other names, another valid order of nodes, additions and products with their operands swapped."""
    rng = np.random.default_rng(seed)
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    kept = {v.name for v in (*copy.graph.input, *copy.graph.output)}
    depth: dict[str, int] = {}
    for node in copy.graph.node:
        depth[node.output[0]] = 1 + max((depth.get(v, 0) for v in node.input), default=0)
        if node.op_type in ("Add", "Mul") and rng.integers(2):
            node.input[:] = node.input[::-1]
    order = sorted(copy.graph.node, key=lambda n: (depth[n.output[0]], rng.random()))
    for node in order:
        node.name = ""
        node.input[:] = [v if v in kept else f"other_{v}" for v in node.input]
        node.output[:] = [v if v in kept else f"other_{v}" for v in node.output]
    for tensor in copy.graph.initializer:
        tensor.name = f"other_{tensor.name}"
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in order]
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def measured(model: Path, other: Path) -> dict[str, float]:
    """Seconds of each stage in this process, and its peak of memory in MiB."""
    canonicalise = importlib.import_module("graph2torch.canonical").canonicalise
    load = importlib.import_module("graph2torch.graph").load
    align = importlib.import_module("graph2torch.judge.isomorphism").align
    match_rules = importlib.import_module("graph2torch.match").match_rules
    book = importlib.import_module("graph2torch.rulebook").load_rules()
    rules = [rule for rule in book.rules if rule.family == "mlagents"]
    figures: dict[str, float] = {}

    gc.set_threshold(50_000)  # as the command line sets it

    def timed(stage: str, function: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        start = time.process_time()
        result = function(*arguments, **more)
        figures[stage] = time.process_time() - start
        return result

    graph = timed("load", load, model).graph
    canonical = timed("canonicalise", canonicalise, graph)
    timed("match", match_rules, canonical, rules)
    figures["nodes"] = len(graph.nodes)
    alignment = timed("align", align, canonical, canonicalise(load(other).graph))
    if not alignment.isomorphic:
        raise SystemExit(f"{model.name} is not found to be the same as its disguised copy: {alignment.refusal}")
    del alignment
    models = load(model), load(other)
    found = timed(TWO, importlib.import_module("graph2torch.diff.diff").diff_models, *models, run=False)
    if not found.equal:
        raise SystemExit(f"{model.name} is not told to be the same as its disguised copy: {found.verdict}")
    return {**figures, "peak_mib": peak()}


def peak() -> float:
    """MiB of this process at most so far. Linux's getrusage would count what the process was forked from."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(*options.one)))
        return
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for shape in options.shapes:
            first = None
            for size in options.sizes:
                paths = Path(folder) / f"{shape}.onnx", Path(folder) / "other.onnx"
                model = make(shape, size, options.seed)
                paths[0].write_bytes(model.SerializeToString())
                paths[1].write_bytes(disguised(model, options.seed).SerializeToString())
                del model
                command = [sys.executable, "-m", "benchmarks.scaling", "--one", *map(str, paths)]
                runs = [
                    json.loads(
                        subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment(folder)).stdout.splitlines()[
                            -1
                        ]
                    )
                    for _ in range(options.repeats)
                ]
                best = {key: min(run[key] for run in runs) for key in runs[0]}
                best["total"] = sum(best[stage] for stage in STAGES)
                each = best["total"] / best["nodes"]
                first = first or each
                found.append({"shape": shape, "size": size, **best, "growth": each / first})
                print(f"{shape} {size:,}: {best['total']:.2f} s", file=sys.stderr, flush=True)
    head = ["shape", "nodes", *STAGES, TWO, "total s", "µs a node", "growth", "peak MiB"]
    rows = [
        [
            f["shape"],
            f"{f['nodes']:,}",
            *(f"{f[stage]:.3f}" for stage in (*STAGES, TWO)),
            f"{f['total']:.2f}",
            f"{f['total'] / f['nodes'] * 1e6:.0f}",
            f"{f['growth']:.2f}",
            f"{f['peak_mib']:,.0f}",
        ]
        for f in found
    ]
    print(table(head, rows))
    figures = [figure(f"{f['shape']}, {f['size']:,} nodes", f["total"] / f["nodes"] * 1e6, unit="µs a node") for f in found]
    write_json(options.json, {"versions": versions("onnx", "numpy"), "seed": options.seed, "found": found, "figures": figures})


if __name__ == "__main__":
    main()
