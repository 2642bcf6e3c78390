"""Turns a policy graph (.onnx) and its checkpoint (.pt) into a readable torch module that is proven equal to the graph."""

import os

__version__ = "0.1.0"  # the only place: pyproject.toml reads it from here

# torch loads every installed device plugin (torch_npu …) on import; a broken one must not take the CPU down with it.
os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its exporter warns of every operator that is not its own
