"""The tensors of a .safetensors file, read without torch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graph2torch.graph import Array

_KINDS = {"F": "f", "I": "i", "U": "u"}
DTYPES: Mapping[str, str] = {
    f"{kind}{8 * size}": f"<{_KINDS[kind]}{size}" for kind in _KINDS for size in (1, 2, 4, 8) if (kind, size) != ("F", 1)
}


def tensors_in(data: bytes) -> dict[str, Array]:
    """The tensors, by their keys; bfloat16 as float32. SafetensorError, KeyError or ValueError for what is no such file."""
    from safetensors import deserialize

    found = {}
    for name, told in deserialize(data):  # type: ignore[no-untyped-call]
        if told["dtype"] == "BF16":  # the upper half of a float32
            array: Array = (np.frombuffer(told["data"], dtype="<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            array = np.frombuffer(told["data"], dtype="?" if told["dtype"] == "BOOL" else DTYPES[told["dtype"]])
        found[str(name)] = array.reshape(told["shape"])
    return found
