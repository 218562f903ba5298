"""The questions of docs/questions.md in every interface, with the same answers; attacks on real SQL engines.

These tests need Spark: only there the data source reads the views that a question joins, and only a session
shows that a refused statement left nothing in it. One catalog, one session and one server of each kind serve
all tests. Tests that start a server, or let Spark plan the views itself, are `long`.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from py4j.protocol import Py4JJavaError
from tests.spark.test_sessions_and_servers import ROOT_ONLY, served, state_of
from tests.support.asked_catalog import made_catalog, questions, settled
from tests.support.jdbc import Jdbc
from tests.unit.catalog.sql_engine.test_guard import ATTACKS, is_shown

import lakebackup
from lakebackup.errors import UsageProblem
from lakebackup.sql_engine import shown_views
from lakebackup_jobs.cli.output.rows import json_line
from lakebackup_jobs.cli.shell.prompt import interact
from lakebackup_jobs.cli.shell.shell import Shell
from lakebackup_jobs.runtime.child import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Ask = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def repository() -> Iterator[Path]:
    """The destination, which everybody may read, as a server's account must."""
    folder = Path(tempfile.mkdtemp(prefix="lakebackup-test-asked-"))
    made_catalog(folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A session in which nothing is registered."""
    return spark.newSession()


@pytest.fixture(scope="module")
def thrift(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of `lakebackup serve thrift`, with the heap that the settings give it."""
    settings = tmp_path_factory.mktemp("thrift") / "lakebackup.toml"
    settings.write_text('[spark]\n"spark.driver.memory" = "1g"\n')
    port = str(free_port())
    with served("thrift", "--repo", str(repository), "--port", port, "--config", str(settings)) as (_, url):
        yield url


@pytest.fixture(scope="module")
def client(spark: SparkSession, thrift: str) -> Iterator[Jdbc]:
    """A JDBC client for all questions."""
    with Jdbc(spark, thrift) as client:
        yield client


@pytest.fixture(scope="module")
def remote() -> Iterator[SparkSession]:
    """A session on `lakebackup serve connect`."""
    from pyspark.sql.connect.session import SparkSession as Remote

    with served("connect", "--port", str(free_port())) as (_, url):
        remote_session: Any = Remote.builder.remote(url).create()
        yield remote_session
        remote_session.stop()


@pytest.fixture(scope="module")
def answers(repository: Path) -> dict[str, list[dict[str, Any]]]:
    """The answer of `lakebackup.connect` to each question."""
    connection = lakebackup.connect(str(repository))
    return {question: comparable(connection.sql(sql).rows()) for question, sql in questions().items()}


@pytest.fixture(scope="module")
def typed(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """The shell, in which all questions are typed one after another."""
    output = io.StringIO()
    lines = "".join(f"{sql.strip()};\nSELECT 'next' AS question;\n" for sql in questions().values())
    with (
        pytest.MonkeyPatch.context() as patch,
        create_pipe_input() as pipe,
        create_app_session(input=pipe, output=DummyOutput()),
        redirect_stdout(output),
    ):
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        pipe.send_text(f"{lines}\x04".replace("\n", "\r"))
        with Shell(lakebackup.connect(str(repository)), timeout="1m", mode="json") as shell:
            interact(shell)
    _greeting, _, results = output.getvalue().partition("\n")
    printed = results.split('{"question": "next"}\n')
    output_by_sql = dict(zip(questions().values(), printed, strict=False))
    return lambda sql: [json.loads(line) for line in output_by_sql[sql].splitlines()]


@pytest.fixture(scope="module")
def by_source(session: SparkSession, repository: Path) -> Iterator[Ask]:
    """The data source: the views that a question names are temporary views, each read once."""
    source_session = session.newSession()
    cached: set[str] = set()

    def ask(sql: str) -> list[dict[str, Any]]:
        for view in sorted(set(re.findall(r"\w+", sql)) & set(shown_views()) - cached):
            source_session.sql(
                f"CREATE TEMPORARY VIEW {view} USING lakebackup OPTIONS (path '{repository}', view '{view}')"
            )
            source_session.sql(f"CACHE TABLE {view}")
            cached.add(view)
        return [row.asDict(recursive=True) for row in source_session.sql(sql).collect()]

    yield ask
    for view in cached:
        source_session.sql(f"UNCACHE TABLE {view}")


def comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as JSON, without the columns that depend on the current time."""
    plain = [{name: in_utc(value) for name, value in row.items()} for row in rows]
    return settled([json.loads(json_line(row)) for row in plain])


def in_utc(value: Any) -> Any:
    """A time without a zone, as DuckDB returns it."""
    has_zone = isinstance(value, datetime) and value.tzinfo
    return value.astimezone(UTC).replace(tzinfo=None) if has_zone else value


def assert_same(sql: str, actual: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Check that two answers are equal, in the order that the query asks for, if it does, and not empty."""
    if "ORDER BY" not in sql:
        actual, expected = (sorted(rows, key=str) for rows in (actual, expected))
    assert actual == expected
    assert expected


each_question = pytest.mark.parametrize("question", questions())


@pytest.mark.long
@each_question
def test_the_shell_gives_the_same_answers(question: str, typed: Ask, answers: dict[str, Any]) -> None:
    sql = questions()[question]
    assert_same(sql, comparable(typed(sql)), answers[question])


@pytest.mark.long
@each_question
def test_the_data_source_gives_the_same_answers(
    question: str, by_source: Ask, answers: dict[str, Any]
) -> None:
    sql = questions()[question]
    assert_same(sql, comparable(by_source(sql)), answers[question])


@pytest.mark.long
@each_question
def test_a_session_gives_the_same_answers(
    question: str, session: SparkSession, repository: Path, answers: dict[str, Any]
) -> None:
    sql = questions()[question]
    with lakebackup.connect(str(repository), engine=session.newSession()) as connection:
        assert_same(sql, comparable(connection.sql(sql).rows()), answers[question])


@pytest.mark.long
@ROOT_ONLY
@each_question
def test_a_jdbc_client_gets_the_same_answers(question: str, client: Jdbc, answers: dict[str, Any]) -> None:
    sql = questions()[question]
    assert_same(sql, comparable(client.rows(sql)), answers[question])


@pytest.mark.parametrize("kind", ["session", pytest.param("remote", marks=pytest.mark.long)])
def test_no_attack_reaches_spark(kind: str, repository: Path, request: pytest.FixtureRequest) -> None:
    """Not only the parser: the relations that a statement names are registered before Spark sees it."""
    session: SparkSession = request.getfixturevalue(kind)
    state_before = state_of(repository)
    with lakebackup.connect(str(repository), engine=session) as connection:
        passed = [case["sql"] for case in ATTACKS if not is_refused(case["sql"], connection.sql)]
        assert passed == []
        assert session.catalog.listTables() == []
        connection.sql("SELECT action FROM audit")
        assert session.catalog.listTables()
    assert state_of(repository) == state_before


def is_refused(sql: str, ask: Callable[[str], object]) -> bool:
    """Whether a statement is refused with its line and the position in it."""
    try:
        ask(sql)
    except UsageProblem as error:
        return is_shown(error.message, sql) or "There is no SQL" in error.message
    return False


CHANGES = """
INSERT INTO {table} SELECT * FROM {table}
DELETE FROM {table}
UPDATE {table} SET actor = 'x'
MERGE INTO {table} AS t USING audit AS s ON t.at = s.at WHEN MATCHED THEN DELETE
ALTER TABLE {table} SET TBLPROPERTIES ('a' = 'b')
ALTER TABLE {table} ADD COLUMNS (x INT)
TRUNCATE TABLE {table}
DROP TABLE {table}
OPTIMIZE {table}
VACUUM {table} RETAIN 0 HOURS
REORG TABLE {table} APPLY (PURGE)
RESTORE TABLE {table} TO VERSION AS OF 0
CREATE OR REPLACE TABLE {table} AS SELECT 1 AS a
CREATE TABLE planted USING delta LOCATION '{place}/planted' AS SELECT 1 AS a
CREATE TABLE planted USING csv LOCATION '{place}/planted' AS SELECT 1 AS a
INSERT OVERWRITE DIRECTORY '{place}' USING csv SELECT 1
INSERT OVERWRITE LOCAL DIRECTORY '{place}/catalog' USING json SELECT 1
SELECT TRANSFORM(1) USING 'touch {place}/planted' AS (x)
EXECUTE IMMEDIATE 'DELETE FROM {table}'
BEGIN DELETE FROM {table}; END
"""


@pytest.mark.long
@ROOT_ONLY
def test_jdbc_statements_cannot_change_the_backups(
    spark: SparkSession, thrift: str, repository: Path
) -> None:
    """No statement is refused for its text there: the server's account protects the backups. Runs the
    commands among the attacks, and others against the catalog's own tables."""
    state_before = state_of(repository)
    commands = [case["sql"] for case in ATTACKS if case["why"].startswith("Only one SELECT")]
    changes = (
        CHANGES.format(table=f"delta.`{repository}/catalog/audit`", place=repository).strip().splitlines()
    )
    with Jdbc(spark, thrift) as client:
        for sql in (*changes, *commands):
            try:
                client.rows(sql)
            except Py4JJavaError:
                continue
    assert state_of(repository) == state_before
    with Jdbc(spark, thrift) as client:
        assert [row["action"] for row in client.rows("SELECT action FROM audit")] == ["prune"]
