"""A headless browser, when one is installed, driven over a pipe.

Protocol: Chrome DevTools Protocol, messages of JSON that end with a NUL (`--remote-debugging-pipe`).
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tests.support.programs import program

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--remote-debugging-pipe",
)  # fmt: skip


class Tab:
    """One page in a browser."""

    def __init__(self, to_browser: BinaryIO, from_browser: BinaryIO) -> None:
        self._to, self._from = to_browser, from_browser
        self._number, self._session = 0, ""
        self._events: list[dict[str, Any]] = []
        #: Messages that pages wrote to the console, with errors of scripts and refused loads.
        self.console: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        self._to.flush()
        while (answer := self._read()).get("id") != self._number:
            pass
        assert "error" not in answer, f"{method}: {answer.get('error')}"
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, page: Path, width: int, height: int = 900, *, dark: bool = False, media: str = "") -> None:
        """Show a page in a window of this size; `media`: `print` shows it as on paper."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        mobile = {"mobile": width < 600, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, **mobile)
        self._events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._read()

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression; waits for a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    def screenshot(self, top: float = 0, height: float = 0) -> bytes:
        """The whole page as a PNG, or a part of it."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": top, "width": size["width"], "height": height or size["height"], "scale": 1}
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(answer["data"])

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True)["data"])

    def _read(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._from.read(1)) != b"\0":
            assert byte, "the browser ended"
            text += byte
        message: dict[str, Any] = json.loads(text)
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.console.append(str(message["params"]["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.console.append(str(message["params"]["args"]))
            case "Log.entryAdded":
                self.console.append(message["params"]["entry"]["text"])
        if "method" in message:
            self._events.append(message)
        return message


@contextmanager
def browser(scratch: Path) -> Iterator[Tab]:
    """A browser with one tab. Afterwards `hosts(scratch)` returns the hosts that it contacted."""
    to_pipe, from_pipe = os.pipe(), os.pipe()  # to the browser, from the browser
    inherited_fds = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_pipe[0], from_pipe[1])]
    command = [
        program(*NAMES, package="chromium"), *_FLAGS, f"--user-data-dir={scratch / 'profile'}",
        f"--log-net-log={scratch / 'net.json'}", "about:blank",
    ]  # fmt: skip
    # The browser reads from 3 and writes to 4.
    start = f"import os, sys; os.dup2({inherited_fds[0]}, 3); os.dup2({inherited_fds[1]}, 4); "
    launcher = [sys.executable, "-c", f"{start}os.execvp(sys.argv[1], sys.argv[1:])", *command]
    process = subprocess.Popen(
        launcher, pass_fds=inherited_fds, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    for fd in (to_pipe[0], from_pipe[1], *inherited_fds):
        os.close(fd)
    try:
        with os.fdopen(to_pipe[1], "wb") as to_browser, os.fdopen(from_pipe[0], "rb") as from_browser:
            tab = Tab(to_browser, from_browser)
            yield tab
            tab.call("Browser.close")
            process.wait(60)
    finally:
        process.kill()
        process.wait()


def hosts(scratch: Path) -> set[str]:
    """The hosts that the browser contacted, for pages or for itself."""
    text = (scratch / "net.json").read_text("utf-8", "replace")
    return set(re.findall(r'"url":"\w+://([^/"]+)', text))
