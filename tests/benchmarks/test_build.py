"""The stages that `python -m benchmarks.build` times are where a build looks them up."""

from __future__ import annotations

import importlib
from functools import reduce

import pytest

from benchmarks.build import STAGES


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_is_there(stage: str) -> None:
    module, path = STAGES[stage]
    assert callable(reduce(getattr, path.split("."), importlib.import_module(module)))
