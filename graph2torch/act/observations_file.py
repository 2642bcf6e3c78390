"""Observations from a file: .npz, .npy, .json or .csv, as untrusted input.

    .npz   an array an input, under the input's name
    .npy   one array, for a policy with one observation
    .json  {"obs_0": [[1.5, 0], [2, 1]]}, or the list alone for a policy with one observation
    .csv   a row of numbers a line, for a policy with one observation; a first line of names is skipped

Rows come first: n observations of an input [batch, 59] are an array [n, 59]. A single one may be given as [59].
Nothing is unpickled, and sizes are checked before anything is unpacked.
"""

from __future__ import annotations

import io
import json
import math
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from graph2torch.errors import ObservationError
from graph2torch.files import MAX_RANK, read_file, where
from graph2torch.text import one_line, printable, quoted

from .contract import Input

if TYPE_CHECKING:
    from graph2torch.graph import Array

MAX_FILE = 2**28  # bytes of a file and of the arrays in it
MAX_TEXT = 2**25  # of .json and .csv: as Python objects they take up to twenty times that
MAX_HEADER = 10_000  # of a .npy: numpy's own limit where it has one
MAX_ENTRIES = 10_000  # of a .npz
HOW = "Give an array for each observation, a row for each case"


def read_observations(path: str | Path, inputs: Sequence[Input]) -> dict[str, Array]:
    """Input's name → its observations, [n, …] in the input's own dtype, with the same n for all; n is 1 or more.

    Masks and memory, and what the policy does not use, need not be in the file and are then not in the result. NaN and
    infinity are taken as they are.

    Raises ObservationError for what can't be read, names no input or not all observations, has other shapes, holds what
    is no number or does not fit the input's type, or is too large.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in READERS:
        raise ObservationError(f"{where(path)} is not a file of observations by its name; give a .npz, .npy, .json or .csv.")
    return observations_of(read_file(path, f"a {kind} file", ObservationError, MAX_FILE), kind, where(path), inputs)


def observations_of(data: bytes, kind: str, name: str, inputs: Sequence[Input]) -> dict[str, Array]:
    """`read_observations` for the bytes of a file. `kind`: its ending; `name`: what messages call it."""
    if kind in (".json", ".csv") and len(data) > MAX_TEXT:
        raise ObservationError(f"{name} has {len(data):,} bytes, more than the {MAX_TEXT:,} of text that are read; give a .npz instead.")
    try:
        found = READERS[kind](data, name, {i.name for i in inputs})
    except ObservationError:
        raise
    except MemoryError:
        raise ObservationError(f"{name} asks for more memory than there is; give fewer observations.") from None
    except Exception as error:  # zipfile, zlib, numpy and json raise many kinds for damaged files
        what = one_line(f"{type(error).__name__}: {error}", 120)
        raise ObservationError(f"{name} is no {kind} file, or it is damaged ({what}); write it again.") from None
    arrays: Mapping[str, Array] = found if isinstance(found, dict) else {_only(inputs, name).name: found}
    known = {i.name: i for i in inputs}
    if unknown := [key for key in arrays if key not in known]:
        raise ObservationError(f"{name} holds {_names(unknown)}, which the policy has no input of; its inputs are {_names(list(known))}.")
    if missing := [i.name for i in inputs if i.kind == "observation" and i.used and i.name not in arrays]:
        raise ObservationError(f"{name} holds no {_names(missing)}; the policy's inputs are {_names(list(known))}. {HOW}.")
    fitted = {key: fit(value, known[key], f"{name}: {quoted(key)}", kind == ".csv") for key, value in arrays.items()}
    counts = {key: len(value) for key, value in fitted.items()}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{n} of {quoted(key)}" for key, n in list(counts.items())[:8])
        raise ObservationError(f"{name} holds {shown}; give as many of each.")
    if not fitted:
        raise ObservationError(f"{name} holds no observations. {HOW}.")
    return fitted


def _only(inputs: Sequence[Input], name: str) -> Input:
    """The input that an array without a name is for."""
    wanted = [i for i in inputs if i.kind == "observation" and i.used]
    if len(wanted) != 1:
        raise ObservationError(
            f"{name} holds one array without a name, and the policy has {len(wanted)} observations: give a .npz or .json with "
            f"{_names([i.name for i in wanted]) or 'nothing'} in it."
        )
    return wanted[0]


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


# ---------------------------------------------------------------------------------------------- shapes and types
def fit(given: Array, value: Input, what: str, flat: bool) -> Array:
    """`given` as the input takes it, [n, …] in its dtype; ObservationError if it doesn't fit.

    what: how messages start; flat: each row holds all its numbers side by side
    """
    if given.dtype.kind not in "fiub":
        raise ObservationError(f"{what} holds {printable(str(given.dtype), 40)} where numbers are expected.")
    if not value.shape:
        raise ObservationError(f"{what} is an input without rows, which observations can't be given for.")
    sizes, shown = value.shape[1:], list(given.shape)
    if flat and all(isinstance(size, int) for size in sizes) and given.shape[1:] == (math.prod(s for s in sizes if isinstance(s, int)),):
        given = given.reshape(len(given), *(s for s in sizes if isinstance(s, int)))
    if given.ndim == len(sizes):
        given = given[None]
    if given.ndim != len(value.shape) or any(isinstance(size, int) and size != n for size, n in zip(sizes, given.shape[1:], strict=True)):
        wanted = ", ".join(["n", *("?" if d is None else printable(str(d), 40) for d in sizes)])
        raise ObservationError(f"{what} is {shown}; the policy takes [{wanted}], n rows.")
    if not given.size and (not len(given) or 0 not in sizes):  # some exporters leave inputs of no numbers
        raise ObservationError(f"{what} is empty, {list(given.shape)}; give one observation or more.")
    if isinstance(value.shape[0], int) and len(given) % max(value.shape[0], 1):
        raise ObservationError(f"{what} has {len(given)} rows; the graph takes {value.shape[0]} at a time, so give a multiple of that.")
    dtype = np.dtype(value.dtype)
    with np.errstate(all="ignore"):
        fitted = given.astype(dtype, order="C")
        if dtype.kind == "f" and np.isfinite(fitted).all():
            return fitted
        whole = np.isinf(fitted) <= np.isinf(given) if dtype.kind == "f" else fitted.astype(np.float64) == given.astype(np.float64)
    if not whole.all():
        raise ObservationError(f"{what} holds {given[~whole][0]!s}, which the input's type, {dtype}, can't hold.")
    return fitted


# ---------------------------------------------------------------------------------------------- .npy, .npz
def _read_npz(data: bytes, name: str, wanted: set[str]) -> dict[str, Array]:
    """The arrays of an archive; those that are no input are only named, not unpacked."""
    if data.count(b"PK\x01\x02") > MAX_ENTRIES:  # each entry's mark in the table of contents, before that is read
        raise ObservationError(f"{name} has more than {MAX_ENTRIES:,} entries, which no file of observations has.")
    arrays: dict[str, Array] = {}
    budget = MAX_FILE
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            key = entry.filename.removesuffix(".npy")
            if key not in wanted:
                arrays[key] = np.empty(0)
                continue
            budget -= entry.file_size
            if budget < 0:
                raise ObservationError(f"{name} unpacks to more than {MAX_FILE:,} bytes, which is the limit here; give fewer observations.")
            with archive.open(entry) as stream:
                arrays[key] = _array(stream, entry.file_size, f"{name}: {quoted(key)}")
    return arrays


def _read_npy(data: bytes, name: str, _: set[str]) -> Array:
    return _array(io.BytesIO(data), len(data), name)


def _array(stream: IO[bytes], size: int, what: str) -> Array:
    """An array in numpy's format from a stream of `size` bytes; its header is believed only as far as the bytes go."""
    major, _ = np.lib.format.read_magic(stream)
    length = struct.unpack("<H", stream.read(2))[0] if major == 1 else struct.unpack("<I", stream.read(4))[0]
    if major > 2 or length > MAX_HEADER:
        raise ObservationError(
            f"{what} has a header of {length:,} bytes in version {major} of numpy's format; an array of numbers needs none such."
        )
    head = struct.pack("<H", length) + stream.read(length)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            shape, by_columns, dtype = np.lib.format.read_array_header_1_0(io.BytesIO(head))
        except Exception:  # MemoryError too: Python's parser says so of what is nested too deeply
            raise ObservationError(f"{what} is no array in numpy's format, or its header is damaged; write it again.") from None
    if dtype.kind not in "fiub":
        raise ObservationError(f"{what} holds {printable(str(dtype), 40)} where numbers are expected; nothing is unpickled.")
    count = math.prod(shape)
    if len(shape) > MAX_RANK or any(n < 0 for n in shape) or count * dtype.itemsize > size:
        shown = printable(str(list(shape[:MAX_RANK])), 80)
        raise ObservationError(f"{what} says that it is {shown} of {dtype}, which is more than its {size:,} bytes hold.")
    raw = stream.read(count * dtype.itemsize)
    if len(raw) < count * dtype.itemsize:
        raise ObservationError(f"{what} is truncated; write it again.")
    numbers: Array = np.frombuffer(raw, np.uint8) != 0 if dtype.kind == "b" else np.frombuffer(raw, dtype)
    return numbers.reshape(shape[::-1]).T if by_columns else numbers.reshape(shape)


# ---------------------------------------------------------------------------------------------- .json, .csv
def _read_json(data: bytes, name: str, wanted: set[str]) -> dict[str, Array] | Array:
    document = json.loads(data)
    if isinstance(document, dict):
        return {key: _numbers(value, f"{name}: {quoted(key)}") if key in wanted else np.empty(0) for key, value in document.items()}
    return _numbers(document, name)


def _numbers(value: Any, what: str) -> Array:
    """Nested lists of numbers, all equally long, as an array."""
    if not isinstance(value, list):
        raise ObservationError(f"{what} is not a list of numbers. {HOW}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # numpy 1.23 only warns of lists of different lengths
            array = np.asarray(value)
    except Exception:
        raise ObservationError(
            f"{what} holds lists of different lengths, or what is no number; give equally long rows of numbers."
        ) from None
    if array.dtype.kind not in "fiub":
        raise ObservationError(f"{what} holds what is no number, or one too large; give rows of numbers.")
    return array


def _read_csv(data: bytes, name: str, _: set[str]) -> Array:
    text = data.decode("utf-8-sig")
    first = text.lstrip().partition("\n")[0]
    if '"' not in first and (";" in first or ("\t" in first and "," not in first)):
        between = "semicolons" if ";" in first else "tabs"
        raise ObservationError(f"{name} has {between} between its numbers; put commas there, and points in the numbers.")
    skip = not any(_is_number(cell) for cell in first.split(","))  # a row with one mistake is no line of names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a file without rows
        try:
            table = np.loadtxt(io.StringIO(text.lstrip()), delimiter=",", skiprows=int(skip), ndmin=2, dtype=np.float64, comments=None)
        except ValueError as error:
            raise ObservationError(
                f"{name} can't be read as rows of numbers ({one_line(str(error), 120)}); give as many in each line."
            ) from None
    if not table.size:
        raise ObservationError(f"{name} holds no rows of numbers. {HOW}.")
    return table


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


READERS: Mapping[str, Callable[[bytes, str, set[str]], dict[str, Array] | Array]] = {
    ".npz": _read_npz,
    ".npy": _read_npy,
    ".json": _read_json,
    ".csv": _read_csv,
}


def complete(given: Mapping[str, Array], inputs: Sequence[Input]) -> dict[str, Array]:
    """`given` with an array [n, …] for every input: masks that allow everything, memory of zeros, zeros for what is not used.

    Free sizes besides the rows are 1.
    """
    rows = len(next(iter(given.values())))
    filled: dict[str, Array] = {}
    for value in inputs:
        shape = (rows, *(size if isinstance(size, int) else 1 for size in value.shape[1:]))
        filled[value.name] = given[value.name] if value.name in given else np.full(shape, value.kind == "mask", np.dtype(value.dtype))
    return filled
