"""What report.html says, as plain data: made of report.json, model.py and the weights, whether they were just built or are read again.

All of it is untrusted: a folder may come from anyone. Every text goes through `printable`, every number is made a number, and what
has another form than build writes is a ValueError, KeyError or TypeError, which `report_folder` tells as a FolderError.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from graph2torch.graph import Array
from graph2torch.inspect.statistics import trained_normalizers
from graph2torch.judge.figures import TOLERANCE
from graph2torch.show.figures import runs_of
from graph2torch.show.parts import LEVELS, MEANINGS
from graph2torch.text import counted, printable

from .charts import ErrorChart, Histogram, Measured, Statistics, error_chart, histogram, shortly, statistics
from .drawing import DRAWN, Drawing, box, brief, placed
from .source import Line, highlighted, shifted

MOST = 10_000  # entries of a list in report.json; build makes at most 5,000 nodes
SNIPPET = 24  # lines of model.py beside a block; the listing has them all
LISTED = 40  # nodes of a block, tensors that drift, names that nothing used
HELD = 2**22  # numbers of which a histogram is drawn; beyond, every n-th is taken, and the page says so
ORDER = ("differs", "close", "bits", "graph", "bytes")


class Fact(NamedTuple):
    """A line of how the verdict was reached. mark: "yes", "no" or "–" where it says neither."""

    mark: str
    label: str
    text: str


class FileRow(NamedTuple):
    name: str
    what: str
    size: str
    sha256: str


class Value(NamedTuple):
    """An input or an output of the policy, by meaning."""

    name: str
    field: str
    shape: str
    dtype: str
    meaning: str
    kind: str
    note: str


class Tensor(NamedTuple):
    """A tensor of the policy. state: "same" (graph and checkpoint hold the same bits), "drift", or "" where only one has it.

    source: whose numbers model.py has: "checkpoint", "graph", or "derived" from another tensor
    every:  the histogram is of every n-th number
    """

    path: str
    shape: str
    dtype: str
    numbers: int
    trainable: bool
    checkpoint: str
    graph: str
    transform: str
    note: str
    state: str
    source: str
    drift: str
    histogram: Histogram | None
    every: int
    block: int | None


class Node(NamedTuple):
    number: int
    op: str
    name: str


class Link(NamedTuple):
    """To a block by its number; to an input or output if it has none."""

    text: str
    block: int | None = None


class Snippet(NamedTuple):
    what: str
    lines: tuple[tuple[int, Line], ...]


class Block(NamedTuple):
    """One block: what it is, where it hangs, its nodes, its lines, its tensors, its errors."""

    number: int
    role: str
    rule: str
    summary: str
    module: str
    code: str
    single: bool
    reads: tuple[Link, ...]
    feeds: tuple[Link, ...]
    nodes: tuple[Node, ...]
    more_nodes: int
    snippets: tuple[Snippet, ...]
    definitions: tuple[tuple[str, int, int], ...]
    tensors: tuple[Tensor, ...]
    errors: tuple[Measured, ...]
    lines: tuple[int, ...]


class Normaliser(NamedTuple):
    """known: whether it can be told which columns never changed, as the checkpoint's variance tells it."""

    role: str
    module: str
    steps: str
    known: bool
    drawing: Statistics
    block: int | None


class Share(NamedTuple):
    """A part of the graph's nodes. kind: "rule", "single", "inert" or "unexplained"."""

    label: str
    nodes: int
    kind: str


class PairView(NamedTuple):
    verdict: str
    same: bool
    meaning: str
    lines: tuple[str, ...]
    drifting: tuple[Tensor, ...]
    metadata: tuple[str, ...]
    settings: tuple[tuple[str, str, str, str], ...]
    modules: tuple[tuple[str, str, str], ...]
    unused: tuple[str, ...]
    more_unused: int


class Report(NamedTuple):
    """Everything on the page, in its order."""

    version: str
    name: str
    title: str
    level: str
    equal: bool
    words: str
    reason: str
    stronger: str
    ladder: tuple[tuple[str, bool, str], ...]
    facts: tuple[Fact, ...]
    divergence: str
    causes: tuple[str, ...]
    files: tuple[FileRow, ...]
    written: tuple[tuple[str, str], ...]
    weights_from: str
    versions: tuple[tuple[str, str], ...]
    changed: tuple[str, ...]
    warnings: tuple[str, ...]
    drawing: Drawing | None
    blocks: tuple[Block, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    noise: tuple[tuple[str, str, str], ...]
    normalisers: tuple[Normaliser, ...]
    by_output: ErrorChart | None
    bit_equal: tuple[str, ...]
    by_block: ErrorChart | None
    by_block_of: str
    runs: str
    tensors: tuple[Tensor, ...]
    trained: int
    pair: PairView | None
    shares: tuple[Share, ...]
    nodes: int
    inert_nodes: tuple[Node, ...]
    more_inert: int
    near_misses: tuple[str, ...]
    source: tuple[Line, ...]


def of_document(
    document: Mapping[str, Any],
    source: str,
    tensors: Mapping[str, Array],
    verification: Mapping[str, Any] | None = None,
    changed: Sequence[str] = (),
) -> Report:
    """The page of a built policy.

    document:     report.json; source: of model.py; tensors: of weights.safetensors, by their keys
    verification: what `verify --json` prints, for the errors block by block
    changed:      files of the folder that are not as build wrote them: lines of a model.py that was changed are not told

    Raises ValueError, KeyError or TypeError for a document of another form.
    """
    return _Reader(document, source, tensors, verification, changed).run()


# ---------------------------------------------------------------------------------------------- untrusted data
T = TypeVar("T")


def _is(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"a value is no {kind.__name__}")
    return value


def _list(value: Any) -> Sequence[Any]:
    """A list, or a tuple where the document has not been through a file yet."""
    found: Sequence[Any] = value if isinstance(value, tuple) else _is(value, list)
    if len(found) > MOST:
        raise ValueError(f"a list has more than {MOST:,} entries")
    return found


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [_is(entry, dict) for entry in _list(value)]


def _text(value: Any, limit: int = 160) -> str:
    return "" if value is None else printable(_is(value, str), limit)


def _whole(value: Any) -> int:
    return _is(value, int)


def _count(value: Any) -> int:
    found = _whole(value)
    if found < 0:
        raise ValueError("a count is negative")
    return found


def _number(value: Any) -> float:
    """A number of report.json: one that is not finite is a word there."""
    if value in ("inf", "-inf", "nan"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError("a value is no number")
    return float(value)


def _shape(value: Any) -> str:
    if isinstance(value, str):
        return printable(value, 60)
    return "[" + ", ".join("?" if d is None else printable(str(d), 16) for d in _list(value)) + "]"


# ---------------------------------------------------------------------------------------------- the page
class _Reader:
    def __init__(
        self,
        document: Mapping[str, Any],
        source: str,
        tensors: Mapping[str, Array],
        verification: Mapping[str, Any] | None,
        changed: Sequence[str],
    ) -> None:
        self.document, self.tensors, self.verification = document, tensors, verification
        self.changed = tuple(changed)
        self.told = _is(document["architecture"], dict)
        self.raw = _dicts(self.told["blocks"])
        self.source = highlighted(source)
        self.makers = {value: i for i, raw in enumerate(self.raw) for value in self.values(raw.get("makes", []))}
        self.read: dict[str, list[int]] = {}  # value → the blocks that read it
        for i, raw in enumerate(self.raw):
            for value in self.values(raw.get("reads", [])):
                self.read.setdefault(value, []).append(i)
        self.results: dict[str, list[str]] = {}  # value → the outputs that it is
        for output in _dicts(self.told["outputs"]):
            self.results.setdefault(_is(output["value"], str), []).append(_is(output["name"], str))
        self.checked = _is(document["verification"], dict)
        self.owner = {path: i for i, raw in reversed(list(enumerate(self.raw))) for path in self.values(raw.get("parameters", []))}
        self.parameters = {_is(p["path"], str): p for p in _dicts(document["parameters"])}
        checkpoint = document["checkpoint"]
        self.checkpoint = None if checkpoint is None else _is(checkpoint, dict)
        self.drifts = {_is(d["parameter"], str): d for d in self.disagreements() if "parameter" in d}
        self.views = {path: self.tensor(path, p) for path, p in self.parameters.items()}

    @staticmethod
    def values(names: Any) -> list[str]:
        return [_is(name, str) for name in _list(names)]

    def disagreements(self) -> list[dict[str, Any]]:
        return [] if self.checkpoint is None else _dicts(self.checkpoint["disagreements"])

    def run(self) -> Report:
        level = _text(self.document["level"], 10)
        if level not in ORDER:
            raise ValueError("its level is none that there is")
        original = _is(self.document["original"], dict)
        measured, figures = self.by_block(), self.figures(self.checked["torch"])
        inert = _dicts(self.document.get("inert_nodes", []))
        blocks = tuple(self.block(i, measured) for i in range(len(self.raw)))
        pair = self.pair()
        equal = _is(self.document["equal"], bool) and (self.verification is None or _is(self.verification["equal"], bool))
        divergence = self.document["divergence"]
        divergence = {} if divergence is None else _is(divergence, dict)
        shares = self.shares()
        return Report(
            version=_text(self.document["graph2torch"], 20),
            name=re.sub(r"\.onnx$", "", _text(original["file"], 80)),
            title=_text(self.told["title"], 300),
            level=level,
            equal=equal,
            words=LEVELS[level],
            reason=_text(self.document["reason"], 600),
            stronger=ORDER[min(ORDER.index(level) + 1, len(ORDER) - 1)],
            ladder=tuple((name, ORDER.index(name) <= ORDER.index(level), LEVELS[name]) for name in ORDER),
            facts=tuple(self.facts(pair, shares)),
            divergence=_text(divergence.get("words"), 600),
            causes=tuple(_text(cause["words"], 400) for cause in _dicts(divergence.get("causes", []))),
            files=tuple(self.files(original)),
            written=tuple((_text(k, 60), _text(v, 64)) for k, v in _is(self.document["files"], dict).items()),
            weights_from="checkpoint" if any(t.source == "checkpoint" for t in self.views.values()) else "graph",
            versions=tuple((_text(k, 40), _text(v, 40)) for k, v in _is(self.document["versions"], dict).items()),
            changed=tuple(printable(name, 60) for name in self.changed),
            warnings=tuple(_text(w, 400) for w in _list(original["warnings"])),
            drawing=self.drawing() if len(self.raw) <= DRAWN else None,
            blocks=blocks,
            inputs=tuple(self.inputs()),
            outputs=tuple(self.outputs()),
            noise=tuple(self.noise()),
            normalisers=tuple(self.normalisers()),
            by_output=error_chart([m for m in figures if m.differing]),
            bit_equal=tuple(m.label for m in figures if not m.differing)[:LISTED],
            by_block=error_chart([m for found in measured.values() for m in found]),
            by_block_of=self.by_block_of(),
            runs=runs_of([_is(run, str) for run in _list(self.checked["runs"])]),
            tensors=tuple(self.views.values()),
            trained=sum(t.numbers for t in self.views.values() if t.trainable),
            pair=pair,
            shares=shares,
            nodes=sum(s.nodes for s in shares),
            inert_nodes=tuple(Node(_whole(n["index"]), _text(n["op"], 40), _text(n["name"], 100)) for n in inert[:LISTED]),
            more_inert=max(sum(s.nodes for s in shares if s.kind == "inert") - LISTED, 0) if inert else 0,
            near_misses=tuple(self.near_misses()),
            source=self.source,
        )

    # ------------------------------------------------------------------------------------------ verdict
    def facts(self, pair: PairView | None, shares: Sequence[Share]) -> Iterator[Fact]:
        witness, checked = _is(self.document["witness"], dict), self.checked
        if _is(checked["isomorphic"], bool):
            nodes = len(_list(witness["nodes"])) + len(_list(witness["classes"]))
            constants = counted(len(_list(witness["initializers"])), "constant")
            yield Fact(
                "yes", "Structure", f"{counted(nodes, 'operator')}, each with its counterpart from inputs to outputs; {constants} bit-equal"
            )
        else:
            refusal, differing = _text(witness["refusal"], 300), len(_list(witness["differing"]))
            yield Fact("no", "Structure", refusal or f"operator by operator the same; {counted(differing, 'constant')} with other bits")
        rebuilt = _dicts(checked["rebuilt"])
        compared, differing = (sum(_whole(f[key]) for f in rebuilt) for key in ("compared", "differing"))
        result = f"all {compared:,} numbers bit-equal" if not differing else f"{differing:,} of {compared:,} numbers differ"
        yield Fact(
            "no" if differing else "yes",
            "onnxruntime",
            f"rebuilt.onnx against the original: {result} in {len(_list(checked['runs']))} runs",
        )
        figures = self.figures(checked["torch"])
        if figures:
            far = max((m for m in figures if m.limit is not None and not m.error <= m.limit), key=lambda m: m.error, default=None)
            within, most = far is None, max(m.error for m in figures)
            how = (
                "bit-equal"
                if not any(m.differing for m in figures)
                else f"off by {shortly(most, 2)} at most, within 1e−5 · max(1, largest output)"
                if far is None
                else f"off by {shortly(far.error, 2)} in {far.label}"
            )
            yield Fact("yes" if within else "no", "torch", f"model.py against the original: {how}")
        if pair is None:
            yield Fact("–", "Pair", "no checkpoint was given; the weights are the graph's")
        else:
            yield Fact("yes" if pair.same else "no", "Pair", f"{pair.verdict}: {pair.meaning}")
        single, unexplained = (sum(s.nodes for s in shares if s.kind == kind) for kind in ("single", "unexplained"))
        active = sum(s.nodes for s in shares if s.kind in ("rule", "single"))
        inert = sum(s.nodes for s in shares if s.kind == "inert")
        more = f", {single} of them as single operators" if single else ""
        yield Fact(
            "no" if unexplained else "yes", "Coverage", f"{active} of {sum(s.nodes for s in shares)} nodes explained{more}, {inert} inert"
        )
        if self.verification is not None:
            yield self.deeper(self.verification)
        else:
            yield Fact("–", "verify", "not on this page: much more is tried by graph2torch report DIR --verify")
        if (precision := self.document.get("precision")) is not None:
            yield self.rounded(_is(precision, dict))
        if self.document["device"] is not None:
            device = _is(self.document["device"], dict)
            within = _is(device["within"], bool)
            where = _text(device["name"], 60) + (", simulated" if _is(device["simulated"], bool) else "")
            limit = f"{_number(device['tolerance']):g} · max(1, largest output)"
            yield Fact("yes" if within else "no", "Device", f"model.py on {where} is {'within' if within else 'beyond'} {limit} of the CPU")

    @staticmethod
    def rounded(found: Mapping[str, Any]) -> Fact:
        """What rounding the layers' weights does."""
        verdict, choices = _text(found["verdict"], 20), _whole(found["discrete"])
        text = f"{verdict}: off by up to {shortly(_number(found['error']), 2)} · max(1, largest output) from float32"
        text += f", {_whole(found['discrete_changed']):,} of {choices:,} discrete actions changed" if choices else ""
        text += f", {counted(_whole(found['not_finite']), 'number')} NaN or infinite" if found["not_finite"] else ""
        return Fact("no" if verdict == "not advised" else "yes", _text(found["dtype"], 16), text)

    @staticmethod
    def deeper(found: Mapping[str, Any]) -> Fact:
        """What verify found on much more."""
        rebuilt = _dicts(found["rebuilt"])
        compared, differing = (sum(_whole(f[key]) for f in rebuilt) for key in ("compared", "differing"))
        cases = counted(sum(_whole(n) for n in _is(found["cases"], dict).values()), "case")
        numbers = f"all {compared:,} numbers bit-equal" if not differing else f"{differing:,} of {compared:,} numbers differ"
        text = f"{_text(found['level'], 10)}: {numbers} in {cases}"
        if (sampling := found["sampling"]) is not None:
            right = _is(sampling["right"], bool)
            text += f"; {counted(len(_list(sampling['tests'])), 'test')} of {counted(_whole(sampling['draws']), 'draw')}, {'none failed' if right else 'not as the policy says'}"
        return Fact("yes" if _is(found["equal"], bool) else "no", "verify", text)

    def files(self, original: Mapping[str, Any]) -> Iterator[FileRow]:
        what = f"{_text(original['exporter'], 60)}, opset {_whole(original['opset'])}, IR {_whole(original['ir_version'])}"
        yield FileRow(_text(original["file"], 80), what, f"{_whole(original['bytes']) / 1e6:.2f} MB", _text(original["sha256"], 64))
        if (checkpoint := self.checkpoint) is not None:
            step = checkpoint["step"]
            what = "step unknown" if step is None else f"step {_whole(step):,}"
            yield FileRow(
                _text(checkpoint["file"], 80), what, f"{_whole(checkpoint['bytes']) / 1e6:.2f} MB", _text(checkpoint["sha256"], 64)
            )

    # ------------------------------------------------------------------------------------------ errors
    def figures(self, told: Any, tolerance: float = TOLERANCE) -> list[Measured]:
        return [_measured(f, _text(f["output"], 80), tolerance) for f in _dicts(told)]

    def by_block(self) -> dict[int, list[Measured]]:
        """Block → its errors, as far as they were measured: each output of it is one."""
        told = self.verification["blocks"] if self.verification is not None else self.checked.get("blocks", [])
        tolerance = _number(self.verification["tolerance"]) if self.verification is not None else TOLERANCE
        found: dict[int, list[Measured]] = {}
        for figures in _dicts(told):
            number = self.makers.get(_is(figures["output"], str))
            if number is not None:
                measured = _measured(figures, _text(figures["role"], 120), tolerance, _text(figures["module"], 60), number)
                found.setdefault(number, []).append(measured)
        return dict(sorted(found.items()))

    def by_block_of(self) -> str:
        if self.verification is None:
            return "build, on ordinary observations"
        cases = _is(self.verification["cases"], dict)
        return f"verify, on {counted(sum(_whole(n) for k, n in cases.items() if k in ('ordinary', 'given')), 'ordinary case')}"

    # ------------------------------------------------------------------------------------------ blocks
    def block(self, number: int, measured: Mapping[int, Sequence[Measured]]) -> Block:
        raw = self.raw[number]
        names, ops = _list(raw["nodes"]), _list(raw.get("operators", []))
        indices = _list(raw.get("indices", []))
        nodes = tuple(
            Node(_whole(i), _text(op, 40), "" if isinstance(name, int) else _text(name, 100))
            for i, op, name in zip(indices[:LISTED], ops, names, strict=False)
        )
        lines = {} if "model.py" in self.changed else _is(raw.get("lines", {}), dict)
        constructor, forward = (self.ranges(lines.get(key, [])) for key in ("constructor", "forward"))
        definitions = tuple((_text(d[0], 60), _whole(d[1]), _whole(d[2])) for d in _list(lines.get("definitions", [])))
        snippets = tuple(
            Snippet(what, self.excerpt(ranges)) for what, ranges in (("__init__", constructor), ("forward", forward)) if ranges
        )
        role = _text(raw["role"], 120)
        return Block(
            number,
            role,
            _text(raw["rule"], 60),
            _text(_is(self.told.get("rules", {}), dict).get(raw["rule"]), 300).replace("`", ""),
            _text(raw["module"], 80),
            _text(raw.get("code"), 300),
            raw.get("family") == "generic",
            tuple(self.made(value) for value in list(dict.fromkeys(self.values(raw.get("reads", []))))[:LISTED]),
            tuple(self.readers(self.values(raw.get("makes", [])))),
            nodes,
            max(len(names) - len(nodes), 0) if nodes else 0,
            snippets,
            definitions,
            tuple(self.views[path] for path in self.values(raw.get("parameters", [])) if path in self.views),
            tuple(measured.get(number, ())),
            tuple(sorted({n for a, b in (*constructor, *forward) for n in range(a, b + 1)})[:500]),
        )

    def ranges(self, given: Any) -> list[tuple[int, int]]:
        found = [(_whole(r[0]), _whole(r[1])) for r in _list(given)]
        if len(found) > LISTED or any(not 1 <= a <= b <= len(self.source) for a, b in found):
            raise ValueError("lines are told that model.py does not have")
        return found

    def excerpt(self, ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, Line], ...]:
        numbers = list(dict.fromkeys(n for a, b in ranges for n in range(a, b + 1)))[:SNIPPET]
        lines = [self.source[n - 1] for n in numbers]
        indent = min(
            (len(text) - len(text.lstrip(" ")) for text in ("".join(t for _, t in line) for line in lines) if text.strip()), default=0
        )
        return tuple((n, shifted(line, indent)) for n, line in zip(numbers, lines, strict=True))

    def made(self, value: str) -> Link:
        """What a block reads: another block's result, or an input."""
        number = self.makers.get(value)
        return Link(printable(value, 60)) if number is None else Link(_text(self.raw[number]["role"], 80), number)

    def readers(self, values: Sequence[str]) -> Iterator[Link]:
        for i in sorted({i for value in values for i in self.read.get(value, ())})[:LISTED]:
            yield Link(_text(self.raw[i]["role"], 80), i)
        for value in values:
            for name in self.results.get(value, ()):
                yield Link(f"output {printable(name, 60)}")

    def drawing(self) -> Drawing | None:
        """The graph of blocks, with the inputs above and the outputs below."""
        inputs = [i for i in _dicts(self.told["inputs"]) if _is(i["used"], bool)]
        outputs = [o for o in _dicts(self.told["outputs"]) if o["constant"] is None]
        if not self.raw or not self.makers:
            return None
        drifting = {self.owner[path] for path in self.drifts if path in self.owner}
        boxes = [box("input", _text(i["name"], 60), f"{_shape(i['shape'])} {_text(i['dtype'], 10)}") for i in inputs]
        for n, raw in enumerate(self.raw):
            kind = "weights" if _list(raw.get("parameters", [])) else "plain"
            kind += " single" if raw.get("family") == "generic" else ""
            module = _text(raw["module"], 40)
            sub = "  ".join(filter(None, (module, brief(_text(raw.get("code"), 200), module))))
            boxes.append(box(kind, _text(raw["role"], 120), sub, n, "drift" if n in drifting else ""))
        boxes += [box("output", _text(o["name"], 60), f"{_shape(o['shape'])} {_text(o['dtype'], 10)}") for o in outputs]
        first = len(inputs)
        names = {_is(i["name"], str): n for n, i in enumerate(inputs)}
        edges = []
        for n, raw in enumerate(self.raw):
            for value in dict.fromkeys(self.values(raw.get("reads", []))):
                source = names.get(value) if value not in self.makers else first + self.makers[value]
                if source is not None and source != first + n:
                    edges.append((source, first + n))
        for n, output in enumerate(outputs):
            result: Any = output.get("value")
            if result in self.makers:
                edges.append((first + self.makers[result], first + len(self.raw) + n))
            elif result in names:
                edges.append((names[result], first + len(self.raw) + n))
        return placed(boxes, list(dict.fromkeys(edges)))

    # ------------------------------------------------------------------------------------------ tensors
    def tensor(self, path: str, p: Mapping[str, Any]) -> Tensor:
        array = self.tensors.get(path)
        drift = self.drifts.get(path)
        every = 1 if array is None else max(1, -(-array.size // HELD))
        agrees = p["bit_equal"]
        numbers = math.prod(_whole(d) for d in _list(p["shape"]))
        words = ""
        if drift is not None:
            ulps = drift["max_ulps"]
            words = f"{_whole(drift['elements']):,} of {_whole(drift['of']):,} numbers differ, by up to {_number(drift['max_abs']):.3g}" + (
                "" if ulps is None or _whole(ulps) > 10**6 else f", {ulps:,} ulp"
            )
        return Tensor(
            _text(path, 120), _shape(p["shape"]), _text(p["dtype"], 16), numbers, _is(p["trainable"], bool), _text(p["checkpoint"], 160),
            _text(p["graph"], 160), _text(p["transform"], 200), _text(p["note"], 200),
            "drift" if drift is not None else "same" if agrees is True else "", _text(p["source"], 16), words,
            None if array is None or array.dtype.kind not in "fiub" else histogram(array if every == 1 else array.reshape(-1)[::every]), every,
            self.owner.get(path),
        )  # fmt: skip

    def normalisers(self) -> Iterator[Normaliser]:
        """Each normaliser's columns; which never changed is told where the variance is a checkpoint's, not made from the std."""
        trained = {n.name: n for n in trained_normalizers(self.tensors)}
        for path in self.parameters:
            module, _, name = path.rpartition(".")
            mean = self.tensors.get(path)
            if name != "running_mean" or mean is None or mean.ndim != 1 or mean.dtype.kind != "f" or not mean.size:
                continue
            known = trained.get(module)
            std = self.tensors.get(f"{module}.std")
            spread = std if std is not None else known.std if known is not None else None
            if spread is None or spread.shape != mean.shape or spread.dtype.kind != "f":
                continue
            variance = self.parameters.get(f"{module}.running_variance")
            told = known is not None and variance is not None and variance["source"] != "derived"
            never = known.constant() if known is not None and told else []
            number = self.owner.get(path)
            role = module if number is None else _is(self.raw[number]["role"], str)
            steps = f"{known.steps:,}" if known is not None and told else ""
            drawing = statistics(mean.astype(np.float64), spread.astype(np.float64), never)
            yield Normaliser(printable(role, 120), printable(module, 80), steps, told, drawing, number)

    # ------------------------------------------------------------------------------------------ contract
    def inputs(self) -> Iterator[Value]:
        for i in _dicts(self.told["inputs"]):
            note = "" if _is(i["used"], bool) else "not used"
            note = f"next step: {_text(i['next'], 60)}" if i["next"] else note
            yield Value(
                _text(i["name"], 80), _text(i["argument"], 80), _shape(i["shape"]), _text(i["dtype"], 16), _text(i["meaning"], 300),
                _text(i["kind"], 16), note,
            )  # fmt: skip

    def outputs(self) -> Iterator[Value]:
        acting = _is(self.told["acting"], dict)
        sampled = set(self.values(list(_is(acting["sampled"], dict).values())))
        memories = {i["next"] for i in _dicts(self.told["inputs"]) if i["next"]}
        for o in _dicts(self.told["outputs"]):
            constant = o["constant"]
            note = "" if constant is None else "= " + ", ".join(f"{_number(x):g}" for x in _list(constant)[:8])
            name, field = _is(o["name"], str), _text(o["field"], 80)
            kind = "fixed" if constant is not None else "sampled" if field in sampled else "memory" if name in memories else "action"
            kind = kind if acting["sampled"] or kind != "action" else "output"
            yield Value(_text(name, 80), field, _shape(o["shape"]), _text(o["dtype"], 16), _text(o["meaning"], 300), kind, note)

    def noise(self) -> Iterator[tuple[str, str, str]]:
        for draw in _dicts(self.told["noise"]):
            offset, scale = _number(draw["offset"]), _number(draw["scale"])
            if draw["kind"] == "uniform":
                words = f"uniform in [{offset:g}, {offset + scale:g})"
            else:
                words = "standard normal" if (offset, scale) == (0, 1) else f"normal, mean {offset:g}, deviation {scale:g}"
            yield _text(draw["field"], 80), "not known" if draw["shape"] is None else _shape(draw["shape"]), words

    # ------------------------------------------------------------------------------------------ pair, coverage
    def pair(self) -> PairView | None:
        if (told := self.checkpoint) is None:
            return None
        verdict = _text(told["verdict"], 30)
        agreeing = [t for t in self.views.values() if t.state == "same"]
        rounded = sum("within" in t.note for t in agreeing)
        same = f"{counted(len(agreeing) - rounded, 'tensor')} bit-equal in graph and checkpoint"
        meaning = (
            same + (f", the std of {counted(rounded, 'normaliser')} within rounding" if rounded else "")
            if verdict == "same"
            else MEANINGS.get(verdict, "")
        )
        unused = self.values(told["unused"])
        modules = _is(told["modules"], dict)
        return PairView(
            verdict,
            verdict == "same",
            meaning,
            tuple(self.pair_lines(told)),
            tuple(t for t in self.views.values() if t.state == "drift"),
            tuple(_text(d["metadata"], 300) for d in self.disagreements() if "metadata" in d),
            tuple(self.settings(told["configuration"])),
            tuple(
                (printable(name, 80), f"{_whole(m['tensors']):,}", f"{_whole(m['numbers']):,}")
                for name, m in list(modules.items())[:LISTED]
            ),
            tuple(printable(name, 120) for name in unused[:LISTED]),
            max(len(unused) - LISTED, 0),
        )

    def pair_lines(self, told: Mapping[str, Any]) -> Iterator[str]:
        if told["reason"]:
            yield f"The first place: {_text(told['reason'], 600)}."
        if (match := told["match"]) is not None:
            step = "" if match["step"] is None else f" (step {_whole(match['step']):,})"
            yield f"{_text(match['file'], 80)} beside the checkpoint{step} holds the graph's numbers: give that one."
        elif _whole(told["tried"]):
            yield f"None of the other .pt beside the checkpoint holds the graph's numbers ({told['tried']} tried)."
        steps = _is(told["steps"], dict)
        places = (("graph", "the graph's name"), ("checkpoint", "the checkpoint's name"), ("trained", "global_step"))
        known = [(_whole(steps[key]), place) for key, place in places if steps[key] is not None]
        if known:
            agree = "" if len(known) < 2 else ": they agree" if len({step for step, _ in known}) == 1 else ": they do not agree"
            yield f"Steps: {', '.join(f'{step:,} in {place}' for step, place in known)}{agree}."
        if normalisers := _list(steps["normalizers"]):
            yield f"normalization_steps, a count of its own: {', '.join(f'{_whole(n[1]):,} in {_text(n[0], 80)}' for n in normalisers[:8])}."

    @staticmethod
    def settings(configuration: Any) -> Iterator[tuple[str, str, str, str]]:
        """Of the trainer's configuration.yaml: name, what it states, what the graph has, and whether they agree."""
        for s in _dicts(_is(configuration, dict)["settings"]) if configuration is not None else ():
            agrees = s["agrees"]
            mark = "can't be told" if agrees is None else "agrees" if agrees is True else "disagrees"
            found = "" if s["found"] is None else printable(str(s["found"]), 60)
            yield _text(s["name"], 60), printable(str(s["stated"]), 60), found, mark

    def shares(self) -> tuple[Share, ...]:
        told = _is(self.document["coverage"], dict)
        generic = {raw["rule"] for raw in self.raw if raw.get("family") == "generic"}
        rules = [(str(rule), _count(n)) for rule, n in _is(told["by_rule"], dict).items()]
        found = [Share(printable(rule, 60), n, "rule") for rule, n in rules if rule not in generic]
        found += [Share(printable(rule, 60), n, "single") for rule, n in rules if rule in generic]
        found.append(Share("inert", _count(told["inert"]), "inert"))
        found.append(Share("unexplained", _count(told["unexplained"]), "unexplained"))
        return tuple(share for share in found if share.nodes)

    def near_misses(self) -> Iterator[str]:
        for miss in _dicts(self.document["near_misses"])[:LISTED]:
            nearest = miss["nearest"]
            name = printable(str(miss["node"]), 60)
            if nearest is None:
                yield f"{name} ({_text(miss['op'], 40)}): no rule comes near"
            else:
                yield (
                    f"{name} ({_text(miss['op'], 40)}): nearest is {_text(nearest['rule'], 60)}, {_whole(nearest['matched'])} of "
                    f"{_whole(nearest['of'])}: {_text(nearest['reason'], 300)}"
                )


def _measured(f: Mapping[str, Any], label: str, tolerance: float, module: str = "", block: int | None = None) -> Measured:
    error, largest, ulps = _number(f["max_abs"]), _number(f["reference_max"]), f["max_ulps"]
    differing = _whole(f["differing"])
    return Measured(
        label,
        error,
        tolerance * max(1.0, largest),
        "–" if ulps is None else f"{_whole(ulps):,}" if ulps < 10**6 else "> 10⁶",
        f"{differing:,} of {_whole(f['compared']):,}" if differing else "",
        largest,
        module,
        block,
    )
