"""`lakebackup diff`: how the files of two backups differ."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from lakebackup.plan.diff import DiffRequest, FileDiff, plan_diff
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import switch
from lakebackup_jobs.cli.output.results.phrases import listed
from lakebackup_jobs.cli.output.rows import Brief
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.lifecycle.planning import plan_on_engine
from lakebackup_jobs.lifecycle.progress import Reporter, human_bytes
from lakebackup_jobs.query.record_diff import TopicDiff, run
from lakebackup_jobs.query.words import counted

COLUMNS = ("change", "scope", "region", "path", "old_path", "bytes", "old_bytes", "entries")


@verb(options.REPO, options.CSV, options.EXPLAIN, options.ENGINE, options.SPARK_JOB, waits="comparing")
def diff(
    call: Call,
    a: str = options.backup_id("OLD"),
    b: str = options.backup_id("NEW"),
    records: bool = switch("--records", "Compare the records, by key, instead of the files."),
) -> None:
    """Show what changed from one backup to another: files added, gone, changed and moved.

    For snapshots these are the files of the source: added, gone and changed. Totals come first, then the
    files. With --json the first line has the totals; --csv writes only the files.
    --records shows the keys whose newest value differs: added, gone (also by a tombstone) or changed, topic
    by topic. Nothing is restored for this. Spark compares large topics.

    Examples:
        lakebackup diff 20261121T1405 20261121T1500 --repo ./backups
        lakebackup diff 20261121T1405 20261121T1500 --csv > changes.csv
        lakebackup diff 20261121T1405 20261121T1500 --records --json
    """
    request = call.request(DiffRequest)
    if call.explain:
        call.print_explanation(lambda: list(_compared(call, request)) if records else _changes(call, request))
    elif records:
        _write_records(call, request)
    else:
        _write_files(call, request)


def _write_files(call: Call, request: DiffRequest) -> None:
    file_diff = _changes(call, request)
    result, csv = {"a": file_diff.a, "b": file_diff.b, "totals": list(file_diff.totals)}, call.flags["csv"]
    if not csv:
        call.show(result, [_file_sentence(file_diff)])
    if file_diff.totals or csv:
        brief = Brief(COLUMNS, ("entries", "old_bytes", "region"))
        call.write(file_diff.changes.query("diff_rows"), COLUMNS, brief)


def _changes(call: Call, request: DiffRequest) -> FileDiff:
    return plan_on_engine(
        call.reader(), request, call.planning_session(), call.report, partial(plan_diff, request)
    )


def _compared(call: Call, request: DiffRequest) -> Iterator[TopicDiff]:
    # The first line of --json has the totals, so events of the run are not printed as JSON.
    report = Reporter(sys.stdout, sys.stderr) if call.json else call.report
    return run(request, spark=call.planning_session(), reporter=report)


def _write_records(call: Call, request: DiffRequest) -> None:
    topics = _compared(call, request)
    if call.flags["csv"]:
        first_topic = next(topics, None)
        if first_topic is not None:  # all topics share one header
            other_batches = chain.from_iterable(topic.rows for topic in topics)
            call.write(
                pa.RecordBatchReader.from_batches(
                    first_topic.rows.schema, chain(first_topic.rows, other_batches)
                )
            )
        return
    for topic in topics:
        call.show(topic.totals(), [_record_sentence(topic)])
        if topic.added or topic.gone or topic.changed:
            call.write(topic.rows)


def _file_sentence(file_diff: FileDiff) -> str:
    """A sentence with the number of files that differ between two backups, for each kind of change."""

    def part(row: Mapping[str, Any]) -> str:
        size = row["old_bytes"] if row["change"] == "gone" else row["bytes"]
        return f"{counted(row['files'], 'file')} {row['change']} ({human_bytes(size)})"

    backups = f"from backup {file_diff.a} to backup {file_diff.b}"
    if not file_diff.totals:
        return f"Nothing changed {backups}."
    return f"Changed {backups}: {listed(map(part, file_diff.totals))}."


def _record_sentence(topic: TopicDiff) -> str:
    """A sentence with the number of keys of a topic that differ, for each kind of change."""
    parts = [
        f"{counted(number, 'key')} {change}"
        for change, number in (("added", topic.added), ("gone", topic.gone), ("changed", topic.changed))
        if number
    ]
    keyless = f"; {counted(topic.without_key, 'record')} without a key cannot be compared" * bool(
        topic.without_key
    )
    return f"Topic {topic.scope}: {listed(parts) if parts else 'nothing changed'}{keyless}."
