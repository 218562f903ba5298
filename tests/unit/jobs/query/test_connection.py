"""`lakebackup.connect`: one door for questions and restores, on backups made by hand, without Java."""

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
        first = ["partition  key", "        0  k7"]
        assert capsys.readouterr().out.splitlines() == [*first, "(The first row; there are more.)"]
        with pytest.raises(UsageProblem, match="DuckDB's, not Spark's"):
            answer.spark()


def test_an_answer_prints_as_a_table_that_fits(made: MadeBackups, monkeypatch: pytest.MonkeyPatch) -> None:
    con = lakebackup.connect(str(made.folder))
    answer = con.sql("SELECT partition, key FROM records('orders') ORDER BY key, partition LIMIT 2")
    assert str(answer) == repr(answer) == "partition  key\n        0  k0\n        1  k0\n(2 rows)"
    assert str(con.sql("SELECT key FROM records('orders') WHERE key = 'x'")) == "key\n(0 rows)"
    select = "SELECT r.key FROM records('orders') AS r CROSS JOIN files"
    assert str(con.sql(select)).endswith("\n(The first 20 rows; there are more.)")
    monkeypatch.setenv("COLUMNS", "40")
    lines = str(con.sql("SELECT * FROM records('orders')")).splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[-2].startswith("Left out (.df() has all): ")


def test_looking_at_an_answer_takes_no_rows(made: MadeBackups) -> None:
    """What is printed and what is taken then are of one run."""
    con = lakebackup.connect(str(made.folder))
    answer = con.sql(COUNT)
    assert str(answer).splitlines()[1].strip() == "2"
    add(made)
    assert answer.rows() == [{"n": 2}]
    assert answer.rows() == [{"n": 4}]


def test_a_notebook_shows_an_answer_as_html(made: MadeBackups) -> None:
    """Without pandas; a topic's records cannot write a page."""
    con = lakebackup.connect(str(made.folder))
    html = con.sql("SELECT '<b>' AS tag, 1 AS n, repeat('x', 1000) AS long")._repr_html_()
    assert "<th>tag</th><th>n</th>" in html
    assert '<td style="text-align: left">&lt;b&gt;</td><td style="text-align: right">1</td>' in html
    assert "x" * 200 not in html
    assert "<p>1 row</p>" in html


def test_values_of_parameters_are_literals(made: MadeBackups) -> None:
    con = lakebackup.connect(str(made.folder))
    select = "SELECT count(*) AS n FROM records(:topic) WHERE key = :key AND partition < :partitions"
    for key, count in (("k7", 2), ("' OR 1 = 1 --", 0), ("\\' OR 1 = 1 --", 0)):
        args = {"topic": "orders", "key": key, "partitions": 2}
        assert con.sql(select, args=args).rows() == [{"n": count}], key
    with pytest.raises(UsageProblem, match=":key has no value"):
        con.sql(select, args={"topic": "orders"})


def test_a_chart_is_shown_and_saved(made: MadeBackups, tmp_path: Path) -> None:
    con = lakebackup.connect(str(made.folder))
    chart = con.chart("coverage")
    assert chart.figure is not None
    assert "Plotly.newPlot" in chart._repr_html_()
    chart.save(tmp_path / "coverage.html")
    assert "Plotly.newPlot" in (tmp_path / "coverage.html").read_text("utf-8")
    with pytest.raises(UsageProblem, match="no chart 'pie'") as error:
        con.chart("pie")  # type: ignore[arg-type]
    assert "coverage" in error.value.hint


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


def test_a_plan_prints_what_it_would_do(made: MadeBackups, tmp_path: Path) -> None:
    con, to = lakebackup.connect(str(made.folder)), f"dir:{tmp_path}/out"
    lines = str(con.plan_restore("orders", to=to, maps={"orders": "orders_then"})).splitlines()
    assert lines[0].startswith(f"Restore 1 topic of prod into {to}: 2 files, ")
    assert lines[0].endswith(" 20 records.")
    assert lines[2].split()[:2] == ["orders", "orders_then"]
    assert lines[-1] == "It can be carried out."


def test_a_refused_plan_says_why_in_words_of_python(made: MadeBackups, tmp_path: Path) -> None:
    con, to = lakebackup.connect(str(made.folder)), f"dir:{tmp_path}/out"
    plan = con.plan_restore("orders", to=to, to_time=datetime.fromtimestamp((BEGAN - 1000) / 1000, UTC))
    assert plan.refused
    assert "It would be refused. " in str(plan)
    assert "`to_time`" in plan.hint
    assert "--" not in str(plan)


@pytest.mark.parametrize(
    ("argument", "meant"),
    [("to_tme", "to_time"), ("pattern", "patterns"), ("topic_settings", "settings"), ("map", "maps")],
)
def test_an_unknown_argument_names_the_right_one(made: MadeBackups, argument: str, meant: str) -> None:
    con = lakebackup.connect(str(made.folder))
    for restore in (con.plan_restore, con.restore):
        with pytest.raises(UsageProblem, match=f"Unknown argument `{argument}`; did you mean `{meant}`?"):
            restore("orders", to="dir:x", **{argument: "x"})  # type: ignore[call-arg]


def test_errors_name_arguments_where_the_command_line_has_flags(
    made: MadeBackups, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    con, late = lakebackup.connect(str(made.folder)), "2040-01-01T00:00Z"
    with pytest.raises(Refused) as error:
        con.plan_restore("orders", to="dir:x", to_time=late)
    assert error.value.hint == "Take a backup first, or choose an earlier `to_time`."
    command = ("restore", "topics", "orders", "--repo", made.folder, "--to", "dir:x", "--dry-run")
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
    """One that a request gets later is forgotten here no more than on the command line."""
    own = {field.name for field in fields(RestoreRequest)} - {field.name for field in fields(Request)}
    named = {"to_time": "to_ts", "from_time": "from_ts"}
    options = {named.get(name, name) for name in RestoreOptions.__annotations__}
    assert own - options == {"target", "topics", "save_plan", "plan", "engine", "schema_topics"}
    assert options <= own


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
