"""README.md and docs/: every command is run and its output compared, every option, link, file and name is one.

docs/outputs.py says how a page's commands are marked, and how outputs are compared. What can't be run here stands in NOT_RUN.
"""

from __future__ import annotations

import ast
import os
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from markdown_it import MarkdownIt

import cli
from docs import reference
from docs.outputs import MARK, PAGES, ROOT, Block, Workshop, blocks, differences, missing, refreshed, same, same_but_for_roundings
from docs.pictures import FOLDER, LIMIT, SHOTS, diagram, drawn, mark_of, shown, terminal_text
from tests.commands import run

NEEDS_HARDWARE = "needs an Ascend NPU or its libraries"
THESE = "these tests are part of it"
LONG = "takes minutes"
OTHERS = "needs what is not part of this project"
NOT_RUN = {  # commands by their beginning
    ". .venv/bin/activate": "prints nothing; the tests run with such an environment",
    "pip install": "installs from the network",
    "huggingface-cli download": OTHERS,
    "graph2torch build ppo-Huggy/Huggy.onnx": OTHERS,
    "source /usr/local/Ascend/ascend-toolkit/set_env.sh": NEEDS_HARDWARE,
    "source …/set_env.sh": NEEDS_HARDWARE,
    "atc": NEEDS_HARDWARE,
    "graph2torch doctor --device npu": "no NPU here; tests/devices have it on the simulated one",
    "graph2torch run DIR --device npu": "no NPU here; tests/devices have it on the simulated one",
    "make test": THESE,
    "make test-slow": LONG,
    "make test-oldest": "needs an environment of its own",
    "make test-npu": "needs an environment of its own",
    "make test-browser": "needs a browser",
    "make docs": "a test of its own builds the site",
    "make fuzz": LONG,
    "graph2torch bench out/Huggy --threads": LONG,
    "graph2torch bench out/Huggy --compile": LONG,
    "graph2torch bench out/Huggy --plot": "needs matplotlib, which is optional; tests/test_bench.py draws one",
    "python -m benchmarks": LONG,
    "python -m tests": LONG,
    "python docs/outputs.py": "is what these tests do",
    "python docs/reference.py": "is what these tests do",
    "python assets/make_huggy.py": "needs ML-Agents",
}
NOT_RUN_PYTHON = {
    "x = torch.matmul(obs, self.net_w)": "shows what is written for a graph of that kind",
    'obs = torch.zeros(1, 59, device="npu")': NEEDS_HARDWARE,
}
OTHER_OPTIONS = {  # of other programs
    "--framework", "--input_shape", "--model", "--output", "--precision_mode_v2", "--soc_version",  # atc
    "--force-reinstall",  # pip
    "--local-dir",  # huggingface-cli
    "--logdir",  # tensorboard
    "--remote-debugging-pipe",  # chromium
}  # fmt: skip
IN_PLACE_OF = {"DIR": "out/Huggy", "MODEL.onnx": "assets/Huggy.onnx", "CHECKPOINT.pt": "assets/Huggy.pt"}
PINNED = dict(re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
OTHER_VERSIONS = [name for name in ("torch", "onnx", "onnxruntime", "typer") if version(name).partition("+")[0] != PINNED[name]]
as_written = pytest.mark.skipif(bool(OTHER_VERSIONS), reason=f"the pages show outputs of other versions of {', '.join(OTHER_VERSIONS)}")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@cache
def marked(page: Path) -> tuple[Block, ...]:
    return tuple(blocks(page.read_text(encoding="utf-8")))


# ---------------------------------------------------------------------------------------------- outputs
@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("docs"))


@as_written
@pytest.mark.parametrize("page", [page for page in PAGES if any(block.commands and not block.slow for block in marked(page))], ids=name_of)
def test_outputs_are_as_shown(page: Path, workshop: Workshop) -> None:
    if wanted := missing(page.read_text(encoding="utf-8")):
        pytest.skip(f"needs {', '.join(wanted)}")
    _, apart = refreshed(page, workshop)
    assert not apart, "\n".join([*apart, "", f"If that is meant: python docs/outputs.py {name_of(page)}"])


@pytest.mark.slow
@as_written
@pytest.mark.parametrize("page", [page for page in PAGES if any(block.slow for block in marked(page))], ids=name_of)
def test_slow_outputs_are_as_shown(page: Path, workshop: Workshop) -> None:
    _, apart = refreshed(page, workshop, slow=True)
    assert not apart, "\n".join(apart)


@every_page
def test_no_output_shows_a_fault(page: Path) -> None:
    for block in marked(page):
        for words in ("Traceback", "should not happen", "No such option", "No such command", "command not found", "No such file"):
            assert words not in block.text or block.kind != "output", (block.line, words)


# ---------------------------------------------------------------------------------------------- the comparison
PAGE = """
<!-- write: hello.py -->
```python
print("hello")
```

<!-- output -->
```
$ python hello.py; echo "exit status $?"
hello
exit status 0
```
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("", "", 0),
        ("\nhello\n", "\nhallo\n", 1),
        ("exit status 0", "exit status 1", 1),
        ("exit status 0\n", "", 1),
        ("<!-- output -->", "<!-- output: roundings -->", 0),
    ],
)
def test_a_page_is_held_against_what_its_commands_print(old: str, new: str, told: int, tmp_path: Path, workshop: Workshop) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace(old, new), encoding="utf-8")
    text, apart = refreshed(page, workshop)
    assert bool(apart) == bool(told)
    assert text == PAGE.replace(old, new) if not told else text == PAGE


@pytest.mark.parametrize("command", ["false", "graph2torch build nothing.onnx", "graph2torch run out/Huggy --no-such-option"])
def test_a_command_that_fails_is_told(command: str, tmp_path: Path, workshop: Workshop) -> None:
    for mark in (f"<!-- run: {command} -->\n", f"<!-- run -->\n```\n{command}  # a remark\n```\n"):
        page = tmp_path / "page.md"
        page.write_text(mark, encoding="utf-8")
        with pytest.raises(RuntimeError, match=re.escape(f"`{command}` ended with exit status")):
            refreshed(page, workshop)


def test_pages_find_no_leftovers(tmp_path: Path, workshop: Workshop) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- run: test ! -e out/left && touch out/left assets/left -->\n", encoding="utf-8")
    refreshed(page, workshop)
    refreshed(page, workshop)
    assert not (ROOT / "assets" / "left").exists()


@pytest.mark.parametrize(
    "text",
    ["<!-- output: rounding -->\n```\n```\n", "<!-- output -->\n\n```\n```\n", "<!-- run -->\n", "<!-- write: x --> \n```\n```\n"],
)
def test_marks_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="mark"):
        list(blocks(text))


TABLE = """
                                      differing   max abs  ulp    cosine
    continuous_actions                505 of 567  7.7e-07  1,909  1 − 9e-14
    bit-equal: version_number, sigma
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("505", "311"),
        ("7.7e-07", "4.1e-07"),
        ("1,909", "> 10⁶"),
        ("1 − 9e-14", "1"),
        ("version_number, sigma", "version_number,\n  sigma"),  # broken elsewhere
    ],
)
def test_what_another_processor_rounds(old: str, new: str) -> None:
    assert same_but_for_roundings(TABLE, TABLE.replace(old, new))
    assert not same(TABLE, TABLE.replace(old, new), set())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("505", "0"),
        ("505", "5"),
        ("567", "568"),
        ("7.7e-07", "0"),
        ("7.7e-07", "7.7e-05"),
        ("7.7e-07", "-7.7e-07"),
        ("1,909", "0"),
        ("1 − 9e-14", "1 − 9e-04"),
        ("1 − 9e-14", "0.99"),
        ("continuous_actions", "mu of continuous_actions"),
        ("bit-equal: version_number, sigma", ""),
        ("sigma", "mu"),
    ],
)
def test_what_is_no_rounding(old: str, new: str) -> None:
    assert not same_but_for_roundings(TABLE, TABLE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "alike"),
    [
        ("Equality  graph: the same", "Equality  bits: the same", False),
        ("all 4,968 numbers bit-equal", "all 4,967 numbers bit-equal", False),
        ("74 passed", "73 passed", False),
        ("exit status 0", "exit status 1", False),
        ("off by 0.0013", "off by 0.0031", True),
        ("off by 0.0013", "off by 0.031", False),
        ("actions 0.871449", "actions 0.871450", True),
        ("actions 0.871449", "actions -0.871449", False),
        ("actions 0.871449", "actions 0.881449", False),
        ("88.8 % of them", "88.9 % of them", True),
        ("88.8 % of them", "78.8 % of them", False),
        ("torch 2.13.0", "torch 2.12.0", False),
        ("sha256 406a5e043ea0…", "sha256 406a5e043ea1…", False),
        ("[-0.45601782  0.07301957]", "[-0.45601785  0.07301955]", True),
        ("in float16 [nan", "in float16 [0.1", False),
        ("one two", "one", False),
    ],
)
def test_roundings_change_no_words(old: str, new: str, alike: bool) -> None:
    assert same_but_for_roundings(old, new) is alike


def test_fingerprints_and_builds_of_torch() -> None:
    assert same("torch 2.13.0+cpu", "torch 2.13.0+cu130", set())
    shown, other = f"exact {'a' * 64}\ntolerant t{'+12' * 8}\n", f"exact {'b' * 64}\ntolerant t{'-3' * 8}\n"
    assert same(shown, other, {"fingerprints"}) and not same(shown, other, set())
    assert not same(shown + "the same", other + "another", {"fingerprints"})
    block = Block("output", "fingerprints", "", shown, 1)
    assert not differences(block, replace(block, text=other)) and differences(block, replace(block, text="nothing"))


# ---------------------------------------------------------------------------------------------- what a page says
@dataclass(frozen=True)
class Code:
    """A fenced or indented block, or a piece of code in the text."""

    page: Path
    line: int
    language: str
    text: str
    kind: str  # "inline", "block", or the kind of mark that stands before it

    @property
    def place(self) -> str:
        return f"{name_of(self.page)}, line {self.line}"


@cache
def code(page: Path) -> tuple[Code, ...]:
    found, mark = [], None
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        line = (token.map or [0])[0] + 1
        if token.type in ("fence", "code_block"):
            found.append(Code(page, line, token.info, token.content, mark["kind"] if mark else "block"))
        for child in token.children or ():
            if child.type == "code_inline":
                found.append(Code(page, line, "", child.content, "inline"))
        mark = re.fullmatch(MARK, token.content) if token.type == "html_block" else None
    return tuple(found)


CODE = [piece for page in PAGES for piece in code(page)]
COMMANDS = {command.name or "": command for command in typer.main.get_command(cli.app).commands.values()}  # type: ignore[attr-defined]
GLOBAL = {"--debug", "--version", "--help"}
OPTIONS = {name: {o for p in command.params for o in [*p.opts, *p.secondary_opts]} | {"--help", "-h"} for name, command in COMMANDS.items()}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9_-]*")
PROGRAM = re.compile(r"(?:graph2torch|python|make|pip|source|atc|cp|cd|huggingface-cli|\.) ")


def commands_of(piece: Code) -> list[str]:
    """The commands in a piece of code that isn't marked, without the remarks behind them."""
    lines = piece.text.splitlines() if piece.kind != "inline" else [piece.text]
    found = [
        re.split(r"  +(?:#|\w)|\s+# ", line.removeprefix("$ ").strip())[0].strip()
        for line in lines
        if PROGRAM.match(line.removeprefix("$ "))
    ]
    return [command for command in found if piece.kind == "inline" or piece.language in ("", "sh", "console")]


TOLD = [(piece, command) for piece in CODE if piece.kind in ("inline", "block") for command in commands_of(piece)]
RUN = {command for page in PAGES for block in marked(page) for command in block.commands}


def test_commands_are_found() -> None:
    assert len(TOLD) > 50 and len(RUN) > 40 and len(COMMANDS) > 8


def in_place(command: str) -> str:
    return " ".join(IN_PLACE_OF.get(word, word) for word in command.split(" "))


def is_form(command: str) -> bool:
    """Whether it says what a command looks like: it has options in brackets, words that stand for something, or no argument."""
    words = in_place(command).split(" ")
    if words[0] != "graph2torch":
        return command == "python cli.py"
    stands_for = any(re.fullmatch(r"(.*/)?[A-Z]+(\.[a-z]+)?", word) for word in words[1:])
    return "[" in command or "…" in command or stands_for or (words[1] in COMMANDS and all(word.startswith("-") for word in words[2:]))


def is_run(command: str) -> bool:
    """Whether a block that is run has it, perhaps with more options or behind a `cd`."""
    return any(re.search(rf"(^|&& ){re.escape(in_place(command))}", done) for done in RUN)


def is_listed(command: str) -> bool:
    return any(begins(command, listed) for listed in NOT_RUN)


def begins(command: str, listed: str) -> bool:
    return bool(re.match(rf"{re.escape(listed)}(?![\w-])", command))


TO_RUN = sorted({in_place(c) for _, c in TOLD if not is_listed(c) and not is_form(c) and not is_run(c)})


@pytest.mark.parametrize("command", TO_RUN)
def test_commands_in_the_text_work(command: str, tmp_path: Path, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = shlex.split(command)
    assert program == "graph2torch", f"`{command}` is neither in a block that is run nor in NOT_RUN"
    folder = workshop.folder(tmp_path)
    (folder / "other.onnx").write_bytes((folder / "out/Huggy/rebuilt.onnx").read_bytes())
    monkeypatch.chdir(folder)
    arguments = [*arguments, "--force"] if arguments[0] == "build" else arguments
    result = run(*arguments)
    assert result.status == 0, (result, [piece.place for piece, c in TOLD if in_place(c) == command])


def test_what_is_not_run_is_told_somewhere() -> None:
    told = {command for _, command in TOLD}
    assert not [listed for listed in NOT_RUN if not any(begins(command, listed) for command in told)]
    firsts = {piece.text.splitlines()[0] for piece in CODE if piece.language == "python" and piece.kind == "block"}
    assert set(NOT_RUN_PYTHON) == firsts


# ---------------------------------------------------------------------------------------------- options
def unknown_options(text: str) -> list[str]:
    """Commands and options in a text of code that graph2torch doesn't have."""
    found = []
    for name, rest in re.findall(r"graph2torch ((?:--[a-z]+ )?[a-z]+)\b([^|`;\n]*)", text):
        command = name.split(" ")[-1]
        if command not in COMMANDS:
            found.append(f"graph2torch {name}")
        else:
            found += [f"{command} {option}" for option in OPTION.findall(rest) if option not in OPTIONS[command]]
    return found


@pytest.mark.parametrize("text", ["graph2torch biuld x", "graph2torch run DIR --opset 3", "graph2torch diff a b --samples 3 --fast"])
def test_options_that_are_none_are_seen(text: str) -> None:
    assert len(unknown_options(text)) == 1


@cache
def options_of(script: str) -> set[str]:
    """The options of a script of the checkout."""
    path = ROOT / (script if script.endswith(".py") else script.replace(".", "/") + ".py")
    if not path.exists():
        path = path.with_suffix("") / "__main__.py"
    return set(OPTION.findall(path.read_text(encoding="utf-8")))


@every_page
def test_options_on_pages_exist(page: Path) -> None:
    for piece in code(page):
        text = piece.text.split("\n\n")[0] if piece.kind == "output" else piece.text
        text = "\n".join(line for line in text.splitlines() if piece.kind != "output" or line.startswith("$ "))
        assert not unknown_options(text), piece.place
        if first := re.match(r"([a-z]+) (?=.*--)", text) if piece.kind == "inline" else None:  # `run --dtype float16`
            assert first[1] not in COMMANDS or not unknown_options(f"graph2torch {text}"), piece.place
        scripts = re.findall(r"python (?:-\w+ \w+ )?(?:-m )?((?:docs|assets)/\w+\.py|(?:benchmarks|tests)(?:\.\w+)?)", text)
        known = {o for script in scripts for o in options_of(script)} | OTHER_OPTIONS | GLOBAL
        for module in re.findall(r"tests\.(?:fuzz|mutations)", page.read_text(encoding="utf-8").replace("make fuzz", "tests.fuzz")):
            known |= options_of(module)
        if not scripts or "graph2torch" in text:
            known |= {o for options in OPTIONS.values() for o in options}
        assert not set(OPTION.findall(text)) - known, piece.place
        for target in re.findall(r"(?:^|\$ )make ([a-z-]+)", text, re.MULTILINE):
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE), piece.place
        for extra in re.findall(r"graph2torch\[([a-z]+)\]", text):
            assert re.search(rf"^{extra} = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE), piece.place


SOURCES = [ROOT / "cli.py", *sorted((ROOT / "graph2torch").rglob("*.py")), *sorted((ROOT / "rules").rglob("*.py"))]


def texts_of(source: Path) -> Iterator[tuple[int, str]]:
    """Docstrings, messages and other literals, and remarks."""
    text = source.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for number, line in enumerate(text.splitlines(), 1):
        if "  # " in line:
            yield number, line.partition("  # ")[2]


def test_options_in_messages_and_docstrings_exist() -> None:
    every = {o for options in OPTIONS.values() for o in options} | GLOBAL
    seen = 0
    for source in SOURCES:
        for line, text in texts_of(source):
            for quoted in re.findall(r"`([^`]*)`", text):
                assert not unknown_options(quoted), f"{source}, line {line}"
            options = set(OPTION.findall(text))
            seen += len(options)
            assert not options - every - OTHER_OPTIONS, f"{source}, line {line}"
    assert seen > 50


MODULES = {module for _, command in TOLD for module in re.findall(r"python -m ((?:benchmarks|tests)\.\w+)", command)}


@pytest.mark.parametrize("module", sorted(MODULES - {"tests.onnx_node_tests"}))  # which has no help
def test_modules_that_are_not_run_start(module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module(module, run_name="__main__")
    assert not stop.value.code and "usage" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------- links, files, names
def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@cache
def anchors(page: Path) -> set[str]:
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
    texts = ["".join(c.content for c in after.children or ()) for t, after in pairwise(tokens) if t.type == "heading_open"]
    return {slug(text) for text in texts}


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    targets = []
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        targets += [str(child.attrs.get("href") or child.attrs.get("src") or "") for child in token.children or ()]
        targets += re.findall(r'(?:src|srcset|href)="([^"]*)"', token.content) if token.type == "html_block" else []
    for target in targets:
        if not target or re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists() and there.is_relative_to(ROOT), (name_of(page), target)
        assert not anchor or anchor in anchors(there), (name_of(page), target)


PICTURES = sorted(FOLDER.iterdir())


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_pictures_are_small_and_load_nothing(picture: Path) -> None:
    assert picture.stat().st_size <= LIMIT
    shown_by = [*PAGES, ROOT / "docs" / "site.py"]
    assert any(picture.name in page.read_text(encoding="utf-8") for page in shown_by), "no page shows it"
    if picture.suffix == ".svg":
        text = picture.read_text(encoding="utf-8")
        assert not re.search(r"<script|<image|@import|url\((?!#)|@font-face|href", text)
    else:
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_site_is_whole_and_fetches_nothing(tmp_path: Path) -> None:
    """A link that leads nowhere, and a page that the navigation lacks, fail the build."""
    pytest.importorskip("material", reason="the site needs graph2torch[docs]")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path), "--config-file", str(ROOT / "mkdocs.yml")],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) >= len(PAGES) and not list(tmp_path.rglob("*.py"))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(
            r'<(?:script|img|source|iframe)[^>]*(?:src|srcset)="https?:|<link[^>]*rel="stylesheet"[^>]*href="https?:|class="mermaid', text
        )
        assert "&lt;!-- output" not in text and "<!-- output" not in text


def rows_of(page: Path, heading: str) -> list[list[str]]:
    """The cells of the tables below a heading."""
    part = page.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if re.match(r"\| *[a-z]", line)]


def test_what_the_front_page_says_of_other_tools_is_what_was_measured() -> None:
    measured = rows_of(ROOT / "docs" / "comparing.md", "Beside other tools")
    told = [row for row in rows_of(ROOT / "README.md", "In what two files differ") if len(row) == 4]
    assert len(told) == 5
    for tool, *verdicts in told:
        name = "the same, without the sampled actions" if tool.startswith("polygraphy") else tool.partition(",")[0]
        (row,) = [row for row in measured if re.match(rf"{re.escape(name)}(:|$)", row[0])]
        part = -1 if "outputs" in tool else 0  # files; outputs
        assert verdicts == [re.sub(r" \(\d\)$", "", cell).split("; ")[part] for cell in row[2:]], tool


def test_the_diagram_is_the_one_that_is_written() -> None:
    assert mark_of(diagram()) in (FOLDER / "stages.svg").read_text(encoding="utf-8"), (
        "python docs/pictures.py --mermaid …, or draw it again"
    )


@as_written
def test_the_reference_is_what_the_program_says() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), "python docs/reference.py"


@as_written
@pytest.mark.parametrize("name", SHOTS)
def test_pictures_show_what_is_printed(name: str, workshop: Workshop) -> None:
    now = drawn(name, terminal_text(SHOTS[name], workshop))
    there = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert len(shown(there)) > 500
    assert same(shown(there), shown(now), {"roundings"}), f"If that is meant: python docs/pictures.py {name}\n{shown(now)}"


BUILT = {"model.py", "weights.safetensors", "rebuilt.onnx", "lifted.onnx", "report.json"}
OF_OTHERS = {"inference.py", "run_tests.sh", "ppo-Huggy-NPU", "configuration.yaml", "libhccl.so", "set_env.sh"}
FILE = re.compile(r"(?:[\w.-]+/)*[\w-]+\.(?:py|md|toml|txt|c|sh|yaml)")


@every_page
def test_files_that_are_named_exist(page: Path) -> None:
    written = {block.words for other in PAGES for block in marked(other) if block.kind == "write"}
    for piece in code(page):
        for name in FILE.findall(piece.text) if piece.kind == "inline" and FILE.fullmatch(piece.text) else ():
            bare = "/" not in name
            if name in written | BUILT | OF_OTHERS or name.startswith("out/") or (bare and any(Path(w).name == name for w in written)):
                continue
            roots = (ROOT, ROOT / "docs", ROOT / "graph2torch", ROOT / "rules" / "mlagents", ROOT / "tests" / "hostile")
            known = any((root / name).exists() for root in roots)
            assert known or (bare and any(any((ROOT / top).rglob(name)) for top in ("rules", "assets"))), piece.place


def names_of_tests() -> set[str]:
    return {name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))}


@every_page
def test_tests_that_are_named_exist(page: Path) -> None:
    names = names_of_tests()
    for piece in code(page):
        if piece.kind == "inline" and (found := re.fullmatch(r"(test_\w+)(…?)", piece.text)):
            assert any(name.startswith(found[1]) if found[2] else name == found[1] for name in names), piece.place


@every_page
def test_python_names_exist(page: Path) -> None:
    """Dotted names of the package."""
    for piece in code(page):
        for dotted in re.findall(r"\bgraph2torch(?:\.\w+)+", piece.text) if piece.kind == "inline" else ():
            pkgutil.resolve_name(dotted)  # or ImportError, AttributeError


def test_python_blocks_are_run_or_listed() -> None:
    for piece in CODE:
        if piece.language == "python" and piece.kind == "block":
            assert piece.text.splitlines()[0] in NOT_RUN_PYTHON, piece.place
            ast.parse(piece.text)
        elif piece.kind == "write" and piece.text.endswith(".py"):
            ast.parse(piece.text)
