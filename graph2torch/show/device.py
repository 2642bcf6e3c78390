"""How a policy fares on another device than the CPU, as a part of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graph2torch.devices.probe import explain
from graph2torch.text import printable

from .figures import figures_table
from .page import Page

if TYPE_CHECKING:
    from graph2torch.devices.on_device import DeviceCheck
    from graph2torch.judge.figures import Figures


def show_device_check(page: Page, check: DeviceCheck) -> None:
    """Prints the figures on the device, against torch on the CPU and the original in onnxruntime; a simulated one is called so."""
    status = check.device.status
    verdict = "the same within" if check.within else "NOT the same within"
    page.heading(
        f"Device {check.device.name}",
        f"{verdict} {check.tolerance:g} · max(1, largest output), on {len(check.runs)} runs",
        "bold green" if check.within else "bold red",
    )
    versions = ", ".join(f"{name} {version}" for name, version in status.versions.items())
    page.line(f"{explain(status)}{f' ({versions})' if versions else ''}", style="yellow" if status.simulated else "")
    page.line(_result("the torch module there against the same on the CPU", check.against_cpu))
    page.table(figures_table(check.against_cpu), indent=4)
    page.line(_result("and against the original in onnxruntime", check.against_original))
    page.table(figures_table(check.against_original), indent=4)
    switches = ", ".join(f"{name} {_shown(value)}" for name, value in check.switches.items())
    kept = "".join(f"; {name}={printable(value, 20)}" for name, value in check.environment.items())
    page.line(f"whole float32: {switches}{kept}")


def _result(what: str, figures: Sequence[Figures]) -> str:
    compared, differing = sum(f.compared for f in figures), sum(f.differing for f in figures)
    return f"{what}: " + (f"{differing:,} of {compared:,} numbers differ" if differing else f"all {compared:,} numbers bit-equal")


def _shown(value: bool | str) -> str:
    return value if isinstance(value, str) else "on" if value else "off"
