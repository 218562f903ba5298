"""A log task's backups made by hand: real log files and rows as flushes leave them, without a feed.

`MadeChanges` takes changes as a decoder yields them and keeps the committed ones, so that a test can compare
a restore to any instant with `latest`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from tests.support.catalogs import (
    backup_id,
    made_backup,
    made_position,
    made_scope,
    publish,
    put_listing,
    put_object,
)

from lakebackup.encryption.objects import BackupKey
from lakebackup.formats.logs.cipher import Cipher
from lakebackup.formats.logs.events import (
    DEFAULT,
    DELETE,
    DELETES,
    META_TABLE,
    PUT,
    PUT_TYPE,
    TRUNCATES,
    WRITE,
    stored_schema,
)
from lakebackup.formats.logs.logfile import LogFileWriter, LogPlace, Scratch
from lakebackup.formats.logs.metafile import write_stream_meta
from lakebackup.rows.backups import Backup, DataFile
from lakebackup.rows.base import CHANGES
from lakebackup.rows.logs import LogRegion, LogTable
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import data_keys
from lakebackup.store import manifest as sidecar
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter

FEED = "changes"
#: A restored row, as restores and fulls have it.
RESULT = pa.schema(
    [
        pa.field("table_id", pa.int64()),
        pa.field("db", pa.string()),
        pa.field("name", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("start_ts", pa.int64()),
        pa.field("commit_ts", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("sub", pa.int32()),
    ]
)


@dataclass(frozen=True, slots=True)
class Change:
    """One event of the feed, with the columns of `events.captured_schema()` except its offset."""

    table_id: int
    key: bytes
    start_ts: int
    commit_ts: int | None = None
    value: bytes | None = None
    type: str | None = None
    cf: str = WRITE
    op: str = PUT
    region: int = 1
    store: str = "1"
    seq: int = 0
    sub: int = 0


def put_change(table: int, key: bytes, commit_ts: int, value: bytes, start_ts: int | None = None) -> Change:
    """A committed value that is stored in its write record."""
    return Change(table, key, commit_ts if start_ts is None else start_ts, commit_ts, value, PUT_TYPE)


def prewrite(table: int, key: bytes, start_ts: int, value: bytes) -> Change:
    """A value of a transaction that may commit or not."""
    return Change(table, key, start_ts, None, value, cf=DEFAULT)


def commit(table: int, key: bytes, start_ts: int, commit_ts: int) -> Change:
    """A commit: the value that was prewritten at `start_ts` is valid from `commit_ts` on."""
    return Change(table, key, start_ts, commit_ts, None, PUT_TYPE)


def delete(table: int, key: bytes, commit_ts: int) -> Change:
    """The key has no value from `commit_ts` on."""
    return Change(table, key, commit_ts, commit_ts, None, DELETES)


def rollback(table: int, key: bytes, start_ts: int) -> Change:
    """A rollback: the value that was prewritten at `start_ts` never becomes valid."""
    return Change(table, key, start_ts, cf=DEFAULT, op=DELETE)


def truncated(table: int, commit_ts: int) -> Change:
    """A truncation: the table is empty at `commit_ts`."""
    return Change(table, b"", commit_ts, commit_ts, None, TRUNCATES)


def table_name_row(table: int, name: str, from_ts: int, action: str = "create", **fields: Any) -> LogTable:
    """A table's name in the database `shop`. `flush` fills in the columns of its backup."""
    row = LogTable(
        backup_id="",
        source="",
        table_id=table,
        db="shop",
        name=name,
        from_ts=from_ts,
        action=action,  # type: ignore[arg-type]
        covered_from=max(0, from_ts - 1),
    )
    return replace(row, **fields)


@dataclass
class MadeChanges:
    """A source whose changes are flushed in one backup after another. `root` already holds a catalog.

    Log files are encrypted with `cipher`, a key of a key file, or for the recipients of `encryption`.
    """

    root: Path
    writer: CatalogWriter
    source: str = "shop"
    domain: str = "tso"
    codec: str = "zstd"
    cipher: Cipher | None = None
    encryption: RunEncryption | None = None
    start_ts: int = 0
    number: int = 0
    offset: int = 0
    tables: dict[int, str] = field(default_factory=dict)
    history: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.storage = open_storage(str(self.root))
        self.destination = destination_id(self.storage)
        self.end_ts = self.start_ts
        self.base = self.parent = ""
        self.parent_place: int | None = None

    def flush(
        self,
        changes: Sequence[Change],
        end_ts: int,
        *,
        names: Sequence[LogTable] = (),
        regions: Mapping[int, int] | None = None,
        finished_at: int | None = None,
    ) -> str:
        """Write the next log backup. `end_ts`: its checkpoint; `regions`: region -> resolved ts."""
        name = self._next()
        self.history += changes
        self.tables |= {row.table_id: row.name for row in names if row.action != "drop"}
        key = self._backup_key(name)
        rows = [
            self._log_file(name, list(file_changes), end_ts, key)
            for _, file_changes in groupby(sorted(changes, key=_file_key), key=_file_key)
        ]
        keys = {"backup_id": name, "number": self.number, "source": self.source, "store": "1"}
        log_regions = [
            LogRegion(**keys, region=str(region), resolved_ts=ts)
            for region, ts in (regions or {1: end_ts}).items()
        ]
        tables = [replace(row, backup_id=name, source=self.source) for row in names]
        objects = [self._listing(name, "log_regions", log_regions), self._listing(name, "log_tables", tables)]
        start, self.offset = self.offset, self.offset + len(changes)
        backup = self._backup(
            [*rows, *objects],
            kind="log",
            level=1,
            parent=self.parent or None,
            base=self.base or name,
            parent_place=self.parent_place,
            start_ts=self.end_ts,
            end_ts=end_ts,
            finished_at=finished_at,
        )
        scope_keys = {"backup_id": name, "source": self.source, "scope": FEED}
        positions = [made_position(start, self.offset, **scope_keys)]
        manifest = sidecar.Manifest(
            backup=backup, positions=positions, scopes=[made_scope(**scope_keys)], gaps=[], parts=2
        )
        publish(self.storage, self.writer, (manifest, [rows, objects]))
        write_stream_meta(self.storage, self.source, name, end_ts, rows)
        self.base, self.parent, self.parent_place = self.base or name, name, self.number
        self.end_ts = end_ts
        return name

    def full(self, ts: int, *, finished_at: int | None = None) -> str:
        """Write a full of what was committed at `ts`: a Delta table, and a row for each of its objects."""
        name = self._next()
        folder = layout.full_folder(self.source, name)
        rows = [
            {"db": "shop", "name": self.tables.get(row["table_id"], ""), **row} for row in self.latest(ts)
        ]
        write_deltalake(f"{self.root}/{folder}", pa.Table.from_pylist(rows, RESULT))
        objects = [
            put_object(
                self.storage,
                blob.path,
                self.storage.get(blob.path),
                format="delta",
                **self._object_columns(name),
            )
            for blob in self.storage.list(folder)
            if not blob.path.rpartition("/")[2].startswith(".")
        ]
        backup = self._backup(
            objects,
            kind="full",
            level=0,
            parent=None,
            base=name,
            parent_place=None,
            start_ts=None,
            end_ts=ts,
            finished_at=finished_at,
        )
        manifest = sidecar.Manifest(backup=backup, positions=[], scopes=[], gaps=[], parts=1)
        publish(self.storage, self.writer, (manifest, [objects]))
        return name

    def latest(self, ts: int) -> list[dict[str, Any]]:
        """The rows that were committed at `ts`, one a key, in the order of the keys."""
        values = {
            (c.table_id, c.key, c.start_ts): c.value for c in self.history if (c.cf, c.op) == (DEFAULT, PUT)
        }
        writes = [c for c in self.history if c.type and c.op == PUT and (c.commit_ts or 0) <= ts]
        latest_by_key: dict[tuple[int, bytes], Change] = {}
        for write in sorted(writes, key=lambda c: (c.commit_ts, c.seq, c.sub)):
            if write.type == TRUNCATES:
                latest_by_key = {
                    table_key: c for table_key, c in latest_by_key.items() if table_key[0] != write.table_id
                }
            elif write.type == DELETES:
                latest_by_key.pop((write.table_id, write.key), None)
            elif write.type == PUT_TYPE and write.table_id != META_TABLE:
                value = (
                    write.value
                    if write.value is not None
                    else values[write.table_id, write.key, write.start_ts]
                )
                latest_by_key[write.table_id, write.key] = replace(write, value=value)
        names = ("table_id", "key", "value", "start_ts", "commit_ts", "seq", "sub")
        return [
            {name: getattr(latest_by_key[table_key], name) for name in names}
            for table_key in sorted(latest_by_key)
        ]

    def _next(self) -> str:
        self.number += 1
        return backup_id(self.number)

    def _backup(self, rows: Sequence[DataFile], *, finished_at: int | None, **fields: Any) -> Backup:
        return made_backup(
            self.number,
            rows,
            source=self.source,
            source_kind=CHANGES,
            destination=self.destination,
            chain_position=0 if fields["parent"] is None else self.number - 1,
            ts_domain=self.domain,
            started_at=1_000_000 * self.number,
            finished_at=1_000_000 * self.number if finished_at is None else finished_at,
            codec=self.codec,
            **fields,
        )

    def _backup_key(self, name: str) -> BackupKey | None:
        """Write the object and the rows of the data key of a backup; None without recipients."""
        if self.encryption is None:
            return None
        key = self.encryption.stored_key(self.storage, self.source, name)
        self.writer.append(data_keys.read(self.storage, self.source, name, key.key_id).rows)
        return key

    def _log_file(
        self, name: str, changes: Sequence[Change], resolved_ts: int, key: BackupKey | None
    ) -> DataFile:
        first, names = changes[0], [*stored_schema().names, "offset"]
        log_place = LogPlace(
            source=self.source,
            backup_id=name,
            table_id=first.table_id,
            region=first.region,
            cf=first.cf,
            op=first.op,
            store=first.store,
        )
        rows = [{"offset": self.offset, **{n: getattr(c, n) for n in stored_schema().names}} for c in changes]
        schema = pa.schema([*stored_schema(), pa.field("offset", pa.int64(), nullable=False)])
        with Scratch() as scratch:
            file = LogFileWriter(log_place, scratch, self.codec)
            file.add(pa.RecordBatch.from_pylist(rows, schema=schema).select(names))
            columns = file.publish(self.storage, key or self.cipher) | {"resolved_ts": resolved_ts}
        return DataFile(destination=self.destination, added_in=self.number, ts_domain=self.domain, **columns)

    def _listing(self, name: str, table: str, rows: Sequence[LogRegion | LogTable]) -> DataFile:
        path = f"{layout.backup_folder(self.source, name)}listing/{table}.parquet"
        return put_listing(self.storage, path, table, rows, **self._object_columns(name))

    def _object_columns(self, name: str) -> dict[str, Any]:
        """The columns that the rows of a backup's objects have in common."""
        source_columns = {"destination": self.destination, "source": self.source, "ts_domain": self.domain}
        region_columns = {"scope": "-", "region": "-", "codec": "none"}
        return {"backup_id": name, "added_in": self.number, **source_columns, **region_columns}


def _file_key(change: Change) -> tuple[str, int, int, str, str]:
    return change.store, change.region, change.table_id, change.cf, change.op
