"""Each query and view of sql/ on both engines: rows in, parameters, rows out, from the file in cases/ that
has the path of the statement.

Every case runs on DuckDB. On Spark these run: the first case of each view, and of each query that jobs or
notebooks can ask Spark; and every case of a statement that this branch changed (`LAKEBACKUP_TEST_BASE` names
the commit to compare with). The other cases on Spark are long tests.

A case gives only the columns that matter, of the rows in and of the rows out; `DEFAULTS` fill the rest.
Backups are called b1, b2, ... by their number, stand on b1 and end at 1000 times their number. A view's rows
are put in the order that its case names, or are those of the SELECT that it gives; rows of a query that gives
them in no order, in that of the columns that its case lists.
"""

from __future__ import annotations

import os
import re
import subprocess
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import yaml

from lakebackup.plan.snapshots.restore import chosen_schema
from lakebackup.plan.upkeep.import_backups import numbered_schema
from lakebackup.plan.upkeep.prune import Cut, Held, columns_of, in_force_schema, leaving_schema
from lakebackup.recovery.import_reader import given_schema
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.rules.retention import Rule
from lakebackup.sql_engine import KEPT, RAW, relations_in, steps, steps_for, to_duckdb
from lakebackup.sql_engine.duck import DuckEngine
from lakebackup_sql import area, load, names

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLACES = {"destination": "d", "source": "prod", "scope": "orders", "epoch": "e1", "region": "0"}
DEFAULTS: dict[str, dict[str, Any]] = {
    "backups": {
        **PLACES, "source_kind": "kafka", "kind": "differential", "level": 1, "base": "b1", "branch": 0,
        "state": "complete", "ts_domain": "ms", "started_at": 0, "finished_at": 0, "files": 1, "bytes": 100,
        "entries": 10, "digest": "", "isolation": "read_committed", "codec": "null", "created_by": "",
        "tool": "",
    },
    "files": {
        **PLACES, "backup_id": "b1", "added_in": 1, "role": "data", "format": "kafka-avro-2", "codec": "null",
        "bytes": 100, "raw_bytes": 200, "sha256": "00", "entries": 10, "ts_domain": "ms", "min_ts": 0,
        "max_ts": 9,
        "start_position": 0, "end_position": 10, "null_keys": 0, "tombstones": 0, "level": 0,
        "generation": 0,
    },
    "departures": {
        **PLACES, "backup_id": "b1", "added_in": 1, "gone_in": 2, "bytes": 100, "entries": 10, "sha256": "00",
    },
    "positions": {
        **PLACES, "backup_id": "b1", "start_position": 0, "end_position": 10, "low_position": 0,
        "high_position": 10, "ts": 0,
    },
    "scopes": {
        **PLACES, "backup_id": "b1", "regions": 1, "settings": "{}", "replication": 1, "generation": 0,
    },
    "groups": {
        **PLACES, "backup_id": "b1", "group_id": "g", "protocol": "classic", "state": "empty", "position": 0,
        "ts": 0,
    },
    "group_commits": {
        "backup_id": "b1", "source": "prod", "kind": "offset", "group_id": "g", "scope": "orders",
        "region": "0", "log_epoch": "e0", "log_region": "0", "log_position": 0, "log_ts": 0,
    },
    "schemas": {
        "backup_id": "b1", "source": "prod", "scope": "_schemas", "epoch": "e0", "kind": "schema",
        "deleted": False, "erased": False, "log_region": "0", "log_position": 0, "log_ts": 0,
    },
    "translations": {
        "restore_id": "r1", "at": 0, **PLACES, "cluster": "c", "target_scope": "orders", "target_epoch": "t1",
        "target_region": "0", "from_position": 0, "first_position": 0, "to_position": 10,
        "target_position": 0,
    },
    "removals": {**PLACES, "prune_id": "p1", "at": 0, "backup_id": "b1", "bytes": 100, "reason": "time"},
    "floors": {**PLACES, "prune_id": "p1", "at": 0, "low_position": 0, "generation": 0, "reason": "time"},
    "log_tasks": {
        "source": "prod", "at": 0, "actor": "", "state": "running", "settings": "{}",
    },
    "log_regions": {
        "backup_id": "b1", "number": 1, "source": "prod", "region": "1", "store": "1", "resolved_ts": 0,
        "closed": False,
    },
    "log_tables": {
        "backup_id": "b1", "source": "prod", "table_id": 1, "db": "shop", "name": "orders", "from_ts": 0,
        "action": "create", "covered_from": 0,
    },
    "queue_points": {
        "backup_id": "b1", "source": "prod", "last_tid": 10, "carried": 0, "open_transactions": 0,
    },
    "queue_positions": {
        "backup_id": "b1", "source": "prod", "scope": "orders", "epoch": "e1", "region": "0",
        "no_transaction_position": 10,
    },
    "queue_transactions": {
        "backup_id": "b1", "source": "prod", "transaction_id": "t1", "scope": "orders", "epoch": "e1",
        "region": "0", "first_position": 5, "first_tid": 5, "entries": 1,
    },
    "queue_schemas": {"backup_id": "b1", "source": "prod", "version": 1, "from_tid": 0},
    "queue_restores": {
        "restore_id": "r1", "at": 0, "actor": "", "source": "prod", "backup_id": "b1", "full_id": "b1",
        "whole": True, "last_tid": 10, "cluster": "c", "scope": "orders", "epoch": "e1", "region": "0",
        "base_position": 0, "end_position": 10,
    },
    "policies": {
        "source": "prod", "at": 0, "actor": "", "incremental_kind": "differential", "level": 1,
        "min_redundancy": 1, "removed": False,
    },
    "policy_topics": {"source": "prod", "at": 0, "actor": ""},
    "topics_seen": {"source": "prod", "at": 0},
    "holds": {"backup_id": "b1", "source": "prod", "at": 0, "actor": "", "reason": "", "released": False},
    "snapshot_files": {
        "source": "prod", "scope": "t1", "region": "a", "name": "000001.sst", "role": "data",
        "backup_id": "b1", "added_in": 1, "bytes": 100, "mtime_ms": 0, "mode": 420, "links": 1,
        "sha256": "00", "destination": "d", "path": "prod/snapshots/b1/t1/a/000001.sst", "position": 0,
    },
    "snapshot_departures": {
        "source": "prod", "scope": "t1", "region": "a", "name": "000001.sst", "added_in": 1, "gone_in": 2,
        "gone_by": "b2",
    },
    "gaps": {
        **PLACES, "backup_id": "b1", "from_position": 0, "to_position": 5, "reason": "purged", "from_ts": 0,
        "to_ts": 1, "bridged": False,
    },
    "restores": {
        "restore_id": "r1", "at": 0, "source": "prod", "state": "running", "target": "dir", "selection": "",
    },
    "checks": {"check_id": "c1", "at": 0, "destination": "d", "mode": "stat", "outcome": "ok"},
    "storage_objects": {"check_id": "c1", "at": 0, "destination": "d", "bytes": 100, "modified_ms": 0},
}  # fmt: skip
# Neither compiled code nor plans made anew while they run; all rows in one task.
PLAIN = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
FILE = pa.schema([("destination", pa.string()), ("path", pa.string())])
WANTED = pa.schema(
    [
        *((name, pa.string()) for name in ("group_id", "scope", "epoch", "region", "metadata", "seen")),
        ("position", pa.int64()),
        ("ts", pa.int64()),
    ]
)
TEXT, WHOLE, TRUTH = pa.string(), pa.int64(), pa.bool_()
COVERED = {
    **dict.fromkeys(("source", "scope", "epoch", "region", "status", "reason"), TEXT),
    **dict.fromkeys(("from_ts", "to_ts", "from_position", "to_position"), WHOLE),
}
PROTECTED = {"source": TEXT, "scope": TEXT, "present": TRUTH, "restorable_ts": WHOLE, "covered_ts": WHOLE}
UNUSABLE = {
    **dict.fromkeys(
        ("source", "backup_id", "reason", "fault_backup_id", "fault_state", "path", "detail"), TEXT
    ),
    **dict.fromkeys(("faults", "end_ts", "found_at"), WHOLE),
}
CHANGED = {
    **dict.fromkeys(("change", "destination", "scope", "region", "path", "old_path"), TEXT),
    **dict.fromkeys(("bytes", "old_bytes", "entries", "old_entries"), WHOLE),
}
STOOD = pa.schema(
    [
        *((name, WHOLE) for name in ("place", "position")),
        *((name, TEXT) for name in ("scope", "epoch", "region")),
        ("leader_epoch", pa.int32()),
    ]
)
DRAWN = {"source": TEXT, "base": TEXT, "branch": pa.int32(), "line": TEXT, "from_ts": WHOLE, "to_ts": WHOLE}
NEWEST = pa.schema(
    [
        ("partition", pa.int32()),
        *((name, pa.string()) for name in ("key_hex", "key", "digest", "value_digest", "change", "scope")),
        *((name, pa.int64()) for name in ("kafka_offset", "old_offset", "new_offset")),
    ]
)
TO_WRITE = {
    **dict.fromkeys(("source", "scope", "region", "target", "sha256", "destination", "path"), TEXT),
    **dict.fromkeys(("added_in", "bytes", "mtime_ms", "mode", "links", "position"), WHOLE),
    "stored": TRUTH,
}
LISTED = {
    **dict.fromkeys(("scope", "region", "name", "role", "folder"), TEXT),
    **dict.fromkeys(("bytes", "mtime_ns", "mtime_ms"), WHOLE),
    "mode": pa.int32(),
    "links": pa.int32(),
    "device": WHOLE,
    "inode": WHOLE,
    "always": TRUTH,
}
COMPARED = {
    **LISTED,
    "added_in": WHOLE,
    "same_position": WHOLE,
    **dict.fromkeys(("change", "same_destination", "same_path", "same_sha256"), TEXT),
    **dict.fromkeys(("first_scope", "first_region", "first_name"), TEXT),
}
A_FILE = {
    "scope": "t1", "region": "a", "role": "data", "folder": "/s", "bytes": 100, "mtime_ns": 0, "mtime_ms": 0,
    "mode": 420, "links": 1, "device": 1, "inode": 1, "always": False, "first_scope": "t1",
    "first_region": "a",
}  # fmt: skip
IN_QUEUES = {
    **dict.fromkeys(("transaction_id", "scope", "epoch", "region"), TEXT),
    **dict.fromkeys(("first_position", "first_tid", "entries"), WHOLE),
}
A_TRANSACTION = {**PLACES, "first_position": 0, "first_tid": 0, "entries": 1}
# Relations that a job gives, with what a case need not say of their rows.
GIVEN: dict[str, tuple[pa.Schema, dict[str, Any]]] = {
    "selected": (ARROW_SCHEMAS["files"].append(pa.field("link", WHOLE)), {}),
    "changes": (pa.schema(list(CHANGED.items())), {}),
    "retained": (pa.schema([("number", WHOLE)]), {}),
    "wanted": (
        WANTED,
        {"scope": "orders", "epoch": "e1", "region": "0", "metadata": None, "ts": 0, "seen": "backup"},
    ),
    "record_rows": (NEWEST, {"partition": 0}),
    "newest_a": (NEWEST, {"partition": 0}),
    "newest_b": (NEWEST, {"partition": 0}),
    "record_changed": (NEWEST, {"partition": 0, "scope": "orders"}),
    "doomed": (FILE, {"destination": "d"}),
    "to_compact": (ARROW_SCHEMAS["files"], {**DEFAULTS["files"], "scope": "21"}),
    "doomed_log": (ARROW_SCHEMAS["removals"], {**DEFAULTS["removals"], "scope": "21", "reason": "until"}),
    "to_merge": (pa.schema([("backup_id", TEXT)]), {}),
    "held": (columns_of(Held), {**PLACES, "restore_id": "r1"}),
    "cuts": (columns_of(Cut), {**PLACES, "time_floor": 0, "generation": 0}),
    "covered": (pa.schema(COVERED), {**PLACES, "status": "restorable", "to_position": 5, "from_position": 0}),
    "protected": (pa.schema(PROTECTED), {"source": "prod", "scope": "orders", "present": True}),
    "unusable": (pa.schema(UNUSABLE), {"source": "prod", "faults": 0, "end_ts": 0}),
    "drawn": (pa.schema(DRAWN), {"source": "prod", "base": "b1", "branch": 0, "line": "b1"}),
    "leaving": (leaving_schema(), {"reason": "window"}),
    "kept": (pa.schema([("backup_id", TEXT)]), {}),
    "suspected": (STOOD, {**PLACES, "place": 1, "position": 10}),
    "rules": (columns_of(Rule), {**PLACES, "base": "b1", "link": 1, "generation": 0, "compacted": False}),
    "numbered": (
        numbered_schema(),
        {"source": "laptop", "source_kind": "restic", "destination": "d", "end_ts": 0, "level": 0},
    ),
    "listed": (given_schema("manifests"), {"bytes": 1}),
    "snapshot_listed": (pa.schema(list(LISTED.items())), A_FILE),
    "snapshot_hashed": (
        pa.schema([(name, TEXT) for name in ("scope", "region", "name", "sha256")]),
        {"scope": "t1", "region": "a"},
    ),
    "snapshot_compared": (pa.schema(list(COMPARED.items())), A_FILE),
    "queue_seen": (pa.schema({**IN_QUEUES, "ended": TRUTH}), {**A_TRANSACTION, "ended": False}),
    "queue_later": (pa.schema({**IN_QUEUES, "ended": TRUTH}), {**A_TRANSACTION, "ended": False}),
    "queue_found": (pa.schema(IN_QUEUES), A_TRANSACTION),
    "queue_unended": (pa.schema(IN_QUEUES), A_TRANSACTION),
    "queue_told": (pa.schema({"transaction_id": TEXT}), {}),
    "queue_gone": (pa.schema({"transaction_id": TEXT}), {}),
    "queue_lows": (
        pa.schema({**dict.fromkeys(("scope", "epoch", "region"), TEXT), "low_position": WHOLE}),
        PLACES,
    ),
    "chosen": (FILE, {"destination": "d"}),
    "snapshot_chosen": (chosen_schema(), DEFAULTS["snapshot_files"]),
    "snapshot_selected": (
        pa.schema(list(TO_WRITE.items())),
        {**DEFAULTS["snapshot_files"], "target": "t1/a/000001.sst", "path": "p", "stored": True},
    ),
    "planned": (FILE, {"destination": "d"}),
    "present": (ARROW_SCHEMAS["files"], {**DEFAULTS["files"], "source": "laptop", "scope": "files"}),
    "given_files": (given_schema("files"), {"bytes": 1, "row_file": 0}),
    "given_departures": (given_schema("departures"), {}),
    "given_rows": (given_schema("manifests"), {"bytes": 1, "row_file": 0}),
    "known_files": (ARROW_SCHEMAS["files"], DEFAULTS["files"]),
    "made_files": (ARROW_SCHEMAS["files"], DEFAULTS["files"]),
}


def statements() -> list[tuple[str, str]]:
    return [(kind, name) for kind in ("queries", "views") for name in names(kind)]


def recorded(folder: str, kind: str, name: str, ending: str) -> Path:
    return HERE / folder / kind / area(kind, name) / f"{name}.{ending}"


@cache
def cases_of(kind: str, name: str) -> list[dict[str, Any]]:
    file = recorded("cases", kind, name, "yml")
    text = file.read_text(encoding="utf-8") if file.exists() else "[]"
    found: list[dict[str, Any]] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return found


def asked_of_spark() -> set[str]:
    """Queries that jobs and notebooks ask Spark: those that a module names which uses Spark's engine, or
    which plans prunes. tests/spark/test_plans_on_either_engine.py asks those that plan restores."""
    modules = [
        path
        for folder in ("catalog/lakebackup", "jobs/lakebackup_jobs", "notebooks")
        for path in (ROOT / folder).rglob("*.py")
    ]
    texts = [text for text in (path.read_text("utf-8") for path in modules) if _TAKES_SPARK.search(text)]
    words = {word for text in texts for word in re.findall(r"[\"']([a-z_]+)[\"']", text)}
    return words & set(names("queries"))


_TAKES_SPARK = re.compile(r"\b(SparkEngine|class PrunePlan)\b")


@cache
def changed() -> frozenset[tuple[str, str]]:
    """Statements whose text, cases or recorded text differ from the main branch, wherever they lie."""
    base = os.environ.get("LAKEBACKUP_TEST_BASE") or _git("merge-base", "HEAD", "origin/main", check=False)
    if not base:
        return frozenset()
    folders = ("sql/lakebackup_sql", "tests/sql/cases", "tests/sql/snapshots")
    found = _git("diff", "--name-only", "-M100%", "--diff-filter=r", base, "--", *folders).splitlines()
    found += _git("ls-files", "--others", "--exclude-standard", "--", *folders).splitlines()
    return frozenset(statement_of(path) for path in found)


def statement_of(path: str) -> tuple[str, str]:
    """The kind and the name of the statement that a file of the repository belongs to."""
    folder, _, name = path.rpartition("/")
    return ("views" if "/views/" in folder else "queries"), name.partition(".")[0]


def _git(*words: str, check: bool = True) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=check)
    except FileNotFoundError:  # no git here, so no branch either
        return ""
    return done.stdout.strip() if not done.returncode else ""


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


def filled(table: str, row: dict[str, Any]) -> dict[str, Any]:
    if table == "backups":
        number = row["number"]
        full = row.get("base", "b1") == row.get("backup_id", f"b{number}")
        own = {"backup_id": f"b{number}", "chain_position": number - 1, "end_ts": 1000 * number}
        own |= {"place": number, "parent_place": None if full else number - 1}
        return DEFAULTS[table] | own | row
    return DEFAULTS.get(table, {}) | row


def tables_of(case: dict[str, Any], read: Collection[str]) -> dict[str, pa.Table]:
    """The tables among the relations `read`, and those that a job gives, with the rows of a case."""
    given = case.get("tables", {})
    tables = {
        f"{RAW}{table}": pa.Table.from_pylist(
            [filled(table, row) for row in given.get(table, [])], schema=schema
        )
        for table, schema in ARROW_SCHEMAS.items()
        if f"{RAW}{table}" in read
    }
    for name, (schema, defaults) in GIVEN.items():
        if name in read:
            rows = [defaults | row for row in given.get(name, [])]
            tables[name] = pa.Table.from_pylist(rows, schema=schema)
    if "selected" in read:
        # A case names the files that were chosen; what they are, it says once.
        files = {row["path"]: row for row in given.get("files", [])}
        chosen = [filled("files", files.get(row.get("path"), {})) | row for row in given.get("selected", [])]
        tables["selected"] = pa.Table.from_pylist(chosen, schema=GIVEN["selected"][0])
    if "in_force" in given and "policies" in read:  # in the place of the view, which goes by the clock
        in_force = [{"source": "prod", "min_redundancy": 1} | row for row in given["in_force"]]
        tables["policies"] = pa.Table.from_pylist(in_force, schema=in_force_schema())
    return tables


def check(case: dict[str, Any], found: list[dict[str, Any]]) -> None:
    expected = case["rows"]
    if isinstance(case.get("order"), list):  # a query whose rows come in no order
        found = sorted(found, key=lambda row: [row[column] for column in case["order"]])
    seen = [
        {column: row[column] for column in wanted} if wanted else row
        for row, wanted in zip(found, expected, strict=False)
    ]
    assert (len(found), seen) == (len(expected), expected)


def test_every_statement_has_a_case() -> None:
    assert [name for kind, name in statements() if not cases_of(kind, name)] == []


@pytest.mark.parametrize(("folder", "ending"), [("cases", ".yml"), ("snapshots", ".duckdb.sql")])
def test_every_file_is_of_a_statement(folder: str, ending: str) -> None:
    files = {path for path in (HERE / folder).rglob("*") if path.is_file()}
    assert files == {recorded(folder, kind, name, ending[1:]) for kind, name in statements()}


def test_no_folder_of_statements_is_long() -> None:
    for kind in ("queries", "views"):
        for folder, _, files in os.walk(ROOT / "sql/lakebackup_sql" / kind):
            assert len(files) <= 24, folder


def test_every_query_that_spark_runs_is_found() -> None:
    known = {"prune_cuts", "prune_proof", "record_changes", "find_orphans", "queue_open", "report_growth"}
    assert known <= asked_of_spark() < set(names("queries"))


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        ("sql/lakebackup_sql/queries/prune/prune_cuts.sql", ("queries", "prune_cuts")),
        ("sql/lakebackup_sql/queries/restore/topics/restore_files.sql", ("queries", "restore_files")),
        ("tests/sql/cases/queries/prune/prune_cuts.yml", ("queries", "prune_cuts")),
        ("tests/sql/snapshots/views/restore/coverage.duckdb.sql", ("views", "coverage")),
    ],
)
def test_a_changed_file_is_of_a_statement(path: str, statement: tuple[str, str]) -> None:
    assert (ROOT / path).exists()
    assert statement_of(path) == statement


@pytest.mark.parametrize(("kind", "name", "case"), cases())
def test_on_duckdb(kind: str, name: str, case: dict[str, Any]) -> None:
    text = text_of(kind, name, case)
    engine = on_duckdb(case, {*relations_in(text), *steps(text)})
    engine.define("found", text, **case.get("parameters", {}))
    check(case, engine.run("SELECT * FROM found", (), {}).read_all().to_pylist())


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
    needed, kept, ahead = set[str](), set[str](), list(relations_in(text))
    while ahead:
        relation = ahead.pop()
        if relation not in needed:
            needed.add(relation)
            if relation in KEPT and relation != name:
                kept.add(relation)
            elif relation in names("views"):
                ahead += relations_in(load("views", relation))
    return needed, kept


@pytest.mark.spark
@pytest.mark.parametrize(("kind", "name", "case"), cases(long=True))
def test_on_spark(kind: str, name: str, case: dict[str, Any], plain: SparkSession) -> None:
    from lakebackup.sql_engine.spark import SparkEngine

    text = text_of(kind, name, case)
    engine, (needed, kept) = SparkEngine(plain, ""), read_by_spark(text, name)
    tables = tables_of(case, needed)
    if kept:
        below = on_duckdb(case, steps_for(kept))
        tables |= {view: instants(below.relation(view)) for view in kept}
    for relation, table in tables.items():
        engine.give(relation, table.cast(pa.schema([field.with_nullable(True) for field in table.schema])))
    engine._registered |= tables.keys() | (set(steps(text)) - needed)
    found = engine._run("found", text, case.get("parameters", {})).toArrow().to_pylist()
    check(case, [{column: naive(value) for column, value in row.items()} for row in found])


def instants(rows: pa.Table) -> pa.Table:
    """With times as Spark has them."""
    kind = pa.timestamp("us", "UTC")
    fields = [field.with_type(kind) if pa.types.is_timestamp(field.type) else field for field in rows.schema]
    return rows.cast(pa.schema(fields))


def naive(value: Any) -> Any:
    """An instant without its time zone, as DuckDB gives it."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


@pytest.mark.parametrize(("kind", "name"), statements())
def test_the_duckdb_text_is_the_recorded_one(kind: str, name: str) -> None:
    """A new sqlglot must not change what runs unseen. To record: delete the file and run the test."""
    snapshot = recorded("snapshots", kind, name, "duckdb.sql")
    text = to_duckdb(load(kind, name)) + "\n"
    if not snapshot.exists():
        snapshot.parent.mkdir(parents=True, exist_ok=True)
        snapshot.write_text(text, encoding="utf-8")
        pytest.fail(f"{snapshot.name} was not there and has been recorded: read it, then run again")
    assert snapshot.read_text(encoding="utf-8") == text


def test_queries_read_known_relations_only() -> None:
    known = {*names("views"), *GIVEN, *(f"{RAW}{table}" for table in ARROW_SCHEMAS)}
    for kind, name in statements():
        assert relations_in(load(kind, name)) <= known, name
