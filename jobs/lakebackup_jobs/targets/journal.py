"""What a restore into topics records in the repository beside its transactions.

A producer writes into many partitions in one transaction. So it has one object for the translations that it
stages, and one for where its partitions began, instead of one for each partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from lakebackup.rows.topics import Translation
from lakebackup.storage import Storage
from lakebackup.store.staged_translations import StagedRows, StagedTranslations
from lakebackup.store.translations import put_rows
from lakebackup_jobs.kafka.memory import Longs
from lakebackup_jobs.targets.bases import Bases

#: A partition's translation without positions, or None if it has none, and rows with the positions.
PartitionRows: TypeAlias = "tuple[Translation | None, Longs]"


class Journal:
    """The records of one producer. `folder`: the restore's, in `storage`."""

    def __init__(self, storage: Storage, folder: str, producer: str) -> None:
        self.storage = storage
        self._bases = Bases(storage, folder, producer)
        self._staged = StagedTranslations(storage, folder, producer)

    def bases(self, topic_id: str, region: str) -> Collection[int]:
        """Where earlier runs began in a target partition."""
        return self._bases.of(topic_id, region)

    def begin(self, bases: Mapping[tuple[str, str], int]) -> None:
        """Record where partitions began, once their first transaction is committed."""
        self._bases.record(bases)

    def staged(self, identity: Translation | None) -> Sequence[StagedRows]:
        """The rows that earlier runs staged for a partition."""
        return self._staged.of(identity) if identity else ()

    def stage(self, rows: Iterable[tuple[Translation | None, Longs, int]]) -> None:
        """Stage the rows of the transaction that is about to be committed, each with its partition's
        position."""
        self._staged.stage(
            (identity, StagedRows(partition_rows, position))
            for identity, partition_rows, position in rows
            if identity and len(partition_rows)
        )

    def decide(self, rows: Iterable[PartitionRows]) -> None:
        """Make these rows count; what was staged is over."""
        self.translate(rows)
        self._staged.retire()

    def translate(self, rows: Iterable[PartitionRows]) -> None:
        """Make these rows count."""
        put_rows(
            self.storage,
            [
                (identity, partition_rows)
                for identity, partition_rows in rows
                if identity and len(partition_rows)
            ],
        )
