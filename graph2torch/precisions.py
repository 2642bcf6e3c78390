"""The precisions that layers' weights come in: the one list of them. Imports neither numpy nor torch."""

from __future__ import annotations

from .errors import ActingError
from .text import quoted

PRECISIONS = ("float32", "float16", "bfloat16")
HALF = PRECISIONS[1:]


def check_dtype(dtype: object) -> str:
    """The name of a precision: `dtype` itself, or of torch's own `torch.float16`. Raises ActingError."""
    name = str(dtype).removeprefix("torch.")
    if name not in PRECISIONS:
        raise ActingError(f"{quoted(str(dtype))} is no precision of weights; there are {', '.join(PRECISIONS)}.")
    return name
