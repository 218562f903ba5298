"""A headless browser, when one is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def program() -> str:
    """The browser. Without one the test is skipped, but fails where CI is set: there it has to be."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        missing = "no Chromium or Chrome on the PATH: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


def ask(page: Path, scratch: Path, *flags: str) -> tuple[str, set[str]]:
    """Open a page; what the browser said, and the hosts that something was asked of (its own among them)."""
    log = scratch / "net.json"
    command = [program(), *_FLAGS, f"--user-data-dir={scratch / 'profile'}", f"--log-net-log={log}", *flags]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, set(re.findall(r'"url":"\w+://([^/"]+)', log.read_text("utf-8", "replace")))


def dom(page: Path, scratch: Path) -> tuple[str, set[str]]:
    """The page as the browser has it once it is loaded, and the hosts."""
    return ask(page, scratch, "--dump-dom")


def screenshot(page: Path, scratch: Path, width: int, height: int) -> bytes:
    """The page as a PNG."""
    picture = scratch / "page.png"
    ask(page, scratch, f"--window-size={width},{height}", f"--screenshot={picture}")
    return picture.read_bytes()
