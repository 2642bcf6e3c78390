"""What `doctor` prints: versions, devices, CANN, onnxruntime's providers, and what to do."""

from __future__ import annotations

from graph2torch import __version__
from graph2torch.devices.doctor import Examination, Package
from graph2torch.devices.probe import Status, explain, lacking
from graph2torch.text import counted

from .page import Page


def show_examination(found: Examination) -> None:
    """Prints what `examine` found."""
    page, machine = Page(), found.machine
    page.title(f"graph2torch {__version__}, Python {machine['python']}, {machine['system']}")
    page.line(
        f"{machine['processor']}: {counted(int(machine['processors']), 'processor')} for this process; torch gets {counted(int(machine['threads']), 'thread')}"
    )
    page.heading("Packages")
    page.table([(p.name, p.version or "–", _fit(p)) for p in found.packages])
    page.heading("Devices", "each has added numbers in a process of its own where it says ready")
    page.table([(s.device, s.state, _said(s, found)) for s in found.devices])
    page.heading("onnxruntime", "what it lists, and what a session is really given")
    page.table([(p.name, "obtained" if p.obtained else "NOT OBTAINED", p.detail) for p in found.providers])
    cann = found.cann
    if cann.home or cann.variables or cann.driver or any(cann.tools.values()):
        page.heading("CANN", f"{cann.version or 'of unknown version'} in {cann.home}" if cann.home else "not found")
        page.table([*cann.variables.items(), ("set_env.sh", cann.set_env or "–"), ("driver", cann.driver or "–")])
        page.line(", ".join(f"{tool} {'is' if there else 'is not'} on the path" for tool, there in cann.tools.items()))
    else:
        page.heading("CANN", "not found")
    verdict = "everything works on the CPU" if found.healthy else "something is wrong on the CPU"
    if found.asked and found.asked != "cpu":
        simulated = any(s.device == found.asked and s.simulated for s in found.devices)
        verdict += f"; {found.asked} {'works' if found.usable else 'is NOT usable'}{', simulated' if simulated else ''}"
    page.heading("Verdict", verdict, "bold green" if found.exit_status == 0 else "bold red")
    for problem in found.problems:
        page.line(problem, style="yellow")


def _fit(package: Package) -> str:
    if not package.oldest:
        return ""
    return f"{package.oldest} or newer" + ("" if package.fits else ": DOES NOT FIT")


def _said(status: Status, found: Examination) -> str:
    """What to do is told of devices that are there or were asked for."""
    return lacking(status) if status.state == "not-installed" and status.device != found.asked else explain(status)
