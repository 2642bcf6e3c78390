"""Which targets of speed are reached: a policy's step beside onnxruntime on the original, as `bench` measures it.

    python -m benchmarks.targets [FOLDER of a build …, default out/Huggy] [--plain NAME, default Huggy] [--rounds 15] [--threads 1] [--compile] [--json FILE]

The folder called NAME has the targets of a plain policy, all others those of recurrent, attention and visual ones. With --compile the
policies are compiled where the cache doesn't hold them compiled, some ten seconds for each batch.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graph2torch.bench import REFERENCE, bench_folder, report

from .measure import built_huggy, figure, table, versions, write_json

ACT = "torch, policy.act"
# batch → the largest ratio of policy.act, and of the fastest engine
PLAIN = {1: (1.1, 0.95), 1024: (1.0, 0.80)}
OTHERS = {1: (1.5, 1.0), 1024: (1.5, 1.0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--plain", default="Huggy")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        measured(options.folders or [built_huggy(None, stack)], options)


def measured(folders: Sequence[Path], options: argparse.Namespace) -> None:
    rows: list[list[str]] = []
    documents: list[dict[str, Any]] = []
    figures: list[dict[str, Any]] = []
    for folder in folders:
        found = bench_folder(folder, batches=(1, 1024), rounds=options.rounds, thread_counts=(options.threads,), compile=options.compile)
        documents.append(report(found))
        for batch in dict.fromkeys(row.batch for row in found.rows):
            ratios = {r.engine: r.timing.ratio for r in found.rows if r.batch == batch and r.timing and r.engine != REFERENCE}
            best = min(ratios, key=lambda engine: ratios[engine], default=None)
            targets = (PLAIN if folder.name == options.plain else OTHERS).get(batch, (None, None))
            for what, engine, target in (("act", ACT, targets[0]), ("best", best, targets[1])):
                ratio = ratios.get(engine) if engine else None
                verdict = (
                    "not measured" if ratio is None else "no target" if target is None else "reached" if ratio <= target else "not reached"
                )
                shown = "" if ratio is None else f"{ratio:.2f}"
                timing = next((r.timing for r in found.rows if r.batch == batch and r.engine == engine), None)
                if timing:
                    name = f"{folder.name}, batch {batch:,}, {what}: of onnxruntime's step"
                    figures.append(figure(name, timing.ratio, timing.ratio_min, timing.ratio_max, target=target))
                rows.append([folder.name, f"{batch:,}", f"{what} ({engine})", shown, f"{target or ''}", verdict])
    print(table(["policy", "batch", "engine", "ratio", "target", ""], rows))
    write_json(options.json, {"versions": versions("torch", "onnxruntime"), "reports": documents, "figures": figures})


if __name__ == "__main__":
    main()
