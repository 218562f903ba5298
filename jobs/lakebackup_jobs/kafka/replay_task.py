"""What a Spark task of a restore into topics does: one partition after another, in transactions.

A transaction holds whole files, verified before their records are sent, and commits how far the source was
read. Readers of committed records never see half of a file, and a task that runs again goes on behind the
last commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakebackup_jobs.kafka.produce import Progress, RestoreProducer
from lakebackup_jobs.kafka.stored import Counted, open_verified
from lakebackup_jobs.outcome import RESTORED, guarded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from lakebackup_jobs.shares import Shares, StoredFile

# Small files share a transaction until they hold this many stored bytes.
TRANSACTION_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """The same for every task of one restore; `targets` maps a source topic to the target's."""

    roots: Mapping[str, str]
    shares: Shares
    group: str
    client: Mapping[str, str]
    targets: Mapping[str, str]
    from_ts: int | None
    to_ts: int | None
    zero_as_one: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow` over the numbers of shares: one row a partition, columns as in RESTORED."""
        for first, files in self.shares.partitions(batches):
            yield guarded(
                RESTORED,
                partial(self._partition, first, files),
                scope=first.scope,
                region=first.region,
            )

    def _partition(self, first: StoredFile, files: Iterator[StoredFile]) -> dict[str, object]:
        topic, partition = self.targets[first.scope], int(first.region)
        tell = self.shares.board().counter(f"{first.scope}-{partition}")
        # Made per partition: making it again ends what a killed task left open there, and only that.
        name = f"{self.group}-{topic}-{partition}"
        with RestoreProducer(self.client, name, self.group, zero_as_one=self.zero_as_one) as producer:
            done = producer.committed(topic, partition)
            position = done.position if done else 0
            entries, size = _parse(done.note) if done else (0, 0)
            pending = 0
            for file in files:
                if file.end_position <= position:
                    tell(file.entries, file.bytes)
                    continue
                if not pending:
                    producer.begin()
                entries += self._file(producer, file, topic, partition, position)
                size += file.bytes
                pending += file.bytes
                position = file.end_position
                tell(file.entries, file.bytes)
                if pending >= TRANSACTION_BYTES:
                    producer.commit({(topic, partition): Progress(position, f"{entries},{size}")})
                    pending = 0
            if pending:
                producer.commit({(topic, partition): Progress(position, f"{entries},{size}")})
        return {
            "scope": first.scope,
            "region": first.region,
            "entries": entries,
            "bytes": size,
            "position": position,
        }

    def _file(
        self, producer: RestoreProducer, file: StoredFile, topic: str, partition: int, least: int
    ) -> int:
        counted = Counted(file)
        kept = 0
        for columns in open_verified(self.roots, file):
            counted.add(len(columns.rows))
            sent = producer.produce_block(topic, partition, columns, self.from_ts, self.to_ts, least)
            kept += sent.entries if sent else 0
        counted.check()
        return kept


def _parse(note: str) -> tuple[int, int]:
    entries, _, size = note.partition(",")
    return int(entries or 0), int(size or 0)
