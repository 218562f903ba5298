"""Every notebook runs from top to bottom in IPython, without Java and without a server.

The tutorial makes its own backups. The others read backups made by hand. `06_without_lakebackup` needs Spark:
see test_without_lakebackup.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from tests.support.made_backups import MadeBackups, Record
from tests.support.notebooks import FOLDER, SOURCES, run

START_MS = 1_795_262_400_000
#: The number of tables and of charts that each notebook shows.
OUTPUT_COUNTS = {"01": (7, 2), "02": (3, 0), "03": (4, 1), "04": (5, 0), "05": (2, 0)}


@pytest.fixture(scope="module")
def backups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two backups of ten orders each, in one partition."""
    repository = MadeBackups(tmp_path_factory.mktemp("backups"))
    for first in (0, 10):
        repository.backup([[_order(first + n) for n in range(10)]], end_ts=START_MS + 1000 * (first + 10))
    repository.flush()
    return repository.folder


def _order(number: int) -> Record:
    value = json.dumps({"order": number, "amount": 7 * number}).encode()
    return Record(0, number, START_MS + number, f"k{number}".encode(), value, (("trace", b"\x01"),))


@pytest.fixture
def _own_ipython(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs IPython in a temporary folder and without the profile of this machine."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_own_ipython")
def test_the_tutorial_backs_up_queries_and_restores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes eight seconds: the tutorial runs the command `lakebackup` three times, as an analyst does."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    output = run(FOLDER / "00_tutorial.py")
    backups, past = output.tables
    assert [row["number"] for row in backups] == [1, 2]
    assert [row["number"] for row in past] == [1]
    assert [*output.names["copied"]["name"]] == ["orders-3.csv", "orders-4.csv"]
    assert output.names["restored"] == ["orders-1.csv", "orders-2.csv", "orders-3.csv"]
    work = output.names["work"]
    assert (work / "restored" / "shop" / "orders-3.csv").read_text().count("\n") == 20, "as it was at first"


@pytest.mark.parametrize("source", SOURCES[1:6], ids=lambda path: path.stem)
@pytest.mark.usefixtures("_own_ipython")
def test_a_notebook_reads_the_repository_of_the_environment(
    backups: Path, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEBACKUP_REPO", str(backups))
    output = run(source, key="k7", target=f"delta:{tmp_path}/restored", key_prefix="k1")
    assert (len(output.tables), len(output.charts)) == OUTPUT_COUNTS[source.stem[:2]]
    assert any(output.tables)
    assert all("<table" in page or "Plotly" in page or "nothing to draw" in page for page in output.pages)
    assert not (tmp_path / "restored").exists()
