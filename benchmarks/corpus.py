"""Seconds that one process takes to build every model of a folder, the imports left out: the whole build, verification and writing included.

    python -m benchmarks.corpus [FOLDER] [--json FILE]

Without a folder: a tiny policy of each family, as the tests make them. A model is built with the checkpoint beside it, if there is one
of the same name or one alone in its folder, and if these two are no pair with the weights of the graph. The level of each is counted.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

from graph2torch.build import build
from graph2torch.errors import Graph2TorchError, PairError

from .measure import figure, table, versions, write_json

TARGET = 60.0  # seconds, for the corpus of 220 models


def checkpoint_of(model: Path) -> Path | None:
    same, beside = model.with_suffix(".pt"), sorted(model.parent.glob("*.pt"))
    return same if same.exists() else beside[0] if len(beside) == 1 else None


def built(model: Path, folder: Path) -> str:
    """The level of one model, or why there is none."""
    try:
        return build(model, checkpoint_of(model), folder, force=True).verification.level
    except PairError:
        return build(model, None, folder, force=True).verification.level
    except Graph2TorchError as error:
        return f"refused ({type(error).__name__})"


def tiny(folder: Path) -> Path:
    """A tiny policy of each family and its checkpoint."""
    from tests.models import FAMILIES, save_pair, tiny_checkpoint, tiny_policy

    for name, arguments in FAMILIES.items():
        model = tiny_policy(**arguments)
        save_pair(folder, model, tiny_checkpoint(model), name)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch, "models")
        made.mkdir()
        models = sorted((options.folder or tiny(made)).rglob("*.onnx"))
        out = Path(scratch, "out")
        built(models[0], out)  # the first build sets torch's exporter and onnxruntime up
        levels: Counter[str] = Counter()
        start, processor = time.perf_counter(), time.process_time()
        for model in models:
            levels[built(model, out)] += 1
        clock, spent = time.perf_counter() - start, time.process_time() - processor
    print(
        table(
            ["models", "seconds", "of processor time", "a model"],
            [[str(len(models)), f"{clock:.1f}", f"{spent:.1f}", f"{spent / len(models):.3f}"]],
        )
    )
    print(", ".join(f"{count} {level}" for level, count in levels.most_common()))
    target = TARGET if options.folder else None
    figures = [
        figure(f"{len(models)} models, by the clock", clock, unit="s", target=target),
        figure(f"{len(models)} models, of processor time", spent, unit="s"),
        figure("a model, of processor time", spent / len(models), unit="s"),
        *(figure(f"level {level}", count, unit="models") for level, count in sorted(levels.items())),
    ]
    write_json(
        options.json, {"versions": versions("torch", "onnx", "onnxruntime"), "models": len(models), "levels": levels, "figures": figures}
    )


if __name__ == "__main__":
    main()
