"""The page itself: a document filled into a template, with its style and script inside and nothing from anywhere else.

Three things keep what a file says from becoming part of the page: every text is `printable` already, the template escapes whatever
it is given, and the page's own policy (CSP) allows no network, no form and no script or style but the two that belong to it, by
their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graph2torch.graph import Array

from .charts import exactly, shortly
from .document import Report, of_document

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATES = Path(__file__).with_name("templates")


def report_page(
    document: Mapping[str, Any],
    source: str,
    tensors: Mapping[str, Array],
    verification: Mapping[str, Any] | None = None,
    changed: Sequence[str] = (),
) -> str:
    """report.html of a built policy; see `graph2torch.report.document.of_document`."""
    found = of_document(document, source, tensors, verification, changed)
    return page("report.html.j2", data(found), report=found)


def page(template: str, script_data: Mapping[str, Any], **values: object) -> str:
    """A template of this folder, filled. `script_data`: what the page's script needs."""
    style, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return (
        _environment()
        .get_template(template)
        .render(style=style, script=script, policy=content_security_policy(style, script), data=embedded(script_data), **values)
    )


def data(found: Report) -> dict[str, Any]:
    """What the script needs: where the arrow keys go, the lines of each block, the normalisers' columns."""
    return {
        "keys": {str(number): list(to) for number, to in (found.drawing.keys if found.drawing else ())},
        "lines": {str(b.number): list(b.lines) for b in found.blocks if b.lines},
        "normalisers": [{"columns": [list(c) for c in n.drawing.columns], "never": list(n.drawing.never)} for n in found.normalisers],
    }


def content_security_policy(style: str, script: str) -> str:
    """Nothing may be loaded or sent; this style and this script alone are allowed, by their SHA-256."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; img-src data:; base-uri 'none'; form-action 'none'"


def embedded(value: Mapping[str, Any]) -> str:
    """JSON that may stand in a script element: ASCII, and no character that HTML would look at."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def breakable(text: str) -> Markup:
    """A long name, escaped, that a line may end within: behind a slash or a dot, but within no number."""
    from markupsafe import Markup

    return Markup("<wbr>").join(part for part in re.split(r"(?<=/)|(?<=\.)(?!\d)", text) if part)


def sentence(text: str) -> str:
    """With a capital letter, unless it begins with a name: of a program, a file or code."""
    return text[:1].upper() + text[1:] if re.match(r"(?!onnxruntime|torch)[a-z]+[ :,]", text) else text


@lru_cache(1)
def _environment() -> Environment:
    from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
    from jinja2.bccache import Bucket

    class Compiled(BytecodeCache):
        """Templates as code, kept where Python keeps a module's: compiling them takes longer than all else about a page."""

        def get_cache_key(self, name: str, filename: str | None = None) -> str:
            return name

        def load_bytecode(self, bucket: Bucket) -> None:
            with suppress(Exception), self.place(bucket).open("rb") as file:
                bucket.load_bytecode(file)  # only for these versions of Python and Jinja, and for this text of the template

        def dump_bytecode(self, bucket: Bucket) -> None:
            place = self.place(bucket)
            temporary = place.with_name(f"{place.name}.{os.getpid()}")
            if not sys.dont_write_bytecode:
                with suppress(OSError):  # nothing may be written there
                    place.parent.mkdir(exist_ok=True)
                    temporary.write_bytes(bucket.bytecode_to_string())
                    temporary.replace(place)

        @staticmethod
        def place(bucket: Bucket) -> Path:
            return Path(cache_from_source(str(TEMPLATES / f"{bucket.key}.py")))

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
        bytecode_cache=Compiled(),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["short"] = shortly
    environment.filters["exact"] = exactly
    environment.filters["breakable"] = breakable
    environment.filters["error"] = lambda number: shortly(number, 2)
    environment.filters["thousands"] = lambda number: f"{number:,}"
    environment.filters["sentence"] = sentence
    environment.filters["px"] = lambda number: f"{number:.1f}".removesuffix(".0")
    return environment
