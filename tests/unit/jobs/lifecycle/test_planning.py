"""Which engine plans, by the session and the catalog, and what happens where a session cannot read it."""

from __future__ import annotations

import io
from typing import Any

import pytest
from pyspark.errors import PySparkException

from lakebackup.errors import Damaged, EnvironmentProblem, Refused
from lakebackup.sql_engine import EngineChoice
from lakebackup_jobs.lifecycle import planning
from lakebackup_jobs.lifecycle.planning import decide, plan_on_engine
from lakebackup_jobs.lifecycle.progress import Reporter

CLUSTER = "spark://host:7077"
LARGE = 5_000_001


class Notes(Reporter):
    """Collects the notes."""

    def __init__(self) -> None:
        super().__init__(io.StringIO(), io.StringIO())
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


class Request:
    """The options that choose the engine."""

    remote = None

    def __init__(self, engine: EngineChoice) -> None:
        self.engine = engine


class Reader:
    """A reader of a catalog with so many files, which only says its engine."""

    def __init__(self, files: int, engine: str = "duckdb") -> None:
        self.files, self.engine = files, engine

    def count(self, *tables: str) -> int:
        assert tables == ("files", "snapshot_files")
        return self.files

    def with_spark(self, session: object) -> Reader:
        assert session == "the session"
        return Reader(self.files, "spark")


@pytest.mark.parametrize(
    ("engine", "cluster", "files", "decision"),
    [
        ("auto", None, LARGE, "duckdb"),
        ("auto", CLUSTER, LARGE - 1, "duckdb"),
        ("auto", CLUSTER, LARGE, "spark"),
        ("duckdb", CLUSTER, LARGE, "duckdb"),
        ("spark", None, 0, "spark"),
    ],
)
def test_auto_is_spark_on_a_cluster_with_a_large_catalog(
    engine: EngineChoice, cluster: str | None, files: int, decision: str
) -> None:
    assert decide(engine, cluster=cluster, files=files).engine == decision


def test_the_reason_names_the_files_and_the_session() -> None:
    assert decide("auto", cluster=CLUSTER, files=LARGE).reason == (
        "the catalog has 5,000,001 files, and tasks run on spark://host:7077"
    )


def planned(
    monkeypatch: pytest.MonkeyPatch,
    *,
    cluster: str | None = CLUSTER,
    files: int = LARGE,
    engine: EngineChoice = "auto",
    error: Exception | None = None,
) -> tuple[str, list[str]]:
    """The engine that makes a plan, and the notes. On Spark the plan raises `error` if there is one."""
    monkeypatch.setattr(planning, "cluster_of", lambda _: cluster)
    notes = Notes()

    def plan(reader: Any) -> str:
        if error and reader.engine == "spark":
            raise error
        return str(reader.engine)

    reader: Any = Reader(files)
    session: Any = "the session"
    return plan_on_engine(reader, Request(engine), session, notes, plan), notes.texts


def test_a_note_says_why_auto_plans_on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, notes = planned(monkeypatch)
    assert engine == "spark"
    assert notes == [f"planning on Spark: {decide('auto', cluster=CLUSTER, files=LARGE).reason}"]
    assert planned(monkeypatch, cluster=None) == ("duckdb", [])
    assert planned(monkeypatch, files=LARGE - 1) == ("duckdb", [])


@pytest.mark.parametrize(
    "error",
    [
        EnvironmentProblem("S3 refuses to read s3://b/catalog: AccessDenied."),
        Damaged("A table of the catalog is damaged: FAILED_READ_FILE"),
        PySparkException("[INSUFFICIENT_PERMISSIONS] User does not have SELECT on table raw_files."),
    ],
)
def test_duckdb_plans_where_the_session_cannot_read_the_catalog(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    engine, notes = planned(monkeypatch, error=error)
    assert engine == "duckdb"
    assert "planning on DuckDB: the Spark session cannot read the catalog: " in notes[1]
    assert str(error).partition(":")[0] in notes[1]
    with pytest.raises(type(error)):
        planned(monkeypatch, engine="spark", error=error)


@pytest.mark.parametrize("error", [Refused("A gap."), PySparkException("[DIVIDE_BY_ZERO] Division by zero.")])
def test_other_errors_are_raised(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    with pytest.raises(type(error)):
        planned(monkeypatch, error=error)
