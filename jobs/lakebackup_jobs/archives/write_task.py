"""What a Spark task of an archive's export does: some data files of a topic become one .cbb file."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebackup.formats.archives import cbb
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.format.records import (
    HEADER_COUNT,
    KEY,
    KEY_LENGTH,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    VALUE,
    VALUE_LENGTH,
)
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.lifecycle.atomic_dir import WORK
from lakebackup_jobs.lifecycle.tasks.errors import guarded
from lakebackup_jobs.lifecycle.tasks.progress import TaskBoard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from lakebackup.storage import Storage
    from lakebackup.store.roots import Roots

WRITTEN = (
    "path STRING, bytes BIGINT, entries BIGINT, keyless BIGINT, headers BIGINT, seqnos STRING, error STRING"
)
_NS_IN_MS = 1_000_000
_MOST_CAS = 1 << 64
_COLUMNS = (PARTITION, OFFSET, TIMESTAMP, KEY, KEY_LENGTH, VALUE, VALUE_LENGTH)


@dataclass(frozen=True, slots=True)
class Piece:
    """One .cbb file to write, below the archive's root, and the data files that go into it, in order."""

    path: str
    number: int
    files: tuple[StoredFile, ...]


def put_piece(storage: Storage, number: int, piece: Piece) -> None:
    """Record what task `number` is to do."""
    lines = [json.dumps([piece.path, piece.number])]
    lines += [json.dumps({name: getattr(f, name) for name in StoredFile.__match_args__}) for f in piece.files]
    storage.put(_plan(number), "\n".join(lines).encode())


def _plan(number: int) -> str:
    return f"{WORK}plan/{number:06d}.jsonl"


def cas_of(ts: int) -> int:
    """Nanoseconds since 1970, as a hybrid clock has them; 0 without a timestamp."""
    return ts * _NS_IN_MS if 0 <= ts < _MOST_CAS // _NS_IN_MS else 0


@dataclass(frozen=True, slots=True)
class WriteJob:
    """For `mapInArrow` over numbers: writes the .cbb file of each, a row of WRITTEN each."""

    uri: str
    roots: Roots

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield guarded(WRITTEN, partial(self._one, number), path=str(number))

    def _one(self, number: int) -> Mapping[str, Any]:
        storage = open_storage(self.uri, private=False)
        head, *lines = storage.get(_plan(number)).decode().split("\n")
        path, order = json.loads(head)
        piece = Piece(path, order, tuple(StoredFile(**json.loads(line)) for line in lines))
        rows = Rows(piece.files, self.roots, TaskBoard(storage, WORK).counter(str(number)))
        with tempfile.TemporaryDirectory(prefix="lakebackup-cbb-") as folder:
            file = Path(folder, "data.cbb")
            entries = cbb.write(file, rows)
            with file.open("rb") as stream, storage.writer() as writer:
                shutil.copyfileobj(stream, writer, 1 << 22)
                writer.commit(path, if_absent=False)
            size = file.stat().st_size
        return {
            "path": path,
            "bytes": size,
            "entries": entries,
            "keyless": rows.keyless,
            "headers": rows.headers,
            "seqnos": json.dumps(rows.last),
        }


class Rows:
    """The records of data files as rows of cbb_msg, once; counts what the format has no place for."""

    def __init__(self, files: Iterable[StoredFile], roots: Roots, tell: Callable[[int, int], None]) -> None:
        self._files, self._roots, self._tell = files, roots, tell
        self.keyless = self.headers = 0
        self.last: dict[int, int] = {}

    def __iter__(self) -> Iterator[cbb.Written]:
        for file in self._files:
            for block in open_verified(self._roots, file):
                self.headers += int((block.rows[:, HEADER_COUNT] > 0).sum())
                data = block.data.data
                for vbucket, offset, ts, key, key_length, value, length in block.rows[:, _COLUMNS].tolist():
                    seqno = offset + 1
                    if key_length < 0:
                        self.keyless += 1
                    yield (
                        data[key : key + key_length] if key_length >= 0 else f"{vbucket}-{offset}".encode(),
                        vbucket,
                        cas_of(ts),
                        seqno.to_bytes(8, "big"),
                        data[value : value + length] if length >= 0 else None,
                        seqno,
                    )
                    self.last[vbucket] = seqno
            self._tell(file.entries, file.bytes)
