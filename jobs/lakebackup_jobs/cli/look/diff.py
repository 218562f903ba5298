"""`lakebackup diff`: how the files of two backups differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.options import option
from lakebackup_jobs.cli.verb import Call, verb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebackup.plan.diff import Difference
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.query.record_diff import TopicDiff

EXAMPLES = options.examples(
    "lakebackup diff 20261121T1405 20261121T1500 --from ./backups",
    "lakebackup diff 20261121T1405 20261121T1500 --csv > changes.csv",
    "lakebackup diff 20261121T1405 20261121T1500 --records --json",
)

COLUMNS = ("change", "scope", "region", "path", "old_path", "bytes", "old_bytes", "entries")


@verb(options.FROM, options.CSV, options.EXPLAIN, options.REMOTE)
def diff(
    call: Call,
    a: options.BackupId,
    b: options.BackupId,
    records: Annotated[
        bool, option("--records", "Compare the records, by key, instead of the files.")
    ] = False,
) -> None:
    """Show what changed from one backup to another: files added, gone, changed and moved.

    Of snapshots it is the files of the source: added, gone and changed.
    Totals come first, then the files; --json writes the totals as its first line, --csv the files alone.
    With --records it is the keys whose newest value is another: added, gone (a tombstone too) or changed,
    topic after topic. Nothing is restored for it; many records are compared by Spark.
    """
    from lakebackup_jobs.cli.explain import explain

    if call.explain:
        explain(
            lambda: list(_compared(call, a, b)) if records else _changes(call.reader(), a, b),
            as_json=call.json,
        )
    elif records:
        _write_records(call, a, b)
    else:
        _write_files(call, a, b)


def _write_files(call: Call, a: str, b: str) -> None:
    reader = call.reader()
    wanted, totals = _changes(reader, a, b)
    result, csv = {"a": wanted.a, "b": wanted.b, "totals": totals}, call.flags["csv"]
    if not csv:
        call.show(result)
    if totals or csv:
        call.write(reader.query("diff_rows"), COLUMNS)


def _changes(reader: CatalogReader, a: str, b: str) -> tuple[Difference, list[dict[str, Any]]]:
    from lakebackup.plan.diff import of_backups

    wanted = of_backups(reader, a, b)
    reader.define("changes", wanted.query, **wanted.parameters())
    return wanted, reader.rows("diff_totals")


def _compared(call: Call, a: str, b: str) -> Iterator[TopicDiff]:
    from lakebackup_jobs.query.record_diff import RecordDiffRequest, run

    return run(call.request(RecordDiffRequest))


def _write_records(call: Call, a: str, b: str) -> None:
    from itertools import chain

    import pyarrow as pa

    topics = _compared(call, a, b)
    if call.flags["csv"]:
        first = next(topics, None)
        if first is not None:  # one header for all
            later = chain.from_iterable(topic.rows for topic in topics)
            call.write(pa.RecordBatchReader.from_batches(first.rows.schema, chain(first.rows, later)))
        return
    for topic in topics:
        call.show(topic.totals())
        if topic.added or topic.gone or topic.changed:
            call.write(topic.rows)
