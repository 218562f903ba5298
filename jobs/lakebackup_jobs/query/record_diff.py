"""How the records of two backups differ, key by key, without restoring either.

What counts is the newest record of a key in its partition; a tombstone counts as none. Of two backups of one
chain the files after the older one are read, and of the older only those that can hold a key found there.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Refused
from lakebackup.plan.records import RecordsPlan, Wanted
from lakebackup.rows.base import TOPICS
from lakebackup.rules.kinds import require_kind_of
from lakebackup.sql_engine.guard.records import RecordsCall
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.tasks.progress import TaskCounters, TaskProgress
from lakebackup_jobs.query.record_query import Records, given

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebackup.plan.diff import DiffRequest
    from lakebackup_jobs.lifecycle.progress import Reporter

# More than these do not fit DuckDB's memory for certain, and Spark is quicker.
MOST_RECORDS = 3_000_000
# More keys than these are in most files.
_MOST_KEYS = 5_000
_COLUMNS = ("partition", "kafka_offset", "key", "key_hex", "value_digest")
_ROWS = "record_rows"


@dataclass(frozen=True, slots=True)
class TopicDiff:
    """What changed in one topic from `a` to `b`: keys added, gone and changed, and their rows.

    `without_key`: records without a key that were read of `b`; those cannot be compared. `rows` has the
    columns change, scope, partition, key, key_hex, old_offset, new_offset, and is read once.
    """

    scope: str
    added: int
    gone: int
    changed: int
    without_key: int
    opened: int | None
    rows: pa.RecordBatchReader

    def totals(self) -> dict[str, Any]:
        """All but the rows."""
        totals = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "rows"}
        return totals | {"files_opened": totals.pop("opened")}


def run(
    request: DiffRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> Iterator[TopicDiff]:
    """Compare topic after topic; take a topic's rows before the next one's.

    By the engine that was asked for; `auto` is DuckDB, or Spark where many records must be read or a session
    is given. Raises NotFound, Refused (backups of two sources, or not of topics), Damaged (a file that is not
    what was backed up).
    """
    reader = CatalogReader.require(request.destination, request.catalog)
    ids = reader.resolve_backup(request.a), reader.resolve_backup(request.b)
    found = reader.rows("record_points", a=ids[0], b=ids[1])
    sources = sorted({row["source"] for row in found})
    if len(sources) > 1:
        raise Refused(
            f"{ids[0]} and {ids[1]} are backups of {' and '.join(sources)}.",
            hint="Compare two backups of one source.",
        )
    for source in sources:
        require_kind_of(reader, source, TOPICS)
    for scope in sorted({row["scope"] for row in found}):
        points = {row["backup_id"]: row for row in found if row["scope"] == scope}
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
    before = _plan(scope, a or b, nothing=a is None)
    after = _plan(scope, b or a, nothing=b is None)
    if continued and a is not None:
        after = replace(after, after_number=a["number"])
    new, old = Records(reader, after), None if continued else Records(reader, before)
    size = new.files.entries + (old.files.entries if old else 0)
    by_spark = request.engine == "spark" or (
        request.engine == "auto" and (spark is not None or size > MOST_RECORDS)
    )
    engine = _on_spark(request, reader, spark) if by_spark else reader
    # Spark's tasks read all files when the rows are chosen.
    tasks = TaskCounters(reader.home.uri, f"checks/{secrets.token_hex(8)}/") if by_spark else None
    with given(engine, new, counters=tasks), _watched(reporter, new, tasks):
        engine.define("newest_b", "record_newest")
    if continued and not by_spark:  # Spark would read the newer files twice for it
        keys = engine.rows("record_keys", most=_MOST_KEYS + 1)
        if len(keys) <= _MOST_KEYS:
            found = frozenset(bytes.fromhex(row["key_hex"]) for row in keys)
            before = replace(before, wanted=Wanted(keys=found))
    old = old or Records(reader, before)
    with given(engine, old, counters=tasks), _watched(reporter, old, tasks):
        engine.define("newest_a", "record_newest")
    with _watched_tasks(reporter, (new, old), tasks):
        changed = engine.choose("record_changed", "record_changes", scope=scope, continued=continued)
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
        records.told = reporter.update
    yield


@contextmanager
def _watched_tasks(reporter: Reporter, read: Sequence[Records], tasks: TaskCounters | None) -> Iterator[None]:
    """Report how much of the records' files Spark's tasks have read, if they do."""
    if not tasks:
        yield
        return
    files = sum(one.files.count for one in read), sum(one.files.bytes for one in read)
    reporter.start(*files, "comparing", "files")
    with TaskProgress(open_storage(tasks.uri), tasks.folder).watched(reporter.update):
        yield


def _on_spark(request: DiffRequest, reader: CatalogReader, spark: SparkSession | None) -> CatalogReader:
    from lakebackup_jobs.runtime.session import spark_session

    return reader.on(spark or spark_session(remote=request.remote))


def _continues(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether `b` holds all that `a` holds, and more behind it."""
    same = all(a[name] == b[name] for name in ("epoch", "base", "generation"))
    return same and bool(a["number"] <= b["number"])


def _plan(scope: str, point: Mapping[str, Any] | None, *, nothing: bool) -> RecordsPlan:
    assert point is not None  # noqa: S101 (a topic is in one of the two)
    call = RecordsCall(_ROWS, scope, None, _COLUMNS)
    wanted = Wanted(keys=frozenset()) if nothing else Wanted()
    return RecordsPlan(call, point["source"], scope, None, point["backup_id"], wanted)
