"""Snapshots and their backups made by hand: real objects and real tables, without Java."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.support.catalogs import backup_id, made_backup, made_scope, publish, put_listing, put_object
from tests.support.made_backups import MadeBackups

from lakebackup.rows.backups import DataFile
from lakebackup.rows.base import SNAPSHOT
from lakebackup.rows.snapshots import SnapshotDeparture, SnapshotFile
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter


@dataclass(frozen=True, kw_only=True)
class FileContent:
    """A file of a snapshot. Files with the same `link` are hard links of each other."""

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

    def __init__(self, folder: Path, source: str = "yb", writer: CatalogWriter | None = None) -> None:
        """`writer`: the writer of an existing catalog; without one, a new catalog is made."""
        if writer is None:
            MadeBackups(folder, source)
        self.folder, self.source, self.storage = folder, source, open_storage(str(folder))
        self.destination = destination_id(self.storage)
        self.writer = writer or CatalogWriter(None, str(folder))
        self.number = 0
        self._live: dict[tuple[str, str, str], SnapshotFile] = {}

    def reader(self) -> CatalogReader:
        """A new reader of the catalog."""
        return CatalogReader(str(self.folder))

    def copied(self, folder: Path) -> GivenSnapshots:
        """A copy in another folder."""
        shutil.copytree(self.folder, folder)
        clone = copy(self)
        clone.folder, clone.storage = folder, open_storage(str(folder))
        clone.writer = CatalogWriter(None, str(folder))
        return clone

    def rows(self) -> list[SnapshotFile]:
        """The rows of the newest backup's files."""
        return list(self._live.values())

    def backup(
        self, files: Iterable[FileContent], *, pack_below: int = 0, packed: Collection[str] = ()
    ) -> str:
        """Take the next backup; a file is copied if its name, size or time differs from the previous
        backup's.

        Small files, and those whose names are in `packed`, go into one pack. The end_ts is 1000 * number.
        """
        self.number += 1
        name = backup_id(self.number)
        files_by_key = {file.key: file for file in files}
        unchanged = {
            key: row
            for key, row in self._live.items()
            if key in files_by_key
            and (row.bytes, row.mtime_ms) == (len(files_by_key[key].data), files_by_key[key].mtime_ms)
        }
        departures = [
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
            if key not in unchanged
        ]
        new = [file for key, file in files_by_key.items() if key not in unchanged]
        objects: list[DataFile] = []
        pack = [file for file in new if len(file.data) < pack_below or file.name in packed]
        rows = self._copy(name, [file for file in new if file not in pack], objects)
        rows += self._pack(name, pack, objects)
        self._live = unchanged | {(row.scope, row.region, row.name): row for row in rows}
        objects.append(self._listing(name, "files", rows))
        objects.append(self._listing(name, "gone", departures))
        publish(self.storage, self.writer, (self._manifest(name, objects, len(rows)), [objects]))
        return name

    def _copy(self, name: str, files: Sequence[FileContent], objects: list[DataFile]) -> list[SnapshotFile]:
        rows = []
        linked: dict[str, str] = {}
        for file in files:
            path = linked.get(file.link)
            if path is None:
                path = layout.snapshot_path(self.source, name, *file.key)
                tablet_columns = {"scope": file.scope, "region": file.region}
                objects.append(self._object(name, path, "file", file.data, 1, **tablet_columns))
            if file.link:
                linked[file.link] = path
            links = sum(candidate.link == file.link for candidate in files) if file.link else 1
            rows.append(self._row(name, file, path, 0, links))
        return rows

    def _pack(self, name: str, files: Sequence[FileContent], objects: list[DataFile]) -> list[SnapshotFile]:
        path = layout.pack_path(self.source, name, 0, 0, "0" * 8)
        if files:
            data = b"".join(file.data for file in files)
            objects.append(self._object(name, path, "pack", data, len(files)))
        rows, position = [], 0
        for file in files:
            rows.append(self._row(name, file, path, position, 1))
            position += len(file.data)
        return rows

    def _row(self, name: str, file: FileContent, path: str, position: int, links: int) -> SnapshotFile:
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
        table = "snapshot_files" if kind == "files" else "snapshot_departures"
        path = layout.listing_path(self.source, name, 0, "0" * 8, kind)
        return put_listing(self.storage, path, table, rows, **self._object_columns(name))

    def _object(
        self, name: str, path: str, form: str, data: bytes, entries: int, **tablet_columns: str
    ) -> DataFile:
        times = dict.fromkeys(("min_ts", "max_ts"), 1000 * self.number)
        columns = {
            "format": form,
            "entries": entries,
            **times,
            **tablet_columns,
            **self._object_columns(name),
        }
        return put_object(self.storage, path, data, **columns)

    def _object_columns(self, name: str) -> dict[str, Any]:
        """The columns that the rows of a backup's objects have in common."""
        source_columns = {"destination": self.destination, "source": self.source}
        return {"backup_id": name, "added_in": self.number, **source_columns}

    def _manifest(self, name: str, objects: Sequence[DataFile], entries: int) -> sidecar.Manifest:
        tables = {
            scope: {region for table, region, _ in self._live if table == scope} for scope, *_ in self._live
        }
        keys = {"backup_id": name, "source": self.source}
        scopes = [
            made_scope(**keys, scope=scope, epoch="-", regions=len(regions))
            for scope, regions in tables.items()
        ]
        chain = {"base": name, "chain_position": 0, "parent_place": None, "isolation": "-", "codec": "null"}
        source_columns = {"source_kind": SNAPSHOT, "destination": self.destination, "entries": entries}
        backup = made_backup(self.number, objects, full_number=1, **keys, **chain, **source_columns)
        return sidecar.Manifest(backup=backup, positions=(), scopes=scopes, gaps=(), parts=1)


class MadeSnapshots(GivenSnapshots):
    """Snapshots of one tablet, given as names and contents. `root` holds a catalog already."""

    def __init__(self, root: Path, writer: CatalogWriter, source: str = "tablets") -> None:
        super().__init__(root, source, writer)
        self._files_by_name: dict[str, FileContent] = {}

    def back_up(self, files: Mapping[str, bytes], *, packed: Collection[str] = ()) -> str:
        """Back up one snapshot; files with other contents than before are new. `packed` go into one pack."""
        mtime_ms = 1000 * (self.number + 1)
        new = {
            name: FileContent(region="a", name=name, data=data, mtime_ms=mtime_ms)
            for name, data in files.items()
        }
        previous = self._files_by_name
        self._files_by_name = {
            name: previous[name] if name in previous and previous[name].data == file.data else file
            for name, file in new.items()
        }
        return self.backup(self._files_by_name.values(), packed=packed)
