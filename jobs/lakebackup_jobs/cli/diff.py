"""`lakebackup diff`: how the files of two backups differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebackup_jobs.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebackup.config import Settings
    from lakebackup.plan.diff import Difference
    from lakebackup.store import CatalogReader
    from lakebackup_jobs.record_diff import TopicDiff

EXAMPLES = options.examples(
    "lakebackup diff 20261121T1405 20261121T1500 --from ./backups",
    "lakebackup diff 20261121T1405 20261121T1500 --csv > changes.csv",
    "lakebackup diff 20261121T1405 20261121T1500 --records --json",
)

COLUMNS = ("change", "scope", "region", "path", "old_path", "bytes", "old_bytes", "entries")


def diff(
    a: options.BackupId,
    b: options.BackupId,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    json: options.Json = False,
    csv: options.Csv = False,
    explain: options.Explain = False,
    records: Annotated[
        bool, typer.Option("--records", help="Compare the records, by key, instead of the files.")
    ] = False,
    remote: options.Remote = None,
    _debug: options.Debug = False,
) -> None:
    """Show what changed from one backup to another: files added, gone, changed and moved.

    Of snapshots it is the files of the source: added, gone and changed.
    Totals come first, then the files; --json writes the totals as its first line, --csv the files alone.
    With --records it is the keys whose newest value is another: added, gone (a tombstone too) or changed,
    topic after topic. Nothing is restored for it; many records are compared by Spark.
    """
    import sys

    from lakebackup_jobs.cli import rows
    from lakebackup_jobs.cli.explain import explain as show
    from lakebackup_jobs.cli.invocation import settings
    from lakebackup_jobs.cli.reading import open_catalog
    from lakebackup_jobs.progress import print_result

    if records:
        found = settings(config, destination=from_, catalog=catalog, remote=remote)
        if explain:
            show(lambda: list(_compared(found, a, b)), as_json=json)
        else:
            _write_records(found, a, b, as_json=json, as_csv=csv)
        return
    if explain:
        show(lambda: _changes(open_catalog(config, from_, catalog), a, b), as_json=json)
        return
    reader = open_catalog(config, from_, catalog)
    wanted, totals = _changes(reader, a, b)
    if json and not csv:
        sys.stdout.write(rows.json_line({"a": wanted.a, "b": wanted.b, "totals": totals}))
    elif not csv:
        print_result({"a": wanted.a, "b": wanted.b, "totals": totals}, sys.stdout)
    if totals or csv:
        rows.write(reader.query("diff_rows"), as_json=json, as_csv=csv, columns=COLUMNS)


def _changes(reader: CatalogReader, a: str, b: str) -> tuple[Difference, list[dict[str, Any]]]:
    from lakebackup.plan.diff import of_backups

    wanted = of_backups(reader, a, b)
    reader.define("changes", wanted.query, **wanted.parameters())
    return wanted, reader.rows("diff_totals")


def _compared(found: Settings, a: str, b: str) -> Iterator[TopicDiff]:
    from lakebackup_jobs.cli.invocation import destination
    from lakebackup_jobs.record_diff import RecordDiffRequest, run

    return run(RecordDiffRequest(destination(found, "--from"), a, b, found.catalog, found.remote))


def _write_records(found: Settings, a: str, b: str, *, as_json: bool, as_csv: bool) -> None:
    import sys
    from itertools import chain

    import pyarrow as pa

    from lakebackup_jobs.cli import rows
    from lakebackup_jobs.progress import print_result

    topics = _compared(found, a, b)
    if as_csv:
        first = next(topics, None)
        if first is not None:  # one header for all
            later = chain.from_iterable(topic.rows for topic in topics)
            every = pa.RecordBatchReader.from_batches(first.rows.schema, chain(first.rows, later))
            rows.write(every, as_json=as_json, as_csv=True)
        return
    for topic in topics:
        if as_json:
            sys.stdout.write(rows.json_line(topic.totals()))
        else:
            print_result(topic.totals(), sys.stdout)
        if topic.added or topic.gone or topic.changed:
            rows.write(topic.rows, as_json=as_json, as_csv=False)
