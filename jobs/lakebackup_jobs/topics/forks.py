"""Forks: find out that a source's history was truncated, and mark the backups that hold the truncated part.

Which backups these are is a fact about the source, whatever becomes of the run that finds the fork. So they
are marked before that run copies anything: newest first in the log, then all in one commit of the catalog. A
run that ends in between finds the same fork again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from lakebackup.errors import Refused
from lakebackup.plan.parents import Choice, region_ends
from lakebackup.plan.partitions import RegionState
from lakebackup.plan.topics.forks import (
    BackupEnd,
    Fork,
    comparable,
    earlier_lost,
    first_lost,
    judge,
    lost,
    suspects,
)
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.kafka.client.epochs import LogEnd, Logs
from lakebackup_jobs.lifecycle.identity import holder

OnFork = Literal["branch", "fail"]

# How many backups before the newest are searched for a last record that a compacted log still has.
_EARLIER_BACKUPS = 20


def find(
    reader: CatalogReader,
    source: str,
    regions: Sequence[RegionState],
    kafka: Mapping[str, str],
    *,
    contents: bool = True,
) -> Fork | None:
    """Find the fork of a source behind its newest backup that can be continued; nearly always there is none.

    `contents`: compare the last record of each partition, as every run does. Otherwise only partitions are
    compared whose end, or whose leader's epoch, contradicts the backup.
    """
    newest = reader.first_row("latest_backup", source=source, level=None)
    if newest is None:
        return None
    ends = region_ends(reader, source, newest["base"], newest["link"])
    backup_ends = [
        BackupEnd(newest["place"], r["scope"], r["epoch"], r["region"], r["end_position"], r["leader_epoch"])
        for r in ends
        if r["in_chain"]
    ]
    region_states = {r.key: r for r in regions}
    compared_ends = comparable(regions, backup_ends)
    if not contents:
        compared_ends = suspects(compared_ends, region_states)
    if not compared_ends:
        return None
    logs = Logs(kafka, partial(_files, reader, source))
    verdicts = judge(compared_ends, region_states, logs)
    cut = lost(verdicts)
    if unmatched_ends := [s for s, verdict in verdicts.items() if verdict == "gone"]:
        cut |= earlier_lost(_earlier_ends(reader, source, unmatched_ends), region_states, logs)
    if not cut:
        return None
    by_epoch = {s.partition for s, verdict in verdicts.items() if verdict == "cut"}
    first = first_lost(_history(reader, source, cut), region_states, logs, by_epoch=by_epoch)
    fork_place = min(end.place for end in first.values())
    backups = tuple(row["backup_id"] for row in reader.rows("fork_backups", source=source, place=fork_place))
    fork = Fork(None, backups, tuple(sorted((s.scope, s.region, s.position) for s in cut)))
    parent = without(reader, fork).first_row("latest_backup", source=source, level=None)
    return Fork(parent["backup_id"] if parent else None, backups, fork.regions)


def without(reader: CatalogReader, fork: Fork) -> CatalogReader:
    """The catalog as it will be once the fork is recorded."""
    return reader.supposing(dict.fromkeys(fork.backups, "out_of_sync"))


def check(fork: Fork, on_fork: OnFork) -> None:
    """Raise Refused if a fork is to end the run."""
    if on_fork == "fail":
        raise Refused(
            f"{fork}.",
            hint="With --on-fork branch the next backup continues from "
            f"{f'backup {fork.parent}' if fork.parent else 'the start, as a full'}, and "
            f"{len(fork.backups)} after it become out_of_sync.",
        )


def branch(reader: CatalogReader, choice: Choice) -> int:
    """The number of the next backup's branch: a new one if later backups of the chain are out of sync."""
    newest = choice.newest
    if choice.parent_named or newest is None or choice.parent is None or choice.parent.base != newest.base:
        return choice.branch
    row = reader.first_row("next_branch", backup_id=newest.backup_id)
    return int(row["branch"]) if row and row["branch"] is not None else choice.branch


def report(fork: Fork) -> str:
    """The text of the warning about a fork."""
    backup_ids = ", ".join(fork.backups[:5])
    remainder = f" and {len(fork.backups) - 5} more" if len(fork.backups) > 5 else ""
    branch_point = f"backup {fork.parent}" if fork.parent else "none, every one holds what was cut"
    return f"{fork}. Out of sync: {backup_ids}{remainder}; the last that holds nothing of it: {branch_point}"


def record(writer: CatalogWriter, fork: Fork) -> None:
    """Mark the backups behind the branch point as out_of_sync, in the catalog and in the destination."""
    reason = f"{fork}. Branch point: {fork.parent or 'none'}"
    writer.set_states(fork.backups, "out_of_sync", actor=holder(), reason=reason)


def describe(fork: Fork) -> dict[str, Any]:
    """The fork as values of a run's result."""
    return {
        "branch_point": fork.parent,
        "out_of_sync": list(fork.backups),
        "partitions": [
            {"topic": scope, "partition": region, "backed_up_to": position}
            for scope, region, position in fork.regions
        ],
    }


def _earlier_ends(
    reader: CatalogReader, source: str, newest_ends: Collection[BackupEnd]
) -> dict[tuple[str, str, str], list[BackupEnd]]:
    """The ends of earlier backups by partition, each position once, the latest first."""
    ends_by_region: dict[tuple[str, str, str], dict[int, BackupEnd]] = {
        s.partition: {s.position: s} for s in newest_ends
    }
    for region, ends in _history(reader, source, newest_ends, last=_EARLIER_BACKUPS).items():
        for end in reversed(ends):
            ends_by_region[region].setdefault(end.position, end)
    return {region: list(ends.values())[1:] for region, ends in ends_by_region.items()}


def _history(
    reader: CatalogReader, source: str, backup_ends: Collection[BackupEnd], last: int | None = None
) -> dict[tuple[str, str, str], list[BackupEnd]]:
    reader = reader.with_rows("suspected", _table(backup_ends))
    history: dict[tuple[str, str, str], list[BackupEnd]] = {}
    for row in reader.rows("fork_history", source=source, last=last):
        end = BackupEnd(**row)
        history.setdefault(end.partition, []).append(end)
    return history


def _files(reader: CatalogReader, source: str, backup_ends: Collection[BackupEnd]) -> dict[BackupEnd, LogEnd]:
    reader = reader.with_rows("suspected", _table(backup_ends))
    roots = reader.destinations()
    files_by_end, names = {}, [field.name for field in fields(BackupEnd)]
    for row in reader.rows("fork_files", source=source):
        with suppress(Refused):  # a destination that is not mounted says nothing about the source's history
            file = LogEnd(roots.open(row["destination"]), row["path"], row["bytes"], row["end_position"])
            files_by_end[BackupEnd(**{name: row[name] for name in names})] = file
    return files_by_end


def _table(ends: Collection[BackupEnd]) -> pa.Table:
    schema = pa.schema(
        [
            ("place", pa.int64()),
            *((name, pa.string()) for name in ("scope", "epoch", "region")),
            ("position", pa.int64()),
            ("leader_epoch", pa.int32()),
        ]
    )
    return pa.table({name: [getattr(end, name) for end in ends] for name in schema.names}, schema=schema)
