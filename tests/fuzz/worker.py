"""Runs cases in this process, which the one that started it watches: a line for each before it runs, and one after.

The process has a limit on its memory, and ends itself, with a traceback of where it was, if a case takes too long. While
a case runs, an audit hook looks for what no input may bring about: files written outside the case's folder, programs,
connections. Reading the rules again for every case would take most of the time, so they are read once.
"""

from __future__ import annotations

import faulthandler
import functools
import os
import random
import resource
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import TextIO

from .case import Made

LIMIT = 60.0  # seconds that a case may take before the process is ended
SLOW = 8.0  # seconds of the processor that no case may take
HEADROOM = 3 * 2**30  # bytes of address space beyond what the libraries take
NEVER = frozenset(
    {"os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.Popen", "socket.connect", "socket.bind"}
    | {"webbrowser.open", "urllib.Request", "ftplib.connect", "os.chmod", "os.chown", "os.truncate", "os.kill"}
)
CHANGES = frozenset({"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "shutil.rmtree", "shutil.move"})
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Watch:
    """What the audit hook saw while a case was running."""

    def __init__(self, folder: Path) -> None:
        self.inside, self.on, self.seen = str(folder) + os.sep, False, list[str]()
        sys.addaudithook(self.hook)

    def hook(self, event: str, given: tuple[object, ...]) -> None:
        if not self.on:
            return
        if event in NEVER:
            self.seen.append(f"{event} {given!r}"[:300])
        elif event in CHANGES or (event == "open" and isinstance(given[2], int) and given[2] & WRITES):
            paths = given[:2] if event in ("os.rename", "os.symlink", "os.link", "shutil.move") else given[:1]
            for path in paths:
                if not self.allowed(path):
                    self.seen.append(f"{event} {path!r}"[:300])

    def allowed(self, path: object) -> bool:
        if isinstance(path, int) or path is None:
            return True
        text = os.fsdecode(path)  # type: ignore[arg-type]
        whole = os.path.normpath(os.path.join(self.inside, text))  # noqa: PTH118 (Path keeps "..")
        return whole.startswith(self.inside) or whole == os.devnull or whole + os.sep == self.inside


def serve(kind_name: str, seed: int, numbers: range, scratch: Path, keep: Path) -> None:
    """Runs the cases; their lines go to what stdout was, and whatever anything prints goes to a file that must stay empty."""
    lines = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    printed = os.open(scratch / "printed", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    faults = (scratch / "faults").open("w")
    os.dup2(printed, 1)
    os.dup2(os.open(scratch / "warned", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    faulthandler.enable(faults)
    sys.dont_write_bytecode = True
    sys.path_importer_cache.clear()

    from graph2torch import explain, recognise, rulebook

    from .kinds import KINDS

    once = functools.cache(rulebook.load_rules)
    for module in (recognise, explain):
        setattr(module, "load_rules", lambda *folders: rulebook.load_rules(*folders) if folders else once())  # noqa: B010
    once()
    if kind_name not in ("patterns", "tables", "observations", "onnx-bytes", "onnx-graphs"):
        import torch

        torch.set_num_threads(1)
    watch = Watch(scratch / "case")
    here = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (here + HEADROOM, resource.RLIM_INFINITY))
    for number in numbers:
        lines.write(f"start {number}\n")
        outcome, why = one(
            KINDS[kind_name].make, random.Random(f"{kind_name} {seed} {number}"), watch, scratch / "case", faults, KINDS[kind_name].memory
        )
        if os.fstat(printed).st_size:
            outcome, why = "FAILED: printed", os.pread(printed, 1000, 0).decode("utf-8", "replace")
            os.ftruncate(printed, 0)
            os.lseek(printed, 0, os.SEEK_SET)
        if outcome.startswith("FAILED"):
            save(scratch / "case", keep / f"{kind_name}-{seed}-{number}", f"{outcome}\n{why}")
        lines.write(f"end {number} {outcome}\n")


def one(make: Made, rng: random.Random, watch: Watch, folder: Path, faults: TextIO, memory: int) -> tuple[str, str]:
    """Makes a case and runs it: the outcome, and the traceback if it is a failure."""
    from graph2torch.errors import Graph2TorchError
    from tests.commands import unsafe

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.chdir(folder)
    try:
        case = make(rng)
        for name, data in case.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    except Exception:  # a fault of the maker's
        return "FAILED: case not made", traceback.format_exc()
    before = {p.parts[len(folder.parts)] for name in case.files for p in [folder / name]}
    peak, start = memory_peak(reset=True), time.process_time()
    faulthandler.dump_traceback_later(LIMIT, exit=True, file=faults)
    watch.on, why = True, ""
    try:
        outcome = case.run(folder)
    except Graph2TorchError as error:
        outcome, message = type(error).__name__, str(error)
        if not 0 < len(message) < 1500 or "\n" in message or unsafe(message):
            outcome, why = "FAILED: message", repr(message[:3000])
    except BaseException as error:  # whatever it is, it should not have come out
        outcome, why = f"FAILED: {type(error).__name__}", traceback.format_exc()
    finally:
        watch.on = False
        faulthandler.cancel_dump_traceback_later()
    took, grown = time.process_time() - start, memory_peak() - peak
    left = {p.name for p in folder.iterdir()} - before
    if watch.seen:
        outcome, why = "FAILED: audit", "\n".join(watch.seen)
        watch.seen.clear()
    elif not outcome.startswith("FAILED") and (left - set(case.makes) or (left and outcome[0].isupper())):
        outcome, why = "FAILED: left behind", f"{sorted(left)!r}"
    elif took > SLOW and not outcome.startswith("FAILED"):
        outcome, why = "FAILED: slow", f"{took:.1f} s"
    elif grown > memory and not outcome.startswith("FAILED"):
        outcome, why = "FAILED: memory", f"{grown // 2**20} MiB more"
    return outcome, why


def memory_peak(reset: bool = False) -> int:
    """The most bytes of memory that this process has held, since the last reset. (getrusage's peak is inherited from the parent.)"""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    row = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM"))
    return int(row.split()[1]) * 1024


def save(case: Path, kept: Path, why: str) -> None:
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(case, kept, symlinks=True, ignore_dangling_symlinks=True)
    (kept / "why.txt").write_text(why, encoding="utf-8", errors="backslashreplace")
