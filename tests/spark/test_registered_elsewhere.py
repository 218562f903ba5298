"""The statements of `lakebackup catalog ddl --for spark`, in a session that has only Delta.

The session's JVM has lakebackup's settings, but its statements are text: no code of lakebackup runs them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.test_asked_everywhere import assert_same, comparable
from tests.support.asked_catalog import made_catalog, questions
from tests.support.command_line import Commands
from tests.support.made_backups import MadeBackups

import lakebackup
from lakebackup.sql_engine import steps_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SCHEMA = "registered_elsewhere"


@pytest.fixture(scope="module")
def backups(tmp_path_factory: pytest.TempPathFactory) -> MadeBackups:
    return made_catalog(tmp_path_factory.mktemp("backups"))


@pytest.fixture
def statements(backups: MadeBackups, capsys: pytest.CaptureFixture[str]) -> list[str]:
    words = ("catalog", "ddl", "--for", "spark", "--schema", SCHEMA, "--repo", backups.folder, "--json")
    result: dict[str, Any] = json.loads(Commands(capsys).output(*words))
    return list(result["statements"])


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session in which nothing is registered. The schema is dropped; the catalog's files stay."""
    session = spark.newSession()
    yield session
    session.sql(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def test_views_over_tables_alone(session: SparkSession, statements: list[str], backups: MadeBackups) -> None:
    relations = "|".join(steps_for(("audit", "files")))
    own = re.compile(rf"CREATE (SCHEMA .*|(TABLE|OR REPLACE VIEW) .*\b{SCHEMA}\.({relations})\b)")
    for statement in statements:
        if own.match(statement):
            session.sql(statement)
    expected = lakebackup.connect(str(backups.folder))
    for view in ("audit", "files"):
        rows = [row.asDict() for row in session.sql(f"SELECT * FROM {SCHEMA}.{view}").collect()]
        assert_same("", comparable(rows), comparable(expected.sql(f"SELECT * FROM {view}").rows()))
    columns = session.sql(f"DESCRIBE {SCHEMA}.files").collect()
    assert all(column["comment"] for column in columns)


@pytest.mark.long
def test_spark_answers_every_question_as_lakebackup(
    session: SparkSession, statements: list[str], backups: MadeBackups
) -> None:
    for statement in statements:
        session.sql(statement)
    again = re.compile(rf"CREATE .*( IF NOT EXISTS |\b{SCHEMA}\.(computed_faults|status)\b)")
    for statement in filter(again.match, statements):
        session.sql(statement)
    session.sql(f"USE {SCHEMA}")
    connection = lakebackup.connect(str(backups.folder))
    for sql in questions().values():
        answer: list[dict[str, Any]] = [row.asDict(recursive=True) for row in session.sql(sql).collect()]
        assert_same(sql, comparable(answer), comparable(connection.sql(sql).rows()))
    assert session.sql("SELECT source FROM status ORDER BY source").collect() == [("prod",), ("social",)]
    assert Path(backups.folder, "catalog", "files", "_delta_log").is_dir()
