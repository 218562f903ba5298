"""Plans an import of backups from elsewhere: which are new, which rows are invalid or contradict the catalog,
and the values of columns that rows leave out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lakebackup.errors import UsageProblem
from lakebackup.rows.backups import Backup
from lakebackup.rows.base import ARCHIVE, State
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row
from lakebackup.rules.kinds import KINDS
from lakebackup.rules.layout import check_source

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,199}")
UNCOUNTED = -1
#: The columns in which a row may differ from an earlier import of the same backup. Their values depend on the
#: other backups in the program's list: for example, a log starts where the one listed before it ends.
_MAY_DIFFER = ("state", "start_ts")
_CHAIN = ("kind", "level", "parent", "base", "chain_position", "place", "parent_place")


@dataclass(slots=True)
class BackupsPlan:
    """A planned import. `new`: the new backups in the order of their numbers, source by source. `known_ids`:
    the ids of those that the catalog has.

    `states`: state -> id -> source, of the backups that get another state. `wrong`, `against`: (file, line,
    text) of the rows that are invalid, and of those that the catalog contradicts. `orphans`: the same of
    backups that continue a missing one, so that no restore can use them.
    """

    new: list[Backup] = field(default_factory=list)
    known_ids: set[str] = field(default_factory=set)
    states: dict[State, dict[str, str]] = field(default_factory=dict)
    wrong: list[tuple[int, int, str]] = field(default_factory=list)
    against: list[tuple[int, int, str]] = field(default_factory=list)
    orphans: list[tuple[int, int, str]] = field(default_factory=list)


def plan_backups(
    rows: Iterable[Mapping[str, Any]],
    catalog: Mapping[str, Mapping[str, Any]],
    *,
    is_export: bool,
    source_kind: str,
    listed: bool,
    compared: bool,
    mirror: bool = False,
) -> BackupsPlan:
    """Plan the import of `rows`, which ImportRows read without a problem. `catalog`: the catalog's, by id.

    `is_export`: they are rows of an export. `listed`: their files come as manifests. `compared`: their files
    come as lifetimes, so a backup without a parent is complete, and was compared with the one before it.
    `mirror`: the rows are all backups of their sources.
    """
    plan = BackupsPlan()
    rows_by_id: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        backup_id = row["backup_id"]
        problem = _find_problem(row, rows_by_id, is_export=is_export, source_kind=source_kind, listed=listed)
        if problem:
            plan.wrong.append(_located(row, problem))
            continue
        rows_by_id[backup_id] = row
        if backup_id in catalog:
            plan.known_ids.add(backup_id)
            catalog_row = catalog[backup_id]
            differing = [
                k
                for k, v in _columns(row).items()
                if v is not None and k not in _MAY_DIFFER and v != catalog_row[k]
            ]
            if differing:
                problem = f"the catalog has backup {backup_id} with another {', '.join(differing)}"
                plan.against.append(_located(row, problem))
    new_rows = [row for row in rows_by_id.values() if row["backup_id"] not in catalog]
    if is_export:
        _add_export(plan, new_rows, catalog)
    else:
        for source in sorted({row["source"] for row in new_rows}):
            own = [row for row in new_rows if row["source"] == source]
            _add_source(plan, source, own, {**catalog, **rows_by_id}, catalog, source_kind, compared)
        _compare_states(plan, rows_by_id, catalog, mirror=mirror)
        _leave_branches(plan, {row["source"] for row in rows_by_id.values()}, catalog)
    return plan


def _compare_states(
    plan: BackupsPlan,
    rows_by_id: Mapping[str, Mapping[str, Any]],
    catalog: Mapping[str, Mapping[str, Any]],
    *,
    mirror: bool,
) -> None:
    """Plan the new states of backups of other programs that have another state in the catalog."""
    sources = {row["source"] for row in rows_by_id.values()}
    for backup_id, catalog_row in catalog.items():
        if catalog_row["source_kind"] in KINDS or catalog_row["source"] not in sources:
            continue
        state: State | None
        if backup_id in rows_by_id:
            state = rows_by_id[backup_id]["state"] or ("complete" if mirror else None)
        else:
            state = "deleted" if mirror else None
        if state and state != catalog_row["state"]:
            plan.states.setdefault(state, {})[backup_id] = catalog_row["source"]


def _leave_branches(
    plan: BackupsPlan, sources: Collection[str], catalog: Mapping[str, Mapping[str, Any]]
) -> None:
    """Plan the state out_of_sync for the backups of a branch that end after a later branch of their source
    begins."""
    changed = {name: state for state, ids in plan.states.items() for name in ids}
    new_rows = [as_row(backup) for backup in plan.new]
    rows = [*new_rows, *({**row, "state": changed.get(name, row["state"])} for name, row in catalog.items())]
    rows = [
        row
        for row in rows
        if row["source"] in sources and row["source_kind"] not in KINDS and row["state"] == "complete"
    ]
    begins: dict[str, dict[int, int]] = {row["source"]: {} for row in rows}
    for row in rows:
        begin_ts = row["start_ts"] if row["kind"] == "log" else row["end_ts"]
        of_source = begins[row["source"]]
        of_source[row["branch"]] = min(begin_ts, of_source.get(row["branch"], begin_ts))
    superseded = {
        row["backup_id"]: row["source"]
        for row in rows
        if any(
            row["branch"] < branch and begin_ts < row["end_ts"]
            for branch, begin_ts in begins[row["source"]].items()
        )
    }
    plan.new = [replace(b, state="out_of_sync") if b.backup_id in superseded else b for b in plan.new]
    for name in superseded.keys() & catalog.keys():
        for ids in plan.states.values():
            ids.pop(name, None)
        if catalog[name]["state"] != "out_of_sync":
            plan.states.setdefault("out_of_sync", {})[name] = superseded[name]
    plan.states = {state: ids for state, ids in plan.states.items() if ids}


def numbered_schema() -> pa.Schema:
    """The columns of the relation that queries call `numbered`."""
    names = ("backup_id", "source", "source_kind", "destination", "number", "end_ts", "place", "level")
    return pa.schema([ARROW_SCHEMAS["backups"].field(name).with_nullable(True) for name in names])


def numbered(backups: Iterable[Backup]) -> pa.Table:
    """The new backups as the relation `numbered`: `place` counts those of a source from 1."""
    counts: dict[str, int] = {}
    rows = []
    for backup in backups:
        counts[backup.source] = counts.get(backup.source, 0) + 1
        rows.append({**as_row(backup), "place": counts[backup.source]})
    return pa.Table.from_pylist(rows, numbered_schema())


def _columns(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("row_")}


def _find_problem(
    row: Mapping[str, Any], rows_by_id: Mapping[str, Any], *, is_export: bool, source_kind: str, listed: bool
) -> str | None:
    backup_id = row["backup_id"]
    if backup_id in rows_by_id:
        return f"backup {backup_id} is given twice"
    if not _ID.fullmatch(backup_id):
        return f"{backup_id!r:.80} cannot be an id: letters, digits and . _ : + - are, at most 200"
    try:
        check_source(row["source"])
    except UsageProblem as error:
        return str(error).replace("\n", " ")
    if is_export:
        return None
    kind = row["source_kind"] or source_kind
    if kind in KINDS and kind != ARCHIVE:
        return f"source_kind {kind} is for backups of this program; bring those with an export's folder"
    chain = [name for name in _CHAIN if row[name] is not None]
    if listed and chain:
        return f"{', '.join(chain)}: with manifests every backup is complete; leave it out"
    return None


def _add_export(
    plan: BackupsPlan, new_rows: Iterable[Mapping[str, Any]], catalog: Mapping[str, Mapping[str, Any]]
) -> None:
    ids_by_number = {(row["source"], row["number"]): name for name, row in catalog.items()}
    for row in sorted(new_rows, key=lambda row: (row["source"], row["number"])):
        number_owner = ids_by_number.setdefault((row["source"], row["number"]), row["backup_id"])
        if number_owner != row["backup_id"]:
            problem = f"number {row['number']} of source {row['source']} is that of backup {number_owner}"
            plan.against.append(_located(row, problem))
        plan.new.append(Backup(**_columns(row)))


def _add_source(
    plan: BackupsPlan,
    source: str,
    rows: Iterable[Mapping[str, Any]],
    backups_by_id: Mapping[str, Mapping[str, Any]],
    catalog: Mapping[str, Mapping[str, Any]],
    source_kind: str,
    compared: bool,
) -> None:
    """Number and chain the new backups of one source, after those that the catalog has of it.

    Of backups that end at the same time, the one that is listed first comes first. `backups_by_id`: those of
    the import and of the catalog. A missing backup that another one continues gets a number, but no row.
    """
    own = sorted((row for row in catalog.values() if row["source"] == source), key=lambda row: row["number"])
    kinds = {row["source_kind"] for row in own}
    chain = {row["backup_id"]: row for row in own}
    number = own[-1]["number"] if own else 0
    newest = next((row for row in reversed(own) if row["kind"] != "log"), None)
    last = newest["backup_id"] if newest else None
    for row in sorted(
        rows, key=lambda row: (row["end_ts"], row["number"] or 0, row["row_file"], row["row_number"])
    ):
        kind, parent = row["source_kind"] or source_kind, row["parent"]
        if kinds - {kind}:
            problem = (
                f"source {source} is one of kind {', '.join(sorted(kinds))}, not {kind}: give it another name"
            )
            plan.against.append(_located(row, problem))
            continue
        kinds = {kind}
        if newest and row["end_ts"] < newest["end_ts"] and row["kind"] != "log":
            problem = (
                f"it ended before {newest['backup_id']}, which the catalog has: import in the order of time"
            )
            plan.against.append(_located(row, problem))
        elif row["number"] and row["number"] <= number:
            problem = (
                f"number {row['number']} does not come after {number}, that of a backup that ended before"
            )
            plan.wrong.append(_located(row, problem))
        elif row["kind"] == "log":
            if parent is not None or row["start_ts"] is None:
                problem = "a log has no parent, but the times that it covers: give start_ts too"
                plan.wrong.append(_located(row, problem))
            else:
                number = row["number"] or number + 1
                plan.new.append(_filled(row, kind, number, None))
        elif parent is None and row["kind"] not in (None, "full"):
            problem = f"a backup of kind {row['kind']} continues another: name that one as parent"
            plan.wrong.append(_located(row, problem))
        elif (
            parent is not None
            and parent not in chain
            and (parent in backups_by_id or not _ID.fullmatch(parent))
        ):
            plan.wrong.append(_located(row, f"its parent {parent!r:.80} is no earlier backup of {source}"))
        else:
            if parent is not None and parent not in chain:
                number += 1
                chain[parent] = _absent(parent, number)
            if parent is not None and parent not in backups_by_id:
                problem = f"its parent {parent} is not there, so backup {row['backup_id']} leads nowhere"
                plan.orphans.append(_located(row, problem))
            number = row["number"] or number + 1
            backup = _filled(row, kind, number, chain[parent] if parent else None)
            if compared and parent is None:
                backup = replace(backup, parent=last)
            last = backup.backup_id
            chain[last] = as_row(backup)
            plan.new.append(backup)


def _absent(backup_id: str, number: int) -> dict[str, Any]:
    """The columns of a backup without a row that the backups which continue it need."""
    return {
        "backup_id": backup_id, "base": backup_id, "chain_position": 0, "place": number, "end_ts": None,
    }  # fmt: skip


def _filled(
    row: Mapping[str, Any], source_kind: str, number: int, parent: Mapping[str, Any] | None
) -> Backup:
    """A backup with its place in the chain, and defaults for the columns that its row leaves out."""
    end_us = row["end_ts"] * 1000
    defaults = {
        **dict.fromkeys(("digest", "isolation", "codec", "created_by"), ""),
        **dict.fromkeys(("files", "bytes", "entries"), UNCOUNTED),
        "source_kind": source_kind,
        "tool": source_kind,
        "destination": f"{source_kind}:{row['source']}",
        "kind": "differential" if parent else "full",
        "level": int(parent is not None),
        "branch": 0,
        "state": "complete",
        "ts_domain": "ms",
        "start_ts": parent["end_ts"] if parent else None,
        "started_at": end_us,
        "finished_at": end_us,
    }
    chain_values = {
        "number": number,
        "place": number,
        "parent": parent["backup_id"] if parent else None,
        "base": parent["base"] if parent else row["backup_id"],
        "chain_position": parent["chain_position"] + 1 if parent else 0,
        "parent_place": parent["place"] if parent else None,
    }
    row_values = {name: value for name, value in _columns(row).items() if value is not None}
    return Backup(**{**_columns(row), **defaults, **row_values, **chain_values})


def _located(row: Mapping[str, Any], text: str) -> tuple[int, int, str]:
    return row["row_file"], row["row_number"], text


def counted(backups: Iterable[Backup], totals: Mapping[str, Mapping[str, int]]) -> list[Backup]:
    """The backups, with the totals of their files where their rows lack them."""
    counted_backups = []
    for backup in backups:
        sums = totals.get(backup.backup_id, {})
        uncounted = [name for name in ("files", "bytes", "entries") if getattr(backup, name) == UNCOUNTED]
        counts: dict[str, Any] = {name: sums.get(name, 0) for name in uncounted}
        counted_backups.append(replace(backup, **counts))
    return counted_backups
