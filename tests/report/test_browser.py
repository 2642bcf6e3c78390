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
    page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    page.click('a.box[data-block="1"] rect')
    assert not page.evaluate(hidden)
    assert page.evaluate(
        "(b => b.getBoundingClientRect().bottom < document.querySelector('.panel').getBoundingClientRect().top)(document.querySelector('a.box[aria-current]'))"
    )
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
        least = (0.68 if room >= 0.68 * wide else 0.85) * wide  # what can't be read as a whole is shown larger
        assert drawn == pytest.approx(max(least, min(most, room)), abs=6)
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert page.evaluate("document.querySelector('nav').classList.contains('more-right')") is (width == 390)
        assert quiet(page, built)


CONTRAST = """(() => {
  const linear = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const parts = text => { const m = text.match(/[\\d.]+/g).map(Number); return [m[0], m[1], m[2], m[3] ?? 1]; };
  const seen = [], words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (words.nextNode()) {
    const e = words.currentNode.parentElement, box = e.closest('.box'), drawn = e.namespaceURI.endsWith('svg');
    if (!words.currentNode.data.trim() || !e.getClientRects().length || e.matches('script, style, title')) continue;
    let below = box ? parts(getComputedStyle(box.querySelector('rect')).fill) : [0, 0, 0, 0], opacity = 1;
    for (let x = e; x; x = x.parentElement) {
      if (below[3] < 1) below = parts(getComputedStyle(x).backgroundColor);
      opacity *= Number(getComputedStyle(x).opacity);
    }
    const ink = parts(getComputedStyle(e)[drawn ? 'fill' : 'color']).slice(0, 3).map((c, i) => c * opacity + below[i] * (1 - opacity));
    const [dark, bright] = [light(ink), light(below)].sort((a, b) => a - b);
    seen.push([(bright + 0.05) / (dark + 0.05), words.currentNode.data.trim().slice(0, 40)]);
  }
  return seen.sort((a, b) => a[0] - b[0]);
})()"""  # of each text, as WCAG 2 computes it


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_can_be_read(browser: Chromium, built: Path, tmp_path: Path, dark: bool) -> None:
    """Contrast of at least 4.5 : 1, also in what is selected and in what differs; on a phone what is touched is 24 pixels high."""
    save_pair(tmp_path, tiny_policy(), name="a")
    save_pair(tmp_path, tiny_policy(layers=3, seed=1), name="b")
    assert run("diff", tmp_path / "a.onnx", tmp_path / "b.onnx", "--html", tmp_path / "page.html").status == 1
    for path in (built, tmp_path / "page.html"):
        page = browser.open(path, width=390, dark=dark)
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        found = page.evaluate(CONTRAST)
        assert len(found) > 100 and found[0][0] >= 4.5, found[:5]
        small = (
            "Array.from(document.querySelectorAll('a:not(.skip, .box), button, summary')).filter(e => e.getClientRects().length)"
            ".filter(e => !e.closest('dd, p')).filter(e => e.getBoundingClientRect().height < 24).map(e => e.textContent)"
        )
        assert page.evaluate(small) == []


@pytest.mark.parametrize("dark", [False, True])
def test_on_paper(browser: Chromium, built: Path, dark: bool) -> None:
    """Whatever the screen likes, paper is white; all blocks are told, nothing is folded away, and no drawing is cut."""
    page = browser.open(built, width=760, height=1080)
    page.send(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    )
    page.evaluate(f"document.documentElement.dataset.theme = '{'dark' if dark else ''}'")
    for chosen in ("", "delete document.documentElement.dataset.theme"):
        page.evaluate(chosen or "0")
        assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate(CONTRAST)[0][0] >= 4.5
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    assert page.evaluate("Array.from(document.querySelectorAll('.block')).every(b => b.getClientRects().length)")
    assert page.evaluate(
        "(g => g.getBoundingClientRect().right <= g.closest('main').getBoundingClientRect().right)(document.querySelector('.graph'))"
    )
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.querySelectorAll('details[open]').length") == 0


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
