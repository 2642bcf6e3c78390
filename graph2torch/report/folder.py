"""report.html of a folder that build wrote, made again from its report.json, model.py and weights.safetensors. Runs nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graph2torch.act.folder import REBUILD, open_folder
from graph2torch.errors import FolderError
from graph2torch.files import check_file, read_file, write_file
from graph2torch.graph import Array
from graph2torch.output import MADE
from graph2torch.text import one_line, quoted

from .page import report_page
from .weights import tensors_in


def report_folder(
    folder: str | Path,
    output: str | Path | None = None,
    *,
    force: bool = False,
    verification: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Writes the page of a built folder, by default to report.html in it, which is replaced; gives where it was written.

    force:        replace another file `output`
    verification: what `graph2torch.judge.deep.report` made of the folder, for its errors block by block

    Raises FolderError if the folder isn't one that build wrote, or not of this version; OutputError if the page can't be written.
    """
    target = Path(folder) / "report.html" if output is None else Path(output)
    replaced = force or output is None
    opened = open_folder(folder, ("weights.safetensors",), MADE)
    check_file(target, replaced, "--output")
    tensors = read_tensors(opened.path / "weights.safetensors")
    progress("drawing")
    try:
        page = report_page(opened.report, opened.source, tensors, verification, opened.changed)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise FolderError(
            f"The report.json in {quoted(str(opened.path))} was not written by this version of graph2torch, or is damaged "
            f"({one_line(f'{type(error).__name__}: {error}', 160)}); {REBUILD}."
        ) from error
    write_file(target, page.encode(), replaced, "--output")
    return target


def read_tensors(path: Path) -> dict[str, Array]:
    """The tensors of a .safetensors file, bfloat16 as float32. FolderError if it is none."""
    from safetensors import SafetensorError

    data = read_file(path, "the weights of a built policy", FolderError)
    try:
        return tensors_in(data)
    except (SafetensorError, KeyError, ValueError, UnicodeDecodeError) as error:
        raise FolderError(
            f"{quoted(str(path))} holds no weights that can be read ({one_line(f'{type(error).__name__}: {error}', 160)}); {REBUILD}."
        ) from None
