"""What a Spark task of a topic backup does: read offset ranges, write data files and a manifest part.

The part is the task's commit: it is put only if it is not there, so a task that Spark runs twice
counts once, whichever attempt was first. No row of a file goes through the driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from lakebackup.errors import NotFound
from lakebackup.rows.backups import DataFile
from lakebackup.rules import layout
from lakebackup.storage import AlreadyExists, ObjectWriter, Storage, open_storage
from lakebackup.store.manifest import read_part, write_part
from lakebackup_jobs.kafka.client.consume import Progress, copy_range
from lakebackup_jobs.kafka.format.key_filter import KeyFilters
from lakebackup_jobs.kafka.format.offsets_log import isolation_of
from lakebackup_jobs.kafka.format.schemas import FORMAT_V2
from lakebackup_jobs.lifecycle.task_errors import guarded
from lakebackup_jobs.lifecycle.task_progress import TaskBoard
from lakebackup_jobs.lifecycle.task_totals import OUTCOME, totals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from lakebackup.plan.topics.backup import Split
    from lakebackup_jobs.kafka.format.stats import FileStats

#: In the header of a data file, the backup that wrote it.
BACKUP_ID = "lakebackup.backup"


class Place(Protocol):
    """A partition, as a task names it."""

    @property
    def scope(self) -> str: ...
    @property
    def epoch(self) -> str: ...
    @property
    def region(self) -> str: ...


def publish(
    writer: ObjectWriter, source: str, place: Place, seq: int, holds: Mapping[str, Any]
) -> tuple[str, int]:
    """Commit a data file under the first free number from `seq` on: its path, and the number after it.

    `holds`: columns of its row. Last offset and newest time (ms) go with the object, where its place can.
    """
    metadata = {
        "lakebackup-last-position": str(holds["end_position"] - 1),
        "lakebackup-max-ts": str(holds["max_ts"]),
    }
    # A number is taken by the object itself: whoever finds it taken (another task, a run that
    # crashed before its commit) goes on to the next.
    while True:
        path = layout.data_path(source, place.epoch, place.scope, int(place.region), seq)
        seq += 1
        try:
            writer.commit(path, metadata=metadata)
        except AlreadyExists:
            continue
        return path, seq


@dataclass(frozen=True, slots=True)
class CopyJob:
    """The same for every task of one backup. `sequences` maps (topic, partition) to its first free
    number, `rolls` a topic to the span in ms after which a file of it is closed."""

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
    rolls: Mapping[str, int]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow` over task numbers: one row a task, columns as in OUTCOME."""
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield guarded(OUTCOME, partial(self._totals, task), task=task)

    def _totals(self, task: int) -> dict[str, object]:
        return totals(task, self._copy(task))

    def _copy(self, task: int) -> list[DataFile]:
        storage = open_storage(self.destination_uri)
        part = layout.parts_path(self.source, self.backup_id, task)
        try:
            return read_part(storage, part)
        except NotFound:
            pass
        board = TaskBoard(storage, layout.backup_folder(self.source, self.backup_id)) if self.report else None
        done = board.counter(f"{task:06d}") if board else None
        with KeyFilters(storage, self.source, self.backup_id, task) as keys:
            rows = [row for split in self.tasks[task] for row in self._copy_split(storage, split, keys, done)]
            keys.commit()
        return write_part(storage, part, rows)

    def _copy_split(
        self, storage: Storage, split: Split, keys: KeyFilters, done: Progress | None
    ) -> Iterator[DataFile]:
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
                isolation=isolation_of(split.scope, self.isolation),
                codec=self.codec,
                compression_level=self.compression_level,
                target_bytes=self.target_bytes,
                roll_ms=self.rolls.get(split.scope),
                on_progress=done,
                metadata={BACKUP_ID: self.backup_id},
                topic_id=split.epoch,
            ):
                path, seq = publish(writers[-1], self.source, split, seq, stats.columns())
                yield self._row(split, path, stats, keys)
        finally:
            for writer in writers:
                writer.__exit__(None, None, None)

    def _row(self, split: Split, path: str, stats: FileStats, keys: KeyFilters) -> DataFile:
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
            **stats.columns(),
            **keys.add(stats.keys),
            level=self.level,
            parent=self.parent,
            generation=split.generation,
        )
