"""The Spark task of a topic backup: it reads offset ranges and writes data files and a manifest part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakebackup.plan.partitions import Partition, Range
from lakebackup.plan.topics.backup import Split
from lakebackup.rows.backups import DataFile
from lakebackup.rules import layout
from lakebackup.sql_engine.pace import spend_of
from lakebackup.storage import AlreadyExists, ObjectWriter, Storage
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.client.consume import Look, Progress, copy_range
from lakebackup_jobs.kafka.format.key_filter import KeyFilters
from lakebackup_jobs.kafka.format.offsets_log import isolation_of
from lakebackup_jobs.kafka.format.schemas import FORMAT_V2
from lakebackup_jobs.lifecycle.tasks.part import PartTask

#: The key in a data file's header whose value is the id of the backup that wrote the file.
BACKUP_ID = "lakebackup.backup"


def publish(
    writer: ObjectWriter, source: str, partition: Partition, seq: int, holds: Mapping[str, Any]
) -> tuple[str, int]:
    """Commit a data file under the first free number from `seq` on. Returns its path and the next number.

    `holds` are columns of the file's row. The last offset and the newest time (ms) become metadata of the
    object, where the storage has metadata.
    """
    metadata = {
        "lakebackup-last-position": str(holds["end_position"] - 1),
        "lakebackup-max-ts": str(holds["max_ts"]),
    }
    # The object itself takes the number. If another task, or a run that crashed before its commit, has
    # taken it, the next number is tried.
    while True:
        path = layout.data_path(source, partition.epoch, partition.scope, int(partition.region), seq)
        seq += 1
        try:
            writer.commit(path, metadata=metadata)
        except AlreadyExists:
            continue
        return path, seq


@dataclass(frozen=True, kw_only=True)
class OffsetsTask(PartTask):
    """Copies offset ranges of topics. `sequences` maps (topic, partition) to its first free file number.

    `client`: librdkafka properties. `report`: whether the tasks report their progress.
    """

    client: Mapping[str, str] = field(repr=False)
    isolation: str
    codec: str
    compression_level: int | None
    target_bytes: int
    sequences: Mapping[tuple[str, str], int]
    report: bool = True

    def counter(self, storage: Storage, task: int) -> Progress:
        return self.progress(storage, task) if self.report else spend_of

    def copy(
        self,
        storage: Storage,
        span: Range,
        keys: KeyFilters,
        on_progress: Progress | None,
        *,
        isolation: str | None = None,
        roll_ms: int | None = None,
        metadata: Mapping[str, str] | None = None,
        look: Look | None = None,
        **columns: Any,
    ) -> Iterator[DataFile]:
        """Copy a range into data files; returns their rows, which have `columns` too.

        `metadata` goes into the files' headers.
        """
        seq = self.sequences.get((span.scope, span.region), 0) + span.rank
        writers: list[ObjectWriter] = []

        def new_file() -> ObjectWriter:
            writers.append(storage.writer())
            return writers[-1]

        try:
            for stats in copy_range(
                self.client,
                span.scope,
                int(span.region),
                span.start,
                span.end,
                new_file,
                isolation=isolation or self.isolation,
                codec=self.codec,
                compression_level=self.compression_level,
                target_bytes=self.target_bytes,
                roll_ms=roll_ms,
                on_progress=on_progress,
                metadata={BACKUP_ID: self.backup_id, **(metadata or {})},
                topic_id=span.epoch,
                look=look,
                seal=self.seal(span),
            ):
                path, seq = publish(writers[-1], self.source, span, seq, stats.columns())
                yield self.row(
                    path=path,
                    scope=span.scope,
                    epoch=span.epoch,
                    region=span.region,
                    format=FORMAT_V2,
                    codec=self.codec,
                    **stats.columns(),
                    **keys.add(stats.keys, (*span.key, stats.start_position)),
                    **columns,
                )
        finally:
            for writer in writers:
                writer.__exit__(None, None, None)


@dataclass(frozen=True, kw_only=True)
class CopyJob(OffsetsTask):
    """Copies topics. `rolls` maps a topic to the time span in ms after which a file of it is closed."""

    tasks: tuple[tuple[Split, ...], ...]
    rolls: Mapping[str, int]

    def write(self, storage: Storage, task: int) -> list[DataFile]:
        count = self.counter(storage, task)
        with KeyFilters(storage, self.source, self.backup_id, task, self.key) as keys:
            rows = [row for split in self.tasks[task] for row in self._copy(storage, split, keys, count)]
            Cluster(self.client).require_same({split.scope: split.epoch for split in self.tasks[task]})
            keys.commit()
        return rows

    def _copy(
        self, storage: Storage, split: Split, keys: KeyFilters, count: Progress | None
    ) -> Iterator[DataFile]:
        return self.copy(
            storage,
            split,
            keys,
            count,
            isolation=isolation_of(split.scope, self.isolation),
            roll_ms=self.rolls.get(split.scope),
            generation=split.generation,
        )
