"""The wheel, as pip installs it from the index that it is configured with: these tests are long."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.wheels import run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="session")
def constraints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The locked versions."""
    file = tmp_path_factory.mktemp("locked") / "constraints.txt"
    lines = (ROOT / "requirements.lock").read_text("utf-8").splitlines()
    file.write_text("\n".join(line.rstrip(" \\") for line in lines if "--hash" not in line), "utf-8")
    return file
