"""What a policy is: blocks in the order of the data, and the contract (inputs and outputs by meaning).

Matching gives one `Block` a place; the family (rules/mlagents/family.py) names them and says what inputs and outputs
mean; the result is a `PolicySpec`, from which the source is written and the weights are bound.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

from .act.contract import Acting, Draw, Input
from .graph import Array, Graph, Node
from .match import Match, NearMiss, Refusal


@dataclass(frozen=True, slots=True)
class Rearrangement:
    """How a graph's constant becomes a layer's tensor, where that takes more than transposing: in words, and done.

    It may reorder, cut and reshape, not compute: what it makes is compared with the checkpoint's tensor bit by bit.
    """

    words: str
    apply: Callable[[Array], Array]

    def __str__(self) -> str:
        return self.words


Transform: TypeAlias = "Literal['as is', 'transposed'] | Rearrangement"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A tensor that a block takes from the graph.

    name:      its name in the layer ("weight")
    value:     the graph's constant
    key:       its name in the checkpoint, after the module's prefix; None where the checkpoint has no such tensor
    transform: how the graph's constant becomes the layer's tensor
    trainable: a parameter, or else a buffer
    place:     its own attribute in the policy, where it isn't its block's: several operators may share it
    """

    name: str
    value: str
    key: str | None = None
    transform: Transform = "as is"
    trainable: bool = True
    place: str = ""


@dataclass(frozen=True, slots=True)
class Statistics:
    """A normaliser's statistics, which the graph holds folded into `std`: sqrt(running_variance / normalization_steps).

    mean, std: graph's constants; variance, steps: graph's constants where they were not folded, else None
    """

    mean: str
    std: str | None
    variance: str | None = None
    steps: str | None = None


Argument: TypeAlias = "int | float | bool | tuple[int, ...]"


@dataclass(frozen=True, slots=True)
class Module:
    """Code that is a submodule: `self.NAME = CLASS(ARGUMENTS, KEYWORDS)` once, `self.NAME(inputs)` each time.

    class_name: "nn.Linear", or a class of the rule's layer.py
    """

    class_name: str
    arguments: tuple[Argument, ...] = ()
    keywords: tuple[tuple[str, Argument], ...] = ()

    @property
    def source(self) -> str:
        """`nn.Conv2d(3, 16, kernel_size=8, stride=4)`."""
        return f"{self.class_name}({', '.join([*map(repr, self.arguments), *(f'{name}={value!r}' for name, value in self.keywords)])})"


@dataclass(frozen=True, slots=True)
class Expression:
    """Code that is a Python expression over the pattern's names: `torch.exp(mu * 0 + log_sigma)`.

    Parameters of the block stand in it under their names and become the policy's own.
    draws:   random draws it needs, each a name and an expression for when the caller passes no noise; without an
             expression the name is None then, for a function of the layer that draws by itself
    starred: the name that stands for several values, written `[*parts]`
    """

    text: str
    draws: tuple[tuple[str, str], ...] = ()
    starred: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """One recognised part of the graph.

    rule:       "silu"
    inputs:     pattern name → the graph's values it reads (several for a variadic one), weights left out
    outputs:    the graph's values it makes
    nodes:      indices of the file's nodes that it stands for, looked-through ones included
    name:       its attribute in the policy ("normalizer"), given by the family
    role:       what it is, for people ("normaliser of obs_0", "hidden layer {number}"), given by the family; the number
                counts the blocks of that role
    label:      what its outputs are called in the source ("mu", "x, memory"), given by the family
    comment:    what its line in the source should be explained with, given by the family
    sequence:   the nn.Sequential it is part of, if any
    prefixes:   where a checkpoint likely keeps its tensors, likeliest first ("{n}" stands for its place in the sequence)
    layer:      the layer.py that holds the class or the functions it needs
    statistics: of a normaliser
    zeros:      keys of tensors that the graph lacks because they were zero; the checkpoint's must be zero, too
    drawn:      name of a draw in the code → the graph's value that the random operator makes
    """

    rule: str
    code: Module | Expression
    inputs: tuple[tuple[str, tuple[str, ...]], ...]
    outputs: tuple[str, ...]
    parameters: tuple[Parameter, ...] = ()
    nodes: tuple[int, ...] = ()
    family: str = ""
    name: str = ""
    role: str = ""
    label: str = ""
    comment: str = ""
    sequence: str = ""
    prefixes: tuple[str, ...] = ()
    layer: Path | None = None
    statistics: Statistics | None = None
    drawn: tuple[tuple[str, str], ...] = ()
    zeros: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(v for _, values in self.inputs for v in values)

    @property
    def globals(self) -> frozenset[str]:
        """Names of the module (torch, a function of the layer …) that its code uses."""
        if isinstance(self.code, Module):
            return frozenset({self.code.class_name.split(".")[0]})
        texts = [self.code.text, *(text for _, text in self.code.draws if text)]
        used = {name for text in texts for name in names_in(text)}
        return frozenset(used - {name for name, _ in (*self.inputs, *self.code.draws)} - {p.name for p in self.parameters})


def source_of(block: Block) -> str:
    """The block's code as model.py has it: "nn.Linear(59, 512)", "mu + z * sigma"."""
    return block.code.source if isinstance(block.code, Module) else block.code.text


@lru_cache(4096)
def names_in(expression: str) -> frozenset[str]:
    """The names that a Python expression uses. Many blocks have equal ones, and parsing takes longer than all else about them."""
    return frozenset(n.id for n in ast.walk(ast.parse(expression, mode="eval")) if isinstance(n, ast.Name))


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the policy a block stands, for its rule to name it.

    source:   the input (or part of it) that its data comes from: "obs_0", "vector_observation[:, 0:4]"; "" for several
    sources:  the inputs that all blocks of its rule come from, as far as each comes from one
    origins:  pattern name of an operand → the input that it comes from, as in source
    makers:   rules of the blocks that make what it reads
    readers:  rules of the blocks that read what it makes
    beyond:   rules of the blocks that read what those make
    before:   rules of the blocks that make what the makers read
    outputs:  names of the policy's outputs that are made of it
    number:   how many blocks of its rule stand before it; siblings: how many there are in all
    turn:     how many of those before it are read by the same rules; turns: how many of all are
    """

    source: str
    sources: frozenset[str]
    origins: Mapping[str, str]
    makers: frozenset[str]
    readers: frozenset[str]
    beyond: frozenset[str]
    outputs: tuple[str, ...]
    number: int
    siblings: int
    turn: int = 0
    turns: int = 1
    before: frozenset[str] = frozenset()

    @property
    def observation(self) -> str:
        """The number of the observation that its data comes from: "1" for obs_1; "" if it has none."""
        found = re.fullmatch(r"(?:visual_)?obs(?:ervation)?_(\d+)", self.source)
        return found.group(1) if found else ""

    @property
    def suffix(self) -> str:
        """What tells its name from those of other observations' blocks: "_1", or "" if there are none."""
        return f"_{self.observation}" if self.observation and len(self.sources) > 1 else ""


@dataclass(frozen=True, slots=True)
class Output:
    """An output of the policy. `value` is the graph's value behind it, `constant` its numbers if it is fixed."""

    name: str
    field: str
    size: str
    dtype: str
    meaning: str
    value: str
    constant: Array | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Method:
    """A further method of the policy that computes only what it needs: `result` is an expression over `values`.

    layers: files with the classes and functions that it needs
    """

    name: str
    returns: str
    result: str
    values: Mapping[str, str]
    comment: str = ""
    imports: tuple[str, ...] = ()
    layers: tuple[Path, ...] = ()


@dataclass(frozen=True)
class PolicySpec:
    """A policy, recognised. `noise`: field of Noise → the graph's value that is drawn; `title` one line for people.

    unexplained: nodes that can't be built; refusals: why not, by the node's index
    acting:      which outputs are actions
    """

    family: str
    title: str
    graph: Graph
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    blocks: tuple[Block, ...]
    noise: Mapping[str, str]
    methods: tuple[Method, ...] = ()
    unexplained: tuple[Node, ...] = ()
    refusals: Mapping[int, Refusal] = field(default_factory=dict)
    near_misses: tuple[NearMiss, ...] = ()
    acting: Acting = field(default_factory=Acting)

    def draws(self) -> tuple[Draw, ...]:
        """What each field of Noise is drawn from, in order."""
        makers = {value: node for node in self.graph.nodes for value in node.outputs}
        return tuple(self._draw(name, value, makers[value]) for name, value in self.noise.items())

    def _draw(self, name: str, value: str, node: Node) -> Draw:
        given = {key: float(number) for key, number in node.attributes.items() if isinstance(number, (int, float))}
        if node.op == "Multinomial":  # an option is drawn by a uniform number
            return Draw(name, "uniform", ("batch", int(given.get("sample_size", 1))))
        if self.acting.continuous:  # the graph may not tell its sizes, but a head's noise is as wide as its actions
            shape: tuple[int | str | None, ...] | None = ("batch", self.acting.continuous)
        else:
            shape = known.shape if (known := self.graph.types.get(value)) else None
        if "Normal" in node.op:
            return Draw(name, "normal", shape, given.get("mean", 0.0), given.get("scale", 1.0))
        low, high = given.get("low", 0.0), given.get("high", 1.0)
        return Draw(name, "uniform", shape, low, high - low)

    def parameter_path(self, block: Block, parameter: Parameter) -> str:
        """The tensor's key in the policy's state_dict: "body.0.weight"."""
        if parameter.place:
            return parameter.place
        return f"{self.module_path(block)}.{parameter.name}" if isinstance(block.code, Module) else block.name or parameter.name

    def module_path(self, block: Block) -> str:
        """Its place in the policy: "normalizer", "body.0"."""
        return f"{block.sequence}.{self.position(block)}" if block.sequence else block.name

    def position(self, block: Block) -> int:
        """Its place in its nn.Sequential; 0 for a block that is in none."""
        return self._positions[id(block)] if block.sequence else 0

    @cached_property
    def _positions(self) -> Mapping[int, int]:
        """Identity of a block → its place among those of its sequence."""
        numbers: Counter[str] = Counter()
        found = {}
        for block in self.blocks:
            found[id(block)] = numbers[block.sequence]
            numbers[block.sequence] += 1
        return found

    def prefixes(self, block: Block) -> tuple[str, ...]:
        """Where a checkpoint likely keeps the block's tensors, likeliest first."""
        return tuple(prefix.replace("{n}", str(self.position(block))) for prefix in block.prefixes)

    def coverage(self) -> Coverage:
        """Which of the file's nodes are explained by which rule; every node is counted once."""
        by_rule: dict[str, set[int]] = {}
        counted: set[int] = set()
        generic: set[int] = set()
        for block in self.blocks:
            mine = set(block.nodes) - counted
            counted |= mine
            generic |= mine if block.family == "generic" else set()
            by_rule.setdefault(block.rule, set()).update(mine)
        makers = {value: block for block in self.blocks for value in block.outputs}
        for output in self.outputs:
            if maker := makers.get(output.value):  # what only hands the block's value on to an output
                mine = set(self.graph.through.get(output.name, ())) - counted
                counted |= mine
                generic |= mine if maker.family == "generic" else set()
                by_rule[maker.rule].update(mine)
        unexplained = {i for n in self.unexplained for i in (n.index, *n.through)} - counted
        everything = set(range(len(self.graph.file_nodes)))
        inert = everything - counted - unexplained
        return Coverage(
            len(everything),
            {rule: tuple(sorted(nodes)) for rule, nodes in by_rule.items()},
            tuple(sorted(inert)),
            tuple(sorted(unexplained)),
            tuple(sorted(generic)),
        )


@dataclass(frozen=True, slots=True)
class Coverage:
    """Indices of the file's nodes: by rule, inert (metadata, dead code), unexplained; and which of the first are generic."""

    total: int
    by_rule: Mapping[str, tuple[int, ...]]
    inert: tuple[int, ...]
    unexplained: tuple[int, ...]
    generic: tuple[int, ...] = ()


def block_of(match: Match, code: Module | Expression, parameters: tuple[Parameter, ...] = (), **more: object) -> Block:
    """The block of a match: inputs, outputs and nodes taken from it. `more` goes to Block."""
    weights = {p.value for p in parameters}
    inputs = []
    for name in match.pattern.inputs:
        values = tuple(v for v in match.operands(name) if v not in weights and v not in match.graph.constants)
        if values:
            inputs.append((name, values))
    nodes = tuple(sorted({i for n in match.nodes for i in (n.index, *n.through)}))
    outputs = tuple(match.values[o] for o in match.pattern.outputs)
    drawn = tuple((name, match.values.get(name, outputs[0])) for name, _ in code.draws) if isinstance(code, Expression) else ()
    return Block(rule="", code=code, inputs=tuple(inputs), outputs=outputs, parameters=parameters, nodes=nodes, drawn=drawn, **more)  # type: ignore[arg-type]


def end_names(spec: PolicySpec) -> tuple[list[str], list[str]]:
    """What inputs and outputs are called while torch exports: it refuses some names (numbers) and gives others to values of its own."""
    return [f"graph2torch.in.{i}" for i in range(len(spec.inputs))], [f"graph2torch.out.{i}" for i in range(len(spec.outputs))]
