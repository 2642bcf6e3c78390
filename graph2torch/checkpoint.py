"""Reads a training checkpoint (.pt) as untrusted input: `torch.load(weights_only=True)`, never unpickling code.

torch's safe reader is not enough by itself: it hashes whatever a file gives as a key (nested tuples take it hours, or end
the process), older versions read behind the end of a storage that says it is larger than it is, and a compressed
archive may unpack to anything. So the pickle is walked first, without running it.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickletools
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from .errors import CheckpointError
from .files import MAX_BYTES, looks_like, read_file, where
from .graph import Array
from .text import one_line, quoted

Plain: TypeAlias = "bool | int | float | str | None"

MAX_ENTRIES = 200_000  # tensors and numbers of a file that is read whole
MAX_DEPTH = 8  # of dictionaries in dictionaries; an optimiser's state has three
MAX_TUPLE = 10_000  # parts of a tuple, with those of the tuples in it; in checkpoints they are shapes and strides


@dataclass(frozen=True)
class Checkpoint:
    """A .pt that was read.

    tensors: the policy's state_dict (the entry `module`), as numpy arrays by key
    modules: every entry of the file → its number of tensors and of numbers in them
    step:    the training step it was saved at, if it says
    unread:  keys whose values are not plain tensors of real numbers, and keys that are no text, by their type
    """

    path: Path
    sha256: str
    size: int
    module: str
    tensors: Mapping[str, Array]
    modules: Mapping[str, tuple[int, int]]
    step: int | None
    unread: tuple[str, ...] = ()


def load_checkpoint(path: str | Path, module: str = "Policy") -> Checkpoint:
    """Reads `path` and takes the state_dict `module` out of it.

    Raises CheckpointError for what is no checkpoint (not a file, a Git LFS pointer, truncated, an .onnx), for a pickle
    that would run code, for tensors larger than the bytes behind them, and for a file without `module`.
    """
    path = Path(path)
    data = read_file(path, "a PyTorch checkpoint", CheckpointError)
    entries = _plain(_load(data, where(path)))
    if entries is None:
        raise CheckpointError(
            f"{where(path)} is not the modules of an ML-Agents training, each under its name; give the .pt that stands beside the .onnx."
        )
    modules = {_label(name): _count(value) for name, value in entries.items()}
    tensors: dict[str, Array] = {}
    unread: list[str] = []
    budget = MAX_BYTES
    for key, value in (_plain(entries.get(module)) or {}).items():
        array = _array(value, f"{where(path)}: {quoted(_label(key))}") if isinstance(key, str) else None
        if array is None:
            unread.append(_label(key))
            continue
        budget -= array.nbytes
        if budget < 0:
            raise CheckpointError(f"{where(path)}: its tensors take more than {MAX_BYTES:,} bytes, which is the limit here.")
        tensors[key] = array
    if not tensors:
        found = ", ".join(quoted(name) for name in list(modules)[:8]) or "nothing"
        more = f" and {len(modules) - 8} more" if len(modules) > 8 else ""
        raise CheckpointError(
            f"{where(path)} holds no {quoted(module)} with tensors in it; it holds {found}{more}. "
            f"Give the checkpoint that the trainer saved for the policy."
        )
    return Checkpoint(path, hashlib.sha256(data).hexdigest(), len(data), module, tensors, modules, _step(entries), tuple(unread))


@dataclass(frozen=True)
class Modules:
    """A .pt that was read whole: every tensor of every module.

    tensors: module → key → array; what is nested (an optimiser's state) has keys like "state.0.exp_avg". Tensors that stand in
             no module are under the module ""
    values:  module → key → number, text, truth value or None that stands beside them
    unread:  keys whose values are none of these, by their type
    """

    path: Path
    sha256: str
    size: int
    step: int | None
    tensors: Mapping[str, Mapping[str, Array]]
    values: Mapping[str, Mapping[str, Plain]]
    unread: tuple[str, ...] = ()


def load_modules(path: str | Path) -> Modules:
    """Reads `path` with all its modules, whatever they are; any .pt that holds a dictionary of tensors will do.

    Raises CheckpointError as `load_checkpoint` does, and for a file without any tensor.
    """
    path = Path(path)
    data = read_file(path, "a PyTorch checkpoint", CheckpointError)
    name = where(path)
    entries = _plain(_load(data, name))
    if entries is None:
        raise CheckpointError(f"{name} is not a dictionary of tensors or of modules; save the state_dicts under their names.")
    tensors: dict[str, dict[str, Array]] = {}
    values: dict[str, dict[str, Plain]] = {}
    unread: list[str] = []
    budget = MAX_BYTES
    for count, (module, key, value) in enumerate(_leaves(entries)):
        if count >= MAX_ENTRIES:
            raise CheckpointError(f"{name} holds more than {MAX_ENTRIES:,} tensors and numbers, which is the limit here.")
        if value is None or isinstance(value, (bool, int, float, str)):
            values.setdefault(module, {})[key] = value
            continue
        array = _array(value, f"{name}: {quoted(key)}")
        if array is None:
            unread.append(f"{module}.{key}".strip("."))
            continue
        budget -= array.nbytes
        if budget < 0:
            raise CheckpointError(f"{name}: its tensors take more than {MAX_BYTES:,} bytes, which is the limit here.")
        tensors.setdefault(module, {})[key] = array
    if not tensors:
        raise CheckpointError(f"{name} holds no tensors; give the checkpoint that the trainer saved.")
    return Modules(path, hashlib.sha256(data).hexdigest(), len(data), _step(entries), tensors, values, tuple(unread))


def _leaves(entries: Mapping[Any, Any]) -> Iterator[tuple[str, str, object]]:
    """(module, key, value) of all that is no dictionary and no list, in the file's order; deeper than MAX_DEPTH as it is."""
    for name, value in entries.items():
        nested = _children(value)
        if nested is None:
            yield "", _label(name), value
            continue
        todo = [(key, child, 1) for key, child in reversed(nested)]
        while todo:
            key, child, depth = todo.pop()
            inside = _children(child) if depth < MAX_DEPTH else None
            if inside is None:
                yield _label(name), key, child
            else:
                todo += [(f"{key}.{inner}", grandchild, depth + 1) for inner, grandchild in reversed(inside)]
                if len(todo) > MAX_ENTRIES:
                    yield from ((_label(name), key, child) for key, child, _ in todo)  # whoever counts them has enough
                    return


def _children(value: object) -> list[tuple[str, object]] | None:
    """What a dictionary or a list holds, under texts; None for anything else, and for what is empty."""
    if (entries := _plain(value)) is not None:
        return [(str(key) if isinstance(key, int) else _label(key), child) for key, child in entries.items()]
    if isinstance(value, (list, tuple)):
        return [(str(i), child) for i, child in enumerate(list.__iter__(value) if isinstance(value, list) else tuple.__iter__(value))]
    return None


def _load(data: bytes, name: str) -> object:
    if not data.startswith((b"PK", b"\x80")) or data[257:262] == b"ustar":  # a tape archive, torch's format before 2016
        if like := looks_like(data):
            raise CheckpointError(f"{name} is {like}, not a PyTorch checkpoint; give the .pt.")
        raise CheckpointError(f"{name} is not a PyTorch checkpoint (neither an archive nor a pickle); give the .onnx first, then the .pt.")
    try:
        if data.startswith(b"PK"):
            _check_archive(data, name)
        else:
            stream = io.BytesIO(data)
            for _ in range(5):  # before torch 1.6: magic number, version, system, objects, keys of the storages behind
                if stream.tell() < len(data):
                    _walk(stream, name)
    except CheckpointError:
        raise
    except Exception as error:  # zipfile and pickletools raise many kinds for damaged files
        raise CheckpointError(
            f"{name} is damaged or truncated ({type(error).__name__}: {one_line(str(error), 80)}); copy or download it again."
        ) from None
    return _torch_load(data, name)


def _torch_load(data: bytes, name: str) -> object:
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    import pickle
    import warnings

    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # torch's text names what it met before or after advice that doesn't fit here, depending on its version
        reason = " ".join(
            line
            for line in str(error).splitlines()
            if not line.startswith(("Weights only load failed", "Please file an issue", "Check the documentation"))
        )
        raise CheckpointError(
            f"{name} holds more than tensors, such as code that reading it would run, or is damaged; it was not loaded. "
            f"Save the state_dicts of the modules alone, or copy it again. (torch: {one_line(reason or str(error), 160)})"
        ) from None
    except MemoryError:
        raise CheckpointError(f"{name} asks for more memory than there is; it is damaged or not a checkpoint of a policy.") from None
    except Exception as error:  # torch raises RuntimeError, EOFError, KeyError, AttributeError … for damaged files
        raise CheckpointError(
            f"{name} can't be read by torch ({type(error).__name__}: {one_line(str(error), 120)}); copy or download it again."
        ) from None


# ---------------------------------------------------------------------------------------------- before torch sees it
def _check_archive(data: bytes, name: str) -> None:
    """A zip as torch writes it: nothing compressed, every storage as large as the pickle says."""
    archive = zipfile.ZipFile(io.BytesIO(data))
    entries = archive.infolist()
    names = {entry.filename.lower().rpartition("/")[2] for entry in entries}
    if "data.pkl" not in names:
        raise CheckpointError(f"{name} is an archive, but not a PyTorch checkpoint; if the .pt is in it, unpack it first.")
    if "constants.pkl" in names:
        raise CheckpointError(f"{name} is a TorchScript program, not a checkpoint; give the .pt that the trainer saved beside the .onnx.")
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries) or sum(entry.file_size for entry in entries) > len(data):
        raise CheckpointError(f"{name} is a compressed archive, which torch doesn't write; give the .pt as the trainer saved it.")
    sizes: dict[str, int] = {}
    for entry in entries:  # torch finds records whatever their case
        key = entry.filename.lower().partition("/")[2]
        sizes[key] = min(entry.file_size, sizes.get(key, entry.file_size))
    for entry in entries:
        if entry.filename.lower().endswith("data.pkl"):
            with archive.open(entry) as stream:
                _walk(io.BytesIO(stream.read()), name, sizes)


def _walk(stream: IO[bytes], name: str, sizes: Mapping[str, int] | None = None) -> None:
    """Goes through one pickle without making any of its objects, to see how tuples are nested and what storages it names.

    sizes: bytes of each record of the archive around the pickle, None for a pickle that stands alone
    """
    stack: list[_Item] = []
    marks: list[int] = []
    memo: dict[Any, _Item] = {}
    for opcode, argument, _ in pickletools.genops(stream):
        before, after = opcode.stack_before, opcode.stack_after
        if opcode.name == "MARK":
            marks.append(len(stack))
            continue
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if opcode.name == "MEMOIZE" else argument] = stack[-1]
            continue
        start = len(stack) - len(before)
        if pickletools.markobject in before:
            start = marks.pop() - before.index(pickletools.markobject)
        if start < 0 or (marks and start < marks[-1]):
            raise CheckpointError(f"{name} is damaged: its pickle takes what it didn't give; copy or download it again.")
        taken = stack[start:]
        del stack[start:]
        if opcode.name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif opcode.name == "DUP":
            stack += [taken[-1], taken[-1]]
        elif "TUPLE" in opcode.name:
            parts = sum(item.parts for item in taken) + 1
            if parts > MAX_TUPLE:
                raise CheckpointError(f"{name} holds a tuple of {parts:,} parts, as no checkpoint does; it is damaged or made to harm.")
            stack.append(_Item(tuple(item.value for item in taken), parts))
        else:
            if opcode.name == "BINPERSID" and sizes is not None:
                _check_storage(taken[-1].value, sizes, name)
            stack += [_Item(argument)] * len(after)


@dataclass(frozen=True, slots=True)
class _Item:
    """What a pickle has on its stack: the value, where it is a text, a number, a class or a tuple of such; how many parts a tuple has."""

    value: object = None
    parts: int = 1


# bytes of one number, by the storage's class; of others the size is not known, and taken for 1
_BYTES = {
    "Double": 8,
    "Float": 4,
    "Half": 2,
    "BFloat16": 2,
    "Long": 8,
    "Int": 4,
    "Short": 2,
    "ComplexDouble": 16,
    "ComplexFloat": 8,
    "QInt32": 4,
}


def _check_storage(named: object, sizes: Mapping[str, int], name: str) -> None:
    """`named` is ("storage", class, key, location, how many numbers), the record of that key has that many."""
    if not (isinstance(named, tuple) and len(named) == 5 and isinstance(named[2], str) and isinstance(named[4], int)):
        raise CheckpointError(f"{name} is damaged: a tensor in it has no proper storage; copy or download it again.")
    _, kind, key, _, count = named
    there = sizes.get(f"data/{key}".lower())
    needed = count * _BYTES.get(str(kind).rpartition(" ")[2].removesuffix("Storage"), 1)
    if there is None:
        raise CheckpointError(f"{name} lacks the numbers of a tensor (its storage {quoted(key)}); it was not saved or copied whole.")
    if count < 0 or needed > there:
        raise CheckpointError(
            f"{name} is damaged or made to harm: its storage {quoted(key)} should have {needed:,} bytes and has {there:,}; copy or download it again."
        )


# ---------------------------------------------------------------------------------------------- what torch gave
def _plain(value: object) -> dict[Any, Any] | None:
    """A dictionary's own entries; a file may give it attributes that hide its methods."""
    return dict(dict.items(value)) if isinstance(value, dict) else None


def _label(key: object) -> str:
    """A key to show. What is no text is told by its type, since its text may be endless."""
    return key if isinstance(key, str) else f"({type(key).__name__})"


def _array(value: object, what: str) -> Array | None:
    """A plain tensor of real numbers as a read-only array; None for anything else."""
    import torch

    if not isinstance(value, torch.Tensor):
        return None
    try:
        if value.layout != torch.strided or value.is_quantized or value.is_complex() or value.device.type != "cpu":
            return None
        too_large = value.numel() * value.element_size() > value.untyped_storage().nbytes()
    except Exception:  # a file may give a tensor attributes that hide its methods
        return None
    if too_large:
        raise CheckpointError(
            f"{what} declares the shape {_shape(value)}, more than the bytes behind it; the file is damaged or made to harm."
        )
    try:
        value = value.detach()
        if value.dtype == torch.bfloat16:
            value = value.float()
        array: Array = np.ascontiguousarray(value.resolve_neg().numpy()).reshape(tuple(value.shape))
    except Exception:  # a type that numpy doesn't have, more dimensions than numpy has
        return None
    array.setflags(write=False)
    return array


def _shape(tensor: Any) -> str:
    sizes = list(tensor.shape)
    return str(sizes) if len(sizes) <= 8 else f"of {len(sizes):,} dimensions"


def _step(entries: Mapping[Any, Any]) -> int | None:
    """ML-Agents' `GlobalSteps`: one int64 tensor of its own."""
    for value in (_plain(entries.get("global_step")) or {}).values():
        array = _array(value, "global_step")
        if array is not None and array.size == 1 and array.dtype.kind in "iu":
            return int(array.reshape(())[()])
    return None


def _count(value: object) -> tuple[int, int]:
    """Tensors in a module, and numbers in them."""
    import torch

    tensors = [v for v in (_plain(value) or {}).values() if isinstance(v, torch.Tensor)]
    return len(tensors), sum(torch.Tensor.numel(v) for v in tensors)
