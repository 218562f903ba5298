"""Log files: records of one store, region, table, column family and operation, in the order they came in.

A file is one Arrow IPC stream of `events.stored_schema()`, as a sequence of zstd or LZ4 frames. It can be
encrypted as a whole (`cipher`). docs/data-format.md describes it for others.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from lakebackup.errors import Damaged, EnvironmentProblem
from lakebackup.formats.logs import cipher
from lakebackup.formats.logs.events import DEFAULT, DELETES, META_TABLE, PUT, PUTS, WRITE, stored_schema
from lakebackup.rules import layout
from lakebackup.storage import AlreadyExists

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lakebackup.formats.logs.cipher import Cipher, LogKeys
    from lakebackup.storage import Storage

FORMAT = "log-arrow-1"
Codec = Literal["zstd", "lz4", "none"]
CODECS: tuple[str, ...] = get_args(Codec)
_ZSTD_LEVEL = 1
#: A file is closed before its IPC stream is longer: it can be held, and it is one message of the cipher.
MOST_RAW = 64 << 20
_BATCH_ROWS, _BATCH_BYTES = 65_536, 4 << 20
_KEY_LIMIT = 64
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of an IPC stream
_SUFFIX = {"zstd": ".zst", "lz4": ".lz4", "none": ""}
_HINT = "Take it from another copy of the repository; `lakebackup verify` shows what else is damaged."


class Scratch:
    """A file on this machine's disk without a name, for pieces of log files that are not whole yet.

    Several threads may use it. `folder`: where; None: where this machine keeps temporary files. It is gone
    with the process.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._end, self._lock = 0, threading.Lock()
        try:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 (closed by __exit__)
        except OSError as error:
            raise _disk(error) from error

    def append(self, data: bytes | memoryview) -> tuple[int, int]:
        """Store `data`; returns its position and length. Raises EnvironmentProblem (disk full)."""
        view = memoryview(data)
        size = len(view)
        with self._lock:
            begin = self._end
            self._end += size
        at = begin
        try:
            while len(view):
                written = os.pwrite(self._file.fileno(), view, at)
                view, at = view[written:], at + written
        except OSError as error:
            raise _disk(error) from error
        return begin, size

    def read(self, position: int, size: int) -> bytes:
        """What is there. Raises EnvironmentProblem."""
        try:
            data = os.pread(self._file.fileno(), size, position)
        except OSError as error:
            raise _disk(error) from error
        if len(data) != size:
            raise EnvironmentProblem("A temporary file of this machine lost what was written to it.")
        return data

    def close(self) -> None:
        """Give its space back."""
        self._file.close()

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _disk(error: OSError) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"Cannot keep change events in a temporary file of this machine: {error}.",
        hint="Free some space in its temporary folder (TMPDIR), then resume the task.",
    )


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Whose records a log file holds; with its least ts it makes its path."""

    source: str
    backup_id: str
    table_id: int
    region: int
    cf: str
    op: str
    store: str

    @property
    def is_meta(self) -> bool:
        """Whether these are meta keys: what databases and tables there are."""
        return self.table_id == META_TABLE

    def columns(self) -> dict[str, Any]:
        """The columns of a row of `files` that come from it."""
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
    """One log file. Until `publish` its frames are in `scratch`; nothing is held in memory between calls."""

    def __init__(self, place: LogPlace, scratch: Scratch, codec: str = "zstd") -> None:
        self.place = place
        self.entries = self.raw_bytes = 0
        self._scratch, self._codec = scratch, codec
        self._frames: list[tuple[int, int]] = []
        self._times: list[int] = []
        self._begins: list[int] = []
        self._keys: list[bytes] = []
        self._offsets: list[int] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Append records: the columns of `events.stored_schema()`. With `offset`, the row has their range.

        They become one frame, so many at once are better. Raises Damaged (a write without a commit ts, which
        no feed may send), EnvironmentProblem (disk).
        """
        if not len(batch):
            return
        self._count(batch)
        batch = batch.select(stored_schema().names).cast(stored_schema())
        messages = [] if self._frames else [stored_schema().serialize()]
        messages += [piece.serialize() for piece in _pieces(batch)]
        self._append(b"".join(messages))

    def publish(self, storage: Storage, cipher: Cipher | None = None) -> dict[str, Any]:
        """Put the file, once; the columns of its row in `files` that it knows (see LogPlace.columns too).

        A path that is taken (an interrupted attempt, a file of the same least ts) gives way to one with
        a random end. Raises EnvironmentProblem.
        """
        self._append(_END)
        while True:
            try:
                return self._put(storage, cipher)
            except AlreadyExists:
                store = f"{self.place.store}-{secrets.token_hex(4)}"
                self.place = replace(self.place, store=store)

    def _put(self, storage: Storage, cipher: Cipher | None) -> dict[str, Any]:
        path = self._path(cipher)
        pieces = (self._scratch.read(*frame) for frame in self._frames)
        source = _Stream(pieces if cipher is None else iter([cipher.seal(b"".join(pieces), path)]))
        size = storage.upload(path, source, size_hint=sum(length for _, length in self._frames))
        return {
            **self.place.columns(),
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
            "min_begin_ts": min(self._begins, default=None),
            "start_position": min(self._offsets, default=0),
            "end_position": max(self._offsets, default=0) + 1,
            "start_key": min(self._keys)[:_KEY_LIMIT].hex(),
            "end_key": _rounded(max(self._keys)),
        }

    def _path(self, cipher: Cipher | None) -> str:
        place = self.place
        return layout.log_path(
            place.source,
            place.backup_id,
            table_id=place.table_id,
            region=place.region,
            min_ts=min(self._times),
            cf=place.cf,
            op=place.op,
            store=place.store,
            suffix=suffix(self._codec, encrypted=cipher is not None),
            is_meta=place.is_meta,
        )

    def _append(self, data: bytes) -> None:
        self.raw_bytes += len(data)
        self._frames.append(self._scratch.append(_compressed(data, self._codec)))

    def _count(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        place = self.place
        ts = batch["start_ts" if place.cf == DEFAULT else "commit_ts"]
        if ts.null_count:
            raise Damaged(f"A write of table {place.table_id}, region {place.region}, has no commit ts.")
        self.entries += len(batch)
        self._times = _spread([*self._times, *_bounds(ts)])
        self._keys = _spread([*self._keys, *_bounds(batch["key"])])
        if place.cf == WRITE and place.op == PUT:
            bare = pc.and_(
                pc.or_(pc.equal(batch["type"], PUTS), pc.equal(batch["type"], DELETES)),
                pc.is_null(batch["value"]),
            )
            first = pc.min(batch["start_ts"].filter(bare)).as_py()
            if first is not None:
                self._begins = [min([first, *self._begins])]
        if "offset" in batch.schema.names:
            self._offsets = _spread([*self._offsets, *_bounds(batch["offset"])])


class StoredLogFile(Protocol):
    """What of a row of `files` reading needs; `path` is below the storage's root."""

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
    storage: Storage, file: StoredLogFile, keys: LogKeys | None, *, checksum: bool = True
) -> Iterator[pa.RecordBatch]:
    """The records of a log file in the order they were written, batches of `events.stored_schema()`.

    The stored file is held in memory, its contents batch by batch. `checksum`: compare its SHA-256 with the
    row's; size and number of records always are. Raises NotFound, UsageProblem (key), Damaged.
    """
    import pyarrow as pa

    data = storage.get(file.path)
    intact = len(data) == file.bytes and hashlib.sha256(data).hexdigest() == file.sha256
    if (checksum and not intact) or len(data) != file.bytes:
        raise Damaged(
            f"{file.path} has {len(data)} bytes that are not the {file.bytes} that were written (sha256).",
            hint=_HINT,
        )
    if file.key_id is not None:
        data = cipher.opened(keys, file.key_id, file.path, data, intact=intact)
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


def suffix(codec: str, *, encrypted: bool) -> str:
    """What follows `.log` in a file's name."""
    return _SUFFIX[codec] + (cipher.SUFFIX if encrypted else "")


def _compressed(data: bytes, codec: str) -> bytes:
    import pyarrow as pa

    if codec == "none":
        return data
    level = _ZSTD_LEVEL if codec == "zstd" else None
    compressed: bytes = pa.Codec(codec, compression_level=level).compress(data, asbytes=True)
    return compressed


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    count = max(-(-len(batch) // _BATCH_ROWS), min(len(batch), -(-batch.nbytes // _BATCH_BYTES)))
    step = -(-len(batch) // count)
    for begin in range(0, len(batch), step):
        yield batch.slice(begin, step)


def _bounds(array: pa.Array) -> Sequence[Any]:
    import pyarrow.compute as pc

    found = pc.min_max(array).as_py()
    return found["min"], found["max"]


def _spread(values: list[Any]) -> list[Any]:
    return [min(values), max(values)]


def _rounded(key: bytes) -> str | None:
    """An upper bound of the keys in lower hex; None when the cut key has no greater one of its length."""
    if len(key) <= _KEY_LIMIT:
        return key.hex()
    kept = key[:_KEY_LIMIT].rstrip(b"\xff")
    return (kept[:-1] + bytes([kept[-1] + 1])).hex() if kept else None


class _Stream:
    """Pieces of bytes as one stream for `Storage.upload`; its SHA-256 is computed as it is read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._held = pieces, memoryview(b"")
        self.sha256 = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        while not self._held:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._held = memoryview(piece)
        data, self._held = bytes(self._held[:size]), self._held[size:]
        self.sha256.update(data)
        return data
