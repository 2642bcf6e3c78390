"""Names the blocks of a policy: each rule is told where its block stands, and chains become an nn.Sequential."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from .act.contract import Input
from .graph import Graph
from .spec import Block, Expression, Module, Output, Place
from .text import MEMBERS, identifier, printable

if TYPE_CHECKING:
    from .rulebook import Rule


PART = 200  # letters; "obs_0[:, 4:7]" takes 13, and parts of parts of parts … need no name


def name_blocks(graph: Graph, blocks: tuple[Block, ...], rules: Mapping[str, Rule], taken: set[str]) -> tuple[Block, ...]:
    """The blocks as their rules describe them, with names that are unique and not in `taken`."""
    sources = _sources(graph, blocks)
    makers = {value: block.rule for block in blocks for value in block.outputs}
    made_of = {value: frozenset(makers[v] for v in block.reads if v in makers) for block in blocks for value in block.outputs}
    readers: dict[str, list[Block]] = {}
    for block in blocks:
        for value in dict.fromkeys(block.reads):
            readers.setdefault(value, []).append(block)

    outputs = {value: name.name for name, value in reversed([*zip(graph.outputs, graph.results, strict=True)])}  # the first name counts
    read_by_value = {value: frozenset(reader.rule for reader in found) for value, found in readers.items()}
    read_by = [_union(read_by_value.get(value) for value in block.outputs) for block in blocks]
    after = {id(block): rules_there for block, rules_there in zip(blocks, read_by, strict=True)}
    beyond_value = {value: _union(after[id(reader)] for reader in found) for value, found in readers.items()}
    origins = [printable(_common(sources.get(value, "") for value in block.reads)) for block in blocks]
    sources_of: dict[str, set[str]] = {}
    for block, origin in zip(blocks, origins, strict=True):
        sources_of.setdefault(block.rule, set()).update({origin} - {""})
    frozen = {rule: frozenset(found) for rule, found in sources_of.items()}
    siblings = Counter(block.rule for block in blocks)
    turns = Counter((block.rule, there) for block, there in zip(blocks, read_by, strict=True))
    number: Counter[str] = Counter()
    turn: Counter[tuple[str, frozenset[str]]] = Counter()
    described = [*blocks]
    for i in by_outputs(graph, blocks):  # numbers mean something: branch 0 is the first action, wherever its nodes stand in the file
        block, origin, there = blocks[i], origins[i], read_by[i]
        kind = block.rule, there
        if block.rule in rules:  # else from a table of operators
            place = Place(
                source=origin,
                sources=frozen[block.rule],
                origins={name: printable(_common(sources.get(value, "") for value in values)) for name, values in block.inputs},
                makers=frozenset(makers[value] for value in block.reads if value in makers),
                readers=there,
                beyond=_union(beyond_value.get(value) for value in block.outputs),
                before=_union(made_of.get(value) for value in block.reads),
                outputs=tuple(outputs[value] for value in block.outputs if value in outputs),
                number=number[block.rule],
                siblings=siblings[block.rule],
                turn=turn[kind],
                turns=turns[kind],
            )
            described[i] = rules[block.rule].describe(block, place)
        number[block.rule] += 1
        turn[kind] += 1
    return _own_tensors(_told_apart(_sequences(tuple(described), readers, set(graph.results), taken), rules), rules, taken)


def by_outputs(graph: Graph, blocks: tuple[Block, ...]) -> tuple[int, ...]:
    """The blocks' indices, what an output needs before it, the first output's first; then those that no output needs.

    It follows what is declared (the order of outputs, and of a node's inputs), not the order of nodes, which is any topological one.
    """
    made = {value: i for i, block in enumerate(blocks) for value in block.outputs}
    order: dict[int, None] = {}
    entered: set[int] = set()
    roots = [made[value] for value in graph.results if value in made]
    todo = [*range(len(blocks) - 1, -1, -1), *reversed(roots)]
    while todo:
        i = todo[-1]
        if i in entered:
            order.setdefault(todo.pop())
        else:
            entered.add(i)
            todo += [made[value] for value in reversed(blocks[i].reads) if value in made and made[value] not in entered]
    return tuple(order)


def inputs_of(graph: Graph, reserved: Iterable[str] = ()) -> tuple[Input, ...]:
    """The graph's inputs under Python names that are unique and not `reserved`; what they mean is the family's to say."""
    used = {v for node in graph.nodes for v in node.inputs} | set(graph.results)
    fields = {"self", "noise", *reserved}
    inputs: list[Input] = []
    for value in graph.inputs:
        field = identifier(value.name, fields, "input")
        fields.add(field)
        inputs.append(Input(value.name, field, value.size, value.shape, value.dtype.name, "", value.name in used))
    return tuple(inputs)


def outputs_of(graph: Graph) -> tuple[Output, ...]:
    """The graph's outputs under Python names that are unique and no member of a module or a named tuple."""
    fields = set(MEMBERS)
    outputs: list[Output] = []
    for declared, value in zip(graph.outputs, graph.results, strict=True):
        field = identifier(declared.name, fields, "output")
        fields.add(field)
        outputs.append(Output(declared.name, field, declared.size, declared.dtype.name, "", value, graph.constants.get(value)))
    return tuple(outputs)


def _told_apart(blocks: tuple[Block, ...], rules: Mapping[str, Rule]) -> tuple[Block, ...]:
    """What several blocks are called alike says which of them each is; single operators keep the operator's name."""
    several = Counter(block.role for block in blocks if block.rule in rules)
    seen: Counter[str] = Counter()
    named = []
    for block in blocks:
        if block.rule in rules and several[block.role] > 1:
            seen[block.role] += 1
            block = replace(block, role=f"{block.role} ({seen[block.role]} of {several[block.role]})")
        named.append(block)
    return tuple(named)


def _own_tensors(blocks: tuple[Block, ...], rules: Mapping[str, Rule], taken: set[str]) -> tuple[Block, ...]:
    """Tensors of single operators become the policy's own, called as the graph calls them, each once."""
    places: dict[str, str] = {}
    used = taken | MEMBERS
    named = []
    for block in blocks:
        if block.rule not in rules:
            for parameter in block.parameters:
                if parameter.value not in places:
                    places[parameter.value] = identifier(parameter.value, used, "constant")
                    taken.add(places[parameter.value])
                    used.add(places[parameter.value])
            block = replace(block, parameters=tuple(replace(p, place=places[p.value]) for p in block.parameters))
        named.append(block)
    return tuple(named)


def _union(sets: Iterable[frozenset[str] | None]) -> frozenset[str]:
    return frozenset[str]().union(*(found for found in sets if found))


def _common(sources: object) -> str:
    found = set(sources)  # type: ignore[call-overload]
    return found.pop() if len(found) == 1 else ""


def _sources(graph: Graph, blocks: tuple[Block, ...]) -> dict[str, str]:
    """value → the input it is, or the part of an input, or the only input that it comes from."""
    sources = {value.name: value.name for value in graph.inputs}
    for block in blocks:
        origin = _common(sources.get(value, "") for value in block.reads)
        if origin and isinstance(block.code, Expression) and block.code.text.startswith("x["):
            part = origin + block.code.text.removeprefix("x")
            sources[block.outputs[0]] = part if len(part) <= PART else ""
        elif origin:
            sources.update(dict.fromkeys(block.outputs, origin))
    return sources


def _sequences(blocks: tuple[Block, ...], readers: Mapping[str, list[Block]], results: set[str], taken: set[str]) -> tuple[Block, ...]:
    """Chains of modules that asked for the same sequence become one nn.Sequential; a lone module stays by itself.

    A chain's blocks come one after the other, where its first one stood, and every name is given once. The number in a role counts
    the blocks of that role: where another operator parts a chain, the second half goes on counting.
    """
    made = {block.outputs[0]: i for i, block in enumerate(blocks)}
    chains: dict[int, list[int]] = {}
    for i, block in enumerate(blocks):
        if not (block.sequence and isinstance(block.code, Module) and len(block.reads) == 1 and len(block.outputs) == 1):
            continue
        value = block.reads[0]
        before = made.get(value)
        alone = len(readers.get(value, ())) == 1 and value not in results
        if before in chains and alone and blocks[chains[before][-1]].sequence == block.sequence:
            chains[i] = chains.pop(before)
            chains[i].append(i)
        else:
            chains[i] = [i]
    starts = {chain[0]: chain for chain in chains.values()}
    chained = {i for chain in chains.values() for i in chain[1:]}
    named: list[Block] = []
    numbers: Counter[str] = Counter()
    for i in (i for i in range(len(blocks)) if i not in chained):
        chain = [blocks[j] for j in starts.get(i, [i])]
        single = len(chain) == 1
        name = chain[0].name if single else chain[0].sequence
        if name:
            name = identifier(name, taken)
            taken.add(name)
        for block in chain:
            numbers[block.role] += 1
            role = block.role.replace("{number}", str(numbers[block.role]))
            named.append(replace(block, role=role, name=name if single else block.name, sequence="" if single else name))
    return tuple(named)
