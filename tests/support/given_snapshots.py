"""Snapshots as a test has them, and backups of them by hand: real objects and real tables, without Java."""

from __future__ import annotations

import hashlib
import io
import shutil
from copy import copy
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.catalogs import backup_id, publish
from tests.support.made_backups import MadeBackups

from lakebackup.rows.backups import Backup, DataFile, Scope
from lakebackup.rows.base import SNAPSHOT
from lakebackup.rows.snapshots import SnapshotDeparture, SnapshotFile
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.reader import CatalogReader
from lakebackup.store.writer import CatalogWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Given:
    """A file of a snapshot. `link`: those with the same one are hard links of each other."""

    scope: str = "t1"
    region: str = "a1"
    name: str
    data: bytes
    mtime_ms: int = 1_700_000_000_123
    mode: int = 0o644
    link: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.scope, self.region, self.name


class GivenSnapshots:
    """A destination and its catalog, to which backups of snapshots are added one after another."""

    def __init__(self, folder: Path, source: str = "yb") -> None:
        made = MadeBackups(folder, source)
        self.folder, self.source, self.storage = folder, source, made.storage
        self.destination = made.destination
        self.writer = CatalogWriter.open(None, str(folder))
        self.number = 0
        self._live: dict[tuple[str, str, str], SnapshotFile] = {}

    def reader(self) -> CatalogReader:
        """The catalog with all that was added."""
        return CatalogReader(str(self.folder))

    def copied(self, folder: Path) -> GivenSnapshots:
        """The same in another folder."""
        shutil.copytree(self.folder, folder)
        made = copy(self)
        made.folder, made.storage = folder, open_storage(str(folder))
        made.writer = CatalogWriter.open(None, str(folder))
        return made

    def rows(self) -> list[SnapshotFile]:
        """The files that the newest backup has."""
        return list(self._live.values())

    def backup(self, files: Iterable[Given], *, pack_below: int = 0) -> str:
        """One more backup; a file is copied when its name, size and time are not those of the one before.

        Its end_ts is 1000 a number.
        """
        self.number += 1
        name = backup_id(self.number)
        now = {file.key: file for file in files}
        kept = {
            key: row
            for key, row in self._live.items()
            if key in now and (row.bytes, row.mtime_ms) == (len(now[key].data), now[key].mtime_ms)
        }
        gone = [
            SnapshotDeparture(
                source=self.source,
                scope=row.scope,
                region=row.region,
                name=row.name,
                added_in=row.added_in,
                gone_in=self.number,
                gone_by=name,
            )
            for key, row in self._live.items()
            if key not in kept
        ]
        new = [file for key, file in now.items() if key not in kept]
        objects: list[DataFile] = []
        rows = self._copy(name, [file for file in new if len(file.data) >= pack_below], objects)
        rows += self._pack(name, [file for file in new if len(file.data) < pack_below], objects)
        self._live = kept | {(row.scope, row.region, row.name): row for row in rows}
        objects.append(self._listing(name, "files", rows))
        objects.append(self._listing(name, "gone", gone))
        publish(self.storage, self.writer, (self._manifest(name, objects, len(rows)), [objects]))
        return name

    def _copy(self, name: str, files: Sequence[Given], objects: list[DataFile]) -> list[SnapshotFile]:
        rows = []
        linked: dict[str, str] = {}
        for file in files:
            path = linked.get(file.link)
            if path is None:
                path = layout.snapshot_path(self.source, name, *file.key)
                objects.append(self._object(name, path, "file", file.data, 1))
            if file.link:
                linked[file.link] = path
            links = sum(other.link == file.link for other in files) if file.link else 1
            rows.append(self._row(name, file, path, 0, links))
        return rows

    def _pack(self, name: str, files: Sequence[Given], objects: list[DataFile]) -> list[SnapshotFile]:
        path = layout.pack_path(self.source, name, 0, 0, "0" * 8)
        if files:
            data = b"".join(file.data for file in files)
            objects.append(self._object(name, path, "pack", data, len(files)))
        rows, position = [], 0
        for file in files:
            rows.append(self._row(name, file, path, position, 1))
            position += len(file.data)
        return rows

    def _row(self, name: str, file: Given, path: str, position: int, links: int) -> SnapshotFile:
        return SnapshotFile(
            source=self.source,
            scope=file.scope,
            region=file.region,
            name=file.name,
            backup_id=name,
            added_in=self.number,
            bytes=len(file.data),
            mtime_ms=file.mtime_ms,
            mode=file.mode,
            links=links,
            sha256=hashlib.sha256(file.data).hexdigest(),
            destination=self.destination,
            path=path,
            position=position,
        )

    def _listing(
        self, name: str, kind: Literal["files", "gone"], rows: Sequence[SnapshotFile | SnapshotDeparture]
    ) -> DataFile:
        table, form = {
            "files": ("snapshot_files", "snapshot-files"),
            "gone": ("snapshot_departures", "snapshot-departures"),
        }[kind]
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([asdict(row) for row in rows], ARROW_SCHEMAS[table]), sink)
        path = layout.listing_path(self.source, name, 0, "0" * 8, kind)
        return self._object(name, path, form, sink.getvalue(), 0)

    def _object(self, name: str, path: str, form: str, data: bytes, entries: int) -> DataFile:
        self.storage.put(path, data)
        return DataFile(
            destination=self.destination,
            path=path,
            backup_id=name,
            added_in=self.number,
            source=self.source,
            scope="",
            epoch="-",
            region="",
            role="data" if entries else "meta",
            format=form,
            codec="null",
            bytes=len(data),
            raw_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            entries=entries,
            min_ts=0,
            max_ts=0,
            start_position=0,
            end_position=1,
        )

    def _manifest(self, name: str, objects: Sequence[DataFile], entries: int) -> sidecar.Manifest:
        tables = {scope: {region for at, region, _ in self._live if at == scope} for scope, *_ in self._live}
        scopes = [
            Scope(
                backup_id=name,
                source=self.source,
                scope=scope,
                epoch="-",
                regions=len(regions),
                settings="{}",
                replication=1,
            )
            for scope, regions in tables.items()
        ]
        backup = Backup(
            backup_id=name,
            number=self.number,
            source=self.source,
            source_kind=SNAPSHOT,
            destination=self.destination,
            kind="full" if self.number == 1 else "differential",
            level=0 if self.number == 1 else 1,
            parent=None if self.number == 1 else backup_id(self.number - 1),
            base=name,
            chain_position=0,
            place=self.number,
            parent_place=None,
            start_ts=None,
            end_ts=1000 * self.number,
            started_at=0,
            finished_at=1_000_000 * self.number,
            files=len(objects),
            bytes=sum(row.bytes for row in objects),
            entries=entries,
            digest="",
            isolation="-",
            codec="null",
            created_by="test",
            tool="test",
        )
        return sidecar.Manifest(backup=backup, positions=(), scopes=scopes, gaps=(), parts=1)
