"""How the records of two backups differ, key by key, without restoring either.

What counts is the newest record of a key in its partition; a tombstone counts as none. Of two backups of one
chain the files after the older one are read, and of the older only those that can hold a key found there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebackup.errors import Refused
from lakebackup.plan.records import RecordsPlan, Wanted
from lakebackup.rows.base import TOPICS
from lakebackup.rules.kinds import require_kind_of
from lakebackup.sql_engine.guard_records import RecordsCall
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.query import record_query as ask
from lakebackup_sql import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from lakebackup.plan.diff import DiffRequest

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
        return {
            "scope": self.scope,
            "added": self.added,
            "gone": self.gone,
            "changed": self.changed,
            "without_key": self.without_key,
            "files_opened": self.opened,
        }


def run(request: DiffRequest, *, spark: SparkSession | None = None) -> Iterator[TopicDiff]:
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
        yield _topic(request, reader, scope, points.get(ids[0]), points.get(ids[1]), spark)


def _topic(
    request: DiffRequest,
    reader: CatalogReader,
    scope: str,
    a: Mapping[str, Any] | None,
    b: Mapping[str, Any] | None,
    spark: SparkSession | None,
) -> TopicDiff:
    continued = a is not None and b is not None and _continues(a, b)
    before = _plan(scope, a or b, nothing=a is None)
    after = _plan(scope, b or a, nothing=b is None)
    if continued and a is not None:
        after = replace(after, after_number=a["number"])
    new = ask.DuckRecords(reader, after)
    size = new.files.entries + (0 if continued else ask.DuckRecords(reader, before).files.entries)
    automatic = request.engine == "auto" and (spark is not None or size > MOST_RECORDS)
    if automatic or request.engine == "spark":
        return _by_spark(request, reader, spark, before, after, continued, new.files.null_keys)
    return _by_duckdb(reader, before, after, continued)


def _continues(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether `b` holds all that `a` holds, and more behind it."""
    same = all(a[name] == b[name] for name in ("epoch", "base", "generation"))
    return same and bool(a["number"] <= b["number"])


def _plan(scope: str, point: Mapping[str, Any] | None, *, nothing: bool) -> RecordsPlan:
    assert point is not None  # noqa: S101 (a topic is in one of the two)
    call = RecordsCall(_ROWS, scope, None, _COLUMNS)
    wanted = Wanted(keys=frozenset()) if nothing else Wanted()
    return RecordsPlan(call, point["source"], scope, None, point["backup_id"], wanted)


def _by_duckdb(reader: CatalogReader, before: RecordsPlan, after: RecordsPlan, continued: bool) -> TopicDiff:
    new = ask.give_to_duckdb(reader, after)
    with ask.own_errors([new]):
        reader.define("newest_b", "record_newest")
        if continued:
            keys = reader.rows("record_keys", most=_MOST_KEYS + 1)
            if len(keys) <= _MOST_KEYS:
                found = frozenset(bytes.fromhex(row["key_hex"]) for row in keys)
                before = replace(before, wanted=Wanted(keys=found))
    old = ask.give_to_duckdb(reader, before)
    with ask.own_errors([old]):
        reader.define("newest_a", "record_newest")
    reader.define("record_changed", "record_changes", scope=after.scope, continued=continued)
    totals = reader.one("record_change_totals") or {}
    return TopicDiff(
        scope=after.scope,
        **_counts(totals),
        without_key=new.files.null_keys,
        opened=new.reading.opened + old.reading.opened,
        rows=reader.query("record_change_rows"),
    )


def _by_spark(
    request: DiffRequest,
    reader: CatalogReader,
    spark: SparkSession | None,
    before: RecordsPlan,
    after: RecordsPlan,
    continued: bool,
    without_key: int,
) -> TopicDiff:
    from lakebackup.sql_engine.failures import task_errors
    from lakebackup.sql_engine.spark import SparkEngine, streamed
    from lakebackup_jobs.runtime.session import spark_session

    spark = spark or spark_session(remote=request.remote)
    engine = SparkEngine(spark, reader.catalog_uri)
    newest = load("queries", "record_newest")
    for plan, relation in ((after, "newest_b"), (before, "newest_a")):
        ask.give_to_spark(spark, engine, reader, plan)
        engine.define(relation, newest)
    found = engine.query("record_changes", scope=after.scope, continued=continued)
    changed = found.persist()  # the rows are taken after they were counted
    changed.createOrReplaceTempView("record_changed")
    with task_errors():
        totals = next(iter(engine.rows("record_change_totals")), {})
    rows = streamed(engine.query("record_change_rows"))

    def taken() -> Iterator[pa.RecordBatch]:
        try:
            yield from rows
        finally:
            changed.unpersist()

    return TopicDiff(
        scope=after.scope,
        **_counts(totals),
        without_key=without_key,
        opened=None,
        rows=pa.RecordBatchReader.from_batches(rows.schema, taken()),
    )


def _counts(totals: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(totals.get(name) or 0) for name in ("added", "gone", "changed")}
