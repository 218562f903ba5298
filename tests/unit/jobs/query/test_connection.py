"""`lakebackup.connect` asks questions and plans restores, over handmade backups and without Java."""

from __future__ import annotations

import json
import pydoc
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
from lakebackup.errors import EnvironmentProblem, NeedsSpark, NotFound, Refused, UsageProblem
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.requests import RunRequest
from lakebackup.rules.times import format_ts
from lakebackup_jobs.cli.output.rows import json_line
from lakebackup_jobs.connection import Connection, RestoreOptions
from lakebackup_jobs.runtime import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_TS = 1_795_262_400_000
COUNT = "SELECT count(*) AS n FROM files"


@pytest.fixture
def backups(tmp_path: Path) -> MadeBackups:
    backups = MadeBackups(tmp_path / "backups")
    add_backup(backups)
    return backups


def add_backup(backups: MadeBackups) -> None:
    """Add a backup with ten records in each of two partitions."""
    first = 10 * backups.number
    runs = [[Record(p, n, START_TS + n, b"k%d" % n, b"v") for n in range(first, first + 10)] for p in (0, 1)]
    backups.backup(runs, end_ts=START_TS + first + 10)
    backups.flush()


def test_every_form_of_an_answer_has_the_same_rows(
    backups: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    with lakebackup.connect(str(backups.folder)) as con:
        answer = con.sql("SELECT partition, key FROM records('orders') WHERE key = 'k7' ORDER BY partition")
        expected = [{"partition": 0, "key": "k7"}, {"partition": 1, "key": "k7"}]
        assert list(answer) == answer.rows() == answer.arrow().to_pylist() == expected
        assert answer.df().to_dict("records") == expected
        assert [(reading.topic, reading.opened) for reading in answer.readings] == [("orders", 2)]
        answer.show(1)
        first = ["partition  key", "        0  k7"]
        assert capsys.readouterr().out.splitlines() == [*first, "(The first row; there are more.)"]
        with pytest.raises(UsageProblem, match="DuckDB's, not Spark's"):
            answer.spark()


def test_an_answer_prints_as_a_table_that_fits(backups: MadeBackups, monkeypatch: pytest.MonkeyPatch) -> None:
    con = lakebackup.connect(str(backups.folder))
    answer = con.sql("SELECT partition, key FROM records('orders') ORDER BY key, partition LIMIT 2")
    assert str(answer) == repr(answer) == "partition  key\n        0  k0\n        1  k0\n(2 rows)"
    assert str(con.sql("SELECT key FROM records('orders') WHERE key = 'x'")) == "key\n(0 rows)"
    select = "SELECT r.key FROM records('orders') AS r CROSS JOIN files"
    assert str(con.sql(select)).endswith("\n(The first 20 rows; there are more.)")
    monkeypatch.setenv("COLUMNS", "40")
    lines = str(con.sql("SELECT * FROM records('orders')")).splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[-2].startswith("Left out (.df() has all): ")


def test_printing_an_answer_takes_no_rows(backups: MadeBackups) -> None:
    """The printed rows and the rows taken after them come from one run of the query."""
    con = lakebackup.connect(str(backups.folder))
    answer = con.sql(COUNT)
    assert str(answer).splitlines()[1].strip() == "2"
    add_backup(backups)
    assert answer.rows() == [{"n": 2}]
    assert answer.rows() == [{"n": 4}]


def test_a_notebook_shows_an_answer_as_html(backups: MadeBackups) -> None:
    """It needs no pandas, and a topic's records cannot write HTML."""
    con = lakebackup.connect(str(backups.folder))
    html = con.sql("SELECT '<b>' AS tag, 1 AS n, repeat('x', 1000) AS long")._repr_html_()
    assert "<th>tag</th><th>n</th>" in html
    assert '<td style="text-align: left">&lt;b&gt;</td><td style="text-align: right">1</td>' in html
    assert "x" * 200 not in html
    assert "<p>1 row</p>" in html


def test_values_of_parameters_are_literals(backups: MadeBackups) -> None:
    con = lakebackup.connect(str(backups.folder))
    select = "SELECT count(*) AS n FROM records(:topic) WHERE key = :key AND partition < :partitions"
    for key, count in (("k7", 2), ("' OR 1 = 1 --", 0), ("\\' OR 1 = 1 --", 0)):
        args = {"topic": "orders", "key": key, "partitions": 2}
        assert con.sql(select, args=args).rows() == [{"n": count}], key
    with pytest.raises(UsageProblem, match=":key has no value"):
        con.sql(select, args={"topic": "orders"})


def test_a_chart_is_shown_and_saved(backups: MadeBackups, tmp_path: Path) -> None:
    con = lakebackup.connect(str(backups.folder))
    chart = con.chart("coverage")
    assert chart.figure is not None
    assert "Plotly.newPlot" in chart._repr_html_()
    chart.save(tmp_path / "coverage.html")
    assert "Plotly.newPlot" in (tmp_path / "coverage.html").read_text("utf-8")
    with pytest.raises(UsageProblem, match="no chart 'pie'") as error:
        con.chart("pie")  # type: ignore[arg-type]
    assert "coverage" in error.value.hint


def test_columns_with_one_name_are_all_kept(backups: MadeBackups) -> None:
    with lakebackup.connect(str(backups.folder)) as con:
        rows = con.sql("SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a").rows()
    assert rows == [{"a": 1, "a_2": 2, "a_1": 3, "a_3": 4}]


def test_a_difference_of_times_is_a_duration(backups: MadeBackups) -> None:
    """pyarrow cannot convert other intervals for pandas, and once ended the process."""
    con = lakebackup.connect(str(backups.folder))
    answer = con.sql("SELECT TIMESTAMP '2026-01-03' - TIMESTAMP '2026-01-01 12:00:00' AS took")
    assert answer.rows() == [{"took": timedelta(days=1, hours=12)}]
    assert [*answer.df()["took"]] == [timedelta(days=1, hours=12)]
    with pytest.raises(UsageProblem, match="months"):
        con.sql("SELECT make_interval(0, 1) AS m").rows()


def test_a_time_beyond_the_range_of_python_is_refused(backups: MadeBackups) -> None:
    with pytest.raises(UsageProblem, match="outside of the years 1 to 9999"):
        lakebackup.connect(str(backups.folder)).sql("SELECT DATE '9999-12-31' + 1 AS day").rows()


def test_polars_is_named_where_it_is_missing(backups: MadeBackups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(EnvironmentProblem, match="Polars is not installed"):
        lakebackup.connect(str(backups.folder)).sql(COUNT).pl()


def test_each_query_sees_the_backups_of_its_time(backups: MadeBackups) -> None:
    con = lakebackup.connect(str(backups.folder))
    answer = con.sql(COUNT)
    assert answer.rows() == [{"n": 2}]
    as_of = datetime.now(UTC)
    add_backup(backups)
    assert answer.rows() == con.sql(COUNT).rows() == [{"n": 4}]
    past_connection = lakebackup.connect(str(backups.folder), as_of=as_of)
    assert past_connection.sql(
        "SELECT (SELECT count(*) FROM files) AS n, count(*) AS m FROM now_files"
    ).rows() == [{"n": 2, "m": 4}]
    with pytest.raises(UsageProblem, match="as of another time is only for questions"):
        past_connection.plan_restore("orders", to="dir:x")


def test_backups_are_those_of_list(backups: MadeBackups, capsys: pytest.CaptureFixture[str]) -> None:
    add_backup(backups)
    listed = Commands(capsys).rows("list", "--repo", backups.folder)
    con = lakebackup.connect(str(backups.folder))
    assert [json.loads(json_line(row)) for row in con.backups()] == listed
    assert [row["number"] for row in listed] == [2, 1]
    with pytest.raises(NotFound, match="no source 'another'"):
        con.backups("another").rows()
    error = Commands(capsys).fails(
        NotFound.exit_code, "list", "--source", "another", "--repo", backups.folder
    )
    assert "There is no source 'another'" in error


def test_a_plan_is_that_of_a_dry_run(
    backups: MadeBackups, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_backup(backups)
    con, to = lakebackup.connect(str(backups.folder)), f"dir:{tmp_path}/out"
    plan = con.plan_restore("orders", to=to, to_time=datetime.fromtimestamp((START_TS + 10) / 1000, UTC))
    assert (plan.files, plan.entries, plan.refused) == (2, 20, None)
    command = ("restore", "topics", "orders", "--repo", backups.folder, "--to", to, "--dry-run")
    dry_run = Commands(capsys).result(*command, "--to-time", format_ts(START_TS + 10))
    assert dry_run["files"] == plan.files
    assert dry_run["partitions"] == plan.details["partitions"]
    assert con.plan_restore(patterns=["ord.*"], to=to).entries == 40
    with pytest.raises(NotFound, match="nothing"):
        con.plan_restore("nothing", to=to)
    assert not (tmp_path / "out").exists()


def test_a_plan_prints_what_it_would_do(backups: MadeBackups, tmp_path: Path) -> None:
    con, to = lakebackup.connect(str(backups.folder)), f"dir:{tmp_path}/out"
    lines = str(con.plan_restore("orders", to=to, maps={"orders": "orders_then"})).splitlines()
    assert lines[0].startswith(f"Restore 1 topic of prod into {to}: 2 files, ")
    assert lines[0].endswith(" 20 records.")
    assert lines[2].split()[:2] == ["orders", "orders_then"]
    assert lines[-1] == "It can be carried out."


def test_a_refused_plan_says_why_in_words_of_python(backups: MadeBackups, tmp_path: Path) -> None:
    con, to = lakebackup.connect(str(backups.folder)), f"dir:{tmp_path}/out"
    plan = con.plan_restore("orders", to=to, to_time=datetime.fromtimestamp((START_TS - 1000) / 1000, UTC))
    assert plan.refused
    assert "It would be refused. " in str(plan)
    assert "`to_time`" in plan.hint
    assert "--" not in str(plan)


@pytest.mark.parametrize(
    ("argument", "suggestion"),
    [("to_tme", "to_time"), ("pattern", "patterns"), ("topic_settings", "settings"), ("map", "maps")],
)
def test_an_unknown_argument_names_the_right_one(
    backups: MadeBackups, argument: str, suggestion: str
) -> None:
    con = lakebackup.connect(str(backups.folder))
    for restore in (con.plan_restore, con.restore):
        with pytest.raises(
            UsageProblem, match=f"Unknown argument `{argument}`; did you mean `{suggestion}`?"
        ):
            restore("orders", to="dir:x", **{argument: "x"})  # type: ignore[call-arg]


def test_errors_name_arguments_where_the_command_line_has_flags(
    backups: MadeBackups, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    con, late = lakebackup.connect(str(backups.folder)), "2040-01-01T00:00Z"
    with pytest.raises(Refused) as error:
        con.plan_restore("orders", to="dir:x", to_time=late)
    assert error.value.hint == "Take a backup first, or choose an earlier `to_time`."
    command = ("restore", "topics", "orders", "--repo", backups.folder, "--to", "dir:x", "--dry-run")
    assert "choose an earlier --to-time." in Commands(capsys).fails(
        Refused.exit_code, *command, "--to-time", late
    )
    with pytest.raises(NotFound) as missing:
        lakebackup.connect(tmp_path / "none")
    assert "(`repo`)" in missing.value.hint


def test_the_package_exports_what_its_documentation_names() -> None:
    assert set(lakebackup.__all__) <= set(dir(lakebackup))
    assert lakebackup.Connection is Connection
    assert issubclass(lakebackup.Refused, lakebackup.LakebackupError)
    text = pydoc.render_doc(lakebackup, renderer=pydoc.plaintext)
    assert all(f"class {name}(" in text for name in ("Answer", "Chart", "Connection", "Plan"))
    assert "con.plan_restore(" in text


def test_options_are_those_of_the_request() -> None:
    """An option that the request gets later cannot be forgotten here."""
    request_fields = {field.name for field in fields(RestoreRequest)} - {
        field.name for field in fields(RunRequest)
    }
    field_names = {"to_time": "to_ts", "from_time": "from_ts"}
    options = {field_names.get(name, name) for name in RestoreOptions.__annotations__}
    assert request_fields - options == {"target", "topics", "save_plan", "plan", "engine", "schema_topics"}
    assert options <= request_fields


def test_wrong_connections_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAKEBACKUP_REPO", raising=False)
    with pytest.raises(UsageProblem, match="No repository"):
        lakebackup.connect()
    with pytest.raises(UsageProblem, match="neither 'duckdb' nor a Spark session"):
        lakebackup.connect(str(tmp_path), engine="presto")  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="no catalog"):
        lakebackup.connect(str(tmp_path))


def test_the_library_alone_loads_no_jobs() -> None:
    program = "import lakebackup, sys; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(result.stdout.split())
    assert not loaded & {"lakebackup_jobs", "duckdb", "pyarrow", "pydantic", "pyspark"}


def test_a_select_that_duckdb_answers_starts_no_spark(backups: MadeBackups) -> None:
    reasons: list[NeedsSpark] = []
    assert _with_absent_spark(backups, reasons).sql(COUNT).rows() == [{"n": 2}]
    assert reasons == []


@pytest.mark.parametrize(
    ("select", "text"),
    [
        (r"SELECT split('a.b.c', '[.]', 2) AS s", "The function split runs on Spark only."),
        ("SELECT avg(CAST(partition AS DECIMAL(9, 2))) AS v FROM records('orders')", "it needs Spark"),
    ],
)
def test_a_select_that_needs_spark_says_so_where_spark_cannot_start(
    backups: MadeBackups, select: str, text: str
) -> None:
    """The first SELECT shows the need before it runs, the second while it runs."""
    reasons: list[NeedsSpark] = []
    with pytest.raises(EnvironmentProblem, match="Spark cannot be started: No Java") as error:
        _with_absent_spark(backups, reasons).sql(select).rows()
    assert text in error.value.message
    assert error.value.hint == "Install a JDK."
    assert [text in reason.message for reason in reasons] == [True]


def test_a_select_that_is_wrong_starts_no_spark(backups: MadeBackups) -> None:
    reasons: list[NeedsSpark] = []
    for select in ("SELECT colour FROM backups", "SELECT 1 / 0 AS v", "SELECT getenv('HOME') AS v"):
        with pytest.raises(UsageProblem):
            _with_absent_spark(backups, reasons).sql(select).rows()
    assert reasons == []


def test_without_a_way_to_spark_the_select_is_refused(backups: MadeBackups) -> None:
    with pytest.raises(NeedsSpark, match="runs on Spark only") as error:
        lakebackup.connect(str(backups.folder)).sql(r"SELECT split('a.b.c', '[.]', 2) AS s").rows()
    assert "engine=spark" in error.value.hint


def test_the_command_says_what_needs_spark_where_spark_cannot_start(
    backups: MadeBackups, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes of tests can start no JVM; one that has the shared session acts as if it had none."""
    monkeypatch.setattr(session.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(session.SparkContext, "_active_spark_context", None)
    command = ["sql", "--repo", str(backups.folder), "SELECT split('a.b.c', '[.]', 2) AS s"]
    code, output, err = Commands(capsys).run(*command)
    assert (code, output) == (6, "")
    assert err.startswith("The function split runs on Spark only. Starting Spark.\n")
    assert "\nSpark cannot be started: " in err
    code, output, err = Commands(capsys).run(*command, "--json")
    assert (code, output) == (6, "")
    assert "\nSpark cannot be started: " in json.loads(err)["message"]
    assert "--engine spark" in Commands(capsys).fails(2, *command, "--engine", "duckdb")


def test_a_restore_by_select_never_takes_spark_by_itself(
    backups: MadeBackups, capsys: pytest.CaptureFixture[str]
) -> None:
    select = "SELECT path FROM files WHERE soundex(path) = 'A000'"
    words = [
        "restore",
        "topics",
        "--repo",
        backups.folder,
        "--select",
        select,
        "--to",
        "dir:/nowhere",
        "--dry-run",
    ]
    assert "--engine spark" in Commands(capsys).fails(2, *words)


def _with_absent_spark(backups: MadeBackups, reasons: list[NeedsSpark]) -> Connection:
    """A connection that may fall back to Spark, which cannot start. `reasons` collects why it tried."""

    def session(reason: NeedsSpark) -> SparkSession:
        reasons.append(reason)
        raise EnvironmentProblem("No Java found.", hint="Install a JDK.")

    return Connection(lakebackup.connect(str(backups.folder)).settings, fallback=session)


def test_a_restore_accepts_the_property_names_of_java(backups: MadeBackups) -> None:
    """They are refused or translated like those of a file, before any connection is made."""
    stores = {"security.protocol": "SSL", "ssl.truststore.location": "/trust.jks"}
    with lakebackup.connect(str(backups.folder)) as con:
        with pytest.raises(UsageProblem, match="reads no truststore of the type JKS"):
            con.plan_restore("orders", to="kafka://localhost:1", kafka=stores)
        pem = {**stores, "ssl.truststore.type": "PEM"}
        request = con._request(("orders",), "kafka://localhost:1", {"kafka": pem}, dry_run=True)
    assert request.kafka["ssl.ca.location"] == "/trust.jks"
    assert "ssl.truststore.location" not in request.kafka
