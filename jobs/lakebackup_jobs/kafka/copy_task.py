"""What a Spark task of a topic backup does: read offset ranges, write data files and a manifest part.

The part is the task's commit: it is put only if it is not there, so a task that Spark runs twice
counts once, whichever attempt was first. No row of a file goes through the driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakebackup import layout
from lakebackup.errors import NotFound
from lakebackup.model import LANES, DataFile, Digest, json_line
from lakebackup.sidecar import read_part, write_part
from lakebackup.storage import AlreadyExists, ObjectWriter, Storage, open_storage
from lakebackup_jobs.kafka.consume import Progress, copy_range
from lakebackup_jobs.kafka.schemas import FORMAT_V2
from lakebackup_jobs.outcome import guarded
from lakebackup_jobs.taskboard import TaskBoard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from lakebackup.plan.backup_topics import Split
    from lakebackup_jobs.kafka.stats import FileStats

OUTCOME = (
    "task INT, files BIGINT, bytes BIGINT, entries BIGINT, "
    + ", ".join(f"lane{i} BIGINT" for i in range(LANES))
    + ", error STRING"
)


@dataclass(frozen=True, slots=True)
class CopyJob:
    """The same for every task of one backup. `sequences` maps (topic, partition) to its first free number."""

    destination_uri: str
    destination: str
    source: str
    backup_id: str
    number: int
    level: int
    parent: str | None
    client: Mapping[str, str]
    isolation: str
    codec: str
    compression_level: int | None
    target_bytes: int
    tasks: tuple[tuple[Split, ...], ...]
    sequences: Mapping[tuple[str, str], int]
    report: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow` over task numbers: one row a task, columns as in OUTCOME."""
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield guarded(OUTCOME, partial(self._totals, task), task=task)

    def _totals(self, task: int) -> dict[str, object]:
        rows = self._copy(task)
        digest = Digest()
        for row in rows:
            digest.add(json_line(row))
        return {
            "task": task,
            "files": len(rows),
            "bytes": sum(row.bytes for row in rows),
            "entries": sum(row.entries for row in rows),
            **{f"lane{i}": lane for i, lane in enumerate(digest.lanes)},
        }

    def _copy(self, task: int) -> list[DataFile]:
        storage = open_storage(self.destination_uri)
        part = layout.parts_path(self.source, self.backup_id, task)
        try:
            return read_part(storage, part)
        except NotFound:
            pass
        board = TaskBoard(storage, layout.backup_folder(self.source, self.backup_id)) if self.report else None
        done = board.counter(f"{task:06d}") if board else None
        rows = [row for split in self.tasks[task] for row in self._copy_split(storage, split, done)]
        return write_part(storage, part, rows)

    def _copy_split(self, storage: Storage, split: Split, done: Progress | None) -> Iterator[DataFile]:
        seq = self.sequences.get((split.scope, split.region), 0) + split.rank
        writers: list[ObjectWriter] = []

        def new_file() -> ObjectWriter:
            writers.append(storage.writer())
            return writers[-1]

        try:
            for stats in copy_range(
                self.client,
                split.scope,
                int(split.region),
                split.start,
                split.end,
                new_file,
                isolation=self.isolation,
                codec=self.codec,
                compression_level=self.compression_level,
                target_bytes=self.target_bytes,
                on_progress=done,
            ):
                path, seq = self._publish(writers[-1], split, seq)
                yield self._row(split, path, stats)
        finally:
            for writer in writers:
                writer.__exit__(None, None, None)

    def _publish(self, writer: ObjectWriter, split: Split, seq: int) -> tuple[str, int]:
        # A number is taken by the object itself: whoever finds it taken (another task, a run that
        # crashed before its commit) goes on to the next.
        while True:
            path = layout.data_path(self.source, split.epoch, split.scope, int(split.region), seq)
            seq += 1
            try:
                writer.commit(path)
            except AlreadyExists:
                continue
            return path, seq

    def _row(self, split: Split, path: str, stats: FileStats) -> DataFile:
        return DataFile(
            destination=self.destination,
            path=path,
            backup_id=self.backup_id,
            added_in=self.number,
            source=self.source,
            scope=split.scope,
            epoch=split.epoch,
            region=split.region,
            format=FORMAT_V2,
            codec=self.codec,
            bytes=stats.bytes,
            raw_bytes=stats.raw_bytes,
            sha256=stats.sha256,
            entries=stats.entries,
            min_ts=stats.min_ts,
            max_ts=stats.max_ts,
            start_position=stats.start_position,
            end_position=stats.end_position,
            start_key=stats.start_key,
            end_key=stats.end_key,
            null_keys=stats.null_keys,
            tombstones=stats.tombstones,
            level=self.level,
            parent=self.parent,
            generation=split.generation,
        )
