"""What a .pt is: its modules, step, tensors, normalisers and odd values."""

from __future__ import annotations

from graph2torch.bind import odd_values
from graph2torch.checkpoint import Checkpoint

from .numbers import Found, described, numbers
from .statistics import distinct, faults, trained, trained_normalizers


def inspect_checkpoint(checkpoint: Checkpoint) -> Found:
    """What a checkpoint that was read is: see `inspect_file`."""
    tensors = [
        {"name": name, "same_as": same, **described(array), "values": numbers(array) if array.size <= 4 else None}
        for name, array, same in distinct(checkpoint.tensors)
    ]
    normalizers = list(trained_normalizers(checkpoint.tensors))
    return {
        "file": checkpoint.path.name,
        "sha256": checkpoint.sha256,
        "bytes": checkpoint.size,
        "megabytes": round(checkpoint.size / 1e6, 3),
        "step": checkpoint.step,
        "modules": [{"name": name, "tensors": count, "numbers": numbers} for name, (count, numbers) in checkpoint.modules.items()],
        "policy": checkpoint.module,
        "numbers": sum(t["numbers"] for t in tensors if t["same_as"] is None),
        "tensors": tensors,
        "normalizers": [trained(n) for n in normalizers],
        "odd_values": [*odd_values(checkpoint.tensors.items()), *(fault for n in normalizers for fault in faults(n))],
        "unread": list(checkpoint.unread),
    }
