"""Plan the restore of a snapshot: which files to restore. The catalog's SQL selects them.

Planning writes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.formats.snapshots.names import Limits, require_safe
from lakebackup.formats.snapshots.tree import NO_TABLET
from lakebackup.requests import RunRequest
from lakebackup.rows.base import SNAPSHOT
from lakebackup.rules.kinds import no_source, only_one, require_kind_of, require_source
from lakebackup.rules.times import format_ts
from lakebackup.sql_engine import EngineChoice
from lakebackup.sql_engine.guard.check import check_select
from lakebackup.store.plan_file import PlanFile
from lakebackup.store.reader import LATEST, CatalogReader

Form = Literal["tree", "yugabyte", "flat"]
#: What identifies a file of `snapshot_files`: a SELECT that chooses files must return it.
KEY = ("source", "scope", "region", "name", "added_in")
#: The cost of creating a file, as the number of bytes that could be written in that time.
FILE_COST = 64 << 10
_MAX_SHOWN = 20
# What the restore's digest covers of a file. Its codec is left out: earlier versions did not know it, and a
# restore that they began can be resumed.
_DIGEST_COLUMNS = (
    "target", "bytes", "mtime_ms", "mode", "links", "sha256", "destination", "path", "position",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SnapshotRestoreRequest(RunRequest):
    """The options of a restore; `to_ts` in ms. `backup` may be the first characters of an id."""

    folder: str
    source: str | None = None
    to_ts: int | None = None
    backup: str | None = None
    tables: tuple[str, ...] = ()
    tablets: tuple[str, ...] = ()
    select: str | None = None
    form: Form = "tree"
    engine: EngineChoice = "auto"


@dataclass(frozen=True, slots=True)
class TablePart:
    """The files to restore of one table (of its one tablet `region`, if `regions` is 1).

    `pruned`: how many of them are deleted, such as `first_pruned`; `unknown`: how many have no SHA-256.
    """

    source: str
    scope: str
    regions: int
    region: str
    files: int
    bytes: int
    pruned: int
    first_pruned: str | None
    unknown: int

    @property
    def is_plain(self) -> bool:
        """Whether it is a folder of files, without tablets."""
        return self.regions == 1 and self.region == NO_TABLET


@dataclass(frozen=True, slots=True)
class SnapshotRestorePlan:
    """A planned restore. `file`: the files that it writes, as their bytes lie in the objects. `end_ts` is in
    ms.

    `backup_id`, `number` and `end_ts` are None when a SELECT chose the files.

    `damage`: why the backup is incomplete, if the user named it with --backup.
    """

    source: str
    backup_id: str | None
    end_ts: int | None
    tables: tuple[TablePart, ...]
    file: PlanFile = field(compare=False)
    notes: tuple[str, ...] = ()
    damage: str | None = None
    number: int | None = None

    @property
    def files(self) -> int:
        return sum(table.files for table in self.tables)

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in self.tables)

    @property
    def weight(self) -> int:
        """The cost of the restore in bytes: those to write, and FILE_COST for each file."""
        return self.bytes + self.files * FILE_COST


def folder_of_table(form: Form, scope: str) -> str:
    """The folder of a table's files below the target, as `restore_snapshot_files` names it; empty for the
    target itself."""
    if scope == NO_TABLET or form == "flat":
        return ""
    return f"table-{scope}" if form == "yugabyte" else scope


def plan_restore(request: SnapshotRestoreRequest, reader: CatalogReader) -> SnapshotRestorePlan:
    """Plan a restore. Writes nothing.

    Raises NotFound (no such source, backup, table or tablet), Refused (no complete backup at that time,
    pruned files, several tablets in one folder), UsageProblem (a bad SELECT, several sources).
    """
    if request.select is not None:
        file = _files_of(request, _with_chosen(request.select, reader))
        tables = _table_parts(_with_files(reader, file))
        sources = sorted({table.source for table in tables})
        if not sources:
            raise NotFound("The SELECT chose no file.", hint="It reads the relation snapshot_files.")
        if len(sources) > 1 or request.source not in (None, *sources):
            raise UsageProblem(
                f"The SELECT chose files of {', '.join(sources)}.",
                hint="Restore one source at a time: add AND source = '...' to the SELECT.",
            )
        plan = SnapshotRestorePlan(sources[0], None, None, tables, file)
    else:
        backup, notes = _find_backup(request, reader)
        selection = reader.with_rows("snapshot_chosen", chosen_schema().empty_table())
        file = _files_of(request, selection, source=backup["source"], number=backup["number"])
        files = _with_files(reader, file)
        tables = _table_parts(files)
        _refuse_unknown(request, backup, tables, files)
        damage = backup["reason"] and f"{backup['reason']}: {backup['detail'] or backup['path'] or ''}"
        plan = SnapshotRestorePlan(
            backup["source"],
            backup["backup_id"],
            backup["end_ts"],
            tables,
            file,
            tuple(notes),
            damage,
            backup["number"],
        )
    _refuse_pruned(plan)
    if request.form == "flat":
        _require_one_tablet(plan)
    return plan


def require_names(plan: SnapshotRestorePlan, reader: CatalogReader, limits: Limits) -> None:
    """Raise Refused unless every chosen file can be written under its name."""
    rows = _with_files(reader, plan.file).query("restore_snapshot_names", fold=limits.fold)
    require_safe(chain.from_iterable(batch.column("target").to_pylist() for batch in rows), limits)


def linked_bytes(plan: SnapshotRestorePlan, reader: CatalogReader) -> int:
    """How many bytes are not written because chosen files are hard links to others."""
    (linked,) = _with_files(reader, plan.file).rows("restore_snapshot_linked")
    return int(linked["bytes"])


def read_order(plan: SnapshotRestorePlan) -> Iterator[pa.RecordBatch]:
    """The chosen files in the order of their objects and offsets, with the columns of the digest."""
    return plan.file.batches(columns=_DIGEST_COLUMNS)


def read_folders(
    request: SnapshotRestoreRequest, plan: SnapshotRestorePlan, reader: CatalogReader
) -> Iterator[pa.RecordBatch]:
    """The folders of a backup, each before its subfolders: rows of restore_snapshot_folders.

    For a SELECT, which chooses only files, these are the folders that contain the files.
    """
    yield from _with_files(reader, plan.file).query(
        "restore_snapshot_folders",
        source=plan.source,
        number=plan.number,
        scopes=list(request.tables) or None,
        regions=list(request.tablets) or None,
        layout=request.form,
    )


def restore_digest(plan: SnapshotRestorePlan) -> str:
    """A digest of the chosen files and their names: equal restores have equal digests."""
    digest = hashlib.sha256()
    for batch in read_order(plan):
        texts = [column.cast("string").fill_null("") for column in batch.columns]
        lines = pc.binary_join_element_wise(*texts, "\0").to_pylist()
        digest.update("".join(f"{line}\n" for line in lines).encode())
    return digest.hexdigest()[:32]


def chosen_schema() -> pa.Schema:
    """The columns that the relation `snapshot_chosen` must have."""
    return pa.schema([(name, pa.int64() if name == "added_in" else pa.string()) for name in KEY])


def _find_backup(
    request: SnapshotRestoreRequest, reader: CatalogReader
) -> tuple[Mapping[str, Any], Sequence[str]]:
    """The backup to restore (the one named, or the newest complete one at the time), and notes on it."""
    if request.backup:
        own = _find_source(reader, request.source) if request.backup == LATEST else None
        backup_id = reader.resolve_backup(request.backup, own)
        backup_row = reader.first_row("parent_backup", backup_id=backup_id) or {}
        source = _find_source(reader, str(backup_row.get("source")))
        require_source(backup_id, source, request.source)
        (backup,) = reader.rows("restore_snapshot_backups", source=source, backup_id=backup_id, to_ts=None)
        if backup["state"] != "complete":
            raise Refused(
                f"Backup {backup_id} cannot be restored; its state is {backup['state']}.",
                hint="`lakebackup list` shows those that can be.",
            )
        return backup, []
    source = _find_source(reader, request.source)
    rows = reader.rows("restore_snapshot_backups", source=source, backup_id=None, to_ts=request.to_ts)
    if not rows:
        first = reader.rows("restore_snapshot_backups", source=source, backup_id=None, to_ts=None)
        raise Refused(
            f"No snapshot of {source} was backed up at or before {format_ts(request.to_ts or 0)}.",
            hint=f"Give a later --to-time, such as {format_ts(first[0]['end_ts'])}." if first else "",
        )
    backup, *skipped = rows
    if backup["reason"]:
        raise Refused(
            f"No backup of {source} at that time is complete; the newest is {backup['backup_id']}: "
            f"{backup['reason']}, {backup['detail'] or backup['path'] or ''}.",
            hint=f"`--backup {backup['backup_id']}` restores its undamaged files.",
        )
    return backup, [
        f"backup {row['backup_id']} of {format_ts(row['end_ts'])} is skipped, it is incomplete "
        f"({row['reason']}); --backup restores its undamaged files"
        for row in skipped
    ]


def _find_source(reader: CatalogReader, source: str | None) -> str:
    """The given source, or else the only one that has backups of snapshots."""
    if source:
        if not require_kind_of(reader, source, SNAPSHOT):
            raise no_source(reader, source)
        return source
    sources = [str(row["source"]) for row in reader.rows("restore_snapshot_sources")]
    return only_one(sources, "backup of a snapshot")


def _with_chosen(select: str, reader: CatalogReader) -> CatalogReader:
    """A reader with the user's SELECT as `snapshot_chosen`. UsageProblem unless it returns keys of stored
    files."""
    reader = reader.with_select("snapshot_chosen", check_select(select, reader.relations()))
    columns = [name.lower() for name in reader.columns("snapshot_chosen")]
    missing = [name for name in KEY if name not in columns]
    if missing:
        raise UsageProblem(
            f"The SELECT returns {', '.join(columns)}; a restore needs {', '.join(missing)} too.",
            hint=f"It must return {', '.join(KEY)} from `snapshot_files`; more columns are allowed.",
        )
    (unmatched,) = reader.rows("restore_snapshot_rest")
    if unmatched["files"]:
        raise UsageProblem(
            f"The SELECT chose {unmatched['files']} rows that are not in `snapshot_files`, such as "
            f"{unmatched['name']!r}.",
            hint=f"{', '.join(KEY)} must come from one row of `snapshot_files`.",
        )
    return reader


def _files_of(
    request: SnapshotRestoreRequest,
    reader: CatalogReader,
    *,
    source: str | None = None,
    number: int | None = None,
) -> PlanFile:
    return reader.plan_file(
        "restore_snapshot_files",
        source=source,
        number=number,
        scopes=list(request.tables) or None,
        regions=list(request.tablets) or None,
        layout=request.form,
    )


def _with_files(reader: CatalogReader, file: PlanFile) -> CatalogReader:
    """A reader with the files to restore as `snapshot_selected`."""
    return reader.with_rows("snapshot_selected", file)


def _table_parts(files: CatalogReader) -> tuple[TablePart, ...]:
    return tuple(TablePart(**row) for row in files.rows("restore_snapshot_tables"))


def _refuse_unknown(
    request: SnapshotRestoreRequest,
    backup: Mapping[str, Any],
    tables: Sequence[TablePart],
    files: CatalogReader,
) -> None:
    unknown = sorted(set(request.tables) - {table.scope for table in tables})
    if request.tablets:
        tablets = {row["region"] for row in files.rows("restore_snapshot_tablets")}
        unknown += sorted(set(request.tablets) - tablets)
    if not unknown and tables:
        return
    table_names = [row["scope"] for row in files.rows("show_scopes", backup_id=backup["backup_id"])]
    suffix = f" and {len(table_names) - _MAX_SHOWN} more" if len(table_names) > _MAX_SHOWN else ""
    raise NotFound(
        f"Backup {backup['backup_id']} holds no files of {', '.join(unknown) or 'any table'}.",
        hint=f"Its tables are {', '.join(table_names[:_MAX_SHOWN])}{suffix}; "
        "snapshot_files.region has their tablets.",
    )


def _refuse_pruned(plan: SnapshotRestorePlan) -> None:
    pruned = sum(table.pruned for table in plan.tables)
    if pruned:
        first = next(table.first_pruned for table in plan.tables if table.pruned)
        raise Refused(
            f"{pruned} of these files were pruned, such as {first!r}.",
            hint="Select only files that are stored: add AND stored to the SELECT.",
        )


def _require_one_tablet(plan: SnapshotRestorePlan) -> None:
    parts = [table for table in plan.tables if table.scope != NO_TABLET]
    if len(parts) > 1 or any(part.regions > 1 for part in parts):
        raise Refused(
            f"The files of {sum(part.regions for part in parts)} tablets cannot be restored into one folder.",
            hint="Choose one tablet with --table and --tablet, or another --layout.",
        )
