"""Runs what README.md and docs/ tell the reader to run, and writes the outputs shown there anew.

    python docs/outputs.py [--check] [--slow] [PAGE …]

Marks in a page, comments before a fenced block, say what the block is:

    <!-- output -->          commands (`$ …`), each with what it prints, stdout and stderr together
    <!-- run -->             commands, one a line, of which only success is expected
    <!-- write: FILE -->     the text of a file, which is written
    <!-- file: FILE -->      the text of a file that the page's commands wrote
    <!-- run: COMMAND -->    stands alone: a command that the reader doesn't need to see
    <!-- checkout: DIR -->   stands alone: a copy of this checkout, with its environment, for commands that change one
    <!-- needs: PACKAGE -->  stands alone: where this Python package is missing, nothing of the page is run

Each page has a folder of its own, like a checkout after `make demo`. A page's blocks run in it in their order, so what one of them wrote is there for the next.

Outputs are compared character by character, unless the mark names what may vary (`<!-- output: roundings -->`):

    roundings     numbers that another processor rounds otherwise: `same_but_for_roundings` says how far they may be off
    fingerprints  hashes of such numbers, or of random ones
    sizes         megabytes of what a compiler wrote
    tests         how many tests pytest left out, and how long it took
    slow          nothing; but the block takes long and runs only with --slow

What is the same by these rules is left as it stands. With --check nothing is written, the differences are printed, and the exit status is 1 if
there are any.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "assets" / "README.md")
MARK = r"<!-- (?P<kind>output|run|write|file|checkout|needs)(?:: (?P<words>[^\n]*?))? -->\n"
BLOCK = re.compile(rf"^{MARK}(?:```(?P<language>\w*)\n(?P<text>.*?)^```\n)?", re.DOTALL | re.MULTILINE)
VARYING = {"roundings", "fingerprints", "sizes", "tests"}
CHECKOUT = ("assets", "benchmarks", "docs", "graph2torch", "rules", "tests", "LICENSE", "Makefile", "README.md", "cli.py", "constraints.txt",
            "hatch_build.py", "pyproject.toml")  # fmt: skip
INHERITED = re.compile(r"PYTEST_|GRAPH2TORCH_|MAKE|MFLAGS$|(FORCE_|NO_)?COLOR$|CLICOLOR|COLUMNS$|LINES$|LC_|LANG")  # would change outputs


@dataclass(frozen=True)
class Block:
    """A marked block of a page."""

    kind: str  # output, run, write, file, checkout, needs
    words: str  # of the mark, behind its colon
    language: str
    text: str
    line: int  # of the mark, from 1
    fenced: bool = True

    @property
    def slow(self) -> bool:
        return self.kind == "output" and "slow" in self.words

    @property
    def varying(self) -> set[str]:
        return set(re.findall(r"\w+", self.words)) - {"slow"} if self.kind == "output" else set()

    @property
    def commands(self) -> list[str]:
        """The commands that it runs."""
        if self.kind == "run":
            return [
                command
                for line in (self.text.splitlines() if self.fenced else [self.words])
                if (command := line.partition("  # ")[0].strip())
            ]
        return [line[2:] for line in self.text.splitlines() if line.startswith("$ ")] if self.kind == "output" else []

    def __str__(self) -> str:
        """As it stands in the page."""
        mark = f"<!-- {self.kind}{f': {self.words}' if self.words else ''} -->\n"
        return f"{mark}```{self.language}\n{self.text}```\n" if self.fenced else mark


def blocks(text: str) -> Iterator[Block]:
    """The marked blocks of a page. ValueError for a mark that is none."""
    for found in BLOCK.finditer(text):
        yield _block(found, text)
    if len(re.findall(r"^<!-- (?:output|run|write|file|checkout|needs)\b", text, re.MULTILINE)) != len(BLOCK.findall(text)):
        raise ValueError("a mark doesn't stand on a line of its own")


def _block(found: re.Match[str], text: str) -> Block:
    line = text.count("\n", 0, found.start()) + 1
    block = Block(found["kind"], found["words"] or "", found["language"] or "", found["text"] or "", line, found["text"] is not None)
    if not block.fenced and not (block.kind in ("run", "checkout", "needs") and block.words):
        raise ValueError(f"line {line}: the mark {block.kind} belongs before a fenced block")
    if block.kind == "output" and (unknown := block.varying - VARYING):
        raise ValueError(f"line {line}: unknown words in the mark: {', '.join(sorted(unknown))}")
    return block


def missing(text: str) -> list[str]:
    """The Python packages that a page needs and that aren't here."""
    return [block.words for block in blocks(text) if block.kind == "needs" and find_spec(block.words) is None]


# ---------------------------------------------------------------------------------------------- running
class Workshop:
    """Folders like a checkout after `make demo`, and the commands `graph2torch` and `python` of this checkout and environment."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        programs = scratch / "bin"
        programs.mkdir()
        for name, command in {"graph2torch": f'"{sys.executable}" "{ROOT / "cli.py"}"', "python": f'"{sys.executable}"'}.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
            (programs / name).chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not INHERITED.match(name)}
        self.environment = {**kept, "PATH": f"{programs}:{kept['PATH']}", "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
        self.demo = scratch / "demo"
        _lay(self.demo)
        self.status, printed = self.run("graph2torch build assets/Huggy.onnx assets/Huggy.pt -o out/Huggy", self.demo)
        if self.status:
            raise RuntimeError(f"the demo doesn't build:\n{printed}")

    def folder(self, page: Path) -> Path:
        """A fresh folder for a page."""
        folder = Path(tempfile.mkdtemp(prefix=f"{page.stem}-", dir=self.scratch))
        _lay(folder)
        shutil.copytree(self.demo / "out", folder / "out")
        return folder

    def run(self, command: str, folder: Path) -> tuple[int, str]:
        """Its exit status and what it printed."""
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, encoding="utf-8", errors="backslashreplace", check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    def now(self, block: Block, folder: Path) -> Block:
        """The block as it would be written now; what it does is done."""
        if block.kind == "write":
            target = folder / block.words
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        elif block.kind == "file":
            return replace(block, text=(folder / block.words).read_text(encoding="utf-8"))
        elif block.kind == "output":
            return replace(block, text="".join(f"$ {command}\n{self.run(command, folder)[1]}" for command in block.commands))
        elif block.kind == "checkout":
            copy_checkout(folder / block.words)
        for command in block.commands if block.kind == "run" else ():
            status, printed = self.run(command, folder)
            if status:
                raise RuntimeError(f"line {block.line}: `{command}` ended with exit status {status}:\n{printed}")
        return block


def _lay(folder: Path) -> None:
    """What the commands of the pages read of a checkout."""
    folder.mkdir(exist_ok=True)
    shutil.copytree(ROOT / "assets", folder / "assets")
    (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
    (folder / "tests").mkdir()
    (folder / "tests" / "simulated").symlink_to(ROOT / "tests" / "simulated")


def copy_checkout(target: Path) -> None:
    """This checkout, and an environment in it that `make` takes for installed."""
    target.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__")
    for name in CHECKOUT:
        source = ROOT / name
        shutil.copytree(source, target / name, ignore=unwanted) if source.is_dir() else shutil.copy(source, target / name)
    environment = target / ".venv"
    environment.mkdir()
    for part in Path(sys.prefix).iterdir():
        if part.name != ".installed":
            (environment / part.name).symlink_to(part)
    (environment / ".installed").touch()


# ---------------------------------------------------------------------------------------------- comparing
def differences(old: Block, now: Block) -> list[str]:
    """In what two states of a block differ, as lines of a diff; none if they are the same by the words of the mark."""
    if old == now or same(old.text, now.text, old.varying):
        return []
    return [
        line.rstrip("\n")
        for line in difflib.unified_diff(old.text.splitlines(), now.text.splitlines(), "the page", "now", lineterm="", n=1)
    ]


def same(old: str, now: str, varying: set[str]) -> bool:
    """Whether two outputs are the same but for what may vary."""
    old, now = (re.sub(r"(torch \d+\.\d+\.\d+)\+\w+", r"\1", text) for text in (old, now))  # whether torch is built for a GPU
    if "fingerprints" in varying:
        old, now = (re.sub(r"\b(?:[0-9a-f]{64}\b|[0-9a-f]{12,16}…)|\bt(?:[+-]\d+){8}\b", "…", text) for text in (old, now))
    if "sizes" in varying:
        old, now = (re.sub(r"\b\d+\.\d\d MB\b", "… MB", text) for text in (old, now))
    if "tests" in varying:
        old, now = (re.sub(r", \d+ deselected(?: in [\d.]+s)?", "", text) for text in (old, now))
    return same_but_for_roundings(old, now) if "roundings" in varying else old == now


NUMBER = re.compile(r"(?P<before>[^\w+−-]*)(?P<sign>[+−-]?)(?P<number>\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?P<after>[^\w]*)")


def same_but_for_roundings(old: str, now: str) -> bool:
    """Whether two outputs differ in such numbers only as another processor's rounding makes differ.

    Words, signs, whole numbers and how many numbers there are have to be the same. Of those that are none:

    - below 0.01, where errors are: a factor of ten, and 0 stays 0;
    - else: one unit of the last digit that is shown, or 1e-5 · max(1, the number);
    - "8 of 567", how many numbers differ: the 8, unless it is 0;
    - units in the last place: any, unless none; so near 1, a cosine.
    """
    olds, news = _tokens(old), _tokens(now)
    return len(olds) == len(news) and all(
        a == b or _alike(a, b, counted=olds[i + 1 : i + 2] == ["of"]) for i, (a, b) in enumerate(zip(olds, news, strict=True))
    )


def _tokens(text: str) -> list[str]:
    """Words between spaces, so that a line may be broken elsewhere; units in the last place and cosines are one word each."""
    lines, head = [], list[str]()
    for line in text.splitlines():
        cells = re.split(r"  +", line.strip())
        if "ulp" in cells:
            head = cells
        elif len(cells) <= len(head) or line.startswith("$ "):
            head = []
        elif head:
            for place, name in enumerate(head, len(cells) - len(head)):
                if name == "ulp" and cells[place] not in ("0", "–"):
                    cells[place] = "ulps"
                if name == "cosine" and re.fullmatch(r"1( − \d+e-(0[5-9]|1\d))?", cells[place]):
                    cells[place] = "nearly-1"
        lines.append(" ".join(cells))
    return re.sub(r"\b(?!0 )[\d,]+ ulp\b", "n ulp", " ".join(lines)).split()


def _alike(old: str, now: str, *, counted: bool) -> bool:
    a, b = NUMBER.fullmatch(old), NUMBER.fullmatch(now)
    if not a or not b or any(a[part] != b[part] for part in ("before", "sign", "after")):
        return False
    x, y = (float(found["number"].replace(",", "")) for found in (a, b))
    if counted:
        return 0.1 <= x / y <= 10 if x and y else x == y
    if re.fullmatch(r"[\d,]+", a["number"]) or re.fullmatch(r"[\d,]+", b["number"]):
        return False
    if max(x, y) < 0.01:
        return 0.1 <= x / y <= 10 if x and y else x == y
    places = min(len(found["number"].partition(".")[2]) for found in (a, b))
    return abs(x - y) <= max(1.01 * 0.1**places, 1e-5 * max(1, x))


# ---------------------------------------------------------------------------------------------- pages
def refreshed(page: Path, workshop: Workshop, *, slow: bool = False) -> tuple[str, list[str]]:
    """A page's text with its outputs as they are now, and the differences, each with its place."""
    text, told = page.read_text(encoding="utf-8"), []
    folder = workshop.folder(page)

    def replaced(found: re.Match[str]) -> str:
        block = _block(found, text)
        if block.slow and not slow:
            return str(block)
        now = workshop.now(block, folder)
        apart = differences(block, now)
        told.extend([f"{page.name}, line {block.line}:", *apart] if apart else [])
        return str(now if apart else block)

    list(blocks(text))  # what is wrong with the marks comes out first
    try:
        return BLOCK.sub(replaced, text), told
    finally:
        shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a page is out of date")
    parser.add_argument("--slow", action="store_true", help="the blocks that take long as well")
    options = parser.parse_args()
    stale = False
    with tempfile.TemporaryDirectory() as scratch:
        workshop = Workshop(Path(scratch).resolve())
        for page in options.pages:
            if wanted := missing(page.read_text(encoding="utf-8")):
                print(f"{page}: left as it is, since it needs {', '.join(wanted)}")
                continue
            text, apart = refreshed(page, workshop, slow=options.slow)
            if apart:
                stale = True
                print("\n".join(apart) if options.check else f"{page}: written anew")
                if not options.check:
                    page.write_text(text, encoding="utf-8")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
