"""Builds the wheel, for long tests that install it from the index of packages that pip is configured with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.wheels import run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    result = run(
        sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", folder, ROOT
    )
    assert result.returncode == 0, result.stderr
    (wheel_file,) = folder.glob("*.whl")
    return wheel_file


@pytest.fixture(scope="session")
def constraints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pip constraints file of the locked versions."""
    file = tmp_path_factory.mktemp("locked") / "constraints.txt"
    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    file.write_text("\n".join(line.rstrip(" \\") for line in lines if "--hash" not in line), "utf-8")
    return file
