"""report.html in a real Chromium: it loads without a complaint, answers to mouse and keys, and sends and loads nothing.

Skipped where there is no Chromium; `make test-browser` fails instead, and says how to get one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from graph2torch.build import build
from tests.chromium import HOW, Chromium, Page, found
from tests.commands import run
from tests.models import FAMILIES, save_pair, tiny_checkpoint, tiny_policy
from tests.report.test_page import HOSTILE, generic_policy, hostile_policy

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    if found() is None:
        (pytest.fail if "GRAPH2TORCH_BROWSER" in os.environ else pytest.skip)(HOW)
    with Chromium() as started:
        yield started


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    model = tiny_policy(**FAMILIES["hybrid"])
    save_pair(folder, model, tiny_checkpoint(model))
    build(folder / "Tiny.onnx", folder / "Tiny.pt", folder / "out")
    return folder / "out" / "report.html"


def quiet(page: Page, path: Path) -> bool:
    """No complaint, and nothing was asked for but the page itself."""
    assert page.complaints() == []
    assert {address.partition("#")[0] for address in page.requests() if not address.startswith("data:")} == {path.resolve().as_uri()}
    return True


def selected(page: Page) -> list[str]:
    """The blocks that are told; and the box that is marked."""
    shown = "Array.from(document.querySelectorAll('.block')).filter(b => b.getClientRects().length).map(b => b.id)"
    marked = "Array.from(document.querySelectorAll('a.box[aria-current]')).map(b => b.getAttribute('href'))"
    told: list[str] = page.evaluate(shown)
    assert page.evaluate(marked) == [f"#{name}" for name in told]
    return told


def test_mouse_and_keys(browser: Chromium, built: Path) -> None:
    page = browser.open(built)
    assert selected(page) == ["block-0"]
    page.click('a.box[data-block="2"] rect')
    assert selected(page) == ["block-2"] and page.evaluate("location.hash") == "#block-2"
    assert page.evaluate("document.querySelectorAll('.listing .hit').length") > 0
    page.press("ArrowUp")
    assert selected(page) == ["block-1"]
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#block-1"
    page.press("ArrowDown")
    assert selected(page) == ["block-2"]
    page.press("Tab", "Enter")
    assert selected(page) == ["block-3"]
    page.press("Escape")
    assert page.evaluate("document.querySelectorAll('a.box[aria-current]').length") == 0
    assert quiet(page, built)


def test_light_and_dark(browser: Chromium, built: Path) -> None:
    """As the system has it, until the reader chooses."""
    light = "getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).every(n => n > 200)"
    for dark in (False, True):
        page = browser.open(built, dark=dark)
        assert page.evaluate(light) is not dark
        page.click(".theme")
        assert page.evaluate(light) is dark
        page.evaluate("try { localStorage.clear() } catch {}")
        assert quiet(page, built)


def test_a_normalisers_column_is_read_out(browser: Chromium, built: Path) -> None:
    page = browser.open(built)
    page.evaluate("document.querySelector('.columns').focus()")
    page.press("ArrowRight", "ArrowRight")
    assert page.evaluate("document.querySelector('.readout').textContent").startswith("column 1: mean ")
    assert quiet(page, built)


def test_a_phone(browser: Chromium, built: Path) -> None:
    """Nothing is wider than the screen; a block comes up from below and goes again."""
    page = browser.open(built, width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    hidden = "document.querySelector('.panel').getClientRects().length === 0"
    assert page.evaluate(hidden)
    page.click('a.box[data-block="1"] rect')
    assert not page.evaluate(hidden)
    page.press("Escape")
    assert page.evaluate(hidden)
    assert quiet(page, built)


def test_a_drawing_shrinks_while_it_can_be_read(browser: Chromium, built: Path) -> None:
    """Then it can be moved; the sections above fade out where they go on."""
    for width in (1600, 1280, 390):
        page = browser.open(built, width=width)
        wide, most, drawn, room = page.evaluate(
            "(g => { const d = g.closest('.drawing'), s = getComputedStyle(d);"
            "return [g.viewBox.baseVal.width, Number(g.getAttribute('width')), g.getBoundingClientRect().width,"
            "d.clientWidth - parseFloat(s.paddingLeft) - parseFloat(s.paddingRight)] })(document.querySelector('.graph'))"
        )
        assert drawn == pytest.approx(max(0.64 * wide, min(most, room)), abs=1.5)
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert page.evaluate("document.querySelector('nav').classList.contains('more-right')") is (width == 390)
        assert quiet(page, built)


def test_without_scripts(browser: Chromium, built: Path) -> None:
    """Everything can be read; a box leads to its block."""
    page = browser.open(built, script=False)
    root = page.send("DOM.getDocument")["root"]["nodeId"]
    blocks = page.send("DOM.querySelectorAll", nodeId=root, selector=".block")["nodeIds"]
    boxes = page.send("DOM.querySelectorAll", nodeId=root, selector="a.box")["nodeIds"]
    assert len(blocks) == len(boxes) > 5
    for node in blocks:
        assert page.send("DOM.getBoxModel", nodeId=node)["model"]["height"] > 0
    assert page.complaints() == []


def test_an_address_with_a_block(browser: Chromium, built: Path) -> None:
    page = browser.open(built, fragment="block-4")
    assert selected(page) == ["block-4"]
    top, bottom = page.evaluate(
        "(() => { const r = document.querySelector('a.box[aria-current]').getBoundingClientRect(); return [r.top, r.bottom] })()"
    )
    assert 0 < top < bottom < 900  # it is seen, not somewhere below
    page = browser.open(built, fragment="%3Cscript%3E")
    assert selected(page) == ["block-0"] and quiet(page, built)


@pytest.mark.parametrize("policy", [hostile_policy, generic_policy])
def test_hostile_names_do_nothing(browser: Chromium, tmp_path: Path, policy: object) -> None:
    """None of them ran, none styled anything, none left the page; what a script would have been stands there to be read."""
    assert callable(policy)
    save_pair(tmp_path, policy())
    build(tmp_path / "Tiny.onnx", None, tmp_path / "out")
    path = tmp_path / "out" / "report.html"
    page = browser.open(path)
    assert page.evaluate("typeof executed") == "undefined"
    assert page.evaluate("document.title") == "Tiny · graph2torch"
    assert page.evaluate("document.querySelectorAll('script').length") == 2
    assert (
        page.evaluate("document.querySelectorAll('img, iframe, object, embed, form, base, foreignObject, use, image, animate').length") == 0
    )
    handlers = (
        "Array.from(document.querySelectorAll('*')).flatMap(e => e.getAttributeNames().map(n => [n, e.getAttribute(n)]))"
        ".filter(([n, v]) => n.startsWith('on') || n === 'style' && !/^min-width: \\d+px;$/.test(v))"  # the page's own, of its drawing
    )
    assert page.evaluate(handlers) == []
    assert page.evaluate("document.body.textContent.includes(\"<script>document.title='executed'\")")
    assert page.evaluate("getComputedStyle(document.body).display") == "block"
    for number in range(0, page.evaluate("document.querySelectorAll('a.box').length"), 7):
        page.click(f'a.box[data-block="{number}"] rect')
        assert selected(page) == [f"block-{number}"]
    assert page.evaluate("typeof executed") == "undefined" and len(HOSTILE) > 40
    assert quiet(page, path)


def test_a_difference(browser: Chromium, tmp_path: Path) -> None:
    """Ordinary on one side, hostile on the other: quiet, and a box leads to its row."""
    save_pair(tmp_path, tiny_policy(), name="a")
    save_pair(tmp_path, hostile_policy(), name="b")
    path = tmp_path / "page.html"
    assert run("diff", tmp_path / "a.onnx", tmp_path / "b.onnx", "--html", path).status == 1
    for width, dark in ((1280, False), (390, True)):
        page = browser.open(path, width=width, dark=dark)
        assert page.evaluate("typeof executed") == "undefined"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        told = "Array.from(document.querySelectorAll('.plainfacts dd')).every(e => e.clientWidth > 0.6 * e.closest('dl').clientWidth)"
        assert page.evaluate(told)
        page.click("a.box.added rect")
        assert page.evaluate("document.querySelector('tr:target').textContent.includes('in b only')")
        assert quiet(page, path)
