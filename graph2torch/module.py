"""Turns emitted source into a torch module with its weights, without writing anything."""

from __future__ import annotations

import copy
import copyreg
import hashlib
import os
import sys
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

from .errors import UnsupportedGraph

if TYPE_CHECKING:
    import torch

    from .bind import Bindings
    from .graph import Array
    from .spec import PolicySpec


PACKAGE = "graph2torch_emitted"


def import_source(source: str, file: str = "model.py") -> types.ModuleType:
    """Runs the emitted source as the module in `file`, named by both; it stays importable, as torch's compilers need it.

    What is made of its classes can be pickled and copied: another process that reads the pickle, and has this package, runs the
    source again. Each part of the module's name is an identifier, since TorchScript writes it as code.
    """
    module = types.ModuleType(_name(source, file))
    module.__file__ = file
    sys.modules.setdefault(PACKAGE, types.ModuleType(PACKAGE))  # which importing a part of it looks for
    sys.modules[module.__name__] = module
    exec(compile(source, file, "exec"), module.__dict__)

    def reduced(self: object, protocol: Any) -> Any:
        sys.modules[module.__name__] = module  # functions are pickled by their names
        found = object.__reduce_ex__(self, max(2, int(protocol)))
        if isinstance(found, str) or found[0] is not copyreg.__newobj__:  # type: ignore[attr-defined]
            return found
        kind, *given = found[1]
        return _anew, (source, file, kind.__qualname__, *given), *found[2:]

    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == module.__name__ and "__reduce_ex__" not in vars(value):
            value.__reduce_ex__ = reduced  # type: ignore[assignment]
    return module


def _name(source: str, file: str) -> str:
    return f"{PACKAGE}.policy_{hashlib.sha256(f'{file} {source}'.encode(errors='surrogateescape')).hexdigest()[:16]}"


def _anew(source: str, file: str, kind: str, *given: object) -> object:
    """An object of a class of the emitted source, without its state: what `pickle` and `copy` begin with."""
    module = sys.modules.get(_name(source, file)) or import_source(source, file)
    made = getattr(module, kind)
    return made.__new__(made, *given)


def tensors_of(bindings: Bindings) -> dict[str, torch.Tensor]:
    """The state_dict of the policy: each bound tensor by its path."""
    import torch

    return {b.path: torch.from_numpy(np.array(b.value)) for b in bindings.tensors}


def build_module(source: str, bindings: Bindings) -> torch.nn.Module:
    """The emitted policy, filled with the bound tensors, in evaluation mode."""
    policy = import_source(source).Policy()
    policy.load_state_dict(tensors_of(bindings), strict=True)
    evaluated: torch.nn.Module = policy.eval()
    return evaluated


def load_module(source: str, state: Mapping[str, torch.Tensor], dtype: str) -> torch.nn.Module:
    """The emitted policy as its `load` makes it of weights in a file, in evaluation mode."""
    import torch

    policy = import_source(source).Policy()
    policy.load_state_dict(state)
    evaluated: torch.nn.Module = policy.to(getattr(torch, dtype)).eval()
    return evaluated


def rounded(module: torch.nn.Module, dtype: str) -> torch.nn.Module:
    """A copy whose layers have weights of half precision, as `load` of a folder that stores them so gives it.

    Raises UnsupportedGraph where it has no layers with weights.
    """
    import torch

    half = copy.deepcopy(module).to(getattr(torch, dtype))
    if all(p.dtype != getattr(torch, dtype) for p in half.parameters()):
        raise UnsupportedGraph(f"The policy has no layers whose weights could be {dtype}; leave --dtype out.")
    return half


def example_inputs(spec: PolicySpec, batch: int = 2, example: Mapping[str, Array] | None = None) -> tuple[torch.Tensor, ...]:
    """Ones in the shape and type of every input; free sizes are `batch`. Or the `example` that is known to make sense."""
    import torch

    if example is not None:
        return tuple(torch.from_numpy(np.array(example[i.name])) for i in spec.inputs)
    shapes = ([size if isinstance(size, int) else batch for size in i.shape] for i in spec.inputs)
    return tuple(torch.ones(shape, dtype=getattr(torch, i.dtype)) for shape, i in zip(shapes, spec.inputs, strict=True))
