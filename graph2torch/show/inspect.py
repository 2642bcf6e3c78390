"""What `inspect` prints of a graph, a checkpoint, a pair, or the folder of a training."""

from __future__ import annotations

from collections.abc import Sequence

from graph2torch.inspect.numbers import Found
from graph2torch.inspect.statistics import VARIANCE_LIMIT
from graph2torch.text import counted, printable, quoted

from .page import Page, fixed_values, megabytes, shortly, sizes_of, spread_of
from .pair import show_beside, show_cause
from .parts import MEANINGS, covered, named, nearest


def show_inspection(found: Found) -> None:
    """Prints what `inspect_file` found."""
    page = Page()
    kind = found["kind"]
    if kind == "run":
        from .training import show_training  # what it takes is for folders alone

        return show_training(page, found)
    if kind != "pt":
        _show_graph(page, found["graph"] if kind == "pair" else found)
    if kind != "onnx":
        _show_checkpoint(page, found["checkpoint"] if kind == "pair" else found)
    if kind == "pair":
        show_pair(page, found["pair"], found["graph"]["file"], found["checkpoint"]["file"])
    return None


def _show_graph(page: Page, g: Found) -> None:
    page.title(f"{printable(g['file'])}: {printable(g['title'])}")
    page.table(
        [
            ("exporter", f"{printable(g['exporter'])}, opset {g['opset']}, IR {g['ir_version']}"),
            ("size", megabytes(g)),
            ("sha256", g["sha256"]),
            ("family", printable(g["family"])),
        ]
    )
    page.heading("Inputs")
    page.table(
        [
            (printable(i["name"], 60), sizes_of(i["shape"]), i["dtype"], printable(i["meaning"]) + ("" if i["used"] else " (unused)"))
            for i in g["inputs"]
        ]
    )
    page.heading("Outputs")
    page.table(
        [
            (printable(o["name"], 60), sizes_of(o["shape"]), o["dtype"], f"{printable(o['meaning'])} {fixed_values(o['constant'])}")
            for o in g["outputs"]
        ]
    )
    page.heading("Blocks")
    page.table([(printable(b["rule"]), printable(b["module"] or "–"), printable(b["code"]), printable(b["role"])) for b in g["blocks"]])
    c, parameters = g["coverage"], g["parameters"]
    page.line(f"{covered(c['by_rule'], c['generic'], c['inert'], c['unexplained'], c['nodes'])}: {c['percent']:g} % of what is not inert")
    _show_unexplained(page, g["unexplained"])
    held = [
        (parameters["trainable"], "trained"),
        (parameters["statistics"], "of statistics"),
        (parameters["unexplained"], "in constants of unexplained nodes"),
    ]
    page.heading("Parameters", ", ".join(f"{counted(n, 'number')} {what}" for n, what in held if n) or "none")
    page.table(
        [
            (printable(t["path"] or "(unexplained)"), sizes_of(t["shape"]), t["dtype"], printable(t["name"], 80))
            for t in parameters["tensors"]
        ]
    )
    for name, paths in parameters["merged"].items():
        page.line(f"{quoted(name)} serves {printable(', '.join(paths), 200)}: the exporter merged equal tensors")
    for n in g["normalizers"]:
        page.heading(f"Normaliser {printable(n['module'])}", f"{printable(n['role'])}, {counted(n['features'], 'feature')}")
        _show_statistics(page, n)
        if n["not_finite"]:
            page.line(f"{counted(n['not_finite'], 'feature')} with a NaN or an infinity")
    for s in g["sigma"]:
        page.heading("Sigma", f"exp({printable(s['path'])}), {s['actions']} actions: {spread_of(s)}")
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
    page.table([(named(n), nearest(n)) for n in own[:limit]])
    if len(own) > limit:
        page.line(f"and {len(own) - limit} more: graph2torch rules --explain lists all")


def _show_checkpoint(page: Page, c: Found) -> None:
    step = "step unknown" if c["step"] is None else f"step {c['step']:,}"
    page.title(f"{printable(c['file'])}: {step}")
    page.table([("size", megabytes(c)), ("sha256", c["sha256"])])
    page.heading("Modules")
    page.table([(printable(m["name"], 60), counted(m["tensors"], "tensor"), counted(m["numbers"], "number")) for m in c["modules"]])
    own = [t for t in c["tensors"] if t["same_as"] is None]
    again = len(c["tensors"]) - len(own)
    page.heading(
        printable(c["policy"]),
        f"{counted(c['numbers'], 'number')} in {counted(len(own), 'tensor')}"
        + (f"; {again} stand again under a second name" if again else ""),
    )
    page.table([(sizes_of(t["shape"]), t["dtype"], f"{printable(t['name'], 200)} {fixed_values(t['values'])}") for t in own])
    for n in c["normalizers"]:
        page.heading("Normaliser", f"{printable(n['name'])}, {counted(n['features'], 'feature')}, {counted(n['steps'], 'step')}")
        page.table(
            [
                ("running_variance", f"{spread_of(n['running_variance'])}: a sum over the steps"),
                ("variance", f"{spread_of(n['variance'])}: running_variance / steps"),
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
    page.table([("mean", spread_of(n["mean"])), ("std", spread_of(n["std"]))])
    columns = n["saturating"]
    if not columns:
        return page.line(f"no column saturates early ({n['threshold']})")
    page.line(f"{len(columns)} of {counted(n['features'], 'column')} clipped to ±5 right beside the mean ({n['threshold']}):")
    page.table(
        [
            (
                f"column {c['column']}",
                f"mean {shortly(c['mean'])}",
                f"std {shortly(c['std'])}",
                f"clipped beyond mean ± {shortly(c['clipped_beyond'])}",
                "never changed" if c["constant"] else "",
            )
            for c in columns[:limit]
        ],
        indent=4,
    )
    if len(columns) > limit:
        page.line(f"and {len(columns) - limit} more", indent=4)
    return None


def show_pair(page: Page, pair: Found, graph: str, checkpoint: str) -> None:
    """`graph`, `checkpoint`: the names of the files."""
    verdict = pair["verdict"]
    same = (
        f"graph and checkpoint agree on {counted(pair['compared'], 'tensor')}"
        + (" (the std within rounding)" if pair["normalizers"] else "")
        + (f" and on {counted(pair['fixed_outputs'], 'fixed output')}" if pair["fixed_outputs"] else "")
    )
    page.title(f"Pair: {verdict}", "bold green" if verdict == "same" else "bold red")
    page.line(MEANINGS.get(verdict, same))
    if pair["not_compared"]:
        page.line(f"not compared: {len(pair['not_compared'])} constants that unexplained nodes read")
    for d in pair["disagreements"]:
        page.line(f"{printable(d['parameter'])}: {d['text']}")
    for text in pair["metadata"]:
        page.line(text)
    show_cause(page, pair, bool(pair["disagreements"]), pair["too_far"])
    show_beside(page, pair, graph, checkpoint)
    for n in pair["normalizers"]:
        page.heading(
            "Normaliser",
            f"{printable(n['module'])}: the graph's std against sqrt(running_variance / normalization_steps), {counted(n['steps'], 'step')}",
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
    return formula, shortly(f["std"]), shortly(f["before_clip"]), shortly(f["after_clip"]), ", ".join(notes)
