"""A real Chromium for tests, spoken to in the DevTools protocol over a pair of pipes.

``--remote-debugging-pipe`` (Chromium, content/public/common/content_switches.cc): the browser reads
commands from descriptor 3 and writes answers to descriptor 4, JSON messages that end in a NUL byte. No
port, no web socket, no driver to install. Methods and events: https://chromedevtools.github.io/devtools-protocol/.

Clicks and keys are real input events at real coordinates: a button that something covers cannot be
clicked, here as for a person.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
ANSWER_SECONDS = 20.0
WAIT_SECONDS = 10.0
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests run as root in containers; what they show is our own page on the loopback
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--mute-audio",
    "--password-store=basic",
    "--remote-debugging-pipe",
)
# The shell moves our two pipes to where Chromium wants them; its own standard streams are nobody's.
_ON_3_AND_4 = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
#: Run in every page before its own script: keeps what the page's policy refused.
_WATCH_POLICY = (
    "window.__refused = [];"
    "addEventListener('securitypolicyviolation', (e) =>"
    " window.__refused.push(e.violatedDirective + ' ' + e.blockedURI + ' ' + e.sample));"
)
_KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), " ": (32, " ")}
for _code, _name in enumerate(("ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown"), start=37):
    _KEYS[_name] = (_code, "")


class ChromiumError(AssertionError):
    """The browser refused a command, went away, or the page did not become what was waited for."""


def chromium_program() -> str | None:
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


def require_chromium() -> str:
    """The program; skips with the reason when there is none, which on CI is a failure."""
    program = chromium_program()
    if program is not None:
        return program
    reason = f"Chromium is not installed (none of {', '.join(PROGRAMS)}); run: sh tests/services/install.sh"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@dataclass(frozen=True, slots=True)
class Complaint:
    """What a browser wrote to its console in anger."""

    source: str
    text: str
    url: str


class Chromium:
    """One browser process with a profile of its own. Commands may come from one thread."""

    def __init__(self, program: str, profile: Path) -> None:
        self._process = subprocess.Popen(
            [
                "/bin/sh",
                "-c",
                _ON_3_AND_4,
                "sh",
                program,
                *FLAGS,
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._numbers = itertools.count(1)
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._pages: dict[str, Page] = {}
        self._reader = threading.Thread(target=self._read, name="chromium-pipe", daemon=True)
        self._reader.start()

    def command(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\0")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ChromiumError("Chromium has gone; does it run at all here?") from None
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise ChromiumError(f"Chromium did not answer {method} in {ANSWER_SECONDS:.0f} s") from None
            if answer.get("gone"):
                raise ChromiumError("Chromium ended; does it run at all here?")
            if answer["id"] != number:
                continue  # the late answer of a command that was given up
            if "error" in answer:
                raise ChromiumError(f"{method}: {answer['error']['message']}")
            result: dict[str, Any] = answer["result"]
            return result

    def page(self, url: str, *, width: int = 1440, height: int = 900, dark: bool = False) -> Page:
        """A new tab with cookies of its own, at ``url``, loaded."""
        context = self.command("Target.createBrowserContext")["browserContextId"]
        target = self.command("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session, context)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.command(f"{domain}.enable")
        page.command("Page.addScriptToEvaluateOnNewDocument", source=_WATCH_POLICY)
        page.look(width=width, height=height, dark=dark)
        page.go(url)
        return page

    def close_pages(self) -> None:
        """Close all tabs and forget their cookies: the streams that they hold open end."""
        while self._pages:
            _, page = self._pages.popitem()
            self.command("Target.disposeBrowserContext", browserContextId=page.context)

    def close(self) -> None:
        try:
            self.command("Browser.close")
            self._process.wait(timeout=5)
        except (ChromiumError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._reader.join(5)

    def _read(self) -> None:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        rest = b""
        while True:
            try:
                chunk = os.read(descriptor, 1 << 20)
            except OSError:
                break
            if not chunk:
                break
            *messages, rest = (rest + chunk).split(b"\0")
            for raw in messages:
                message = json.loads(raw)
                if "id" in message:
                    self._answers.put(message)
                elif page := self._pages.get(message.get("sessionId", "")):
                    page.hear(message["method"], message["params"])
        self._answers.put({"gone": True})


class Page:
    """One tab. Selectors are CSS; ``text`` narrows them to elements whose text contains it."""

    def __init__(self, browser: Chromium, session: str, context: str) -> None:
        self.context = context
        self._browser = browser
        self._session = session
        self._loaded = threading.Event()
        self.complaints: list[Complaint] = []
        self.requests: list[str] = []

    def command(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.command(method, self._session, **params)

    def hear(self, method: str, params: dict[str, Any]) -> None:
        """An event of this tab (called on the reading thread)."""
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            said = details.get("exception", {}).get("description") or details["text"]
            self.complaints.append(Complaint("exception", said, details.get("url", "")))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            said = " ".join(str(arg.get("value", arg.get("description"))) for arg in params["args"])
            self.complaints.append(Complaint("console", said, ""))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            entry = params["entry"]
            self.complaints.append(Complaint(entry["source"], entry["text"], entry.get("url", "")))

    # -- where and how we look

    def look(self, *, width: int, height: int, dark: bool = False) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.command(
            "Emulation.setEmulatedMedia",
            features=[
                {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                {"name": "prefers-reduced-motion", "value": "reduce"},
            ],
        )

    def go(self, url: str) -> None:
        self._loaded.clear()
        answer = self.command("Page.navigate", url=url)
        if "errorText" in answer:
            raise ChromiumError(f"{url}: {answer['errorText']}")
        # A move within the document (another fragment) has no loader and loads nothing.
        if "loaderId" in answer and not self._loaded.wait(ANSWER_SECONDS):
            raise ChromiumError(f"{url} did not load in {ANSWER_SECONDS:.0f} s")

    def screenshot(self, file: Path, *, whole: bool = False) -> Path:
        """A PNG of what is seen, or of the whole length of the page."""
        answer = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(answer["data"]))
        return file

    # -- what is there

    def js(self, expression: str) -> Any:
        answer = self.command(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise ChromiumError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def text(self, selector: str = "body") -> str:
        """What a person can read there: not what CSS hides; empty when there is no such element."""
        return str(self.js(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def shown(self, selector: str, text: str | None = None) -> bool:
        return bool(self.js(f"Boolean({_find(selector, text)})"))

    def refused(self) -> list[str]:
        """What the content security policy refused on this page."""
        found: list[str] = self.js("window.__refused")
        return found

    def wait(self, what: str, condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise ChromiumError(
                    f"after {seconds:.0f} s still not: {what}. The page says:\n{self.text()[:3000]}"
                )
            time.sleep(0.05)

    def wait_for(self, selector: str, text: str | None = None, seconds: float = WAIT_SECONDS) -> None:
        what = f"{selector} with {text!r}" if text else selector
        self.wait(what, lambda: self.shown(selector, text), seconds)

    # -- what a person does

    def click(self, selector: str, text: str | None = None) -> None:
        """Wait until it is there, then press the mouse on its middle, if nothing lies over it."""
        self.wait_for(selector, text)
        spot = self.js(
            f"""(() => {{
              const el = {_find(selector, text)};
              el.scrollIntoView({{block: "center", inline: "center"}});
              const box = el.getBoundingClientRect();
              const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
              const top = document.elementFromPoint(x, y);
              return {{x, y, free: el === top || el.contains(top), over: top && top.outerHTML.slice(0, 120)}};
            }})()"""
        )
        if not spot["free"]:
            raise ChromiumError(f"{selector} {text or ''} is covered by {spot['over']}")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.command("Input.dispatchMouseEvent", type=kind, x=spot["x"], y=spot["y"], **button)

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.command("Input.insertText", text=text)

    def press(self, key: str) -> None:
        code, text = _KEYS[key]
        event = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        self.command("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        self.command("Input.dispatchKeyEvent", type="keyUp", **event)


def _find(selector: str, text: str | None) -> str:
    """JavaScript for the first visible match."""
    return (
        f"[...document.querySelectorAll({json.dumps(selector)})].find((el) => el.checkVisibility() &&"
        f" el.textContent.includes({json.dumps(text or '')}))"
    )


@contextmanager
def running_chromium() -> Iterator[Chromium]:
    """A browser for a test or a module; its profile goes with it."""
    program = require_chromium()
    with tempfile.TemporaryDirectory(prefix="sickbay-chromium-", ignore_cleanup_errors=True) as profile:
        browser = Chromium(program, Path(profile))
        try:
            yield browser
        finally:
            browser.close()
