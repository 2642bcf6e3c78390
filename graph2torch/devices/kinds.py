"""The kinds of device that `--device` knows, and the one table of what differs between them. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from graph2torch.errors import DeviceError
from graph2torch.text import printable


@dataclass(frozen=True)
class Kind:
    """One kind of device, by torch's name for it.

    words:       what it is called in a sentence
    package:     the package that teaches torch this device, imported before it is used; "" if torch has it built in
    float64:     whether it computes in float64; where not, an NPU converts to float32 with no more than a warning
    switches:    attributes below `torch` that shorten float32 (tf32, hf32, sums of half precision), with the value that doesn't
    environment: variables that make an operator which the device lacks an error, instead of computing it on the CPU
    fixed:       those of them that torch reads once, when it is imported
    visible:     the variable that hides some of the devices from a process
    graphs:      the class that records launches and replays them as one; "" if there is none
    events:      whether it has timing events
    remedy:      what to do where torch, or the package, isn't there
    driver:      what to do where no such device is found
    """

    type: str
    words: str
    package: str = ""
    float64: bool = True
    switches: tuple[tuple[str, bool], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    fixed: frozenset[str] = frozenset()
    visible: str = ""
    graphs: str = ""
    events: bool = False
    remedy: str = ""
    driver: str = ""


KINDS: Mapping[str, Kind] = {
    kind.type: kind
    for kind in (
        Kind("cpu", "the CPU", remedy="install torch again"),
        Kind(
            "npu",
            "Ascend NPU",
            package="torch_npu",
            float64=False,
            switches=(("npu.matmul.allow_hf32", False), ("npu.conv.allow_hf32", False)),
            environment={"TORCH_NPU_FALLBACK_CPU_DISABLE": "1"},
            visible="ASCEND_RT_VISIBLE_DEVICES",
            graphs="NPUGraph",
            events=True,
            remedy="install the torch_npu of this torch's version, `pip install torch-npu=={torch}`, and CANN",
            driver="look whether `npu-smi info` lists one; if not, its driver isn't loaded, or this user may not use it",
        ),
        Kind(
            "cuda",
            "CUDA or ROCm GPU",
            switches=(
                ("backends.cuda.matmul.allow_tf32", False),
                ("backends.cudnn.allow_tf32", False),
                ("backends.cuda.matmul.allow_fp16_reduced_precision_reduction", False),
                ("backends.cuda.matmul.allow_bf16_reduced_precision_reduction", False),
            ),
            visible="CUDA_VISIBLE_DEVICES",
            graphs="CUDAGraph",
            events=True,
            remedy="install a torch {torch} that is built for CUDA or ROCm (https://pytorch.org/get-started tells how)",
            driver="look whether `nvidia-smi` (`rocm-smi`) lists one; if not, its driver isn't loaded, or this user may not use it",
        ),
        Kind(
            "xpu",
            "Intel GPU",
            switches=(("backends.mkldnn.allow_tf32", False),),
            visible="ZE_AFFINITY_MASK",
            graphs="XPUGraph",
            events=True,
            remedy="install a torch {torch} that is built for XPU (https://pytorch.org/get-started tells how)",
            driver="look whether `xpu-smi discovery` lists one; if not, its driver isn't loaded, or this user may not use it",
        ),
        Kind(
            "mps",
            "Apple GPU",
            float64=False,
            environment={"PYTORCH_ENABLE_MPS_FALLBACK": "0"},
            fixed=frozenset({"PYTORCH_ENABLE_MPS_FALLBACK"}),
            events=True,
            remedy="it takes a Mac with Apple silicon and torch's build for macOS",
            driver="it takes macOS 14 or newer and a native (arm64) Python",
        ),
    )
}


def parse(name: str) -> tuple[Kind, int]:
    """ "npu" or "npu:1" as its kind and number. Raises DeviceError if `name` is no such name."""
    known = "cpu, npu, cuda, xpu or mps, or one of several by its number as in cuda:1"
    found = re.fullmatch(r"([a-z]+)(?::([0-9]{1,4}))?", name, re.ASCII)
    kind = KINDS.get(found[1]) if found else None
    if found is None or kind is None:
        shown = f"'{printable(name, 40)}'" if name else "an empty name"
        meant = next((k for k in KINDS if re.fullmatch(rf"{k}(:[0-9]+)?", name.strip().lower(), re.ASCII)), "")
        raise DeviceError(f"{shown} is no device: it is {known}{f'; {meant} is meant, perhaps' if meant else ''}.")
    if kind.type in ("cpu", "mps") and found[2] and (kind.type == "cpu" or int(found[2])):
        raise DeviceError(f"'{name}' is no device: there is only one {kind.type}, which has no number; say {kind.type}.")
    return kind, int(found[2] or 0)
