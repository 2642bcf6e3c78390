"""The architecture as an ONNX model: each block of the policy is a call of a local function that holds the block's nodes.

A viewer shows `normalizer → linear → silu → … → bounded_action` instead of single operators, onnxruntime runs it, and
`onnx.inliner.inline_local_functions` gives the plain graph back.

    domain      graph2torch.mlagents: the family whose rules explain the blocks
    function    linear: the rule; one for each different body, the second one is linear_2; its doc string is the rule's summary
    call        "body.0: hidden layer 1": where the block stands in the policy, and what it is; values keep the file's names
    operands    what the block reads and its tensors, so that the layers of one kind share a function; numbers that belong to
                the idiom (the ±5 of a normaliser, an axis, a shape) stand in the function

The nodes are the file's own, in the file's opset. As in the canonical form, Identity and the like are looked through, equal
operators are one, and dead nodes are gone. What is rebuilt operator by operator stays an operator.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import onnx
from onnx import helper, numpy_helper

from . import __version__
from .canonical import SMALL, canonicalise
from .errors import UnsupportedGraph
from .graph import Graph, Node, ValueInfo, read_graph
from .judge.isomorphism import align
from .operators import INLINE
from .order import topological
from .rulebook import RuleBook
from .spec import Block, PolicySpec
from .text import one_line, printable, quoted

IR_VERSION = 8  # the first with local functions
DOMAIN = "graph2torch"


def lifted(spec: PolicySpec, original: onnx.ModelProto, book: RuleBook) -> onnx.ModelProto:
    """The policy as a model whose nodes are its blocks, self-contained.

    spec:     what was recognised in `original`
    original: the file's proto, external data embedded
    book:     the rules that recognised it, for the functions' doc strings
    """
    return _Lifter(spec, original, book).run()


def check_lifted(model: onnx.ModelProto, spec: PolicySpec, original: onnx.ModelProto) -> None:
    """Raises UnsupportedGraph unless `model` is valid, as far as `original` is, and inlined the canonical graph that `spec` is of.

    Long constants are compared by name, since `lifted` copies them as they are: so this takes milliseconds.
    """
    from onnx.inliner import inline_local_functions

    light, long = _without_weights(model)
    if (fault := _fault(light)) and not _fault(original):
        raise UnsupportedGraph(f"The graph with functions, lifted.onnx, is not valid ({fault}); please report this model.")
    try:
        inlined = inline_local_functions(light)
        for value in inlined.graph.input:
            if value.name in long:
                value.type.tensor_type.shape.Clear()  # however large, it isn't tried
        graph = read_graph(inlined, "lifted.onnx")
    except Exception as error:  # onnx raises several kinds
        raise UnsupportedGraph(
            f"The graph with functions, lifted.onnx, can't be inlined ({one_line(str(error), 200)}); please report this model."
        ) from None
    graph = replace(
        graph,
        inputs=tuple(i for i in graph.inputs if i.name not in long),
        constants={**graph.constants, **{name: spec.graph.constants[name] for name in long & spec.graph.constants.keys()}},
        overridable=graph.overridable | (long & spec.graph.overridable),
    )
    alignment = align(_by_name(spec.graph, long), _by_name(canonicalise(graph), long))
    if not alignment.isomorphic:
        reason = alignment.refusal or f"the constant {quoted(alignment.differing[0][0])} differs"
        raise UnsupportedGraph(f"The graph with functions, lifted.onnx, is not the original's ({reason}); please report this model.")


def _fault(model: onnx.ModelProto) -> str:
    """What onnx's checker and its strict inference of sizes object to; "" if nothing."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:  # onnx raises several kinds
        return one_line(str(error), 200)
    return ""


def _without_weights(model: onnx.ModelProto) -> tuple[onnx.ModelProto, frozenset[str]]:
    """The model with its long initializers as inputs, and their names."""
    graph = model.graph
    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    light.graph.name = graph.name
    light.graph.node.extend(graph.node)
    light.graph.input.extend(graph.input)
    light.graph.output.extend(graph.output)
    light.graph.value_info.extend(graph.value_info)
    declared, long = {i.name for i in graph.input}, set()
    for tensor in graph.initializer:
        if math.prod(tensor.dims) <= SMALL:
            light.graph.initializer.append(tensor)
            continue
        long.add(tensor.name)
        if tensor.name not in declared:
            light.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return light, frozenset(long)


def _by_name(graph: Graph, long: frozenset[str]) -> Graph:
    """The graph with these constants as inputs, so that they are told apart by name and not by a million numbers."""
    inputs = (ValueInfo(name, graph.constants[name].dtype, graph.constants[name].shape) for name in sorted(long & graph.constants.keys()))
    return replace(graph, inputs=(*graph.inputs, *inputs), constants={k: v for k, v in graph.constants.items() if k not in long})


@dataclass(frozen=True)
class _Call:
    """A block as a call: what it reads and makes, the nodes of its body, and the names of its values there."""

    block: Block | None
    nodes: tuple[Node, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    inside: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)


class _Lifter:
    def __init__(self, spec: PolicySpec, original: onnx.ModelProto, book: RuleBook) -> None:
        self.spec, self.graph, self.original = spec, spec.graph, original
        self.summaries = {(rule.family, rule.name): rule.summary for rule in book.rules}
        self.place = {node.index: i for i, node in enumerate(self.graph.nodes)}
        self.producer = {o: node for node in self.graph.nodes for o in node.outputs if o}
        self.results = dict(zip((o.name for o in self.graph.outputs), self.graph.results, strict=True))
        self.functions: dict[bytes, onnx.FunctionProto] = {}
        self.function_names: dict[str, _Names] = {}

    def run(self) -> onnx.ModelProto:
        file, graph = self.original.graph, self.graph
        nodes = [self.call(c) if c.block else self.node(c.nodes[0]) for c in self.calls()]
        for output, result in self.results.items():
            if output != result:
                nodes.append(helper.make_node("Identity", [result], [output], f"output {printable(output)}"))
        names = _Names(" ")
        for node in nodes:
            if node.name:
                node.name = names.free(node.name)  # onnxruntime wants them all different
        model = onnx.ModelProto(
            ir_version=max(IR_VERSION, self.original.ir_version),
            producer_name="graph2torch",
            producer_version=__version__,
            doc_string=printable(self.spec.title),
            metadata_props=self.original.metadata_props,
            functions=self.functions.values(),
        )
        domains = sorted({function.domain for function in model.functions})
        model.opset_import.extend([helper.make_opsetid("", graph.opset), *(helper.make_opsetid(domain, 1) for domain in domains)])
        model.graph.name = file.name
        model.graph.node.extend(nodes)
        constant = {t.name for t in file.initializer} if self.original.ir_version < 4 else frozenset[str]()
        model.graph.input.extend(i for i in file.input if i.name not in constant)
        model.graph.output.extend(map(self.declared, file.output))
        self.initializers(model.graph)
        model.graph.value_info.extend(self.sizes(model.graph))
        return model

    def sizes(self, graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
        """What goes from node to node, as far as it is known: viewers show it, and don't infer it through functions."""
        declared = {output.name for output in graph.output}
        for value in (v for node in graph.node for v in node.output if v not in declared):
            if known := self.graph.types.get(value):
                yield helper.make_tensor_value_info(value, helper.np_dtype_to_tensor_dtype(known.dtype), known.shape)

    def declared(self, output: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
        """The output as the file declares it; a fixed one as it is, since some exporters declare another number of dimensions."""
        fixed = self.graph.constants.get(self.results[output.name])
        if fixed is None:
            return output
        return helper.make_tensor_value_info(output.name, helper.np_dtype_to_tensor_dtype(fixed.dtype), fixed.shape)

    def initializers(self, graph: onnx.GraphProto) -> None:
        """Those that something reads, and those that a caller may replace; Constant nodes of the file among them."""
        given = {t.name: t for t in self.original.graph.initializer}
        needed = dict.fromkeys(v for node in graph.node for v in node.input if v in self.graph.constants)
        needed |= dict.fromkeys(r for r in self.graph.results if r in self.graph.constants)
        needed |= dict.fromkeys(i.name for i in graph.input if i.name in given)
        for name in needed:
            graph.initializer.append(given[name] if name in given else numpy_helper.from_array(self.graph.constants[name], name))

    # ------------------------------------------------------------------------------------------ which nodes together
    def calls(self) -> tuple[_Call, ...]:
        """Blocks and single nodes in topological order. A block that would need its own result stays single nodes."""
        blocks = [call for block in self.spec.blocks if block.family != "generic" and (call := self.wrap(block)) is not None]
        while True:
            calls = [*blocks, *self.rest(blocks)]
            maker = {value: i for i, call in enumerate(calls) for value in call.makes}
            before = [{maker[v] for v in call.reads if v in maker} for call in calls]
            order = topological(before, [self.place[call.nodes[-1].index] for call in calls])
            twice = [i for i, call in enumerate(blocks) if any(maker[v] != i for v in call.makes)]
            if len(order) == len(calls) and not twice:
                return tuple(calls[i] for i in order)
            del blocks[twice[0] if twice else self.in_cycle(calls, before, set(range(len(calls))) - set(order))]

    def in_cycle(self, calls: Sequence[_Call], before: Sequence[Collection[int]], stuck: Collection[int]) -> int:
        """The block of a cycle among those that are `stuck` that reaches furthest around others; single nodes alone have no cycles."""
        at, way = min(stuck), list[int]()
        while at not in way:
            way.append(at)
            at = next(i for i in before[at] if i in stuck)
        return max(way[way.index(at) :], key=lambda i: self.place[calls[i].nodes[-1].index] - self.place[calls[i].nodes[0].index])

    def wrap(self, block: Block) -> _Call | None:
        """The call that a block becomes; None if its nodes make nothing that it should."""
        nodes = tuple(self.graph.nodes[i] for i in sorted(self.place[i] for i in block.nodes if i in self.place))
        made = {v for node in nodes for v in node.outputs if v}
        makes = tuple(v for v in dict.fromkeys(block.outputs) if v in made)
        if not makes:
            return None
        operands = list(dict.fromkeys(v for node in nodes for v in self.operands(node) if v and v not in made))
        named = {v: name if len(values) == 1 else f"{name}_{i}" for name, values in block.inputs for i, v in enumerate(values)}
        named |= {p.value: p.name for p in block.parameters if p.value not in named}
        named |= {v: name for name, v in asdict(block.statistics).items() if v and v not in named} if block.statistics else {}
        inside = tuple(v for v in operands if v not in named and self.is_short(v))
        wanted = set(operands).difference(inside)
        reads = tuple(v for v in dict.fromkeys((*named, *operands)) if v in wanted)
        free = _Names("_").free
        names = {v: free(_word(named.get(v, "operand"))) for v in reads} | {v: free("constant") for v in inside}
        names |= {v: free("result" if v in makes else _snake(node.op)) for node in nodes for v in node.outputs if v}
        return _Call(block, nodes, reads, makes, inside, names)

    def rest(self, blocks: Sequence[_Call]) -> list[_Call]:
        """The single nodes that make what the blocks don't."""
        given = {v for call in blocks for v in call.makes}
        todo = [*self.graph.results, *(v for call in blocks for v in call.reads)]
        single: dict[int, _Call] = {}
        while todo:
            value = todo.pop()
            node = None if value in given else self.producer.get(value)
            if node is not None and node.index not in single:
                reads = self.operands(node)
                single[node.index] = _Call(None, (node,), reads, tuple(filter(None, node.outputs)))
                todo += reads
        return list(single.values())

    def is_short(self, value: str) -> bool:
        constant = self.graph.constants.get(value)
        return constant is not None and constant.size <= INLINE and value not in self.graph.overridable

    # ------------------------------------------------------------------------------------------ nodes
    def operands(self, node: Node) -> tuple[str, ...]:
        """What the file's node reads, by the canonical graph's names. Attributes that the canonical form made operands of stay out."""
        return tuple(v and self.graph.names_of(v)[-1] for v in self.original.graph.node[node.index].input)

    def node(self, node: Node) -> onnx.NodeProto:
        """The file's node, on the canonical graph's values."""
        proto = onnx.NodeProto()
        proto.CopyFrom(self.original.graph.node[node.index])
        proto.ClearField("domain")  # "ai.onnx" in some files, which is the same
        proto.input[:] = self.operands(node)
        return proto

    def call(self, call: _Call) -> onnx.NodeProto:
        block = call.block
        assert block is not None
        function = self.function(call, block)
        path, role = self.spec.module_path(block), printable(block.role)
        name = ": ".join(filter(None, (path, role)))
        return helper.make_node(function.name, call.reads, call.makes, name, doc_string=role, domain=function.domain)

    def function(self, call: _Call, block: Block) -> onnx.FunctionProto:
        """The function of the call's body; calls with equal bodies share it."""
        body = [
            helper.make_node("Constant", [], [call.names[v]], value=numpy_helper.from_array(self.graph.constants[v])) for v in call.inside
        ]
        for node in call.nodes:
            proto = self.node(node)
            for dropped in ("name", "doc_string", "metadata_props"):  # they differ from layer to layer
                proto.ClearField(dropped)
            proto.input[:] = [v and call.names[v] for v in proto.input]
            proto.output[:] = [v and call.names[v] for v in proto.output]
            body.append(proto)
        function = onnx.FunctionProto(
            domain=f"{DOMAIN}.{_word(block.family)}",
            doc_string=self.summaries.get((block.family, block.rule), ""),
            input=[call.names[v] for v in call.reads],
            output=[call.names[v] for v in call.makes],
            node=body,
            opset_import=[helper.make_opsetid("", self.graph.opset)],
        )
        key = block.rule.encode() + b"\0" + function.SerializeToString(deterministic=True)
        if key not in self.functions:
            function.name = self.function_names.setdefault(function.domain, _Names("_")).free(_word(block.rule))
            self.functions[key] = function
        return self.functions[key]


def _snake(op: str) -> str:
    """`reduce_sum` for ReduceSum."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", op).lower()


class _Names:
    """Names that were given away; a second one of the same name gets a 2 behind it."""

    def __init__(self, between: str) -> None:
        self.between = between
        self.taken: set[str] = set()
        self.count: Counter[str] = Counter()

    def free(self, name: str) -> str:
        unique = name
        while unique in self.taken:
            self.count[name] += 1
            unique = f"{name}{self.between}{self.count[name] + 1}"
        self.taken.add(unique)
        return unique


def _word(name: str) -> str:
    """Letters, digits and underscores, with no digit first."""
    word = re.sub(r"\W+", "_", name, flags=re.ASCII)
    return word if word[:1].isalpha() or word[:1] == "_" else f"_{word}"
