"""The pattern engine. A pattern is an ONNX function; a match is a place in the graph that computes it.

    Normalizer (obs, mean, std, lo, hi) => (y) {
        d = Sub (obs, mean)
        q = Div (d, std)
        y = Clip (q, lo, hi)
    }

The function's inputs are captured, its outputs may be used anywhere, and every other value in it must stay inside
the match, unless the rule shares it: then several matches may hold it. Operands of commutative operators match in any
order; the same name twice means the same tensor; `Constant <value = float {3.0}> ()` matches a constant of that value
wherever the exporter put it; an attribute that the pattern doesn't name must have its default, and `axis: int = @axis`
captures one. Larger patterns go first, and each node is claimed once.

A graph can be made on which a search takes for ever. So each place has a few steps of its own, and all of them together a reserve
that grows with the graph; a search that needs more is given up, and the near miss says so. The time is linear in the graph.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import onnx
import onnx.parser

from .errors import Graph2TorchError, RuleError
from .graph import RANDOM, Array, Attribute, Graph, Node, read_attribute
from .order import topological
from .text import one_line, printable, quoted

COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"})
STEPS = 200  # of each search; the longest one in a policy takes a tenth of that
RESERVE = 20  # steps beyond those, for all searches together, by the graph's nodes
_HEADER = '<domain: "graph2torch.rules", opset_import: ["" : 18]>\n'


@dataclass(frozen=True, slots=True)
class PatternNode:
    """One operator of a pattern. `captures`: attribute name → the parameter that captures it."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    captures: Mapping[str, str]


@dataclass(frozen=True)
class Pattern:
    """An ONNX function as a pattern.

    constant_inputs: captured inputs that must be constants (weights)
    variadic:        captured input that stands for all remaining operands of its node, if any
    shared:          inner values that other matches may hold as well (torch exports equal operators once)
    constants:       values inside the pattern that match by value
    steps:           the nodes in the order in which they are searched, each connected to those before
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[PatternNode, ...]
    constants: Mapping[str, Array]
    constant_inputs: frozenset[str] = frozenset()
    variadic: str = ""
    shared: frozenset[str] = frozenset()
    steps: tuple[int, ...] = ()

    @cached_property
    def makers(self) -> Mapping[str, str]:
        """Value → the operator that makes it."""
        return {value: node.op for node in self.nodes for value in node.outputs}

    @cached_property
    def internal(self) -> frozenset[str]:
        return frozenset(o for n in self.nodes for o in n.outputs) - set(self.outputs)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a place that looks like the pattern is not one: the reason, and the node that decides it."""

    reason: str
    node: Node | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", one_line(self.reason))  # attributes of a model are part of it

    def __str__(self) -> str:
        return f"{self.node}: {self.reason}" if self.node else self.reason


@dataclass(frozen=True)
class Match:
    """A place in `graph` where `pattern` stands. `nodes` are in the pattern's order; `values` maps its names to values."""

    pattern: Pattern
    graph: Graph
    nodes: tuple[Node, ...]
    values: Mapping[str, str]
    rest: tuple[str, ...] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    @property
    def makes(self) -> frozenset[str]:
        """Every value that its operators make, inner ones included."""
        return frozenset(v for node in self.nodes for v in node.outputs)

    @property
    def reads(self) -> frozenset[str]:
        """Every value that its operators read and don't make."""
        return frozenset(v for node in self.nodes for v in node.inputs) - self.makes

    def constant(self, name: str) -> Array:
        """The value of the captured constant `name`."""
        return self.graph.constants[self.values[name]]

    def is_constant(self, name: str) -> bool:
        return self.values.get(name, "") in self.graph.constants

    def operands(self, name: str) -> tuple[str, ...]:
        """The values captured by `name`: several for the variadic one, none for an operand that is left out."""
        if name == self.pattern.variadic:
            return self.rest
        return (self.values[name],) if self.values.get(name) else ()


@dataclass(frozen=True, slots=True)
class NearMiss:
    """The furthest that a rule got at a place: how many of its nodes stood there, and what stopped it."""

    rule: str
    matched: int
    size: int
    refusal: Refusal


class Matchable:
    """What the engine needs of a rule: a name, patterns, and a check of each place found."""

    name: str
    patterns: tuple[Pattern, ...]

    def check(self, match: Match) -> Refusal | None:
        raise NotImplementedError


@dataclass(frozen=True)
class Claim:
    """A rule and the place it matched."""

    rule: str
    match: Match


# ---------------------------------------------------------------------------------------------- patterns
def parse_pattern(text: str, where: str, constant_inputs: Iterable[str] = (), variadic: str = "", shared: Iterable[str] = ()) -> Pattern:
    """Reads a pattern from ONNX's textual syntax. Raises RuleError, naming `where`, for what isn't a usable pattern."""
    try:
        function = onnx.parser.parse_function(_HEADER + text.strip())
    except Exception as error:  # ParseError, and what its C++ raises for numbers out of range and for what is no text
        raise RuleError(f"{where}: the pattern is not a valid ONNX function ({one_line(str(error), 200)}).") from None
    constants: dict[str, Array] = {}
    nodes: list[PatternNode] = []
    parameters = set(function.attribute)
    for proto in function.node:
        attributes: dict[str, Attribute] = {}
        captures: dict[str, str] = {}
        for attribute in proto.attribute:
            name, reference = printable(attribute.name), printable(attribute.ref_attr_name)
            if reference:
                if attribute.type == onnx.AttributeProto.UNDEFINED:
                    raise RuleError(f"{where}: `{name} = @{reference}` needs a type, as in `{name}: float = @{reference}`.")
                if attribute.ref_attr_name not in parameters:
                    raise RuleError(f"{where}: `@{reference}` is not declared; write `{printable(function.name)} <{reference}> (…)`.")
                captures[attribute.name] = attribute.ref_attr_name
            else:
                attributes[attribute.name] = _read(attribute, f"{where}, attribute `{name}`")
        if proto.op_type == "Constant":
            value = attributes.get("value")
            if not isinstance(value, np.ndarray) or len(proto.output) != 1:
                raise RuleError(
                    f"{where}: a Constant of the pattern needs a value and one name, as in `k = Constant <value = float {{3.0}}> ()`."
                )
            constants[proto.output[0]] = value
        elif not proto.output:
            raise RuleError(f"{where}: a {printable(proto.op_type, 40)} of the pattern produces nothing.")
        else:
            nodes.append(PatternNode(proto.op_type, tuple(proto.input), tuple(proto.output), attributes, captures))
    pattern = Pattern(
        name=function.name,
        inputs=tuple(function.input),
        outputs=tuple(function.output),
        nodes=tuple(nodes),
        constants=constants,
        constant_inputs=frozenset(constant_inputs),
        variadic=variadic,
        shared=frozenset(shared) & {o for n in nodes if n.op not in RANDOM for o in n.outputs} - set(function.output),
    )
    _check_pattern(pattern, where)
    return replace(pattern, steps=_search_order(pattern, where))


def _read(attribute: onnx.AttributeProto, where: str) -> Attribute:
    try:
        return read_attribute(attribute, where)
    except Graph2TorchError as error:  # a graph's faults, which in a pattern are the rule's
        raise RuleError(str(error)) from None


def _check_pattern(pattern: Pattern, where: str) -> None:
    produced = {o for n in pattern.nodes for o in n.outputs}
    read = {v for n in pattern.nodes for v in n.inputs if v}
    known = produced | set(pattern.inputs) | set(pattern.constants)
    faults = [f"`{printable(v)}` is read, but nothing produces it" for v in sorted(read - known)]
    faults += [f"the input `{printable(v)}` is not used" for v in pattern.inputs if v not in read]
    faults += [f"the output `{printable(v)}` is not produced" for v in pattern.outputs if v not in produced]
    faults += [f"`{printable(v)}` is declared constant, but is no input" for v in sorted(pattern.constant_inputs - set(pattern.inputs))]
    if pattern.variadic and pattern.variadic not in pattern.inputs:
        faults.append(f"`{printable(pattern.variadic)}` is declared variadic, but is no input")
    if not pattern.nodes:
        faults.append("it has no operators")
    if faults:
        more = f"; and {len(faults) - 8} more" if len(faults) > 8 else ""
        raise RuleError(f"{where}: the pattern {printable(pattern.name)} can't be used: {'; '.join(faults[:8])}{more}.")


def _search_order(pattern: Pattern, where: str) -> tuple[int, ...]:
    """From the last operator on, each next one is connected to those before it."""
    order = [len(pattern.nodes) - 1]
    while len(order) < len(pattern.nodes):
        seen = {v for i in order for v in (*pattern.nodes[i].inputs, *pattern.nodes[i].outputs)} - {""}
        left = [i for i in range(len(pattern.nodes)) if i not in order]
        connected = [i for i in left if seen & set(pattern.nodes[i].outputs)] or [i for i in left if seen & set(pattern.nodes[i].inputs)]
        if not connected:
            raise RuleError(f"{where}: the pattern {printable(pattern.name)} falls into parts that share no value; make rules of them.")
        order.append(connected[-1])
    return tuple(order)


# ---------------------------------------------------------------------------------------------- matching
def match_rules(graph: Graph, rules: Sequence[Matchable], sharing: bool = True) -> tuple[tuple[Claim, ...], tuple[NearMiss, ...]]:
    """Every place of every rule in the canonical `graph`, larger patterns first, each node claimed once.

    With `sharing`, the nodes of a pattern's shared values may be claimed by several matches, unless something else needs them.
    Returns the claims in the graph's order, and for each unclaimed node the rule that came nearest there.
    """
    engine = Engine(graph, sharing)
    patterns = [(rule, pattern) for rule in rules for pattern in rule.patterns]
    patterns.sort(key=lambda pair: -len(pair[1].nodes))
    claims: list[Claim] = []
    for rule, pattern in patterns:
        for root in engine.roots(pattern):
            if root.index not in engine.claimed and (found := engine.find(rule, pattern, root)) is not None:
                engine.claim(found)
                claims.append(Claim(rule.name, found))
    if sharing and engine.shared and _lacking(claims):
        return match_rules(graph, rules, sharing=False)
    misses = [miss for node in graph.nodes if node.index not in engine.claimed and (miss := engine.nearest.get(node.index)) is not None]
    return tuple(_in_order(graph, claims)), tuple({id(miss): miss for miss in misses}.values())


def _lacking(claims: Sequence[Claim]) -> bool:
    """Whether a claim reads what stands inside another one, and that no claim gives."""
    given = {claim.match.values[name] for claim in claims for name in claim.match.pattern.outputs}
    inner = {value for claim in claims for value in claim.match.makes} - given
    return any(inner & claim.match.reads for claim in claims)


def _in_order(graph: Graph, claims: Sequence[Claim]) -> list[Claim]:
    """Each claim after those that make what it reads, otherwise by the graph's order of their last operators."""
    place = {node.index: i for i, node in enumerate(graph.nodes)}
    maker = {value: i for i, claim in enumerate(claims) for value in claim.match.makes}
    before = [{maker[v] for v in claim.match.reads if v in maker} for claim in claims]
    last = [max(place[n.index] for n in claim.match.nodes) for claim in claims]
    return [claims[i] for i in topological(before, last)]


class Engine:
    """Backtracking search over one graph; keeps which nodes are claimed and how near each rule came."""

    def __init__(self, graph: Graph, sharing: bool = True) -> None:
        self.graph, self.sharing = graph, sharing
        self.shared: set[int] = set()  # those of the claimed nodes that other matches may hold as well
        self.users = graph.users()
        self.producer = {o: n for n in graph.nodes for o in n.outputs if o}
        self.by_op: dict[str, list[Node]] = {}
        for node in graph.nodes:
            self.by_op.setdefault(node.op, []).append(node)
        self.results = set(graph.results)
        self.place = {node.index: i for i, node in enumerate(graph.nodes)}
        self.readers: dict[tuple[str, str], list[Node]] = {}
        for node in graph.nodes:
            for value in dict.fromkeys(node.inputs):
                self.readers.setdefault((value, node.op), []).append(node)
        self.reserve = RESERVE * (len(graph.nodes) + 1000)
        self.claimed: set[int] = set()
        self.nearest: dict[int, NearMiss] = {}

    def roots(self, pattern: Pattern) -> list[Node]:
        return self.by_op.get(pattern.nodes[pattern.steps[0]].op, [])

    def find(self, rule: Matchable, pattern: Pattern, root: Node) -> Match | None:
        """The match of `pattern` whose last operator is `root`, if there is one that `rule` accepts."""
        search = _Search(self, pattern)
        try:
            for match in search.run(root):
                refusal = self.leaks(match, search) or rule.check(match)
                if refusal is None:
                    return match
                search.note(len(pattern.nodes), refusal, [n.index for n in match.nodes])
        except _GivenUpError:
            search.note(search.depth, Refusal(f"the search is given up after {search.taken:,} steps", root), [root.index, *search.reached])
        for index in search.reached:
            best = self.nearest.get(index)
            if search.refusal and (best is None or search.depth / len(pattern.nodes) > best.matched / best.size):
                self.nearest[index] = NearMiss(rule.name, search.depth, len(pattern.nodes), search.refusal)
        return None

    def claim(self, match: Match) -> None:
        """Takes the match's nodes out of the search, except for matches that may share them."""
        for wanted, node in zip(match.pattern.nodes, match.nodes, strict=True):
            if self.may_share(match.pattern, wanted) and node.index not in self.claimed:
                self.shared.add(node.index)
            self.claimed.add(node.index)

    def may_share(self, pattern: Pattern, wanted: PatternNode) -> bool:
        return self.sharing and pattern.shared.issuperset(wanted.outputs)

    def leaks(self, match: Match, search: _Search) -> Refusal | None:
        inside = {n.index for n in match.nodes}
        for name in match.pattern.internal:
            value = match.values.get(name, "")
            users = () if self.sharing and name in match.pattern.shared else self.users.get(value, ())
            outside = next((u for u in users if u.index not in inside), None)
            if outside is not None:
                return Refusal(f"its inner value {quoted(value)} is also used by {outside}", self.producer.get(value))
            if value in self.results:
                return Refusal(f"its inner value {quoted(value)} is an output of the graph", self.producer.get(value))
        return self.returns(match, inside, search) if len(match.pattern.outputs) > 1 else None

    def returns(self, match: Match, inside: set[int], search: _Search) -> Refusal | None:
        """A block is computed at once, so what it reads must not depend on what it makes."""
        first = min(self.place[index] for index in inside)  # nothing before it depends on the block
        todo = [p for n in match.nodes for v in n.inputs if (p := self.producer.get(v)) is not None and p.index not in inside]
        seen: set[int] = set()
        while todo:
            node = todo.pop()
            if node.index in inside:
                return Refusal("what it reads depends on what it makes", node)
            if node.index not in seen and self.place[node.index] > first:
                search.take()
                seen.add(node.index)
                todo += [self.producer[v] for v in node.inputs if v in self.producer]
        return None


class _GivenUpError(Exception):
    """A search took all the steps that it may take."""


Binding = dict[str, str]


class _Search:
    def __init__(self, engine: Engine, pattern: Pattern) -> None:
        self.engine, self.pattern = engine, pattern
        self.depth = self.taken = 0
        self.refusal: Refusal | None = None
        self.reached: list[int] = []

    def take(self) -> None:
        """One step, from the search's own or from the reserve of all."""
        self.taken += 1
        if self.taken > STEPS:
            self.engine.reserve -= 1
            if self.engine.reserve < 0:
                raise _GivenUpError

    def note(self, depth: int, refusal: Refusal, nodes: list[int]) -> None:
        if depth >= self.depth and nodes:
            self.depth, self.refusal, self.reached = depth, refusal, nodes

    def run(self, root: Node) -> Iterator[Match]:
        yield from self.step(0, {}, (), {}, (), [root])

    def step(
        self,
        k: int,
        values: Binding,
        rest: tuple[str, ...],
        attributes: dict[str, Attribute],
        chosen: tuple[Node, ...],
        candidates: Sequence[Node] | None = None,
    ) -> Iterator[Match]:
        if k == len(self.pattern.steps):
            order = {step: chosen[i] for i, step in enumerate(self.pattern.steps)}
            yield Match(self.pattern, self.engine.graph, tuple(order[i] for i in range(len(order))), values, rest, attributes)
            return
        wanted = self.pattern.nodes[self.pattern.steps[k]]
        for node in self.candidates(wanted, values, chosen) if candidates is None else candidates:
            self.take()
            if any(node is other for other in chosen):
                continue
            for bound, more, captured in self.unify(wanted, node, values, rest, attributes, chosen):
                yield from self.step(k + 1, bound, more, captured, (*chosen, node))

    def candidates(self, wanted: PatternNode, values: Binding, chosen: tuple[Node, ...]) -> Sequence[Node]:
        for output in wanted.outputs:
            if output in values:
                producer = self.engine.producer.get(values[output])
                if producer is None:
                    self.fail(
                        chosen,
                        f"{quoted(values[output])} should come from {wanted.op}, but is an input or a constant",
                        chosen[-1] if chosen else None,
                    )
                return [producer] if producer else []
        for value in wanted.inputs:
            if value in values:
                return self.engine.readers.get((values[value], wanted.op), ()) or self.engine.users.get(values[value], [])[-1:]
        return ()

    def fail(self, chosen: tuple[Node, ...], reason: str, node: Node | None) -> None:
        self.note(len(chosen), Refusal(reason, node), [n.index for n in chosen])

    def unify(
        self,
        wanted: PatternNode,
        node: Node,
        values: Binding,
        rest: tuple[str, ...],
        attributes: dict[str, Attribute],
        chosen: tuple[Node, ...],
    ) -> Iterator[tuple[Binding, tuple[str, ...], dict[str, Attribute]]]:
        """Every way in which `node` can be `wanted`, given what is bound already."""
        if node.op != wanted.op:
            return self.fail(chosen, f"{wanted.op} is wanted here", node)
        engine = self.engine
        if node.index in engine.claimed and not (node.index in engine.shared and engine.may_share(self.pattern, wanted)):
            return self.fail(chosen, "it belongs to another block already", node)
        captured = self.unify_attributes(wanted, node, attributes, chosen)
        if captured is None:
            return None
        bound = dict(values)
        for name, value in itertools.zip_longest(wanted.outputs, node.outputs, fillvalue=""):
            if bool(name) != bool(value) and (name or value in self.engine.users or value in self.engine.results):
                return self.fail(chosen, f"the pattern has {len(wanted.outputs)} outputs here", node)
            if name and bound.setdefault(name, value) != value:
                return self.fail(chosen, f"{quoted(bound[name])} is wanted as its output", node)
        for operands, more in self.unify_operands(wanted, node, bound, rest, chosen):
            yield operands, more, captured

    def unify_attributes(
        self, wanted: PatternNode, node: Node, attributes: dict[str, Attribute], chosen: tuple[Node, ...]
    ) -> dict[str, Attribute] | None:
        captured = dict(attributes)
        for name in {*wanted.attributes, *wanted.captures, *node.attributes}:
            given = node.attributes.get(name)
            if name in wanted.captures:
                if given is not None:
                    captured[wanted.captures[name]] = given
            elif name not in wanted.attributes:
                self.fail((*chosen, node), f"its attribute {name} is {given}, not the default", node)
                return None
            elif given is None or not _equal(wanted.attributes[name], given):
                self.fail(
                    (*chosen, node),
                    f"its attribute {name} is {'the default' if given is None else given}, not {wanted.attributes[name]}",
                    node,
                )
                return None
        return captured

    def unify_operands(
        self, wanted: PatternNode, node: Node, values: Binding, rest: tuple[str, ...], chosen: tuple[Node, ...]
    ) -> Iterator[tuple[Binding, tuple[str, ...]]]:
        """Every way in which the node's operands can be the pattern's: in their order, or in any if the operator is commutative."""
        names, operands = wanted.inputs, node.inputs
        variadic = bool(names) and bool(self.pattern.variadic) and names[-1] == self.pattern.variadic
        if variadic:
            names = names[:-1]
        if node.op in COMMUTATIVE and len(operands) == len(wanted.inputs):
            for bound, left in self.in_any_order(names, operands, node, values, chosen):
                yield bound, left if variadic else rest
            return
        if variadic:
            operands, rest = operands[: len(names)], operands[len(names) :]
        bound = values
        for name, value in itertools.zip_longest(names, operands, fillvalue=""):
            if name and value:
                if not self.operand(name, value, node, bound, chosen):
                    return
                bound = {**bound, name: value} if name not in self.pattern.constants else bound
            elif name or value:
                return self.fail((*chosen, node), f"it has {len(operands)} operands where the pattern has {len(names)}", node)
        yield bound, rest

    def in_any_order(
        self, names: tuple[str, ...], operands: tuple[str, ...], node: Node, values: Binding, chosen: tuple[Node, ...]
    ) -> Iterator[tuple[Binding, tuple[str, ...]]]:
        """Every way in which different operands can be `names`, with those that are left."""
        if not names:
            yield values, operands
            return
        for value in dict.fromkeys(operands):
            self.take()
            if len(node.inputs) > 2 and not self.plausible(names[0], value):  # of two, both orders are tried, for the better reason
                continue
            if self.operand(names[0], value, node, values, chosen):
                bound = {**values, names[0]: value} if names[0] not in self.pattern.constants else values
                at = operands.index(value)
                yield from self.in_any_order(names[1:], operands[:at] + operands[at + 1 :], node, bound, chosen)

    def plausible(self, name: str, value: str) -> bool:
        """Whether `value` comes from the operator that the pattern has for `name`, as far as it has one."""
        wanted = self.pattern.makers.get(name)
        producer = self.engine.producer.get(value)
        return wanted is None or (producer is not None and producer.op == wanted)

    def operand(self, name: str, value: str, node: Node, bound: Binding, chosen: tuple[Node, ...]) -> bool:
        """Whether `value` can be the pattern's `name`, given what is bound already."""
        pattern, constants = self.pattern, self.engine.graph.constants
        if name in pattern.constants:
            constant = constants.get(value)
            if constant is None or not _same_value(pattern.constants[name], constant):
                what = "no constant" if constant is None else _shown(constant)
                self.fail((*chosen, node), f"its operand {quoted(value)} is {what}, not {_shown(pattern.constants[name])}", node)
                return False
        elif bound.get(name, value) != value:
            self.fail((*chosen, node), f"its operand is {quoted(value)}, not {quoted(bound[name])} as elsewhere in the pattern", node)
            return False
        elif name in pattern.constant_inputs and value not in constants:
            self.fail((*chosen, node), f"its operand {quoted(value)} ({name}) is not a constant", node)
            return False
        return True


def _equal(a: Attribute, b: Attribute) -> bool:
    return np.array_equal(np.asarray(a), np.asarray(b))


def _same_value(wanted: Array, given: Array) -> bool:
    """Same type and bits; a scalar also stands for a tensor of one element."""
    if wanted.dtype != given.dtype or wanted.size != given.size or (wanted.shape != given.shape and wanted.size != 1):
        return False
    return wanted.reshape(-1).tobytes() == given.reshape(-1).tobytes()


def _shown(value: Array) -> str:
    return str(value.reshape(-1)[0]) if value.size == 1 else f"a tensor of shape {list(value.shape)}"
