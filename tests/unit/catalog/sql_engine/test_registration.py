"""The statements that register a catalog in an engine without lakebackup.

Databricks and Trino do not run here, so only sqlglot's parser reads their statements. DuckDB runs the views
over the rows of a catalog made by hand, and answers every question of docs/questions.md.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import duckdb
import pyarrow.parquet as pq
import pytest
from sqlglot import exp, parse_one
from tests.support.asked_catalog import made_catalog, questions, settled

import lakebackup
from lakebackup.errors import UsageProblem
from lakebackup.reference import view_comments
from lakebackup.rows.tables import TABLES, columns
from lakebackup.sql_engine import MATERIALIZED_VIEWS, RAW, shown_views, steps_for, to_duckdb, view_text
from lakebackup.sql_engine.delta.dataset import rows_of
from lakebackup.sql_engine.duck import view_types
from lakebackup.sql_engine.registration import (
    ForeignEngine,
    Registration,
    ViewComment,
    address_in,
    register,
)
from lakebackup.sql_engine.trino import to_trino
from lakebackup_jobs.cli.output.rows import json_line

ENGINES: Sequence[ForeignEngine] = get_args(ForeignEngine)
ALL_COLUMNS = {table: [column.name for column in columns(table)] for table in TABLES}
ADDRESS = "s3://backups/prod/catalog"
# What each statement may look like, so that it can run again. Trino has no such form for a table.
REPEATABLE = re.compile(
    r"CREATE (SCHEMA|TABLE) IF NOT EXISTS |CREATE OR REPLACE (TABLE|VIEW|MACRO) |COMMENT ON "
    r"|(INSTALL|LOAD) delta|CALL system\.register_table\("
)
# Functions of Trino that the views call, from its documentation.
TRINO_FUNCTIONS = {
    "at_timezone", "cardinality", "cast", "coalesce", "concat", "concat_ws", "count", "date_add", "date_diff",
    "dense_rank", "exists", "floor", "from_unixtime_nanos", "greatest", "if", "lag", "lead", "least", "max",
    "max_by", "min", "min_by", "month", "nullif", "regexp_like", "row_number", "sequence", "split_part",
    "sum", "timestamp", "trim", "try_cast", "unnest", "with_timezone", "year",
}  # fmt: skip


@pytest.fixture(scope="module")
def comments() -> Mapping[str, ViewComment]:
    return view_comments()


@pytest.fixture(scope="module")
def registrations(comments: Mapping[str, ViewComment]) -> dict[ForeignEngine, Registration]:
    """The statements for each engine, of a catalog of this version."""
    return {engine: register(engine, "lakebackup", ADDRESS, ALL_COLUMNS, comments) for engine in ENGINES}


def creation(registration: Registration, view: str) -> str:
    """The statement that creates a view."""
    start = re.compile(rf"CREATE OR REPLACE VIEW lakebackup\.{view}\b")
    (statement,) = [statement for statement in registration.views if start.match(statement)]
    return statement


@pytest.mark.parametrize("engine", ENGINES)
def test_every_shown_view_is_created_with_comments(
    engine: ForeignEngine, registrations: dict[ForeignEngine, Registration]
) -> None:
    registration = registrations[engine]
    assert registration.untranslated == (["queue_points"] if engine == "trino" else [])
    comments = "\n".join(registration.views)
    for view in set(shown_views()) - set(registration.untranslated):
        statement = creation(registration, view)
        if engine in ("spark", "databricks"):
            commented = re.findall(r"^  `(\w+)` COMMENT '.", statement, re.MULTILINE)
            assert "\n)\nCOMMENT '" in statement
        else:
            commented = re.findall(rf"COMMENT ON COLUMN lakebackup\.{view}\.\"(\w+)\" IS '.", comments)
            assert f"COMMENT ON VIEW lakebackup.{view} IS '" in comments
        assert commented == list(view_types(view))


@pytest.mark.parametrize("engine", ENGINES)
def test_every_statement_parses_and_may_run_again(
    engine: ForeignEngine, registrations: dict[ForeignEngine, Registration]
) -> None:
    for statement in registrations[engine].statements:
        assert REPEATABLE.match(statement), statement[:80]
        tree = parse_one(statement, dialect=engine)
        # sqlglot keeps what it cannot read as a Command: that of Trino and DuckDB that is no SELECT.
        assert not isinstance(tree, exp.Command) or re.match(r"CALL|INSTALL|LOAD", statement), statement[:80]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_script_can_be_cut_at_its_semicolons(
    engine: ForeignEngine, registrations: dict[ForeignEngine, Registration]
) -> None:
    """As notebooks and clients of JDBC cut it. All other lines at the top and the end are comments."""
    registration = registrations[engine]
    parts = "".join(registration.script()).split(";\n")
    statements = [re.sub(r"\A(--.*\n|\n)*", "", part) for part in parts]
    assert [statement for statement in statements if statement][: len(registration.statements)] == list(
        registration.statements
    )
    assert all(statement.startswith("-- GRANT") for statement in parts[len(registration.statements) + 1 : -1])


HEAD = """\
-- The views of the lakebackup catalog s3://backups/prod/catalog for Databricks.
-- Written by `lakebackup catalog ddl --for databricks`: repeat it after an upgrade of lakebackup.
-- Read the views: the tables raw_… also have rows of unfinished runs.
-- It can run again. Tables that exist stay at their address.
-- The tables computed_… are as of the last run: see `lakebackup catalog ddl --refresh`.

CREATE SCHEMA IF NOT EXISTS main.backups;

CREATE TABLE IF NOT EXISTS main.backups.raw_audit USING DELTA LOCATION 's3://backups/prod/catalog/audit';
"""


def test_the_script_for_databricks(comments: Mapping[str, ViewComment]) -> None:
    registration = register("databricks", "main.backups", f"{ADDRESS}/", ALL_COLUMNS, comments)
    script = "".join(registration.script())
    assert script.startswith(HEAD)
    assert "\n-- GRANT USE CATALOG ON CATALOG main TO `readers`;\n" in script
    assert "\n-- GRANT SELECT ON VIEW main.backups.files TO `readers`;\n" in script
    assert not re.search(r"^-- GRANT.*(raw_|computed_)", script, re.MULTILINE)


def test_a_line_break_in_a_path_does_not_end_a_comment(comments: Mapping[str, ViewComment]) -> None:
    registration = register("spark", "lakebackup", "/a\nDROP TABLE x;/catalog", ALL_COLUMNS, comments)
    lines = "".join(registration.script()).partition("CREATE SCHEMA")[0].splitlines()
    assert [line for line in lines if line and not line.startswith("-- ")] == []


def test_tables_of_trino_are_registered_in_the_catalog_of_the_schema(
    comments: Mapping[str, ViewComment],
) -> None:
    registration = register("trino", "delta.backups", ADDRESS, ALL_COLUMNS, comments)
    assert registration.tables[:2] == [
        "CREATE SCHEMA IF NOT EXISTS delta.backups",
        (
            "CALL delta.system.register_table(schema_name => 'backups', table_name => 'raw_audit', "
            "table_location => 's3://backups/prod/catalog/audit')"
        ),
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_older_catalog_lacks_tables_and_columns(
    engine: ForeignEngine, comments: Mapping[str, ViewComment]
) -> None:
    older = {table: names for table, names in ALL_COLUMNS.items() if table != "failures"}
    older["audit"] = [name for name in ALL_COLUMNS["audit"] if name != "host"]
    registration = register(engine, "lakebackup", ADDRESS, older, comments)
    assert not any("raw_failures" in statement for statement in registration.tables)
    failures = parse_one(creation(registration, "failures"), dialect=engine)
    (raw,) = [cte.this for cte in failures.find_all(exp.CTE) if cte.alias == "raw_failures"]
    assert [column.alias for column in raw.expressions] == ALL_COLUMNS["failures"]
    assert not list(raw.find_all(exp.Table))
    audit = parse_one(creation(registration, "audit"), dialect=engine)
    (raw,) = [cte.this for cte in audit.find_all(exp.CTE) if cte.alias == "raw_audit"]
    nulls = [column.alias for column in raw.expressions if isinstance(column, exp.Alias)]
    assert nulls == ["host"]


@pytest.mark.parametrize("engine", ["spark", "databricks", "trino"])
def test_views_that_others_share_are_read_from_tables(
    engine: ForeignEngine, registrations: dict[ForeignEngine, Registration]
) -> None:
    """No engine plans them where they are read. Each table only reads those before it."""
    registration = registrations[engine]
    computed = [re.search(r"lakebackup\.computed_(\w+)", statement) for statement in registration.refresh]
    names = [match[1] for match in computed if match]
    assert set(names) == MATERIALIZED_VIEWS
    for number, statement in enumerate(registration.refresh):
        assert set(re.findall(r"computed_(\w+)", statement)) <= set(names[: number + 1])
    for view in ("status", "rpo", "obsolete_backups"):
        tree = parse_one(creation(registration, view), dialect=engine)
        assert sum(1 for table in tree.find_all(exp.Table) if table.db) < 60
        assert "last refresh of the tables computed_" in "".join(registration.views)


def test_no_expression_of_a_view_hides_a_view(registrations: dict[ForeignEngine, Registration]) -> None:
    """Spark 3 refuses a name of an inner WITH that an outer one has too."""
    steps = set(steps_for(shown_views()))
    for step in steps:
        if not step.startswith(RAW):
            tree = parse_one(view_text(step), dialect="spark")
            assert steps.isdisjoint(cte.alias for cte in tree.find_all(exp.CTE)), step


def test_the_views_have_no_parameters() -> None:
    for step in steps_for(shown_views()):
        if not step.startswith(RAW):
            assert not list(parse_one(view_text(step), dialect="spark").find_all(exp.Placeholder)), step


@pytest.mark.parametrize("schema", ["", "a.b.c", "a-b", "x; DROP TABLE y", "1a", "a."])
def test_a_schema_is_a_name(schema: str, comments: Mapping[str, ViewComment]) -> None:
    with pytest.raises(UsageProblem, match="--schema"):
        register("spark", schema, ADDRESS, ALL_COLUMNS, comments)


@pytest.mark.parametrize(
    ("engine", "uri", "address"),
    [
        ("spark", "s3://b/p/catalog", "s3a://b/p/catalog"),
        ("databricks", "s3://b/p/catalog", "s3://b/p/catalog"),
        ("trino", "s3://b/p/catalog", "s3://b/p/catalog"),
        ("spark", "file:///b/catalog", "file:///b/catalog"),
        ("duckdb", "file:///b/catalog", "/b/catalog"),
    ],
)
def test_the_address_has_the_form_of_the_engine(engine: ForeignEngine, uri: str, address: str) -> None:
    assert address_in(engine, uri) == address


@pytest.mark.parametrize(
    ("spark", "trino"),
    [
        ("a DIV (b DIV 2)", "a / (b / 2)"),
        (
            "timestamp_millis(a DIV 3)",
            "DATE_ADD('MILLISECOND', CAST(a / 3 AS BIGINT), CAST('1970-01-01 00:00:00.000' AS TIMESTAMP(3)))",
        ),
        (
            "timestamp_micros(a + b)",
            "CAST(AT_TIMEZONE(FROM_UNIXTIME_NANOS((a + b) * 1000), 'UTC') AS TIMESTAMP(6))",
        ),
        ("concat_ws('; ', a, 'b')", "CONCAT_WS('; ', a, 'b')"),
    ],
)
def test_trino_computes_what_spark_does(spark: str, trino: str) -> None:
    text = re.sub(r"\s+", " ", to_trino(f"SELECT {spark}"))
    assert text.replace("( ", "(").replace(" )", ")") == f"SELECT {trino}"


def test_trino_has_all_functions_that_the_views_call(
    registrations: dict[ForeignEngine, Registration],
) -> None:
    text = "\n".join([*registrations["trino"].refresh, *registrations["trino"].views])
    code = re.sub(r"'(?:[^']|'')*'", "''", text)
    function_names = {name.lower() for name in re.findall(r"(?<!AS )\b([A-Za-z_]\w*)\(", code)}
    assert function_names - TRINO_FUNCTIONS == set()


def test_duckdb_answers_every_question_as_lakebackup(
    tmp_path: Path, comments: Mapping[str, ViewComment]
) -> None:
    """DuckDB's extension for Delta is not installed, so the tables have their rows from Arrow."""
    backups = made_catalog(tmp_path)
    reader = backups.reader()
    registration = register("duckdb", "lakebackup", "/unused", reader.stored_columns(), comments)
    connection = lakebackup.connect(str(backups.folder))
    with duckdb.connect() as plain:
        plain.execute("SET TimeZone = 'UTC'")
        for statement in registration.tables:
            if match := re.search(r"VIEW lakebackup\.raw_(\w+) AS FROM delta_scan", statement):
                rows = rows_of(f"{reader.catalog_uri}/{match[1]}")
                plain.register("rows", rows)
                plain.execute(f"CREATE TABLE lakebackup.raw_{match[1]} AS FROM rows")
            elif "delta" not in statement:
                plain.execute(statement)
        for _ in range(2):
            for statement in registration.views:
                plain.execute(statement)
        assert plain.execute(
            "SELECT comment FROM duckdb_columns() WHERE table_name = 'files' AND column_name = 'sha256'"
        ).fetchall() == [(comments["files"].columns["sha256"],)]
        plain.execute("USE lakebackup")
        for question, sql in questions().items():
            expected = comparable(connection.sql(sql).rows())
            assert comparable(plain.sql(to_duckdb(sql)).to_arrow_table().to_pylist()) == expected, question
        for view in shown_views():
            count = f"SELECT count(*) AS n FROM {view}"
            assert plain.sql(count).fetchall() == [(connection.sql(count).rows()[0]["n"],)], view


def comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as JSON in one order, without the columns that depend on the current time."""
    return sorted(settled([json.loads(json_line(row)) for row in rows]), key=str)


# Runs in an environment that has DuckDB, its extension for Delta, and nothing of lakebackup.
FOREIGN_PROGRAM = """
import json, pathlib, shutil, sys
import duckdb, duckdb_extension_delta

folder = pathlib.Path(sys.argv[1])
connection = duckdb.connect(config={"extension_directory": str(folder / "extensions")})
(platform,) = connection.execute("PRAGMA platform").fetchone()
installed = folder / "extensions" / f"v{duckdb.__version__}" / platform
installed.mkdir(parents=True)
(wheel,) = duckdb_extension_delta.__path__
shutil.copy(next(pathlib.Path(wheel).rglob("delta.duckdb_extension")), installed)
for _ in range(2):
    connection.execute((folder / "views.sql").read_text("utf-8"))
connection.execute("SET TimeZone = 'UTC'; USE lakebackup")
for number, sql in enumerate(json.loads((folder / "questions.json").read_text("utf-8"))):
    connection.execute(f"COPY ({sql}) TO '{folder}/{number}.parquet' (FORMAT parquet)")
"""


@pytest.mark.long
def test_a_duckdb_without_lakebackup_answers_every_question(
    tmp_path: Path, comments: Mapping[str, ViewComment]
) -> None:
    """The newest DuckDB for which the package index has the extension: PyPI's is not that of the project."""
    foreign = tmp_path / "foreign"
    venv.create(foreign, with_pip=True)
    packages = ("duckdb==1.5.5", "duckdb_extension_delta==1.5.5", "pytz")
    command = [str(foreign / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *packages]
    installation = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if installation.returncode:
        pytest.skip(f"pip cannot install {packages}: {installation.stderr.strip()[-200:]}")
    backups = made_catalog(tmp_path / "backups")
    reader = backups.reader()
    address = address_in("duckdb", reader.catalog_uri)
    registration = register("duckdb", "lakebackup", address, reader.stored_columns(), comments)
    selects = [to_duckdb(sql) for sql in questions().values()]
    (tmp_path / "views.sql").write_text("".join(registration.script()), "utf-8")
    (tmp_path / "questions.json").write_text(json.dumps(selects), "utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    answering = subprocess.run(
        [str(foreign / "bin" / "python"), "-c", FOREIGN_PROGRAM, str(tmp_path)],
        capture_output=True, text=True, timeout=600, check=False, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert (answering.returncode, answering.stderr) == (0, "")
    connection = lakebackup.connect(str(backups.folder))
    for number, (question, sql) in enumerate(questions().items()):
        rows = pq.read_table(tmp_path / f"{number}.parquet").to_pylist()
        assert comparable(rows) == comparable(connection.sql(sql).rows()), question
