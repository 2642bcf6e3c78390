"""What `rules` prints: the rules, why they explain a graph or not, and what they cover."""

from __future__ import annotations

from graph2torch.inspect.numbers import Found
from graph2torch.text import counted, printable

from .page import Page
from .parts import covered, named, nearest


def show_rules(found: Found) -> None:
    """Prints what `list_rules` found."""
    page = Page()
    for family in found["families"]:
        rules = [r for r in found["rules"] if r["family"] == family]
        page.title(f"{printable(family)}: {counted(len(rules), 'rule')}")
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
    page.line(f"{covered(c['by_rule'], c['generic'], c['inert'], c['unexplained'], c['nodes'])}: {c['percent']:g} % of what is not inert")
    page.table([(named(node), _fate(node)) for node in found["nodes"]])


def show_coverage(found: Found) -> None:
    """Prints what `cover_folder` found: a row a model, then the sums."""
    page = Page()
    page.title(f"{printable(found['folder'], 80)}: nodes of {counted(found['totals']['models'], 'model')}")
    keys = ("nodes", "architecture", "generic", "inert", "unexplained")
    explained = [m for m in found["models"] if "error" not in m]
    rows = [("model", *keys), *((_end(m["file"]), *(format(m[key], ",") for key in keys)) for m in explained)]
    total = found["totals"]
    rows.append(("together", *(format(total[key], ",") for key in keys)))
    widths = [0, *(max(len(row[i]) for row in rows) for i in range(1, len(keys) + 1))]
    page.table([[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in rows])
    refused = [m for m in found["models"] if "error" in m]
    if refused:
        page.heading("Refused", counted(len(refused), "model"))
        for m in refused:
            page.line(f"{_end(m['file'])}: {printable(m['error'], 200)}")
    page.gap()
    page.line(
        f"{total['percent']:g} % of what is not inert is explained by the architecture, all of it in {counted(total['whole'], 'model')}", 0
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
        return f"{printable(node['role'])}, by itself; {nearest(node)}"
    refusal = f"{printable(node['refusal'], 200)}; " if node.get("refusal") else ""
    return f"NOT EXPLAINED: {refusal}{nearest(node)}"
