"""What tests with a session of Spark share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """The test's own copy of the destination that its module's fixture `made` has."""
    return shutil.copytree(made, tmp_path / made.name)
