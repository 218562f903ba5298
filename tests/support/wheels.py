"""Programs outside of this clone and its tests, and what pip has to say there."""

from __future__ import annotations

import os
import subprocess

import pytest

_OURS = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "LAKEBACKUP", "AWS")
# Where this machine has the JVM libraries from.
_KEPT = ("LAKEBACKUP_CACHE", "LAKEBACKUP_MAVEN_URL")


def run(*words: object, **more: object) -> subprocess.CompletedProcess[str]:
    """What a program does whose environment has nothing of these tests, but `more`."""
    clean = {name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith(_OURS)}
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, cwd="/",
        env={**clean, **{name: str(value) for name, value in more.items()}},
    )  # fmt: skip


def skip_without_index(code: int, printed: str) -> None:
    """Skip the test where pip has found no index of packages."""
    if code and "Retrying (" in printed and "Could not find a version" in printed:
        pytest.skip("the index of packages cannot be reached")
