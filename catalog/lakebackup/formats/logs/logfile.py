"""Write and read log files: the records of one store, region, table, column family and operation, in the
order in which they arrived.

A file is one Arrow IPC stream of `events.stored_schema()`, as a sequence of zstd or LZ4 frames. It can be
encrypted as a whole (`cipher`). docs/data-format.md describes the format for other programs.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, get_args

import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.encryption.objects import BackupKey, Keyring
from lakebackup.errors import Damaged, EnvironmentProblem
from lakebackup.formats.logs import cipher
from lakebackup.formats.logs.cipher import Cipher, LogKeys
from lakebackup.formats.logs.events import DEFAULT, DELETES, META_TABLE, PUT, PUT_TYPE, WRITE, stored_schema
from lakebackup.rules import layout
from lakebackup.storage import AlreadyExists, Storage

FORMAT = "log-arrow-1"
Codec = Literal["zstd", "lz4", "none"]
CODECS: tuple[str, ...] = get_args(Codec)
_ZSTD_LEVEL = 1
#: The most bytes of a file's IPC stream. So a file fits into memory, and into one message of the cipher.
MOST_RAW = 64 << 20
_BATCH_ROWS, _BATCH_BYTES = 65_536, 4 << 20
_KEY_LIMIT = 64
_END = b"\xff\xff\xff\xff\0\0\0\0"  # the end of an IPC stream
_SUFFIX = {"zstd": ".zst", "lz4": ".lz4", "none": ""}
_HINT = "Take it from another copy of the repository; `lakebackup verify` shows what else is damaged."


class Scratch:
    """An unnamed file on this machine's disk, for the frames of unfinished log files.

    Several threads may use it. It is in `folder`, or in this machine's folder of temporary files. It ends
    with the process.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._end, self._lock = 0, threading.Lock()
        try:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (closed by __exit__)
        except OSError as error:
            raise _disk_problem(error) from error

    def append(self, data: bytes | memoryview) -> tuple[int, int]:
        """Store `data` and return its position and length. Raises EnvironmentProblem (the disk is full)."""
        view = memoryview(data)
        size = len(view)
        with self._lock:
            start = self._end
            self._end += size
        position = start
        try:
            while len(view):
                written_bytes = os.pwrite(self._file.fileno(), view, position)
                view, position = view[written_bytes:], position + written_bytes
        except OSError as error:
            raise _disk_problem(error) from error
        return start, size

    def read(self, position: int, size: int) -> bytes:
        """The `size` bytes at `position`. Raises EnvironmentProblem."""
        try:
            data = os.pread(self._file.fileno(), size, position)
        except OSError as error:
            raise _disk_problem(error) from error
        if len(data) != size:
            raise EnvironmentProblem("A temporary file of this machine lost what was written to it.")
        return data

    def close(self) -> None:
        """Free its space on the disk."""
        self._file.close()

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _disk_problem(error: OSError) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"Cannot keep change events in a temporary file of this machine: {error}.",
        hint="Free some space in its temporary folder (TMPDIR), then resume the task.",
    )


@dataclass(frozen=True, slots=True)
class LogPlace:
    """What all records of a log file have in common. With their least ts, it gives the file's path."""

    source: str
    backup_id: str
    table_id: int
    region: int
    cf: str
    op: str
    store: str

    @property
    def is_meta(self) -> bool:
        """Whether the file holds meta keys, which describe databases and tables."""
        return self.table_id == META_TABLE

    def columns(self) -> dict[str, Any]:
        """The columns of the file's row in `files` that follow from these values."""
        return {
            "source": self.source,
            "backup_id": self.backup_id,
            "scope": "meta" if self.is_meta else str(self.table_id),
            "epoch": "-",
            "region": str(self.region),
            "role": "schema" if self.is_meta else "data",
            "cf": self.cf,
            "op": self.op,
        }


class LogFileWriter:
    """Writes one log file. Its frames are in `scratch` until `publish`, so memory holds no records."""

    def __init__(self, file_key: LogPlace, scratch: Scratch, codec: str = "zstd") -> None:
        self.file_key = file_key
        self.entries = self.raw_bytes = 0
        self._scratch, self._codec = scratch, codec
        self._frames: list[tuple[int, int]] = []
        self._times: list[int] = []
        self._first_start_ts: list[int] = []
        self._keys: list[bytes] = []
        self._offsets: list[int] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Append records with the columns of `events.stored_schema()`.

        The batch may also have `offset`; then the file's row gets the range of offsets. A batch becomes one
        frame, so large batches compress better. Raises Damaged for a write without a commit ts, which no feed
        may send, and EnvironmentProblem for an error of the disk.
        """
        if not len(batch):
            return
        self._count(batch)
        batch = batch.select(stored_schema().names).cast(stored_schema())
        messages = [] if self._frames else [stored_schema().serialize()]
        messages += [piece.serialize() for piece in _slices(batch)]
        self._append(b"".join(messages))

    def publish(self, storage: Storage, cipher: Cipher | BackupKey | None = None) -> dict[str, Any]:
        """Store the file and return the columns of its row in `files`. Call it once.

        `cipher` encrypts it: a key of a key file, or the data key of its backup.

        If an object has that path already (of an interrupted attempt, or with the same least ts), the file
        gets a random suffix. Raises EnvironmentProblem.
        """
        self._append(_END)
        while True:
            try:
                return self._upload(storage, cipher)
            except AlreadyExists:
                store = f"{self.file_key.store}-{secrets.token_hex(4)}"
                self.file_key = replace(self.file_key, store=store)

    def _upload(self, storage: Storage, cipher: Cipher | BackupKey | None) -> dict[str, Any]:
        path = self._path(cipher)
        pieces = (self._scratch.read(*frame) for frame in self._frames)
        source = _Stream(pieces if cipher is None else iter([_sealed(cipher, path, b"".join(pieces))]))
        size = storage.upload(path, source, size_hint=sum(length for _, length in self._frames))
        return {
            **self.file_key.columns(),
            "path": path,
            "format": FORMAT,
            "codec": self._codec,
            "key_id": cipher.key_id if cipher else None,
            "bytes": size,
            "raw_bytes": self.raw_bytes,
            "sha256": source.sha256.hexdigest(),
            "entries": self.entries,
            "min_ts": min(self._times),
            "max_ts": max(self._times),
            "min_begin_ts": min(self._first_start_ts, default=None),
            "start_position": min(self._offsets, default=0),
            "end_position": max(self._offsets, default=0) + 1,
            **self._key_bounds(hidden=isinstance(cipher, BackupKey)),
        }

    def _key_bounds(self, *, hidden: bool) -> dict[str, str | None]:
        """The columns with the bounds of keys. If they are `hidden`, they only show whether the least key is
        empty, as that of a truncation of a whole table is."""
        least_key, greatest_key = min(self._keys), max(self._keys)
        if hidden:
            return {"start_key": None if least_key else "", "end_key": None}
        return {"start_key": least_key[:_KEY_LIMIT].hex(), "end_key": _upper_bound(greatest_key)}

    def _path(self, cipher: Cipher | BackupKey | None) -> str:
        file_key = self.file_key
        return layout.log_path(
            file_key.source,
            file_key.backup_id,
            table_id=file_key.table_id,
            region=file_key.region,
            min_ts=min(self._times),
            cf=file_key.cf,
            op=file_key.op,
            store=file_key.store,
            suffix=suffix(self._codec, cipher),
            is_meta=file_key.is_meta,
        )

    def _append(self, data: bytes) -> None:
        self.raw_bytes += len(data)
        self._frames.append(self._scratch.append(_compressed(data, self._codec)))

    def _count(self, batch: pa.RecordBatch) -> None:
        file_key = self.file_key
        ts = batch["start_ts" if file_key.cf == DEFAULT else "commit_ts"]
        if ts.null_count:
            raise Damaged(
                f"A write of table {file_key.table_id}, region {file_key.region}, has no commit ts."
            )
        self.entries += len(batch)
        self._times = _min_and_max([*self._times, *_bounds(ts)])
        self._keys = _min_and_max([*self._keys, *_bounds(batch["key"])])
        if file_key.cf == WRITE and file_key.op == PUT:
            valueless = pc.and_(
                pc.or_(pc.equal(batch["type"], PUT_TYPE), pc.equal(batch["type"], DELETES)),
                pc.is_null(batch["value"]),
            )
            first_start_ts = pc.min(batch["start_ts"].filter(valueless)).as_py()
            if first_start_ts is not None:
                self._first_start_ts = [min([first_start_ts, *self._first_start_ts])]
        if "offset" in batch.schema.names:
            self._offsets = _min_and_max([*self._offsets, *_bounds(batch["offset"])])


class StoredLogFile(Protocol):
    """The columns of a row of `files` that a reader needs. `path` is relative to the storage's root."""

    @property
    def path(self) -> str: ...
    @property
    def codec(self) -> str: ...
    @property
    def key_id(self) -> str | None: ...
    @property
    def bytes(self) -> int: ...
    @property
    def sha256(self) -> str: ...
    @property
    def entries(self) -> int: ...


def read_log_file(
    storage: Storage,
    file: StoredLogFile,
    keys: LogKeys | None,
    data_keys: Keyring | None = None,
    *,
    checksum: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a log file in the order they were written, as batches of `events.stored_schema()`.

    Memory holds the stored file and one batch of its content. Size and number of records are always compared
    with the row, the SHA-256 only with `checksum`. `keys`: those of a key file; `data_keys`: those of the
    backups. Raises NotFound, Damaged, and UsageProblem for a missing or wrong key.
    """
    data = storage.get(file.path)
    intact = len(data) == file.bytes and hashlib.sha256(data).hexdigest() == file.sha256
    if (checksum and not intact) or len(data) != file.bytes:
        raise Damaged(
            f"{file.path} has {len(data)} bytes that are not the {file.bytes} that were written (sha256).",
            hint=_HINT,
        )
    if file.key_id is not None:
        data = _opened(file, data, keys, data_keys, intact=intact)
    count = 0
    try:
        stream = pa.BufferReader(data)
        if file.codec != "none":
            stream = pa.CompressedInputStream(stream, file.codec)
        with stream, pa.ipc.open_stream(stream) as batches:
            if batches.schema != stored_schema():
                raise Damaged(f"{file.path} holds other columns than a log file has.", hint=_HINT)
            for batch in batches:
                if not intact:
                    batch.validate(full=True)
                count += len(batch)
                yield batch
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Damaged(f"{file.path} cannot be read after {count} records: {error}.", hint=_HINT) from error
    if count != file.entries:
        raise Damaged(f"{file.path} holds {count} records, not {file.entries}.", hint=_HINT)


def suffix(codec: str, encryption: Cipher | BackupKey | None = None) -> str:
    """The part of a file's name after `.log`."""
    if isinstance(encryption, BackupKey):
        return _SUFFIX[codec] + layout.encrypted_suffix(encryption.key_id)
    return _SUFFIX[codec] + (cipher.SUFFIX if encryption else "")


def _sealed(encryption: Cipher | BackupKey, path: str, data: bytes) -> bytes:
    if isinstance(encryption, BackupKey):
        return encryption.seal("files", (path,), data)
    return encryption.seal(data, path)


def _opened(
    file: StoredLogFile, data: bytes, keys: LogKeys | None, data_keys: Keyring | None, *, intact: bool
) -> bytes:
    """Decrypt the bytes of a file that has a key."""
    if has_data_key(file):
        return (data_keys or Keyring()).open_data(file.path, "files", (file.path,), data).read()
    return cipher.opened(keys, str(file.key_id), file.path, data, intact=intact)


def has_data_key(file: StoredLogFile) -> bool:
    """Whether the data key of its backup encrypts a file. If not, a key of a key file does, or none."""
    return file.key_id is not None and file.path.endswith(layout.ENCRYPTED_SUFFIX)


def _compressed(data: bytes, codec: str) -> bytes:
    if codec == "none":
        return data
    level = _ZSTD_LEVEL if codec == "zstd" else None
    compressed: bytes = pa.Codec(codec, compression_level=level).compress(data, asbytes=True)
    return compressed


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    count = max(-(-len(batch) // _BATCH_ROWS), min(len(batch), -(-batch.nbytes // _BATCH_BYTES)))
    step = -(-len(batch) // count)
    for start in range(0, len(batch), step):
        yield batch.slice(start, step)


def _bounds(array: pa.Array) -> Sequence[Any]:
    bounds = pc.min_max(array).as_py()
    return bounds["min"], bounds["max"]


def _min_and_max(values: list[Any]) -> list[Any]:
    return [min(values), max(values)]


def _upper_bound(key: bytes) -> str | None:
    """The greatest key in lower hex. A long key is shortened and rounded up; None if that is impossible."""
    if len(key) <= _KEY_LIMIT:
        return key.hex()
    prefix = key[:_KEY_LIMIT].rstrip(b"\xff")
    return (prefix[:-1] + bytes([prefix[-1] + 1])).hex() if prefix else None


class _Stream:
    """Joins pieces of bytes into a stream for `Storage.upload`, and computes its SHA-256 while it is read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._unread = pieces, memoryview(b"")
        self.sha256 = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        while not self._unread:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._unread = memoryview(piece)
        data, self._unread = bytes(self._unread[:size]), self._unread[size:]
        self.sha256.update(data)
        return data
