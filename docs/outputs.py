"""Writes the outputs shown in README.md and docs/ anew, by running the commands that they stand under.

    python docs/outputs.py [--check] [FILE …]

A fenced block that follows the comment `<!-- output -->` starts with commands (`$ …`); what they print, stdout and
stderr together, is the rest of it. The Python blocks of a page are written to files first where they follow
`<!-- write: NAME -->`, and one that follows `<!-- file: NAME -->` shows that file. Commands run from the root of the
checkout for README.md, equality-levels.md, how-it-works.md and walkthrough.md, and in an empty folder for the others. With --check nothing is written; the
exit status is 1 if a page is out of date.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
IN_CHECKOUT = {
    "README.md",
    "comparing.md",
    "equality-levels.md",
    "exporting.md",
    "how-it-works.md",
    "npu.md",
    "precision.md",
    "running.md",
    "tensorboard.md",
    "walkthrough.md",
}
BLOCK = re.compile(r"<!-- (output|write|file)(?:: (\S+))? -->\n```(\w*)\n(.*?)```\n", re.DOTALL)


def refreshed(page: Path, folder: Path, environment: dict[str, str]) -> str:
    """The page's text with its outputs as they are now."""

    def replace(block: re.Match[str]) -> str:
        kind, name, language, text = block.groups()
        if kind == "write":
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        elif kind == "file":
            text = (folder / name).read_text(encoding="utf-8")
        else:
            commands = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
            text = "".join(f"$ {command}\n{run(command, folder, environment)}" for command in commands)
        return f"<!-- {kind}{f': {name}' if name else ''} -->\n```{language}\n{text}```\n"

    return BLOCK.sub(replace, page.read_text(encoding="utf-8"))


def run(command: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = []
    with tempfile.TemporaryDirectory() as scratch:
        programs = Path(scratch) / "bin"
        programs.mkdir()
        for name, command in {"graph2torch": f"{sys.executable} {ROOT / 'cli.py'}", "python": sys.executable}.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
            (programs / name).chmod(0o755)
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        for page in options.pages:
            folder = ROOT if page.name in IN_CHECKOUT else Path(scratch) / page.stem
            folder.mkdir(exist_ok=True)
            text = refreshed(page, folder, environment)
            if text != page.read_text(encoding="utf-8"):
                stale.append(page)
                if not options.check:
                    page.write_text(text, encoding="utf-8")
    for page in stale:
        print(f"{page}: {'out of date' if options.check else 'written anew'}")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
