"""Which models of a folder each of torch's exporters can export again, and at which level: counts, no names.

    python benchmarks/exporters.py FOLDER [--opset 18] [--exporters torchscript dynamo] [--every 1] [--json FILE]

Every .onnx below FOLDER is built, with the weights of the graph, and its module is exported by each exporter at the
original's opset (torchscript) and at `--opset` (both); the level is that of `graph2torch export`. What a model is missing, or
an exporter refuses, is counted by the kind of error. dynamo needs the extra `dynamo`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure import table, versions, write_json  # noqa: E402
from graph2torch.build import build_policy  # noqa: E402
from graph2torch.errors import Graph2TorchError  # noqa: E402
from graph2torch.module import build_module  # noqa: E402
from graph2torch.target.target import Target, export_module  # noqa: E402

COLUMNS = ("graph", "bits", "close", "differs", "refused")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--opset", type=int, default=18)
    parser.add_argument("--exporters", nargs="+", default=["torchscript", "dynamo"])
    parser.add_argument("--every", type=int, default=1, help="take every N-th model only")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    counts: dict[str, Counter[str]] = {}
    reasons: dict[str, Counter[str]] = {}
    models = unbuilt = 0
    for path in sorted(options.folder.rglob("*.onnx"))[:: options.every]:
        models += 1
        try:
            made = build_policy(path, weights="onnx")
        except Graph2TorchError:
            unbuilt += 1
            continue
        module = build_module(made.source, made.bindings)
        for exporter in options.exporters:
            for opset in (None, options.opset) if exporter == "torchscript" else (options.opset,):
                name = f"{exporter}, {'own opset' if opset is None else f'opset {opset}'}"
                try:
                    found = export_module(module, made.recognised, Target(exporter=exporter, opset=opset)).comparison
                    level, reason = found.level, found.reason
                except Graph2TorchError as error:
                    level, reason = "refused", f"{type(error).__name__}: {str(error)[:160]}"
                counts.setdefault(name, Counter())[level] += 1
                if level != "graph":
                    reasons.setdefault(name, Counter())[f"{level}: {kind_of(reason)}"] += 1
    print(f"{models} models, {unbuilt} of them not built")
    print(table(("exporter", *COLUMNS), [(name, *(str(found[c]) for c in COLUMNS)) for name, found in counts.items()]))
    for name, found in reasons.items():
        for reason, count in found.most_common(6):
            print(f"{name}: {count} × {reason}")
    write_json(
        options.json,
        {"models": models, "unbuilt": unbuilt, "levels": counts, "versions": versions("torch", "onnx", "onnxscript", "onnxruntime")},
    )
    return 0


def kind_of(reason: str) -> str:
    """A reason without the names of a file, which are quoted in it."""
    parts = reason.split("'")
    return "…".join(parts[::2])[:160]


if __name__ == "__main__":
    sys.exit(main())
