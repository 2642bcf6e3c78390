"""What `build` prints: what the policy is, where each weight came from, and how equal it is to the original."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from graph2torch.inspect.pair import unmatched
from graph2torch.pair import too_far
from graph2torch.spec import source_of
from graph2torch.text import counted, printable, quoted

if TYPE_CHECKING:
    from graph2torch.bind import Binding, Bindings
    from graph2torch.build import Build
    from graph2torch.judge.causes import Cause
    from graph2torch.judge.divergence import Divergence
    from graph2torch.judge.verify import Verification
    from graph2torch.spec import Block, PolicySpec

from .device import show_device_check
from .figures import figures_table, runs_of
from .page import Page
from .pair import show_beside, show_cause
from .parts import LEVELS, MEANINGS, covered


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
        covered(
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
    if made.on_device is not None:
        show_device_check(page, made.on_device)
    if made.precision is not None:
        from .precision import show_precision

        show_precision(page, made.precision)
    if made.threads > 1:
        page.line(f"torch computed on {made.threads} threads")
    _show_build_warnings(page, made)
    from graph2torch.output import FILES

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
    same = f"{counted(len(agreeing) - rounded, 'tensor')} bit-equal in graph and checkpoint"
    meaning = same + (f", {rounded} std within rounding" if rounded else "") if pair.verdict == "same" else MEANINGS[pair.verdict]
    page.heading("Pair", f"{pair.verdict}: {meaning}", "green" if pair.verdict == "same" else "bold red")
    if missing := unmatched(made.spec, bindings):
        page.line(f"the checkpoint has no counterpart of {printable(', '.join(missing), 400)}")
    for b in bindings.disagreements:
        page.line(f"{printable(b.path)}: {b.disagreement}")
    for text in bindings.metadata:
        page.line(f"{text}; the graph's is kept")
    show_cause(page, asdict(pair), bool(bindings.disagreements), too_far(bindings))
    if bindings.disagreements:
        page.line(
            "The checkpoint's weights were used; --weights onnx takes the graph's."
            if "checkpoint" in {b.source for b in bindings.disagreements}
            else "The graph's weights were used, as --weights onnx asks."
        )
    show_beside(page, asdict(pair), made.recognised.model.path.name, bindings.checkpoint.path.name)
    return None


def _show_level(page: Page, made: Build) -> None:
    from graph2torch.judge.verify import EQUAL

    checked = made.verification
    page.heading("Equality", f"{checked.level}: {LEVELS[checked.level]}", "bold green" if checked.level in EQUAL else "bold red")
    if checked.level not in EQUAL and any(b.source == "checkpoint" for b in made.bindings.disagreements):
        page.line("as it must be, since the checkpoint's weights were used, which are not the graph's")
    show_reason(page, checked)
    for text in _compared(checked, len(made.spec.outputs)):
        page.line(text)
    page.table(figures_table(checked.rebuilt), indent=4)
    why = ", which round matrix products differently" if checked.level in EQUAL and any(f.differing for f in checked.module) else ""
    page.line(f"the torch module against the original in onnxruntime{why}:")
    page.table(figures_table(checked.module), indent=4)
    if equal := [printable(f.output) for f in checked.module if not f.differing]:
        page.line(f"bit-equal: {', '.join(equal)}", indent=4)
    show_parting(page, made.divergence, made.causes)


def show_parting(page: Page, divergence: Divergence | None, causes: Sequence[Cause]) -> None:
    """Where the rebuilt graph first computes something else, and why that may be."""
    if divergence:
        page.line(f"the rebuilt graph (the second) parts from the original (the first) at {divergence.words}")
    for cause in causes:
        page.line(f"likely cause: {cause.words}", indent=4)


def show_reason(page: Page, checked: Verification) -> None:
    """Why the level is not the next stronger one."""
    from graph2torch.judge.verify import LEVELS as ORDER

    if checked.reason:
        page.line(f"not {ORDER[max(ORDER.index(checked.level) - 1, 0)]}, because {printable(checked.reason, 600)}")


def _compared(checked: Verification, outputs: int) -> Iterable[str]:
    """The rebuilt graph against the original: what was compared, on what."""
    numbers, unequal = sum(f.compared for f in checked.rebuilt), sum(f.differing for f in checked.rebuilt)
    inner = len(checked.rebuilt) - outputs
    things = f"{outputs} outputs" + (f" and {inner} values inside that the noise meets" if inner > 0 else "")
    result = f"all {numbers:,} numbers bit-equal" if not unequal else f"{unequal:,} of {numbers:,} numbers differ"
    yield f"rebuilt.onnx against the original, in onnxruntime: {result} ({things}; {runs_of(checked.runs)})"
    if checked.refused:
        yield f"not tried, because onnxruntime does not run the original on it: {', '.join(checked.refused)}"


def _show_build_warnings(page: Page, made: Build) -> None:
    from graph2torch.bind import odd_values

    page.warnings([*made.spec.graph.warnings, *odd_values((b.path, b.value) for b in made.bindings.tensors)])
