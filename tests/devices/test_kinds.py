"""Names of devices: what is one, and the one paragraph about what is none."""

from __future__ import annotations

import pytest

from graph2torch.devices.kinds import KINDS, parse
from graph2torch.errors import DeviceError
from tests.commands import unsafe


@pytest.mark.parametrize(
    ("name", "found"), [("cpu", ("cpu", 0)), ("npu", ("npu", 0)), ("cuda:1", ("cuda", 1)), ("xpu:12", ("xpu", 12)), ("mps:0", ("mps", 0))]
)
def test_names_of_devices(name: str, found: tuple[str, int]) -> None:
    kind, index = parse(name)
    assert (kind.type, index) == found and kind is KINDS[found[0]]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "an empty name"),
        ("CUDA", "cuda is meant"),
        (" npu", "npu is meant"),
        ("npu:-1", "is no device"),
        ("npu:", "is no device"),
        ("npu:1:2", "is no device"),
        ("npu:٣", "is no device"),
        ("npu\n", "is no device"),
        ("cuda:99999", "is no device"),
        ("cpu:0", "only one cpu"),
        ("mps:1", "only one mps"),
        ("meta", "is no device"),
        ("x" * 10_000, "…"),
        ("\x1b[31mnpu\u202e", "is no device"),
    ],
)
def test_what_is_no_device(name: str, words: str) -> None:
    with pytest.raises(DeviceError) as raised:
        parse(name)
    told = str(raised.value)
    assert raised.value.exit_status == 3
    assert words in told and ("cpu, npu, cuda" in told or "; say " in told) and "\n" not in told and len(told) < 300 and not unsafe(told)
