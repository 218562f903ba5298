"""Finds programs of the system that some tests need. `make tools` installs them where it can."""

from __future__ import annotations

import os
import shutil

import pytest


def program(*names: str, package: str) -> str:
    """The path of the first of these programs on the PATH. If there is none, the test is skipped, but fails
    where CI is set: programs are required there."""
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        missing = f"no {names[0]} on the PATH: apt-get install {package}"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return path
