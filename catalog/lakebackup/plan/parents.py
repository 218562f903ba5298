"""Which backup the next one of a source continues, and at which level.

A differential backup of level N takes what changed since the latest backup of level N or below, a cumulative
one what changed since the latest of a level below N. A full is level 0 and has no parent.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from lakebackup.errors import Refused, UsageProblem
from lakebackup.plan.topics.backup import Covered, Increment, Parent
from lakebackup.rows.base import pick
from lakebackup.rules.times import format_ts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebackup.plan.partitions import RegionState
    from lakebackup.store.reader import CatalogReader

Mode = Literal["auto", "full", "incr-diff", "incr-accu"]

_WHY = {
    "out_of_sync": "the source's history was cut back before its end",
    "unconfirmed": "its marker `complete` is not there",
    "chain": "a backup that it needs cannot be used",
    "damaged": "a file of it, or of a backup that it needs, is missing or damaged",
    "deleted": "it was deleted",
    "aside": "later backups of its chain continue an earlier one in its place",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """The parent of the next backup, None for a full, and what that one is to be.

    `newest`: the latest backup that can be continued, whatever its level. `asked`: --parent named the parent.
    """

    parent: Parent | None
    newest: Parent | None
    increment: Increment
    level: int
    branch: int = 0
    asked: bool = False
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def instead(self) -> Choice:
        """The newest backup in place of a parent after which the source has deleted records.

        What the newest one holds of them would be missing in a backup that continues the parent. Refused when
        --parent named it.
        """
        if self.parent is None or self.newest is None or self.newest == self.parent:
            return self
        gone = f"the source has deleted records that came after backup {self.parent.backup_id}"
        if self.asked:
            raise Refused(
                f"{gone.capitalize()}; a backup that continues it would have a hole.",
                hint=f"Leave --parent out to continue {self.newest.backup_id}, or take --mode full.",
            )
        return replace(
            self,
            parent=self.newest,
            increment="differential",
            level=max(self.level, self.newest.level),
            branch=self.newest.branch,
            notes=(*self.notes, f"{gone}; this one is a differential since {self.newest.backup_id}"),
        )


def check_asked(mode: Mode, level: int | None, parent: str | None) -> None:
    """UsageProblem when a mode, a level and a parent do not go together."""
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
    """The parent of the next backup of a source.

    `parent`: the id of the one to continue, or its beginning. `log`: for a batch of --follow, which continues
    the newest, whatever its level. Without a backup to continue it is a full; Refused when there are backups,
    none can be continued, and an incremental one was asked for by name.
    """
    check_asked(mode, level, parent)
    found = reader.one("latest_backup", source=source, level=None)
    newest = pick(Parent, found) if found else None
    increment: Increment = "log" if log else "cumulative" if mode == "incr-accu" else "differential"
    wanted = level or 1
    if mode == "full":
        return Choice(newest, newest, increment, 0)
    if parent:
        return _asked(reader, source, parent, newest, increment, level)
    rest = reader.rows("unusable_parents", source=source, place=newest.place if newest else None)
    if newest is None:
        return _none(source, mode, increment, wanted, rest)
    if increment == "log":
        chosen, wanted = newest, max(wanted, newest.level)
    else:
        below = wanted if increment == "differential" else wanted - 1
        older = reader.one("latest_backup", source=source, level=below)
        # The base of the newest is of level 0, so there is always one.
        chosen = pick(Parent, older) if older else newest
    same = newest.branch if newest.base == chosen.base else 0
    passed = [f"passed over, since it cannot be continued: {_shown([row])}" for row in rest]
    return Choice(chosen, newest, increment, wanted, max(chosen.branch, same), warnings=tuple(passed))


def covered_by(reader: CatalogReader, source: str, parent: Parent | None) -> list[Covered]:
    """How far each partition was backed up, in the chain of `parent` and in others."""
    if parent is None:
        return []
    return [pick(Covered, row) for row in region_ends(reader, source, parent.base, parent.link)]


def region_ends(reader: CatalogReader, source: str, base: str, link: int) -> list[dict[str, Any]]:
    """The rows of the query region_ends: of the last backups that hold each topic, whose positions are few;
    of all backups where one of these lacks a partition."""
    chain = {"source": source, "base": base, "link": link}
    last = reader.rows("region_backups", **chain)
    ids = ",".join(sorted({row["backup_id"] for row in last}))
    found = reader.rows("region_ends", **chain, backups=ids)
    counts = Counter((row["scope"], row["epoch"], row["in_chain"]) for row in found)
    if all(counts[row["scope"], row["epoch"], row["in_chain"]] >= row["regions"] for row in last):
        return found
    return reader.rows("region_ends", **chain, backups=None)


def falls_short(regions: Iterable[RegionState], covered: Iterable[Covered]) -> bool:
    """Whether the source has deleted records after what a parent and its chain cover."""
    ends = {c.place: c.end_position for c in covered if c.in_chain}
    return any(ends.get(r.place, r.low) < r.low for r in regions)


def _asked(
    reader: CatalogReader,
    source: str,
    asked: str,
    newest: Parent | None,
    increment: Increment,
    level: int | None,
) -> Choice:
    found = reader.one("parent_backup", backup_id=reader.resolve_backup(asked, source))
    if found is None or found["source"] != source:
        raise UsageProblem(
            f"Backup {asked} is one of {found['source'] if found else 'another source'}, not of {source}.",
            hint=f"`lakebackup list --source {quote(source)}` shows those that there are.",
        )
    if found["reason"]:
        raise Refused(
            f"Backup {found['backup_id']} cannot be continued: {_WHY[found['reason']]}.",
            hint="Name another with --parent, leave it out, or take --mode full.",
        )
    parent = pick(Parent, found)
    least = max(1, parent.level if increment != "cumulative" else parent.level + 1)
    if level is not None and level < least:
        raise UsageProblem(
            f"Backup {parent.backup_id} is of level {parent.level}; a {increment} one that continues it "
            f"is of level {least} or above.",
            hint=f"Give --level {least}, or leave it out.",
        )
    # Behind the last of its chain nothing branches off.
    branch = found["last_branch"] + (1 if parent.link < found["last_link"] else 0)
    return Choice(parent, newest, increment, level or least, branch, asked=True)


def _none(source: str, mode: Mode, increment: Increment, level: int, rest: list[dict[str, Any]]) -> Choice:
    if not rest:
        notes = () if mode == "auto" else (f"there is no backup of {source} yet, so this is a full one",)
        return Choice(None, None, increment, level, notes=notes)
    if mode != "auto":
        raise Refused(
            f"No backup of {source} can be continued: {_shown(rest)}.",
            hint="Take a new full backup with --mode full; the view unusable_backups has more.",
        )
    warning = f"no backup of {source} can be continued, so this is a full one: {_shown(rest)}"
    return Choice(None, None, increment, level, warnings=(warning,))


def _shown(rows: list[dict[str, Any]]) -> str:
    shown = [f"{row['backup_id']} ({format_ts(row['end_ts'])}): {_WHY[row['reason']]}" for row in rows[:3]]
    more = [f"and {len(rows) - 3} more"] if len(rows) > 3 else []
    return "; ".join(shown + more)
