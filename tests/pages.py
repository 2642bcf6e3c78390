"""Holds a page against what every page must be: one file, well-formed, of known elements, with nothing of a model's names in its structure."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

from tests.commands import unsafe

VOID = {"meta", "link", "br", "wbr"}
_ELEMENTS = """
html head meta title link style body a div nav button main section p h1 h2 h3 ol ul li b dl dt dd span small article code pre figure
figcaption table caption thead tbody tr th td details summary footer script svg g path line rect circle text br wbr
"""
_ATTRIBUTES = """
lang charset http-equiv content name rel href class type hidden id tabindex aria-label aria-current aria-live aria-hidden role
data-block data-label data-normaliser width height viewbox preserveaspectratio transform d x y x1 x2 y1 y2 cx cy r rx colspan
"""
ELEMENTS, ATTRIBUTES = frozenset(_ELEMENTS.split()), frozenset(_ATTRIBUTES.split())
CLASSES = re.compile(r"[a-z0-9 ]*")


class Read(HTMLParser):
    """A page, read without mercy: whatever is opened is closed, in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.ids: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        assert len(given) == len(attributes), (tag, attributes)
        self.tags.append((tag, given))
        if given.get("id") is not None:
            self.ids.append(str(given["id"]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:], self.getpos())
        self.open.pop()

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        self.texts.setdefault(inside, []).append(data)
        if inside not in ("script", "style"):
            self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data[:80]}")


def check_page(html: str) -> tuple[Read, dict[str, Any]]:
    """What every page must be; gives it read, and the data of its script."""
    assert html.isprintable() or not unsafe(html)
    read = Read(html)
    assert html.startswith("<!doctype html>")
    for tag, given in read.tags:
        assert tag in ELEMENTS, tag
        assert given.keys() <= ATTRIBUTES, (tag, given)
        assert CLASSES.fullmatch(given.get("class") or ""), given
        href = given.get("href")
        assert href is None or re.fullmatch(r"#[\w-]*|data:image/svg\+xml,[^<>]*", href), href
    assert len(read.ids) == len(set(read.ids))
    targets = {str(given["href"])[1:] for tag, given in read.tags if tag == "a"}
    assert targets <= set(read.ids), targets - set(read.ids)
    scripts, styles = ([given for tag, given in read.tags if tag == kind] for kind in ("script", "style"))
    assert len(scripts) == 2 and scripts[0] == {"type": "application/json", "id": "data"} and not scripts[1] and styles == [{}]
    policy = next(str(given["content"]) for _, given in read.tags if given.get("http-equiv") == "Content-Security-Policy")
    data, script = read.texts["script"]
    hashes = {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, "".join(read.texts["style"]))}
    assert set(re.findall(r"'sha256-([^']+)'", policy)) == hashes
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "http" not in policy
    assert not re.search(r"[<>&]", data) and data.isascii()
    told: dict[str, Any] = json.loads(data)
    return read, told
