"""Each query and view of sql/ on both engines: rows given, parameters, rows expected, from the file in cases/
that has the path of the statement.

Every case runs on DuckDB. On Spark these run: the first case of each view, and of each query that jobs or
notebooks can ask Spark; and every case of a statement that this branch changed (`LAKEBACKUP_TEST_BASE` names
the commit to compare with). The other cases on Spark are long tests.

A case names the tables `given`, the parameters (`when`) and the rows expected (`then`), with only the columns
that matter; `DEFAULTS` fill the rest. A row is a mapping of columns, its key alone (`b2`), or its key and
columns (`b2: {state: deleted}`). The key is the name, path, transaction or backup, what the table has first.
Backups b1, b2, ... have that number, depend on b1 and end at 1000 times their number; a full is its own base.
Files of `backup_id: b2` were added in backup 2. The source is prod; parameters that are not given are NULL.

`clock: [{now_ms: 5000}]` makes that the present.

An entry `every case` holds what the cases after it share: the order, parameters, a table's rows, or, as a
mapping in place of a list, columns of every row of a table. `use` names a data set of given.yml.

A view's rows are sorted by the case's `order`, or are those of its `select`. Rows of a query without ORDER BY
are sorted by the columns that `order` lists.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import MISSING, fields
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import pyarrow as pa
import pytest
import yaml
from tests.support.rows import nothing

from lakebackup.lazy import load_names
from lakebackup.plan.snapshots.restore import chosen_schema
from lakebackup.plan.upkeep.import_backups import numbered_schema
from lakebackup.plan.upkeep.prune import (
    Cut,
    HeldPartition,
    columns_of,
    in_force_schema,
    leaving_schema,
    needed_schema,
)
from lakebackup.recovery.import_reader import import_schema
from lakebackup.rows.tables import ARROW_SCHEMAS, TABLES
from lakebackup.rules.retention import Rule
from lakebackup.sql_engine import MATERIALIZED_VIEWS, RAW, clock_at, relations_in, steps, steps_for, to_duckdb
from lakebackup.sql_engine.duck import DuckEngine
from lakebackup_sql import area, load, names

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import SparkSession

QUERIES = Path(__file__).parent
ROOT = QUERIES.parents[1]
PLACES = {"destination": "d", "source": "prod", "scope": "orders", "epoch": "e1", "region": "0"}
# What columns of these names hold unless a case, or OWN for a table, says otherwise.
USUAL = {
    **PLACES, "backup_id": "b1", "restore_id": "r1", "prune_id": "p1", "check_id": "c1", "added_in": 1,
    "gone_in": 2, "bytes": 100, "raw_bytes": 200, "sha256": "00", "entries": 10, "max_ts": 9, "to_ts": 1,
    "end_position": 10, "high_position": 10, "settings": "{}", "regions": 1, "replication": 1, "base": "b1",
    "codec": "null", "reason": "time", "last_tid": 10, "cluster": "c", "log_region": "0", "log_epoch": "e0",
}  # fmt: skip
A_SNAPSHOT_FILE = {"scope": "t1", "region": "a", "name": "000001.sst"}
OWN: dict[str, dict[str, Any]] = {
    "backups": {"kind": "differential", "level": 1, "files": 1, "isolation": "read_committed"},
    "files": {"format": "kafka-avro-2"},
    "groups": {"epoch": "e1", "group_id": "g", "protocol": "classic", "state": "empty"},
    "group_commits": {"kind": "offset", "group_id": "g", "scope": "orders", "region": "0"},
    "schemas": {"scope": "_schemas", "epoch": "e0", "kind": "schema"},
    "translations": {
        "target_scope": "orders", "target_epoch": "t1", "target_region": "0", "to_position": 10,
    },
    "log_regions": {"number": 1, "region": "1", "store": "1"},
    "log_tables": {"table_id": 1, "db": "shop", "name": "orders"},
    "queue_positions": {"no_transaction_position": 10},
    "queue_transactions": {"transaction_id": "t1", "first_position": 5, "first_tid": 5, "entries": 1},
    "queue_schemas": {"version": 1},
    "queue_restores": {"full_id": "b1", "whole": True},
    "holds": {"reason": ""},
    "snapshot_files": {
        **A_SNAPSHOT_FILE, "bytes": 100, "sha256": "00", "mode": 420, "links": 1,
        "path": "prod/snapshots/b1/t1/a/000001.sst",
    },
    "snapshot_departures": {**A_SNAPSHOT_FILE, "gone_by": "b2"},
    "snapshot_folders": {"scope": "t1", "region": "a", "name": "d", "mode": 493, "mtime_ms": 1},
    "data_keys": {"recipient": "age1a", "created_at": 1, "wrapped_at": 1},
    "gaps": {"to_position": 5, "reason": "purged"},
    "restores": {"state": "running", "target": "dir"},
    "checks": {"mode": "stat", "outcome": "ok", "destination": "d"},
    "drills": {"target": "dir"},
    "failures": {"run": "backup", "exit_code": 6},
}  # fmt: skip


def defaults_of(table: str) -> dict[str, Any]:
    """What a case need not give of a row: all that the table wants, and nothing that may be null."""
    load_names(TABLES[table])
    own, hints = OWN.get(table, {}), get_type_hints(TABLES[table])
    columns = {field.name: field.default for field in fields(TABLES[table]) if field.default is not None}
    usual = {
        name: default if default is not MISSING else USUAL.get(name, nothing(hints[name]))
        for name, default in columns.items()
        if default is not MISSING or type(None) not in get_args(hints[name])
    }
    return usual | own


DEFAULTS = {table: defaults_of(table) for table in TABLES}
# Neither compiled code nor plans made anew while they run; all rows in one task.
PLAIN = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
TEXT, BIGINT, TRUTH = pa.string(), pa.int64(), pa.bool_()


def relation(text: str, bigints: str = "", **other_columns: pa.DataType) -> pa.Schema:
    """Columns of text, of whole numbers, and others."""
    columns = {**dict.fromkeys(text.split(), TEXT), **dict.fromkeys(bigints.split(), BIGINT), **other_columns}
    return pa.schema(list(columns.items()))


FILE = relation("destination path")
NEWEST = relation(
    "key_hex key digest value_digest change scope", "kafka_offset old_offset new_offset", partition=pa.int32()
)
LISTED = relation(
    "scope region name role folder",
    "bytes mtime_ns mtime_ms device inode ctime_ns",
    mode=pa.int32(),
    links=pa.int32(),
    always=TRUTH,
    by_ctime=TRUTH,
)
COMPARED = pa.unify_schemas(
    [
        LISTED,
        relation(
            "change same_destination same_path same_codec same_key_id same_sha256 first_scope first_region "
            "first_name",
            "added_in same_position same_stored_bytes",
        ),
    ]
)
A_FILE = {
    "scope": "t1", "region": "a", "role": "data", "folder": "/s", "bytes": 100, "mtime_ns": 0, "mtime_ms": 0,
    "mode": 420, "links": 1, "device": 1, "inode": 1, "always": False, "by_ctime": False, "first_scope": "t1",
    "first_region": "a",
}  # fmt: skip
IN_QUEUES = relation("transaction_id scope epoch region", "first_position first_tid entries")
OPEN_AND_ENDED = relation(
    "transaction_id scope epoch region", "first_position first_tid entries", ended=TRUTH
)
A_TRANSACTION = {**PLACES, "first_position": 0, "first_tid": 0, "entries": 1}
# Relations that a job gives, with what a case need not say of their rows.
RELATION_DEFAULTS: dict[str, tuple[pa.Schema, dict[str, Any]]] = {
    "selected": (ARROW_SCHEMAS["files"].append(pa.field("link", BIGINT)), {}),
    "sides": (
        relation("destination path scope region sha256", "bytes entries", in_a=TRUTH, in_b=TRUTH),
        {
            "destination": "d",
            "scope": "orders",
            "region": "0",
            "bytes": 100,
            "entries": 10,
            "in_a": True,
            "in_b": False,
        },
    ),
    "changes": (
        relation("change destination scope region path old_path", "bytes old_bytes entries old_entries"),
        {},
    ),
    "retained": (relation("", "number"), {}),
    "wanted": (
        relation("group_id scope epoch region metadata seen", "position ts"),
        {"scope": "orders", "epoch": "e1", "region": "0", "metadata": None, "ts": 0, "seen": "backup"},
    ),
    "record_chosen": (relation("path destination", "bytes"), {"destination": "d"}),
    "record_rows": (NEWEST, {"partition": 0}),
    "newest_a": (NEWEST, {"partition": 0}),
    "newest_b": (NEWEST, {"partition": 0}),
    "record_changed": (NEWEST, {"partition": 0, "scope": "orders"}),
    "doomed": (FILE, {"destination": "d"}),
    "to_compact": (ARROW_SCHEMAS["files"], {**DEFAULTS["files"], "scope": "21"}),
    "doomed_log": (ARROW_SCHEMAS["removals"], {**DEFAULTS["removals"], "scope": "21", "reason": "until"}),
    "metas": (ARROW_SCHEMAS["removals"], {**DEFAULTS["removals"], "scope": "-", "reason": "until"}),
    "to_merge": (relation("backup_id"), {}),
    "held": (columns_of(HeldPartition), {**PLACES, "restore_id": "r1"}),
    "cuts": (columns_of(Cut), {**PLACES, "time_floor": 0, "generation": 0}),
    "covered": (
        relation("source scope epoch region status reason", "from_ts to_ts from_position to_position"),
        {**PLACES, "status": "restorable", "to_position": 5, "from_position": 0},
    ),
    "protected": (
        relation("source scope", "restorable_ts covered_ts", present=TRUTH),
        {"source": "prod", "scope": "orders", "present": True},
    ),
    "uncounted": (relation("source scope"), {"source": "prod"}),
    "unusable": (
        relation("source backup_id reason fault_backup_id fault_state path detail", "faults end_ts found_at"),
        {"source": "prod", "faults": 0, "end_ts": 0},
    ),
    "due_instants": (relation("source", "due_ts next_ts"), {"source": "prod"}),
    "leaving": (leaving_schema(), {"reason": "window"}),
    "kept": (relation("backup_id"), {}),
    "needed": (needed_schema(), {**PLACES, "generation": 0}),
    "suspected": (
        relation("scope epoch region", "place position", leader_epoch=pa.int32()),
        {**PLACES, "place": 1, "position": 10},
    ),
    "rules": (columns_of(Rule), {**PLACES, "base": "b1", "link": 1, "generation": 0, "compacted": False}),
    "numbered": (
        numbered_schema(),
        {"source": "laptop", "source_kind": "restic", "destination": "d", "end_ts": 0, "level": 0},
    ),
    "listed": (import_schema("manifests"), {"bytes": 1}),
    "snapshot_listed": (LISTED, A_FILE),
    "snapshot_hashed": (
        relation("scope region name sha256"),
        {"scope": "t1", "region": "a"},
    ),
    "snapshot_compared": (COMPARED, A_FILE),
    "queue_seen": (OPEN_AND_ENDED, {**A_TRANSACTION, "ended": False}),
    "queue_later": (OPEN_AND_ENDED, {**A_TRANSACTION, "ended": False}),
    "queue_found": (IN_QUEUES, A_TRANSACTION),
    "queue_unended": (IN_QUEUES, A_TRANSACTION),
    "queue_reported": (relation("transaction_id"), {}),
    "queue_gone": (relation("transaction_id"), {}),
    "queue_lows": (relation("scope epoch region", "low_position"), PLACES),
    "chosen": (FILE, {"destination": "d"}),
    "snapshot_chosen": (chosen_schema(), DEFAULTS["snapshot_files"]),
    "snapshot_selected": (
        relation(
            "source scope region target sha256 destination path",
            "added_in bytes mtime_ms mode links position",
            stored=TRUTH,
        ),
        {**DEFAULTS["snapshot_files"], "target": "t1/a/000001.sst", "path": "p", "stored": True},
    ),
    "planned": (FILE, {"destination": "d"}),
    "present": (ARROW_SCHEMAS["files"], {**DEFAULTS["files"], "source": "laptop", "scope": "files"}),
    "given_files": (import_schema("files"), {"bytes": 1, "row_file": 0}),
    "given_departures": (import_schema("departures"), {}),
    "given_rows": (import_schema("manifests"), {"bytes": 1, "row_file": 0}),
    "known_files": (ARROW_SCHEMAS["files"], DEFAULTS["files"]),
    "made_files": (ARROW_SCHEMAS["files"], DEFAULTS["files"]),
    "archive_mutations": (
        relation("scope key cas value", "vbucket seqno place flags expiry datatype", deleted=TRUTH),
        {"scope": "shop", "vbucket": 7, "key": "k", "seqno": 1, "place": 1, "deleted": False},
    ),
}


# The column that a row may be written as.
KEYS = ("name", "path", "transaction_id", "backup_id")


def statements() -> list[tuple[str, str]]:
    return [(kind, name) for kind in ("queries", "views") for name in names(kind)]


def cases_file(kind: str, name: str) -> Path:
    return QUERIES / "cases" / kind / area(kind, name) / f"{name}.yml"


@cache
def cases_of(kind: str, name: str) -> list[dict[str, Any]]:
    file = cases_file(kind, name)
    cases, shared = [], dict[str, Any]()
    for entry in loaded(file) if file.exists() else []:
        if "every case" in entry:
            shared = entry["every case"]
        else:
            cases.append(completed(entry, shared))
    return cases


def completed(case: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """A case with what it shares with others, and each of its rows as a mapping of columns."""
    common, own = shared.get("given", {}), case.get("given", {})
    file_name = own.get("use", common.get("use"))
    columns = {table: values for table, values in common.items() if isinstance(values, dict)}
    lists = {table: rows for table, rows in common.items() if isinstance(rows, list)}
    rows = {
        table: [columns.get(table, {}) | row_of(row, columns_of_table(table)) for row in rows]
        for table, rows in (
            (loaded(QUERIES / "given.yml")[file_name] if file_name else {}) | lists | own
        ).items()
        if table != "use"
    }
    return shared | case | {"given": rows, "when": shared.get("when", {}) | case.get("when", {})}


@cache
def loaded(file: Path) -> Any:
    return yaml.load(file.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def columns_of_table(table: str) -> list[str]:
    if table in ("in_force", "clock"):
        return ["source"] if table == "in_force" else ["now_ms"]
    names_of: list[str] = (
        RELATION_DEFAULTS[table][0] if table in RELATION_DEFAULTS else ARROW_SCHEMAS[table]
    ).names
    return names_of


def row_of(row: str | dict[str, Any], columns: Collection[str]) -> dict[str, Any]:
    """The columns of a row that is given as such, as its key, or as its key and columns."""
    if isinstance(row, dict) and not any(isinstance(value, dict) for value in row.values()):
        return row
    ((key, fields),) = row.items() if isinstance(row, dict) else ((row, {}),)
    return {next(column for column in KEYS if column in columns): key, **fields}


def asked_of_spark() -> set[str]:
    """Queries that jobs and notebooks ask Spark: those that a module names which uses Spark's engine or asks
    a reader on Spark, or which plans prunes or names orphans. tests/spark/test_plans.py asks those that plan
    restores."""
    modules = [
        path
        for folder in ("catalog/lakebackup", "jobs/lakebackup_jobs", "notebooks")
        for path in (ROOT / folder).rglob("*.py")
    ]
    texts = [text for text in (path.read_text("utf-8") for path in modules) if _TAKES_SPARK.search(text)]
    words = {word for text in texts for word in re.findall(r"[\"']([a-z_]+)[\"']", text)}
    return words & set(names("queries"))


_TAKES_SPARK = re.compile(r"\b(SparkEngine|class PrunePlan|class NameOrphans|reader\.with_spark\(spark\b)")


@cache
def changed() -> frozenset[tuple[str, str]]:
    """Statements whose text or cases differ from the main branch, wherever they lie."""
    base = os.environ.get("LAKEBACKUP_TEST_BASE") or _git("merge-base", "HEAD", "origin/main", check=False)
    if not base:
        return frozenset()
    folders = ("sql/lakebackup_sql", "tests/sql/cases")
    paths = _git("diff", "--name-only", "-M100%", "--diff-filter=r", base, "--", *folders).splitlines()
    paths += _git("ls-files", "--others", "--exclude-standard", "--", *folders).splitlines()
    return frozenset(statement_of(path) for path in paths)


def statement_of(path: str) -> tuple[str, str]:
    """The kind and the name of the statement that a file of the repository belongs to."""
    folder, _, name = path.rpartition("/")
    return ("views" if "/views/" in folder else "queries"), name.partition(".")[0]


def _git(*words: str, check: bool = True) -> str:
    try:
        process = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=check)
    except FileNotFoundError:  # no git here, so no branch either
        return ""
    return process.stdout.strip() if not process.returncode else ""


def cases(long: bool = False) -> list[Any]:
    """Every case of every statement. `long`: all are long tests but those that Spark runs always."""
    of_spark = asked_of_spark()
    return [
        pytest.param(
            kind,
            name,
            case,
            id=f"{name}: {case['name']}",
            marks=[pytest.mark.long] if long and not always else [],
        )
        for kind, name in statements()
        for number, case in enumerate(cases_of(kind, name))
        for always in [(kind, name) in changed() or (number == 0 and (kind == "views" or name in of_spark))]
    ]


def text_of(kind: str, name: str, case: dict[str, Any]) -> str:
    if kind == "queries":
        return load(kind, name)
    return case.get("select") or f"SELECT * FROM {name} ORDER BY {case.get('order', '1')}"


def parameters_of(text: str, case: dict[str, Any]) -> dict[str, Any]:
    names_in = re.findall(r"(?<![:\w]):([a-z_]+)", re.sub("--.*", "", text))
    return dict.fromkeys(names_in) | ({"source": "prod"} if "source" in names_in else {}) | case["when"]


def filled(table: str, row: dict[str, Any]) -> dict[str, Any]:
    if table == "backups":
        return DEFAULTS[table] | backup(**row)
    own = {}
    if (number := number_of(row.get("backup_id"))) and "added_in" in DEFAULTS.get(table, {}):
        own["added_in"] = number
    if table == "snapshot_departures" and "gone_in" in row:
        own["gone_by"] = f"b{row['gone_in']}"
    return DEFAULTS.get(table, {}) | own | row


def backup(backup_id: str = "", number: int | None = None, **row: Any) -> dict[str, Any]:
    """The columns of a backup that follow from its name, its number or its base."""
    number = number or number_of(backup_id) or 1
    backup_id = backup_id or f"b{number}"
    first = f"{backup_id[0]}1" if number_of(backup_id) else "b1"
    base = row.get("base", backup_id if row.get("kind") == "full" else first)
    own = {"backup_id": backup_id, "number": number, "base": base, "place": number, "end_ts": 1000 * number}
    own["chain_position"] = 0 if base == backup_id else number - (number_of(base) or 1)
    own["parent_place"] = None if base == backup_id else number - 1
    return own | row


def number_of(backup_id: str | None) -> int | None:
    """The number of a backup with a name such as b2."""
    digits = re.fullmatch(r"[a-z]([0-9]+)", backup_id or "")
    return int(digits[1]) if digits else None


def tables_of(case: dict[str, Any], read: Collection[str]) -> dict[str, pa.Table]:
    """The tables among the relations `read`, and those that a job gives, with the rows of a case."""
    given_tables = case["given"]
    tables = {
        f"{RAW}{table}": pa.Table.from_pylist(
            [filled(table, row) for row in given_tables.get(table, [])], schema=schema
        )
        for table, schema in ARROW_SCHEMAS.items()
        if f"{RAW}{table}" in read
    }
    for name, (schema, defaults) in RELATION_DEFAULTS.items():
        if name in read:
            rows = [defaults | row for row in given_tables.get(name, [])]
            tables[name] = pa.Table.from_pylist(rows, schema=schema)
    if "selected" in read:
        # A case names the files that were chosen; what they are, it says once.
        files = {row["path"]: row for row in given_tables.get("files", [])}
        names = [
            filled("files", files.get(row.get("path"), {})) | row for row in given_tables.get("selected", [])
        ]
        tables["selected"] = pa.Table.from_pylist(names, schema=RELATION_DEFAULTS["selected"][0])
    if "clock" in given_tables and "clock" in read:
        tables["clock"] = clock_at(given_tables["clock"][0]["now_ms"])
    if "in_force" in given_tables and "policies" in read:  # in the place of the view, which goes by the clock
        in_force = [{"source": "prod", "min_redundancy": 1} | row for row in given_tables["in_force"]]
        tables["policies"] = pa.Table.from_pylist(in_force, schema=in_force_schema())
    return tables


def check(case: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    expected = [row_of(row, rows[0]) for row in case["then"]] if rows else case["then"]
    if isinstance(case.get("order"), list):  # a query whose rows come in no order
        rows = sorted(rows, key=lambda row: [row[column] for column in case["order"]])
    compared = [
        {column: row[column] for column in expected_row} if expected_row else row
        for row, expected_row in zip(rows, expected, strict=False)
    ]
    assert (len(rows), compared) == (len(expected), expected)


def test_every_statement_has_a_case() -> None:
    assert [name for kind, name in statements() if not cases_of(kind, name)] == []


def test_every_file_is_of_a_statement() -> None:
    files = {str(path) for path in (QUERIES / "cases").rglob("*") if path.is_file()}
    assert files == {str(cases_file(kind, name)) for kind, name in statements()}


def test_no_folder_of_statements_is_long() -> None:
    for folder, _, files in os.walk(ROOT / "sql/lakebackup_sql"):
        assert len(files) <= 13, folder


def test_every_query_that_spark_runs_is_found() -> None:
    query_names = {"prune_cuts", "prune_proof", "record_changes", "find_orphans", "queue_open"}
    assert query_names <= asked_of_spark() < set(names("queries"))


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        ("sql/lakebackup_sql/queries/prune/topics/prune_cuts.sql", ("queries", "prune_cuts")),
        ("sql/lakebackup_sql/queries/restore/topics/restore_files.sql", ("queries", "restore_files")),
        ("tests/sql/cases/queries/prune/topics/prune_cuts.yml", ("queries", "prune_cuts")),
    ],
)
def test_a_changed_file_is_of_a_statement(path: str, statement: tuple[str, str]) -> None:
    assert (ROOT / path).exists()
    assert statement_of(path) == statement


@pytest.mark.parametrize(("kind", "name", "case"), cases())
def test_on_duckdb(kind: str, name: str, case: dict[str, Any]) -> None:
    text = text_of(kind, name, case)
    engine = on_duckdb(case, {*relations_in(text), *steps(text)})
    answer_rows = engine.keep_query("found", text, **parameters_of(text, case))
    rows = engine.run("SELECT * FROM found", ["found"], {}, bindings={"found": answer_rows})
    check(case, rows.read_all().to_pylist())


# What they give is about removals one by one.
OF_REMOVALS = {
    "removals", "removals_kept", "unused_key_filters", "unused_data_keys", "prune_on_record",
    "emptied_backups",
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "case"),
    [one for one in cases() if one.values[2]["given"].get("removals") and one.values[1] not in OF_REMOVALS],
)
def test_removals_that_are_folded_change_no_answer(kind: str, name: str, case: dict[str, Any]) -> None:
    """As `catalog optimize` leaves them a month later."""
    live_removals = load("queries", "removals_kept")
    folding = on_duckdb(case, {*relations_in(live_removals), *steps(live_removals)})
    unfinished = case["when"].get("unfinished", "")
    parameters = {"before": 1 << 62, "destination": "d", "incomplete": unfinished}
    removals = (
        folding.run(to_duckdb(live_removals), relations_in(live_removals), parameters).read_all().to_pylist()
    )
    assert _removed(removals) == _removed(case["given"]["removals"])
    folded = {**case, "given": {**case["given"], "removals": removals}}
    test_on_duckdb(kind, name, folded)


def _removed(removals: Sequence[dict[str, Any]]) -> int:
    return sum(row.get("files") or 1 for row in removals)


def on_duckdb(case: dict[str, Any], read: Collection[str]) -> DuckEngine:
    """An engine that has the rows of a case, as far as they are read."""
    engine = DuckEngine("nowhere")
    for relation, table in tables_of(case, read).items():
        engine._connection.register(relation, table)
        engine._registered.add(relation)
    return engine


@pytest.fixture(scope="module")
def plain(spark: SparkSession) -> SparkSession:
    """A session for a handful of rows: what makes large queries fast costs more here than the queries."""
    session = spark.newSession()
    for key, value in PLAIN.items():
        session.conf.set(key, value)
    return session


def read_by_spark(text: str, name: str) -> tuple[set[str], set[str]]:
    """The relations that Spark needs for a statement, and the views among them that DuckDB works out for it,
    as `SparkEngine` has it; what Spark itself makes of such a view, the cases of the view `name` show."""
    needed, cached, ahead = set[str](), set[str](), list(relations_in(text))
    while ahead:
        relation = ahead.pop()
        if relation not in needed:
            needed.add(relation)
            if relation in MATERIALIZED_VIEWS and relation != name:
                cached.add(relation)
            elif relation in names("views"):
                ahead += relations_in(load("views", relation))
    return needed, cached


@pytest.mark.spark
@pytest.mark.parametrize(("kind", "name", "case"), cases(long=True))
def test_on_spark(kind: str, name: str, case: dict[str, Any], plain: SparkSession) -> None:
    from lakebackup.sql_engine.spark import SparkEngine

    text = text_of(kind, name, case)
    engine, (needed, cached) = SparkEngine(plain, ""), read_by_spark(text, name)
    tables = tables_of(case, needed)
    if cached:
        below = on_duckdb(case, steps_for(cached))
        tables |= {view: instants(below.relation(view)) for view in cached}
    bindings = {
        relation: engine.keep_rows(
            table.cast(pa.schema([field.with_nullable(True) for field in table.schema]))
        )
        for relation, table in tables.items()
    }
    answer_rows = engine._run("found", text, parameters_of(text, case), bindings).toArrow().to_pylist()
    check(case, [{column: naive(value) for column, value in row.items()} for row in answer_rows])


def instants(rows: pa.Table) -> pa.Table:
    """With times as Spark has them."""
    kind = pa.timestamp("us", "UTC")
    fields = [field.with_type(kind) if pa.types.is_timestamp(field.type) else field for field in rows.schema]
    return rows.cast(pa.schema(fields))


def naive(value: Any) -> Any:
    """An instant without its time zone, as DuckDB gives it."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def test_queries_read_known_relations_only() -> None:
    relations = {*names("views"), *RELATION_DEFAULTS, *(f"{RAW}{table}" for table in ARROW_SCHEMAS)}
    for kind, name in statements():
        assert relations_in(load(kind, name)) <= relations, name
