"""The Spark task of a restore by SELECT: it writes the rows as data files, in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

from lakebackup.encryption.objects import BackupKey
from lakebackup.errors import Refused
from lakebackup.sql_engine.worker import task_number, trim_worker
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.format.container import DEFAULT_CODEC, FileWriter
from lakebackup_jobs.kafka.format.encode import Rows
from lakebackup_jobs.kafka.format.records import Block
from lakebackup_jobs.kafka.format.schemas import FORMAT_V2
from lakebackup_jobs.lifecycle.tasks.batched import batched

#: The columns of a staged file: what a restore needs to know of it.
STAGED = (
    "scope STRING, epoch STRING, region STRING, start_position BIGINT, end_position BIGINT, "
    "destination STRING, path STRING, format STRING, codec STRING, bytes BIGINT, sha256 STRING, "
    "entries BIGINT, raw_bytes BIGINT, min_ts BIGINT, max_ts BIGINT"
)
# Uncompressed bytes of one block of a file, and of all blocks that a task buffers.
_BLOCK_BYTES = 4 << 20
_BUFFER_BYTES = 64 << 20
#: A task numbers its records from its own number times this, so the records of later tasks come later.
NUMBERS_A_TASK = 1 << 40


@dataclass(frozen=True, slots=True)
class Stage:
    """For `mapInArrow` over rows of partition, key, value, headers and ts: writes them as data files of a
    topic below `folder` of the destination at `uri`, and returns a row of STAGED for each file. `key`
    encrypts them.

    `regions` is the number of partitions; None: any. Each attempt of a task gives its files names of their
    own, so a restore reads only the files of the attempt that counts.
    """

    uri: str
    folder: str
    destination: str
    scope: str
    epoch: str
    regions: int | None
    key: BackupKey | None = field(default=None, repr=False)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        numbers: dict[int, int] = {}
        blocks: dict[int, list[Block]] = {}
        size, first = 0, task_number() * NUMBERS_A_TASK
        for batch in filter(len, batches):
            rows, partitions = Rows(batch), self._partitions(batch["partition"])
            for partition in np.unique(partitions).tolist():
                number = numbers.get(partition, first)
                block = rows.block(self.scope, partition, np.flatnonzero(partitions == partition), number)
                numbers[partition] = number + block.stats.entries
                blocks.setdefault(partition, []).append(block)
                size += len(block.data)
            if size >= _BUFFER_BYTES:
                yield self._write_files(blocks)
                blocks, size = {}, 0
        if blocks:
            yield self._write_files(blocks)
        trim_worker()

    def _partitions(self, column: Any) -> Any:
        if column.null_count:
            raise Refused("The SELECT returns a record without a partition.", hint=_HINT)
        partitions = column.to_numpy()
        lowest, highest = int(partitions.min()), int(partitions.max())
        wrong = lowest if lowest < 0 else highest
        if lowest < 0 or highest > 0x7FFFFFFF or (self.regions is not None and highest >= self.regions):
            partition_count = (
                f"; topic {self.scope} has {self.regions}, from 0 on" if self.regions is not None else ""
            )
            raise Refused(f"The SELECT returns partition {wrong}{partition_count}.", hint=_HINT)
        return partitions

    def _write_files(self, blocks: dict[int, list[Block]]) -> Any:
        return pa.RecordBatch.from_pylist(
            [self._write_file(*item) for item in sorted(blocks.items())], _schema()
        )

    def _write_file(self, partition: int, blocks: list[Block]) -> dict[str, Any]:
        path = f"{self.folder}plan/data/{uuid4().hex}.data"
        with open_storage(self.uri).writer() as sink:
            partition_key = (self.scope, self.epoch, str(partition))
            seal = None if self.key is None else self.key.file_sealer(partition_key)
            writer = FileWriter(sink, seal=seal)
            for group in batched(blocks, (lambda block: len(block.data), _BLOCK_BYTES)):
                stats = group[0].stats
                for later in group[1:]:
                    stats += later.stats
                writer.write_block(Block(np.concatenate([block.data for block in group]), stats))
            stats_of_file = writer.finish()
            sink.commit(path)
        figures = (
            "start_position",
            "end_position",
            "bytes",
            "sha256",
            "entries",
            "raw_bytes",
            "min_ts",
            "max_ts",
        )
        return {
            "scope": self.scope, "epoch": self.epoch, "region": str(partition), "path": path,
            "destination": self.destination, "format": FORMAT_V2, "codec": DEFAULT_CODEC,
            **dict(zip(figures, attrgetter(*figures)(stats_of_file), strict=True)),
        }  # fmt: skip


_HINT = (
    "Let it return a partition of the topic, or give --repartition: each record goes where its key belongs."
)


def _schema() -> Any:
    types = {"STRING": pa.string(), "BIGINT": pa.int64()}
    return pa.schema([(name, types[kind]) for name, kind in (pair.split() for pair in STAGED.split(", "))])
