"""From what a person asks to have back of a snapshot to the files: the catalog's SQL chooses them.

Planning writes nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Literal

from lakebackup.errors import NotFound, Refused, UsageProblem
from lakebackup.formats.snapshots.names import require_safe
from lakebackup.formats.snapshots.tree import WHOLE
from lakebackup.requests import Request
from lakebackup.rows.base import SNAPSHOT
from lakebackup.rules.kinds import only_one, require_kind_of, require_source
from lakebackup.rules.times import format_ts
from lakebackup.sql_engine.guard.check import check_select

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakebackup.formats.snapshots.names import Limits
    from lakebackup.sql_engine import EngineChoice
    from lakebackup.store.reader import CatalogReader
    from lakebackup.store.selection import Selection

Form = Literal["tree", "yugabyte", "flat"]
#: What identifies a file of `snapshot_files`: a SELECT that chooses files must return it.
KEY = ("source", "scope", "region", "name", "added_in")
#: What it costs to make a file, in bytes that could be written meanwhile.
EACH = 64 << 10
_SHOWN = 20
# So many files are sorted in less than 100 MB.
_SORTED = 250_000


@dataclass(frozen=True, slots=True)
class SnapshotRestoreRequest(Request):
    """What a person asked for; `to_ts` in ms. `backup` may be the beginning of an id."""

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
    """What a restore brings of one table; `unknown` files have no SHA-256 to check them by."""

    source: str
    scope: str
    regions: int
    region: str
    files: int
    bytes: int
    pruned: int
    first_pruned: str | None
    unknown: int


@dataclass(frozen=True, slots=True)
class SnapshotRestorePlan:
    """A restore as a value: `chosen` are the files. `backup_id` and `end_ts` (ms) are None when a SELECT
    chose them.

    `damage`: why the backup is not whole, where a person named it all the same.
    """

    source: str
    backup_id: str | None
    end_ts: int | None
    tables: tuple[TablePart, ...]
    chosen: Selection = field(compare=False)
    notes: tuple[str, ...] = ()
    damage: str | None = None

    @property
    def files(self) -> int:
        return sum(table.files for table in self.tables)

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in self.tables)

    @property
    def weight(self) -> int:
        """How much work it is, in bytes that could be written meanwhile."""
        return self.bytes + self.files * EACH


def plan_restore(request: SnapshotRestoreRequest, reader: CatalogReader) -> SnapshotRestorePlan:
    """What the restore would bring. Writes nothing.

    Raises NotFound (no such source, backup, table or tablet), Refused (no whole backup then, files that were
    pruned, several tablets in one folder), UsageProblem (a bad SELECT, several sources).
    """
    if request.select is not None:
        _choose(request.select, reader)
        files = _select(request, reader)
        tables = _tables(files)
        sources = sorted({table.source for table in tables})
        if not sources:
            raise NotFound("The SELECT chose no file.", hint="It reads the relation snapshot_files.")
        if len(sources) > 1 or request.source not in (None, *sources):
            raise UsageProblem(
                f"The SELECT chose files of {', '.join(sources)}.",
                hint="Restore one source at a time: add AND source = '...' to the SELECT.",
            )
        made = SnapshotRestorePlan(sources[0], None, None, tables, files)
    else:
        backup, notes = _backup(request, reader)
        reader.give("snapshot_chosen", chosen_schema().empty_table())
        files = _select(request, reader, source=backup["source"], number=backup["number"])
        tables = _tables(files)
        _refuse_unknown(request, backup, tables, files)
        damage = backup["reason"] and f"{backup['reason']}: {backup['detail'] or backup['path'] or ''}"
        made = SnapshotRestorePlan(
            backup["source"], backup["backup_id"], backup["end_ts"], tables, files, tuple(notes), damage
        )
    _require_stored(made)
    if request.form == "flat":
        _require_one(made)
    return made


def require_names(made: SnapshotRestorePlan, limits: Limits) -> None:
    """Refused when the chosen files cannot all be written under their names."""
    rows = made.chosen.query("restore_snapshot_names", fold=limits.fold)
    require_safe(chain.from_iterable(batch.column("target").to_pylist() for batch in rows), limits)


def linked_bytes(made: SnapshotRestorePlan) -> int:
    """How many bytes of the chosen files hard links save."""
    (linked,) = made.chosen.rows("restore_snapshot_linked")
    return int(linked["bytes"])


def passes(made: SnapshotRestorePlan) -> list[dict[str, str]]:
    """Parameters of the query restore_snapshot_order: of many files some objects at a time are sorted."""
    count = min(1 + made.files // _SORTED, 256)
    cuts = [f"{256 * number // count:02x}" for number in range(count)]
    return [{"first": first, "beyond": beyond} for first, beyond in pairwise([*cuts, "g"])]


def in_order(made: SnapshotRestorePlan) -> Iterator[pa.RecordBatch]:
    """The chosen files as their bytes lie, an object's one after another: rows of restore_snapshot_order."""
    for bounds in passes(made):
        yield from made.chosen.query("restore_snapshot_order", **bounds)


def digest_of(made: SnapshotRestorePlan) -> str:
    """What identifies this restore, however it was asked for: a digest of files and names."""
    import pyarrow.compute as pc

    digest = hashlib.sha256()
    for batch in in_order(made):
        texts = [column.cast("string").fill_null("") for column in batch.columns]
        lines = pc.binary_join_element_wise(*texts, "\0").to_pylist()
        digest.update("".join(f"{line}\n" for line in lines).encode())
    return digest.hexdigest()[:32]


def chosen_schema() -> pa.Schema:
    """What the relation `snapshot_chosen` must have."""
    import pyarrow as pa

    return pa.schema([(name, pa.int64() if name == "added_in" else pa.string()) for name in KEY])


def _backup(
    request: SnapshotRestoreRequest, reader: CatalogReader
) -> tuple[Mapping[str, Any], Sequence[str]]:
    """The backup that a restore to a time reads, or that a person named; what to know of it."""
    if request.backup:
        backup_id = reader.resolve_backup(request.backup)
        named = reader.one("parent_backup", backup_id=backup_id) or {}
        source = _source(reader, str(named.get("source")))
        require_source(backup_id, source, request.source)
        (found,) = reader.rows("restore_snapshot_backups", source=source, backup_id=backup_id, to_ts=None)
        if found["state"] != "complete":
            raise Refused(
                f"Backup {backup_id} cannot be restored; its state is {found['state']}.",
                hint="`lakebackup list` shows those that can be.",
            )
        return found, []
    source = _source(reader, request.source)
    rows = reader.rows("restore_snapshot_backups", source=source, backup_id=None, to_ts=request.to_ts)
    if not rows:
        first = reader.rows("restore_snapshot_backups", source=source, backup_id=None, to_ts=None)
        raise Refused(
            f"No snapshot of {source} was backed up at or before {format_ts(request.to_ts or 0)}.",
            hint=f"Give a later --time, such as {format_ts(first[0]['end_ts'])}." if first else "",
        )
    found, *passed = rows
    if found["reason"]:
        raise Refused(
            f"No backup of {source} then is whole; the newest, {found['backup_id']}, is not: "
            f"{found['reason']}, {found['detail'] or found['path'] or ''}.",
            hint=f"`--backup {found['backup_id']}` restores those of its files that are.",
        )
    return found, [
        f"backup {row['backup_id']} of {format_ts(row['end_ts'])} is passed over, it is not whole "
        f"({row['reason']}); --backup restores those of its files that are"
        for row in passed
    ]


def _source(reader: CatalogReader, asked: str | None) -> str:
    """The source that was asked for, or the one that has backups of snapshots."""
    if asked:
        if not require_kind_of(reader, asked, SNAPSHOT):
            raise NotFound(f"There is no backup of {asked}.", hint="`lakebackup list` shows what there is.")
        return asked
    found = [str(row["source"]) for row in reader.rows("restore_snapshot_sources")]
    return only_one(found, "backup of a snapshot")


def _choose(select: str, reader: CatalogReader) -> None:
    """Give a person's SELECT the name `snapshot_chosen`. UsageProblem when it lacks columns of the key."""
    reader.define_checked("snapshot_chosen", check_select(select, reader.relations()))
    columns = [name.lower() for name in reader.columns("snapshot_chosen")]
    missing = [name for name in KEY if name not in columns]
    if missing:
        raise UsageProblem(
            f"The SELECT returns {', '.join(columns)}; a restore needs {', '.join(missing)} too.",
            hint=f"Let it return {', '.join(KEY)} of rows of `snapshot_files`; other columns do not matter.",
        )
    (rest,) = reader.rows("restore_snapshot_rest")
    if rest["files"]:
        raise UsageProblem(
            f"The SELECT chose {rest['files']} rows that are no file of `snapshot_files`, such as "
            f"{rest['name']!r}.",
            hint=f"{', '.join(KEY)} must be those of its rows.",
        )


def _select(
    request: SnapshotRestoreRequest,
    reader: CatalogReader,
    *,
    source: str | None = None,
    number: int | None = None,
) -> Selection:
    return reader.choose(
        "snapshot_selected",
        "restore_snapshot_files",
        source=source,
        number=number,
        scopes=list(request.tables) or None,
        regions=list(request.tablets) or None,
        layout=request.form,
    )


def _tables(files: Selection) -> tuple[TablePart, ...]:
    return tuple(TablePart(**row) for row in files.rows("restore_snapshot_tables"))


def _refuse_unknown(
    request: SnapshotRestoreRequest,
    backup: Mapping[str, Any],
    tables: Sequence[TablePart],
    files: Selection,
) -> None:
    unknown = sorted(set(request.tables) - {table.scope for table in tables})
    if request.tablets:
        tablets = {row["region"] for row in files.rows("restore_snapshot_tablets")}
        unknown += sorted(set(request.tablets) - tablets)
    if not unknown and tables:
        return
    held = [row["scope"] for row in files.reader.rows("show_scopes", backup_id=backup["backup_id"])]
    more = f" and {len(held) - _SHOWN} more" if len(held) > _SHOWN else ""
    raise NotFound(
        f"Backup {backup['backup_id']} holds no files of {', '.join(unknown) or 'any table'}.",
        hint=f"Its tables are {', '.join(held[:_SHOWN])}{more}; snapshot_files.region has their tablets.",
    )


def _require_stored(made: SnapshotRestorePlan) -> None:
    pruned = sum(table.pruned for table in made.tables)
    if pruned:
        first = next(table.first_pruned for table in made.tables if table.pruned)
        raise Refused(
            f"{pruned} of these files were pruned, such as {first!r}.",
            hint="Leave out rows of `snapshot_files` that are not stored: AND stored.",
        )


def _require_one(made: SnapshotRestorePlan) -> None:
    parts = [table for table in made.tables if table.scope != WHOLE]
    if len(parts) > 1 or any(part.regions > 1 for part in parts):
        raise Refused(
            f"The files of {sum(part.regions for part in parts)} tablets do not go into one folder.",
            hint="Choose one with --table and --tablet, or another --layout.",
        )
