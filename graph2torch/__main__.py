"""Starts the command line: the `graph2torch` script and `python -m graph2torch`.

The command line is cli.py, which lies beside the rules/ folder: at the top of a checkout, inside the package once
installed. It is loaded by its path, as the module `graph2torch.cli`, so that an editable install needs no top-level
module called `cli` and `python cli.py` is the same app.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def command_line() -> ModuleType:
    """The module cli.py, which holds the Typer `app` and `main`."""
    name = "graph2torch.cli"
    if name in sys.modules:
        return sys.modules[name]
    package = Path(__file__).resolve().parent
    path = next((p for p in (package / "cli.py", package.parent / "cli.py") if p.is_file()), None)
    spec = importlib.util.spec_from_file_location(name, path) if path else None
    if spec is None or spec.loader is None:
        raise ImportError(f"graph2torch is installed incompletely: no cli.py in {package} or beside it; install it again.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def main() -> int | None:
    """Runs the command line and gives its exit status."""
    try:
        status: int | None = command_line().main()
    except KeyboardInterrupt:  # while it was imported; once it runs, it takes care of this itself
        sys.stderr.write("graph2torch: interrupted; nothing was written.\n")
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
