"""Every benchmark that a figure of the README or of docs/ comes from, as one: figures, what changed since the last time, plots.

    python -m benchmarks [NAME …] [--quick] [--out out/benchmarks] [--against FILE.json] [--corpus FOLDER]

Each is a process of its own, and can be run alone with options of its own: `python -m benchmarks.startup --help`. What they find is
written to OUT as one JSON document: versions, processor, and every figure with its smallest and largest; with the extra `plot` there is
a picture of each benchmark beside it. The figures are held against the document before (the newest in OUT, or --against): a
change is marked where the two ranges have nothing in common, so that it is more than what one run differs from another. A
figure of another processor says nothing, which is told.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .measure import ROOT, processor, table, versions

# name → arguments, and the arguments of --quick
ALL: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "startup": (("--repeats", "11"), ("--repeats", "3")),
    "build": ((), ("--processes", "2", "--repeats", "3")),
    "corpus": ((), ()),
    "filter": ((), ("--lines", "5000")),
    "targets": ((), ("--rounds", "3")),
    "scaling": (("--repeats", "1"), ("--sizes", "1000", "10000", "--shapes", "policy", "chain", "--repeats", "1")),
    "traps": ((), ("--samples", "200")),
    "exporters": ((), ("--quick",)),
}
OF_FOLDERS = ("corpus", "exporters")  # take --corpus


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all. {', '.join(ALL)}")
    parser.add_argument("--quick", action="store_true", help="fewer repeats: whether it works, and where the figures lie")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "benchmarks")
    parser.add_argument("--against", type=Path, help="the document to compare with; default: the newest in OUT")
    parser.add_argument(
        "--corpus", type=Path, help=f"a folder of models for {' and '.join(OF_FOLDERS)}; default: a tiny one of each family"
    )
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in ALL]:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(ALL)}")
    earlier = sorted(options.out.glob("*.json"))
    last = options.against or (earlier[-1] if earlier else None)
    before = json.loads(last.read_text(encoding="utf-8")) if last else None
    document: dict[str, Any] = {"versions": versions(*PACKAGES), "processor": processor(), "quick": options.quick, "benchmarks": {}}
    failed = []
    for name in options.names or ALL:
        print(f"── {name}", flush=True)
        arguments = [*ALL[name][options.quick], *([str(options.corpus)] if options.corpus and name in OF_FOLDERS else [])]
        found = one(name, arguments)
        if found is None:
            failed.append(name)
        else:
            document["benchmarks"][name] = found
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"\n{compared(document, before, str(last) if last else '')}")
    drawn = plots(document, options.out)
    pictures = f", pictures: {', '.join(drawn)}" if drawn else ""
    print(f"\nWritten to {path}{pictures}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


PACKAGES = ("torch", "onnx", "onnxruntime", "onnx-graphsurgeon", "numpy", "typer", "safetensors", "onnxscript")


def one(name: str, arguments: Sequence[str]) -> dict[str, Any] | None:
    """What `python -m benchmarks.NAME` found; None if it failed, which it has told."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        command = [sys.executable, "-m", f"benchmarks.{name}", *arguments, "--json", str(file)]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        if status or not file.exists():
            print(f"benchmarks.{name} ended with {status}", file=sys.stderr)
            return None
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found


# ---------------------------------------------------------------------------------------------- against the last time
def compared(now: Mapping[str, Any], before: Mapping[str, Any] | None, called: str) -> str:
    """A table of all figures, beside those of the document before."""
    known = {(name, f["name"]): f for name, found in (before or {}).get("benchmarks", {}).items() for f in found.get("figures", ())}
    rows = []
    for name, found in now["benchmarks"].items():
        for f in found.get("figures", ()):
            last = known.get((name, f["name"]))
            beyond = "" if "target" not in f else "met" if f["value"] <= f["target"] else f"not met: {f['target']:g}"
            rows.append([name, f["name"], number(last) if last else "", number(f), change(last, f) if last else "", beyond])
    said = [table(["benchmark", "figure", "last", "now", "change", "target"], rows, left=2)]
    if before:
        said.append(f"last: {called}; ! marks a change beyond the range of both")
        if before.get("processor") != now["processor"]:
            said.append(f"last was measured on another processor ({before.get('processor')}), so its times say nothing here")
        if before.get("quick") != now["quick"]:
            said.append("one of the two was measured with --quick: fewer repeats, and other sizes")
    return "\n".join(said)


def number(figure: Mapping[str, Any]) -> str:
    """`0.31 (0.30 – 0.35) s`; without the range where there is none."""
    spread = f" ({figure['low']:.3g} – {figure['high']:.3g})" if figure["low"] != figure["high"] else ""
    return f"{figure['value']:.4g}{spread}{' ' if figure['unit'] else ''}{figure['unit']}"


def change(last: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """`+12 %`, with a mark if the ranges have nothing in common."""
    apart = now["low"] > last["high"] or now["high"] < last["low"]
    moved = f"{100 * (now['value'] / last['value'] - 1):+.0f} %" if last["value"] else "" if now["value"] == last["value"] else "from 0"
    return f"{moved}{' !' if apart else ''}"


# ---------------------------------------------------------------------------------------------- pictures
def plots(document: Mapping[str, Any], folder: Path) -> list[str]:
    """Names of the pictures written to `folder`, one of each benchmark; none without matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("\nno pictures: matplotlib isn't installed (pip install 'graph2torch[plot]')")
        return []
    mpl.use("Agg")
    from matplotlib.figure import Figure

    written = []
    for name, found in document["benchmarks"].items():
        units: dict[str, list[Mapping[str, Any]]] = {}
        for f in found.get("figures", ()):
            units.setdefault(f["unit"], []).append(f)
        if not units:
            continue
        heights = [len(figures) for figures in units.values()]
        with mpl.rc_context({"svg.hashsalt": "graph2torch", "svg.fonttype": "none", "font.size": 8}):
            picture = Figure(figsize=(9, 1.0 + 0.6 * len(units) + 0.24 * sum(heights)), layout="constrained")
            axes = picture.subplots(len(units), 1, squeeze=False, height_ratios=[h + 1 for h in heights])[:, 0]
            for place, (unit, figures) in zip(axes, units.items(), strict=True):
                for y, f in enumerate(reversed(figures)):
                    place.plot([f["low"], f["high"]], [y, y], color="tab:blue", linewidth=3, alpha=0.4)
                    place.plot(f["value"], y, "o", color="tab:blue", markersize=4)
                    if "target" in f:
                        place.plot(f["target"], y, "|", color="tab:red", markersize=11)
                place.set_yticks(range(len(figures)), [f["name"].replace("$", r"\$") for f in reversed(figures)])
                place.set_xlabel(unit or "ratio")
                place.set_xlim(left=0)
                place.margins(y=0.5 / max(1, len(figures)))
            picture.suptitle(
                f"{name} (median, range{', target in red' if any('target' in f for f in found['figures']) else ''})", fontsize=9
            )
            picture.savefig(folder / f"{name}.svg", metadata={"Date": None})
        written.append(f"{name}.svg")
    return written


if __name__ == "__main__":
    sys.exit(main())
