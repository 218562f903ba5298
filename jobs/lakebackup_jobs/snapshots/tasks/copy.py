"""What a Spark task of a snapshot's backup does: copy the files of its split, and record what else is in it.

The part is the task's commit, as in any backup: of two attempts the first counts. What it names are the
objects that hold the files, and the rows of the catalog that the task made, as Parquet.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from lakebackup.errors import EnvironmentProblem, NotFound
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.rules import layout
from lakebackup.storage import AlreadyExists, Storage
from lakebackup_jobs.lifecycle.tasks.part import PartTask
from lakebackup_jobs.lifecycle.tasks.rows import read_rows, write_rows
from lakebackup_jobs.snapshots.source import FOLDER, Entry, SourceFile
from lakebackup_jobs.snapshots.splits import split_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakebackup.rows.backups import DataFile
    from lakebackup_jobs.lifecycle.tasks.part import Parts

PACK_BYTES = 64 << 20
_PACK_FILES = 20_000
_BATCH = 10_000
# Columns of snapshot_files that are as they were listed.
_LISTED = ("scope", "region", "name", "role", "bytes", "mtime_ms", "mode", "links", "ctime_ns", "inode")
_OF_FOLDERS = ("scope", "region", "name", "mode", "mtime_ms")

_Table = Literal["snapshot_files", "snapshot_departures", "snapshot_folders"]
_LISTING_OF: Mapping[_Table, Literal["files", "gone", "folders"]] = {
    "snapshot_files": "files",
    "snapshot_departures": "gone",
    "snapshot_folders": "folders",
}


@dataclass(frozen=True, kw_only=True)
class CopyJob(PartTask):
    """Copies the files of a split. Files below `pack_below` bytes go into packs; 0: none."""

    pack_below: int

    def write(self, storage: Storage, task: int) -> list[DataFile]:
        return _Copier(self, storage, task).copy()


class _Copier:
    """One attempt of a task."""

    def __init__(self, job: CopyJob, storage: Storage, task: int) -> None:
        self._job, self._storage, self._task = job, storage, task
        self._attempt = secrets.token_hex(4)
        self._done = job.progress(storage, task)
        self._objects: list[DataFile] = []
        self._packs = 0
        constant = {"source": job.source, "backup_id": job.backup_id, "added_in": job.number}
        self._files = _Rows("snapshot_files", constant)
        self._gone = _Rows(
            "snapshot_departures",
            {"source": job.source, "gone_in": job.number, "gone_by": job.backup_id},
        )
        self._folders = _Rows("snapshot_folders", constant)

    def copy(self) -> list[DataFile]:
        """Copy the split; the rows of the objects that were made."""
        waiting: list[list[Entry]] = []  # for a pack: each file's names
        size = 0
        for _, group in groupby(self._entries(), lambda entry: entry.first):
            names = list(group)
            for entry in names:
                if entry.added_in is not None:
                    self._gone.add(
                        scope=entry.scope, region=entry.region, name=entry.name, added_in=entry.added_in
                    )
            first = names[0]
            if first.change == "gone":
                continue
            if first.role == FOLDER:
                self._folders.add(**{name: getattr(first, name) for name in _OF_FOLDERS})
                continue
            if first.same_path is not None:
                self._add(names, str(first.same_sha256), first.same_path, int(first.same_position or 0))
            elif first.bytes < self._job.pack_below and first.role == "data":
                waiting.append(names)
                size += first.bytes
                if size >= PACK_BYTES or len(waiting) >= _PACK_FILES:
                    self._pack(waiting)
                    waiting, size = [], 0
            else:
                self._single(names)
        if waiting:
            self._pack(waiting)
        for rows in (self._files, self._gone, self._folders):
            if rows.count:
                listing = put_listing(
                    self._job, self._storage, self._task, self._attempt, rows.table, rows.batches()
                )
                self._objects.append(listing)
        return self._objects

    def _entries(self) -> Iterator[Entry]:
        try:
            for batch in read_rows(self._storage, split_path(self._job.folder, self._task)):
                # The splits of an older version have fewer columns.
                names = batch.schema.names
                columns = [
                    batch.column(name).to_pylist() if name in names else [None] * batch.num_rows
                    for name in Entry._fields
                ]
                yield from map(Entry._make, zip(*columns, strict=True))
        except NotFound:
            return  # a file larger than a task's split leaves nothing for the next

    def _read(self, size: int) -> None:
        self._done(0, size)

    def _single(self, names: Sequence[Entry]) -> None:
        """A file as an object of its own."""
        first, job = names[0], self._job
        path = layout.snapshot_path(job.source, job.backup_id, first.scope, first.region, first.name)
        with SourceFile(first.listed, self._read) as stream:
            try:
                self._storage.upload(path, stream, size_hint=first.bytes)
            except AlreadyExists:
                # An earlier attempt of this task put it, or two names look the same to the destination.
                for _ in stream.pieces():
                    pass
                if self._storage.sha256(path) != stream.sha256:
                    raise EnvironmentProblem(
                        f"{first.listed.file} cannot be stored as {path}, where another file is.",
                        hint="The repository may ignore upper and lower case: choose another one.",
                    ) from None
        self._add(names, stream.sha256, path, 0)
        self._object(path, "file", [first], first.bytes, stream.sha256)
        self._done(1, 0)

    def _pack(self, files: Sequence[Sequence[Entry]]) -> None:
        """Many files as one object, one behind the other."""
        job = self._job
        path = layout.pack_path(job.source, job.backup_id, self._task, self._packs, self._attempt)
        self._packs += 1
        whole, sums = hashlib.sha256(), list[str]()
        size = sum(names[0].bytes for names in files)

        def contents() -> Iterator[bytes]:
            for names in files:
                with SourceFile(names[0].listed, self._read) as stream:
                    for data in stream.pieces():
                        whole.update(data)
                        yield data
                sums.append(stream.sha256)
                self._done(1, 0)

        self._storage.upload(path, _Joined(contents()), size_hint=size)
        position = 0
        for names, sha256 in zip(files, sums, strict=True):
            self._add(names, sha256, path, position)
            position += names[0].bytes
        self._object(path, "pack", [names[0] for names in files], size, whole.hexdigest())

    def _add(self, names: Sequence[Entry], sha256: str, path: str, position: int) -> None:
        """Rows of one file's names."""
        destination = names[0].same_destination or self._job.destination
        for entry in names:
            listed = {name: getattr(entry, name) for name in _LISTED}
            self._files.add(**listed, sha256=sha256, destination=destination, path=path, position=position)

    def _object(
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
    """Put rows of the catalog where the backup's commit, and a rebuilt catalog, find them; its row."""
    path = layout.listing_path(parts.source, parts.backup_id, task, attempt, _LISTING_OF[table])
    size, _, sha256 = write_rows(storage, path, ARROW_SCHEMAS[table], batches)
    return parts.listing(table, path, size, sha256)


class _Joined:
    """Pieces as one stream, see `storage.Source`."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def read(self, size: int, /) -> bytes:
        """As many bytes as are asked for, fewer only at the end."""
        held: list[bytes] = []
        while size and (piece := self._rest or next(self._pieces, b"")):
            held.append(piece[:size])
            self._rest = piece[size:]
            size -= len(held[-1])
        return held[0] if len(held) == 1 else b"".join(held)


class _Rows:
    """Rows of a table, gathered into batches."""

    def __init__(self, table: _Table, constant: dict[str, Any]) -> None:
        self.table = table
        self.count = 0
        self._constant = constant
        self._held: list[dict[str, Any]] = []
        self._batches: list[pa.RecordBatch] = []

    def add(self, **columns: Any) -> None:
        """One more row."""
        self._held.append(columns)
        self.count += 1
        if len(self._held) >= _BATCH:
            self._flush()

    def batches(self) -> Sequence[pa.RecordBatch]:
        """All of them."""
        self._flush()
        return self._batches

    def _flush(self) -> None:
        import pyarrow as pa

        if self._held:
            rows = [self._constant | row for row in self._held]
            self._batches.append(pa.RecordBatch.from_pylist(rows, ARROW_SCHEMAS[self.table]))
            self._held = []
