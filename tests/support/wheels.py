"""Runs programs outside of this clone and its virtual environment, and handles pip without an index."""

from __future__ import annotations

import os
import subprocess

import pytest

_TEST_PREFIXES = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "LAKEBACKUP", "AWS")
# Variables that say where this machine gets its JVM libraries from.
_CACHE_VARIABLES = ("LAKEBACKUP_CACHE", "LAKEBACKUP_MAVEN_URL")


def run(*words: object, **variables: object) -> subprocess.CompletedProcess[str]:
    """Run a program without the variables of these tests' environment, but with `variables`."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if name in _CACHE_VARIABLES or not name.startswith(_TEST_PREFIXES)
    }
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, cwd="/",
        env={**clean, **{name: str(value) for name, value in variables.items()}},
    )  # fmt: skip


def skip_without_index(code: int, printed: str) -> None:
    """Skip the test if pip could not reach an index of packages."""
    if code and "Retrying (" in printed and "Could not find a version" in printed:
        pytest.skip("the index of packages cannot be reached")
