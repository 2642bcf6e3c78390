"""A folder that `build` wrote, opened again: its report, its source, and whether its files are still those that were written.

model.py is code, and loading the policy runs it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from graph2torch.errors import ActingError, FolderError
from graph2torch.files import read_file
from graph2torch.module import import_source
from graph2torch.text import one_line, printable, quoted

from .contract import Contract, contract

if TYPE_CHECKING:
    import torch

MAX_REPORT = 2**26  # bytes; a report has some 50,000
MAX_SOURCE = 2**24
REBUILD = "build it again with `graph2torch build`"
TO_ACT = ("model.py", "weights.safetensors")  # and report.json: what acting needs


@dataclass(frozen=True)
class Folder:
    """What a built folder holds.

    report:   its report.json
    contract: inputs and outputs by meaning, from the report
    changed:  files, of those asked for, that are not what the report says was written
    original: sha256 of the .onnx that it was built from
    """

    path: Path
    report: Mapping[str, Any]
    contract: Contract
    source: str
    changed: tuple[str, ...]
    original: str

    def load(self, device: torch.device | str = "cpu", dtype: torch.dtype | None = None) -> torch.nn.Module:
        """The policy with its weights, in evaluation mode. Runs model.py; FolderError if that fails.

        dtype: of the layers' weights; by default as they are stored. ActingError if there is nothing that could be of half precision
        """
        options: dict[str, Any] = {"device": device} if dtype is None else {"device": device, "dtype": dtype}
        policy = self._run(lambda module: module.load(**options))
        if dtype is not None and dtype.itemsize < 4 and all(p.dtype != dtype for p in policy.parameters()):
            raise ActingError(
                f"{quoted(str(self.path))}: the policy has no layers whose weights could be {str(dtype).removeprefix('torch.')}; "
                f"leave --dtype out."
            )
        return policy

    def load_whole(self, state: Mapping[str, torch.Tensor]) -> torch.nn.Module:
        """The policy of model.py with other weights than the folder's, in float32 on the CPU. Runs model.py; FolderError if that fails."""

        def filled(module: ModuleType) -> Any:
            policy = module.Policy()
            policy.load_state_dict(state)
            return policy

        return self._run(filled)

    def _run(self, make: Callable[[ModuleType], Any]) -> torch.nn.Module:
        try:
            policy: torch.nn.Module = make(import_source(self.source, str(self.path / "model.py")))
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:  # whatever the code raises
            what = one_line(f"{type(error).__name__}: {error}", 200)
            raise FolderError(
                f"{quoted(str(self.path))}: its model.py can't be run or its weights can't be loaded ({what}); {REBUILD}."
            ) from error
        if not callable(getattr(policy, "forward", None)):
            raise FolderError(
                f"{quoted(str(self.path))}: the load of its model.py gives a {type(policy).__name__}, not a policy; {REBUILD}."
            )
        return policy.eval()

    def find_original(self, given: str | Path | None = None) -> Path:
        """Where the original lies: as given, or where the report says, seen from the folder. FolderError if it isn't there."""
        if given is not None:
            return Path(given)
        path = self.report["original"].get("path")
        if not path:
            raise FolderError(
                f"The report in {quoted(str(self.path))} doesn't say where the original lies; give the .onnx as second argument."
            )
        try:
            found = Path(os.path.normpath(os.path.join(os.path.realpath(self.path), path)))  # noqa: PTH118 # as build made it
            if found.is_relative_to(os.path.realpath(".")):  # shorter to read
                found = found.relative_to(os.path.realpath("."))
            there = found.is_file()
        except (OSError, ValueError):
            found, there = Path(path), False
        if not there:
            raise FolderError(
                f"The original is not at {quoted(str(found))}, where it lay at the build as seen from the folder, "
                f"so one of the two was moved; give the .onnx as second argument."
            )
        return found

    def check_original(self, path: Path, sha256: str) -> None:
        """FolderError unless the file at `path`, with this sha256, is the one that the folder was built from."""
        if sha256 != self.original:
            raise FolderError(
                f"{quoted(str(path))} is not the file that {quoted(str(self.path))} was built from: its sha256 is {sha256[:12]}…, the report's "
                f"{printable(self.original[:12])}…. Give the original .onnx as second argument, or build again."
            )


def open_folder(path: str | Path, needed: Sequence[str] = TO_ACT, besides: Sequence[str] = ()) -> Folder:
    """Reads a folder, without running anything in it. FolderError if it is none that `build` wrote.

    needed: files that have to be there; besides: others that are looked at if the report knows them
    """
    path = Path(path)
    shown = quoted(str(path))
    try:
        if not path.is_dir():
            kind = "a file, not the folder that `graph2torch build` wrote" if path.exists() else "not there; check the path"
            raise FolderError(f"{shown} is {kind}.")
        names = [*dict.fromkeys(["report.json", *TO_ACT, *needed])]
        if missing := [name for name in names if not (path / name).exists()]:
            raise FolderError(f"{shown} has no {' and no '.join(missing)}; give a folder that `graph2torch build` wrote.")
        there = [name for name in besides if (path / name).is_file()]
    except (OSError, ValueError) as error:
        raise FolderError(f"{shown} is no usable path ({one_line(str(error), 80)}).") from None
    report = read_file(path / "report.json", "the report.json of a built policy", FolderError, MAX_REPORT)
    names = [*dict.fromkeys([*TO_ACT, *needed, *there])]
    data = {name: read_file(path / name, f"the {name} of a built policy", FolderError) for name in names}
    try:
        document = json.loads(report)
        found = contract(document)
        told, files = document.get("original"), document.get("files")
        if not isinstance(files, dict) or not isinstance(told, dict) or not isinstance(told.get("sha256"), str):
            raise ValueError("files or original are missing")
        if not isinstance(told.get("path"), str | None):
            raise ValueError("the original's path is no text")
    except (ValueError, RecursionError) as error:  # no JSON, or no contract in it
        raise FolderError(
            f"The report.json in {shown} was not written by this version of graph2torch, or is damaged "
            f"({one_line(str(error), 160)}); {REBUILD}."
        ) from None
    try:
        source = data["model.py"].decode("utf-8")
    except UnicodeDecodeError:
        raise FolderError(f"{shown}: its model.py is not text (UTF-8) and can't be run; {REBUILD}.") from None
    if len(source) > MAX_SOURCE:
        raise FolderError(f"{shown}: its model.py has {len(source):,} characters, which no policy's source has; {REBUILD}.")
    changed = [name for name, content in data.items() if files.get(name) != hashlib.sha256(content).hexdigest()]
    changed += [f"{name} (missing)" for name in besides if name not in there and name in files]
    return Folder(path, document, found, source, tuple(changed), told["sha256"])
