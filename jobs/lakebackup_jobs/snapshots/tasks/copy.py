"""Tasks of a snapshot's backup: each copies the files of a share, and records its folders and departed files.

As in any backup, the part is the task's commit: of two attempts, the first to write it counts. The part names
the objects that hold the files, and the Parquet files with the rows that the task adds to the catalog.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from lakebackup.encryption.objects import Keyring, opened_bytes, sealed_bytes
from lakebackup.errors import Damaged, EnvironmentProblem
from lakebackup.formats.snapshots.compression import (
    SMALL,
    Codec,
    CodecChoice,
    Compressor,
    compressed,
    is_worth,
)
from lakebackup.rows.backups import DataFile
from lakebackup.rows.tables import ARROW_SCHEMAS
from lakebackup.rules import layout
from lakebackup.storage import AlreadyExists, Storage, open_storage, working
from lakebackup.store.manifest import read_part
from lakebackup_jobs.lifecycle.tasks.part import Parts, PartTask
from lakebackup_jobs.lifecycle.tasks.plan_shares import PlanShares
from lakebackup_jobs.lifecycle.tasks.rows import write_rows
from lakebackup_jobs.snapshots.ranges import Ranges
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

    Files of fewer than `pack_below` bytes go into packs (0: none do). `key_ids`: the data keys of this run
    and of interrupted runs of the backup.
    """

    plan: PlanShares
    pack_below: int
    codec: CodecChoice
    key_ids: tuple[str, ...] = ()

    def run(self, number: int) -> dict[str, Any]:
        outcome = super().run(number)
        if len(self.key_ids) > 1:
            self._delete_unused(open_storage(self.uri), number)
        return outcome

    def _delete_unused(self, storage: Storage, task: int) -> None:
        """Delete what interrupted runs stored of the task's files with keys that cannot be opened any more.

        The part is written, so it will not name any of these objects.
        """
        for row in read_part(storage, layout.parts_path(self.source, self.backup_id, task)):
            if row.format == "file" and row.key_id is not None:
                paths = {layout.with_key_id(row.path, key_id) for key_id in self.key_ids}
                working.delete(storage, paths - {row.path})

    def write(self, storage: Storage, task: int) -> list[DataFile]:
        return _Copier(self, storage, task).copy()


class _StoredFile(NamedTuple):
    """How a file is stored; `sha256` is of its contents."""

    destination: str
    path: str
    position: int
    codec: Codec
    stored_bytes: int | None
    sha256: str
    key_id: str | None


class _Copier:
    """One attempt of a task. A second attempt writes packs and listings under other names."""

    def __init__(self, job: CopyJob, storage: Storage, task: int) -> None:
        self._job, self._storage, self._task = job, storage, task
        self._attempt = secrets.token_hex(4)
        self._report = job.progress(storage, task)
        self._compressor = Compressor()
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
                stored_file = _StoredFile(
                    str(first.same_destination),
                    first.same_path,
                    int(first.same_position or 0),
                    first.same_codec or "none",
                    int(first.same_stored_bytes or 0),
                    str(first.same_sha256),
                    first.same_key_id,
                )
                self._add_rows(links, stored_file)
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
        with SourceFile(first.listed, self._report_bytes) as file:
            codec, chunks = self._encoded(file, first.bytes)
            path = layout.snapshot_path(
                job.source,
                job.backup_id,
                first.scope,
                first.region,
                first.name,
                compressed=codec != "none",
                key_id=job.key_id,
            )
            is_file = codec == "none" and job.key is None
            stream = _ChunkStream(self._sealed(path, chunks), None if is_file else hashlib.sha256())
            try:
                self._storage.upload(path, stream, size_hint=self._size_hint(first.bytes))
                size, sha256 = stream.bytes, stream.sha256 or file.sha256
            except AlreadyExists:
                # An earlier attempt of this task wrote it, or the destination takes two names as the same.
                while stream.read(SMALL):
                    pass
                size, sha256 = self._existing(path, codec, first, file.sha256)
        stored_bytes = self._content_bytes(size)
        self._add_rows(
            links, _StoredFile(job.destination, path, 0, codec, stored_bytes, file.sha256, job.key_id)
        )
        self._add_object(path, "file", [first], codec, size, sha256)
        self._report(1, 0)

    def _existing(self, path: str, codec: Codec, entry: Entry, sha256: str) -> tuple[int, str]:
        """Return the size and the SHA-256 of an object that holds the contents of a file.

        Two attempts may compress a file differently, if their machines have different versions of zstd.
        Raises EnvironmentProblem when the object has other contents.
        """
        size, digest = self._storage.stat(path).bytes, hashlib.sha256()
        with suppress(Damaged):
            stored_bytes = self._content_bytes(size)
            keys = None if self._job.key is None else Keyring([self._job.key])
            ranges = Ranges(self._storage, path, [(0, stored_bytes)], keys)
            for chunk in ranges.contents(0, stored_bytes, codec, entry.bytes):
                digest.update(chunk)
        if digest.hexdigest() != sha256:
            raise EnvironmentProblem(
                f"{entry.listed.file} cannot be stored as {path}, where another file is.",
                hint="The repository may ignore upper and lower case: choose another one.",
            ) from None
        return size, self._storage.sha256(path)

    def _sealed(self, path: str, chunks: Iterable[bytes]) -> Iterable[bytes]:
        """Return the bytes of an object: encrypted, if the backup is."""
        key = self._job.key
        return chunks if key is None else key.sealer("files", (path,)).chunks(chunks)

    def _content_bytes(self, size: int) -> int | None:
        """Return how many bytes an object of `size` holds; None: no encrypted object has that size."""
        return size if self._job.key is None else opened_bytes(size)

    def _size_hint(self, content_bytes: int) -> int:
        return content_bytes if self._job.key is None else sealed_bytes(content_bytes)

    def _encoded(self, file: SourceFile, size: int) -> tuple[Codec, Iterable[bytes]]:
        """Return the codec of a file, and the bytes to store, which must be read to their end."""
        choice = self._job.codec if size else "none"
        if choice == "none":
            return "none", file.pieces()
        if size <= SMALL:
            contents = b"".join(file.pieces())
            frame = self._compressor.frame(contents)
            is_compressed = choice == "zstd" or is_worth(len(frame), size)
            return ("zstd", [frame]) if is_compressed else ("none", [contents])
        if choice == "zstd" or self._compressor.shrinks(file.sample()):
            return "zstd", compressed(file.pieces(), size)
        return "none", file.pieces()

    def _copy_pack(self, files: Sequence[Sequence[Entry]]) -> None:
        """Copy many files into one object, one behind the other."""
        job = self._job
        path = layout.pack_path(job.source, job.backup_id, self._task, self._packs, self._attempt)
        self._packs += 1
        codecs, position = set[Codec](), 0

        def contents() -> Iterator[bytes]:
            nonlocal position
            for links in files:
                size = 0
                with SourceFile(links[0].listed, self._report_bytes) as file:
                    codec, chunks = self._encoded(file, links[0].bytes)
                    for chunk in chunks:
                        size += len(chunk)
                        yield chunk
                self._add_rows(
                    links,
                    _StoredFile(job.destination, path, position, codec, size, file.sha256, job.key_id),
                )
                position += size
                codecs.add(codec)
                self._report(1, 0)

        entries = [links[0] for links in files]
        stream = _ChunkStream(self._sealed(path, contents()), hashlib.sha256())
        self._storage.upload(path, stream, size_hint=self._size_hint(sum(entry.bytes for entry in entries)))
        self._add_object(path, "pack", entries, max(codecs), stream.bytes, str(stream.sha256))

    def _add_rows(self, links: Sequence[Entry], stored_file: _StoredFile) -> None:
        """Add a row for each hard link of a file."""
        for entry in links:
            listed = {name: getattr(entry, name) for name in _FILE_COLUMNS}
            self._files.add(**listed, **stored_file._asdict())

    def _add_object(
        self,
        path: str,
        kind: Literal["file", "pack"],
        entries: Sequence[Entry],
        codec: Codec,
        size: int,
        sha256: str,
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
                codec="null" if codec == "none" else codec,
                bytes=size,
                raw_bytes=sum(entry.bytes for entry in entries),
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
    """A stream for an upload that reads from chunks, see `storage.Source`.

    It counts the bytes that were read, and hashes them if it has a `digest`.
    """

    def __init__(self, chunks: Iterable[bytes], digest: hashlib._Hash | None) -> None:
        self._chunks, self._remainder = iter(chunks), b""
        self._digest = digest
        self.bytes = 0

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of what was read so far; None without a digest."""
        return self._digest.hexdigest() if self._digest else None

    def read(self, size: int, /) -> bytes:
        """Return the next `size` bytes; fewer only at the end."""
        chunks: list[bytes] = []
        while size and (chunk := self._remainder or next(self._chunks, b"")):
            chunks.append(chunk[:size])
            self._remainder = chunk[size:]
            size -= len(chunks[-1])
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self.bytes += len(data)
        if self._digest:
            self._digest.update(data)
        return data


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
