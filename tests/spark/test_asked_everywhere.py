"""The questions of docs/questions.md wherever they can be asked, with one answer; attacks on SQL, live.

In the layer that needs Spark: only there the data source reads the views that a question joins, and only a
session shows that a refused statement left nothing in it. One catalog, one session and one server of each
kind serve all tests. What starts a server, or lets Spark plan the views itself, is `long`.
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
def place() -> Iterator[Path]:
    """The destination, which everybody may read, as a server's account must."""
    folder = Path(tempfile.mkdtemp(prefix="lakebackup-test-asked-"))
    made_catalog(folder)
    for found in (folder, *folder.rglob("*")):
        found.chmod(0o755 if found.is_dir() else 0o644)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """One in which nothing is registered."""
    return spark.newSession()


@pytest.fixture(scope="module")
def thrift(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `lakebackup serve thrift`, with the heap that the settings give it."""
    settings = tmp_path_factory.mktemp("thrift") / "lakebackup.toml"
    settings.write_text('[spark]\n"spark.driver.memory" = "1g"\n')
    port = str(free_port())
    with served("thrift", "--repo", str(place), "--port", port, "--config", str(settings)) as (_, url):
        yield url


@pytest.fixture(scope="module")
def client(spark: SparkSession, thrift: str) -> Iterator[Jdbc]:
    """A client that asks all questions."""
    with Jdbc(spark, thrift) as client:
        yield client


@pytest.fixture(scope="module")
def remote() -> Iterator[SparkSession]:
    """A session on `lakebackup serve connect`."""
    from pyspark.sql.connect.session import SparkSession as Remote

    with served("connect", "--port", str(free_port())) as (_, url):
        found: Any = Remote.builder.remote(url).create()
        yield found
        found.stop()


@pytest.fixture(scope="module")
def answers(place: Path) -> dict[str, list[dict[str, Any]]]:
    """What `lakebackup.connect` answers to each question."""
    connection = lakebackup.connect(str(place))
    return {question: told(connection.sql(sql).rows()) for question, sql in questions().items()}


@pytest.fixture(scope="module")
def typed(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """The shell, in which a person types all questions one after another."""
    said = io.StringIO()
    lines = "".join(f"{sql.strip()};\nSELECT 'next' AS question;\n" for sql in questions().values())
    with (
        pytest.MonkeyPatch.context() as patch,
        create_pipe_input() as pipe,
        create_app_session(input=pipe, output=DummyOutput()),
        redirect_stdout(said),
    ):
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        pipe.send_text(f"{lines}\x04".replace("\n", "\r"))
        with Shell(lakebackup.connect(str(place)), timeout="1m", mode="json") as shell:
            interact(shell)
    _greeting, _, results = said.getvalue().partition("\n")
    shown = results.split('{"question": "next"}\n')
    found = dict(zip(questions().values(), shown, strict=False))
    return lambda sql: [json.loads(line) for line in found[sql].splitlines()]


@pytest.fixture(scope="module")
def by_source(session: SparkSession, place: Path) -> Iterator[Ask]:
    """The data source: the views that a question names as temporary views, each read once."""
    own = session.newSession()
    cached: set[str] = set()

    def ask(sql: str) -> list[dict[str, Any]]:
        for view in sorted(set(re.findall(r"\w+", sql)) & set(shown_views()) - cached):
            own.sql(f"CREATE TEMPORARY VIEW {view} USING lakebackup OPTIONS (path '{place}', view '{view}')")
            own.sql(f"CACHE TABLE {view}")
            cached.add(view)
        return [row.asDict(recursive=True) for row in own.sql(sql).collect()]

    yield ask
    for view in cached:
        own.sql(f"UNCACHE TABLE {view}")


def told(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as JSON has them, without what counts the time up to now."""
    plain = [{name: in_utc(value) for name, value in row.items()} for row in rows]
    return settled([json.loads(json_line(row)) for row in plain])


def in_utc(value: Any) -> Any:
    """A time without a zone, as DuckDB gives it."""
    known = isinstance(value, datetime) and value.tzinfo
    return value.astimezone(UTC).replace(tzinfo=None) if known else value


def same(sql: str, found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    """Equal answers, in the order that the question asks for, if it does."""
    if "ORDER BY" not in sql:
        found, wanted = (sorted(rows, key=str) for rows in (found, wanted))
    assert found == wanted
    assert wanted


each_question = pytest.mark.parametrize("question", questions())


@pytest.mark.long
@each_question
def test_the_shell_answers_alike(question: str, typed: Ask, answers: dict[str, Any]) -> None:
    sql = questions()[question]
    same(sql, told(typed(sql)), answers[question])


@pytest.mark.long
@each_question
def test_the_data_source_answers_alike(question: str, by_source: Ask, answers: dict[str, Any]) -> None:
    sql = questions()[question]
    same(sql, told(by_source(sql)), answers[question])


@pytest.mark.long
@each_question
def test_a_session_answers_alike(
    question: str, session: SparkSession, place: Path, answers: dict[str, Any]
) -> None:
    sql = questions()[question]
    with lakebackup.connect(str(place), engine=session.newSession()) as connection:
        same(sql, told(connection.sql(sql).rows()), answers[question])


@pytest.mark.long
@ROOT_ONLY
@each_question
def test_a_jdbc_client_is_answered_alike(question: str, client: Jdbc, answers: dict[str, Any]) -> None:
    sql = questions()[question]
    same(sql, told(client.rows(sql)), answers[question])


@pytest.mark.parametrize("kind", ["session", pytest.param("remote", marks=pytest.mark.long)])
def test_no_attack_reaches_spark(kind: str, place: Path, request: pytest.FixtureRequest) -> None:
    """Not the parser alone: a relation that a statement names is registered before Spark sees that."""
    session: SparkSession = request.getfixturevalue(kind)
    before = state_of(place)
    with lakebackup.connect(str(place), engine=session) as connection:
        passed = [case["sql"] for case in ATTACKS if not is_refused(case["sql"], connection.sql)]
        assert passed == []
        assert session.catalog.listTables() == []
        connection.sql("SELECT action FROM audit")
        assert session.catalog.listTables()
    assert state_of(place) == before


def is_refused(sql: str, ask: Callable[[str], object]) -> bool:
    """Whether a statement is, with its line and the place in it."""
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
def test_over_jdbc_nothing_of_the_backups_changes(spark: SparkSession, thrift: str, place: Path) -> None:
    """There no statement is refused for its text: the account is what protects the backups. The commands
    among the attacks, and others aimed at the catalog's own tables."""
    before = state_of(place)
    commands = [case["sql"] for case in ATTACKS if case["why"].startswith("Only one SELECT")]
    changes = CHANGES.format(table=f"delta.`{place}/catalog/audit`", place=place).strip().splitlines()
    with Jdbc(spark, thrift) as client:
        for sql in (*changes, *commands):
            try:
                client.rows(sql)
            except Py4JJavaError:
                continue
    assert state_of(place) == before
    with Jdbc(spark, thrift) as client:
        assert [row["action"] for row in client.rows("SELECT action FROM audit")] == ["prune"]
