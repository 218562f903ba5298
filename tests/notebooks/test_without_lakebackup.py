"""The notebook that asks a Spark session which has only Delta, and restores what its SELECT returns."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd
import pytest
from tests.support.asked_catalog import questions
from tests.support.made_backups import MadeBackups, Record
from tests.support.notebooks import FOLDER, run

import lakebackup
from lakebackup.rows.upkeep import Audit, Check
from lakebackup.sql_engine import RAW, steps_for
from lakebackup_jobs.runtime.java import jars

SOURCE = FOLDER / "06_without_lakebackup.py"
START_MS = 1_795_262_400_000


@pytest.fixture(scope="module")
def backups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two chains of a full and a differential, of ten records each in one partition."""
    repository = MadeBackups(tmp_path_factory.mktemp("backups"))
    for number in range(4):
        first = 10 * number
        records = [Record(0, n, START_MS + n, b"k%d" % n, b"v") for n in range(first, first + 10)]
        repository.backup([records], full=number % 2 == 0, end_ts=START_MS + first + 10)
    repository.change("files", lambda file: replace(file, level=(file.added_in - 1) % 2))
    time_us, destination = 1000 * START_MS, repository.destination
    repository.add(
        Audit(at=time_us, actor="me@here", action="verify", subject="prod", detail="{}"),
        Check(
            check_id="c",
            at=time_us,
            destination=destination,
            backup_id=None,
            path="x",
            mode="hash",
            outcome="ok",
        ),
    )
    repository.flush()
    return repository.folder


@dataclass
class StandIn:
    """Answers SELECTs as lakebackup does. Of other statements it only records what they create."""

    connection: lakebackup.Connection
    created: list[str] = field(default_factory=list)

    def sql(self, statement: str) -> StandInAnswer | None:
        if statement.lstrip().startswith("SELECT"):
            return StandInAnswer(self.connection.sql(statement).df())
        self.created += re.findall(r"^CREATE .*?\.(\w+)", statement, re.MULTILINE)
        return None


@dataclass
class StandInAnswer:
    rows: pd.DataFrame

    def toPandas(self) -> pd.DataFrame:  # noqa: N802 - the name in Spark
        return self.rows


@pytest.fixture
def schema() -> str:
    return f"notebook_{uuid4().hex[:8]}"


@pytest.fixture(params=["stand-in", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.long])])
def session(request: pytest.FixtureRequest, backups: Path, schema: str) -> Iterator[Any]:
    """Spark needs half a minute of CPU for the notebook. With the stand-in, only the command line runs."""
    if request.param == "stand-in":
        session = StandIn(lakebackup.connect(backups))
        yield session
        views = {"audit", "checks", "files", "storage_by_source"}
        assert {*session.created} == views | {step for step in steps_for(views) if step.startswith(RAW)}
        return
    spark = request.getfixturevalue("spark")
    yield spark.newSession()
    spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def test_an_engine_answers_and_its_select_restores(
    session: Any, schema: str, backups: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("LAKEBACKUP_REPO", str(backups))
    monkeypatch.chdir(tmp_path)
    connection = lakebackup.connect(backups, as_of=pd.Timestamp.now("UTC").to_pydatetime())
    names = run(SOURCE, spark=session, schema=schema, really_restore=True).names
    for name, view in (("storage", "storage_by_source"), ("checks", "checks"), ("audit", "audit")):
        (select,) = (sql for sql in questions().values() if f"FROM {view}\n" in sql)
        assert not names[name].empty
        pd.testing.assert_frame_equal(names[name], connection.sql(select).df(), check_dtype=False)
    assert [*names["files"]["path"]] == [row["path"] for row in connection.sql(names["sql"]).rows()]
    assert len(names["files"]) == 2
    assert list((tmp_path / "restored/orders").rglob("*.data"))


def test_the_selects_are_those_of_the_page() -> None:
    source = SOURCE.read_text("utf-8")
    assert sum(sql in source for sql in questions().values()) == 3


def test_delta_has_the_version_that_lakebackup_uses() -> None:
    (package,) = (word for word in SOURCE.read_text("utf-8").split('"') if word.startswith("io.delta:"))
    assert package in Path(jars.__file__).with_name("jars.toml").read_text("utf-8")
