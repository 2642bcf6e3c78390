"""A stand-in for torch_npu: a device of torch that calls itself npu, computes on the CPU and counts what it is asked to do.

With this folder's parent on PYTHONPATH, `import torch_npu` gives torch a back-end (PrivateUse1) called npu, in Python
alone. A tensor there says `device.type == "npu"`; what an NPU does badly is an error: random numbers drawn on it,
float64, operands on two devices, computing on the CPU what it lacks. It shows that code is bound to no device and how
often it launches and transfers; it says nothing of an NPU's precision or speed.

    torch_npu.COUNTS    launches, to_device, to_host, copies (on the device), waits, and "op aten::…" for each operator
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch.library import Library
from torch.utils import _pytree as pytree
from torch.utils import backend_registration

__version__ = str(torch.__version__).partition("+")[0]  # made for this torch, as the real one must be
graph2torch_simulated = True

COUNTS: Counter[str] = Counter()
DEVICES = int(os.environ.get("SIMULATED_NPUS", "1"))
REFUSED = frozenset({torch.float64, torch.complex64, torch.complex128})
aten = torch.ops.aten


class SimulatedError(RuntimeError):
    """What the simulated device doesn't do."""


class NpuTensor(torch.Tensor):
    """A tensor that says it is on npu:0, with the sizes and strides of `raw`, which lies in the host's memory."""

    raw: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, raw: torch.Tensor) -> NpuTensor:
        made: NpuTensor = torch.Tensor._make_wrapper_subclass(
            cls, raw.size(), strides=raw.stride(), storage_offset=raw.storage_offset(), dtype=raw.dtype, device=torch.device("npu:0")
        )
        made.raw = raw
        return made

    # makes nn.Module.to swap whole tensors; by setting `.data` alone it would leave the old `raw` in place
    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["raw"], None

    @staticmethod
    def __tensor_unflatten__(inner: Mapping[str, torch.Tensor], *_: object) -> NpuTensor:
        return NpuTensor(inner["raw"])

    def numpy(self, *_: object, **__: object) -> Any:
        raise TypeError("can't convert npu:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.")

    __array__ = numpy

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __repr__(self, **_: object) -> str:  # type: ignore[override]
        return f"{self.cpu()!r} on npu:0"

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:  # type: ignore[override]
        return _dispatch(op, args, dict(kwargs or {}))


def _dispatch(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    name = op._schema.name
    if torch.is_inference_mode_enabled():  # composite operators arrive whole
        whole = op.decompose(*args, **kwargs)
        if whole is not NotImplemented:
            return whole
    if op is aten.copy_.default:
        return _copy(args[0], args[1])
    if op is aten._copy_from.default:
        return _copy(args[1], args[0])
    if op is aten._to_copy.default:
        return _to_copy(args[0], kwargs)
    if op is aten._local_scalar_dense.default:  # .item()
        COUNTS["to_host"] += 1
        COUNTS["waits"] += 1
        return op(args[0].raw)
    if op in _COMPOSED:
        return _COMPOSED[op](*args, **kwargs)
    if torch.Tag.nondeterministic_seeded in op.tags:
        raise SimulatedError(f"{name}: random numbers are not drawn on this device; draw them on the CPU and move them")
    tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    for tensor in tensors:
        if not isinstance(tensor, NpuTensor) and tensor.dim() > 0:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, npu:0 and {tensor.device}! ({name})"
            )
    if not (op.is_view or op is aten.detach.default):
        for tensor in tensors:
            _check_type(name, tensor.dtype if isinstance(tensor, NpuTensor) else None)
        _check_type(name, kwargs.get("dtype"))
        COUNTS[f"op {name}"] += 1
        COUNTS["launches"] += 1
    known = {id(t.raw): t for t in tensors if isinstance(t, NpuTensor)}
    inner_args, inner_kwargs = pytree.tree_map(lambda x: x.raw if isinstance(x, NpuTensor) else x, (tuple(args), kwargs))
    if isinstance(inner_kwargs.get("device"), torch.device):
        inner_kwargs["device"] = torch.device("cpu")
    result = op(*inner_args, **inner_kwargs)

    def wrapped(x: Any) -> Any:  # what an operator in place gives back is what it was given
        return x if not isinstance(x, torch.Tensor) else known[id(x)] if id(x) in known else NpuTensor(x)

    if op.is_view and not tensors[0].is_inference():  # a view counts versions with its base, also in inference mode
        with torch.inference_mode(False):
            return pytree.tree_map(wrapped, result)
    return pytree.tree_map(wrapped, result)


def _lstm_cell(x: Any, h: Any, cell: Any, bias_x: Any = None, bias_h: Any = None) -> tuple[Any, Any, Any]:
    gates = x + h
    for bias in (bias_x, bias_h):
        gates = gates if bias is None else gates + bias
    i, f, g, o = gates.chunk(4, 1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell, gates


# what torch calls for one operator on a device and for several on the CPU
_COMPOSED: Mapping[Any, Callable[..., Any]] = {aten._thnn_fused_lstm_cell.default: _lstm_cell}


def _to_copy(source: torch.Tensor, kwargs: Mapping[str, Any]) -> torch.Tensor:
    device = kwargs.get("device")
    rest = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory", "layout")}
    if device is not None and device.type == "cpu":
        assert isinstance(source, NpuTensor)
        COUNTS["to_host"] += 1
        copied: torch.Tensor = aten._to_copy.default(source.raw, **rest)
        return copied
    _check_type("aten::_to_copy", rest.get("dtype") or source.dtype)
    if isinstance(source, NpuTensor):
        COUNTS["copies"] += 1
        return NpuTensor(aten._to_copy.default(source.raw, **rest))
    _check_index(device)
    COUNTS["to_device"] += 1
    return NpuTensor(aten._to_copy.default(source, **rest))


def _copy(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    if isinstance(source, NpuTensor) and isinstance(target, NpuTensor):
        COUNTS["copies"] += 1
        target.raw.copy_(source.raw)
    elif isinstance(target, NpuTensor):
        _check_type("aten::copy_", source.dtype)
        COUNTS["to_device"] += 1
        target.raw.copy_(source)
    elif isinstance(source, NpuTensor):
        COUNTS["to_host"] += 1
        target.copy_(source.raw)
    return target


def _check_type(name: str, dtype: torch.dtype | None) -> None:
    if dtype in REFUSED:
        raise SimulatedError(f"{name}: this device has no {dtype}")


def _check_index(device: torch.device | None) -> None:
    if device is not None and device.type == "npu" and (device.index or 0) >= DEVICES:
        raise SimulatedError(f"there is no {device}")


class _Module(backend_registration._DummyBackendModule):
    """torch.npu, as far as graph2torch and torch itself call it."""

    def __init__(self) -> None:
        self.matmul = SimpleNamespace(allow_hf32=False)
        self.conv = SimpleNamespace(allow_hf32=True)  # as the real ones are by default

    def device_count(self) -> int:
        return DEVICES

    def set_device(self, device: int | str | torch.device) -> None:
        _check_index(torch.device("npu", device) if isinstance(device, int) else torch.device(device))

    def synchronize(self, device: object = None) -> None:
        COUNTS["waits"] += 1

    def get_device_name(self, device: object = None) -> str:
        return "stand-in"

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def get_rng_state(self, device: object = None) -> Any:
        raise SimulatedError("random numbers are not drawn on this device")

    set_rng_state = get_rng_state


def _empty(
    size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, memory_format: Any = None
) -> Any:
    _check_index(device)
    _check_type("aten::empty", dtype)
    return NpuTensor(torch.empty(size, dtype=dtype, device="cpu"))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    _check_index(device)
    _check_type("aten::empty_strided", dtype)
    return NpuTensor(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


# once a process: a device of torch can be named, not renamed
backend_registration._setup_privateuseone_for_python_backend("npu", backend_module=_Module())
_OPERATORS: Any = Library("aten", "IMPL")  # type: ignore[no-untyped-call]
_OPERATORS.impl("empty.memory_format", _empty, "PrivateUse1")
_OPERATORS.impl("empty_strided", _empty_strided, "PrivateUse1")
_OPERATORS.impl("_copy_from", lambda source, target, non_blocking=False: _copy(target, source), "PrivateUse1")
