"""What `verify` prints: the level, what was compared on what, where torch and onnxruntime part, and the test of the samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graph2torch.judge.deep import STEPS, steps_shown
from graph2torch.judge.verify import EQUAL
from graph2torch.text import counted, printable

if TYPE_CHECKING:
    from graph2torch.judge.deep import Deep
    from graph2torch.judge.figures import Figures
    from graph2torch.judge.sampling import Sampling

from .build import show_parting, show_reason
from .device import show_device_check
from .figures import figures_table
from .page import Page
from .parts import LEVELS
from .precision import show_precision


def show_verification(found: Deep) -> None:
    """Prints what the deep tier found, the verdict first."""
    page = Page()
    checked = found.verification
    page.title(f"{printable(found.folder)} against {printable(found.original)}, sha256 {found.sha256[:12]}…")
    page.heading("Equality", f"{checked.level}: {LEVELS[checked.level]}", "bold green" if checked.level in EQUAL else "bold red")
    show_reason(page, checked)
    show_parting(page, found.divergence, found.causes)
    if found.changed:
        page.line(f"changed since the build: {', '.join(found.changed)}; what is there now was judged", style="bold yellow")
    if found.precision and found.precision.stored != "float32":
        page.line(
            f"weights are stored in {found.precision.stored}: before they are judged below, torch is model.py with rebuilt.onnx's, in float32"
        )
    if checked.rebuilt:
        _show_rebuilt(page, found)
        _show_torch(page, found)
        _show_alone(page, found)
    if found.sampling:
        _show_sampling(page, found.sampling)
    if found.on_device:
        show_device_check(page, found.on_device)
    if found.precision:
        show_precision(page, found.precision)
    if found.threads > 1:
        page.line(f"torch computed on {found.threads} threads")
    if not found.equal:
        page.gap()
        page.line("Exit status 1: different.", 0, "bold red")


def _show_rebuilt(page: Page, found: Deep) -> None:
    checked = found.verification
    numbers, unequal = sum(f.compared for f in checked.rebuilt), sum(f.differing for f in checked.rebuilt)
    result = f"all {numbers:,} numbers bit-equal" if not unequal else f"{unequal:,} of {numbers:,} numbers differ"
    page.heading("rebuilt.onnx against the original, in onnxruntime", result, "green" if not unequal else "bold red")
    page.table(figures_table(checked.rebuilt), indent=4)
    kinds = ", ".join(f"{n} {printable(kind)}" for kind, n in found.cases.items())
    page.line(f"{counted(sum(found.cases.values()), 'case')}, each with the optimiser on and off: {kinds}; seed {found.seed}")
    if found.bounds[1]:
        page.line(
            f"means of actions were driven beyond {found.bounds[0]} of the {found.bounds[1]} bounds that they are clipped to, and beside those"
        )
    untried = [*checked.refused, *found.untried]
    if untried:
        more = f" and {len(untried) - 8} more" if len(untried) > 8 else ""
        page.line(f"not tried, because onnxruntime does not run the original on it: {printable(', '.join(untried[:8]), 400)}{more}")


def _show_torch(page: Page, found: Deep) -> None:
    module, limit = found.verification.module, found.tolerance
    far = [f for f in module if not f.within(limit)]
    verdict = f"within {limit:g} · max(1, largest output)" if not far else f"beyond {limit:g} · max(1, largest output)"
    where = found.on_device.device.name + (", simulated," if found.on_device.device.simulated else "") if found.on_device else ""
    page.heading(
        f"model.py in torch{f' on {where}' if where else ''} against the original in onnxruntime",
        verdict,
        "green" if not far else "bold red",
    )
    page.table(figures_table(module), indent=4)
    if equal := [printable(f.output, 60) for f in module if not f.differing]:
        page.line(f"bit-equal: {', '.join(equal)}", indent=4)
    if found.blocks:
        page.line("block by block, on ordinary observations:")
        rows = [(printable(b.role, 70), b.module or "–", *_error(b.figures), f"{b.figures.reference_max:.3g}") for b in found.blocks]
        page.table([("", "module", "max abs", "ulp", "largest value"), *rows], indent=4)
    if found.unblocked:
        page.line(f"not compared block by block: {found.unblocked}", style="yellow")
    if found.drift:
        steps = ", ".join(f"{off:.2g} in step {step}" for step, off in steps_shown(found.drift))
        page.line(f"with its own memory fed back over {STEPS} steps, torch is off by {steps}; rebuilt.onnx is compared in each step above")


def _error(figures: Figures) -> tuple[str, str]:
    if not figures.differing:
        return "0", "0"
    return f"{figures.max_abs:.2g}", "–" if figures.max_ulps is None else f"{figures.max_ulps:,}"


def _show_alone(page: Page, found: Deep) -> None:
    """A property of the original, not a fault."""
    if found.alone is None:
        return
    differing = [f for f in found.alone if f.differing]
    page.heading("The original itself", "rows do not depend on the batch: alone and among 16, the same bits" if not differing else "")
    if differing:
        parts = ", ".join(f"{printable(f.output, 60)} by up to {_ulps(f)}" for f in differing)
        page.line(f"rows differ with the batch: {parts}, alone against among 16. That is onnxruntime's rounding, and no fault.")


def _ulps(figures: Figures) -> str:
    return f"{figures.max_abs:.2g}" if figures.max_ulps is None else f"{figures.max_ulps:,} ulp ({figures.max_abs:.2g})"


def _show_sampling(page: Page, sampling: Sampling) -> None:
    failed = sampling.failed
    verdict = (
        f"{counted(len(sampling.tests), 'test')} of {counted(sampling.drawn, 'draw')}, none failed"
        if sampling.right
        else "not as the policy says"
    )
    page.heading("Samples", verdict, "green" if sampling.right else "bold red")
    if failed:
        page.line(f"{counted(len(failed), 'test')} of {len(sampling.tests)} failed:")
        page.table([("", "", "p"), *((t.side, printable(t.of, 80), f"{t.p:.2g}") for t in failed[:12])], indent=4)
    if sampling.tests:
        methods = list(dict.fromkeys(t.method.partition(",")[0] for t in sampling.tests))
        least = min(sampling.tests, key=lambda t: t.p)
        page.line(
            f"torch's forward without noise and rebuilt.onnx's own random operators; {', '.join(methods)}; a test fails below p = {sampling.level:.2g}, "
            f"the smallest was {least.p:.2g}; seed {sampling.seed}"
        )
    if sampling.forbidden:
        drawn = sum(sampling.forbidden.values())
        page.line(
            "options of probability 0 were never drawn" if not drawn else f"options of probability 0 were drawn {counted(drawn, 'time')}",
            style="" if not drawn else "bold red",
        )
    if sampling.untested:
        page.line(f"not tested: {_listed(sampling.untested)}", style="yellow")


def _listed(texts: Sequence[str]) -> str:
    return printable("; ".join(texts[:6]), 500) + (f" and {len(texts) - 6} more" if len(texts) > 6 else "")
