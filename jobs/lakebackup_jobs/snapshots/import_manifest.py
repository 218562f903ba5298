"""Bring in a manifest that another tool wrote of a snapshot, as a backup whose objects are there already.

Nothing is copied. The objects are looked at, each for being there and long enough; those without a checksum
in the manifest are read for one, since a restore writes nothing unchecked. A prune never deletes them:
another tool wrote them.
"""

from __future__ import annotations

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.formats.snapshots.manifest_json import export_manifest
from lakebackup.formats.snapshots.manifest_read import Entry, read_manifest_json, resolve
from lakebackup.plan.snapshots.backup import Newest, require_snapshots
from lakebackup.rows.backups import Backup, DataFile, Scope
from lakebackup.rows.base import SNAPSHOT
from lakebackup.rows.digest import Digest
from lakebackup.rows.tables import ARROW_SCHEMAS, json_line
from lakebackup.rows.upkeep import Audit
from lakebackup.rules import layout
from lakebackup.rules.times import format_ts
from lakebackup.storage import open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import Roots, destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.lifecycle.row_objects import write_rows
from lakebackup_jobs.snapshots.consistency_check import require_kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebackup.storage import Storage
    from lakebackup_jobs.lifecycle.progress import Reporter

_BATCH = 5_000
_ROWS_PER_OBJECT = 200_000
_LOOKS = 16
_PIECE = 8 << 20
_SHOWN = 20
# So far clocks may be apart.
_AHEAD_MS = 60_000


@dataclass(frozen=True, slots=True)
class ManifestRequest:
    """What a person asked for; `taken_at` in ms since 1970 UTC, else the greatest timestamp counts."""

    destination: str
    file: Path
    source: str
    catalog: str | None = None
    taken_at: int | None = None
    lease_ttl_s: float = 60.0
    remote: str | None = None


def run(request: ManifestRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Import a manifest, and return what it became.

    Raises NotFound (no such file), UsageProblem (it is none, or says what cannot be: nothing is left behind),
    Refused (the source's backups are of another kind, the catalog is behind, or a prune of it was cut off),
    Busy.
    """
    source = layout.check_source(request.source)
    if not request.file.is_file():
        raise NotFound(f"There is no file {request.file}.")
    storage = open_storage(request.destination)
    with Lease.acquire(storage, f"source-{source}", holder(), ttl_s=request.lease_ttl_s) as lease:
        writer = CatalogWriter.open(spark, request.destination, request.catalog)
        writer.prepare()
        reader = CatalogReader.require(request.destination, request.catalog)
        found = reader.one("snapshot_newest", source=source)
        newest = Newest(**found) if found else None
        require_snapshots(source, newest)
        require_kept(storage, source, reader)
        run = _Run(request, storage, source, reader, newest)
        try:
            manifest = run.put()
            lease.renew()
        except BaseException:
            run.take_back()
            raise
        writer.commit_backup(storage, manifest, held=lease)
        sidecar.mark(storage, layout.marker_path(source, run.backup_id, "complete"))
        detail = json.dumps({"source": source, "file": str(request.file.absolute()), "files": run.files})
        writer.append_audit(
            Audit(
                at=manifest.backup.started_at,
                actor=holder(),
                action="catalog import-manifest",
                subject=run.backup_id,
                detail=detail,
            ),
            run.backup_id,
        )
        export_manifest(CatalogReader(request.destination, request.catalog), storage, run.backup_id)
    if run.unknown:
        reporter.warning(f"{run.unknown} files have no size: they are never taken for unchanged")
    return {
        "backup_id": run.backup_id,
        "source": source,
        "end_ts": manifest.backup.end_ts,
        "tables": len(run.tables),
        "files": run.files,
        "bytes": run.bytes,
        "seconds": round(time.monotonic() - run.started, 3),
    }


class _Run:
    """One import on its way: rows of the catalog beside the data."""

    def __init__(
        self,
        request: ManifestRequest,
        storage: Storage,
        source: str,
        reader: CatalogReader,
        newest: Newest | None,
    ) -> None:
        self.request, self.storage, self.source, self.reader = request, storage, source, reader
        self.newest = newest
        self.started = time.monotonic()
        now = datetime.now(UTC)
        self.backup_id, self.started_at = layout.new_backup_id(now), micros(now)
        self.number = newest.number + 1 if newest else 1
        self.home = destination_id(storage)
        self.roots = Roots(reader.destinations().uris | {self.home: storage.uri})
        self.files = self.bytes = self.unknown = self.latest = 0
        self.tables: dict[str, set[str]] = {}
        self.wrong: list[str] = []
        self.count_wrong = 0

    def put(self) -> sidecar.Manifest:
        """Put the rows of the backup and its manifest. Raises UsageProblem."""
        rows = self._rows()
        objects: list[DataFile] = []
        for batch in rows:  # a batch more tells whether there is another object
            some = chain([batch], islice(rows, _ROWS_PER_OBJECT // _BATCH - 1))
            objects.append(self._object(len(objects), "snapshot_files", some))
        if self.count_wrong:
            more = [f"  and {self.count_wrong - _SHOWN} more"] if self.count_wrong > _SHOWN else []
            raise UsageProblem(
                "\n".join(["Nothing was imported:", *(f"  {text}" for text in self.wrong), *more]),
                hint="Put that right, or leave these files out.",
            )
        if not self.files:
            raise UsageProblem(f"{self.request.file} names no file.")
        taken = self.latest if self.request.taken_at is None else self.request.taken_at
        # No later backup could follow one of the future.
        if taken > self.started_at // 1000 + _AHEAD_MS:
            raise UsageProblem(
                f"The manifest is of {taken} ms since 1970 UTC, which is yet to come.",
                hint="Say with --taken-at when the snapshot was taken; timestamps are in ms.",
            )
        if self.newest and taken <= self.newest.end_ts:
            raise UsageProblem(
                f"The manifest is of {format_ts(taken)}, and the newest backup of {self.source}, "
                f"{self.newest.backup_id}, holds a snapshot of {format_ts(self.newest.end_ts)}.",
                hint="Backups follow each other in time: say with --taken-at when this one was taken.",
            )
        gone = self.reader.query(
            "snapshot_departing", source=self.source, number=self.number, backup_id=self.backup_id
        )
        objects.append(self._object(0, "snapshot_departures", gone))
        digest = Digest()
        for row in objects:
            digest.add(json_line(row))
        sidecar.write_part(self.storage, layout.parts_path(self.source, self.backup_id, 0), objects)
        manifest = sidecar.Manifest(
            backup=self._backup(objects, taken, digest),
            positions=(),
            scopes=[self._scope(scope, len(regions)) for scope, regions in sorted(self.tables.items())],
            gaps=(),
            parts=1,
        )
        path = layout.manifest_path(self.source, self.backup_id)
        sidecar.write_manifest(self.storage, path, manifest)
        return manifest

    def take_back(self) -> None:
        """Delete what was put, the manifest first: without it a rebuild takes nothing here for a backup."""
        self.storage.delete(layout.manifest_path(self.source, self.backup_id))
        for found in list(self.storage.list(layout.backup_folder(self.source, self.backup_id))):
            self.storage.delete(found.path)

    def _rows(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with self.request.file.open(encoding="utf-8") as text, ThreadPoolExecutor(_LOOKS) as pool:
            found = read_manifest_json(text)
            while some := list(islice(found, _BATCH)):
                made = [row for row in pool.map(self._row, some) if not self._counts(row)]
                yield pa.RecordBatch.from_pylist(made, ARROW_SCHEMAS["snapshot_files"])

    def _row(self, entry: Entry | str) -> dict[str, Any] | str:
        """The row of a file whose object is there; what is wrong with it otherwise."""
        if isinstance(entry, str):
            return entry
        said = f"{entry.scope}/{entry.region}/{entry.name:.200}"
        place = resolve(entry.location, self.roots.uris, self.home)
        if isinstance(place, str):
            return f"{said}: {place}"
        destination, path = place
        try:
            size = self.roots.open(destination).stat(path).bytes
        except NotFound:
            return f"{said}: {entry.location:.200} is not there"
        if entry.position + (entry.bytes or 0) > size:
            return f"{said}: it should end behind its object, which has {size} bytes"
        sha256 = entry.sha256 or self._sha256(destination, path, entry, size)
        return {
            "source": self.source,
            "scope": entry.scope,
            "region": entry.region,
            "name": entry.name,
            "role": entry.role,
            "backup_id": self.backup_id,
            "added_in": self.number,
            "bytes": entry.bytes,
            "mtime_ms": entry.mtime_ms,
            "mode": entry.mode,
            "links": entry.links,
            "sha256": sha256,
            "destination": destination,
            "path": path,
            "position": entry.position,
        }

    def _sha256(self, destination: str, path: str, entry: Entry, size: int) -> str:
        """Of the bytes that a restore will read: to the object's end where the manifest gives no size."""
        digest, storage = hashlib.sha256(), self.roots.open(destination)
        at, end = entry.position, size if entry.bytes is None else entry.position + entry.bytes
        while at < end:
            piece = storage.get(path, start=at, length=min(_PIECE, end - at))
            if not piece:
                break
            digest.update(piece)
            at += len(piece)
        return digest.hexdigest()

    def _counts(self, row: dict[str, Any] | str) -> bool:
        """Whether a row is wrong; else it is counted."""
        if isinstance(row, str):
            self.count_wrong += 1
            if len(self.wrong) < _SHOWN:
                self.wrong.append(row)
            return True
        self.files += 1
        self.bytes += row["bytes"] or 0
        self.unknown += row["bytes"] is None
        self.latest = max(self.latest, row["mtime_ms"])
        self.tables.setdefault(row["scope"], set()).add(row["region"])
        return False

    def _object(self, task: int, table: str, batches: Any) -> DataFile:
        kind = "files" if table == "snapshot_files" else "gone"
        path = layout.listing_path(self.source, self.backup_id, task, "0" * 8, kind)  # type: ignore[arg-type]
        schema = ARROW_SCHEMAS[table]
        cast = (batch.select(schema.names).cast(schema) for batch in batches)
        size, _, sha256 = write_rows(self.storage, path, schema, cast)
        return DataFile(
            destination=self.home,
            path=path,
            backup_id=self.backup_id,
            added_in=self.number,
            source=self.source,
            scope="",
            epoch="-",
            region="",
            role="meta",
            format=table.replace("_", "-"),
            codec="null",
            bytes=size,
            raw_bytes=size,
            sha256=sha256,
            entries=0,
            min_ts=0,
            max_ts=0,
            start_position=0,
            end_position=1,
        )

    def _backup(self, objects: Sequence[DataFile], taken: int, digest: Digest) -> Backup:
        return Backup(
            backup_id=self.backup_id,
            number=self.number,
            source=self.source,
            source_kind=SNAPSHOT,
            destination=self.home,
            kind="full",
            level=0,
            parent=None,
            base=self.backup_id,
            chain_position=0,
            place=self.number,
            parent_place=None,
            start_ts=None,
            end_ts=taken,
            started_at=self.started_at,
            finished_at=micros(datetime.now(UTC)),
            files=len(objects),
            bytes=sum(row.bytes for row in objects),
            entries=0,
            digest=digest.hex(),
            isolation="-",
            codec="null",
            created_by=holder(),
            tool=f"lakebackup {version('lakebackup')}",
            note=f"imported from {self.request.file.name}",
        )

    def _scope(self, scope: str, regions: int) -> Scope:
        return Scope(
            backup_id=self.backup_id,
            source=self.source,
            scope=scope,
            epoch="-",
            regions=regions,
            settings="{}",
            replication=1,
        )
