"""Import a manifest that another tool wrote of a snapshot, as a backup whose objects exist already.

Nothing is copied. The import checks that each object exists and is long enough. It reads those files for
which the manifest has no checksum and computes it, since a restore writes nothing unchecked. A prune never
deletes the objects, because another tool wrote them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import SparkSession

from lakebackup.errors import Damaged, NotFound, UsageProblem
from lakebackup.formats.snapshots.manifest_json import export_manifest
from lakebackup.formats.snapshots.manifest_read import Entry, read_manifest_json, resolve
from lakebackup.plan.snapshots.backup import newest_of, require_later, require_past
from lakebackup.requests import Request
from lakebackup.rows.backups import Backup, DataFile
from lakebackup.rows.base import SNAPSHOT
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.rules import layout
from lakebackup.store.manifest import Manifest, write_part
from lakebackup.store.tombstones import require_recorded
from lakebackup_jobs.lifecycle.identity import audit_entry, micros
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.run import Life, mark_complete
from lakebackup_jobs.lifecycle.source import Source
from lakebackup_jobs.lifecycle.tasks.part import Parts
from lakebackup_jobs.lifecycle.tasks.totals import Totals, totals
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.snapshots.backup import manifest_of
from lakebackup_jobs.snapshots.ranges import Ranges
from lakebackup_jobs.snapshots.tasks.copy import put_listing

_BATCH = 5_000
_ROWS_PER_OBJECT = 200_000
_STAT_THREADS = 16
_ATTEMPT = "0" * 8
_MAX_PROBLEMS = 20
# Tables of the files and folders that the previous backup has and this one does not, each with its query.
_DEPARTING: Mapping[Literal["snapshot_departures", "snapshot_folders"], str] = {
    "snapshot_departures": "snapshot_departing",
    "snapshot_folders": "snapshot_folders_departing",
}


@dataclass(frozen=True, slots=True)
class ManifestRequest(Request):
    """What to import.

    `taken_at`: the time of the snapshot in ms since 1970 UTC; None: the newest modification time of a file.
    """

    file: Path
    source: str
    taken_at: int | None = None


def run(request: ManifestRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Import a manifest; returns the summary of the backup that it became.

    Raises NotFound (no such file), UsageProblem (the file is no manifest, or its contents cannot be right:
    nothing is left behind), Refused (the source's backups are of another kind, the catalog is behind, or a
    prune was interrupted), Busy.
    """
    source = layout.check_source(request.source)
    if not request.file.is_file():
        raise NotFound(f"There is no file {request.file}.")
    work = Workspace(request, source, reporter, spark)
    with work.running("import", SNAPSHOT) as lease:
        work.writer().prepare()
        require_recorded(work.storage, source, work.reader())
        manifest = ManifestImport(work, request)
        result = Life(manifest, lease).run(manifest.plan())
        detail = {"source": source, "file": str(request.file.absolute()), "files": manifest.files}
        work.writer().append_audit(
            audit_entry("catalog import-manifest", result["backup_id"], detail, time_us=manifest.started_at),
            result["backup_id"],
        )
    if manifest.unknown:
        reporter.warning(f"{manifest.unknown} files have no size, so the next backup copies them again")
    return work.timed(result)


@dataclass(frozen=True, slots=True)
class Imported:
    """The draft of the backup that a manifest becomes. `started_at` in us."""

    backup_id: str
    number: int
    started_at: int


class ManifestImport(Source[Imported]):
    """The import of one manifest: its rows become a backup of objects that exist already."""

    def __init__(self, workspace: Workspace, request: ManifestRequest) -> None:
        super().__init__(workspace)
        self.request, self.reader = request, workspace.reader()
        self.newest = newest_of(self.reader, workspace.source)
        self.started_at = micros(datetime.now(UTC))
        self.home = workspace.destination
        self.roots = self.reader.destinations().including(self.home, workspace.storage.uri)
        self.files = self.bytes = self.unknown = self.compressed = self.latest = 0
        keys = self.reader.rows("data_keys_to_check", backup_ids="")
        self.key_ids = {(row["destination"], row["key_id"]) for row in keys}
        self.tables: dict[str, set[str]] = {}
        self.wrong: list[str] = []
        self.count_wrong = 0
        self._totals = Totals()

    def plan(self) -> Imported:
        if self.newest:  # its run may have died between the commit and the marker
            mark_complete(self.workspace, self.newest.backup_id)
        number = self.newest.number + 1 if self.newest else 1
        return Imported(layout.new_backup_id(datetime.now(UTC)), number, self.started_at)

    def resume_blocker(self, draft: Imported) -> str | None:  # noqa: ARG002
        return "an import starts over"

    def prepare(self, draft: Imported) -> Imported:
        """Write the rows of the backup beside the data. Raises UsageProblem."""
        work = self.workspace
        self._draft = draft
        parts = Parts(
            uri=work.storage.uri,
            destination=self.home,
            source=work.source,
            backup_id=draft.backup_id,
            number=draft.number,
        )
        rows = self._rows()
        objects: list[DataFile] = []
        for batch in rows:  # each iteration writes one object, from this batch and those after it
            batches = chain([batch], islice(rows, _ROWS_PER_OBJECT // _BATCH - 1))
            objects.append(
                put_listing(parts, work.storage, len(objects), _ATTEMPT, "snapshot_files", batches)
            )
        self._require_valid()
        for table, query in _DEPARTING.items():
            departures = self.reader.query(
                query, source=work.source, number=draft.number, backup_id=draft.backup_id
            )
            schema = ARROW_SCHEMAS[table]
            converted = (batch.select(schema.names).cast(schema) for batch in departures)
            objects.append(put_listing(parts, work.storage, 0, _ATTEMPT, table, converted))
        path = layout.parts_path(work.source, draft.backup_id, 0)
        write_part(work.storage, path, objects)
        self._totals.add([SimpleNamespace(**totals(0, objects), error=None)])
        return draft

    def copy(self, draft: Imported) -> Totals:  # noqa: ARG002
        """Copy nothing; returns the totals."""
        return self._totals

    def _require_valid(self) -> None:
        """Raises UsageProblem when the manifest cannot become a backup."""
        if self.count_wrong:
            overflow = (
                [f"  and {self.count_wrong - _MAX_PROBLEMS} more"] if self.count_wrong > _MAX_PROBLEMS else []
            )
            raise UsageProblem(
                "\n".join(["Nothing was imported:", *(f"  {text}" for text in self.wrong), *overflow]),
                hint="Correct that, or leave these files out.",
            )
        if not self.files:
            raise UsageProblem(f"{self.request.file} names no file.")
        require_past("The manifest", self._end_ts, self.started_at // 1000)
        require_later(self.workspace.source, "The manifest", self._end_ts, self.newest)

    @property
    def _end_ts(self) -> int:
        return self.latest if self.request.taken_at is None else self.request.taken_at

    def manifest(self, draft: Imported, totals: Totals) -> Manifest:
        tables = {scope: len(regions) for scope, regions in sorted(self.tables.items())}
        note = f"imported from {self.request.file.name}"
        columns: dict[str, Any] = {"kind": "full", "level": 0, "end_ts": self._end_ts, "note": note}
        codec = "zstd" if self.compressed else "null"
        return manifest_of(self.workspace, draft, totals, tables, 1, codec=codec, **columns)

    def discard(self, draft: Imported) -> int:  # noqa: ARG002
        """Delete nothing: the data belongs to another tool."""
        return 0

    def finish(self, draft: Imported) -> None:
        export_manifest(self.workspace.reader(), self.workspace.storage, draft.backup_id)

    def result(self, draft: Imported, backup: Backup) -> dict[str, Any]:
        return {
            "backup_id": draft.backup_id,
            "source": backup.source,
            "end_ts": backup.end_ts,
            "tables": len(self.tables),
            "files": self.files,
            "bytes": self.bytes,
        }

    def _rows(self) -> Iterator[pa.RecordBatch]:
        with self.request.file.open(encoding="utf-8") as text, ThreadPoolExecutor(_STAT_THREADS) as pool:
            entries = read_manifest_json(text)
            while batch := list(islice(entries, _BATCH)):
                rows = [row for row in pool.map(self._row, batch) if not self._tally(row)]
                yield pa.RecordBatch.from_pylist(rows, ARROW_SCHEMAS["snapshot_files"])

    def _row(self, entry: Entry | str) -> dict[str, Any] | str:
        """Return the row of a file, or as text what is wrong with its entry or its object."""
        if isinstance(entry, str):
            return entry
        label = f"{entry.scope}/{entry.region}/{entry.name:.200}"
        location = resolve(entry.location, self.roots.uris, self.home)
        if isinstance(location, str):
            return f"{label}: {location}"
        destination, path = location
        try:
            size = self.roots.open(destination).stat(path).bytes
        except NotFound:
            return f"{label}: {entry.location:.200} is not there"
        if entry.position + (entry.stored_bytes or 0) > size:
            return f"{label}: it should end behind its object, which has {size} bytes"
        if entry.key_id is not None and (destination, entry.key_id) not in self.key_ids:
            return f"{label}: it is encrypted with data key {entry.key_id}, which the catalog does not know"
        try:
            sha256 = entry.sha256 or self._sha256(destination, path, entry, size)
        except Damaged as error:
            return f"{label}: {error.message}"
        return {
            "source": self.workspace.source,
            "scope": entry.scope,
            "region": entry.region,
            "name": entry.name,
            "role": entry.role,
            "backup_id": self._draft.backup_id,
            "added_in": self._draft.number,
            "bytes": entry.bytes,
            "mtime_ms": entry.mtime_ms,
            "mode": entry.mode,
            "links": entry.links,
            "sha256": sha256,
            "destination": destination,
            "path": path,
            "position": entry.position,
            "codec": entry.codec,
            "stored_bytes": entry.stored_bytes,
            "key_id": entry.key_id,
        }

    def _sha256(self, destination: str, path: str, entry: Entry, size: int) -> str:
        """Return the SHA-256 of the bytes that a restore will read: up to the object's end if the manifest
        has no size."""
        digest = hashlib.sha256()
        length = size - entry.position if entry.stored_bytes is None else entry.stored_bytes
        content_bytes = length if entry.bytes is None else entry.bytes
        ranges = Ranges(self.roots.open(destination), path, [(entry.position, length)])
        for chunk in ranges.contents(entry.position, length, entry.codec, content_bytes):
            digest.update(chunk)
        return digest.hexdigest()

    def _tally(self, row: dict[str, Any] | str) -> bool:
        """Count a row of a file, or record a problem; returns whether it is a problem."""
        if isinstance(row, str):
            self.count_wrong += 1
            if len(self.wrong) < _MAX_PROBLEMS:
                self.wrong.append(row)
            return True
        self.files += 1
        self.bytes += row["bytes"] or 0
        self.unknown += row["bytes"] is None
        self.compressed += row["codec"] != "none"
        self.latest = max(self.latest, row["mtime_ms"])
        self.tables.setdefault(row["scope"], set()).add(row["region"])
        return False
