"""Graphs that are valid protobuf and absurd otherwise: policies bent in a few places, and graphs made from nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import onnx
import onnx.defs
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.models import FAMILIES, tiny_policy

from .damage import FLOATS, integer, text

Bend = Callable[[random.Random, onnx.ModelProto], None]
OPERATORS = sorted({s.name for s in onnx.defs.get_all_schemas() if not s.domain})
OPSETS = (7, 9, 11, 13, 18, 21)
NOT_TEXT = "not\x01text"  # becomes bytes that are no UTF-8, which the protobuf library doesn't write


@cache
def policies() -> tuple[bytes, ...]:
    """One of each family at several opsets, and very small ones."""
    models = [tiny_policy(**arguments, opset=opset) for arguments in FAMILIES.values() for opset in (9, 13)]
    models += [tiny_policy((2, 1), actions=1, hidden=1, layers=1, opset=opset) for opset in OPSETS for _ in range(4)]
    return tuple(m.SerializeToString() for m in models)


def policy(rng: random.Random) -> onnx.ModelProto:
    return cast(onnx.ModelProto, onnx.ModelProto.FromString(rng.choice(policies())))


def serialised(model: onnx.ModelProto) -> bytes:
    data: bytes = model.SerializeToString()
    return data.replace(NOT_TEXT.encode(), b"not\xfftext")


def bent(rng: random.Random) -> onnx.ModelProto:
    model = policy(rng)
    for _ in range(rng.randint(1, 4)):
        rng.choice(BENDS)(rng, model)
    return model


def slightly_bent(rng: random.Random) -> onnx.ModelProto:
    """One change, of a kind that may well leave the graph buildable."""
    model = policy(rng)
    rng.choice(MILD)(rng, model)
    return model


# ---------------------------------------------------------------------------------------------- where
def values(model: onnx.ModelProto) -> list[str]:
    graph = model.graph
    found = {v for n in graph.node for v in (*n.input, *n.output)} | {t.name for t in graph.initializer}
    return sorted(found | {v.name for v in (*graph.input, *graph.output)} | {"", "nowhere"})


def node(rng: random.Random, model: onnx.ModelProto) -> onnx.NodeProto:
    nodes: Sequence[onnx.NodeProto] = model.graph.node
    return rng.choice(nodes) if nodes else model.graph.node.add(op_type="Relu", input=["obs_0"], output=["relu"])


def end(rng: random.Random, model: onnx.ModelProto) -> onnx.ValueInfoProto:
    ends: list[onnx.ValueInfoProto] = [*model.graph.input, *model.graph.output]
    return rng.choice(ends) if ends else model.graph.input.add(name="added")


def tensor(rng: random.Random, model: onnx.ModelProto) -> onnx.TensorProto:
    tensors: Sequence[onnx.TensorProto] = model.graph.initializer
    return rng.choice(tensors) if tensors else model.graph.initializer.add(name="added")


def shape(rng: random.Random, *shapes: Sequence[str | int | None] | None) -> Sequence[str | int | None] | None:
    """What an input or output declares; None for nothing."""
    return rng.choice(shapes)


def some(rng: random.Random, items: list[str], most: int = 4) -> list[str]:
    return [rng.choice(items) for _ in range(rng.randint(0, most))]


def array(rng: random.Random) -> npt.NDArray[np.generic]:
    sizes: tuple[int, ...] = rng.choice(((), (0,), (1,), (2,), (1, 1), (2, 1), (1, 2), (2, 2), (0, 3), (1, 3, 1), (1, 1, 1, 1), (1,) * 17))
    kind = rng.choice(("float32", "float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool"))
    numbers = [rng.choice(FLOATS) if "float" in kind else float(rng.choice((0, 1, -1, 2, 100, 2**62))) for _ in range(int(np.prod(sizes)))]
    with np.errstate(all="ignore"):
        return np.asarray(numbers, np.float64).astype(kind).reshape(sizes)


# ---------------------------------------------------------------------------------------------- attributes
def attribute(rng: random.Random, name: str, kind: int) -> onnx.AttributeProto:
    """Of a type, with any value; or with the value of another type, of none, or a reference to a function's attribute."""
    made = AttributeProto(name=name, type=kind)  # type: ignore[arg-type]
    if rng.random() < 0.05:
        made.ref_attr_name = text(rng)[:50]
    if rng.random() < 0.05:
        kind = rng.randrange(15)
    integers = [rng.choice((0, 1, -1, 2, integer(rng))) for _ in range(rng.randint(0, 4))]
    if kind == AttributeProto.FLOAT:
        made.f = rng.choice(FLOATS)
    elif kind == AttributeProto.INT:
        made.i = rng.choice((0, 1, -1, 2, integer(rng)))
    elif kind == AttributeProto.STRING:
        made.s = rng.choice((text(rng)[:200].encode(), b"NOTSET", b"constant", b"linear", b"ij,jk->ik", b"...,...->...", b"\xff"))
    elif kind == AttributeProto.TENSOR:
        made.t.CopyFrom(numpy_helper.from_array(array(rng)))
    elif kind == AttributeProto.GRAPH:
        made.g.CopyFrom(subgraph(rng, rng.choice((1, 2, 9))))
    elif kind == AttributeProto.FLOATS:
        made.floats.extend(rng.choice(FLOATS) for _ in integers)
    elif kind == AttributeProto.INTS:
        made.ints.extend(integers)
    elif kind == AttributeProto.STRINGS:
        made.strings.extend(text(rng)[:200].encode() for _ in integers)
    elif kind == AttributeProto.SPARSE_TENSOR:
        made.sparse_tensor.CopyFrom(sparse(rng))
    elif kind == AttributeProto.TENSORS:
        made.tensors.extend(numpy_helper.from_array(array(rng)) for _ in integers)
    return made


def subgraph(rng: random.Random, depth: int) -> onnx.GraphProto:
    """Ifs within Ifs."""
    inner = helper.make_graph([], "deep", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    for _ in range(depth):
        branch = helper.make_node("If", [text(rng)[:20]], ["y"], then_branch=inner, else_branch=onnx.GraphProto(name="else"))
        inner = helper.make_graph([branch], "deep", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return inner


def sparse(rng: random.Random) -> onnx.SparseTensorProto:
    made = onnx.SparseTensorProto(dims=[abs(integer(rng)) % 2**62 for _ in range(rng.randint(0, 3))])
    made.values.CopyFrom(numpy_helper.from_array(array(rng), text(rng)[:20]))
    made.indices.CopyFrom(numpy_helper.from_array(array(rng), ""))
    return made


def schema_attributes(op: str) -> list[tuple[str, int]]:
    if not onnx.defs.has(op):
        return []
    return sorted((name, int(cast(Any, a.type).value)) for name, a in onnx.defs.get_schema(op).attributes.items())


# ---------------------------------------------------------------------------------------------- bends
def another_operator(rng: random.Random, model: onnx.ModelProto) -> None:
    node(rng, model).op_type = rng.choice((*OPERATORS, text(rng)[:100], "", NOT_TEXT)) if rng.random() < 0.3 else rng.choice(OPERATORS)


def another_operand(rng: random.Random, model: onnx.ModelProto) -> None:
    target = node(rng, model)
    if target.input:
        target.input[rng.randrange(len(target.input))] = rng.choice(values(model))


def other_operands(rng: random.Random, model: onnx.ModelProto) -> None:
    del (target := node(rng, model)).input[:]
    target.input.extend(some(rng, values(model), 6))


def an_operand_more_or_less(rng: random.Random, model: onnx.ModelProto) -> None:
    target = node(rng, model)
    if rng.random() < 0.5:
        target.input.append(rng.choice(values(model)))
    elif target.input:
        del target.input[rng.randrange(len(target.input))]


def another_output(rng: random.Random, model: onnx.ModelProto) -> None:
    target = node(rng, model)
    kind = rng.randrange(3)
    if kind == 0 and target.output:
        target.output[0] = rng.choice((*values(model), text(rng)))
    elif kind == 1:
        target.output.append(rng.choice((*values(model), text(rng))))
    else:
        del target.output[:]


def an_attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    """Of the operator's, most often of its type."""
    target = node(rng, model)
    known = schema_attributes(target.op_type)
    name, kind = rng.choice(known) if known and rng.random() < 0.85 else (text(rng)[:100], rng.randrange(15))
    kept = [a for a in target.attribute if a.name != name or rng.random() < 0.05]
    del target.attribute[:]
    target.attribute.extend([*kept, attribute(rng, name, kind if rng.random() < 0.9 else rng.randrange(15))])


def no_attributes(rng: random.Random, model: onnx.ModelProto) -> None:
    del node(rng, model).attribute[:]


def a_constant(rng: random.Random, model: onnx.ModelProto) -> None:
    target = tensor(rng, model)
    target.CopyFrom(numpy_helper.from_array(array(rng), target.name))


def numbers_of_a_constant(rng: random.Random, model: onnx.ModelProto) -> None:
    target = tensor(rng, model)
    if target.raw_data and target.data_type == TensorProto.FLOAT:
        given = np.frombuffer(target.raw_data, np.float32).copy()
        if len(given):
            given[:: rng.choice((1, 2, 7))] = np.float32(rng.choice(FLOATS))
        target.raw_data = given.tobytes()


def a_constant_that_lies(rng: random.Random, model: onnx.ModelProto) -> None:
    target = tensor(rng, model)
    kind = rng.randrange(6)
    if kind == 0:
        target.dims.append(integer(rng))
    elif kind == 1 and target.dims:
        target.dims[rng.randrange(len(target.dims))] = integer(rng)
    elif kind == 2:
        target.data_type = rng.randrange(30)
    elif kind == 3:
        target.raw_data = target.raw_data[: rng.randrange(len(target.raw_data) + 1)]
    elif kind == 4:
        target.ClearField("raw_data")
        target.float_data.extend([1.0] * rng.randrange(10))
        target.string_data.extend([b"\xff"] * rng.randrange(3))
    else:
        target.segment.begin, target.segment.end = rng.randrange(9), integer(rng)


def a_constant_twice(rng: random.Random, model: onnx.ModelProto) -> None:
    model.graph.initializer.add().CopyFrom(tensor(rng, model))


def constants_that_are_inputs(rng: random.Random, model: onnx.ModelProto) -> None:
    for target in rng.sample(list(model.graph.initializer), min(len(model.graph.initializer), rng.randint(1, 3))):
        model.graph.input.append(helper.make_tensor_value_info(target.name, target.data_type, list(target.dims)))


def external_data(rng: random.Random, model: onnx.ModelProto) -> None:
    target = tensor(rng, model)
    target.ClearField("raw_data")
    target.data_location = TensorProto.EXTERNAL
    places = ("/etc/passwd", "../Given.onnx", "Given.onnx", ".", "", "/dev/zero", "/proc/self/mem", "a/../../x", "~", "fifo", "C:\\x")
    pairs = {"location": rng.choice((*places, text(rng)[:300])), "offset": str(integer(rng)), "length": str(integer(rng))}
    pairs |= {rng.choice((*pairs, "checksum", text(rng)[:20])): rng.choice(("0", "16", text(rng)[:100]))}
    for key, value in pairs.items():
        if rng.random() < 0.8:
            target.external_data.add(key=key, value=value)


def sparse_tensors(rng: random.Random, model: onnx.ModelProto) -> None:
    if rng.random() < 0.5:
        model.graph.sparse_initializer.append(sparse(rng))
    else:
        added = helper.make_node("Constant", [], [text(rng)[:20]])
        added.attribute.append(attribute(rng, "sparse_value", AttributeProto.SPARSE_TENSOR))
        model.graph.node.append(added)


def a_size(rng: random.Random, model: onnx.ModelProto) -> None:
    dims = end(rng, model).type.tensor_type.shape.dim
    kind = rng.randrange(5)
    if kind == 0:
        dims.add(dim_value=integer(rng))
    elif kind == 1 and dims:
        dims[rng.randrange(len(dims))].dim_value = integer(rng)
    elif kind == 2 and dims:
        dims[rng.randrange(len(dims))].dim_param = rng.choice((text(rng), "batch", NOT_TEXT))
    elif kind == 3:
        del dims[rng.randrange(len(dims) + 1) :]
    else:
        dims.add(dim_value=rng.choice((0, 1, 2, 3)))


def a_type(rng: random.Random, model: onnx.ModelProto) -> None:
    value = end(rng, model)
    kind = rng.randrange(4)
    if kind < 2:
        value.type.tensor_type.elem_type = rng.randrange(30) if rng.random() < 0.8 else integer(rng) % 2**31
    elif kind == 2:
        value.ClearField("type")
    else:
        inner = value.type
        for _ in range(rng.choice((1, 3, 50))):
            inner = rng.choice((inner.sequence_type.elem_type, inner.optional_type.elem_type, inner.map_type.value_type))


def another_version(rng: random.Random, model: onnx.ModelProto) -> None:
    kind = rng.randrange(4)
    if kind == 0:
        (model.opset_import[0] if model.opset_import else model.opset_import.add()).version = rng.choice((*range(24), integer(rng)))
    elif kind == 1:
        model.ir_version = rng.choice((*range(14), integer(rng)))
    elif kind == 2:
        model.opset_import.add(
            domain=rng.choice(("", "ai.onnx", "com.microsoft", text(rng)[:50])), version=rng.choice((9, 13, integer(rng)))
        )
    else:
        del model.opset_import[:]


def another_domain(rng: random.Random, model: onnx.ModelProto) -> None:
    node(rng, model).domain = rng.choice(("", "ai.onnx", "ai.onnx.ml", "com.microsoft", text(rng)[:100], NOT_TEXT))


def a_copy(rng: random.Random, model: onnx.ModelProto) -> None:
    twin = model.graph.node.add()
    twin.CopyFrom(node(rng, model))
    twin.output[:] = [f"{o}/copy" if rng.random() < 0.9 else o for o in twin.output]
    if rng.random() < 0.5 and twin.output:
        model.graph.output.append(helper.make_tensor_value_info(twin.output[0], TensorProto.FLOAT, shape(rng, None, ["batch", 1])))


def nodes_taken_out(rng: random.Random, model: onnx.ModelProto) -> None:
    for _ in range(min(rng.choice((1, 1, 5)), len(model.graph.node))):
        del model.graph.node[rng.randrange(len(model.graph.node))]


def nodes_in_another_order(rng: random.Random, model: onnx.ModelProto) -> None:
    kept = list(model.graph.node)
    rng.shuffle(kept)
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in kept]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def a_cycle(rng: random.Random, model: onnx.ModelProto) -> None:
    first, second = node(rng, model), node(rng, model)
    if first.input and second.output:
        first.input[rng.randrange(len(first.input))] = second.output[0]


def ends(rng: random.Random, model: onnx.ModelProto) -> None:
    """Inputs and outputs missing, twice, of inner values, or called otherwise."""
    kind, sides = rng.randrange(7), rng.choice((model.graph.input, model.graph.output))
    if kind == 0 and sides:
        del sides[rng.randrange(len(sides))]
    elif kind == 1:
        sides.add().CopyFrom(end(rng, model))
    elif kind == 2:
        sides.append(helper.make_tensor_value_info(rng.choice(values(model)), TensorProto.FLOAT, shape(rng, None, ["batch", 1], [1])))
    elif kind == 3:
        del sides[:]
    elif kind == 4:
        end(rng, model).name = rng.choice((text(rng), NOT_TEXT))
    elif kind == 5:
        sides.extend(helper.make_tensor_value_info(f"more_{i}", TensorProto.FLOAT, ["batch", 1]) for i in range(rng.choice((3, 1000))))
    else:
        model.graph.value_info.append(
            helper.make_tensor_value_info(rng.choice(values(model)), rng.randrange(17), [abs(integer(rng)) % 2**63])
        )


def a_subgraph(rng: random.Random, model: onnx.ModelProto) -> None:
    made = AttributeProto(name=rng.choice(("then_branch", "body", text(rng)[:20])), type=AttributeProto.GRAPH)
    made.g.CopyFrom(subgraph(rng, rng.choice((1, 5, 12))))
    node(rng, model).attribute.append(made)


def functions(rng: random.Random, model: onnx.ModelProto) -> None:
    """Of standard operators' names, that call themselves or each other, twice or with too much, or that nodes call."""
    domain = rng.choice(("", "ai.onnx", "own", "own", text(rng)[:30]))
    names = [rng.choice((*OPERATORS[:20], "Own", f"Own{i}", text(rng)[:30])) for i in range(rng.choice((1, 1, 2, 5, 30)))]
    for i, name in enumerate(names):
        called = rng.choice((name, names[(i + 1) % len(names)], names[-1]))
        body = [helper.make_node(called, ["x"] * rng.choice((1, 1, 1, 2)), ["y"], domain=rng.choice((domain, domain, "")))]
        body += [helper.make_node(called, ["y"], ["z"], domain=domain) for _ in range(rng.choice((0, 1, 2)))]
        body.append(helper.make_node(rng.choice(OPERATORS[:20]), ["x"], ["w"]))
        if rng.random() < 0.3:
            body[-1].attribute.add(name=rng.choice(("alpha", "axis", text(rng)[:9])), ref_attr_name="a", type=rng.randrange(12))
        if i == len(names) - 1 and rng.random() < 0.7:
            body = body[-1:]
            body[0].output[0] = "y"
        opsets = [helper.make_opsetid("", rng.choice((1, 13, 15, 99))), helper.make_opsetid(domain or "own", 1)]
        attributes = rng.choice(([], ["a"], ["a", "a"]))
        model.functions.append(helper.make_function(domain, name, rng.choice((["x"], ["x", "q"], [])), ["y"], body, opsets, attributes))
    if rng.random() < 0.7:
        target = node(rng, model)
        target.op_type, target.domain = names[0], domain
    if rng.random() < 0.5:
        model.opset_import.append(helper.make_opsetid(domain or "own", 1))


def a_hub(rng: random.Random, model: onnx.ModelProto) -> None:
    """One value that many nodes read, or a node that reads many times."""
    source, count = rng.choice(values(model)[1:]), rng.choice((20, 300, 1500))
    if rng.random() < 0.5:
        op = rng.choice(("Concat", "Sum", "Max"))
        added = helper.make_node(op, [source] * count, ["hub"])
        if op == "Concat":
            added.attribute.append(helper.make_attribute("axis", rng.choice((0, 1, -1, 7))))
        model.graph.node.append(added)
    else:
        op = rng.choice(("Relu", "Sigmoid", "Neg", "Mul", "Identity", "Clip"))
        operands = [source] * (2 if op == "Mul" else 1)
        model.graph.node.extend(helper.make_node(op, operands, [f"spoke_{i}"]) for i in range(count))
        if rng.random() < 0.5:
            model.graph.node.append(helper.make_node("Sum", [f"spoke_{i}" for i in range(count)], ["hub"]))
    if rng.random() < 0.7:
        model.graph.output.append(helper.make_tensor_value_info("hub", TensorProto.FLOAT, None))


def a_chain(rng: random.Random, model: onnx.ModelProto) -> None:
    """Many nodes in a row; with both operands the same, two to the power of their number ways lead through it."""
    op, count = rng.choice(("Identity", "Relu", "Add", "Mul", "Concat", "Sigmoid", "Reshape", "Neg")), rng.choice((10, 60, 800, 4000))
    if count > 1000 and rng.random() < 0.7:
        count = 200
    last = rng.choice(values(model)[1:])
    for i in range(count):
        operands = [last, last] if op in ("Add", "Mul", "Concat", "Reshape") else [last]
        last = f"chain_{i}"
        model.graph.node.append(helper.make_node(op, operands, [last], **({"axis": 1} if op == "Concat" else {})))  # type: ignore[arg-type]
    model.graph.output.append(helper.make_tensor_value_info(last, TensorProto.FLOAT, None))


def a_node(rng: random.Random, model: onnx.ModelProto) -> None:
    """Of any operator, with operands of the graph's."""
    op = rng.choice(OPERATORS)
    added = helper.make_node(op, some(rng, values(model)), [f"added_{len(model.graph.node)}"])
    for name, kind in schema_attributes(op):
        if rng.random() < 0.4:
            added.attribute.append(attribute(rng, name, kind))
    model.graph.node.insert(rng.randrange(len(model.graph.node) + 1), added)
    if rng.random() < 0.6:
        model.graph.output.append(helper.make_tensor_value_info(added.output[0], rng.choice((1, 1, 7, 9)), None))


def a_constant_node(rng: random.Random, model: onnx.ModelProto) -> None:
    name, kind = rng.choice(schema_attributes("Constant"))
    added = helper.make_node("Constant", [], [f"constant_{len(model.graph.node)}"])
    added.attribute.append(attribute(rng, name, kind))
    model.graph.node.insert(0, added)
    target = node(rng, model)
    if target.input:
        target.input[rng.randrange(len(target.input))] = added.output[0]


def a_name(rng: random.Random, model: onnx.ModelProto) -> None:
    """Of a value, everywhere; of a node, or of what tells where the model is from."""
    new = rng.choice((text(rng), NOT_TEXT))
    old = rng.choice(values(model))
    kind = rng.randrange(4)
    if kind < 2:
        for each in model.graph.node:
            for names in (each.input, each.output):
                names[:] = [new if v == old else v for v in names]
        for value in (*model.graph.initializer, *model.graph.input, *model.graph.output):
            value.name = new if value.name == old else value.name
    elif kind == 2:
        node(rng, model).name = new
    else:
        rng.choice((model, model.graph, node(rng, model))).doc_string = new
        model.producer_name, model.graph.name = new, new
        model.metadata_props.add(key=new, value=new)


def odds_and_ends(rng: random.Random, model: onnx.ModelProto) -> None:
    kind = rng.randrange(4)
    if kind == 0:
        model.training_info.add().initialization.CopyFrom(model.graph)
    elif kind == 1:
        model.graph.quantization_annotation.add(tensor_name=text(rng)[:50])
    elif kind == 2:
        del model.graph.initializer[rng.randrange(len(model.graph.initializer) + 1) :]
    else:
        tensor(rng, model).name = rng.choice((*values(model), text(rng)))


BENDS: tuple[Bend, ...] = (
    *(another_operator, another_operand, other_operands, an_operand_more_or_less, another_output, an_attribute, an_attribute),
    *(no_attributes, a_constant, numbers_of_a_constant, a_constant_that_lies, a_constant_twice, constants_that_are_inputs, external_data),
    *(sparse_tensors, a_size, a_type, another_version, another_domain, a_copy, nodes_taken_out, nodes_in_another_order, a_cycle, ends),
    *(a_subgraph, functions, a_hub, a_chain, a_node, a_node, a_constant_node, a_name, odds_and_ends),
)
MILD: tuple[Bend, ...] = (
    *(another_operator, another_operand, an_operand_more_or_less, an_attribute, a_constant, numbers_of_a_constant, a_size, a_copy),
    *(constants_that_are_inputs, nodes_in_another_order, a_node, a_constant_node, a_name, ends, a_type, another_version, no_attributes),
)


# ---------------------------------------------------------------------------------------------- nearly the same
def swapped_operands(rng: random.Random, model: onnx.ModelProto) -> None:
    target = node(rng, model)
    if len(target.input) > 1:
        first, *rest = target.input
        target.input[:] = [rest[0], first, *rest[1:]]


def a_detour(rng: random.Random, model: onnx.ModelProto) -> None:
    """An operator in an operand's way that may or may not do nothing."""
    target = node(rng, model)
    if not target.input:
        return
    place, number = rng.randrange(len(target.input)), len(model.graph.node)
    source, name = target.input[place], f"detour_{number}"
    opset = max((o.version for o in model.opset_import), default=9)
    kind = rng.randrange(8)
    constant = f"detour_constant_{number}"
    scalar = rng.choice((0.0, -0.0, 1.0, 2.0))
    if kind == 0:
        added = helper.make_node("Identity", [source], [name])
    elif kind == 1:
        added = helper.make_node("Concat", [source], [name], axis=rng.choice((0, 1, -1)))
    elif kind == 2:
        added = helper.make_node("Cast", [source], [name], to=rng.choice((1, 1, 1, 11, 7)))
    elif kind == 3:
        added = helper.make_node("Transpose", [source], [name], perm=rng.choice(([0, 1], [1, 0])))
    elif kind == 4:
        added = helper.make_node(rng.choice(("Add", "Mul", "Sub", "Div", "Max", "Min", "Pow")), [source, constant], [name])
        model.graph.initializer.append(numpy_helper.from_array(np.float32(scalar), constant))
    elif kind == 5 and opset >= 10:
        bounds = [np.asarray([b]) for b in (rng.choice((0, 1)), rng.choice((1, 2, 2**31 - 1, 2**63 - 1, -1)), rng.choice((0, 1, -1)))]
        names = [f"{constant}_{i}" for i in range(3)]
        model.graph.initializer.extend(numpy_helper.from_array(b, n) for b, n in zip(bounds, names, strict=True))
        added = helper.make_node("Slice", [source, *names], [name])
    elif kind == 6:
        added = helper.make_node("Dropout", [source], [name])
    else:
        shape_of = np.asarray(rng.choice(([0, -1], [-1, 1], [0, 0], [-1], [0, 2])))
        model.graph.initializer.append(numpy_helper.from_array(shape_of, constant))
        added = helper.make_node("Reshape", [source, constant], [name])
    model.graph.node.insert(next(i for i, n in enumerate(model.graph.node) if n is target or n == target), added)
    target.input[place] = name


def a_number_beside(rng: random.Random, model: onnx.ModelProto) -> None:
    """A constant with the sign of its zero, a NaN's payload or its last bit changed."""
    target = tensor(rng, model)
    if target.data_type != TensorProto.FLOAT or not target.raw_data:
        return
    words = np.frombuffer(target.raw_data, np.uint32).copy()
    if len(words):
        place = rng.randrange(len(words))
        words[place] = rng.choice((0, 0x80000000, 0x7FC00000, 0xFFC00001, words[place] ^ 1, words[place] ^ 0x80000000))
    target.raw_data = words.tobytes()


def a_default_written_out(rng: random.Random, model: onnx.ModelProto) -> None:
    """An attribute with the operator's default, or beside it."""
    target = node(rng, model)
    known = onnx.defs.get_schema(target.op_type).attributes if onnx.defs.has(target.op_type) else {}
    given = {a.name for a in target.attribute}
    open_ = [a for name, a in known.items() if name not in given and a.default_value.type]
    if open_:
        made = AttributeProto()
        made.CopyFrom(rng.choice(open_).default_value)
        if rng.random() < 0.4:
            made.i, made.f = made.i + rng.choice((0, 1, -1)), made.f + rng.choice((0.0, 1e-7, 1.0))
        target.attribute.append(made)


def a_twin_for_some(rng: random.Random, model: onnx.ModelProto) -> None:
    """A node computed twice, and some of its readers read the second."""
    source = node(rng, model)
    if not source.output:
        return
    twin = onnx.NodeProto.FromString(source.SerializeToString())
    twin.output[:] = [f"{o}/twin" for o in twin.output]
    twin.name += "/twin"
    for reader in model.graph.node:
        for i, v in enumerate(reader.input):
            if v in source.output and rng.random() < 0.5:
                reader.input[i] = f"{v}/twin"
    model.graph.node.insert(next(i for i, n in enumerate(model.graph.node) if n == source), twin)


def a_constant_moved(rng: random.Random, model: onnx.ModelProto) -> None:
    """From an initializer to a Constant, behind an Identity, or to a copy of its own."""
    target = tensor(rng, model)
    kind, new = rng.randrange(3), f"{target.name}/moved"
    if kind == 0:
        value = TensorProto.FromString(target.SerializeToString())
        value.ClearField("name")
        model.graph.node.insert(0, helper.make_node("Constant", [], [new], value=value))
    elif kind == 1:
        model.graph.node.insert(0, helper.make_node("Identity", [target.name], [new]))
    else:
        copy = model.graph.initializer.add()
        copy.CopyFrom(target)
        copy.name = new
    for reader in model.graph.node:
        if reader.output[0] != new:
            reader.input[:] = [new if v == target.name and rng.random() < 0.8 else v for v in reader.input]


LOOKALIKES: tuple[Bend, ...] = (
    *(swapped_operands, a_detour, a_detour, a_number_beside, a_default_written_out, a_twin_for_some, a_constant_moved),
    *(nodes_in_another_order, a_name, constants_that_are_inputs, another_version),
)


# ---------------------------------------------------------------------------------------------- from nothing
UNARY = ("Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Neg", "Abs", "Identity", "Erf", "Softplus", "Reciprocal", "Floor", "Sign", "Not")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "MatMul", "Gemm", "Equal", "Less", "Where", "PRelu", "Mod")
DRAWS = ("RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")
SHAPED = (
    *("Concat", "Reshape", "Transpose", "Slice", "Squeeze", "Unsqueeze", "Flatten", "Gather", "Expand", "Shape", "Cast", "Softmax", "Clip"),
    *("ReduceMean", "ReduceSum", "ArgMax", "TopK", "Split", "Pad", "Tile", "LSTM", "Conv", "BatchNormalization", "LayerNormalization"),
)


def made(rng: random.Random) -> onnx.ModelProto:
    """A graph of up to thirty operators over one to three inputs; every operand exists, hardly any attribute makes sense."""
    width = rng.choice((1, 2, 3))
    given = [helper.make_tensor_value_info(f"obs_{i}", TensorProto.FLOAT, ["batch", width]) for i in range(rng.randint(1, 3))]
    known, nodes = [v.name for v in given], list[onnx.NodeProto]()
    constants = [numpy_helper.from_array(array(rng), f"c{i}") for i in range(rng.randint(0, 4))]
    constants += [numpy_helper.from_array(np.ones((width, width), np.float32), "w"), numpy_helper.from_array(np.float32(0.5), "half")]
    for i in range(rng.randint(1, rng.choice((3, 8, 30)))):
        kind = rng.random()
        op = rng.choice(UNARY if kind < 0.35 else BINARY if kind < 0.65 else DRAWS if kind < 0.7 else SHAPED if kind < 0.95 else OPERATORS)
        count = 1 if op in (*UNARY, *DRAWS) else 2 if op in BINARY else rng.randint(1, 4)
        operands = [rng.choice(known if rng.random() < 0.7 else [t.name for t in constants]) for _ in range(count)]
        added = helper.make_node(op, operands, [f"v{i}"], f"n{i}")
        for name, type_ in schema_attributes(op):
            required = onnx.defs.get_schema(op).attributes[name].required
            if required or rng.random() < 0.2:
                sane = AttributeProto(name=name, type=type_)  # type: ignore[arg-type]
                sane.i, sane.f = rng.choice((1, 0, -1, 1)), rng.choice((1.0, 0.5))
                added.attribute.append(sane if rng.random() < 0.8 else attribute(rng, name, type_))
        nodes.append(added)
        known.append(f"v{i}")
    results = dict.fromkeys([known[-1], *some(rng, known, 3)])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape(rng, None, ["batch", width])) for name in results]
    graph = helper.make_graph(nodes, "made", given, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", rng.choice(OPSETS))], ir_version=8)
