"""Plans backups of snapshots: which snapshots to back up, and how much work that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.formats.snapshots.names import Limits, unsafe
from lakebackup.rows.base import SNAPSHOT, pick
from lakebackup.rules.kinds import require_kind
from lakebackup.rules.times import MAX_SKEW_MS, format_ts
from lakebackup.store.reader import CatalogReader

Role = Literal["data", "meta", "schema", "config"]
# Costs are expressed as bytes to copy. The cost of opening, hashing and recording a file, in addition to its
# bytes.
FILE_COST = 16 << 10
# The cost of a row for which nothing is copied.
ROW_COST = 1 << 10
# About the cost of each task of a large backup.
_TASK_COST = 256 << 20
# Up to this cost, everything is one task.
_ONE_TASK = 96 << 20
_MOST_TASKS = 2_000


@dataclass(frozen=True, slots=True)
class Unit:
    """A folder of a snapshot that holds one region of a table. With `file`, it is one file that belongs to no
    table.

    `deep` includes its subfolders. `prefix`, which ends in `/`, limits it to the files in this subfolder.
    """

    scope: str
    region: str
    folder: str
    role: Role = "data"
    file: str = ""
    prefix: str = ""
    deep: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot. `id` is empty if its layout names none. `taken_ms` is when its newest folder was created,
    in ms since 1970 UTC. `unfinished` is the folder of a tablet in which the database still creates or
    deletes the snapshot; it is empty if there is none."""

    id: str
    taken_ms: int
    units: tuple[Unit, ...]
    unfinished: str = ""

    @property
    def tables(self) -> dict[str, int]:
        """The snapshot's tables, each with its number of regions."""
        regions = {(unit.scope, unit.region) for unit in self.units if not unit.file}
        return dict(sorted(Counter(scope for scope, _ in regions).items()))


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest backup of a source: a row of the query snapshot_newest. `end_ts` is the end of the newest
    backup that is not from the future; None if there is none."""

    backup_id: str
    number: int
    end_ts: int | None


@dataclass(frozen=True, slots=True)
class Amount:
    """How much a backup has to do. `changes`: the number of files of each kind of change. `listed`: the files
    of the snapshot. `copies`: the files to copy, of which `small` are small enough for packs."""

    changes: dict[str, int]
    listed: int
    listed_bytes: int
    copies: int
    copy_bytes: int
    small: int

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> Amount:
        """Sum up the rows of the query snapshot_totals."""
        rows = list(rows)
        listed_rows = [row for row in rows if row["change"] not in ("gone", "folder")]
        sums = [sum(row[name] for row in rows) for name in ("copies", "copy_bytes", "small")]
        changes = {row["change"]: row["files"] for row in rows}
        return cls(changes, sum(r["files"] for r in listed_rows), sum(r["bytes"] for r in listed_rows), *sums)

    @property
    def rows(self) -> int:
        """How many rows its tasks read."""
        return sum(count for change, count in self.changes.items() if change != "unchanged")

    @property
    def cost(self) -> int:
        """The cost of the backup."""
        return self.copy_bytes + self.copies * FILE_COST + (self.rows - self.copies) * ROW_COST

    def tasks(self, parallelism: int) -> int:
        """Return the number of tasks: two for each of `parallelism`, or more if these would be too large. A
        small backup has one task, and one without work none."""
        if self.cost <= _ONE_TASK:
            return min(1, self.rows)
        return max(1, min(max(2 * parallelism, self.cost // _TASK_COST), _MOST_TASKS))


def choose(
    snapshots: Sequence[Snapshot], *, ids: Sequence[str], everything: bool, newest: Newest | None
) -> list[Snapshot]:
    """Return the snapshots to back up, oldest first: those named by `ids`, or with `everything` all since the
    newest backup, or else the last one.

    An unfinished snapshot is skipped. Raises NotFound (no such snapshot), Refused (a named snapshot is
    unfinished, or all are).
    """
    ordered = sorted(snapshots, key=lambda s: (s.taken_ms, s.id))
    finished = [snapshot for snapshot in ordered if not snapshot.unfinished]
    if ids:
        missing = sorted(set(ids) - {snapshot.id for snapshot in ordered})
        if missing:
            raise NotFound(
                f"There is no snapshot {missing[0]} in what was named.",
                hint=f"The newest are {', '.join(s.id for s in ordered[-5:])}.",
            )
        selected = [snapshot for snapshot in ordered if snapshot.id in ids]
    elif everything:
        after_ts = newest.end_ts if newest else None
        selected = [s for s in finished if after_ts is None or s.taken_ms > after_ts]
    else:
        selected = finished[-1:] or ordered[-1:]
    for snapshot in selected:
        if snapshot.unfinished:
            raise Refused(
                f"Snapshot {snapshot.id} is being made or deleted: {snapshot.unfinished} is there.",
                hint="Wait until the database is done. A folder that an interrupted run left can be deleted.",
            )
    return selected


def require_later(source: str, name: str, taken_ms: int, newest: Newest | None) -> None:
    """Raise UsageProblem when a snapshot (`name`) is not later than what the source's backups hold.

    Backups from the future do not count. Callers do not check the time of a folder that is read now: whatever
    the clock says, it is later than all that was backed up before.
    """
    if newest and newest.end_ts is not None and taken_ms <= newest.end_ts:
        raise UsageProblem(
            f"{name} is of {format_ts(taken_ms)}, and the backups of {source} already hold one of "
            f"{format_ts(newest.end_ts)}.",
            hint="Backups follow each other in time: back up a newer snapshot, or give --taken-at if this "
            "one was taken later.",
        )


def require_past(name: str, taken_ms: int, now_ms: int) -> None:
    """Raise UsageProblem when the time that the user gave for a snapshot (`name`) is in the future."""
    if taken_ms > now_ms + MAX_SKEW_MS:
        raise UsageProblem(
            f"{name} is of {format_ts(taken_ms)}, which is yet to come.",
            hint="Give the time of the snapshot with --taken-at; timestamps are in ms since 1970 UTC. If the "
            "time is right, set this machine's clock.",
        )


def newest_of(reader: CatalogReader, source: str) -> Newest | None:
    """Return the newest backup of a source; None if it has none. Raises Refused when it is not of a
    snapshot."""
    row = reader.first_row("snapshot_newest", source=source)
    if row is None:
        return None
    require_kind(
        source, SNAPSHOT, [row["source_kind"]], hint="Give this one a name of its own with --source."
    )
    return pick(Newest, row)


def require_distinct(units: Sequence[Unit]) -> None:
    """Raise UsageProblem when two folders or files would have the same key in the catalog."""
    units_by_key: dict[tuple[str, str, str], Unit] = {}
    for unit in units:
        first = units_by_key.setdefault((unit.scope, unit.region, unit.file or unit.prefix), unit)
        if first is not unit:
            description = (
                f"{unit.role} file {unit.file}" if unit.file else f"tablet {unit.region} of {unit.scope}"
            )
            raise UsageProblem(
                f"{first.folder} and {unit.folder} both hold {description}.",
                hint="Back them up as sources of their own, or with a --layout that distinguishes them.",
            )


def require_restorable(units: Sequence[Unit]) -> None:
    """Raise Refused when tables, tablets or files beside them have names that no restore can create."""
    tables = {unit.scope for unit in units if not unit.file}
    for unit in units:
        for name in (unit.file,) if unit.file else (unit.scope, unit.region):
            if problem := unsafe(name, Limits()):
                raise Refused(
                    f"{unit.folder} cannot be backed up under the name {name!r}: {problem}.",
                    hint="Name a folder with a name of its own, or give a --layout that names the tables.",
                )
        if unit.file in tables:
            raise Refused(
                f"{unit.folder}/{unit.file} has the name of a table, beside which a restore puts it.",
                hint="Give --sidecar the file under another name.",
            )
