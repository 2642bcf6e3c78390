"""Writes docs/reference.md, the commands and their options, from the program itself.

python docs/reference.py [--check]
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # also when it is run as a script

import typer  # noqa: E402

import cli  # noqa: E402

PAGE = ROOT / "docs" / "reference.md"
HEAD = """# Command reference

Every command with its arguments and options, as `graph2torch COMMAND --help` tells them. Written by `python docs/reference.py`.
The same from Python is on [a page of its own](python.md).

Where nobody reads the output to its end (`| head`), the exit status can be 2 whatever it would have been; files are written all the same.

"""


def cell(text: str) -> str:
    """A text in a cell of a table."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;").strip()


def table(kind: str, parameters: list[Any], context: Any) -> str:
    """Arguments or options, each with what --help says of it."""
    records = [p.get_help_record(context) for p in parameters]
    rows = "".join(f"| `{names}` | {cell(told)} |\n" for names, told in records)
    return f"| {kind} | |\n|---|---|\n{rows}\n" if rows else ""


def section(name: str, command: Any) -> str:
    """A command's part of the page."""
    context = command.make_context(f"graph2torch {name}", [], resilient_parsing=True)
    shown = [p for p in command.params if not getattr(p, "hidden", False)]
    arguments, options = ([p for p in shown if p.param_type_name == kind] for kind in ("argument", "option"))
    text = f"## {name}\n\n{cell(command.help or '')}\n\n    graph2torch {name} {' '.join(command.collect_usage_pieces(context))}\n\n"
    text += table("argument", arguments, context) + table("option", options, context)
    return text + (f"{cell(command.epilog)}\n\n" if command.epilog else "")


def page() -> str:
    """The whole page."""
    group: Any = typer.main.get_command(cli.app)
    before = table("before the command", group.params, group.make_context("graph2torch", ["build"], resilient_parsing=True))
    return (HEAD + before + "".join(section(name, command) for name, command in group.commands.items() if not command.hidden)).rstrip(
        "\n"
    ) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if the page is out of date")
    options = parser.parse_args()
    text = page()
    if options.check:
        return int(not PAGE.exists() or text != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
