"""Which of the backups that come from elsewhere are new, what stands against them, and what was left out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lakebackup.errors import UsageProblem
from lakebackup.rows.backups import Backup
from lakebackup.rows.base import CHANGES, QUEUES, SNAPSHOT
from lakebackup.rows.tables import as_row
from lakebackup.rules.layout import check_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

#: The kind of source whose backups this program makes itself.
OWN = "kafka"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,199}")
_CHAIN = ("kind", "level", "parent", "base", "chain_position", "place", "parent_place")


@dataclass(slots=True)
class BackupsPlan:
    """New backups in the order of their numbers, source by source; ids of those that the catalog has.

    `wrong` and `against`: (file, line, text) of rows that make no sense, and that the catalog contradicts.
    """

    new: list[Backup] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    wrong: list[tuple[int, int, str]] = field(default_factory=list)
    against: list[tuple[int, int, str]] = field(default_factory=list)


def plan_backups(
    rows: Iterable[Mapping[str, Any]],
    held: Mapping[str, Mapping[str, Any]],
    *,
    whole: bool,
    source_kind: str,
    listed: bool,
    chained: bool,
) -> BackupsPlan:
    """`rows` as `given` reads them, without problems; `held`: the catalog's backups by id.

    `whole`: rows of an export. `listed`: their files come as manifests. `chained`: a source's backups
    continue one another in the order of end_ts unless they say otherwise.
    """
    plan = BackupsPlan()
    given: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        place, backup_id = (row["row_file"], row["row_number"]), row["backup_id"]
        why = _wrong(row, given, whole=whole, source_kind=source_kind, listed=listed)
        if why:
            plan.wrong.append((*place, why))
            continue
        given[backup_id] = row
        if backup_id in held:
            plan.known.add(backup_id)
            other = [
                k for k, v in _said(row).items() if v is not None and k != "state" and v != held[backup_id][k]
            ]
            if other:
                plan.against.append(
                    (*place, f"the catalog has backup {backup_id} with another {', '.join(other)}")
                )
    fresh = [row for row in given.values() if row["backup_id"] not in held]
    if whole:
        _whole(plan, fresh, held)
    else:
        for source in sorted({row["source"] for row in fresh}):
            own = [row for row in fresh if row["source"] == source]
            _Source(plan, source, held, given, source_kind, chained).add(own)
    return plan


def numbered_schema() -> pa.Schema:
    """Of the relation that queries call `numbered`."""
    import pyarrow as pa

    text, number = pa.string(), pa.int64()
    kinds = [
        *((name, text) for name in ("backup_id", "source", "source_kind", "destination")),
        *((name, number) for name in ("number", "end_ts", "place")),
        ("level", pa.int32()),
    ]
    return pa.schema(kinds)


def numbered(backups: Iterable[Backup]) -> pa.Table:
    """The new backups as the relation `numbered`: `place` counts those of a source from 1."""
    import pyarrow as pa

    places: dict[str, int] = {}
    rows = []
    for backup in backups:
        places[backup.source] = places.get(backup.source, 0) + 1
        rows.append({**as_row(backup), "place": places[backup.source]})
    return pa.Table.from_pylist(rows, numbered_schema())


def _said(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("row_")}


def _wrong(
    row: Mapping[str, Any], given: Mapping[str, Any], *, whole: bool, source_kind: str, listed: bool
) -> str | None:
    backup_id = row["backup_id"]
    if backup_id in given:
        return f"backup {backup_id} is given twice"
    if not _ID.fullmatch(backup_id):
        return f"{backup_id!r:.80} cannot be an id: letters, digits and . _ : + - are, at most 200"
    try:
        check_source(row["source"])
    except UsageProblem as error:
        return str(error).replace("\n", " ")
    if whole:
        return None
    kind = row["source_kind"] or source_kind
    if kind in (OWN, SNAPSHOT, CHANGES, QUEUES):
        return f"source_kind {kind} is for backups of this program; bring those with an export's folder"
    chain = [name for name in _CHAIN if row[name] is not None]
    if listed and chain:
        return f"{', '.join(chain)}: with manifests, a source's backups continue one another; leave it out"
    return None


def _whole(
    plan: BackupsPlan, fresh: Iterable[Mapping[str, Any]], held: Mapping[str, Mapping[str, Any]]
) -> None:
    taken = {(row["source"], row["number"]): name for name, row in held.items()}
    for row in sorted(fresh, key=lambda row: (row["source"], row["number"])):
        other = taken.setdefault((row["source"], row["number"]), row["backup_id"])
        if other != row["backup_id"]:
            why = f"number {row['number']} of source {row['source']} is that of backup {other}"
            plan.against.append((row["row_file"], row["row_number"], why))
        plan.new.append(Backup(**_said(row)))


class _Source:
    """Numbers and chains of the new backups of one source."""

    def __init__(
        self,
        plan: BackupsPlan,
        source: str,
        held: Mapping[str, Mapping[str, Any]],
        given: Mapping[str, Mapping[str, Any]],
        source_kind: str,
        chained: bool,
    ) -> None:
        self.plan, self.source, self.kind, self.chained = plan, source, source_kind, chained
        self.given = given
        own = sorted((row for row in held.values() if row["source"] == source), key=lambda row: row["number"])
        self.kinds = {row["source_kind"] for row in own}
        self.chain: dict[str, tuple[str, int, int | None]] = {
            row["backup_id"]: (row["base"], row["chain_position"], row["place"]) for row in own
        }
        self.newest = own[-1] if own else None
        self.number = own[-1]["number"] if own else 0
        self.last: str | None = own[-1]["backup_id"] if own else None

    def add(self, rows: list[Mapping[str, Any]]) -> None:
        for row in sorted(rows, key=lambda row: (row["end_ts"], row["number"] or 0, row["backup_id"])):
            place = (row["row_file"], row["row_number"])
            kind = row["source_kind"] or self.kind
            if self.kinds - {kind}:
                why = f"source {self.source} is one of kind {', '.join(sorted(self.kinds))}, not {kind}"
                self.plan.against.append((*place, f"{why}: give it another name"))
                continue
            if self.newest and row["end_ts"] < self.newest["end_ts"]:
                newest = self.newest["backup_id"]
                why = f"it ended before {newest}, which the catalog has: import in the order of time"
                self.plan.against.append((*place, why))
                continue
            number = row["number"] or self.number + 1
            if number <= self.number:
                why = f"number {number} does not come after {self.number}, that of a backup that ended before"
                self.plan.wrong.append((*place, why))
                continue
            made = self._made(row, number, kind)
            if made is None:
                self.plan.wrong.append(
                    (*place, f"its parent {row['parent']!r:.80} is no earlier backup of {self.source}")
                )
                continue
            self.number, self.last = number, made.backup_id
            self.chain[made.backup_id] = (made.base, made.chain_position, made.place)
            self.plan.new.append(made)

    def _made(self, row: Mapping[str, Any], number: int, source_kind: str) -> Backup | None:
        parent = row["parent"]
        if parent is None and self.chained and row["kind"] != "full":
            parent = self.last
        if parent is not None and parent not in self.chain:
            return None
        base, position, place = self.chain[parent] if parent else (row["backup_id"], -1, None)
        filled = {
            "source_kind": source_kind,
            "destination": f"{source_kind}:{self.source}",
            "kind": "differential" if parent else "full",
            "level": 1 if parent else 0,
            "branch": 0,
            "state": "complete",
            "ts_domain": "ms",
            "started_at": row["end_ts"] * 1000,
            "finished_at": row["end_ts"] * 1000,
            "digest": "",
            "isolation": "",
            "codec": "",
            "created_by": "",
            "tool": source_kind,
            "files": UNCOUNTED,
            "bytes": UNCOUNTED,
            "entries": UNCOUNTED,
        }
        own = {
            "number": number,
            "parent": parent,
            "base": base,
            "chain_position": position + 1,
            "place": number,
            "parent_place": place,
        }
        said = _said(row)
        return Backup(**{**said, **{k: v for k, v in filled.items() if said[k] is None}, **own})


UNCOUNTED = -1


def counted(backups: Iterable[Backup], totals: Mapping[str, Mapping[str, int]]) -> list[Backup]:
    """Backups with what their files add up to, where nobody said."""
    none = {"files": 0, "bytes": 0, "entries": 0}
    made = []
    for backup in backups:
        found = totals.get(backup.backup_id, none)
        counts: dict[str, Any] = {name: found[name] for name in none if getattr(backup, name) == UNCOUNTED}
        made.append(replace(backup, **counts))
    return made
