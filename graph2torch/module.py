"""Turns emitted source into a torch module with its weights, without writing anything."""

from __future__ import annotations

import hashlib
import os
import sys
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

if TYPE_CHECKING:
    import torch

    from .bind import Bindings
    from .graph import Array
    from .spec import PolicySpec


def import_source(source: str, file: str = "model.py") -> types.ModuleType:
    """Runs the emitted source as the module in `file`, named by both; it stays importable, as torch's compilers need it.

    Each part of its name is an identifier, since TorchScript writes it as code.
    """
    name = f"graph2torch_emitted.policy_{hashlib.sha256(f'{file} {source}'.encode(errors='surrogateescape')).hexdigest()[:16]}"
    module = types.ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module
    exec(compile(source, file, "exec"), module.__dict__)
    return module


def build_module(source: str, bindings: Bindings) -> torch.nn.Module:
    """The emitted policy, filled with the bound tensors, in evaluation mode."""
    import torch

    policy = import_source(source).Policy()
    state = {b.path: torch.from_numpy(np.array(b.value)) for b in bindings.tensors}
    policy.load_state_dict(state, strict=True)
    evaluated: torch.nn.Module = policy.eval()
    return evaluated


def example_inputs(spec: PolicySpec, batch: int = 2, example: Mapping[str, Array] | None = None) -> tuple[torch.Tensor, ...]:
    """Ones in the shape and type of every input; free sizes are `batch`. Or the `example` that is known to make sense."""
    import torch

    if example is not None:
        return tuple(torch.from_numpy(np.array(example[i.name])) for i in spec.inputs)
    shapes = ([size if isinstance(size, int) else batch for size in i.shape] for i in spec.inputs)
    return tuple(torch.ones(shape, dtype=getattr(torch, i.dtype)) for shape, i in zip(shapes, spec.inputs, strict=True))
