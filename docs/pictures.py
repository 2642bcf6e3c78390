"""Makes the pictures of README.md and docs/ anew: what the commands print on a terminal, and report.html in a browser.

    python docs/pictures.py [--browser] [--mermaid FILE] [NAME …]

The terminal's pictures (.svg) are those of real runs on the files of assets/, in a terminal of their own; the tests hold them against new
runs. The browser's (.png, with --browser) need a Chromium: Debian's package chromium, or GRAPH2TORCH_CHROMIUM=/path/to/it. They show the reports of the
Huggy of assets/, of that one beside another network, and of a policy with attention that tests/models.py makes up. Each file stays below 200 kB.

GitHub draws the diagram of docs/how-it-works.md itself; for the site it is drawn once, by mermaid in the Chromium (--mermaid mermaid.min.js, from
npm's package mermaid, which is MIT-licensed). The picture says of which text it is, so the tests notice an old one.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import html
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # also when it is run as a script

from rich.console import Console  # noqa: E402
from rich.terminal_theme import TerminalTheme  # noqa: E402
from rich.text import Text  # noqa: E402

from docs.outputs import Workshop, blocks  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"
COMPARING = ROOT / "docs" / "comparing.md"  # has the script that makes the graph of which diff is shown
LIMIT = 200_000  # bytes
COLUMNS = 100
PAPER = TerminalTheme(  # dark enough for light pages, light enough for dark ones
    (30, 33, 39), (214, 217, 222),
    [(30, 33, 39), (224, 108, 117), (129, 199, 132), (229, 192, 123), (97, 175, 239), (198, 120, 221), (86, 201, 201), (214, 217, 222)],
    [(92, 99, 112), (240, 128, 137), (149, 219, 152), (239, 212, 143), (117, 195, 255), (218, 140, 241), (106, 221, 221), (255, 255, 255)],
)  # fmt: skip


@dataclass(frozen=True)
class Shot:
    """A picture of a terminal: the commands, and which of the output's headings are shown; none are all."""

    commands: tuple[str, ...]
    headings: tuple[str, ...] = ()
    before: tuple[str, ...] = ()  # commands that aren't shown


SHOTS = {
    "build": Shot(("graph2torch build assets/Huggy.onnx assets/Huggy.pt",), ("", "Architecture", "Pair", "Equality", "Written")),
    "verify": Shot(("graph2torch verify out/Huggy",)),
    "diff": Shot(("graph2torch diff assets/Huggy.onnx out/relu.onnx",), before=("python out/others.py",)),
}


# ---------------------------------------------------------------------------------------------- the terminal
def on_terminal(command: str, folder: Path, environment: dict[str, str]) -> str:
    """What a command prints on a terminal of COLUMNS columns, colours and all."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    environment = {**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    with subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL
    ) as process:
        os.close(theirs)
        pieces = []
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux says so at the end
                break
            if not piece:
                break
            pieces.append(piece)
    os.close(ours)
    if process.returncode not in (0, 1):
        raise RuntimeError(f"`{command}` ended with exit status {process.returncode}")
    return b"".join(pieces).decode("utf-8").replace("\r\n", "\n")


def plain(text: str) -> str:
    """Without the terminal's colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def parts_under(text: str, headings: tuple[str, ...]) -> str:
    """The paragraphs that begin with one of the headings, the first one for ""; what is left out is a line with an ellipsis."""
    shown, left_out = [], False
    for number, paragraph in enumerate(text.rstrip("\n").split("\n\n")):
        words = plain(paragraph).lstrip("\n")
        if (number == 0 and "" in headings) or any(words.startswith(heading) for heading in headings if heading):
            shown += ["\x1b[2m⋮\x1b[0m"] * left_out + [paragraph]
            left_out = False
        else:
            left_out = True
    return "\n\n".join(shown + ["\x1b[2m⋮\x1b[0m"] * left_out) + "\n"


def _with_files_of(page: Path, workshop: Workshop, folder: Path) -> Path:
    """The folder, with the files that the reader of a page writes."""
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.kind == "write":
            workshop.now(block, folder)
    return folder


def terminal_text(shot: Shot, workshop: Workshop) -> str:
    """What the picture shows, with the terminal's colours."""
    folder = _with_files_of(COMPARING, workshop, workshop.folder(COMPARING))
    for command in shot.before:
        status, printed = workshop.run(command, folder)
        if status:
            raise RuntimeError(f"`{command}` ended with exit status {status}:\n{printed}")
    text = ""
    for command in shot.commands:
        printed = on_terminal(command, folder, workshop.environment)
        text += f"\x1b[1m$ {command}\x1b[0m\n" + (parts_under(printed, shot.headings) if shot.headings else printed)
    return text


def drawn(name: str, text: str) -> str:
    """An SVG of the text, which loads nothing from anywhere."""
    console = Console(record=True, width=COLUMNS + 1, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False)
    console.print(Text.from_ansi(text), soft_wrap=True, end="")
    svg = console.export_svg(title="graph2torch", theme=PAPER, unique_id=name)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # rich's is fetched from the network
    return svg.replace("font-family: Fira Code, monospace", "font-family: ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace")


def shown(svg: str) -> str:
    """The text of such a picture, line by line."""
    lines: dict[float, str] = {}
    for x, y, text in re.findall(r'<text class="[^"]*-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', svg):
        place = round(float(x) / 12.2)  # rich's width of a column; what is nothing but spaces is left out
        lines[float(y)] = lines.get(float(y), "").ljust(place) + html.unescape(text).replace("\xa0", " ")
    return "\n".join(line.rstrip() for _, line in sorted(lines.items())) + "\n"


# ---------------------------------------------------------------------------------------------- the browser
def photographed(workshop: Workshop) -> dict[str, bytes]:
    """Pictures of reports in a Chromium, as PNG, by name."""
    from tests.chromium import Chromium
    from tests.models import FAMILIES, save_pair, tiny_checkpoint, tiny_policy

    folder = workshop.folder(COMPARING)
    attention = tiny_policy(**FAMILIES["attention"])
    model, checkpoint = save_pair(folder, attention, tiny_checkpoint(attention), name="Attention")
    status, printed = workshop.run(f"graph2torch build {model.name} {checkpoint.name} -o out/attention", folder)
    if status:
        raise RuntimeError(f"the policy with attention doesn't build:\n{printed}")
    others = "python out/others.py && graph2torch diff assets/Huggy.onnx out/relu.onnx --html out/diff.html"
    if workshop.run(others, _with_files_of(COMPARING, workshop, folder))[0] != 1:
        raise RuntimeError("diff doesn't tell two graphs apart")
    pictures = {}
    with Chromium() as browser:
        for dark in (False, True):
            page = browser.open(folder / "out/Huggy/report.html", width=1200, height=880, dark=dark)
            pictures["report-dark" if dark else "report"] = page.picture()
        page = browser.open(folder / "out/attention/report.html", width=1200, height=880)
        page.click('a.box[aria-label*="attention"]')
        pictures["report-attention"] = page.picture()
        pictures["report-diff"] = browser.open(folder / "out/diff.html", width=1200, height=880).picture()
    return pictures


def diagram() -> str:
    """The text of the diagram in docs/how-it-works.md."""
    found = re.search(r"```mermaid\n(.*?)```\n", (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8"), re.DOTALL)
    if found is None:
        raise RuntimeError("docs/how-it-works.md has no diagram")
    return found[1]


def mark_of(text: str) -> str:
    """Says in a picture of which text it is."""
    return f"<!-- sha256 of the text: {hashlib.sha256(text.encode()).hexdigest()} -->"


def drawn_diagram(mermaid: Path, scratch: Path) -> str:
    """The diagram as an SVG, by a mermaid.min.js in a Chromium."""
    from tests.chromium import Chromium

    (scratch / "mermaid.min.js").write_bytes(mermaid.read_bytes())
    (scratch / "page.html").write_text('<meta charset="utf-8"><script src="mermaid.min.js"></script>', encoding="utf-8")
    settings = {"startOnLoad": False, "htmlLabels": False, "flowchart": {"htmlLabels": False}, "theme": "neutral", "deterministicIds": True}
    with Chromium() as browser:
        page = browser.open(scratch / "page.html", width=1600, height=900)
        page.evaluate(f"mermaid.initialize({json.dumps(settings)})")
        svg: str = page.evaluate(f"mermaid.render('stages', {json.dumps(diagram())}).then(made => made.svg)")
    svg = re.sub(r"@import[^;]*;|@keyframes [\w-]+\s*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", svg)
    return svg.replace('style="', 'style="background-color: white; ', 1) + f"\n{mark_of(diagram())}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", choices=[[], *SHOTS], help="of terminal pictures; default: all")
    parser.add_argument("--browser", action="store_true", help="the pictures of reports instead, which need a Chromium")
    parser.add_argument("--mermaid", type=Path, metavar="FILE", help="the diagram instead, by this mermaid.min.js; needs a Chromium")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        workshop = Workshop(Path(scratch).resolve())
        made = {}
        if options.mermaid:
            made = {FOLDER / "stages.svg": drawn_diagram(options.mermaid, Path(scratch)).encode()}
        elif options.browser:
            made = {FOLDER / f"{name}.png": data for name, data in photographed(workshop).items()}
        else:
            for name in options.names or SHOTS:
                made[FOLDER / f"{name}.svg"] = drawn(name, terminal_text(SHOTS[name], workshop)).encode()
        for path, data in made.items():
            if len(data) > LIMIT:
                raise RuntimeError(f"{path.name} has {len(data):,} bytes, more than {LIMIT:,}")
            path.write_bytes(data)
            print(f"{path.relative_to(ROOT)}  {len(data):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
