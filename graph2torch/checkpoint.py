"""Reads a training checkpoint (.pt) as untrusted input: `torch.load(weights_only=True)`, never unpickling code."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import CheckpointError
from .graph import MAX_BYTES, Array, read_file, where
from .text import one_line, printable, quoted


@dataclass(frozen=True)
class Checkpoint:
    """A .pt that was read.

    tensors: the policy's state_dict (the entry `module`), as numpy arrays by key
    modules: every entry of the file → its number of tensors and of numbers in them
    step:    the training step it was saved at, if it says
    unread:  keys whose values are not plain tensors
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
    entries = _load(data, where(path))
    if not isinstance(entries, Mapping):
        raise CheckpointError(f"{where(path)} holds {_kind(entries)}, not the modules of an ML-Agents training; give the .pt that stands beside the .onnx.")
    modules = {str(name): _count(value) for name, value in entries.items()}
    policy = entries.get(module)
    if not isinstance(policy, Mapping) or not policy:
        found = ", ".join(quoted(name) for name in list(modules)[:8]) or "nothing"
        more = f" and {len(modules) - 8} more" if len(modules) > 8 else ""
        raise CheckpointError(f"{where(path)} holds no {quoted(module)} with tensors in it; it holds {found}{more}. Give the checkpoint that the trainer saved for the policy.")
    tensors: dict[str, Array] = {}
    unread: list[str] = []
    budget = MAX_BYTES
    for key, value in policy.items():
        array = _array(value, f"{where(path)}: {quoted(str(key))}")
        if array is None:
            unread.append(str(key))
            continue
        budget -= array.nbytes
        if budget < 0:
            raise CheckpointError(f"{where(path)}: its tensors take more than {MAX_BYTES:,} bytes, which is the limit here.")
        tensors[str(key)] = array
    return Checkpoint(path, hashlib.sha256(data).hexdigest(), len(data), module, tensors, modules, _step(entries), tuple(unread))


def _load(data: bytes, name: str) -> object:
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    if not data.startswith((b"PK", b"\x80")):
        raise CheckpointError(f"{name} is not a PyTorch checkpoint (neither an archive nor a pickle); give the .onnx first, then the .pt.")
    if data.startswith(b"PK"):
        try:
            sizes = sum(entry.file_size for entry in zipfile.ZipFile(io.BytesIO(data)).infolist())
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
            raise CheckpointError(f"{name} is a damaged or truncated archive ({one_line(str(error), 80)}); copy or download it again.") from None
        if sizes > MAX_BYTES:
            raise CheckpointError(f"{name} unpacks to {sizes:,} bytes, more than the {MAX_BYTES:,} that a checkpoint may have here.")
    import pickle
    import warnings

    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "Weights only load failed" in str(error) or "Unsupported" in str(error):
            raise CheckpointError(
                f"{name} holds more than tensors, and reading it would run code that it brings along; such a file is not loaded. "
                f"Save the state_dict of the modules alone. (torch: {one_line(str(error).split('WeightsUnpickler error:')[-1], 120)})"
            ) from None
        raise CheckpointError(f"{name} is damaged or truncated ({one_line(str(error), 120)}); copy or download it again.") from None
    except MemoryError:
        raise CheckpointError(f"{name} asks for more memory than there is; it is damaged or not a checkpoint of a policy.") from None
    except Exception as error:  # torch raises RuntimeError, EOFError, KeyError, AttributeError … for damaged files
        raise CheckpointError(f"{name} can't be read by torch ({type(error).__name__}: {one_line(str(error), 120)}); copy or download it again.") from None


def _array(value: Any, what: str) -> Array | None:
    """A plain tensor as a read-only array; None for anything else."""
    import torch

    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_quantized or value.device.type != "cpu":
        return None
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        raise CheckpointError(f"{what} declares the shape {list(value.shape)}, more than the bytes behind it; the file is damaged or made to harm.")
    value = value.detach()
    if value.dtype == torch.bfloat16:
        value = value.float()
    try:
        array: Array = np.ascontiguousarray(value.resolve_conj().numpy()).reshape(tuple(value.shape))
    except (TypeError, RuntimeError):
        return None
    array.setflags(write=False)
    return array


def _step(entries: Mapping[Any, Any]) -> int | None:
    """ML-Agents' `GlobalSteps`: one int64 tensor of its own."""
    steps = entries.get("global_step")
    for value in steps.values() if isinstance(steps, Mapping) else ():
        if getattr(value, "numel", lambda: 0)() == 1 and not value.is_floating_point():
            return int(value)
    return None


def _count(value: Any) -> tuple[int, int]:
    if not isinstance(value, Mapping):
        return (0, 0)
    tensors = [v for v in value.values() if hasattr(v, "numel") and hasattr(v, "dtype")]
    return len(tensors), sum(int(v.numel()) for v in tensors)


def _kind(value: object) -> str:
    return "a tensor" if hasattr(value, "numel") else f"a {printable(type(value).__name__, 40)}"
