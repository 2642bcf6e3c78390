"""Drives a real Chromium through its DevTools protocol, by two pipes: pages are loaded, clicked, typed to and looked at.

    with Chromium() as browser:
        page = browser.open(path, width=390, height=844, dark=True)
        page.press("ArrowDown")
        assert page.evaluate("document.activeElement.tagName") == "a"

No driver and no package is needed beside the browser (Debian: apt-get install chromium), which GRAPH2TORCH_CHROMIUM may name.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
HOW = "no Chromium was found; install one (Debian: apt-get install chromium), or name it in GRAPH2TORCH_CHROMIUM"
PATIENCE = 60.0  # seconds; a loaded machine takes some to start a browser
KEYS = {"ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37, "ArrowRight": 39, "Enter": 13, "Escape": 27, "Tab": 9}


def found() -> str | None:
    """The Chromium of this machine."""
    named = os.environ.get("GRAPH2TORCH_CHROMIUM")
    if named:
        return shutil.which(named)
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """A headless browser of its own, with a profile of its own, gone at the end."""

    def __init__(self) -> None:
        program = found()
        if program is None:
            raise FileNotFoundError(HOW)
        self.profile = tempfile.TemporaryDirectory(prefix="graph2torch-chromium-", ignore_cleanup_errors=True)
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'  # the browser reads from 3 and writes to 4
        options = [
            "--headless=new",
            "--remote-debugging-pipe",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-extensions",
        ]
        options += ["--disable-background-networking", "--disable-component-update", f"--user-data-dir={self.profile.name}"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            options.append("--no-sandbox")  # it has none for root
        self.process = subprocess.Popen(
            ["bash", "-c", command, program, *options, "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.reading, self.writing = ours_in, ours_out
        self.buffer, self.number = b"", 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.reading)
        os.close(self.writing)
        self.profile.cleanup()

    def send(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, and what it gives. RuntimeError if the browser refuses it."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                given: dict[str, Any] = answer["result"]
                return given
            self.events.append(answer)

    def receive(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.reading], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self.reading, 2**20) if ready else b""
            if not data:
                raise RuntimeError(f"Chromium said nothing for {PATIENCE:.0f} s, or has ended")
            self.buffer += data
        message, _, self.buffer = self.buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def open(
        self,
        path: Path,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        script: bool = True,
        fragment: str = "",
        scale: float = 1,
    ) -> Page:
        """A page of a file, loaded, in a window of its own. `script`: whether scripts may run; `scale`: pixels of the screen for one of CSS."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        page.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=width < 600)
        page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        if not script:
            page.send("Emulation.setScriptExecutionDisabled", value=True)
        page.send("Page.navigate", url=path.resolve().as_uri() + (f"#{fragment}" if fragment else ""))
        page.wait("Page.loadEventFired")
        return page


class Page:
    def __init__(self, browser: Chromium, session: str) -> None:
        self.browser, self.session = browser, session

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.send(method, self.session, **parameters)

    def wait(self, event: str) -> None:
        while not any(e.get("method") == event and e.get("sessionId") == self.session for e in self.browser.events):
            self.browser.events.append(self.browser.receive())

    def evaluate(self, expression: str) -> Any:
        """What a JavaScript expression gives in the page, as plain data. RuntimeError if it throws."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "the expression failed"))
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """The middle of the first element that `selector` finds, scrolled into view, by the mouse."""
        quoted = json.dumps(selector)
        x, y = self.evaluate(
            f"(() => {{ const e = document.querySelector({quoted}); e.scrollIntoView({{block: 'center', behavior: 'instant'}});"
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, *keys: str) -> None:
        for key in keys:
            told = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
            self.send("Input.dispatchKeyEvent", type="keyDown", **told, **({"text": "\r"} if key == "Enter" else {}))
            self.send("Input.dispatchKeyEvent", type="keyUp", **told)

    def complaints(self) -> list[str]:
        """Errors and warnings so far: exceptions, the console's, and what the page's policy refused."""
        self.evaluate("0")
        found = []
        for event in self.mine():
            told = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(told["exceptionDetails"])[:500])
            elif event["method"] == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
                found.append(told["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(told["args"])[:500])
        return found

    def requests(self) -> list[str]:
        """The addresses of everything that the page asked for so far, its own among them."""
        self.evaluate("0")
        return [event["params"]["request"]["url"] for event in self.mine() if event["method"] == "Network.requestWillBeSent"]

    def mine(self) -> list[dict[str, Any]]:
        return [event for event in self.browser.events if event.get("sessionId") == self.session]

    def picture(self, whole: bool = False, clip: Sequence[float] | None = None) -> bytes:
        """A PNG of the window, of the whole page, or of x, y, width, height of the page."""
        options: dict[str, Any] = {"format": "png"}
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            clip = (0, 0, size["width"], size["height"])
        if clip is not None:
            options |= {"captureBeyondViewport": True, "clip": dict(zip(("x", "y", "width", "height"), clip, strict=True)) | {"scale": 1}}
        return base64.b64decode(self.send("Page.captureScreenshot", **options)["data"])
