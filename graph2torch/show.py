"""What the command line prints: rich on a terminal, plain text 100 columns wide when piped.

Nothing that comes from a file is ever taken for markup: names pass through `printable` and are printed as they are.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from .inspect import VARIANCE_LIMIT, Found, source_of, unmatched
from .pair import CONFIGURATION, too_far
from .text import printable, quoted

if TYPE_CHECKING:
    from .bind import Binding, Bindings
    from .build import Build
    from .figures import Figures
    from .spec import Block, PolicySpec
    from .verify import Verification

WIDTH = 100  # when piped

LEVELS = {
    "bytes": "the two files are the same, byte for byte",
    "graph": "operator by operator the same computation on the same numbers, whatever the input; and onnxruntime gave the same bits on everything tried",
    "bits": "onnxruntime gave the same bits on everything tried, with its optimiser on and off; on other inputs they may differ",
    "close": "onnxruntime gave numbers within 1e-5 · max(1, largest output) on everything tried, but not the same bits",
    "differs": "the rebuilt policy and the original give different numbers",
}


# ---------------------------------------------------------------------------------------------- build
def show_build(made: Build, target: Path) -> None:
    """Prints a build: what the policy is, where each weight came from, and how equal it is to the original."""
    page = Page()
    model, spec, bindings = made.recognised.model, made.spec, made.bindings
    page.title(f"{printable(model.path.stem)}: {printable(spec.title)}")
    rows = [
        (
            model.path.name,
            f"{model.size / 1e6:.2f} MB",
            f"{spec.graph.producer}, opset {spec.graph.opset}, IR {spec.graph.ir_version}",
            model.sha256,
        )
    ]
    if checkpoint := bindings.checkpoint:
        step = "step unknown" if checkpoint.step is None else f"step {checkpoint.step:,}"
        rows.append((checkpoint.path.name, f"{checkpoint.size / 1e6:.2f} MB", step, checkpoint.sha256))
    page.table([(printable(name, 60), size, printable(what, 60), f"sha256 {digest[:12]}…") for name, size, what, digest in rows])
    page.heading("Architecture")
    page.table([(role, module or "–", size) for role, module, size in _architecture(spec)])
    coverage = spec.coverage()
    page.line(
        _covered(
            {rule: len(nodes) for rule, nodes in coverage.by_rule.items()},
            len(coverage.generic),
            len(coverage.inert),
            len(coverage.unexplained),
            coverage.total,
        )
    )
    _show_weights(page, spec, bindings)
    _show_verdict(page, made)
    _show_level(page, made)
    _show_build_warnings(page, made)
    from .build import FILES

    page.heading(f"Written to {printable(str(target))}", ", ".join(FILES))
    if not made.equal:
        page.line("Exit status 1: different.", 0, "bold red")


def _architecture(spec: PolicySpec) -> Iterable[tuple[str, str, str]]:
    """(role, module, size) of each block; the blocks of one nn.Sequential are one row."""
    done: set[str] = set()
    for block in spec.blocks:
        if not block.sequence:
            yield printable(block.role), spec.module_path(block), _size(block)
        elif block.sequence not in done:
            done.add(block.sequence)
            yield _sequence([b for b in spec.blocks if b.sequence == block.sequence])


def _sequence(members: Sequence[Block]) -> tuple[str, str, str]:
    """ "hidden layers 1 to 3, silu", "body", "59 → 512 → 512 → 512"."""
    layers = [b for b in members if b.parameters]
    others = list(dict.fromkeys(b.rule for b in members if not b.parameters))
    named = layers or members
    first, last = named[0].role, named[-1].role
    counted = re.fullmatch(r"(.*) (\d+)", first), re.fullmatch(r"(.*) (\d+)", last)
    if counted[0] and counted[1] and first != last and counted[0][1] == counted[1][1]:
        role = f"{counted[0][1]}s {counted[0][2]} to {counted[1][2]}"
    else:
        whole, _, part = last.rpartition(": ")
        role = first if first == last else f"{first} to {part if first.startswith(f'{whole}: ') else last}"
    sizes = [_size(b).split(" → ") for b in layers]
    chained = all(a[-1] == b[0] and len(a) == len(b) == 2 for a, b in pairwise(sizes))
    size = " → ".join([sizes[0][0], *(s[-1] for s in sizes)]) if sizes and chained else ", ".join(map(_size, layers))
    return printable(", ".join([role, *others])), members[0].sequence, size


def _size(block: Block) -> str:
    """`59 → 512` for a linear layer, `3 → 16` channels for a convolution, else the code."""
    code = source_of(block)
    sizes = re.fullmatch(r"nn\.(?:Linear|Conv2d)\((\d+), (\d+)\b.*\)", code)
    return " → ".join(sizes.groups()) if sizes else code


def _covered(by_rule: Mapping[str, int], generic: int, inert: int, unexplained: int, total: int) -> str:
    rules = ", ".join(f"{n} {printable(rule)}" for rule, n in by_rule.items())
    single = f", {generic} of them as single operators" if generic else ""
    return f"{total} nodes: {sum(by_rule.values())} explained ({rules or 'none'}){single}, {inert} inert, {unexplained} unexplained"


def _show_weights(page: Page, spec: PolicySpec, bindings: Bindings) -> None:
    """Tensors by module, those that came about in the same way together."""
    trained = sum(b.value.size for b in bindings.tensors if b.trainable)
    sources = {b.source for b in bindings.tensors if b.trainable}
    whose = {"checkpoint": "from the checkpoint", "graph": "from the graph"}.get(
        next(iter(sources), "") if len(sources) == 1 else "", "from both"
    )
    if not bindings.tensors:
        return page.heading("Weights", "none: the policy has no tensors")
    page.heading("Weights", f"{trained:,} trained numbers, {whose}")
    groups: dict[str, dict[str, list[str]]] = {}
    for binding in bindings.tensors:
        head, name = _place(binding, bindings.keys)
        shape = f"[{', '.join(map(str, binding.value.shape))}]"
        groups.setdefault(head, {}).setdefault(_origin(binding, bindings.checkpoint is not None), []).append(f"{name} {shape}".strip())
    for head, origins in groups.items():
        page.line(printable(head, 200))
        for origin, names in origins.items():
            page.line(f"{printable(', '.join(names), 400)}: {printable(origin, 400)}", indent=4)
    return None


def _place(binding: Binding, keys: Mapping[str, str]) -> tuple[str, str]:
    """The heading a tensor stands under, "body ← network_body…", and its name there."""
    for ours, theirs in keys.items():
        rest = binding.path.removeprefix(ours)
        if binding.key and (not rest or rest.startswith(".")) and (binding.key == theirs + rest or binding.path.endswith(".std")):
            return f"{ours} ← {theirs}", rest.removeprefix(".")
    module, _, name = binding.path.rpartition(".")
    return (module, name) if module else (binding.path, "")


def _origin(binding: Binding, pair: bool) -> str:
    """Where a tensor came from, and whether the two files agree on it."""
    graphs = "the graph's" if binding.initializer in (None, binding.key) else f"the graph's {quoted(binding.initializer or '')}"
    how = "" if binding.transform == "as is" else f", {binding.transform}"
    if binding.disagreement is not None:
        return f"the checkpoint's{how}, NOT the graph's" if binding.source == "checkpoint" else f"{graphs}{how}, NOT the checkpoint's"
    if binding.source == "derived" or (binding.source == "graph" and binding.note):
        return f"{graphs}; {binding.note}" if binding.source == "graph" else binding.note
    if binding.source == "graph":
        return f"{graphs}{how}" + (
            {True: "; bit-equal in the checkpoint", None: "; the checkpoint has none"}[binding.agrees]
            if pair and binding.agrees is not False
            else ""
        )
    return f"as is, bit-equal to {graphs}{how}" if binding.agrees else f"as is{how}; the graph holds it folded into std only"


def _show_verdict(page: Page, made: Build) -> None:
    bindings, pair = made.bindings, made.pair
    if bindings.checkpoint is None:
        return page.heading("Pair", "none: no checkpoint was given, the weights are the graph's")
    agreeing = [b for b in bindings.tensors if b.agrees]
    rounded = sum("within" in b.note for b in agreeing)
    same = f"{_n(len(agreeing) - rounded, 'tensor')} bit-equal in graph and checkpoint"
    meaning = same + (f", {rounded} std within rounding" if rounded else "") if pair.verdict == "same" else MEANINGS[pair.verdict]
    page.heading("Pair", f"{pair.verdict}: {meaning}", "green" if pair.verdict == "same" else "bold red")
    if missing := unmatched(made.spec, bindings):
        page.line(f"the checkpoint has no counterpart of {printable(', '.join(missing), 400)}")
    for b in bindings.disagreements:
        page.line(f"{printable(b.path)}: {b.disagreement}")
    for text in bindings.metadata:
        page.line(f"{text}; the graph's is kept")
    _show_cause(page, asdict(pair), bool(bindings.disagreements), too_far(bindings))
    if bindings.disagreements:
        page.line(
            "The checkpoint's weights were used; --weights onnx takes the graph's."
            if "checkpoint" in {b.source for b in bindings.disagreements}
            else "The graph's weights were used, as --weights onnx asks."
        )
    _show_beside(page, asdict(pair), made.recognised.model.path.name, bindings.checkpoint.path.name)
    return None


MEANINGS = {
    "drift": "graph and checkpoint do not hold the same numbers",
    "other step": "graph and checkpoint do not hold the same numbers, as if saved at another step",
    "other network": "the checkpoint's network is built otherwise",
    "nothing compared": "no tensor of the graph is known to be in the checkpoint, so nothing is said about the pair",
}


def _show_cause(page: Page, pair: Mapping[str, Any], apart: bool, far: bool) -> None:
    """Why the two may disagree, and which .pt beside the checkpoint fits; `apart`: their tensors do, `far`: further than a race explains."""
    if pair["reason"]:
        page.line(f"The first place: {printable(pair['reason'], 600)}.")
    elif apart and far:
        page.line("That is too far for a race between saving and exporting: the two are of different steps or of different trainings.")
    elif apart and pair["verdict"] == "drift":
        threaded = (pair["configuration"] or {}).get("settings", ())
        stated = next((s["stated"] for s in threaded if s["name"] == "threaded"), None)
        told = "" if stated is None else f"; {CONFIGURATION} says that this one had {'them' if stated else 'none'}"
        page.line(f"Differences of this size come about when a training with threads saves the .pt and the .onnx a moment apart{told}.")
    if match := pair["match"]:
        step = "" if match["step"] is None else f" (step {match['step']:,})"
        page.line(f"{printable(match['file'])} beside the checkpoint{step} holds the graph's numbers: give that one.", style="bold")
    elif pair["tried"]:
        page.line(f"None of the other .pt beside the checkpoint holds the graph's numbers ({pair['tried']} tried).")


def _show_beside(page: Page, pair: Mapping[str, Any], onnx_name: str, checkpoint_name: str) -> None:
    """Steps and configuration.yaml, as far as there are any."""
    steps = pair["steps"]
    places = ((steps["graph"], onnx_name), (steps["checkpoint"], checkpoint_name), (steps["trained"], "global_step"))
    told = [(step, f"{step:,} in {printable(place, 60)}") for step, place in places if step is not None]
    if told:
        agree = "" if len(told) < 2 else ": they agree" if len({step for step, _ in told}) == 1 else ": they do not agree"
        page.line(f"steps: {', '.join(words for _, words in told)}{agree}")
    if steps["normalizers"]:
        counted = ", ".join(f"{count:,} in {printable(module)}" for module, count in steps["normalizers"])
        page.line(f"normalization_steps, a count of its own: {counted}")
    configuration = pair["configuration"]
    if configuration and configuration["trouble"]:
        page.line(f"{CONFIGURATION} {printable(configuration['trouble'], 300)}: not held against the graph", style="yellow")
    elif configuration:
        settings = configuration["settings"]
        page.line(f"{CONFIGURATION}, behaviour {quoted(configuration['behavior'])}, against the graph:")
        labels = {True: "agrees", False: "DISAGREES", None: "can't be told"}
        rows = [(label, _settings(s for s in settings if s["agrees"] is agrees)) for agrees, label in labels.items()]
        page.table([row for row in rows if row[1]], indent=4)


def _settings(settings: Iterable[Mapping[str, Any]]) -> str:
    """ "normalize true, num_layers 3 (2 in the graph)"."""
    return ", ".join(
        f"{s['name']} {_setting(s['stated'])}" + (f" ({_setting(s['found'])} in the graph)" if s["agrees"] is False else "")
        for s in settings
    )


def _setting(value: Any) -> str:
    return printable(json.dumps(value), 60) if not isinstance(value, str) else printable(value, 60)


def _show_level(page: Page, made: Build) -> None:
    from .verify import EQUAL
    from .verify import LEVELS as ORDER

    checked = made.verification
    page.heading("Equality", f"{checked.level}: {LEVELS[checked.level]}", "bold green" if checked.level in EQUAL else "bold red")
    if checked.level not in EQUAL and any(b.source == "checkpoint" for b in made.bindings.disagreements):
        page.line("as it must be, since the checkpoint's weights were used, which are not the graph's")
    if checked.reason:
        page.line(f"not {ORDER[max(ORDER.index(checked.level) - 1, 0)]}, because {checked.reason}")
    for text in _compared(checked, len(made.spec.outputs)):
        page.line(text)
    page.table(_figures(checked.rebuilt), indent=4)
    why = ", which round matrix products differently" if checked.level in EQUAL and any(f.differing for f in checked.module) else ""
    page.line(f"the torch module against the original in onnxruntime{why}:")
    page.table(_figures(checked.module), indent=4)
    if equal := [printable(f.output) for f in checked.module if not f.differing]:
        page.line(f"bit-equal: {', '.join(equal)}", indent=4)


def _compared(checked: Verification, outputs: int) -> Iterable[str]:
    """The rebuilt graph against the original: what was compared, on what."""
    numbers, unequal = sum(f.compared for f in checked.rebuilt), sum(f.differing for f in checked.rebuilt)
    inner = len(checked.rebuilt) - outputs
    things = f"{outputs} outputs" + (f" and {inner} values inside that the noise meets" if inner > 0 else "")
    result = f"all {numbers:,} numbers bit-equal" if not unequal else f"{unequal:,} of {numbers:,} numbers differ"
    yield f"rebuilt.onnx against the original, in onnxruntime: {result} ({things}; {_runs(checked.runs)})"
    if checked.refused:
        yield f"not tried, because onnxruntime does not run the original on it: {', '.join(checked.refused)}"


def _runs(runs: Sequence[str]) -> str:
    """ "18 runs: batch 1, 3, 16; ordinary, zero inputs; optimiser on and off"."""
    parts = [m.groups() for run in runs if (m := re.fullmatch(r"batch (\d+) (.+), optimiser (on|off)", run))]
    if len(parts) < len(runs) or not runs:
        return f"{len(runs)} runs"
    batches, kinds, optimiser = (list(dict.fromkeys(column)) for column in zip(*parts, strict=True))
    return f"{len(runs)} runs: batch {', '.join(sorted(batches, key=int))}; {', '.join(kinds)} inputs; optimiser {' and '.join(optimiser)}"


def _figures(figures: Sequence[Figures]) -> list[tuple[str, ...]]:
    """A table of those that differ, with its head."""
    rows = [
        (
            printable(f.output, 60),
            f"{f.differing:,} of {f.compared:,}",
            f"{f.max_abs:.2g}",
            "–" if f.max_ulps is None else f"{f.max_ulps:,}",
            _cosine(f.cosine),
        )
        for f in figures
        if f.differing
    ]
    return [("", "differing", "max abs", "ulp", "cosine"), *rows] if rows else []


def _cosine(cosine: float | None) -> str:
    if cosine is None:
        return "–"
    return "1" if cosine == 1 else f"1 − {1 - cosine:.0e}" if cosine > 0.999 else f"{cosine:.4g}"


def _show_build_warnings(page: Page, made: Build) -> None:
    from .bind import odd_values

    page.warnings([*made.spec.graph.warnings, *odd_values((b.path, b.value) for b in made.bindings.tensors)])


# ---------------------------------------------------------------------------------------------- inspect
def show_inspection(found: Found) -> None:
    """Prints what `inspect_file` found."""
    page = Page()
    kind = found["kind"]
    if kind != "pt":
        _show_graph(page, found["graph"] if kind == "pair" else found)
    if kind != "onnx":
        _show_checkpoint(page, found["checkpoint"] if kind == "pair" else found)
    if kind == "pair":
        _show_pair(page, found["pair"], found["graph"]["file"], found["checkpoint"]["file"])


def _show_graph(page: Page, g: Found) -> None:
    page.title(f"{printable(g['file'])}: {printable(g['title'])}")
    page.table(
        [
            ("exporter", f"{printable(g['exporter'])}, opset {g['opset']}, IR {g['ir_version']}"),
            ("size", _megabytes(g)),
            ("sha256", g["sha256"]),
            ("family", printable(g["family"])),
        ]
    )
    page.heading("Inputs")
    page.table(
        [
            (printable(i["name"], 60), _shape(i["shape"]), i["dtype"], printable(i["meaning"]) + ("" if i["used"] else " (unused)"))
            for i in g["inputs"]
        ]
    )
    page.heading("Outputs")
    page.table(
        [
            (printable(o["name"], 60), _shape(o["shape"]), o["dtype"], f"{printable(o['meaning'])} {_fixed(o['constant'])}")
            for o in g["outputs"]
        ]
    )
    page.heading("Blocks")
    page.table([(printable(b["rule"]), printable(b["module"] or "–"), printable(b["code"]), printable(b["role"])) for b in g["blocks"]])
    c, parameters = g["coverage"], g["parameters"]
    page.line(f"{_covered(c['by_rule'], c['generic'], c['inert'], c['unexplained'], c['nodes'])}: {c['percent']:g} % of what is not inert")
    _show_unexplained(page, g["unexplained"])
    held = [
        (parameters["trainable"], "trained"),
        (parameters["statistics"], "of statistics"),
        (parameters["unexplained"], "in constants of unexplained nodes"),
    ]
    page.heading("Parameters", ", ".join(f"{_n(n, 'number')} {what}" for n, what in held if n) or "none")
    page.table(
        [(printable(t["path"] or "(unexplained)"), _shape(t["shape"]), t["dtype"], printable(t["name"], 80)) for t in parameters["tensors"]]
    )
    for name, paths in parameters["merged"].items():
        page.line(f"{quoted(name)} serves {printable(', '.join(paths), 200)}: the exporter merged equal tensors")
    for n in g["normalizers"]:
        page.heading(f"Normaliser {printable(n['module'])}", f"{printable(n['role'])}, {_n(n['features'], 'feature')}")
        _show_statistics(page, n)
        if n["not_finite"]:
            page.line(f"{_n(n['not_finite'], 'feature')} with a NaN or an infinity")
    for s in g["sigma"]:
        page.heading("Sigma", f"exp({printable(s['path'])}), {s['actions']} actions: {_spread(s)}")
    page.odd(g["odd_values"])
    page.warnings(g["warnings"])


def _show_unexplained(page: Page, nodes: Sequence[Found], limit: int = 8) -> None:
    if not nodes:
        return
    kinds: dict[str, int] = {}
    for node in nodes:
        kinds[node["op"]] = kinds.get(node["op"], 0) + 1
    page.heading("Unexplained", ", ".join(f"{n} {printable(op, 40)}" for op, n in sorted(kinds.items())))
    own = [n for n in nodes if n["operand_of"] is None]
    page.table([(_node(n), _nearest(n)) for n in own[:limit]])
    if len(own) > limit:
        page.line(f"and {len(own) - limit} more: graph2torch rules --explain lists all")


def _show_checkpoint(page: Page, c: Found) -> None:
    step = "step unknown" if c["step"] is None else f"step {c['step']:,}"
    page.title(f"{printable(c['file'])}: {step}")
    page.table([("size", _megabytes(c)), ("sha256", c["sha256"])])
    page.heading("Modules")
    page.table([(printable(m["name"], 60), _n(m["tensors"], "tensor"), _n(m["numbers"], "number")) for m in c["modules"]])
    own = [t for t in c["tensors"] if t["same_as"] is None]
    again = len(c["tensors"]) - len(own)
    page.heading(
        printable(c["policy"]),
        f"{_n(c['numbers'], 'number')} in {_n(len(own), 'tensor')}" + (f"; {again} stand again under a second name" if again else ""),
    )
    page.table([(_shape(t["shape"]), t["dtype"], f"{printable(t['name'], 200)} {_fixed(t['values'])}") for t in own])
    for n in c["normalizers"]:
        page.heading("Normaliser", f"{printable(n['name'])}, {_n(n['features'], 'feature')}, {_n(n['steps'], 'step')}")
        page.table(
            [
                ("running_variance", f"{_spread(n['running_variance'])}: a sum over the steps"),
                ("variance", f"{_spread(n['variance'])}: running_variance / steps"),
            ]
        )
        _show_statistics(page, n)
    if c["unread"]:
        page.line(f"not plain tensors, so not read: {printable(', '.join(c['unread']), 300)}")
    page.odd(
        c["odd_values"],
        f"NaN and infinity, negative variances, variances above {VARIANCE_LIMIT:.0e} a step, statistics never updated, constant columns",
    )


def _show_statistics(page: Page, n: Found, limit: int = 8) -> None:
    page.table([("mean", _spread(n["mean"])), ("std", _spread(n["std"]))])
    columns = n["saturating"]
    if not columns:
        return page.line(f"no column saturates early ({n['threshold']})")
    page.line(f"{len(columns)} of {_n(n['features'], 'column')} clipped to ±5 right beside the mean ({n['threshold']}):")
    page.table(
        [
            (
                f"column {c['column']}",
                f"mean {_g(c['mean'])}",
                f"std {_g(c['std'])}",
                f"clipped beyond mean ± {_g(c['clipped_beyond'])}",
                "never changed" if c["constant"] else "",
            )
            for c in columns[:limit]
        ],
        indent=4,
    )
    if len(columns) > limit:
        page.line(f"and {len(columns) - limit} more", indent=4)
    return None


def _show_pair(page: Page, pair: Found, graph: str, checkpoint: str) -> None:
    """`graph`, `checkpoint`: the names of the files."""
    verdict = pair["verdict"]
    same = (
        f"graph and checkpoint agree on {_n(pair['compared'], 'tensor')}"
        + (" (the std within rounding)" if pair["normalizers"] else "")
        + (f" and on {_n(pair['fixed_outputs'], 'fixed output')}" if pair["fixed_outputs"] else "")
    )
    page.title(f"Pair: {verdict}", "bold green" if verdict == "same" else "bold red")
    page.line(MEANINGS.get(verdict, same))
    if pair["not_compared"]:
        page.line(f"not compared: {len(pair['not_compared'])} constants that unexplained nodes read")
    for d in pair["disagreements"]:
        page.line(f"{printable(d['parameter'])}: {d['text']}")
    for text in pair["metadata"]:
        page.line(text)
    _show_cause(page, pair, bool(pair["disagreements"]), pair["too_far"])
    _show_beside(page, pair, graph, checkpoint)
    for n in pair["normalizers"]:
        page.heading(
            "Normaliser",
            f"{printable(n['module'])}: the graph's std against sqrt(running_variance / normalization_steps), {_n(n['steps'], 'step')}",
        )
        page.line(_rounding(n))
        low, high, stride = n["grid"]
        page.line(f"Largest errors, had the std been computed otherwise, over mean + k · std for k = {low:g}, {low + stride:g} … {high:g}")
        page.line("(var is running_variance, steps is normalization_steps):")
        rows = [("", "std", "normalised", "clipped to ±5", "")]
        page.table([*rows, *(_formula(f) for f in n["formulas"])], indent=4)


def _rounding(n: Found) -> str:
    if n["rounding"]:
        return f"bit-equal, rounded as {' and '.join(n['rounding'])} does"
    far = "NaN is in one of them" if n["ulps"] is None else f"up to {n['ulps']:,} ulp apart"
    return f"{far}: {'as near as rounding allows' if n['agrees'] else 'they disagree'}"


def _formula(f: Found) -> tuple[str, ...]:
    notes = []
    if f["not_finite"]:
        notes.append(f"{'all' if f['not_finite'] == f['of'] else format(f['not_finite'], ',')} NaN or infinite")
    if f["overflowed"]:
        notes.append(f"{f['overflowed']:,} overflow")
    formula = f["formula"].replace("running_variance", "var").replace("normalization_steps", "steps")
    return formula, _g(f["std"]), _g(f["before_clip"]), _g(f["after_clip"]), ", ".join(notes)


# ---------------------------------------------------------------------------------------------- rules
def show_rules(found: Found) -> None:
    """Prints what `list_rules` found."""
    page = Page()
    for family in found["families"]:
        rules = [r for r in found["rules"] if r["family"] == family]
        page.title(f"{printable(family)}: {_n(len(rules), 'rule')}")
        rows: list[tuple[str, str]] = []
        for r in rules:
            rows.append((printable(r["name"]), printable(r["summary"], 200)))
            rows.append(("", "patterns: " + ", ".join(f"{printable(p['name'])} ({p['operators']})" for p in r["patterns"])))
        page.table(rows)
    page.line("In brackets: a pattern's number of operators.")


def show_explanation(found: Found) -> None:
    """Prints what `explain_model` found."""
    page = Page()
    page.title(f"{printable(found['file'])}: {printable(found['title'])}")
    c = found["coverage"]
    page.line(f"{_covered(c['by_rule'], c['generic'], c['inert'], c['unexplained'], c['nodes'])}: {c['percent']:g} % of what is not inert")
    page.table([(_node(node), _fate(node)) for node in found["nodes"]])


def show_coverage(found: Found) -> None:
    """Prints what `cover_folder` found: a row a model, then the sums."""
    page = Page()
    page.title(f"{printable(found['folder'], 80)}: nodes of {_n(found['totals']['models'], 'model')}")
    keys = ("nodes", "architecture", "generic", "inert", "unexplained")
    explained = [m for m in found["models"] if "error" not in m]
    rows = [("model", *keys), *((_end(m["file"]), *(format(m[key], ",") for key in keys)) for m in explained)]
    total = found["totals"]
    rows.append(("together", *(format(total[key], ",") for key in keys)))
    widths = [0, *(max(len(row[i]) for row in rows) for i in range(1, len(keys) + 1))]
    page.table([[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in rows])
    refused = [m for m in found["models"] if "error" in m]
    if refused:
        page.heading("Refused", _n(len(refused), "model"))
        for m in refused:
            page.line(f"{_end(m['file'])}: {printable(m['error'], 200)}")
    page.gap()
    page.line(
        f"{total['percent']:g} % of what is not inert is explained by the architecture, all of it in {_n(total['whole'], 'model')}", 0
    )
    for kind in ("generic", "unexplained"):
        if found[kind]:
            page.line(f"{kind}: {', '.join(f'{n:,} {printable(op, 40)}' for op, n in found[kind].items())}")


def _end(path: str, width: int = 44) -> str:
    """The end of a long path, which tells more than its beginning."""
    shown = printable(path, 200)
    return shown if len(shown) <= width else f"…{shown[1 - width :]}"


def _fate(node: Found) -> str:
    """What became of a node, in words."""
    if node["status"] == "explained":
        return f"{printable(node['rule'])}: {printable(node['role'])}"
    if node["status"] == "inert":
        return "inert"
    if node["status"] == "generic":
        return f"{printable(node['role'])}, by itself; {_nearest(node)}"
    refusal = f"{printable(node['refusal'], 200)}; " if node.get("refusal") else ""
    return f"NOT EXPLAINED: {refusal}{_nearest(node)}"


def _node(node: Found) -> str:
    return f"{node['index']:>4} {printable(node['op'], 30)} {printable(node['name'], 46)}".rstrip()


def _nearest(node: Found) -> str:
    if node["operand_of"] is not None:
        return f"an operand of node {node['operand_of']}"
    miss = node["nearest"]
    if miss is None:
        return "no rule comes near"
    return f"nearest is {printable(miss['rule'])}, {miss['matched']} of {miss['of']}: {printable(miss['reason'], 300)}"


# ---------------------------------------------------------------------------------------------- the page
class _Console(Console):
    def on_broken_pipe(self) -> None:
        """The command line decides what to do; rich would end with status 1, which means "different" here."""
        raise BrokenPipeError


class Page:
    """Lines, headings and tables on stdout. What it is given must be `printable` already."""

    def __init__(self) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an arrow that the terminal's encoding lacks is no reason to fail
        self.console = _Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False, markup=False, emoji=False)
        self.started = False

    def title(self, text: str, style: str = "bold") -> None:
        """A blank line, then a line of its own."""
        self.gap()
        self.line(text, 0, style)

    def heading(self, label: str, text: str = "", style: str = "") -> None:
        """A blank line, then the label and what belongs to it."""
        self.gap()
        self.wrapped(Text.assemble((label, "bold cyan"), "  " if text else "", (text, style)), 0, 2)

    def gap(self) -> None:
        if self.started:
            self.console.print()
        self.started = True

    def line(self, text: str, indent: int = 2, style: str = "") -> None:
        """`text`, wrapped; what is wrapped stands two columns further in."""
        self.wrapped(Text(text, style), indent, indent + 2)

    def table(self, rows: Sequence[Sequence[str]], indent: int = 2) -> None:
        """Columns as wide as they must be, the last one wrapped; empty columns are left out.

        In a row too wide for that, the last cell stands below the others.
        """
        used = [i for i in range(len(rows[0])) if any(row[i] for row in rows)] if rows else []
        widths = [max(cell_len(row[i]) for row in rows) for i in used[:-1]]
        start = indent + sum(widths) + 2 * len(widths)
        for row in rows if used else ():
            last = row[used[-1]]
            if start + max(map(cell_len, last.split()), default=0) <= self.console.width:
                cells = (row[i] + " " * (width + 2 - cell_len(row[i])) for i, width in zip(used, widths, strict=False))
                self.wrapped(Text(last), indent, start, Text("".join(cells)))
            else:
                for text, place in (("  ".join(row[i] for i in used[:-1] if row[i]), indent), (last, indent + 4)):
                    if text:
                        self.line(text, place)

    def wrapped(self, text: Text, indent: int, rest: int, head: Text | None = None) -> None:
        """A paragraph: `head` and the first line at column `indent`, the further lines at column `rest`."""
        room = max(self.console.width - max(indent, rest), 1)
        for i, part in enumerate(text.wrap(self.console, room) or [Text()]):
            line = Text.assemble(" " * (rest if i else indent), head or "" if i == 0 else "", part)
            line.rstrip()
            if line or i == 0:
                self.console.print(line, soft_wrap=True)

    def odd(self, texts: Sequence[str], looked_for: str = "NaN and infinity") -> None:
        self.heading("Odd values", "" if texts else f"none ({looked_for} were looked for)", "" if texts else "green")
        for text in texts:
            self.line(text, style="yellow")

    def warnings(self, texts: Sequence[str]) -> None:
        if texts:
            self.heading("Warnings")
            for text in texts:
                self.line(text, style="yellow")


def _n(count: int, what: str) -> str:
    """`1 number`, `1,234 numbers`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _megabytes(found: Found) -> str:
    return f"{found['megabytes']:.2f} MB ({found['bytes']:,} bytes)"


def _shape(shape: Sequence[int | str | None]) -> str:
    return "[" + ", ".join("?" if d is None else printable(str(d), 16) for d in shape) + "]"


def _fixed(values: Sequence[Any] | None, limit: int = 8) -> str:
    """`= 3` for one number, `= [2, 3]` for several."""
    if values is None:
        return ""
    shown = [_g(v) for v in values[:limit]] + (["…"] if len(values) > limit else [])
    return f"= {shown[0]}" if len(values) == 1 else f"= [{', '.join(shown)}]"


def _spread(found: Mapping[str, Any]) -> str:
    """`0.001 … 2, median 1`."""
    if found["min"] is None:
        return "no finite number"
    middle = [f", {name} {_g(found[name])}" for name in ("median", "mean") if name in found]
    return f"{_g(found['min'])} … {_g(found['max'])}{''.join(middle)}"


def _g(value: float | str | None) -> str:
    return "–" if value is None else value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


__all__ = ["LEVELS", "Page", "show_build", "show_coverage", "show_explanation", "show_inspection", "show_rules"]
