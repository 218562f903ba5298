"""Backups of snapshots made by hand, objects and rows, as a backup leaves them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.catalogs import backup_id, publish

from lakebackup.rows.backups import Backup, DataFile, Scope
from lakebackup.rows.base import SNAPSHOT
from lakebackup.rows.snapshots import SnapshotDeparture, SnapshotFile
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.roots import destination_id

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from lakebackup.store.writer import CatalogWriter


TABLE = "t1"


@dataclass
class MadeSnapshots:
    """A source whose snapshots come one after another. `root` holds a catalog already."""

    root: Path
    writer: CatalogWriter
    source: str = "tablets"
    number: int = 0

    def __post_init__(self) -> None:
        self.storage = open_storage(str(self.root))
        self.destination = destination_id(self.storage)
        self.live: dict[str, tuple[bytes, SnapshotFile]] = {}

    def take(self, files: Mapping[str, bytes], *, packed: Collection[str] = ()) -> str:
        """Back up one snapshot: names (below one tablet) with their contents, some of them in one pack."""
        self.number += 1
        name = backup_id(self.number)
        changed = {path: data for path, data in files.items() if self.live.get(path, (None,))[0] != data}
        gone = [
            SnapshotDeparture(
                source=self.source,
                scope=TABLE,
                region="a",
                name=path,
                added_in=row.added_in,
                gone_in=self.number,
                gone_by=name,
            )
            for path, (_, row) in self.live.items()
            if path not in files or path in changed
        ]
        objects, rows = self._copied(name, changed, packed)
        self.live = {path: kept for path, kept in self.live.items() if path in files and path not in changed}
        self.live |= {row.name: (files[row.name], row) for row in rows}
        objects.append(self._listing(name, "files", rows))
        objects.append(self._listing(name, "gone", gone))
        publish(self.storage, self.writer, (self._manifest(name, objects), [objects]))
        return name

    def _copied(
        self, name: str, changed: Mapping[str, bytes], packed: Collection[str]
    ) -> tuple[list[DataFile], list[SnapshotFile]]:
        objects, rows = [], []
        pack, path_of_pack = b"", layout.pack_path(self.source, name, 0, 0, "0" * 8)
        for path, data in changed.items():
            where, position = layout.snapshot_path(self.source, name, TABLE, "a", path), 0
            if path in packed:
                where, position = path_of_pack, len(pack)
                pack += data
            else:
                objects.append(self._object(name, where, data, "file", 1))
            rows.append(
                SnapshotFile(
                    source=self.source,
                    scope=TABLE,
                    region="a",
                    name=path,
                    backup_id=name,
                    added_in=self.number,
                    bytes=len(data),
                    mtime_ms=1000 * self.number,
                    mode=0o644,
                    links=1,
                    sha256=hashlib.sha256(data).hexdigest(),
                    destination=self.destination,
                    path=where,
                    position=position,
                )
            )
        if pack:
            objects.append(self._object(name, path_of_pack, pack, "pack", len(packed & changed.keys())))
        return objects, rows

    def _listing(self, name: str, kind: str, rows: Sequence[SnapshotFile | SnapshotDeparture]) -> DataFile:
        table = "snapshot_files" if kind == "files" else "snapshot_departures"
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist([as_row(row) for row in rows], ARROW_SCHEMAS[table]), sink)
        path = layout.listing_path(self.source, name, 0, "0" * 8, kind)  # type: ignore[arg-type]
        form = "snapshot-files" if kind == "files" else "snapshot-departures"
        return self._object(name, path, sink.getvalue().to_pybytes(), form, 0)

    def _object(self, name: str, path: str, data: bytes, form: str, entries: int) -> DataFile:
        self.storage.put(path, data)
        return DataFile(
            destination=self.destination,
            path=path,
            backup_id=name,
            added_in=self.number,
            source=self.source,
            scope=TABLE if form == "file" else "",
            epoch="-",
            region="a" if form == "file" else "",
            role="data" if form in ("file", "pack") else "meta",
            format=form,
            codec="null",
            bytes=len(data),
            raw_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            entries=entries,
            min_ts=1000 * self.number if entries else 0,
            max_ts=1000 * self.number if entries else 0,
            start_position=0,
            end_position=1,
        )

    def _manifest(self, name: str, objects: Sequence[DataFile]) -> sidecar.Manifest:
        first = self.number == 1
        return sidecar.Manifest(
            backup=Backup(
                backup_id=name,
                number=self.number,
                source=self.source,
                source_kind=SNAPSHOT,
                destination=self.destination,
                kind="full" if first else "differential",
                level=0 if first else 1,
                parent=None if first else backup_id(self.number - 1),
                base=name,
                chain_position=0,
                place=self.number,
                parent_place=None,
                start_ts=None,
                end_ts=1000 * self.number,
                started_at=1_000_000 * self.number,
                finished_at=1_000_000 * self.number,
                files=len(objects),
                bytes=sum(row.bytes for row in objects),
                entries=sum(row.entries for row in objects),
                digest="",
                isolation="-",
                codec="null",
                created_by="test",
                tool="test",
            ),
            positions=[],
            scopes=[
                Scope(
                    backup_id=name,
                    source=self.source,
                    scope=TABLE,
                    epoch="-",
                    regions=1,
                    settings="{}",
                    replication=1,
                )
            ],
            gaps=[],
            parts=1,
        )
