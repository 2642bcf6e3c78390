"""A folder that `build` wrote, opened again to act: its contract, its source, and whether its files are still those that were written.

model.py is code, and loading the policy runs it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .contract import Contract, contract
from .errors import FolderError
from .files import read_file
from .module import import_source
from .text import one_line, quoted

if TYPE_CHECKING:
    import torch

MAX_REPORT = 2**26  # bytes; a report has some 50,000
MAX_SOURCE = 2**24
REBUILD = "build it again with `graph2torch build`"


@dataclass(frozen=True)
class Folder:
    """What a built folder holds. `changed`: files that are not what report.json says was written."""

    path: Path
    contract: Contract
    source: str
    changed: tuple[str, ...]

    def load(self, device: torch.device, dtype: torch.dtype) -> torch.nn.Module:
        """The policy with its weights, in evaluation mode. Runs model.py; FolderError if that fails."""
        try:
            policy: torch.nn.Module = import_source(self.source, str(self.path / "model.py")).load(device=device, dtype=dtype)
        except MemoryError:
            raise
        except Exception as error:  # whatever the code raises
            what = one_line(f"{type(error).__name__}: {error}", 200)
            raise FolderError(
                f"{quoted(str(self.path))}: its model.py can't be run or its weights can't be loaded ({what}); {REBUILD}."
            ) from None
        if not callable(getattr(policy, "forward", None)):
            raise FolderError(
                f"{quoted(str(self.path))}: the load of its model.py gives a {type(policy).__name__}, not a policy; {REBUILD}."
            )
        return policy


def open_folder(path: str | Path) -> Folder:
    """Reads a folder, without running anything in it. FolderError if it is none that `build` wrote."""
    path = Path(path)
    shown = quoted(str(path))
    try:
        if not path.is_dir():
            kind = "a file, not the folder that `graph2torch build` wrote" if path.exists() else "not there; check the path"
            raise FolderError(f"{shown} is {kind}.")
    except (OSError, ValueError) as error:
        raise FolderError(f"{shown} is no usable path ({one_line(str(error), 80)}).") from None
    data = {name: read_file(path / name, f"the {name} of a built policy", FolderError) for name in ("model.py", "weights.safetensors")}
    report = read_file(path / "report.json", "the report.json of a built policy", FolderError, MAX_REPORT)
    try:
        document = json.loads(report)
        found = contract(document)
        source = data["model.py"].decode("utf-8")
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, or no contract in it
        raise FolderError(
            f"{shown} was not written by this version of graph2torch, or is damaged ({one_line(str(error), 160)}); {REBUILD}."
        ) from None
    if len(source) > MAX_SOURCE:
        raise FolderError(f"{shown}: its model.py has {len(source):,} characters, which no policy's source has; {REBUILD}.")
    written = document.get("files")
    written = written if isinstance(written, dict) else {}
    changed = tuple(name for name, content in data.items() if written.get(name) != hashlib.sha256(content).hexdigest())
    return Folder(path, found, source, changed)
