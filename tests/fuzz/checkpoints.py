"""Checkpoints that are damaged or made to harm: as bytes, as zip archives, as pickles, and as dictionaries that torch saved."""

from __future__ import annotations

import io
import pickletools
import random
import re
import struct
import zipfile
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx

from tests.models import tiny_checkpoint, tiny_policy

from .damage import INTEGERS, damaged, integer, text


@cache
def policy() -> onnx.ModelProto:
    return tiny_policy((2, 1), actions=1, hidden=2, layers=1)


@cache
def saved(old: bool = False) -> bytes:
    import torch

    stream = io.BytesIO()
    torch.save(tiny_checkpoint(policy()), stream, _use_new_zipfile_serialization=not old)
    return stream.getvalue()


@cache
def records() -> dict[str, bytes]:
    """Of a small archive: its name in the archive → its bytes."""
    with zipfile.ZipFile(io.BytesIO(saved())) as archive:
        return {entry.filename: archive.read(entry) for entry in archive.infolist()}


def archive(entries: dict[str, bytes] | list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as made:
        for name, data in entries.items() if isinstance(entries, dict) else entries:
            made.writestr(name.replace("\0", "?"), data)
    return stream.getvalue()


def damaged_bytes(rng: random.Random) -> bytes:
    return damaged(rng, saved(rng.random() < 0.4), (saved(), saved(True), policy().SerializeToString()))


# ---------------------------------------------------------------------------------------------- archives
def damaged_archive(rng: random.Random) -> bytes:
    """Records missing, twice, longer or shorter, called otherwise or compressed; then the directory's own numbers changed."""
    entries = [(name, data) for name, data in records().items() if not name.endswith("__MACOSX")]
    for _ in range(rng.randint(0, 3)):
        place = rng.randrange(len(entries))
        name, data = entries[place]
        kind = rng.randrange(9)
        if kind == 0 and len(entries) > 1:
            del entries[place]
        elif kind == 1:
            entries.append((rng.choice((name, name.upper(), name.title(), name.replace("/", "\\"))), rng.choice((data, data[:1], b""))))
        elif kind == 2:
            entries[place] = (name, data[: rng.randrange(len(data) + 1)])
        elif kind == 3:
            entries[place] = (name, data + bytes(rng.choice((1, 4, 1000))))
        elif kind == 4:
            entries[place] = (rng.choice(("../executed", "/tmp/executed", text(rng)[:1000] or "x", name + "/", "x/" + name)), data)
        elif kind == 5:
            entries.append(
                (
                    name.partition("/")[0]
                    + "/"
                    + rng.choice(
                        (
                            "constants.pkl",
                            "version",
                            "byteorder",
                            "data/0",
                            "data.pkl",
                            "code/x.py",
                            ".format_version",
                            ".storage_alignment",
                        )
                    ),
                    rng.choice((b"", b"1", b"big", b"\xff\xff", b"99999999999999999999", data)),
                )
            )
        elif kind == 6:
            entries[place] = (name, damaged(rng, data))
        elif kind == 7:
            rng.shuffle(entries)
        else:
            entries += [(f"{name}{i}", b"") for i in range(rng.choice((3, 300)))]
    out = archive(entries, rng.choice((zipfile.ZIP_STORED,) * 6 + (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)))
    return directory_changed(rng, out) if rng.random() < 0.6 else out


def directory_changed(rng: random.Random, data: bytes) -> bytes:
    """Sizes, offsets, names, flags, counts and versions in the zip's table of contents and in the records' own headers."""
    out = bytearray(data)
    marks = [found.start() for found in re.finditer(rb"PK(\x01\x02|\x05\x06|\x03\x04)", data)]
    for _ in range(rng.randint(1, 3)):
        start = rng.choice(marks)
        at = start + rng.randrange(4, 46)
        width = rng.choice((1, 2, 4))
        out[at : at + width] = (rng.choice((integer(rng), 0, 8, 12, 99, 0xFFFFFFFF, rng.randrange(5000))) % 256**width).to_bytes(
            width, "little"
        )
    if rng.random() < 0.1:
        out += struct.pack("<H", 5) + b"extra" + bytes(rng.randrange(100))
    return bytes(out)


# ---------------------------------------------------------------------------------------------- pickles
GLOBALS = (
    *(
        b"posix\nsystem",
        b"os\nsystem",
        b"builtins\neval",
        b"__builtin__\neval",
        b"builtins\nexec",
        b"builtins\ngetattr",
        b"subprocess\nPopen",
    ),
    *(
        b"numpy\nload",
        b"torch\nload",
        b"torch.hub\nload",
        b"pathlib\nPath",
        b"webbrowser\nopen",
        b"importlib\nimport_module",
        b"_codecs\nencode",
    ),
    *(b"collections\nOrderedDict", b"collections\nCounter", b"collections\ndefaultdict", b"builtins\nbytearray", b"__builtin__\nset"),
    *(
        b"__builtin__\ncomplex",
        b"__builtin__\nlist",
        b"torch\nSize",
        b"torch\ndevice",
        b"torch\nTensor",
        b"torch\nfloat32",
        b"torch\nuint4",
    ),
    *(
        b"torch._utils\n_rebuild_tensor",
        b"torch._utils\n_rebuild_tensor_v2",
        b"torch._utils\n_rebuild_tensor_v3",
        b"torch._tensor\n_rebuild_from_type_v2",
    ),
    *(b"torch._utils\n_rebuild_parameter", b"torch._utils\n_rebuild_parameter_with_state", b"torch._utils\n_rebuild_qtensor"),
    *(b"torch._utils\n_rebuild_sparse_tensor", b"torch._utils\n_rebuild_meta_tensor_no_storage", b"torch._utils\n_rebuild_nested_tensor"),
    *(b"torch._utils\n_rebuild_wrapper_subclass", b"torch._utils\n_rebuild_device_tensor_from_numpy", b"torch._utils\n_rebuild_xla_tensor"),
    *(
        b"torch.serialization\n_get_layout",
        b"torch.storage\nUntypedStorage",
        b"torch.storage\nTypedStorage",
        b"torch.nn.parameter\nParameter",
    ),
    *(b"torch\nFloatTensor", b"torch.sparse\nFloatTensor", b"torch.cuda\nFloatTensor", b"torch\nByteTensor", b"torch\nper_tensor_affine"),
    *(b"torch\nFloatStorage", b"torch\nDoubleStorage", b"torch\nQInt8Storage", b"torch\nComplexDoubleStorage", b"torch\nBoolStorage"),
    *(b"torch.nested._internal.nested_tensor\nNestedTensor", b"torch._C\n_TensorBase", b"torch.version\n__version__", b"\n", b"a\nb.c"),
)
STEPS = (
    *(
        b"(",
        b")",
        b"]",
        b"}",
        b"t",
        b"l",
        b"d",
        b"e",
        b"u",
        b"s",
        b"a",
        b"0",
        b"1",
        b"2",
        b"R",
        b"b",
        b"Q",
        b"N",
        b".",
        b"\x85",
        b"\x86",
        b"\x87",
    ),
    *(b"\x81", b"\x88", b"\x89", b"\x8f", b"\x90", b"\x91", b"\x92", b"\x93", b"\x94", b"o", b"\x98", b"\x97", b"\x80\x02", b"\x80\xff"),
    *(b"X\x01\x00\x00\x00a", b"X\x07\x00\x00\x00storage", b"X\x06\x00\x00\x00Policy", b"X\x03\x00\x00\x00cpu", b"X\x04\x00\x00\x00meta"),
    *(b"q\x00", b"h\x00", b"q\x01", b"h\x01", b"r\x00\x00\x00\x00", b"j\xff\xff\xff\xff", b"G" + b"\0" * 8, b"G\x7f\xf8" + b"\0" * 6),
    *(
        b"\x8c\x01a",
        b"B\x04\x00\x00\x00abcd",
        b"C\x01a",
        b"\x96\x04" + b"\0" * 7 + b"abcd",
        b"Pnot a number\n",
        b"I12\n",
        b"L12L\n",
        b"S'a'\n",
    ),
    *(
        b"\x8b\x04\x00\x00\x00\xff\xff\xff\x7f",
        b"\x8a\x01\x7f",
        b"\x95" + b"\xff" * 8,
        b"V\\u202e\n",
        b"F1e400\n",
        b"\x82\x01",
        b"\x84" + b"\xff" * 4,
    ),
)


@cache
def original_steps() -> tuple[bytes, ...]:
    """The genuine pickle, an operation a piece."""
    data = next(data for name, data in records().items() if name.endswith("data.pkl"))
    places = [at for _, _, at in pickletools.genops(data)]
    return tuple(data[a:b] for a, b in zip(places, [*places[1:], len(data)], strict=True) if a is not None)


def number(rng: random.Random) -> bytes:
    value = rng.choice((*INTEGERS, integer(rng), rng.randrange(10)))
    kind = rng.randrange(3)
    if kind == 0:
        return b"K" + bytes([value % 256])
    if kind == 1:
        return b"J" + (value % 2**32).to_bytes(4, "little")
    return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)


def step(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.12:  # a call
        return b"c" + rng.choice(GLOBALS) + b"\n(" + b"".join(step(rng) for _ in range(rng.randint(0, 3))) + b"tR"
    if kind < 0.5:
        return rng.choice(STEPS)
    if kind < 0.7:
        return b"c" + rng.choice(GLOBALS) + b"\n"
    if kind < 0.85:
        return number(rng)
    written = text(rng)[:2000].encode()
    return b"X" + struct.pack("<I", len(written)) + written


def damaged_pickle(rng: random.Random) -> bytes:
    """An archive around a pickle, or the pickle alone, some of whose operations are others."""
    steps = list(original_steps())
    if rng.random() < 0.25:  # a short one, of anything
        steps = [b"\x80\x02", *(step(rng) for _ in range(rng.randint(1, 40))), b"."]
    else:
        for _ in range(rng.randint(1, 4)):
            place, length = rng.randrange(1, len(steps)), rng.choice((1, 1, 2, 5, 30))
            kind = rng.randrange(8)
            if kind == 0:
                steps[place] = step(rng)
            elif kind == 1:
                steps[place:place] = [step(rng) for _ in range(length)]
            elif kind == 2:
                del steps[place : place + length]
            elif kind == 3:
                steps[place:place] = steps[(other := rng.randrange(len(steps))) : other + length]
            elif kind == 4 and steps[place][:1] == b"c":
                steps[place] = b"c" + rng.choice(GLOBALS) + b"\n"
            elif kind == 5:  # a number somewhere near: sizes, strides, offsets, counts
                near = [i for i in range(place, min(place + 60, len(steps))) if steps[i][:1] in (b"K", b"M", b"J", b"\x8a")]
                if near:
                    steps[rng.choice(near)] = number(rng)
            elif kind == 6:
                nest = rng.choice((b"\x85", b"]a", b"2\x86", b"(l", b"N\x86", b"}", b"q\x00h\x00\x86", b"q\x07h\x07h\x07\x87", b"\x8f"))
                steps[place:place] = [nest * rng.choice((2, 50, 3000))]
            else:
                globals_near = [i for i in range(len(steps)) if steps[i][:1] == b"c"]
                if globals_near:
                    steps[rng.choice(globals_near)] = b"c" + rng.choice(GLOBALS) + b"\n"
    data = b"".join(steps)
    if rng.random() < 0.05:
        data = damaged(rng, data)
    if rng.random() < 0.15:
        return data
    return archive({name: data if name.endswith("data.pkl") else old for name, old in records().items()})


# ---------------------------------------------------------------------------------------------- dictionaries
def odd_checkpoint(rng: random.Random, model: onnx.ModelProto) -> dict[Any, Any]:
    """The model's checkpoint with tensors of other shapes, types, strides and values, missing, called otherwise, or no tensors."""
    import torch

    checkpoint: dict[Any, Any] = tiny_checkpoint(model, rng.choice((1, 1024, 1024, 2**31 - 1)))
    policy = checkpoint["Policy"]
    for _ in range(rng.randint(1, 4)):
        key = rng.choice(list(policy) or ["nothing"])
        given = policy.get(key)
        tensor = given if isinstance(given, torch.Tensor) and given.layout == torch.strided else torch.ones(2, 3)
        kind = rng.randrange(8)
        if kind < 4:
            try:
                policy[key] = changed(rng, tensor)
            except Exception:  # not of this tensor
                policy.pop(key, None)
        elif kind == 4:
            policy.pop(key, None)
        elif kind == 5:
            policy[rng.choice((text(rng), f"{key}.", str(key).upper(), 1, None, (1, "a"), 10**400, b"x", 1.5))] = given
        elif kind == 6:
            checkpoint[rng.choice((text(rng), "global_step", "Policy", "Optimizer:x", 1, ("a",)))] = rng.choice(
                (policy, {}, [1], given, None)
            )
            if not isinstance(checkpoint.get("Policy"), dict):
                break
        else:
            place = rng.choice(list(policy) or ["x"])
            policy[place if isinstance(place, str) else "x"] = policy.get(rng.choice(list(policy) or ["x"]))
    return checkpoint


def changed(rng: random.Random, tensor: Any) -> Any:
    """The tensor in another shape, type, memory or with other numbers; or something that is no tensor. Not each goes with any tensor."""
    import torch

    changes: tuple[Callable[[], Any], ...] = (
        lambda: tensor.reshape(-1),
        lambda: tensor.unsqueeze(rng.choice((0, -1))),
        lambda: tensor.t() if tensor.ndim == 2 else tensor.flip(0) if tensor.ndim else tensor,
        lambda: tensor.to(rng.choice((torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64))),
        lambda: torch.full_like(tensor, rng.choice((0, 1, 100))),
        lambda: tensor * rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e38, 1e-45)),
        lambda: torch.ones(1).expand(rng.choice(((2**20,), (2, 2), (2**40,), (1,) * 30))),
        lambda: tensor[:0],
        lambda: tensor.to_sparse() if tensor.ndim else tensor,
        lambda: torch.ones(3, device="meta"),
        lambda: rng.choice((None, 1, "text", [tensor], {"x": tensor}, (1,), b"bytes", 10**400, 1.5)),
        lambda: torch.nn.Parameter(tensor.float()),
        lambda: torch.from_numpy(np.asarray(integer(rng))),
    )
    return rng.choice(changes)()


def pickled(checkpoint: dict[Any, Any], old: bool = False) -> bytes:
    import torch

    stream = io.BytesIO()
    torch.save(checkpoint, stream, _use_new_zipfile_serialization=not old)
    return stream.getvalue()
