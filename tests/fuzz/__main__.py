"""Hostile input by the hundred thousand: `python -m tests.fuzz` makes files from random numbers and gives them to the program.

Each case has a kind, a seed and a number, and is the same every time: what `--only KIND --seed S --number N` makes again.
For every case it must hold that only the package's own errors come out, one paragraph safe to print; that the process
neither crashes nor hangs nor takes memory beyond a bound; that nothing runs, and nothing is written but the output, whole
or not at all; and that a level which promises equal bits is true. What fails is kept in a folder, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from .kinds import KINDS
from .worker import serve

ROOT = Path(__file__).resolve().parents[2]
WORKER = [sys.executable, *([sys.argv[0]] if Path(sys.argv[0]).name != "__main__.py" else ["-m", "tests.fuzz"])]
BATCH = 5_000  # cases that one process runs, so that what it keeps doesn't add up


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000, help="of all kinds together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=list(KINDS), help="this kind alone; may be given several times")
    parser.add_argument("--number", type=int, help="the case of this number alone")
    parser.add_argument("--first", type=int, default=0, help="the number to start with")
    parser.add_argument("--keep", type=Path, default=ROOT / "out" / "fuzz", help="where the files of failures go")
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        kind, seed, first, end, scratch = options.worker
        serve(kind, int(seed), range(int(first), int(end)), Path(scratch), options.keep)
        return 0
    chosen, counts, start = options.only or list(KINDS), dict[str, Counter[str]](), time.monotonic()
    options.keep.mkdir(parents=True, exist_ok=True)
    shares = sum(KINDS[kind].share for kind in chosen)
    for kind in chosen:
        numbers = range(options.first, options.first + max(1, round(options.cases * KINDS[kind].share / shares)))
        if options.number is not None:
            numbers = range(options.number, options.number + 1)
        began, counts[kind] = time.monotonic(), Counter()
        for first in range(numbers.start, numbers.stop, BATCH):
            counts[kind] += watched(kind, options.seed, range(first, min(first + BATCH, numbers.stop)), options.keep.resolve())
        took = time.monotonic() - began
        print(f"{kind}: {took:.0f} s, {1000 * took / len(numbers):.1f} ms each; {dict(counts[kind].most_common())}", flush=True)
    failed = sum(n for found in counts.values() for outcome, n in found.items() if outcome.startswith("FAILED"))
    print(table(counts))
    print(f"{sum(map(Counter.total, counts.values())):,} cases in {time.monotonic() - start:.0f} s, {failed:,} failed")
    return 1 if failed else 0


def watched(kind: str, seed: int, numbers: range, keep: Path) -> Counter[str]:
    """Runs the cases in processes of their own: a new one wherever one ended early, which is a failure of the case it was at."""
    counts: Counter[str] = Counter()
    at = numbers.start
    while at < numbers.stop:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
            line = [*WORKER, "--keep", str(keep), "--worker", kind, str(seed), str(at), str(numbers.stop), scratch]
            with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
                running: int | None = None
                assert process.stdout
                for row in process.stdout:
                    word, number, *rest = row.split(maxsplit=2)
                    if word == "start":
                        running = int(number)
                    else:
                        counts[rest[0].strip()] += 1
                        running, at = None, int(number) + 1
            if process.returncode == 0:
                break
            if running is None:
                raise RuntimeError(
                    f"the worker of {kind} ended by itself: {(Path(scratch) / 'warned').read_text(errors='replace')[-2000:]}"
                )
            faults = (Path(scratch) / "faults").read_text(errors="replace")
            outcome = "FAILED: hang" if "Timeout" in faults[:200] else f"FAILED: crash ({process.returncode})"
            counts[outcome] += 1
            kept = keep / f"{kind}-{seed}-{running}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(Path(scratch) / "case", kept, symlinks=True)
            warned = (Path(scratch) / "warned").read_text(errors="replace")[-2000:]
            (kept / "why.txt").write_text(f"{outcome}\n{faults}\n{warned}", encoding="utf-8")
            at = running + 1
    return counts


def table(counts: dict[str, Counter[str]]) -> str:
    """kind × outcome, in Markdown."""
    outcomes = list(dict.fromkeys(o for found in counts.values() for o, _ in found.most_common()))
    outcomes.sort(key=lambda o: (o.startswith("FAILED"), o[0].isupper(), o))
    rows = ["| kind | cases | " + " | ".join(outcomes) + " |", "|---" * (len(outcomes) + 2) + "|"]
    for kind, found in counts.items():
        rows.append(f"| {kind} | {found.total():,} | " + " | ".join(f"{found[o]:,}" if found[o] else "" for o in outcomes) + " |")
    total: Counter[str] = sum(counts.values(), Counter())
    return "\n".join([*rows, f"| together | {total.total():,} | " + " | ".join(f"{total[o]:,}" for o in outcomes) + " |"])


if __name__ == "__main__":
    sys.exit(main())
