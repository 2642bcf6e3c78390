"""The versions of what figures were measured with."""

from __future__ import annotations

import platform


def versions() -> dict[str, str]:
    """What the figures were measured with."""
    import numpy as np
    import onnx
    import onnxruntime
    import torch

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "onnx": onnx.__version__,
        "onnxruntime": onnxruntime.__version__,
        "numpy": np.__version__,
    }
