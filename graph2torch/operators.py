"""The generic rules: what no architecture rule explains is rebuilt operator by operator, one line of torch a node.

A family may hold a table, `operators.py`, with a row for each ONNX operator that can be rebuilt:

    Operator("Relu", "torch.relu(x)")
    Operator("Gelu", since=20)

A row's text is used where torch's exporter writes that very node for it (`plain_if`, by default: every operand is
float32). Otherwise the node becomes a call of the function that the family's `layer.py` keeps for it, marked
`@node("Gelu")`: its positional parameters are the operands, its keywords the attributes, under ONNX's names and with
ONNX's defaults. Exported, such a function writes the one node it is named after; run, it computes with torch.

What a row can't do exactly is refused, by its `refuse`, with a reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from .canonical import NUMBERS, OPERANDS
from .errors import RuleError
from .graph import Array, Attribute, Graph, Node
from .match import Refusal
from .spec import Block, Expression, Parameter, names_in
from .text import one_line, printable, quoted

INLINE = 16  # integers: a shape, an axis, a slice's bounds stand in the line itself, longer constants become buffers
_TYPES = frozenset({"float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "bool"})


@dataclass(frozen=True)
class Use:
    """A node of a canonical graph, and what is known of its operands."""

    graph: Graph
    node: Node

    def has(self, place: int) -> bool:
        return place < len(self.node.inputs) and bool(self.node.inputs[place])

    def constant(self, place: int) -> Array | None:
        return self.graph.constants.get(self.node.inputs[place]) if self.has(place) else None

    def dtype(self, place: int = 0) -> str:
        """ "float32"; "" if it isn't known."""
        return self._dtype(self.node.inputs[place]) if self.has(place) else ""

    def shape(self, place: int = 0) -> tuple[int | str | None, ...] | None:
        """Its sizes, as far as they are known; None if not even their number is."""
        value = self.node.inputs[place] if self.has(place) else ""
        if value in self.graph.constants:
            return self.graph.constants[value].shape
        known = self.graph.types.get(value)
        return None if known is None else known.shape

    def rank(self, place: int = 0) -> int | None:
        shape = self.shape(place)
        return None if shape is None else len(shape)

    def attribute(self, name: str, default: Attribute | None = None) -> Attribute | None:
        return self.node.attributes.get(name, default)

    def integer(self, name: str, default: int = 0) -> int:
        value = self.node.attributes.get(name, default)
        return value if isinstance(value, int) else default

    def text(self, name: str, default: str = "") -> str:
        value = self.node.attributes.get(name, default)
        return value if isinstance(value, str) else default

    def integers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        value = self.node.attributes.get(name, default)
        return tuple(int(v) for v in value) if isinstance(value, tuple) else default

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of its operands."""
        return tuple(self.dtype(i) for i in range(len(self.node.inputs)) if self.node.inputs[i])

    @property
    def unusual(self) -> str:
        """A type among its operands and results that torch has hardly any operators for; "" if there is none."""
        values = [v for v in (*self.node.inputs, *self.node.outputs) if v]
        return next((t for v in values if (t := self._dtype(v)) and t not in _TYPES), "")

    def _dtype(self, value: str) -> str:
        if value in self.graph.constants:
            return str(self.graph.constants[value].dtype.name)
        known = self.graph.types.get(value)
        return "" if known is None else str(known.dtype.name)


def floats(use: Use) -> bool:
    """Whether every operand is float32, and one of them at least no constant."""
    return set(use.dtypes) == {"float32"} and any(v not in use.graph.constants for v in use.node.inputs if v)


def always(use: Use) -> bool:
    return True


def accepts(use: Use) -> str:
    return ""


@dataclass(frozen=True)
class Operator:
    """A row of the table.

    name:     the ONNX operator
    plain:    the torch expression that torch's exporter writes as this very node; `x`, `y`, `z` are its operands,
              `{axis}` is an attribute. Or a function that gives it, "" for none.
    plain_if: where that holds
    refuse:   a reason why a use can't be rebuilt, or ""
    since:    the first opset that has the operator in the form meant here
    draw:     it draws random numbers: the caller of the policy may pass its result instead ("itself"), or uniform numbers
              that it draws by, as the operand `u` of its function ("uniform")
    rounds:   it computes, so that float16 comes out differently in torch and in onnxruntime
    function: which of layer.py's functions it is called by, where there are several
    """

    name: str
    plain: str | Callable[[Use], str] = ""
    plain_if: Callable[[Use], bool] = floats
    refuse: Callable[[Use], str] = accepts
    since: int = 1
    draw: Literal["", "itself", "uniform"] = ""
    rounds: bool = True
    function: Callable[[Use], str] | None = None


@dataclass(frozen=True)
class Function:
    """A function of layer.py: how the node of `operator` is called."""

    name: str
    operands: int
    variadic: bool
    attributes: frozenset[str]


@dataclass(frozen=True)
class Table:
    """The operators of a family, by name, with the functions of its layer.py, which is read when a node needs it."""

    family: str
    operators: Mapping[str, Operator]
    layer: Path

    @cached_property
    def functions(self) -> Mapping[str, tuple[Function, ...]]:
        return read_functions(self.layer)

    def lift(self, graph: Graph, node: Node) -> Block | Refusal:
        """The block of one node, or why it can't be rebuilt."""
        use = Use(graph, node)
        row = self.operators.get(node.op)
        if row is None:
            return Refusal("the operator is not among those that can be rebuilt", node)
        if graph.opset < row.since:
            return Refusal(f"its form before opset {row.since} can't be rebuilt", node)
        if use.unusual:
            return Refusal(f"it works on {use.unusual}, for which torch has hardly any operators", node)
        if row.rounds and "float16" in use.dtypes:
            return Refusal("it computes in float16, which torch and onnxruntime round differently", node)
        if reason := row.refuse(use):
            return Refusal(reason, node)
        call = _plain(row, use) or self._function(row, use)
        if isinstance(call, Refusal):
            return call
        nodes = tuple(sorted({node.index, *node.through}))
        code = Expression(call.text)
        drawn: tuple[tuple[str, str], ...] = ()
        if row.draw == "itself":
            code, drawn = Expression("z", draws=(("z", call.text),)), (("z", node.outputs[0]),)
        elif row.draw == "uniform":
            code, drawn = Expression(call.text, draws=(("u", ""),)), (("u", node.outputs[0]),)
        return Block(
            rule=node.op,
            code=code,
            inputs=call.inputs,
            outputs=node.outputs,
            parameters=call.parameters,
            nodes=nodes,
            family=self.family,
            role=f"operator {node.op}",
            layer=self.layer,
            drawn=drawn,
        )

    def _function(self, row: Operator, use: Use) -> _Call | Refusal:
        node = use.node
        function = next((f for f in self.functions.get(node.op, ()) if row.function is None or f.name == row.function(use)), None)
        if function is None:
            return Refusal(f"it works on {' and '.join(sorted(set(use.dtypes))) or 'unknown types'}, which can't be rebuilt exactly", node)
        inputs, attributes = list(node.inputs), dict(node.attributes)
        since, operands = OPERANDS.get(node.op, (0, ()))
        if use.graph.opset < since:  # what are operands in the canonical dialect were attributes in this opset
            for place, (name, _) in enumerate(operands, 1):
                if place < len(inputs) and inputs[place]:
                    value = use.graph.constants[inputs[place]]
                    attributes[name] = value.item() if name in NUMBERS else tuple(value.tolist())
            del inputs[1:]
        unknown = sorted(set(attributes) - function.attributes)
        if unknown:
            return Refusal(f"its attribute {unknown[0]} is {attributes[unknown[0]]}, which can't be rebuilt exactly", node)
        if len(inputs) > function.operands and not function.variadic:
            return Refusal(f"it has {len(inputs)} operands, of which {function.operands} are known", node)
        arguments = _arguments(use, inputs, _tensor)
        uniform = ["u"] if row.draw == "uniform" else []
        texts = [*arguments.texts, *uniform, *(f"{name}={_attribute(value)}" for name, value in attributes.items())]
        if len(node.outputs) > 1:
            texts.append(f"outputs={len(node.outputs)}")
        return replace(arguments, text=f"{function.name}({', '.join(texts)})")


# ---------------------------------------------------------------------------------------------- expressions
@dataclass(frozen=True)
class _Call:
    text: str
    texts: tuple[str, ...]
    inputs: tuple[tuple[str, tuple[str, ...]], ...]
    parameters: tuple[Parameter, ...]


def operand(place: int) -> str:
    """The name of an operand in an expression: x, y, z, x4, x5 …"""
    return "xyz"[place] if place < 3 else f"x{place + 1}"


def _plain(row: Operator, use: Use) -> _Call | None:
    text = row.plain if isinstance(row.plain, str) else row.plain(use)
    if not text or not row.plain_if(use):
        return None
    if isinstance(row.plain, str) and set(re.findall(r"\{(\w+)\}", text)) != set(use.node.attributes):
        return None
    text = re.sub(r"\{(\w+)\}", lambda m: _attribute(use.node.attributes[m.group(1)]), text)
    names = names_in(text)
    read = [v if operand(i) in names else "" for i, v in enumerate(use.node.inputs)]  # the others are in the text already
    if any(v and v not in use.graph.constants for v, r in zip(use.node.inputs, read, strict=True) if v != r):
        return None
    arguments = _arguments(use, read, _number)
    places = {operand(i): t for i, t in enumerate(arguments.texts) if read[i] and t != operand(i)}
    return replace(arguments, text=_placed(text, tuple(places.items())))


@lru_cache(4096)
def _placed(text: str, places: tuple[tuple[str, str], ...]) -> str:
    """The expression with these names replaced by these expressions."""
    put = {name: ast.parse(expression, mode="eval").body for name, expression in places}
    return ast.unparse(_Places(put).visit(ast.parse(text, mode="eval").body))


class _Places(ast.NodeTransformer):
    def __init__(self, places: Mapping[str, ast.expr]) -> None:
        self.places = places

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.places.get(node.id, node)


def _arguments(use: Use, values: Iterable[str], literal: Callable[[Array], str]) -> _Call:
    """The operands as they stand in the line: names of values, literals, names of the policy's own tensors."""
    texts: list[str] = []
    inputs: list[tuple[str, tuple[str, ...]]] = []
    parameters: list[Parameter] = []
    for place, value in enumerate(values):
        constant = use.graph.constants.get(value)
        if not value:
            texts.append("None")
        elif constant is None:
            texts.append(operand(place))
            inputs.append((operand(place), (value,)))
        elif text := literal(constant):
            texts.append(text)
        else:
            texts.append(operand(place))
            parameters.append(Parameter(operand(place), value, trainable=constant.dtype == np.float32 and constant.ndim > 0))
    return _Call("", tuple(texts), tuple(inputs), tuple(parameters))


def _number(value: Array) -> str:
    """A float32 scalar as a Python number."""
    return number(value) if value.dtype == np.float32 and value.ndim == 0 else ""


def _tensor(value: Array) -> str:
    """A short constant as torch.tensor(…)."""
    if value.size == 0 or value.size > (INLINE if value.dtype.kind in "iub" else 1) or value.ndim > 1:
        return ""
    numbers = f"[{', '.join(map(number, value))}]" if value.ndim else number(value)
    natural = {"i": "int64", "f": "float32", "b": "bool"}.get(value.dtype.kind)
    return f"torch.tensor({numbers}{'' if natural == value.dtype.name else f', dtype=torch.{value.dtype.name}'})"


def number(value: np.generic | Array) -> str:
    """A number as Python writes it: a float32 by the shortest text that gives the same float32."""
    if value.dtype.kind != "f":
        return str(value.item())
    if not np.isfinite(value):
        return f'float("{value.item()}")'
    short = repr(float(str(value))) if value.ndim == 0 else ""
    return short if short and value.dtype.type(float(short)).tobytes() == value.tobytes() else repr(float(value))


def _attribute(value: Attribute) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_attribute, value))}]"
    if isinstance(value, np.ndarray):
        return f"torch.tensor({[_literal(x) for x in value.reshape(-1).tolist()]}, dtype=torch.{value.dtype.name})".replace("'", "")
    return number(np.float32(value)) if isinstance(value, float) else repr(value)


def _literal(value: float | bool) -> str:
    return repr(value) if isinstance(value, (bool, int)) or np.isfinite(value) else f'float("{value}")'


# ---------------------------------------------------------------------------------------------- loading
def table(family: str, rows: Iterable[Operator], layer: Path, check: bool = True) -> Table:
    """The table of a family. Raises RuleError for a row that can't be used, if it is to `check` them: that takes a while."""
    if not check:
        return Table(family, {row.name: row for row in rows}, layer)
    functions = read_functions(layer)
    operators: dict[str, Operator] = {}
    for row in rows:
        where, name = printable(str(layer.with_name("operators.py")), 200), printable(row.name, 40)
        if row.name in operators:
            raise RuleError(f"{where} has two rows for {name}.")
        if not row.plain and row.name not in functions:
            raise RuleError(f'{where}: {name} needs a torch expression, or a function marked @node("{name}") in layer.py.')
        if isinstance(row.plain, str) and row.plain and not _is_expression(row.plain):
            raise RuleError(f"{where}: the text of {name}, {quoted(row.plain)}, is not a Python expression.")
        operators[row.name] = row
    for unlisted in sorted(functions.keys() - operators.keys()):
        raise RuleError(f"{printable(str(layer), 200)} has a function for {printable(unlisted, 40)}, which operators.py doesn't list.")
    return Table(family, operators, layer)


def _is_expression(text: str) -> bool:
    """Whether a row's text is one, once its attributes are filled in."""
    try:
        ast.parse(re.sub(r"\{\w+\}", "0", text), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two for what is nested too deeply
        return False
    return True


def read_functions(layer: Path) -> Mapping[str, tuple[Function, ...]]:
    """operator → the functions that layer.py marks `@node("…")`, read without running it."""
    functions: dict[str, tuple[Function, ...]] = {}
    try:
        body = ast.parse(layer.read_text(encoding="utf-8")).body if layer.is_file() else []
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two for what is nested too deeply
        raise RuleError(f"The rule file {quoted(str(layer))} is not Python: {one_line(str(error), 160)}.") from None
    for definition in body:
        if isinstance(definition, ast.FunctionDef):
            for mark in definition.decorator_list:
                marked = isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "node"
                if marked and isinstance(mark, ast.Call) and mark.args and isinstance(mark.args[0], ast.Constant):
                    arguments, operator = definition.args, str(mark.args[0].value)
                    keywords = frozenset(a.arg for a in (*arguments.args, *arguments.kwonlyargs)) - {"outputs"}
                    found = Function(definition.name, len(arguments.args), arguments.vararg is not None, keywords)
                    functions[operator] = (*functions.get(operator, ()), found)
    return functions


__all__ = ["Function", "Operator", "Table", "Use", "always", "floats", "table"]
