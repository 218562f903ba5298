"""Compares the records of two backups, key by key, without restoring either.

The newest record of a key in its partition counts; a tombstone counts as no record. If both backups belong
to one chain, the files after the older backup are read, and of the older one only files that can hold a key
found there.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from lakebackup.errors import Refused
from lakebackup.plan.diff import DiffRequest
from lakebackup.plan.records import RecordFilter, RecordsPlan
from lakebackup.rows.base import TOPICS
from lakebackup.rules.kinds import require_kind_of
from lakebackup.sql_engine.guard.records import RecordsCall
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.tasks.progress import TaskCounters, TaskProgress
from lakebackup_jobs.query.record_query import Records, own_errors, with_records
from lakebackup_jobs.runtime.session import spark_session

# More records than these may not fit DuckDB's memory, and Spark is faster.
MOST_RECORDS = 3_000_000
# With more keys than these, most files hold one of them, so that to look for them rules out few files.
_MAX_KEYS = 5_000
_COLUMNS = ("partition", "kafka_offset", "key", "key_hex", "value_digest")
_ROWS = "record_rows"


@dataclass(frozen=True, slots=True)
class TopicDiff:
    """What changed in one topic from `a` to `b`: how many keys were added, gone and changed, and their rows.

    `without_key`: how many records of `b` without a key were read; these cannot be compared. `opened`: how
    many files were opened; None: Spark read them. `rows` has the columns change, scope, partition, key,
    key_hex, old_offset, new_offset, and can be read once.
    """

    scope: str
    added: int
    gone: int
    changed: int
    without_key: int
    opened: int | None
    rows: pa.RecordBatchReader

    def totals(self) -> dict[str, Any]:
        """Return all values but the rows, for a summary."""
        totals = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "rows"}
        return totals | {"files_opened": totals.pop("opened")}


def run(
    request: DiffRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> Iterator[TopicDiff]:
    """Compare two backups, one topic after another. Read the rows of a topic before you ask for the next.

    The request names the engine; `auto` is DuckDB, or Spark where many records must be read or a session is
    given. Raises NotFound, Refused (backups of two sources, or not of topics), Damaged (a file that is not
    what was backed up).
    """
    reader = CatalogReader.require(request.destination, request.catalog)
    ids = reader.resolve_backup(request.a), reader.resolve_backup(request.b)
    rows = reader.rows("record_points", a=ids[0], b=ids[1])
    sources = sorted({row["source"] for row in rows})
    if len(sources) > 1:
        raise Refused(
            f"{ids[0]} and {ids[1]} are backups of {' and '.join(sources)}.",
            hint="Compare two backups of one source.",
        )
    for source in sources:
        require_kind_of(reader, source, TOPICS)
    for scope in sorted({row["scope"] for row in rows}):
        points = {row["backup_id"]: row for row in rows if row["scope"] == scope}
        yield _topic(request, reader, scope, points.get(ids[0]), points.get(ids[1]), spark, reporter)


def _topic(
    request: DiffRequest,
    reader: CatalogReader,
    scope: str,
    a: Mapping[str, Any] | None,
    b: Mapping[str, Any] | None,
    spark: SparkSession | None,
    reporter: Reporter,
) -> TopicDiff:
    continued = a is not None and b is not None and _continues(a, b)
    old_plan = _plan(scope, a or b, nothing=a is None)
    new_plan = _plan(scope, b or a, nothing=b is None)
    if continued and a is not None:
        new_plan = replace(new_plan, after_number=a["number"])
    new, old = Records(reader, new_plan), None if continued else Records(reader, old_plan)
    size = new.files.entries + (old.files.entries if old else 0)
    by_spark = request.engine == "spark" or (
        request.engine == "auto" and (spark is not None or size > MOST_RECORDS)
    )
    engine = _on_spark(request, reader, spark) if by_spark else reader
    # Spark's tasks read all files for `record_changed`.
    tasks = TaskCounters(reader.home.uri, f"checks/{secrets.token_hex(8)}/") if by_spark else None
    with own_errors([new]), _watched(reporter, new, tasks):
        engine = with_records(engine, new, counters=tasks).with_query("newest_b", "record_newest")
    if continued and not by_spark:  # Spark would read the newer files twice
        keys = engine.rows("record_keys", most=_MAX_KEYS + 1)
        if len(keys) <= _MAX_KEYS:
            changed_keys = frozenset(bytes.fromhex(row["key_hex"]) for row in keys)
            old_plan = replace(old_plan, record_filter=RecordFilter(keys=changed_keys))
    old = old or Records(reader, old_plan)
    with own_errors([old]), _watched(reporter, old, tasks):
        engine = with_records(engine, old, counters=tasks).with_query("newest_a", "record_newest")
    with _watched_tasks(reporter, (new, old), tasks):
        changed = engine.with_query("record_changed", "record_changes", scope=scope, continued=continued)
    totals = next(iter(changed.rows("record_change_totals")), {})
    return TopicDiff(
        scope=scope,
        **{name: int(totals.get(name) or 0) for name in ("added", "gone", "changed")},
        without_key=new.files.null_keys,
        opened=None if by_spark else new.reading.opened + old.reading.opened,
        rows=changed.query("record_change_rows"),
    )


@contextmanager
def _watched(reporter: Reporter, records: Records, tasks: TaskCounters | None) -> Iterator[None]:
    """Report how much of the records' files this process has read, unless tasks read them."""
    if not tasks:
        reporter.start(records.files.count, records.files.bytes, "comparing", "files")
        records.on_progress = reporter.update
    yield


@contextmanager
def _watched_tasks(
    reporter: Reporter, relations: Sequence[Records], tasks: TaskCounters | None
) -> Iterator[None]:
    """Report how much of the records' files Spark's tasks have read, if they do."""
    if not tasks:
        yield
        return
    files = (
        sum(records.files.count for records in relations),
        sum(records.files.bytes for records in relations),
    )
    reporter.start(*files, "comparing", "files")
    with TaskProgress(open_storage(tasks.uri), tasks.folder).watched(reporter.update):
        yield


def _on_spark(request: DiffRequest, reader: CatalogReader, spark: SparkSession | None) -> CatalogReader:
    return reader.with_spark(spark or spark_session(remote=request.remote))


def _continues(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Return whether `b` continues `a` in one chain and generation, so that it holds all that `a` holds."""
    same_history = all(a[name] == b[name] for name in ("epoch", "base", "generation"))
    return same_history and bool(a["number"] <= b["number"])


def _plan(scope: str, point: Mapping[str, Any] | None, *, nothing: bool) -> RecordsPlan:
    assert point is not None  # noqa: S101 (a topic is in one of the two)
    call = RecordsCall(_ROWS, scope, None, _COLUMNS)
    record_filter = RecordFilter(keys=frozenset()) if nothing else RecordFilter()
    return RecordsPlan(call, point["source"], scope, None, point["backup_id"], record_filter)
