"""CANN, the libraries under torch_npu: where it is, as far as files and variables tell. Imports no torch."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from graph2torch.text import printable

VARIABLES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "ASCEND_RT_VISIBLE_DEVICES")
USUAL = ("/usr/local/Ascend/ascend-toolkit", "/usr/local/Ascend/cann", "~/Ascend/ascend-toolkit", "~/Ascend/cann")


@dataclass(frozen=True)
class Cann:
    """What is found of CANN; every text is printable.

    variables: the environment's, of VARIABLES
    home:      the folder that the environment or a usual place gives; "" if there is none
    version:   as the folder states it
    set_env:   the script to source; "" if there is none
    driver:    the driver's version; "" if none is found
    tools:     whether npu-smi and atc are on the path
    """

    variables: Mapping[str, str]
    home: str
    version: str
    set_env: str
    driver: str
    tools: Mapping[str, bool]

    @property
    def active(self) -> bool:
        """Whether set_env.sh was sourced in this shell."""
        return any(self.variables.get(name) for name in VARIABLES[:2])


def find() -> Cann:
    """Looks for CANN; never fails."""
    variables = {name: printable(os.environ[name]) for name in VARIABLES if name in os.environ}
    homes = [Path(p).expanduser() for p in [*(os.environ.get(name, "") for name in VARIABLES[:2]), *USUAL] if p]
    home = next((p for p in homes if _exists(p)), None)
    script = set_env()
    versions = (
        [] if home is None else [home / "version.cfg", home / "latest" / "version.cfg", *sorted(home.glob("*/ascend_toolkit_install.info"))]
    )
    return Cann(
        variables,
        printable(str(home)) if home else "",
        next((v for v in map(_version, versions) if v), ""),
        script,
        _version(Path("/usr/local/Ascend/driver/version.info")),
        {tool: shutil.which(tool) is not None for tool in ("npu-smi", "atc")},
    )


def set_env() -> str:
    """CANN's set_env.sh at one of the places it has, printable; "" if there is none."""
    for place in [*(os.environ.get(name, "") for name in VARIABLES[:2]), *USUAL]:
        folder = Path(place).expanduser()
        for path in (folder / "set_env.sh", folder.parent / "set_env.sh") if place else ():
            if _exists(path):
                return printable(str(path))
    return ""


def _version(path: Path) -> str:
    """`version=8.0` or `[8.0.RC3:…]` in a small file."""
    try:
        text = path.read_text("utf-8", "replace")[:10_000]
    except OSError:
        return ""
    found = re.search(r"(?im)^\s*version\s*=\s*(\S+)", text) or re.search(r"\[?(\d+\.\d+[\w.]*)", text)
    return printable(found[1], 40) if found else ""


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
