"""Where the time of a policy's step goes: products, other operators, Python around them; beside onnxruntime on the original.

    python -m benchmarks.step [FOLDER of a build …, default out/Huggy] [--batch 1 --batch 1024] [--rounds 15] [--json FILE]

One thread. `policy.act` is taken apart by calling less of it: the same operators on the same numbers without the modules around
them, and of these the products alone. "bound" is how long the products would take at the rate that this BLAS reaches on a product of
2,048 × 2,048 × 2,048, so no engine that uses it, or one as fast, can be faster than that.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from graph2torch.act.folder import open_folder
from graph2torch.engine.engines import trial
from graph2torch.engine.memory import keep_freed_memory
from graph2torch.graph import load
from graph2torch.judge.runtime import session

from .measure import ROOT, interleaved, ratio, show, summary, table, versions, write_json

PRODUCTS = ("linear", "addmm", "mm", "matmul", "bmm", "conv2d", "lstm", "lstm_cell")
VIEWS = (
    "t",
    "transpose",
    "view",
    "_unsafe_view",
    "reshape",
    "permute",
    "slice",
    "select",
    "expand",
    "unsqueeze",
    "squeeze",
    "detach",
    "numpy_T",
)
SIDE = 2048
Recorded = tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]  # name, function, operands, result


class Recorder(TorchDispatchMode):
    """Notes each operator with its operands."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Recorded] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[1]
        # torch's own function of that name, as model.py calls it: calling an operator by its overload takes longer
        plain = getattr(torch, name, None) or getattr(torch._C._nn, name, None) or func
        try:
            plain(*args, **(kwargs or {}))
        except TypeError:  # another signature
            plain = func
        out = func(*args, **(kwargs or {}))
        self.calls.append((name, plain, args, kwargs or {}, out))
        return out


def operations(calls: Sequence[Recorded]) -> float:
    """Floating point operations of the products: 2 for each of an output's summands. Recurrent layers are not counted."""
    total = 0.0
    for name, _, args, _, out in calls:
        if name in ("linear", "conv2d"):
            total += 2.0 * out.numel() * args[1][0].numel()
        elif name in ("mm", "bmm", "matmul", "addmm"):
            total += 2.0 * out.numel() * args[1 if name == "addmm" else 0].shape[-1]
    return total


def taken(step: Callable[[], Any], steps: int) -> Callable[[], float]:
    """Measures the median of so many steps."""

    def run() -> float:
        with torch.inference_mode():
            seconds = []
            for _ in range(steps):
                start = time.perf_counter()
                step()
                seconds.append(time.perf_counter() - start)
            return statistics.median(seconds)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folders", nargs="*", type=Path, default=[ROOT / "out" / "Huggy"])
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    square = torch.randn(SIDE, SIDE)
    rows, documents = [], []
    for folder in options.folders:
        opened = open_folder(folder)
        policy: Any = opened.load()
        judge = session(load(opened.find_original()).proto, True, "the original")
        for batch in options.batch or (1, 1024):
            arrays = trial(opened.contract, False, batch, 0)
            arguments = [torch.from_numpy(a) for a in arrays]
            feed = dict(zip([i.name for i in opened.contract.inputs], arrays, strict=True))
            with torch.inference_mode(), Recorder() as recorder:
                policy.act(*arguments)
            work = [(plain, args, kwargs) for name, plain, args, kwargs, _ in recorder.calls if name not in VIEWS]
            products = [(plain, args, kwargs) for name, plain, args, kwargs, _ in recorder.calls if name in PRODUCTS]

            def again(calls: Sequence[tuple[Callable[..., Any], Any, Any]] = ()) -> None:
                for plain, args, kwargs in calls:
                    plain(*args, **kwargs)

            steps = 200 if batch < 16 else 20 if batch < 256 else 3
            cases = {
                "onnxruntime": taken(lambda judge=judge, feed=feed: judge.run(None, feed), steps),  # type: ignore[misc]
                "policy.act": taken(lambda policy=policy, arguments=arguments: policy.act(*arguments), steps),  # type: ignore[misc]
                "operators": taken(lambda again=again, work=work: again(work), steps),  # type: ignore[misc]
                "products": taken(lambda again=again, products=products: again(products), steps),  # type: ignore[misc]
                "square": taken(lambda: torch.mm(square, square), 1),
            }
            seconds = interleaved(cases, options.rounds)
            figures = {k: {"seconds": summary(v), "to_onnxruntime": ratio(v, seconds["onnxruntime"])} for k, v in seconds.items()}
            rate = 2 * SIDE**3 / min(seconds["square"])
            bound = operations(recorder.calls) / rate
            best = {k: min(v) for k, v in seconds.items()}
            parts = {
                "products": best["products"],
                "other operators": best["operators"] - best["products"],
                "Python around them": best["policy.act"] - best["operators"],
            }
            documents.append(
                {
                    "policy": folder.name,
                    "batch": batch,
                    "cases": figures,
                    "parts": parts,
                    "operators": len(work),
                    "products": len(products),
                    "bound": bound,
                    "operations_a_second": rate,
                }
            )
            cells = [f"{1e6 * value:,.1f} ({value / best['onnxruntime']:.2f})" for value in (best["policy.act"], *parts.values(), bound)]
            rows.append([folder.name, f"{batch:,}", show(figures["onnxruntime"]["seconds"], 1e6, 1), *cells, str(len(work))])
    head = ["policy", "batch", "onnxruntime, µs", "policy.act, µs (÷)", "products", "other operators", "Python", "bound", "operators"]
    print(table(head, rows))
    print("÷: by onnxruntime's; least of the rounds")
    write_json(options.json, {"versions": versions("torch", "onnxruntime"), "steps": documents})


if __name__ == "__main__":
    main()
