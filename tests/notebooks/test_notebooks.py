"""Every notebook runs from top to bottom in IPython: the tutorial on the backups that it makes itself, the
others on backups made by hand. No Java, no server."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from tests.support.made_backups import MadeBackups, Record
from tests.support.notebooks import FOLDER, SOURCES, run

BEGAN = 1_795_262_400_000
#: Of each notebook, how many tables and charts it shows.
SHOWN = {"01": (7, 2), "02": (3, 0), "03": (4, 1), "04": (5, 0), "05": (2, 0)}


@pytest.fixture(scope="module")
def backups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two backups of ten orders each, in one partition."""
    made = MadeBackups(tmp_path_factory.mktemp("backups"))
    for first in (0, 10):
        made.backup([[_order(first + n) for n in range(10)]], end_ts=BEGAN + 1000 * (first + 10))
    made.flush()
    return made.folder


def _order(number: int) -> Record:
    value = json.dumps({"order": number, "amount": 7 * number}).encode()
    return Record(0, number, BEGAN + number, f"k{number}".encode(), value, (("trace", b"\x01"),))


@pytest.fixture
def _own_ipython(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython with no profile of this machine, in a folder of its own."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_own_ipython")
def test_the_tutorial_backs_up_queries_and_restores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight seconds: it runs the command `lakebackup` three times, as an analyst does."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    shown = run(FOLDER / "00_tutorial.py")
    backups, past = shown.tables
    assert [row["number"] for row in backups] == [1, 2]
    assert [row["number"] for row in past] == [1]
    assert [*shown.names["copied"]["name"]] == ["orders-3.csv", "orders-4.csv"]
    assert shown.names["restored"] == ["orders-1.csv", "orders-2.csv", "orders-3.csv"]
    work = shown.names["work"]
    assert (work / "restored" / "shop" / "orders-3.csv").read_text().count("\n") == 20, "as it was at first"


@pytest.mark.parametrize("source", SOURCES[1:], ids=lambda path: path.stem)
@pytest.mark.usefixtures("_own_ipython")
def test_a_notebook_runs_by_the_environment(
    backups: Path, tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEBACKUP_REPO", str(backups))
    shown = run(source, key="k7", target=f"delta:{tmp_path}/restored", key_prefix="k1")
    assert (len(shown.tables), len(shown.charts)) == SHOWN[source.stem[:2]]
    assert any(shown.tables)
    assert all("<table" in page or "Plotly" in page or "nothing to draw" in page for page in shown.pages)
    assert not (tmp_path / "restored").exists()
