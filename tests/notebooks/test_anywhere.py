"""Every notebook runs unchanged in plain Python and in Jupyter, on DuckDB, and on Databricks (a stand-in for
both notebooks: IPython is no dependency)."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.made_backups import MadeBackups, Record
from tests.support.notebooks import run

from lakebackup.errors import UsageProblem
from lakebackup_jobs.query import notebook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.py"))
RECORDS = NOTEBOOKS[-1]
BEGAN = 1_795_262_400_000
#: What a notebook shows: tables and charts.
SHOWN = {"01": (5, 1), "02": (2, 0), "03": (3, 0), "04": (4, 1), "05": (3, 1), "06": (5, 0)}


@pytest.fixture(scope="module")
def backups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two backups of ten orders each, in one partition."""
    folder = tmp_path_factory.mktemp("backups")
    made = MadeBackups(folder)
    for first in (0, 10):
        made.backup([[_order(first + n) for n in range(10)]], end_ts=BEGAN + 1000 * (first + 10))
    made.flush()
    return folder


def _order(number: int) -> Record:
    value = json.dumps({"order": number, "amount": 7 * number}).encode()
    return Record(0, number, BEGAN + number, f"k{number}".encode(), value, (("trace", b"\x01"),))


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS[:6], ids=lambda path: path.stem)
def test_jupyter_without_spark(backups: Path, tmp_path: Path, path: Path) -> None:
    given = {"key": "k7", "target": f"delta:{tmp_path}/restored"}
    taken = {name: value for name, value in given.items() if f"    {name}=" in path.read_text("utf-8")}
    shown = run(path, destination=str(backups), **taken)
    assert (len(shown.tables), len(shown.pages)) == SHOWN[path.stem[:2]]
    assert any(shown.tables)


@pytest.mark.parametrize("path", NOTEBOOKS[:6], ids=lambda path: path.stem)
def test_plain_python(
    backups: Path,
    tmp_path: Path,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path), f"destination={backups}"])
    runpy.run_path(str(path), run_name="__main__")
    printed, (tables, pictures) = capsys.readouterr().out, SHOWN[path.stem[:2]]
    assert len(list(tmp_path.glob("*.html"))) == pictures
    assert len(printed.splitlines()) >= tables + pictures
    assert re.search(r"\b(prod|partition)\b", printed)


@pytest.mark.long
@pytest.mark.spark
def test_records_are_restored_masked_with_other_keys(
    backups: Path, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"destination": str(backups), "poison": "0:13", "target": f"delta:{tmp_path}/restored"}
    shown = run(RECORDS, spark, **given)
    assert shown.names["done"] is None
    assert not (tmp_path / "restored").exists()
    details = shown.names["plan"].details
    wanted = [1, 10, 11, 12, *range(14, 20)]
    assert details["records"] == len(wanted)
    assert [(row["held"], row["left_out"]) for row in details["partitions"]] == [(20, 20 - len(wanted))]
    assert details["sample"][0]["key"] == "eu-k1"
    assert "10 records" in capsys.readouterr().out
    shown = run(RECORDS, spark, **given, really="yes")
    assert shown.names["done"]["entries"] == len(wanted)
    restored = spark.read.format("delta").load(f"{tmp_path}/restored").orderBy("offset").collect()
    assert [bytes(row["key"]) for row in restored] == [f"eu-k{n}".encode() for n in wanted]
    assert [json.loads(bytes(row["value"])) for row in restored] == [
        {"order": n, "amount": 0} for n in wanted
    ]


@pytest.mark.spark
@pytest.mark.long
def test_records_are_restored_by_plain_python(backups: Path, tmp_path: Path) -> None:
    target = f"target=dir:{tmp_path}/restored"
    done = _python(tmp_path, str(RECORDS), f"destination={backups}", target, "really=yes")
    assert done.returncode == 0, done.stderr
    assert "eu-k1" in done.stdout
    assert any((tmp_path / "restored").rglob("*"))


def test_a_parameter_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["kernel", "-f", "a.json", "--x=1", "topic=a=b"])
    assert notebook.parameters({}, topic="orders", key="1").__dict__ == {"topic": "a=b", "key": "1"}
    with pytest.raises(UsageProblem, match="no parameter topic"):
        notebook.parameters({}, key="1")


def _python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A Python process in a folder."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
