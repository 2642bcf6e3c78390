"""Hooks of `make docs`: README.md is the site's first page, assets/README.md another one, and pages show what only GitHub draws itself.

mkdocs.yml names this file. What mkdocs reads lies in docs/; the two other pages and the licence are handed to it from here, and links
between them and docs/ are turned to where the pages lie on the site.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {"README.md": "index.md", "assets/README.md": "assets.md", "LICENSE": "license.txt"}  # of the checkout → of the site
MARK = re.compile(r"^<!-- (?:output|run|write|file|checkout|needs)\b.*? -->\n", re.MULTILINE)
MERMAID = re.compile(r"```mermaid\n.*?```\n", re.DOTALL)
DIAGRAM = "![The stages of a build, from the two files to the report](pictures/stages.svg)\n"


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that lie outside of docs/."""
    for source, target in OUTSIDE.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page's links as the site has them, and the diagram drawn, without marks."""
    markdown = MERMAID.sub(DIAGRAM, MARK.sub("", markdown))
    if page.file.src_uri == "index.md":
        markdown = re.sub(r'(\]\(|src(?:set)?=")docs/', r"\1", markdown)
    elif page.file.src_uri == "assets.md":
        markdown = markdown.replace("](../docs/", "](")
    for source, target in OUTSIDE.items():
        markdown = re.sub(rf"\]\((?:\.\./)?{re.escape(source)}(?=[)#])", f"]({target}", markdown)
    return markdown
