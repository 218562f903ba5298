"""What Spark tasks do with the files of an archive: check them, copy them, read their mutations."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Damaged
from lakebackup.formats.archives.cbb import Summary, Vbucket, scan
from lakebackup.formats.archives.chain import Copied
from lakebackup.storage import open_storage
from lakebackup_jobs.lifecycle.tasks.errors import guarded, raise_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebackup.storage import Storage

CHECKED = "path STRING, bytes BIGINT, sha256 STRING, summary STRING, error STRING"
MOST_TASKS = 2_000
_PIECE = 1 << 22


@contextmanager
def as_file(storage: Storage, path: str) -> Iterator[Path]:
    """An object as a file that SQLite can open: itself where it is one, else a copy of it."""
    if storage.uri.startswith("file://"):
        storage.stat(path)  # NotFound; and no symbolic link is followed
        yield Path(storage.uri.removeprefix("file://"), path)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "data.cbb")
        with storage.open(path) as stream, copy.open("wb") as sink:
            shutil.copyfileobj(stream, sink, _PIECE)
        yield copy


def copy(source: Storage, path: str, sha256: str, target: Storage, to: str) -> int:
    """Copy an object, and commit it only if it is what it was; returns its bytes. Raises Damaged."""
    digest, size = hashlib.sha256(), 0
    with target.writer() as writer, source.open(path) as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
            size += len(piece)
            writer.write(piece)
        if digest.hexdigest() != sha256:
            raise Damaged(
                f"{path} is not what it was: its SHA-256 differs.",
                hint="Nothing of it was taken. Run this again when nothing writes to it.",
            )
        writer.commit(to, if_absent=False)
    return size


def require_same(storage: Storage, path: str, sha256: str) -> None:
    """Raises Damaged, NotFound when an object is not what the catalog says."""
    if storage.sha256(path) != sha256:
        raise Damaged(
            f"{path} is not what was written: its SHA-256 differs.",
            hint="Restore the file from a copy, or choose another backup.",
        )


@dataclass(frozen=True, slots=True)
class CheckJob:
    """For `mapInArrow` over numbers: checks the .cbb files of these numbers, a row of CHECKED each."""

    uri: str
    paths: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield guarded(CHECKED, partial(self._one, self.paths[number]), path=self.paths[number])

    def _one(self, path: str) -> Mapping[str, Any]:
        storage = open_storage(self.uri)
        sha256, size = storage.sha256(path), storage.stat(path).bytes
        with as_file(storage, path) as file:
            summary = scan(file, path)
        return {"path": path, "bytes": size, "sha256": sha256, "summary": _text(summary)}


def check(spark: SparkSession, uri: str, paths: Sequence[str]) -> dict[str, Copied]:
    """Check .cbb files, each in a task; a row a file comes back. Raises the first error that one found."""
    rows = run_tasks(spark, CheckJob(uri, tuple(paths)), len(paths), CHECKED)
    return {row.path: Copied(row.path, row.bytes, row.sha256, _summary(row.summary)) for row in rows}


@dataclass(frozen=True, slots=True)
class CopyJob:
    """For `mapInArrow` over numbers: copies (path, sha256, to) from one place to another; see
    `open_storage` for `private`."""

    uri: str
    target: str
    files: tuple[tuple[str, str, str], ...]
    private: bool = True

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                path, sha256, to = self.files[number]
                yield guarded(CHECKED, partial(self._one, path, sha256, to), path=path)

    def _one(self, path: str, sha256: str, to: str) -> Mapping[str, Any]:
        size = copy(open_storage(self.uri), path, sha256, open_storage(self.target, private=self.private), to)
        return {"path": path, "bytes": size, "sha256": sha256}


def run_tasks(spark: SparkSession, job: Any, count: int, columns: str) -> list[Any]:
    """Run a job over the numbers up to `count`; raises the first error that a task reported."""
    from lakebackup.sql_engine.failures import task_errors

    if not count:
        return []
    with task_errors():
        rows = spark.range(0, count, 1, min(count, MOST_TASKS)).mapInArrow(job, columns).collect()
    raise_first(row.error for row in rows)
    return list(rows)


def _text(summary: Summary) -> str:
    return json.dumps(
        {
            "version": summary.version,
            "entries": summary.entries,
            "deletions": summary.deletions,
            "raw_bytes": summary.raw_bytes,
            "low_key": None if summary.low_key is None else summary.low_key.hex(),
            "high_key": None if summary.high_key is None else summary.high_key.hex(),
            "vbuckets": [[v.vbucket, v.entries, v.first, v.last] for v in summary.vbuckets],
        }
    )


def _summary(text: str) -> Summary:
    values = json.loads(text)
    return Summary(
        version=values["version"],
        entries=values["entries"],
        deletions=values["deletions"],
        raw_bytes=values["raw_bytes"],
        low_key=None if values["low_key"] is None else bytes.fromhex(values["low_key"]),
        high_key=None if values["high_key"] is None else bytes.fromhex(values["high_key"]),
        vbuckets=tuple(Vbucket(*part) for part in values["vbuckets"]),
    )
