"""A policy's step in eager torch with its linear weights stored by rows, by columns (as model.py does), beside onnxruntime.

    python -m benchmarks.columns [FOLDER of a build, default out/Huggy] [--batch 1] [--steps 300] [--repeats 9] [--json FILE]

One thread each; deterministic actions only. onnxruntime runs rebuilt.onnx and returns every output that it has.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import torch

from .measure import ROOT, interleaved, ratio, show, summary, table, versions, write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "out" / "Huggy")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    spec = importlib.util.spec_from_file_location("model", options.folder / "model.py")
    assert spec and spec.loader
    model: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    torch.set_num_threads(1)
    columns, rows = model.load(), model.load()
    for layer in (m for m in rows.modules() if isinstance(m, torch.nn.Linear)):
        layer.weight.data = layer.weight.data.contiguous()
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(options.folder / "rebuilt.onnx"), session_options, providers=["CPUExecutionProvider"])
    name, *others = session.get_inputs()
    assert not others, "a policy with one input"
    x = torch.randn(options.batch, name.shape[1])
    feed = {name.name: x.numpy()}

    def timed(step: Callable[[], Any]) -> Callable[[], float]:
        def run() -> float:
            with torch.inference_mode():
                start = time.perf_counter()
                for _ in range(options.steps):
                    step()
                return (time.perf_counter() - start) / options.steps

        return run

    cases = {
        "torch, by rows": timed(lambda: rows.act(x)),
        "torch, by columns": timed(lambda: columns.act(x)),
        "onnxruntime": timed(lambda: session.run(None, feed)),
    }
    seconds = interleaved(cases, options.repeats)
    figures = {k: {"seconds": summary(v), "to_onnxruntime": ratio(v, seconds["onnxruntime"])} for k, v in seconds.items()}
    lines = [[k, show(f["seconds"], 1e6, 0), show(f["to_onnxruntime"])] for k, f in figures.items()]
    print(table([f"batch {options.batch}", "microseconds a step", "of onnxruntime"], lines))
    write_json(options.json, {"versions": versions("torch", "onnxruntime"), "batch": options.batch, "cases": figures})


if __name__ == "__main__":
    main()
