"""The device, and Huggy's model.py as `build` writes it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from graph2torch.build import build
from graph2torch.devices.device import Device, resolve

ASSETS = Path(__file__).parent.parent.parent / "assets"


@pytest.fixture(scope="session")
def device() -> Device:
    return resolve(os.environ["GRAPH2TORCH_DEVICE"])


@pytest.fixture(scope="session")
def huggy(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """model.py, made from the pair in assets/, as a module."""
    folder = tmp_path_factory.mktemp("huggy") / "Huggy"
    build(ASSETS / "Huggy.onnx", ASSETS / "Huggy.pt", folder)
    spec = importlib.util.spec_from_file_location("huggy_model", folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
