"""A source's history that was cut back: find it, and mark the backups that hold what was cut.

Which backups those are is a fact about the source, whatever becomes of the run that finds it. So they are
marked before that run copies anything: newest first in the log, then all in one commit of the catalog. A run
that ends in between finds the same fork again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from lakebackup.errors import Refused
from lakebackup.plan.parents import region_ends
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
from lakebackup_jobs.kafka.client.epochs import Logs, Place
from lakebackup_jobs.lifecycle.identity import holder

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from lakebackup.plan.parents import Choice
    from lakebackup.plan.partitions import RegionState
    from lakebackup.store.reader import CatalogReader
    from lakebackup.store.writer import CatalogWriter

OnFork = Literal["branch", "fail"]

# So many backups before the newest are looked at for a record that a compacted log still has.
_EARLIER = 20


def find(
    reader: CatalogReader,
    source: str,
    regions: Sequence[RegionState],
    kafka: Mapping[str, str],
    *,
    contents: bool = True,
) -> Fork | None:
    """The fork of a source behind its newest backup that can be continued; None as nearly always.

    `contents`: compare the last record of each partition, as every run does; without it, only those whose end
    or leader's epoch is not what it was.
    """
    newest = reader.one("latest_backup", source=source, level=None)
    if newest is None:
        return None
    ends = region_ends(reader, source, newest["base"], newest["link"])
    known = [
        BackupEnd(newest["place"], r["scope"], r["epoch"], r["region"], r["end_position"], r["leader_epoch"])
        for r in ends
        if r["in_chain"]
    ]
    now = {r.place: r for r in regions}
    asked = comparable(regions, known)
    if not contents:
        asked = suspects(asked, now)
    if not asked:
        return None
    logs = Logs(kafka, partial(_files, reader, source))
    verdicts = judge(asked, now, logs)
    cut = lost(verdicts)
    if gone := [s for s, verdict in verdicts.items() if verdict == "gone"]:
        cut |= earlier_lost(_earlier(reader, source, gone), now, logs)
    if not cut:
        return None
    by_epoch = {s.where for s, verdict in verdicts.items() if verdict == "cut"}
    first = first_lost(_history(reader, source, cut), now, logs, by_epoch=by_epoch)
    place = min(end.place for end in first.values())
    backups = tuple(row["backup_id"] for row in reader.rows("fork_backups", source=source, place=place))
    found = Fork(None, backups, tuple(sorted((s.scope, s.region, s.position) for s in cut)))
    parent = without(reader, found).one("latest_backup", source=source, level=None)
    return Fork(parent["backup_id"] if parent else None, backups, found.regions)


def without(reader: CatalogReader, fork: Fork) -> CatalogReader:
    """The catalog as it will be when the fork is on record."""
    return reader.supposing(dict.fromkeys(fork.backups, "out_of_sync"))


def check(fork: Fork, on_fork: OnFork) -> None:
    """Refused when a fork is to end the run."""
    if on_fork == "fail":
        raise Refused(
            f"{fork}.",
            hint="With --on-fork branch the next backup continues from "
            f"{f'backup {fork.parent}' if fork.parent else 'the start, as a full'}, and "
            f"{len(fork.backups)} after it become out_of_sync.",
        )


def branch(reader: CatalogReader, choice: Choice) -> int:
    """The branch of the next backup: one of its own where those behind the newest went out of sync."""
    newest = choice.newest
    if choice.asked or newest is None or choice.parent is None or choice.parent.base != newest.base:
        return choice.branch
    found = reader.one("next_branch", backup_id=newest.backup_id)
    return int(found["branch"]) if found and found["branch"] is not None else choice.branch


def report(fork: Fork) -> str:
    """The warning of a run that finds the fork."""
    shown = ", ".join(fork.backups[:5])
    more = f" and {len(fork.backups) - 5} more" if len(fork.backups) > 5 else ""
    kept = f"backup {fork.parent}" if fork.parent else "none, every one holds what was cut"
    return f"{fork}. Out of sync: {shown}{more}; the last that holds nothing of it: {kept}"


def record(writer: CatalogWriter, fork: Fork) -> None:
    """Put the backups behind the branch point out of sync, on record in the destination too."""
    reason = f"{fork}. Branch point: {fork.parent or 'none'}"
    writer.set_states(fork.backups, "out_of_sync", actor=holder(), reason=reason)


def describe(fork: Fork) -> dict[str, Any]:
    """For a run's result."""
    return {
        "branch_point": fork.parent,
        "out_of_sync": list(fork.backups),
        "partitions": [
            {"topic": scope, "partition": region, "backed_up_to": position}
            for scope, region, position in fork.regions
        ],
    }


def _earlier(
    reader: CatalogReader, source: str, gone: Collection[BackupEnd]
) -> dict[tuple[str, str, str], list[BackupEnd]]:
    """The ends of some backups before, each once, the last first."""
    found: dict[tuple[str, str, str], dict[int, BackupEnd]] = {s.where: {s.position: s} for s in gone}
    for where, ends in _history(reader, source, gone, last=_EARLIER).items():
        for end in reversed(ends):
            found[where].setdefault(end.position, end)
    return {where: list(ends.values())[1:] for where, ends in found.items()}


def _history(
    reader: CatalogReader, source: str, of: Collection[BackupEnd], last: int | None = None
) -> dict[tuple[str, str, str], list[BackupEnd]]:
    reader.give("suspected", _table(of))
    found: dict[tuple[str, str, str], list[BackupEnd]] = {}
    for row in reader.rows("fork_history", source=source, last=last):
        end = BackupEnd(**row)
        found.setdefault(end.where, []).append(end)
    return found


def _files(reader: CatalogReader, source: str, asked: Collection[BackupEnd]) -> dict[BackupEnd, Place]:
    reader.give("suspected", _table(asked))
    roots = reader.destinations()
    found, names = {}, [field.name for field in fields(BackupEnd)]
    for row in reader.rows("fork_files", source=source):
        with suppress(Refused):  # a destination that is not mounted proves nothing of the source's history
            place = Place(roots.open(row["destination"]), row["path"], row["bytes"], row["end_position"])
            found[BackupEnd(**{name: row[name] for name in names})] = place
    return found


def _table(ends: Collection[BackupEnd]) -> pa.Table:
    import pyarrow as pa  # takes long, and a run that starts Spark does that first

    schema = pa.schema(
        [
            ("place", pa.int64()),
            *((name, pa.string()) for name in ("scope", "epoch", "region")),
            ("position", pa.int64()),
            ("leader_epoch", pa.int32()),
        ]
    )
    return pa.Table.from_pylist([asdict(end) for end in ends], schema=schema)
