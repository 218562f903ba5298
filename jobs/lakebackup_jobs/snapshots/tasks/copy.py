"""Tasks of a snapshot's backup: each copies the files of a share, and records its folders and departed files.

As in any backup, the part is the task's commit: of two attempts, the first to write it counts. The part names
the objects that hold the files, and the Parquet files with the rows that the task adds to the catalog.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import pyarrow as pa

from lakebackup.errors import EnvironmentProblem
from lakebackup.rows.backups import DataFile
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.rules import layout
from lakebackup.storage import AlreadyExists, Storage
from lakebackup_jobs.lifecycle.tasks.part import Parts, PartTask
from lakebackup_jobs.lifecycle.tasks.plan_shares import PlanShares
from lakebackup_jobs.lifecycle.tasks.rows import write_rows
from lakebackup_jobs.snapshots.source import FOLDER, Entry, SourceFile

PACK_BYTES = 64 << 20
_PACK_FILES = 20_000
_BATCH = 10_000
# Columns of snapshot_files whose values come unchanged from the listing.
_FILE_COLUMNS = ("scope", "region", "name", "role", "bytes", "mtime_ms", "mode", "links", "ctime_ns", "inode")
_FOLDER_COLUMNS = ("scope", "region", "name", "mode", "mtime_ms")

_Table = Literal["snapshot_files", "snapshot_departures", "snapshot_folders"]
_LISTING_OF: Mapping[_Table, Literal["files", "gone", "folders"]] = {
    "snapshot_files": "files",
    "snapshot_departures": "gone",
    "snapshot_folders": "folders",
}


@dataclass(frozen=True, kw_only=True)
class CopyJob(PartTask):
    """Copies the files of a task's share of `plan`, whose rows are those of the query snapshot_work.

    Files of fewer than `pack_below` bytes go into packs (0: none do).
    """

    plan: PlanShares
    pack_below: int

    def write(self, storage: Storage, task: int) -> list[DataFile]:
        return _Copier(self, storage, task).copy()


class _Copier:
    """One attempt of a task. A second attempt writes packs and listings under other names."""

    def __init__(self, job: CopyJob, storage: Storage, task: int) -> None:
        self._job, self._storage, self._task = job, storage, task
        self._attempt = secrets.token_hex(4)
        self._report = job.progress(storage, task)
        self._objects: list[DataFile] = []
        self._packs = 0
        constant = {"source": job.source, "backup_id": job.backup_id, "added_in": job.number}
        self._files = _RowBuffer("snapshot_files", constant)
        self._departures = _RowBuffer(
            "snapshot_departures",
            {"source": job.source, "gone_in": job.number, "gone_by": job.backup_id},
        )
        self._folders = _RowBuffer("snapshot_folders", constant)

    def copy(self) -> list[DataFile]:
        """Copy the files of the share, and return the rows of the objects that were written.

        Hard links to one file follow one another in the share. Of these only the first is copied, or none, if
        a stored object already has the content. Each of them gets a row.
        """
        pack_files: list[list[Entry]] = []  # the files of the next pack, each as the list of its hard links
        size = 0
        for _, group in groupby(self._entries(), lambda entry: entry.first):
            links = list(group)
            for entry in links:
                if entry.added_in is not None:
                    self._departures.add(
                        scope=entry.scope, region=entry.region, name=entry.name, added_in=entry.added_in
                    )
            first = links[0]
            if first.change == "gone":
                continue
            if first.role == FOLDER:
                self._folders.add(**{column: getattr(first, column) for column in _FOLDER_COLUMNS})
                continue
            if first.same_path is not None:
                self._add_rows(links, str(first.same_sha256), first.same_path, int(first.same_position or 0))
            elif first.bytes < self._job.pack_below and first.role == "data":
                pack_files.append(links)
                size += first.bytes
                if size >= PACK_BYTES or len(pack_files) >= _PACK_FILES:
                    self._copy_pack(pack_files)
                    pack_files, size = [], 0
            else:
                self._copy_single(links)
        if pack_files:
            self._copy_pack(pack_files)
        for rows in (self._files, self._departures, self._folders):
            if rows.count:
                listing = put_listing(
                    self._job, self._storage, self._task, self._attempt, rows.table, rows.batches()
                )
                self._objects.append(listing)
        return self._objects

    def _entries(self) -> Iterator[Entry]:
        for batch in self._job.plan.batches(self._task, Entry._fields):
            columns = (batch.column(name).to_pylist() for name in Entry._fields)
            yield from map(Entry._make, zip(*columns, strict=True))

    def _report_bytes(self, size: int) -> None:
        self._report(0, size)

    def _copy_single(self, links: Sequence[Entry]) -> None:
        """Copy a file, whose hard links are `links`, into an object of its own."""
        first, job = links[0], self._job
        path = layout.snapshot_path(job.source, job.backup_id, first.scope, first.region, first.name)
        with SourceFile(first.listed, self._report_bytes) as stream:
            try:
                self._storage.upload(path, stream, size_hint=first.bytes)
            except AlreadyExists:
                # An earlier attempt of this task wrote it, or the destination takes two names as the same.
                for _ in stream.pieces():
                    pass
                if self._storage.sha256(path) != stream.sha256:
                    raise EnvironmentProblem(
                        f"{first.listed.file} cannot be stored as {path}, where another file is.",
                        hint="The repository may ignore upper and lower case: choose another one.",
                    ) from None
        self._add_rows(links, stream.sha256, path, 0)
        self._add_object(path, "file", [first], first.bytes, stream.sha256)
        self._report(1, 0)

    def _copy_pack(self, files: Sequence[Sequence[Entry]]) -> None:
        """Copy many files into one object, one behind the other."""
        job = self._job
        path = layout.pack_path(job.source, job.backup_id, self._task, self._packs, self._attempt)
        self._packs += 1
        pack_digest, checksums = hashlib.sha256(), list[str]()
        size = sum(links[0].bytes for links in files)

        def contents() -> Iterator[bytes]:
            for links in files:
                with SourceFile(links[0].listed, self._report_bytes) as stream:
                    for chunk in stream.pieces():
                        pack_digest.update(chunk)
                        yield chunk
                checksums.append(stream.sha256)
                self._report(1, 0)

        self._storage.upload(path, _ChunkStream(contents()), size_hint=size)
        position = 0
        for links, sha256 in zip(files, checksums, strict=True):
            self._add_rows(links, sha256, path, position)
            position += links[0].bytes
        self._add_object(path, "pack", [links[0] for links in files], size, pack_digest.hexdigest())

    def _add_rows(self, links: Sequence[Entry], sha256: str, path: str, position: int) -> None:
        """Add a row for each hard link of a file."""
        destination = links[0].same_destination or self._job.destination
        for entry in links:
            listed = {name: getattr(entry, name) for name in _FILE_COLUMNS}
            self._files.add(**listed, sha256=sha256, destination=destination, path=path, position=position)

    def _add_object(
        self, path: str, kind: Literal["file", "pack"], entries: Sequence[Entry], size: int, sha256: str
    ) -> None:
        scopes = {entry.scope for entry in entries}
        regions = {(entry.scope, entry.region) for entry in entries}
        times = [entry.mtime_ms for entry in entries]
        self._objects.append(
            self._job.row(
                path=path,
                scope=scopes.pop() if len(scopes) == 1 else "",
                epoch="-",
                region=regions.pop()[1] if len(regions) == 1 else "",
                format=kind,
                codec="null",
                bytes=size,
                raw_bytes=size,
                sha256=sha256,
                entries=len(entries),
                min_ts=min(times),
                max_ts=max(times),
                start_position=0,
                end_position=1,
            )
        )


def put_listing(
    parts: Parts,
    storage: Storage,
    task: int,
    attempt: str,
    table: _Table,
    batches: Iterable[pa.RecordBatch],
) -> DataFile:
    """Write rows of a catalog table as an object beside the data, and return the row of that object.

    The backup's commit takes the rows from there, and so does a rebuild of the catalog.
    """
    path = layout.listing_path(parts.source, parts.backup_id, task, attempt, _LISTING_OF[table])
    size, _, sha256 = write_rows(storage, path, ARROW_SCHEMAS[table], batches)
    return parts.listing(table, path, size, sha256)


class _ChunkStream:
    """A stream for an upload that reads from chunks, see `storage.Source`."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._remainder = chunks, b""

    def read(self, size: int, /) -> bytes:
        """Return the next `size` bytes; fewer only at the end."""
        chunks: list[bytes] = []
        while size and (chunk := self._remainder or next(self._chunks, b"")):
            chunks.append(chunk[:size])
            self._remainder = chunk[size:]
            size -= len(chunks[-1])
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


class _RowBuffer:
    """Collects rows of a table in batches."""

    def __init__(self, table: _Table, constant: dict[str, Any]) -> None:
        self.table = table
        self.count = 0
        self._constant = constant
        self._pending: list[dict[str, Any]] = []
        self._batches: list[pa.RecordBatch] = []

    def add(self, **columns: Any) -> None:
        """Add a row."""
        self._pending.append(columns)
        self.count += 1
        if len(self._pending) >= _BATCH:
            self._flush()

    def batches(self) -> Sequence[pa.RecordBatch]:
        """Return all rows."""
        self._flush()
        return self._batches

    def _flush(self) -> None:
        if self._pending:
            rows = [self._constant | row for row in self._pending]
            self._batches.append(pa.RecordBatch.from_pylist(rows, ARROW_SCHEMAS[self.table]))
            self._pending = []
