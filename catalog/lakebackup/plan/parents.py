"""Chooses the backup that the next one of a source continues, and the level of the next one.

A differential backup of level N holds what changed since the latest backup of level N or below. A cumulative
one holds what changed since the latest backup of a level below N. A full is level 0 and has no parent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any, Literal

from lakebackup.errors import Refused, UsageProblem
from lakebackup.plan.partitions import RegionState
from lakebackup.plan.topics.backup import Covered, Increment, Parent
from lakebackup.rows.base import pick
from lakebackup.rules.times import format_ts
from lakebackup.store.reader import CatalogReader

Mode = Literal["auto", "full", "incr-diff", "incr-accu"]

_REASON_TEXTS = {
    "out_of_sync": "the source's history was cut back before its end",
    "unconfirmed": "its marker `complete` is not there",
    "chain": "a backup that it needs cannot be used",
    "damaged": "a file of it, or of a backup that it needs, is missing or damaged",
    "deleted": "it was deleted",
    "aside": "later backups of its chain continue an earlier one in its place",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """The parent of the next backup, and its kind, level and branch unless it is a full.

    `parent`: None if there is none to continue, so that the next backup is a full. With --mode full it is the
    newest backup, with which the full is compared. `newest`: the latest backup that can be continued, of any
    level. `parent_named`: --parent named the parent.
    """

    parent: Parent | None
    newest: Parent | None
    increment: Increment
    level: int
    branch: int = 0
    parent_named: bool = False
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def instead(self) -> Choice:
        """This choice with the newest backup as parent, for a source that deleted records since the parent.

        The newest backup may hold records that are deleted by now, and a backup that continues the parent
        would lack them. Raises Refused when --parent named the parent.
        """
        if self.parent is None or self.newest is None or self.newest == self.parent:
            return self
        reason = f"the source has deleted records that came after backup {self.parent.backup_id}"
        if self.parent_named:
            raise Refused(
                f"{reason.capitalize()}; a backup that continues it would have a hole.",
                hint=f"Leave --parent out to continue {self.newest.backup_id}, or take --mode full.",
            )
        return replace(
            self,
            parent=self.newest,
            increment="differential",
            level=max(self.level, self.newest.level),
            branch=self.newest.branch,
            notes=(*self.notes, f"{reason}; this one is a differential since {self.newest.backup_id}"),
        )


def check_asked(mode: Mode, level: int | None, parent: str | None) -> None:
    """Raise UsageProblem when mode, level and parent contradict each other."""
    if mode == "full" and parent:
        raise UsageProblem(
            "A full backup has no parent; --mode full and --parent exclude each other.",
            hint="Leave --parent out, or take --mode incr-diff or incr-accu.",
        )
    if mode == "full" and level:
        raise UsageProblem(
            f"A full backup is level 0, not {level}.",
            hint="Leave --level out, or take --mode incr-diff or incr-accu.",
        )
    if mode != "full" and level is not None and level < 1:
        raise UsageProblem(
            f"Level {level} is not that of an incremental backup.",
            hint="Give --level 1 or above; level 0 is --mode full.",
        )


def choose(
    reader: CatalogReader,
    source: str,
    *,
    mode: Mode = "auto",
    level: int | None = None,
    parent: str | None = None,
    log: bool = False,
) -> Choice:
    """Choose the parent of a source's next backup.

    `parent`: the id of the backup to continue, or its first characters. `log`: the next backup is a batch of
    --follow, which continues the newest backup of any level. If no backup can be continued, the next one is a
    full. Raises UsageProblem (options that contradict each other, a parent of another source), Refused (the
    named parent cannot be continued; or no backup can, and the mode is incremental).
    """
    check_asked(mode, level, parent)
    newest_row = reader.first_row("latest_backup", source=source, level=None)
    newest = pick(Parent, newest_row) if newest_row else None
    increment: Increment = "log" if log else "cumulative" if mode == "incr-accu" else "differential"
    new_level = level or 1
    if mode == "full":
        # It continues no backup, but is compared with the newest, to notice gaps and to number generations.
        return Choice(newest, newest, increment, 0)
    if parent:
        return _named_parent(reader, source, parent, newest, increment, level)
    unusable = reader.rows("unusable_parents", source=source, place=newest.place if newest else None)
    if newest is None:
        return _without_parent(source, mode, increment, new_level, unusable)
    if increment == "log":
        parent_backup, new_level = newest, max(new_level, newest.level)
    else:
        max_level = new_level if increment == "differential" else new_level - 1
        older = reader.first_row("latest_backup", source=source, level=max_level)
        # There is always one: the base of the newest backup is of level 0.
        parent_backup = pick(Parent, older) if older else newest
    # The parent may precede the newest backup's branch. The next backup belongs to that branch all the same.
    newest_branch = newest.branch if newest.base == parent_backup.base else 0
    warnings = [f"passed over, since it cannot be continued: {_describe([row])}" for row in unusable]
    return Choice(
        parent_backup,
        newest,
        increment,
        new_level,
        max(parent_backup.branch, newest_branch),
        warnings=tuple(warnings),
    )


def covered_by(reader: CatalogReader, source: str, parent: Parent | None) -> list[Covered]:
    """How far each partition was backed up, in the chain of `parent` and in others."""
    if parent is None:
        return []
    return [pick(Covered, row) for row in region_ends(reader, source, parent.base, parent.link)]


def region_ends(reader: CatalogReader, source: str, base: str, link: int) -> list[dict[str, Any]]:
    """The rows of the query region_ends.

    Reads only the last backups that hold each topic, since their positions are few. If one of these lacks a
    partition, reads all backups.
    """
    chain = {"source": source, "base": base, "link": link}
    last_backups = reader.rows("region_backups", **chain)
    ids = ",".join(sorted({row["backup_id"] for row in last_backups}))
    ends = reader.rows("region_ends", **chain, backups=ids)
    counts = Counter((row["scope"], row["epoch"], row["in_chain"]) for row in ends)
    if all(counts[row["scope"], row["epoch"], row["in_chain"]] >= row["regions"] for row in last_backups):
        return ends
    return reader.rows("region_ends", **chain, backups=None)


def falls_short(regions: Iterable[RegionState], covered: Iterable[Covered]) -> bool:
    """Whether the source has deleted records that follow those which the parent's chain covers."""
    ends = {c.key: c.end_position for c in covered if c.in_chain}
    return any(ends.get(r.key, r.low) < r.low for r in regions)


def _named_parent(
    reader: CatalogReader,
    source: str,
    parent_id: str,
    newest: Parent | None,
    increment: Increment,
    level: int | None,
) -> Choice:
    row = reader.first_row("parent_backup", backup_id=reader.resolve_backup(parent_id, source))
    if row is None or row["source"] != source:
        raise UsageProblem(
            f"Backup {parent_id} is one of {row['source'] if row else 'another source'}, not of {source}.",
            hint=f"`lakebackup list --source {quote(source)}` shows those that there are.",
        )
    if row["reason"]:
        raise Refused(
            f"Backup {row['backup_id']} cannot be continued: {_REASON_TEXTS[row['reason']]}.",
            hint="Name another with --parent, leave it out, or take --mode full.",
        )
    parent = pick(Parent, row)
    min_level = max(1, parent.level if increment != "cumulative" else parent.level + 1)
    if level is not None and level < min_level:
        raise UsageProblem(
            f"Backup {parent.backup_id} is of level {parent.level}; a {increment} one that continues it "
            f"is of level {min_level} or above.",
            hint=f"Give --level {min_level}, or leave it out.",
        )
    # A backup that continues the last one of its chain begins no new branch.
    branch = row["last_branch"] + (1 if parent.link < row["last_link"] else 0)
    return Choice(parent, newest, increment, level or min_level, branch, parent_named=True)


def _without_parent(
    source: str, mode: Mode, increment: Increment, level: int, unusable: list[dict[str, Any]]
) -> Choice:
    if not unusable:
        notes = () if mode == "auto" else (f"there is no backup of {source} yet, so this is a full one",)
        return Choice(None, None, increment, level, notes=notes)
    if mode != "auto":
        raise Refused(
            f"No backup of {source} can be continued: {_describe(unusable)}.",
            hint="Take a new full backup with --mode full; the view unusable_backups has more.",
        )
    warning = f"no backup of {source} can be continued, so this is a full one: {_describe(unusable)}"
    return Choice(None, None, increment, level, warnings=(warning,))


def _describe(rows: list[dict[str, Any]]) -> str:
    texts = [
        f"{row['backup_id']} ({format_ts(row['end_ts'])}): {_REASON_TEXTS[row['reason']]}" for row in rows[:3]
    ]
    suffix = [f"and {len(rows) - 3} more"] if len(rows) > 3 else []
    return "; ".join(texts + suffix)
