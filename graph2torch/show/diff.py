"""What `diff` prints: the verdict in a line, then in what the two differ, shortly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graph2torch.diff.diff import Difference, File, GraphDifference
from graph2torch.diff.numbers import Numbers
from graph2torch.diff.weights import Weight, Weights
from graph2torch.text import counted, printable, quoted

from .figures import figures_table, runs_of, ulps
from .page import Page, sizes_of

if TYPE_CHECKING:
    from graph2torch.diff.checkpoints import CheckpointDifference, ModuleDifference

LINES = 8  # of a list, at most


def show_difference(found: Difference) -> None:
    """Prints a difference: the verdict, what the files are, then the details."""
    page = Page()
    page.title(printable(found.verdict, 400), "bold green" if found.equal else "bold red")
    page.table([_file("a", found.a), _file("b", found.b)])
    if found.graphs is not None:
        _show_graphs(page, found.graphs)
    if found.checkpoints is not None:
        _show_checkpoints(page, found.checkpoints)
    if found.pair is not None:
        from .inspect import show_pair

        show_pair(page, dict(found.pair), found.a.name, found.b.name)
    if found.metadata:
        page.heading("Metadata")
        rows = [(printable(e.what, 60), _said(e.a), "→", _said(e.b)) for e in found.metadata]
        page.table(rows[:LINES])
        _more(page, len(rows) - LINES)


def _file(label: str, file: File) -> tuple[str, ...]:
    if file.opset is not None:
        what = f"{file.exporter}, opset {file.opset}, IR {file.ir_version}".removeprefix(", ")
    else:
        what = "step unknown" if file.step is None else f"step {file.step:,}"
    return label, printable(file.name, 60), f"{file.size / 1e6:.2f} MB", printable(what, 60), f"sha256 {file.sha256[:12]}…"


def _said(text: str | None) -> str:
    return "nothing" if text is None else printable(text, 60)


def _more(page: Page, count: int, indent: int = 2) -> None:
    if count > 0:
        page.line(f"and {count:,} more", indent)


# ---------------------------------------------------------------------------------------------- graphs
def _show_graphs(page: Page, found: GraphDifference) -> None:
    if found.level == "bytes":
        return
    structure = found.structure
    parts = ((structure.changed, "changed"), (structure.removed, "removed"), (structure.added, "added"))
    told = ", ".join(f"{n:,} {how}" for n, how in parts if n)
    nodes = (
        counted(structure.nodes[0], "node")
        if structure.nodes[0] == structure.nodes[1]
        else f"{structure.nodes[0]:,} and {structure.nodes[1]:,} nodes"
    )
    if structure.same:
        page.heading("Structure", f"the same: {nodes}, operator by operator", "green")
    elif structure.unrelated:
        page.heading("Structure", f"{nodes}, of which {structure.paired - structure.changed:,} correspond unchanged")
        page.table([("a", printable(structure.titles[0], 200)), ("b", printable(structure.titles[1], 200))])
    else:
        page.heading("Structure", f"{nodes}: {told or 'none changed'}")
    for text in structure.words[:LINES]:
        page.line(printable(text, 400))
    _more(page, len(structure.words) - LINES)
    if found.spelled and not structure.unrelated:
        page.heading("Spelled differently", "which changes no computation")
        for text in found.spelled[:LINES]:
            page.line(printable(text, 400))
        _more(page, len(found.spelled) - LINES)
    if not structure.unrelated:
        _show_weights(page, found.weights)
    _show_numbers(page, found)
    if found.divergence is not None:
        page.heading("First divergence", printable(found.divergence["words"], 600))
    for text in found.causes[:LINES]:
        page.line(f"Likely cause: {printable(text, 400)}", style="bold")


def _show_weights(page: Page, weights: Weights) -> None:
    if not weights.compared:
        return page.heading("Weights", "no constants correspond")
    equal = f"{counted(weights.compared, 'constant')} bit-equal ({weights.numbers:,} numbers)"
    if not weights.differing:
        page.heading("Weights", f"all {equal}" if weights.compared > 1 else equal, "green")
    else:
        page.heading("Weights", f"{weights.equal:,} of {counted(weights.compared, 'constant')} bit-equal")
        _show_differing(page, weights.differing)
    for names, whose in ((weights.removed, "a"), (weights.added, "b")):
        if names:
            shown = ", ".join(map(quoted, names[:4])) + (f" and {len(names) - 4:,} more" if len(names) > 4 else "")
            page.line(f"in {whose} only: {shown}")
    return None


def _show_differing(page: Page, differing: Sequence[Weight]) -> None:
    """Those of one size as a table, those of another size or form a line each."""
    plain = [w for w in differing if w.relation not in ("another shape", "transposed", "reshaped")]
    others = [w for w in differing if w.relation in ("another shape", "transposed", "reshaped")]
    if plain:
        forms = {(w.relation, w.rounded, w.a_dtype, w.b_dtype) for w in plain}
        together = len(forms) == 1 and len(plain) > 1 and bool(_form(plain[0]))
        if together:
            page.line(f"all that differ: {_form(plain[0])}")
        rows = [_row(w, not together) for w in plain[:LINES]]
        page.table([("", "", "differing", "max abs", "relative", "ulp", ""), *rows], indent=4)
        _more(page, len(plain) - LINES, 4)
    for w in others[:LINES]:
        form = "the part that both have is bit-equal" if w.relation == "another shape" and w.of and not w.differing else ""
        form = form if w.relation == "another shape" else w.relation
        page.line(f"{_name(w)} {sizes_of(w.a_shape)} → {sizes_of(w.b_shape)}{f': {form}' if form else ''}", indent=4)
    _more(page, len(others) - LINES, 4)


def _name(w: Weight) -> str:
    return printable(w.place or w.a, 40)


def _form(w: Weight) -> str:
    """What the second is to the first, where that is more than another number."""
    form = "" if w.relation == "differs" else f"the first is {w.relation}" if w.rounded == "a" else w.relation
    return ", ".join(filter(None, (f"{w.a_dtype} → {w.b_dtype}" if w.a_dtype != w.b_dtype else "", form)))


def _row(w: Weight, form: bool) -> tuple[str, ...]:
    note = _form(w) if form else ""
    if w.values is not None and not _form(w):
        note = " → ".join(f"{value:.9g}" for value in w.values)
    return (
        _name(w),
        sizes_of(w.a_shape),
        f"{w.differing:,}" if w.differing < w.of else "all",
        _shortly(w.max_abs),
        _shortly(w.max_rel) if w.relative else "–",
        ulps(w.max_ulps),
        note,
    )


def _shortly(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "∞"


def _show_numbers(page: Page, found: GraphDifference) -> None:
    numbers = found.numbers
    if not numbers.runs:
        page.heading("Numbers", f"not compared: {printable('; '.join(numbers.not_compared[:LINES]), 600)}")
        return
    differing = [f for f in numbers.figures if f.differing]
    compared = sum(f.compared for f in numbers.figures)
    if not differing:
        page.heading("Numbers", f"all {compared:,} bit-equal in onnxruntime, in {counted(len(numbers.figures), 'output')}", "green")
    else:
        page.heading("Numbers", f"{len(differing)} of {counted(len(numbers.figures), 'output')} differ in onnxruntime")
        page.table(figures_table(differing[:LINES]), indent=4)
        _more(page, len(differing) - LINES, 4)
        if any(math.isinf(f.max_abs) for f in differing) and (usual := [f for f in numbers.ordinary if f.differing]):
            page.line("on ordinary inputs alone:")
            page.table(figures_table(usual[:LINES]), indent=4)
    if apart := [f for f in numbers.drawn_from if f.differing]:
        far = max(f.max_abs for f in apart)
        page.line(f"what random numbers are drawn from and scaled with differs by up to {_shortly(far)}")
    _show_runs(page, numbers)


def _show_runs(page: Page, numbers: Numbers) -> None:
    page.line(f"{runs_of(numbers.runs)}; seed {numbers.seed}")
    for text in numbers.not_compared[:LINES]:
        page.line(f"not compared: {printable(text, 300)}")
    _more(page, len(numbers.not_compared) - LINES)
    for labels, what in ((numbers.refused, "onnxruntime runs neither on"), (numbers.one_sided, "onnxruntime runs only one of the two on")):
        if labels:
            page.line(f"{what}: {', '.join(labels[:LINES])}")


# ---------------------------------------------------------------------------------------------- checkpoints
def _show_checkpoints(page: Page, found: CheckpointDifference) -> None:
    if found.same_file:
        return
    if found.steps[0] != found.steps[1]:
        steps = ["unknown" if s is None else f"{s:,}" for s in found.steps]
        page.heading("Step", f"{steps[0]} → {steps[1]}")
    for module in (*found.network, *(m for m in found.modules if not m.network)):
        _show_module(page, module)
    if found.unread:
        page.line(f"neither tensors nor numbers, so not compared: {printable(', '.join(found.unread), 300)}")


def _show_module(page: Page, m: ModuleDifference) -> None:
    name = printable(m.name, 60) or "Tensors"
    both = m.equal + len(m.differing)
    if m.same:
        note = f"{counted(m.equal, 'tensor')} bit-equal ({m.numbers:,} numbers)" if m.equal else "the same"
        return page.heading(name, note + (f", {len(m.renamed):,} renamed" if m.renamed else ""), "green")
    page.heading(name, f"{m.equal:,} of {counted(both, 'tensor')} bit-equal" if both else "")
    if m.differing:
        _show_differing(page, m.differing)
    if m.renamed:
        page.line(
            f"{counted(len(m.renamed), 'tensor')} renamed: {', '.join(f'{quoted(x)} → {quoted(y)}' for x, y in m.renamed[:2])}{', …' if len(m.renamed) > 2 else ''}"
        )
    for keys, whose in ((m.removed, "a"), (m.added, "b")):
        if keys:
            page.line(f"in {whose} only: {', '.join(map(quoted, keys[:4]))}{f' and {len(keys) - 4:,} more' if len(keys) > 4 else ''}")
    for key, x, y in m.values[:LINES]:
        page.line(f"{printable(key, 60)}: {_value(x)} → {_value(y)}")
    _more(page, len(m.values) - LINES)
    return None


def _value(value: Any) -> str:
    return "nothing" if value is None else printable(str(value), 60)
