"""The tasks that compare the restored records or files of a trial restore with what was backed up."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from lakebackup.errors import Damaged
from lakebackup.plan.records import RecordFilter
from lakebackup.rules.layout import topic_folder
from lakebackup.rules.schema_ids import schema_ids
from lakebackup.sql_engine.guard.records import COLUMNS
from lakebackup.sql_engine.lazy_dataset import LazyDataset
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.format.container import FileReader
from lakebackup_jobs.kafka.format.read_records import ReadRecords, RecordFile, schema_of
from lakebackup_jobs.kafka.format.records import Columns, select_records
from lakebackup_jobs.kafka.format.stored import StoredFile, open_verified
from lakebackup_jobs.kafka.format.values import Decoder
from lakebackup_jobs.lifecycle.tasks.plan_shares import PlanShares
from lakebackup_jobs.lifecycle.tasks.task import Task, Work
from lakebackup_jobs.targets.records import ReadJob

_COLUMNS = "different STRING, error STRING"
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_END = 2**63 - 1
# How many differences are named at most.
_MAX_DIFFERENCES = 5


def join_differences(differences: Sequence[str | None], noun: str) -> str | None:
    """Join differences into one text, which names the first of them; None if there are none.

    `noun`: what the text calls the others.
    """
    texts = [text for text in differences if text]
    if not texts:
        return None
    suffix = f"; and {len(texts) - _MAX_DIFFERENCES} more {noun}" if len(texts) > _MAX_DIFFERENCES else ""
    return "; ".join(texts[:_MAX_DIFFERENCES]) + suffix


@dataclass(frozen=True, slots=True)
class CompareRecords(ReadJob, Task):
    """Compares the restored records of each partition with those in the backups' files, which are verified.

    It compares the number of records, and a digest of all their bytes in order.
    """

    COLUMNS = _COLUMNS

    folder: str

    def works(self, number: int) -> Iterator[Work]:
        for (scope, region), files in self.shares.partition_files(number):
            yield partial(self._rows, self.targets[scope], region, files)

    def _rows(self, topic: str, region: str, files: Iterable[StoredFile]) -> list[Mapping[str, Any]]:
        return [self._compare(topic, region, files)]

    def _compare(self, topic: str, region: str, files: Iterable[StoredFile]) -> Mapping[str, Any]:
        backed_up = _digest(self._backed_up_blocks(files))
        try:
            restored = _digest(
                block
                for reader in _restored_files(f"{self.folder}/{topic_folder(topic)}partition={region}")
                for block in reader
            )
        except Damaged as error:
            return {"different": f"{topic}-{region}: {error.message}"}
        if restored == backed_up:
            return {"different": None}
        if restored[0] != backed_up[0]:
            difference = f"{restored[0]} records are there, not {backed_up[0]}"
        else:
            difference = f"its {restored[0]} records are not those that were backed up"
        return {"different": f"{topic}-{region}: {difference}"}

    def _backed_up_blocks(self, files: Iterable[StoredFile]) -> Iterator[Columns]:
        for file in files:
            for block in open_verified(self.roots, file):
                yield select_records(block, self.from_ts, self.to_ts)


def _digest(blocks: Iterable[Columns]) -> tuple[int, str]:
    """Return the number of records, and the SHA-256 of their bytes."""
    digest, count = hashlib.sha256(), 0
    for block in blocks:
        if (packed := block.packed()) is not None:
            digest.update(packed.data.data)
            count += packed.stats.entries
    return count, digest.hexdigest()


def _restored_files(folder: str) -> Iterator[FileReader]:
    """Yield the data files of a restored partition, in the order of their records."""
    for path in sorted(Path(folder).glob("*")):
        with path.open("rb") as stream:
            yield FileReader(stream, str(path))


@dataclass(frozen=True, slots=True)
class CompareRestoredFiles(Task):
    """Compares the restored files of a task's shares with their sizes and SHA-256 in the catalog."""

    COLUMNS = _COLUMNS

    shares: PlanShares
    folder: str

    def run(self, number: int) -> Mapping[str, Any]:
        return {"different": join_differences(list(self._differences(number)), "files")}

    def _differences(self, number: int) -> Iterator[str]:
        for batch in self.shares.batches(number, ["target", "bytes", "sha256"]):
            for row in batch.to_pylist():
                if difference := _difference(Path(self.folder, row["target"]), row["bytes"], row["sha256"]):
                    yield f"{row['target']}: {difference}"


def _difference(path: Path, size: int | None, sha256: str) -> str | None:
    """Return how a file differs from its row; None if it does not. A link is no file."""
    try:
        with os.fdopen(os.open(path, _OPEN), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                return "it is no file"
            if size not in (None, status.st_size):
                return f"{status.st_size} bytes are there, not {size}"
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        return os.strerror(error.errno or 0)
    return None if digest == sha256 else f"sha256 is {digest}, not {sha256}"


def restored_records(reader: CatalogReader, source: str, folder: str) -> ds.Dataset:
    """Return the records that a restore wrote below `folder`, as rows with the columns of records(…).

    `folder` has a folder for each topic.
    """
    decoder = Decoder(schema_ids(reader.rows("value_schemas", source=source)))
    job = ReadRecords(tuple(COLUMNS), RecordFilter(), None, reader.destinations(), decoder, None)

    def scan(_columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for partition in sorted(Path(folder).glob("*/partition=*")):
            for opened in _restored_files(str(partition)):
                yield from job.read(_as_record_file(source, partition, opened), opened)

    return LazyDataset(schema_of(job.columns).empty_table(), scan)


def _as_record_file(source: str, partition: Path, opened: FileReader) -> RecordFile:
    """Describe a restored file: the columns that are the same for all its records come from this."""
    return RecordFile(
        scope=partition.parent.name,
        epoch="",
        region=partition.name.partition("=")[2],
        start_position=0,
        end_position=_NO_END,
        destination="",
        path=opened.name,
        format=opened.fmt,
        codec=opened.codec,
        bytes=0,
        sha256="",
        entries=0,
        backup_id="",
        source=source,
        null_keys=0,
        start_key=None,
        end_key=None,
        key_id=None,
        keys_path=None,
        keys_start=None,
        keys_blocks=None,
        to_position=_NO_END,
    )
