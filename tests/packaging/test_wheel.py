"""The wheel in empty environments, without this clone: the size of the base install, and what works with it.

It installs from the index that pip is configured with, so it is long: a minute.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from tests.support.unpacked import unpack
from tests.support.wheels import run, skip_without_index

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
DESTINATION = ROOT / "tests/walkthroughs/data/destination-of-0.1.tar.gz"
# Most of it is pyarrow (149), deltalake (134) and duckdb (69), which queries need, and cryptography (13), by
# which signatures are checked. The program itself has 6.
MAX_MB = 412


@pytest.fixture(scope="module")
def base(wheel: Path, constraints: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and its dependencies."""
    venv = tmp_path_factory.mktemp("base") / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    result = run(venv / "bin/pip", "install", "-q", "-c", constraints, wheel)
    skip_without_index(result.returncode, result.stderr)
    assert result.returncode == 0, result.stderr
    return venv


@pytest.fixture(scope="module")
def backups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    with DESTINATION.open("rb") as packed:
        unpack(packed, folder)
    return folder / "backups"


def test_the_wheel_has_no_demo_and_all_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = content.read(metadata).decode()
    assert not [name for name in names if "/demo/" in name or "bootstrap" in name or name.startswith("tests")]
    status = "views/report/status.sql"
    assert f"lakebackup_sql/{status}" in names
    assert f"lakebackup_sql/duckdb/{status}" in names
    assert "lakebackup/py.typed" in names
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert f"\nVersion: {version}\n" in text
    assert "lakebackup_jobs/query/plotly/plotly-basic.min.js" in names
    assert "License-Expression: Apache-2.0" in text
    assert "Classifier: License" not in text
    assert "Description-Content-Type: text/markdown" in text
    assert "# lakebackup" in text
    for extra in ("spark", "kafka", "s3", "server", "notebooks", "all"):
        assert f"Provides-Extra: {extra}\n" in text


def test_the_base_install_runs_queries(base: Path, backups: Path, tmp_path: Path) -> None:
    program, page = base / "bin/lakebackup", tmp_path / "report.html"
    for words, code in (
        (["list"], 0),
        (["status"], 4),
        (["sql", "SELECT scope, count(*) FROM files GROUP BY scope"], 0),
        (["report", "--html", page], 0),
    ):
        result = run(program, *words, "--repo", backups)
        assert result.returncode == code, (words, result.stderr)
    assert page.stat().st_size > 10_000
    result = run(program, "backup", "topics", "a", "--bootstrap-server", "none:1", "--repo", backups)
    assert result.returncode == 6
    assert "pip install 'lakebackup[kafka]'" in result.stderr


def test_the_base_install_is_light(base: Path) -> None:
    (packages,) = base.glob("lib/python*/site-packages")
    tools = ("pip", "setuptools", "pkg_resources")  # part of the new environment
    size = sum(
        file.stat().st_size
        for folder in packages.iterdir()
        if not folder.name.startswith(tools)
        for file in ([folder] if folder.is_file() else folder.rglob("*"))
        if file.is_file() and file.suffix != ".pyc"
    )
    print(f"\nthe base install has {size / 1e6:.0f} MB")
    assert size < MAX_MB * 1e6
    assert not (packages / "pyspark").exists()
