"""Two checkpoints (.pt): tensors by key, renamed ones by content, module by module; the policy's own decide."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from graph2torch.checkpoint import Modules, Plain, load_modules
from graph2torch.graph import Array
from graph2torch.judge.figures import same_bits
from graph2torch.text import quoted

from .weights import Weight, compare

POLICY = "Policy"  # ML-Agents' name of it
STEP = "global_step"


@dataclass(frozen=True, slots=True)
class ModuleDifference:
    """One module of both files, or of one of them.

    network:   whether its tensors are (part of) the network that is compared
    tensors:   how many a has, and b
    numbers:   in the tensors that both have
    equal:     tensors whose type, shape and bits are the same, renamed ones among them
    renamed:   tensors of the same bits under other keys
    differing: tensors of one key that are not the same
    removed, added: keys in a only, in b only
    values:    numbers and texts beside the tensors that differ: key, a's, b's
    """

    name: str
    network: bool
    tensors: tuple[int, int]
    numbers: int
    equal: int
    renamed: tuple[tuple[str, str], ...]
    differing: tuple[Weight, ...]
    removed: tuple[str, ...]
    added: tuple[str, ...]
    values: tuple[tuple[str, Plain, Plain], ...]

    @property
    def same(self) -> bool:
        return not (self.differing or self.removed or self.added or self.values)

    @property
    def same_shapes(self) -> bool:
        return not (self.removed or self.added or any(w.a_shape != w.b_shape for w in self.differing))


@dataclass(frozen=True)
class CheckpointDifference:
    """In what two checkpoints differ, module by module in a's order; `same_file`: byte for byte the same."""

    same_file: bool
    modules: tuple[ModuleDifference, ...]
    steps: tuple[int | None, int | None]
    unread: tuple[str, ...]

    @property
    def network(self) -> tuple[ModuleDifference, ...]:
        return tuple(m for m in self.modules if m.network)


def load_both(a: Path, b: Path) -> tuple[Modules, Modules]:
    return load_modules(a), load_modules(b)


def compare_checkpoints(a: Modules, b: Modules) -> tuple[bool, str, CheckpointDifference]:
    """Whether the networks in two files are equal, what they are to each other in a line, and the details.

    The network is ML-Agents' module "Policy" where both have it; else every module that is a flat dictionary of tensors.
    """
    networks = _networks(a, b)
    names = list(dict.fromkeys((*a.tensors, *a.values, *b.tensors, *b.values)))
    modules = tuple(_compare_module(name, a, b, name in networks) for name in names)
    found = CheckpointDifference(a.sha256 == b.sha256, modules, (a.step, b.step), tuple(dict.fromkeys((*a.unread, *b.unread))))
    return (*_verdict(found), found)


def _networks(a: Modules, b: Modules) -> frozenset[str]:
    if POLICY in a.tensors and POLICY in b.tensors:
        return frozenset({POLICY})
    flat = [
        {
            name
            for name, tensors in m.tensors.items()
            if name != STEP and not m.values.get(name) and not any(k.startswith("state.") for k in tensors)
        }
        for m in (a, b)
    ]
    return frozenset(flat[0] | flat[1]) or frozenset({*a.tensors, *b.tensors} - {STEP})


def _compare_module(name: str, a: Modules, b: Modules, network: bool) -> ModuleDifference:
    mine, theirs = a.tensors.get(name, {}), b.tensors.get(name, {})
    both = [k for k in mine if k in theirs]
    differing = tuple(compare(k, k, mine[k], theirs[k]) for k in both if not same_bits(mine[k], theirs[k]))
    renamed = tuple(_renamed({k: v for k, v in mine.items() if k not in theirs}, {k: v for k, v in theirs.items() if k not in mine}))
    old, new = {x for x, _ in renamed}, {y for _, y in renamed}
    return ModuleDifference(
        name=name,
        network=network,
        tensors=(len(mine), len(theirs)),
        numbers=sum(mine[k].size for k in both) + sum(mine[x].size for x, _ in renamed),
        equal=len(both) - len(differing) + len(renamed),
        renamed=renamed,
        differing=differing,
        removed=tuple(k for k in mine if k not in theirs and k not in old),
        added=tuple(k for k in theirs if k not in mine and k not in new),
        values=tuple(_values(a.values.get(name, {}), b.values.get(name, {}))),
    )


def _renamed(mine: Mapping[str, Array], theirs: Mapping[str, Array]) -> Iterator[tuple[str, str]]:
    """Tensors of the same type, shape and bits, in a's order."""
    if not mine or not theirs:
        return
    left: dict[object, list[str]] = {}
    for key, array in reversed(list(theirs.items())):
        left.setdefault(_content(array), []).append(key)
    for key, array in mine.items():
        if keys := left.get(_content(array)):
            yield key, keys.pop()


def _content(array: Array) -> object:
    return array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).digest()


def _values(mine: Mapping[str, Plain], theirs: Mapping[str, Plain]) -> Iterator[tuple[str, Plain, Plain]]:
    for key in dict.fromkeys((*mine, *theirs)):
        x, y = mine.get(key), theirs.get(key)
        if (key in mine) != (key in theirs) or repr(x) != repr(y):
            yield key, x, y


def _verdict(found: CheckpointDifference) -> tuple[bool, str]:
    if found.same_file:
        return True, "identical: the two files are the same, byte for byte"
    network = found.network
    compared, equal = sum(m.equal + len(m.differing) for m in network), sum(m.equal for m in network)
    renamed = sum(len(m.renamed) for m in network)
    elsewhere = [m.name or "the rest" for m in found.modules if not m.network and not m.same]
    if all(not (m.differing or m.removed or m.added) for m in network) and compared:
        called = f", {_tensors(renamed)} renamed" if renamed else ""
        rest = (
            f"; {', '.join(map(quoted, elsewhere[:3]))}{' and others' if len(elsewhere) > 3 else ''} differ"
            if elsewhere
            else "; so is everything else"
        )
        return (
            True,
            f"identical networks: {'the one tensor is' if compared == 1 else f'all {compared:,} tensors are'} bit-equal{called}{rest}",
        )
    if all(m.same_shapes for m in network):
        return False, f"the same network, other weights: {compared - equal:,} of {_tensors(compared)} differ"
    first = next(iter(_first(network)), "")
    shared = f"; {equal:,} of {_tensors(compared)} that both have are bit-equal" if equal else ""
    return False, f"different networks: {first}{shared}"


def _first(network: tuple[ModuleDifference, ...]) -> Iterator[str]:
    """What is built differently, in words."""
    for m in network:
        yield from (f"{quoted(w.a)} is {list(w.a_shape)} → {list(w.b_shape)}" for w in m.differing if w.a_shape != w.b_shape)
        for keys, whose in ((m.removed, "the first"), (m.added, "the second")):
            if keys:
                more = f" and {len(keys) - 1:,} more are" if len(keys) > 1 else " is"
                yield f"{quoted(keys[0])}{more} in {whose} only"


def _tensors(count: int) -> str:
    return f"{count:,} tensor{'' if count == 1 else 's'}"
