"""Writes the policy as Python source that needs torch and safetensors only, the way a person would write it.

Source is built as syntax trees and unparsed, so that no name of a model file is ever pasted into code: inputs and
outputs appear as identifiers, and file names only inside the docstring, escaped.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .errors import UnsupportedGraph
from .graph import Array
from .spec import Block, Expression, Method, Module, PolicySpec
from .text import docstring, identifier, literal

WIDTH = 140
MAX_FIXED = 1000  # numbers of an output that is always the same, which are written out


@dataclass(frozen=True, slots=True)
class Provenance:
    """What the docstring tells about the origin. `sources`: one line a file; `keys`: module here → the checkpoint's.

    dtype: of the layers' weights as they are stored, and as `load` loads them unless told otherwise
    """

    title: str
    sources: tuple[str, ...]
    keys: Mapping[str, str]
    checkpoint_module: str = "Policy"
    dtype: str = "float32"


def emit(spec: PolicySpec, origin: Provenance) -> str:
    """The source of model.py."""
    return _Writer(spec, origin).write()


def emit_inner(spec: PolicySpec, values: Sequence[str]) -> str:
    """The source of `inner(self, inputs…, noise=None)`, which computes inner `values` of the graph with the policy's own layers."""
    return _Writer(spec, Provenance("", (), {})).inner(values)


class _Writer:
    def __init__(self, spec: PolicySpec, origin: Provenance) -> None:
        self.spec, self.origin = spec, origin
        self.field = {value.name: value.field for value in spec.inputs}
        self.producer = {value: block for block in spec.blocks for value in block.outputs}
        self.noise = {value: field for field, value in spec.noise.items()}
        self.normalises = any(b.statistics for b in spec.blocks)

    def write(self) -> str:
        imports, helpers = self.layers()
        methods = [self.apply(), self.forward(), *(self.method(m) for m in self.spec.methods)]
        head = f'"""{docstring(self.docstring())}\n"""\n{self.imports(imports)}\n{self.tables()}'
        policy = "class Policy(nn.Module):\n" + "\n\n".join([self.constructor(), *methods])
        return "\n\n\n".join(part.strip("\n") for part in (head, *helpers, *self.recast(), policy, self.load())) + "\n"

    # ------------------------------------------------------------------------------------------ head of the file
    def docstring(self) -> str:
        spec = self.spec
        lines = [self.origin.title, *self.origin.sources]
        if self.origin.dtype != "float32":
            lines.append(
                f"The layers' weights are rounded to {self.origin.dtype}; load(dtype=torch.float32) computes with the rounded ones."
            )
        rows = [("in ", i.name, i.size, i.meaning + ("" if i.used else " (not used)")) for i in spec.inputs]
        rows += [("out", o.name, o.size, self.meaning(o.meaning, o.constant)) for o in spec.outputs]
        rows = [(kind, re.sub(r"[^\x20-\x7e]", "?", name)[:60], size, text) for kind, name, size, text in rows]
        wide = max((len(row[1]) for row in rows), default=0)
        sizes = max((len(row[2]) for row in rows), default=0)
        lines += [f"{kind} {name:<{wide}}  {size:<{sizes}}  {text}".rstrip() for kind, name, size, text in rows]
        return "\n".join(lines)

    @staticmethod
    def meaning(text: str, constant: object) -> str:
        numbers = "" if constant is None else " ".join(f"{x:g}" for x in constant.reshape(-1)[:8].tolist())  # type: ignore[attr-defined]
        return f"{text}: {numbers}" if numbers and text else text or numbers

    def imports(self, needed: Iterable[str]) -> str:
        lines = {
            "from collections import namedtuple",
            "from pathlib import Path",
            "import torch",
            "from safetensors.torch import load_file",
            "from torch import Tensor, nn",
        }
        lines |= set(needed) | {line for m in self.spec.methods for line in m.imports}
        standard = sorted(line for line in lines if not re.match(r"(from|import) (torch|safetensors)", line))
        third = sorted(line for line in lines if line not in standard)
        third.sort(key=lambda line: (line.startswith("from"), line.split()[1]))
        return "\n".join([*standard, "", *third]) + "\n"

    def tables(self) -> str:
        spec, rows = self.spec, []
        if self.origin.keys:
            tensors = {spec.parameter_path(b, p) for b in spec.blocks for p in b.parameters}
            dots = {here: "" if here in tensors else "." for here in self.origin.keys}  # a module's name is a prefix
            rows += table("CHECKPOINT", [f"{literal(o + dots[o])}: {literal(t + dots[o])}" for o, t in self.origin.keys.items()])
        if constants := {o.field: o.constant for o in spec.outputs if o.constant is not None}:
            for field, constant in constants.items():
                if constant.size > MAX_FIXED:
                    raise UnsupportedGraph(
                        f"The output {field!r} is a constant of {constant.size:,} numbers; a policy's fixed outputs are a few."
                    )
            rows += table("METADATA", [f"{literal(field)}: {_fixed(constant)}" for field, constant in constants.items()])
        rows += named_tuple("Outputs", [o.field for o in spec.outputs])
        if all(o.field == o.name for o in spec.outputs):
            rows.append("OUTPUT_NAMES = {field: field for field in Outputs._fields}")
        else:
            rows += table("OUTPUT_NAMES", [f"{literal(o.field)}: {literal(o.name)}" for o in spec.outputs])
        if spec.noise:
            rows += named_tuple("Noise", list(spec.noise))
            rows[-1] += f"  # {self.noise_meaning()}"
        return "\n".join(rows) + "\n"

    def noise_meaning(self) -> str:
        """What the fields of Noise are drawn from."""
        kinds = {draw.field: draw.meaning for draw in self.spec.draws()}
        if len(set(kinds.values())) == 1:
            return next(iter(kinds.values()))
        return "; ".join(f"{kind}: {', '.join(f for f, k in kinds.items() if k == kind)}" for kind in dict.fromkeys(kinds.values()))

    def layers(self) -> tuple[set[str], list[str]]:
        """The imports and definitions of the layers that the blocks and methods need, each once."""
        files = [b.layer for b in self.spec.blocks if b.layer] + [path for m in self.spec.methods for path in m.layers]
        sources = {path: Path(path).read_text(encoding="utf-8") for path in dict.fromkeys(files)}
        trees = {path: ast.parse(source).body for path, source in sources.items()}
        known = {n.name: n for body in trees.values() for n in body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
        used = {name for block in self.spec.blocks for name in block.globals}
        used |= {name for method in self.spec.methods for name in _names(ast.parse(method.result))}
        needed: set[str] = set()
        todo = used & known.keys()
        while todo:
            needed |= todo
            todo = {name for reader in todo for name in _names(known[reader])} & known.keys() - needed
        imports: set[str] = set()
        definitions: dict[str, str] = {}
        for path, body in trees.items():
            lines = sources[path].splitlines()
            for node in body:
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    if not (isinstance(node, ast.ImportFrom) and node.module == "torch"):
                        imports.add(ast.unparse(node))
                elif isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in needed:
                    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                    definitions[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
        return imports, list(definitions.values())

    # ------------------------------------------------------------------------------------------ class Policy
    def constructor(self) -> str:
        lines = ["    def __init__(self) -> None:", "        super().__init__()"]
        sequences: dict[str, list[str]] = {}
        own: set[str] = set()
        for block in self.spec.blocks:
            if block.sequence and isinstance(block.code, Module):
                sequences.setdefault(block.sequence, []).append(block.code.source)
        for block in self.spec.blocks:
            if block.sequence in sequences:
                members = sequences.pop(block.sequence)
                lines += wrap(f"self.{block.sequence} = nn.Sequential", members, 8, packed=True)
            elif isinstance(block.code, Module) and not block.sequence:
                lines.append(f"        self.{block.name} = {block.code.source}")
            elif isinstance(block.code, Expression):
                for parameter in block.parameters:
                    path = self.spec.parameter_path(block, parameter)
                    if path in own:
                        continue
                    own.add(path)
                    value = self.spec.graph.constants[parameter.value]
                    shape = ", ".join(map(str, value.shape)) or "()"
                    zeros = f"torch.zeros({shape}{'' if value.dtype.name == 'float32' else f', dtype=torch.{value.dtype.name}'})"
                    lines.append(
                        f"        self.{path} = nn.Parameter({zeros})"
                        if parameter.trainable
                        else f'        self.register_buffer("{path}", {zeros})'
                    )
        if any(o.constant is not None for o in self.spec.outputs):
            lines.append("        for name, value in METADATA.items():")
            lines.append("            self.register_buffer(name, torch.as_tensor(value), persistent=False)")
        return "\n".join(lines)

    def signature(self) -> str:
        return ", ".join(["self", *(f"{i.field}: Tensor" for i in self.spec.inputs)])

    def forward(self) -> str:
        outputs = self.spec.outputs
        wanted = [o.value for o in outputs if o.constant is None]
        body, names = self.statements(wanted, keep_labels=True)
        results = [ast.unparse(names[o.value]) if o.constant is None else f"self.{o.field}" for o in outputs]
        noise = ", noise: Noise | None = None" if self.spec.noise else ""
        head = wrap("def forward", [*self.signature().split(", "), *([noise[2:]] if noise else [])], 4, tail=" -> Outputs:")
        final = wrap("return Outputs", results, 8, packed=True)
        return "\n".join([*head, *body, *final])

    def method(self, method: Method) -> str:
        body, names = self.statements(list(method.values.values()), keep_labels=False, result=method)
        expression = substitute(method.result, {name: names[value] for name, value in method.values.items()})
        head = wrap(f"def {method.name}", self.signature().split(", "), 4, tail=f" -> {method.returns}:")
        if method.comment and len(head[-1]) + len(method.comment) + 4 <= WIDTH:
            head[-1] += f"  # {method.comment}"
        elif method.comment:
            head.append(f"        # {method.comment}")
        return "\n".join([*head, *body, *statement("return ", expression)])

    def inner(self, values: Sequence[str]) -> str:
        body, names = self.statements(values, keep_labels=False)
        results = ", ".join(ast.unparse(names[value]) for value in values)
        return "\n".join([f"def inner({self.signature()}, noise=None):", *body, f"        return [{results}]"])

    def statements(self, wanted: Sequence[str], keep_labels: bool, result: Method | None = None) -> tuple[list[str], dict[str, ast.expr]]:
        """The statements that compute `wanted`, and the expression that stands for each value after them."""
        steps = self.slice(wanted)
        uses: dict[str, int] = {}
        for step in steps:
            for value in step.reads:
                uses[value] = uses.get(value, 0) + 1
        final = list(wanted)
        if result is not None:
            counts = [n.id for n in ast.walk(ast.parse(result.result)) if isinstance(n, ast.Name)]
            final = [result.values[n] for n in counts if n in result.values]
        for value in final:
            uses[value] = uses.get(value, 0) + 1
        names: dict[str, ast.expr] = {name: ast.Name(field) for name, field in self.field.items()}
        taken = {*self.field.values(), *(name for block in self.spec.blocks for name in block.globals), "self", "noise"}
        lines: list[str] = []
        made: set[str] = set()  # variables of single operators
        inlined: dict[str, _Step] = {}

        def assign(step: _Step, expression: ast.expr) -> None:
            targets, before = [], set(taken)
            labels = step.label.split(", ") if step.label else []
            for output, label in itertools.zip_longest(step.outputs, labels[: len(step.outputs)], fillvalue="x"):
                if len(step.outputs) > 1 and not uses.get(output):
                    targets.append("_")
                    continue
                name = identifier(label, taken)
                taken.add(name)
                names[output] = ast.Name(name)
                targets.append(name)
            start = f"{', '.join(targets)} = "
            calls = [a for a in expression.args if isinstance(a, ast.Call)] if isinstance(expression, ast.Call) else []
            if len(start) + len(ast.unparse(expression)) > WIDTH - 8 and calls and len(step.reads) > 1 and "x" not in before:
                longest = max(calls, key=lambda call: len(ast.unparse(call)))
                lines.extend(statement("x = ", longest))
                expression.args[expression.args.index(longest)] = ast.Name("x")  # type: ignore[attr-defined]
            lines.extend(statement(start, expression))
            if step.blocks[-1].comment and len(step.blocks) == 1:
                lines[-1] += f"  # {step.blocks[-1].comment}"

        def settle(values: Iterable[str]) -> bool:
            """Gives labelled values that were written in place a line of their own; whether there were any."""
            found = False
            for value in values:
                step = inlined.pop(value, None)
                if step is None:
                    continue
                below = settle(step.reads)
                if below:
                    names[value] = self.expression(step, names, lines, taken)
                if step.label:
                    assign(step, names[value])
                found = found or below or bool(step.label)
            return found

        for step in steps:
            expression = self.expression(step, names, lines, taken)
            for value in step.reads:
                uses[value] -= 1
            if step.blocks[0].family == "generic":
                targets = self.variables(step, uses, names, made, taken)
                lines += statement(f"{', '.join(targets)} = ", expression)
                continue
            single = len(step.outputs) == 1 and uses.get(step.outputs[0], 0) == 1
            if single and (not step.label or not keep_labels) and len(ast.unparse(expression)) <= WIDTH - 34:
                names[step.outputs[0]] = expression
                if not step.draws:
                    inlined[step.outputs[0]] = step
            else:
                if len(ast.unparse(expression)) > WIDTH - 34 and not step.draws and settle(step.reads):
                    expression = self.expression(step, names, lines, taken)
                assign(step, expression)
        if result is not None and len(ast.unparse(substitute(result.result, {k: names[v] for k, v in result.values.items()}))) > WIDTH - 15:
            settle(result.values.values())
        return lines, names

    @staticmethod
    def variables(step: _Step, uses: Mapping[str, int], names: dict[str, ast.expr], made: set[str], taken: set[str]) -> list[str]:
        """The variables of a single operator's results: `x = torch.relu(x)` where nothing needs the old x any more."""
        needed = {name for value, expression in names.items() if uses.get(value) for name in _names(expression)}
        free = [n.id for v in dict.fromkeys(step.reads) if isinstance(n := names[v], ast.Name) and n.id in made and n.id not in needed]
        targets = []
        for output in step.outputs:
            if not uses.get(output):
                targets.append("_")
                continue
            name = free.pop(0) if free else identifier("x", taken)
            taken.add(name)
            made.add(name)
            names[output] = ast.Name(name)
            targets.append(name)
        return targets

    def slice(self, wanted: Iterable[str]) -> list[_Step]:
        """What has to be computed for `wanted`, in order; a sequence, or its part up to a wanted value, counts as one step."""
        needed: set[int] = set()
        ends = set(wanted)
        todo = list(ends)
        while todo:
            value = todo.pop()
            block = self.producer.get(value)
            if block is not None and id(block) not in needed:
                needed.add(id(block))
                todo += block.reads
        steps: list[_Step] = []
        for block in self.spec.blocks:
            if id(block) not in needed:
                continue
            last = steps[-1] if steps else None
            same = last is not None and block.sequence and last.blocks[-1].sequence == block.sequence and last.outputs == block.reads
            if last is not None and same and not ends & set(last.outputs):
                steps[-1] = _Step((*last.blocks, block))
            else:
                steps.append(_Step((block,)))
        return steps

    def expression(self, step: _Step, names: Mapping[str, ast.expr], lines: list[str], taken: set[str]) -> ast.expr:
        first = step.blocks[0]
        if isinstance(first.code, Module):
            arguments = [names[v] for v in first.reads]
            layer: ast.expr = ast.Attribute(ast.Name("self"), first.sequence or first.name)
            if first.sequence and len(step.blocks) < sum(block.sequence == first.sequence for block in self.spec.blocks):  # a part of it
                start = self.spec.position(first)
                layer = ast.Subscript(layer, ast.Slice(ast.Constant(start), ast.Constant(start + len(step.blocks))))
            return ast.Call(layer, arguments, [])
        places: dict[str, ast.expr | list[ast.expr]] = {
            name: [names[v] for v in values] if name == first.code.starred else names[values[0]] for name, values in first.inputs
        }
        for parameter in first.parameters:
            places[parameter.name] = ast.Attribute(ast.Name("self"), self.spec.parameter_path(first, parameter))
        for name, text in first.code.draws:
            given = ast.Attribute(ast.Name("noise"), self.noise[dict(first.drawn)[name]])
            if not text:
                places[name] = ast.BoolOp(ast.And(), [ast.Name("noise"), given])
                continue
            drawn = substitute(text, places)
            variable = identifier(name, taken)
            taken.add(variable)
            lines += statement(f"{variable} = ", ast.IfExp(ast.Name("noise"), given, drawn))
            places[name] = ast.Name(variable)
        return substitute(first.code.text, places)

    # ------------------------------------------------------------------------------------------ load
    def load(self) -> str:
        lines = [f'def load(path=None, device="cpu", dtype=torch.{self.origin.dtype}) -> Policy:', "    policy = Policy()"]
        ours = 'load_file(path or Path(__file__).with_name("weights.safetensors"))'
        if self.origin.keys:
            module = literal(self.origin.checkpoint_module)
            lines += [
                '    if str(path).endswith(".pt"):  # a newer checkpoint of the same network',
                f'        theirs = torch.load(path, map_location="cpu", weights_only=True)[{module}]',
                "        state = {here + k[len(there):]: v for here, there in CHECKPOINT.items() for k, v in theirs.items() if k.startswith(there)}",
            ]
            if self.normalises:
                lines += [
                    '        for n in {k.rsplit(".", 1)[0] for k in state if k.endswith(".running_variance")}:',
                    '            state[f"{n}.std"] = (state[f"{n}.running_variance"] / state[f"{n}.normalization_steps"]).double().sqrt().float()',
                ]
            lines += ["    else:", f"        state = {ours}", "    policy.load_state_dict(state)"]
        else:
            lines.append(f"    policy.load_state_dict({ours})")
        if any(isinstance(b.code, Module) and b.code.class_name == "nn.Linear" for b in self.spec.blocks):
            lines += [
                "    for layer in (m for m in policy.modules() if isinstance(m, nn.Linear)):",
                "        layer.weight.data = layer.weight.data.t().contiguous().t()  # by columns: faster on some CPUs",
            ]
        lines.append("    return policy.to(device, dtype).eval()")
        return "\n".join(lines)

    # ------------------------------------------------------------------------------------------ precision
    def apply(self) -> str:
        """`Policy._apply`, through which every conversion goes, `half()` and `to(dtype)`: it converts layers alone."""
        given, giving = self.borders()
        layers = list(dict.fromkeys(unit for b in self.spec.blocks if (unit := self.unit(b))))
        lines = []
        if giving:
            lines = [
                f"        if fn(torch.empty(0)).dtype != torch.float32 and not self.{giving[0]}._forward_hooks:",
                *each(given, "register_forward_pre_hook(recast)", 12),
                *each(giving, "register_forward_hook(recast)", 12),
                *each(layers, "_apply(fn)", 8),
            ]
        return "\n".join(
            [
                "    def _apply(self, fn, recurse=True):  # half precision is for layers: statistics overflow it, actions and noise stay float32",
                *lines,
                "        return super()._apply(lambda t: fn(t) if (like := fn(t.new_empty(0))).dtype == t.dtype else t.to(like.device), recurse)",
            ]
        )

    def recast(self) -> list[str]:
        """The hook of the layers that are given float32, or whose results are read as such; none where no layer has weights."""
        giving = self.borders()[1]
        if not giving:
            return []
        several = any(len(b.outputs) > 1 for b in self.spec.blocks if self.unit(b) in giving)
        lines = [
            "def recast(layer, given, found=None):  # layers of half precision take and give float32",
            *["    if isinstance(found, tuple):", "        return tuple(t.float() for t in found)"] * several,
            "    return tuple(t.to(next(layer.parameters()).dtype) for t in given) if found is None else found.float()",
        ]
        return ["\n".join(lines)]

    @cached_property
    def ends(self) -> frozenset[str]:
        """What forward and the other methods compute."""
        return frozenset([o.value for o in self.spec.outputs if o.constant is None]).union(*(m.values.values() for m in self.spec.methods))

    @cached_property
    def readers(self) -> Mapping[str, list[Block]]:
        found: dict[str, list[Block]] = defaultdict(list)
        for block in self.spec.blocks:
            for value in dict.fromkeys(block.reads):
                found[value].append(block)
        return found

    def unit(self, block: Block) -> str:
        """The layer with weights that a block is, or is part of; "" for what always computes in float32."""
        if isinstance(block.code, Expression) or block.statistics:
            return ""
        return block.sequence or block.name if block.parameters or block.sequence in self.weighty else ""

    @cached_property
    def weighty(self) -> frozenset[str]:
        """The sequences that have weights. Nobody reads the inside of a sequence: it is one layer."""
        return frozenset(b.sequence for b in self.spec.blocks if b.sequence and b.parameters)

    def borders(self) -> tuple[list[str], list[str]]:
        """The layers that are given float32, and those whose results are read as such: by an expression, or as an output."""
        giving = {
            unit: None
            for b in self.spec.blocks
            if (unit := self.unit(b)) and any(v in self.ends or not all(map(self.unit, self.readers[v])) for v in b.outputs)
        }
        half = {v: unit for b in self.spec.blocks if (unit := self.unit(b)) and unit not in giving for v in b.outputs}
        inside = {v: self.unit(b) for b in self.spec.blocks for v in b.outputs}
        given = {
            unit: None for b in self.spec.blocks if (unit := self.unit(b)) and any(v not in half and inside.get(v) != unit for v in b.reads)
        }
        return list(given), list(giving)


@dataclass(frozen=True, slots=True)
class _Step:
    """A block, or the blocks of one nn.Sequential."""

    blocks: tuple[Block, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        return self.blocks[0].reads

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.blocks[-1].outputs

    @property
    def label(self) -> str:
        return self.blocks[-1].label

    @property
    def draws(self) -> bool:
        """Whether it comes with a line of its own, for its noise."""
        code = self.blocks[0].code
        return isinstance(code, Expression) and any(text for _, text in code.draws)


# ---------------------------------------------------------------------------------------------- expressions, lines
class _Substitute(ast.NodeTransformer):
    def __init__(self, places: Mapping[str, ast.expr | list[ast.expr]]) -> None:
        self.places = places

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.places.get(node.id, node)
        return node if isinstance(value, list) else value

    def visit_List(self, node: ast.List) -> ast.expr:
        elements: list[ast.expr] = []
        for element in node.elts:
            several = (
                self.places.get(element.value.id) if isinstance(element, ast.Starred) and isinstance(element.value, ast.Name) else None
            )
            elements += several if isinstance(several, list) else [self.visit(element)]
        return ast.List(elements)


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def substitute(text: str, places: Mapping[str, ast.expr | list[ast.expr]]) -> ast.expr:
    """The expression `text` with its names replaced; brackets come where they are needed."""
    tree = _Substitute(places).visit(ast.parse(text, mode="eval").body)
    assert isinstance(tree, ast.expr)
    return tree


def statement(start: str, expression: ast.expr, indent: int = 8) -> list[str]:
    """`start` and the expression on one line, or with the outermost call's arguments or list over several."""
    text = ", ".join(map(ast.unparse, expression.elts)) if isinstance(expression, ast.Tuple) else ast.unparse(expression)
    line = " " * indent + start + text
    if len(line) <= WIDTH or not isinstance(expression, ast.Call):
        return [line]
    if expression.args and isinstance(expression.args[0], ast.List):
        begin = f"{' ' * indent}{start}{ast.unparse(expression.func)}(["
        rest = "".join(f", {ast.unparse(a)}" for a in (*expression.args[1:], *expression.keywords))
        rows = pack([ast.unparse(element) for element in expression.args[0].elts], len(begin))
        return [begin + rows[0].lstrip(), *rows[1:-1], f"{rows[-1].rstrip(',')}]{rest})"] if len(rows) > 1 else [line]
    if len(expression.args) < 2:
        return [line]
    return wrap(f"{start}{ast.unparse(expression.func)}", [ast.unparse(a) for a in (*expression.args, *expression.keywords)], indent)


def wrap(start: str, arguments: Sequence[str], indent: int, tail: str = "", packed: bool = False) -> list[str]:
    """`start(arguments)tail` on one line if it fits, else with the arguments on lines of their own."""
    space = " " * indent
    line = f"{space}{start}({', '.join(arguments)}){tail}"
    if len(line) <= WIDTH:
        return [line]
    if not packed:
        return [f"{space}{start}(", *(f"{space}    {a}," for a in arguments), f"{space}){tail}"]
    rows = pack(arguments, indent + 4)
    return [f"{space}{start}(", *rows[:-1], f"{rows[-1].rstrip(',')}){tail}"]


def pack(entries: Iterable[str], indent: int) -> list[str]:
    """`entries`, each with a comma behind it, on as few lines as they fit on."""
    rows: list[str] = []
    for entry in entries:
        if rows and len(rows[-1]) + len(entry) + 2 <= WIDTH:
            rows[-1] += f" {entry},"
        else:
            rows.append(f"{' ' * indent}{entry},")
    return rows


def named_tuple(name: str, fields: Sequence[str]) -> list[str]:
    """`NAME = namedtuple("NAME", "a b c")`, the string over several lines if it has to be."""
    start = f'{name} = namedtuple("{name}", '
    words, rows = list(fields), [""]
    while words:
        if rows[-1] and len(start) + len(rows[-1]) + len(words[0]) + 4 > WIDTH:
            rows[-1] += " "
            rows.append("")
        rows[-1] += (" " if rows[-1] else "") + words.pop(0)
    return hang(start, [f'"{row}"' for row in rows], ")")


def table(name: str, entries: Sequence[str]) -> list[str]:
    """`NAME = {…}` with as many entries a line as fit."""
    start = f"{name} = {{"
    rows = [row.strip() for row in pack(entries, len(start))]
    return hang(start, [*rows[:-1], rows[-1].rstrip(",")], "}")


def each(layers: Sequence[str], call: str, indent: int) -> list[str]:
    """The statements that call a method of each of the policy's `layers`."""
    space = " " * indent
    if len(layers) == 1:
        return [f"{space}self.{layers[0]}.{call}"]
    start = f"{space}for layer in ("
    rows = [row.strip() for row in pack([f"self.{layer}" for layer in layers], len(start))]
    return [*hang(start, [*rows[:-1], rows[-1].rstrip(",")], "):"), f"{space}    layer.{call}"]


def hang(start: str, rows: Sequence[str], end: str) -> list[str]:
    """`start`, the rows below each other behind it, and `end` behind the last."""
    lines = [start + rows[0], *(" " * len(start) + row for row in rows[1:])]
    return [*lines[:-1], lines[-1] + end]


def _fixed(constant: Array) -> str:
    """The numbers of a fixed output, as nested lists if torch makes the same tensor of them."""
    text = re.sub(r"\b(inf|nan)\b", r'float("\1")', repr(constant.tolist()))
    if constant.dtype.name in ("float32", "int64", "bool") and constant.size:
        return text
    shape = "" if constant.size else f".reshape({constant.shape})"
    return f"torch.tensor({text}, dtype=torch.{constant.dtype.name}){shape}"
