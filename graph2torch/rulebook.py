"""Finds and loads rules: the built-in ones and a user's `--rules DIR` alike.

A family is a folder with a `family.py`; a rule is a folder in it with a `rule.py`, which holds

    PATTERNS         one or more ONNX functions, as text (alternatives)
    CONSTANTS        names of the captured inputs that must be constants
    VARIADIC         the captured input that stands for all remaining operands, if any
    SHARED           inner values that several matches may hold, each computing them for itself
    check(match)     None, or a Refusal
    lift(match)      the Block
    describe(block, place)  optional: the block with its name, role, label and prefixes in the checkpoint
    EXAMPLE          ONNX graphs, as text, that the rule must match; inputs named in CONSTANTS become random constants
    OPSETS           optional: name of an example → its opset, which is 9 otherwise
    RANGES           optional: name of a constant → the range its random values come from
    MAKERS           optional: rules that make what the examples read, where not any number will do (probabilities)
    NEAR_MISS        ONNX graphs, as text, that it must refuse

and, where torch has no layer of the kind, a `layer.py` beside it. Loading a rule never imports torch.

A family may also hold a table, operators.py: a row for each ONNX operator that it rebuilds by itself (see
`graph2torch.operators`). Tables are asked last, for the nodes that no rule has claimed.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Protocol, TypeAlias, cast

from .errors import Graph2TorchError, RuleError
from .graph import Graph, Node
from .match import Match, Matchable, NearMiss, Pattern, Refusal, match_rules, parse_pattern
from .operators import Operator, Table, table
from .order import topological
from .spec import Block, Module, Place, PolicySpec
from .text import one_line, printable, quoted

Rules: TypeAlias = "str | Path | Sequence[str | Path]"  # a folder with families of rules, or several
Setting: TypeAlias = "bool | int | str | None"


class Family(Protocol):
    """What a family.py holds: how its graphs are told, named and explained, and where its checkpoints keep what.

    It may also hold `settings(spec)`: what the trainer's configuration may say of the policy, as far as the graph tells;
    see `graph2torch.pair`.
    """

    def detect(self, graph: Graph) -> bool:
        """Whether the graph is one of the family's."""

    def describe(self, graph: Graph, blocks: tuple[Block, ...], rules: Mapping[str, Rule]) -> PolicySpec:
        """The policy that the blocks make up: inputs and outputs by meaning, blocks named by their rules."""

    def policy_module(self) -> str:
        """The checkpoint's entry that holds the policy's tensors ("Policy")."""


@dataclass(frozen=True)
class Rule(Matchable):
    """A rule as loaded from its folder."""

    name: str
    family: str
    summary: str
    doc: str
    patterns: tuple[Pattern, ...]
    folder: Path
    module: ModuleType

    def check(self, match: Match) -> Refusal | None:
        check = cast("Callable[[Match], Refusal | None] | None", getattr(self.module, "check", None))
        try:
            return check(match) if check else None
        except RuleError:
            raise
        except Exception as error:  # a file may hold anything in the pattern's places, and no rule thinks of everything
            return Refusal(f"the rule can't judge it ({type(error).__name__}: {error})", match.nodes[0])

    def lift(self, match: Match) -> Block:
        try:
            block = cast("Callable[[Match], Block]", self.module.lift)(match)
        except RuleError:
            raise
        except Exception as error:
            raise RuleError(
                f"The rule {self.family}/{self.name} accepts {match.nodes[0]} and then can't lift it ({type(error).__name__}: "
                f"{one_line(str(error), 160)}); its check has to refuse what it can't lift. Please report this model."
            ) from error
        if not isinstance(block, Block):
            raise RuleError(
                f"The rule {self.family}/{self.name} lifts {match.nodes[0]} to a {type(block).__name__}, which has to be a Block."
            )
        layer = self.folder / "layer.py"
        own = layer.is_file() and not (isinstance(block.code, Module) and block.code.class_name.startswith("nn."))
        return replace(block, rule=self.name, family=self.family, layer=layer if own else None)

    def describe(self, block: Block, place: Place) -> Block:
        """The block named by where it stands; by default after its rule."""
        describe = cast("Callable[[Block, Place], Block] | None", getattr(self.module, "describe", None))
        if describe:
            return describe(block, place)
        return replace(
            block, name=self.name if block.parameters or isinstance(block.code, Module) else "", role=self.name.replace("_", " ")
        )

    def examples(self, kind: str = "EXAMPLE") -> tuple[str, ...]:
        """The graphs in ONNX text that the rule must match (EXAMPLE) or refuse (NEAR_MISS)."""
        text = getattr(self.module, kind, ())
        return (text,) if isinstance(text, str) else tuple(text)


@dataclass(frozen=True)
class RuleBook:
    """Families in the order in which they are asked, each with its rules."""

    families: tuple[tuple[str, Family, tuple[Rule, ...]], ...]
    tables: tuple[Table, ...] = ()

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(rule for _, _, rules in self.families for rule in rules)

    def family(self, graph: Graph) -> tuple[str, Family, tuple[Rule, ...]]:
        """The first family that knows the graph; the last one (generic) knows any."""
        for entry in self.families:
            try:
                known = entry[1].detect(graph)
            except Exception as error:
                what = one_line(f"{type(error).__name__}: {error}", 160)
                raise RuleError(
                    f"The family {entry[0]} can't tell whether it knows this graph ({what}). Please report this model."
                ) from error
            if known:
                return entry
        return self.families[-1]

    def recognise(self, graph: Graph) -> PolicySpec:
        """The policy in a canonical graph: matched, lifted and described by its family."""
        label, family, _ = self.family(graph)
        rules = {(rule.family, rule.name): rule for rule in self.rules if rule.family in (label, "generic")}
        claims, misses = match_rules(graph, tuple(rules.values()))
        by_name = {rule.name: rule for rule in rules.values()}
        lifted = [by_name[claim.rule].lift(claim.match) for claim in claims]
        claimed = {n.index for claim in claims for n in claim.match.nodes}
        refused: list[tuple[Node, Refusal | None]] = []
        for node in graph.nodes:
            if node.index not in claimed:
                made = self.rebuild(graph, node, label)
                if isinstance(made, Block):
                    lifted.append(made)
                else:
                    refused.append((node, made))
        blocks = in_order(graph, lifted)
        try:
            spec = family.describe(graph, blocks, by_name)
        except Graph2TorchError:
            raise
        except Exception as error:
            raise RuleError(
                f"The family {label} knows this graph and then can't describe it ({type(error).__name__}: {one_line(str(error), 160)}); "
                f"its describe has to take any graph that its detect accepts. Please report this model."
            ) from error
        if not isinstance(spec, PolicySpec):
            raise RuleError(f"The family {label} describes this graph by a {type(spec).__name__}, which has to be a PolicySpec.")
        refusals = {node.index: refusal for node, refusal in refused if refusal}
        return replace(spec, unexplained=tuple(node for node, _ in refused), refusals=refusals, near_misses=tuple(misses))

    def rebuild(self, graph: Graph, node: Node, family: str) -> Block | Refusal | None:
        """The node by itself, from a table; why not, or None if there is no table."""
        refusal = None
        for rows in self.tables:
            if rows.family in (family, "generic"):
                try:
                    made = rows.lift(graph, node)
                except Exception as error:
                    made = Refusal(f"its row in the table can't judge it ({type(error).__name__}: {error})", node)
                if isinstance(made, Block):
                    return made
                refusal = made
        return refusal


def in_order(graph: Graph, blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks in the graph's order, each after those whose values it reads."""
    place = {node.index: i for i, node in enumerate(graph.nodes)}
    last = [max((place[i] for i in block.nodes if i in place), default=0) for block in blocks]
    maker = {value: i for i, block in enumerate(blocks) for value in block.outputs if value}
    before = [{maker[v] for v in block.reads if v in maker} - {i} for i, block in enumerate(blocks)]
    order = topological(before, last)
    if len(order) < len(blocks):
        stuck = next(block for i, block in enumerate(blocks) if i not in order)
        raise RuleError(
            f"The places that the rule {stuck.rule} matched need each other's results; a rule must not match around another one."
        )
    return tuple(blocks[i] for i in order)


def builtin_folder() -> Path:
    """Where the built-in rules lie: in the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    return package / "rules" if (package / "rules").is_dir() else package.parent / "rules"


def folders_of(rules: Rules) -> tuple[str | Path, ...]:
    """The folders that a caller gave: a single one may stand by itself."""
    return (rules,) if isinstance(rules, (str, Path)) else tuple(rules)


def load_rules(*folders: str | Path) -> RuleBook:
    """The built-in families, preceded by those of `folders`. Raises RuleError for a rule that can't be used.

    A family that was loaded before in this process is not parsed again unless one of its files has changed since.
    """
    paths = [path for folder in (*map(Path, folders), builtin_folder()) for path in _families(folder)]
    paths.sort(key=lambda path: path.name == "generic")
    loaded = [_load_once(path) for path in paths]
    return RuleBook(tuple(entry for entry, _ in loaded), tuple(rows for _, rows in loaded if rows))


Entry: TypeAlias = "tuple[str, Family, tuple[Rule, ...]]"
Stamps: TypeAlias = "tuple[tuple[str, int, int], ...]"
_loaded: dict[Path, tuple[Stamps, tuple[Entry, Table | None]]] = {}


def _load_once(folder: Path) -> tuple[Entry, Table | None]:
    """A family with its table, read again only if a file was added, removed or changed."""
    stamps = _stamps(folder)
    if folder not in _loaded or _loaded[folder][0] != stamps:
        rows = _load_table(folder) if (folder / "operators.py").is_file() else None
        _loaded[folder] = stamps, (_load_family(folder), rows)
    return _loaded[folder][1]


def _stamps(folder: Path) -> Stamps:
    """Of the folder and its Python files."""
    files = sorted([*folder.glob("*.py"), *folder.glob("*/*.py")])
    return ((str(folder.absolute()), 0, 0), *((str(path), *_stamp(path)) for path in files))


def _stamp(path: Path) -> tuple[int, int]:
    """When a file was changed, and its size; zeros for one that can't be found, which fails when it is run."""
    try:
        stats = path.stat()
    except OSError:
        return 0, 0
    return stats.st_mtime_ns, stats.st_size


def _families(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise RuleError(f"The rules folder {quoted(str(folder))} does not exist; give a folder with families in it.")
    found = sorted(path.parent for path in folder.glob("*/family.py"))
    if not found and (folder / "family.py").is_file():
        raise RuleError(f"The rules folder {quoted(str(folder))} is a family itself; give the folder that it lies in.")
    if not found:
        raise RuleError(f"The rules folder {quoted(str(folder))} has no family in it (a folder with a family.py).")
    return found


def _load_family(folder: Path) -> Entry:
    rules = tuple(_load_rule(path.parent, folder.name) for path in sorted(folder.glob("*/rule.py")))
    return folder.name, cast(Family, _import(folder / "family.py")), rules


def _load_table(folder: Path) -> Table:
    rows = getattr(_import(folder / "operators.py"), "OPERATORS", ())
    if not rows or not all(isinstance(row, Operator) for row in rows):
        raise RuleError(f"{_shown(folder / 'operators.py')} needs OPERATORS, a table of graph2torch.operators.Operator.")
    return table(folder.name, rows, folder / "layer.py", check=not folder.is_relative_to(builtin_folder()))  # the tests check those


def _load_rule(folder: Path, family: str) -> Rule:
    where = _shown(folder / "rule.py")
    module = _import(folder / "rule.py")
    texts = getattr(module, "PATTERNS", None)
    if not texts or not hasattr(module, "lift"):
        raise RuleError(f"{where} needs PATTERNS (ONNX functions, as text) and lift(match).")
    constant_inputs = frozenset(getattr(module, "CONSTANTS", ()))
    variadic, shared = getattr(module, "VARIADIC", ""), getattr(module, "SHARED", ())
    patterns = []
    for text in (texts,) if isinstance(texts, str) else tuple(texts):
        head = re.search(r"\(([^)]*)\)\s*=>", text)
        inputs = {name.strip() for name in head.group(1).split(",")} if head else set()
        patterns.append(parse_pattern(text, where, constant_inputs & inputs, variadic if variadic in inputs else "", shared))
    doc = (module.__doc__ or "").strip()
    if not doc:
        raise RuleError(f"{where} needs a docstring that says where the idiom comes from.")
    return Rule(folder.name, family, doc.splitlines()[0], doc, tuple(patterns), folder, module)


def _shown(path: Path) -> str:
    """A rule's file as its user knows it: by its path, a built-in one from `rules` on."""
    return printable(str(Path("rules") / path.relative_to(builtin_folder()) if path.is_relative_to(builtin_folder()) else path), 200)


def _import(path: Path) -> ModuleType:
    """Runs a rule's or family's file as a module of its own name; RuleError for one that fails."""
    name = "graph2torch_rules." + ".".join(re.sub(r"\W", "_", part) for part in path.with_suffix("").parts[-3:])
    stamp = _stamp(path)
    cached = sys.modules.get(name)
    if cached is not None and cached.__file__ == str(path) and vars(cached).get("__stamp__") == stamp:
        return cached
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RuleError(f"{path.name} can't be loaded as Python.")
    module = importlib.util.module_from_spec(spec)
    vars(module)["__stamp__"] = stamp
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except RuleError:
        raise
    except Exception as error:
        del sys.modules[name]
        raise RuleError(f"The rule file {quoted(str(path))} can't be loaded: {type(error).__name__}: {one_line(str(error))}.") from error
    return module


__all__ = ["Family", "NearMiss", "Rule", "RuleBook", "builtin_folder", "load_rules"]
