"""`lakebackup.connect`: one door for questions and restores, on backups made by hand, without Java."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.command_line import Commands
from tests.support.made_backups import MadeBackups, Record

import lakebackup
from lakebackup.errors import EnvironmentProblem, NeedsSpark, NotFound, UsageProblem
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.requests import Request
from lakebackup.rules.times import format_ts
from lakebackup_jobs.cli.output.rows import json_line
from lakebackup_jobs.connection import Connection, RestoreOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGAN = 1_795_262_400_000
COUNT = "SELECT count(*) AS n FROM files"


@pytest.fixture
def made(tmp_path: Path) -> MadeBackups:
    made = MadeBackups(tmp_path / "backups")
    add(made)
    return made


def add(made: MadeBackups) -> None:
    """One more backup, of ten records of each of two partitions."""
    first = 10 * made.number
    runs = [[Record(p, n, BEGAN + n, b"k%d" % n, b"v") for n in range(first, first + 10)] for p in (0, 1)]
    made.backup(runs, end_ts=BEGAN + first + 10)
    made.flush()


def test_every_form_has_the_same_rows(made: MadeBackups, capsys: pytest.CaptureFixture[str]) -> None:
    with lakebackup.connect(str(made.folder)) as con:
        answer = con.sql("SELECT partition, key FROM records('orders') WHERE key = 'k7' ORDER BY partition")
        expected = [{"partition": 0, "key": "k7"}, {"partition": 1, "key": "k7"}]
        assert list(answer) == answer.rows() == answer.arrow().to_pylist() == expected
        assert answer.df().to_dict("records") == expected
        assert [(one.topic, one.opened) for one in answer.readings] == [("orders", 2)]
        answer.show(1)
        assert capsys.readouterr().out.splitlines() == ["partition  key", "        0  k7", "… 1 of 2 rows"]
        assert "<table" in answer._repr_html_()
        with pytest.raises(UsageProblem, match="DuckDB's, not Spark's"):
            answer.spark()


def test_columns_of_one_name_are_all_there(made: MadeBackups) -> None:
    with lakebackup.connect(str(made.folder)) as con:
        rows = con.sql("SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a").rows()
    assert rows == [{"a": 1, "a_2": 2, "a_1": 3, "a_3": 4}]


def test_a_difference_of_times_is_a_duration(made: MadeBackups) -> None:
    """pyarrow has none of another kind for pandas, and ended the process."""
    con = lakebackup.connect(str(made.folder))
    answer = con.sql("SELECT TIMESTAMP '2026-01-03' - TIMESTAMP '2026-01-01 12:00:00' AS took")
    assert answer.rows() == [{"took": timedelta(days=1, hours=12)}]
    assert [*answer.df()["took"]] == [timedelta(days=1, hours=12)]
    with pytest.raises(UsageProblem, match="months"):
        con.sql("SELECT make_interval(0, 1) AS m").rows()


def test_a_time_that_python_has_no_value_for(made: MadeBackups) -> None:
    with pytest.raises(UsageProblem, match="outside of the years 1 to 9999"):
        lakebackup.connect(str(made.folder)).sql("SELECT DATE '9999-12-31' + 1 AS day").rows()


def test_polars_is_named_where_it_is_missing(made: MadeBackups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(EnvironmentProblem, match="Polars is not installed"):
        lakebackup.connect(str(made.folder)).sql(COUNT).pl()


def test_each_question_sees_what_is_there_by_then(made: MadeBackups) -> None:
    con = lakebackup.connect(str(made.folder))
    answer = con.sql(COUNT)
    assert answer.rows() == [{"n": 2}]
    before = datetime.now(UTC)
    add(made)
    assert answer.rows() == con.sql(COUNT).rows() == [{"n": 4}]
    then = lakebackup.connect(str(made.folder), as_of=before)
    assert then.sql("SELECT (SELECT count(*) FROM files) AS n, count(*) AS m FROM now_files").rows() == [
        {"n": 2, "m": 4}
    ]
    with pytest.raises(UsageProblem, match="as of another time is only for questions"):
        then.plan_restore("orders", to="dir:x")


def test_backups_are_those_of_list(made: MadeBackups, capsys: pytest.CaptureFixture[str]) -> None:
    add(made)
    listed = Commands(capsys).rows("list", "--repo", made.folder)
    con = lakebackup.connect(str(made.folder))
    assert [json.loads(json_line(row)) for row in con.backups()] == listed
    assert [row["number"] for row in listed] == [2, 1]
    with pytest.raises(NotFound, match="no source 'another'"):
        con.backups("another").rows()
    said = Commands(capsys).fails(NotFound.exit_code, "list", "--source", "another", "--repo", made.folder)
    assert "There is no source 'another'" in said


def test_a_plan_is_that_of_a_dry_run(
    made: MadeBackups, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(made)
    con, to = lakebackup.connect(str(made.folder)), f"dir:{tmp_path}/out"
    plan = con.plan_restore("orders", to=to, to_time=datetime.fromtimestamp((BEGAN + 10) / 1000, UTC))
    assert (plan.files, plan.entries, plan.refused) == (2, 20, None)
    command = ("restore", "topics", "orders", "--repo", made.folder, "--to", to, "--dry-run")
    told = Commands(capsys).told(*command, "--to-time", format_ts(BEGAN + 10))
    assert told["files"] == plan.files
    assert told["partitions"] == plan.details["partitions"]
    assert con.plan_restore(patterns=["ord.*"], to=to).entries == 40
    with pytest.raises(NotFound, match="nothing"):
        con.plan_restore("nothing", to=to)
    assert not (tmp_path / "out").exists()


def test_options_are_those_of_the_request() -> None:
    """One that a request gets later is forgotten here no more than on the command line."""
    own = {field.name for field in fields(RestoreRequest)} - {field.name for field in fields(Request)}
    named = {"to_time": "to_ts", "from_time": "from_ts"}
    options = {named.get(name, name) for name in RestoreOptions.__annotations__}
    assert own - options == {"target", "topics", "save_plan", "plan", "engine", "schema_topics"}
    assert options <= own


def test_wrong_connections_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAKEBACKUP_DESTINATION", raising=False)
    with pytest.raises(UsageProblem, match="No destination"):
        lakebackup.connect()
    with pytest.raises(UsageProblem, match="neither 'duckdb' nor a Spark session"):
        lakebackup.connect(str(tmp_path), engine="presto")  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="no catalog"):
        lakebackup.connect(str(tmp_path))


def test_the_library_alone_loads_no_jobs() -> None:
    program = "import lakebackup, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"lakebackup_jobs", "duckdb", "pyarrow", "pydantic", "pyspark"}


def test_a_select_that_duckdb_answers_starts_no_spark(made: MadeBackups) -> None:
    reasons: list[NeedsSpark] = []
    assert _with_absent_spark(made, reasons).sql(COUNT).rows() == [{"n": 2}]
    assert reasons == []


@pytest.mark.parametrize(
    ("select", "why"),
    [
        (r"SELECT split('a.b.c', '[.]', 2) AS s", "The function split runs on Spark only."),
        ("SELECT avg(CAST(partition AS DECIMAL(9, 2))) AS v FROM records('orders')", "it needs Spark"),
    ],
)
def test_a_select_that_needs_spark_says_so_where_spark_cannot_start(
    made: MadeBackups, select: str, why: str
) -> None:
    """The first is known before it runs, the second as it runs."""
    reasons: list[NeedsSpark] = []
    with pytest.raises(EnvironmentProblem, match="Spark cannot be started: No Java") as error:
        _with_absent_spark(made, reasons).sql(select).rows()
    assert why in error.value.message
    assert error.value.hint == "Install a JDK."
    assert [why in reason.message for reason in reasons] == [True]


def test_a_select_that_is_wrong_starts_no_spark(made: MadeBackups) -> None:
    reasons: list[NeedsSpark] = []
    for select in ("SELECT colour FROM backups", "SELECT 1 / 0 AS v", "SELECT getenv('HOME') AS v"):
        with pytest.raises(UsageProblem):
            _with_absent_spark(made, reasons).sql(select).rows()
    assert reasons == []


def test_without_a_way_to_spark_the_select_is_refused(made: MadeBackups) -> None:
    with pytest.raises(NeedsSpark, match="runs on Spark only") as error:
        lakebackup.connect(str(made.folder)).sql(r"SELECT split('a.b.c', '[.]', 2) AS s").rows()
    assert "engine=spark" in error.value.hint


def test_the_command_says_what_needs_spark_where_spark_cannot_start(
    made: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    """No process of a test starts a JVM."""
    ask = ["sql", "--repo", str(made.folder), "SELECT split('a.b.c', '[.]', 2) AS s"]
    code, out, err = Commands(capsys).run(*ask)
    assert (code, out) == (6, "")
    assert err.startswith("The function split runs on Spark only. Starting Spark.\n")
    assert "\nSpark cannot be started: " in err
    code, out, err = Commands(capsys).run(*ask, "--json")
    assert (code, out) == (6, "")
    assert "\nSpark cannot be started: " in json.loads(err)["message"]
    assert "--engine spark" in Commands(capsys).fails(2, *ask, "--engine", "duckdb")


def test_a_restore_by_select_never_takes_spark_by_itself(
    made: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    select = "SELECT path FROM files WHERE soundex(path) = 'A000'"
    words = [
        "restore",
        "topics",
        "--repo",
        made.folder,
        "--select",
        select,
        "--to",
        "dir:/nowhere",
        "--dry-run",
    ]
    assert "--engine spark" in Commands(capsys).fails(2, *words)


def _with_absent_spark(made: MadeBackups, reasons: list[NeedsSpark]) -> Connection:
    """A connection that may take Spark, which cannot be started; `reasons` gets why it was to be."""

    def session(why: NeedsSpark) -> SparkSession:
        reasons.append(why)
        raise EnvironmentProblem("No Java found.", hint="Install a JDK.")

    return Connection(lakebackup.connect(str(made.folder)).settings, fallback=session)


def test_a_restore_takes_the_names_of_properties_that_java_has(made: MadeBackups) -> None:
    """They are refused or translated as those of a file are, before anything is connected to."""
    stores = {"security.protocol": "SSL", "ssl.truststore.location": "/trust.jks"}
    with lakebackup.connect(str(made.folder)) as con:
        with pytest.raises(UsageProblem, match="reads no truststore of the type JKS"):
            con.plan_restore("orders", to="kafka://localhost:1", kafka=stores)
        pem = {**stores, "ssl.truststore.type": "PEM"}
        request = con._request(("orders",), "kafka://localhost:1", {"kafka": pem}, dry_run=True)
    assert request.kafka["ssl.ca.location"] == "/trust.jks"
    assert "ssl.truststore.location" not in request.kafka
