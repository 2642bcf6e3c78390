"""Damage of any kind: a file is read, or refused with one of the package's own errors. Nothing else ever comes out.

What these tests draw is bounded, and the same each time: a failure stays until it is repaired.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.defs
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from graph2torch.build import build_policy
from graph2torch.checkpoint import load_checkpoint
from graph2torch.errors import CheckpointError, Graph2TorchError
from graph2torch.recognise import recognise
from tests.commands import unsafe
from tests.models import tiny_checkpoint, tiny_policy

QUIET = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def small(opset: int) -> onnx.ModelProto:
    """As few numbers as can be, so that damage hits the structure."""
    return tiny_policy((2, 1), actions=1, hidden=1, layers=1, opset=opset)


def saved(**options: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(tiny_checkpoint(small(9)), stream, **options)
    return stream.getvalue()


MODELS = [small(opset).SerializeToString() for opset in (9, 13)]
CHECKPOINTS = [saved(), saved(_use_new_zipfile_serialization=False)]


@st.composite
def damaged(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """A valid file with bits flipped, parts taken out, doubled or moved, or its end cut off."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 3))):
        place, other = (draw(st.integers(0, max(len(data) - 1, 0))) for _ in range(2))
        length = draw(st.sampled_from([1, 2, 4, 8, 64]))
        kind = draw(st.sampled_from(["flip", "byte", "cut", "double", "remove", "splice"]))
        if not data:
            break
        if kind == "flip":
            data[place] ^= 1 << draw(st.integers(0, 7))
        elif kind == "byte":
            data[place] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        elif kind == "cut":
            del data[place:]
        elif kind == "double":
            data[place:place] = data[other : other + length]
        elif kind == "remove":
            del data[place : place + length]
        else:
            data[place : place + length] = data[other : other + length]
    return bytes(data)


def told(action: Callable[[], object]) -> None:
    """It succeeds, or gives a short paragraph that is safe to print. Any other exception is the test's failure."""
    message = "fine"
    try:
        action()
    except Graph2TorchError as error:
        message = str(error)
    assert 0 < len(message) < 1500 and "\n" not in message
    assert not unsafe(message)


# ---------------------------------------------------------------------------------------------- bytes
@settings(QUIET, max_examples=100)
@given(st.binary(max_size=300), st.sampled_from([b"", b"PK\x03\x04", b"\x80\x02", b"\x08\x07", b"version https://git-lfs"]))
def test_random_bytes(tmp_path: Path, data: bytes, start: bytes) -> None:
    path = tmp_path / "Given"
    path.write_bytes(start + data)
    told(lambda: recognise(path))
    told(lambda: load_checkpoint(path))


@settings(QUIET, max_examples=150)
@given(damaged(MODELS))
def test_damaged_models(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "Given.onnx"
    path.write_bytes(data)
    told(lambda: recognise(path))


@settings(QUIET, max_examples=150)
@given(damaged(CHECKPOINTS))
def test_damaged_checkpoints(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "Given.pt"
    path.write_bytes(data)
    told(lambda: load_checkpoint(path))


# ---------------------------------------------------------------------------------------------- structure
OPERATORS = sorted({s.name for s in onnx.defs.get_all_schemas() if not s.domain})
INTEGERS = st.sampled_from([0, 1, -1, 2, 3, 7, 100, 2**31 - 1, 2**31, -(2**31), 2**62, -(2**63), 2**63 - 1])
FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 3.0, 5.0, float("nan"), float("inf"), 1e-45, 3e38])
TEXTS = st.sampled_from(["", "NOTSET", "constant", "linear", "\x1b[31m", "a'b"])
KINDS: dict[int, st.SearchStrategy[Any]] = {
    onnx.AttributeProto.INT: INTEGERS,
    onnx.AttributeProto.FLOAT: FLOATS,
    onnx.AttributeProto.STRING: TEXTS,
    onnx.AttributeProto.INTS: st.lists(INTEGERS, max_size=4),
    onnx.AttributeProto.FLOATS: st.lists(FLOATS, max_size=4),
}
ARRAYS = st.sampled_from(
    [np.asarray(v, t) for v in (1, [1], [1, 2], [[3]], [], [[1, 2], [3, 4]]) for t in ("float32", "float64", "int64", "bool")]
)


@st.composite
def bent(draw: st.DrawFn) -> onnx.ModelProto:
    """A policy with other operators, operands, attributes, constants, sizes, types or versions here and there."""
    model = small(draw(st.sampled_from([9, 13, 18])))
    graph = model.graph
    for _ in range(draw(st.integers(1, 3))):
        node = draw(st.sampled_from(list(graph.node)))
        values = sorted({v for n in graph.node for v in (*n.input, *n.output)} | {t.name for t in graph.initializer} | {"", "nowhere"})
        end = draw(st.sampled_from([*graph.input, *graph.output]))
        kind = draw(
            st.sampled_from(["operator", "operand", "output", "more", "fewer", "attribute", "constant", "size", "type", "opset", "copy"])
        )
        if kind == "operator":
            node.op_type = draw(st.sampled_from(OPERATORS))
        elif kind == "operand" and node.input:
            node.input[draw(st.integers(0, len(node.input) - 1))] = draw(st.sampled_from(values))
        elif kind == "output":
            node.output[0] = draw(st.sampled_from(values))
        elif kind == "more":
            node.input.append(draw(st.sampled_from(values)))
        elif kind == "fewer" and node.input:
            del node.input[-1]
        elif kind == "attribute":
            known = onnx.defs.get_schema(node.op_type).attributes if onnx.defs.has(node.op_type) else {}
            usable = sorted(name for name, a in known.items() if int(a.type) in KINDS)  # type: ignore[call-overload]
            if usable:
                name = draw(st.sampled_from(usable))
                type_ = int(known[name].type)  # type: ignore[call-overload]
                others = [a for a in node.attribute if a.name != name]
                del node.attribute[:]
                node.attribute.extend([*others, helper.make_attribute(name, draw(KINDS[type_]), attr_type=type_)])
        elif kind == "constant":
            tensor = draw(st.sampled_from(list(graph.initializer)))
            tensor.CopyFrom(numpy_helper.from_array(draw(ARRAYS), tensor.name))
        elif kind == "size":
            end.type.tensor_type.shape.dim.add(dim_value=draw(st.sampled_from([0, 1, 2, 2**40])))
        elif kind == "type":
            end.type.tensor_type.elem_type = draw(st.integers(0, 17))
        elif kind == "opset":
            model.opset_import[0].version = draw(st.integers(7, 23))
        elif kind == "copy":
            twin = graph.node.add()
            twin.CopyFrom(node)
            twin.name += "/copy"
            twin.output[:] = [f"{o}/copy" for o in node.output]
    return model


@settings(QUIET, max_examples=100)
@given(bent())
def test_bent_graphs_are_recognised_or_refused(tmp_path: Path, model: onnx.ModelProto) -> None:
    path = tmp_path / "Given.onnx"
    path.write_bytes(model.SerializeToString())
    told(lambda: recognise(path))


@settings(QUIET, max_examples=40)
@given(bent())
def test_bent_graphs_are_built_or_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str], model: onnx.ModelProto) -> None:
    """And no library prints anything meanwhile, not even from C++."""
    path = tmp_path / "Given.onnx"
    path.write_bytes(model.SerializeToString())
    told(lambda: build_policy(path))
    assert capfd.readouterr().out == ""


# ---------------------------------------------------------------------------------------------- pickles
OPCODES = [
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
    b"\x85",
    b"\x86",
    b"\x87",
]
OPCODES += [
    b"K\x01",
    b"M\x01\x00",
    b"J\xff\xff\xff\xff",
    b"X\x01\x00\x00\x00a",
    b"X\x07\x00\x00\x00storage",
    b"q\x00",
    b"h\x00",
    b"q\x01",
    b"h\x01",
]
OPCODES += [
    b"ccollections\nOrderedDict\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch\nFloatStorage\n",
    b"cposix\nsystem\n",
    b"\x88",
    b"G" + b"\0" * 8,
]


@settings(QUIET, max_examples=250)
@given(st.lists(st.sampled_from(OPCODES), max_size=40))
def test_pickles_of_random_steps(tmp_path: Path, steps: list[bytes]) -> None:
    path = tmp_path / "Given.pt"
    path.write_bytes(b"\x80\x02" + b"".join(steps) + b".")
    with pytest.raises(CheckpointError):
        load_checkpoint(path)
