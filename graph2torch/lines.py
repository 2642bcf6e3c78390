"""Which lines of model.py a block of the policy is.

The source is read, not the writer asked: `forward` is followed statement by statement with the graph's values in place of its
variables, and an expression is a block if it is the block's code on the values that the block reads.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .spec import Block, Expression, Module, PolicySpec

Values = tuple[str, ...]
Range = tuple[int, int]  # first and last line, from 1


@dataclass(frozen=True, slots=True)
class Lines:
    """Where a block stands: in `__init__`, in `forward`, and the classes and functions of its layer. Lines count from 1."""

    constructor: tuple[Range, ...] = ()
    forward: tuple[Range, ...] = ()
    definitions: tuple[tuple[str, int, int], ...] = ()


def lines_of(source: str, spec: PolicySpec) -> tuple[Lines, ...]:
    """The lines of each block of `spec`, in its order, in the `source` that `emit` made of it. What isn't found has none."""
    tree = ast.parse(source)
    known = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    policy = known.get("Policy")
    methods = {node.name: node for node in policy.body if isinstance(node, ast.FunctionDef)} if isinstance(policy, ast.ClassDef) else {}
    made = _made(methods["__init__"]) if "__init__" in methods else {}
    forward: Mapping[int, list[Range]] = _Reader(spec).read(methods["forward"]) if "forward" in methods else {}
    found = []
    for i, block in enumerate(spec.blocks):
        names = [block.sequence or block.name] if isinstance(block.code, Module) else []
        names += [spec.parameter_path(block, p) for p in block.parameters if not isinstance(block.code, Module)]
        definitions = tuple((name, *_range(known[name])) for name in sorted(block.globals) if name in known and name != "Policy")
        constructor = tuple(dict.fromkeys(made[name] for name in names if name in made))
        found.append(Lines(constructor, tuple(dict.fromkeys(forward.get(i, ()))), definitions))
    return tuple(found)


def _range(node: ast.stmt | ast.expr) -> Range:
    return node.lineno, node.end_lineno or node.lineno


def _made(constructor: ast.FunctionDef) -> dict[str, Range]:
    """Attribute of the policy → the statement that makes it: `self.NAME = …`, `self.register_buffer("NAME", …)`."""
    found: dict[str, Range] = {}
    for statement in constructor.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute):
            found[statement.targets[0].attr] = _range(statement)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and statement.value.args:
            name = statement.value.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                found[name.value] = _range(statement)
    return found


class _Reader:
    def __init__(self, spec: PolicySpec) -> None:
        self.spec = spec
        self.variables = {i.field: i.name for i in spec.inputs}
        self.places = {(b.sequence or b.name, spec.position(b)): i for i, b in enumerate(spec.blocks) if isinstance(b.code, Module)}
        self.readers: dict[str, list[int]] = {}
        self.sourceless = []  # blocks that read constants alone
        for i, block in enumerate(spec.blocks):
            if isinstance(block.code, Expression):
                for value in dict.fromkeys(block.reads):
                    self.readers.setdefault(value, []).append(i)
                if not block.reads:
                    self.sourceless.append(i)
        self.templates: dict[str, ast.expr] = {}
        self.resolved: dict[int, Values] = {}
        self.drawn: dict[str, Range] = {}
        self.found: dict[int, list[Range]] = {}

    def read(self, forward: ast.FunctionDef) -> Mapping[int, list[Range]]:
        """Block → where its code stands, and where what it draws is drawn."""
        for statement in forward.body:
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self.visit(statement.value)
                values, target = self.resolved.get(id(statement.value), ()), statement.targets[0]
                targets = target.elts if isinstance(target, ast.Tuple) else [target]
                for variable in targets:
                    if isinstance(variable, ast.Name):
                        self.variables.pop(variable.id, None)
                for variable, value in zip(targets, values, strict=False):
                    if isinstance(variable, ast.Name):
                        self.variables[variable.id] = value
            elif isinstance(statement, ast.Return) and statement.value is not None:
                self.visit(statement.value)
        for i, block in enumerate(self.spec.blocks):
            if i in self.found:
                self.found[i][:0] = [self.drawn[value] for _, value in block.drawn if value in self.drawn]
        return self.found

    def visit(self, node: ast.expr) -> set[str]:
        """Resolves an expression and everything in it; gives the values that are in it."""
        within: set[str] = set()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                within |= self.visit(child)
            elif isinstance(child, ast.keyword):
                within |= self.visit(child.value)
        values = self.value(node, within)
        if values is not None:
            self.resolved[id(node)] = values
            within |= set(values)
        return within

    def value(self, node: ast.expr, within: set[str]) -> Values | None:
        if isinstance(node, ast.Name):
            return (self.variables[node.id],) if node.id in self.variables else None
        if drawn := self.draw(node):
            self.drawn.setdefault(drawn, _range(node))
            return (drawn,)
        if isinstance(node, ast.Call) and (values := self.layer(node)) is not None:
            return values
        for i in sorted({i for value in within for i in self.readers.get(value, ())} | set(self.sourceless)):
            if set(self.spec.blocks[i].reads) <= within and self.is_block(node, self.spec.blocks[i]):
                self.found.setdefault(i, []).append(_range(node))
                return self.spec.blocks[i].outputs
        return None

    def draw(self, node: ast.expr) -> str | None:
        """The graph's value that `noise.NAME if noise else …` or `noise and noise.NAME` stands for."""
        if isinstance(node, (ast.IfExp, ast.BoolOp)):
            given = node.body if isinstance(node, ast.IfExp) else node.values[-1]
            if isinstance(given, ast.Attribute) and isinstance(given.value, ast.Name) and given.value.id == "noise":
                return self.spec.noise.get(given.attr)
        return None

    def layer(self, call: ast.Call) -> Values | None:
        """What `self.NAME(values)` gives, or a part of a sequence, `self.NAME[0:2](values)`."""
        layer, first, last = call.func, 0, None
        if isinstance(layer, ast.Subscript) and isinstance(layer.slice, ast.Slice):
            bounds = [b.value if isinstance(b, ast.Constant) else None for b in (layer.slice.lower, layer.slice.upper)]
            first, last = (b if isinstance(b, int) else None for b in bounds)  # type: ignore[assignment]
            layer = layer.value
        if not (isinstance(layer, ast.Attribute) and isinstance(layer.value, ast.Name) and layer.value.id == "self"):
            return None
        blocks = list(self.chain(layer.attr, first or 0, last))
        given = tuple(v for a in call.args for v in self.resolved.get(id(a), ("",))[:1])
        if not blocks or self.spec.blocks[blocks[0]].reads != given:
            return None
        for i in blocks:
            self.found.setdefault(i, []).append(_range(call))
        return self.spec.blocks[blocks[-1]].outputs

    def chain(self, name: str, first: int, last: int | None) -> Iterator[int]:
        while (last is None or first < last) and (name, first) in self.places:
            yield self.places[name, first]
            first += 1

    # ------------------------------------------------------------------------------------------ an expression
    def is_block(self, node: ast.expr, block: Block) -> bool:
        """Whether an expression is the block's code on the values, tensors and draws of the block."""
        assert isinstance(block.code, Expression)
        text = block.code.text
        template = self.templates.get(text)
        if template is None:
            template = self.templates[text] = ast.parse(text, mode="eval").body
        inputs = dict(block.inputs)
        drawn = dict(block.drawn)
        tensors = {p.name: self.spec.parameter_path(block, p) for p in block.parameters}

        def fits(wanted: ast.AST, there: ast.AST) -> bool:
            if isinstance(wanted, ast.Name) and isinstance(there, ast.expr):
                if wanted.id in inputs:
                    return self.resolved.get(id(there)) == inputs[wanted.id]
                if wanted.id in tensors:
                    return isinstance(there, ast.Attribute) and there.attr == tensors[wanted.id]
                if wanted.id in drawn:
                    return self.resolved.get(id(there)) == (drawn[wanted.id],)
            if type(wanted) is not type(there):
                return False
            return all(same(getattr(wanted, field), getattr(there, field)) for field in wanted._fields if field not in ("ctx", "kind"))

        def same(wanted: object, there: object) -> bool:
            if isinstance(wanted, list) and isinstance(there, list):
                if len(wanted) == 1 and isinstance(wanted[0], ast.Starred) and isinstance(wanted[0].value, ast.Name):
                    return self.several(there) == inputs.get(wanted[0].value.id)
                return len(wanted) == len(there) and all(map(same, wanted, there))
            if isinstance(wanted, ast.AST) and isinstance(there, ast.AST):
                return fits(wanted, there)
            return type(wanted) is type(there) and repr(wanted) == repr(there)

        return fits(template, node)

    def several(self, nodes: Sequence[object]) -> Values:
        return tuple(value for node in nodes for value in self.resolved.get(id(node), ("",))[:1])
