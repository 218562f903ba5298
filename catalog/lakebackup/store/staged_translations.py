"""Stores the translation of an open transaction until it is known where its records landed.

    restores/<restore_id>/aside/<producer>/<attempt>.parquet    the rows of all partitions of the transaction
    restores/<restore_id>/aside/<epoch>-<region>.parquet        the rows of one, from an earlier version

A task of a restore stages the rows before it commits. After the commit it checks where the records are in the
target, and puts the rows into the objects that count. Each attempt of a task has its own object, so that one
that was replaced, but still runs, cannot overwrite what its successor needs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa

from lakebackup.errors import NotFound
from lakebackup.rows.topics import Translation
from lakebackup.storage import Storage, working
from lakebackup.store.translations import Rows, encode, positions, read_table, table_of

_PARTS = b"parts"
_POSITION = b"position"


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The rows of a transaction in one partition. `position`: where the restore stands after it."""

    rows: Rows
    position: int


class StagedTranslations:
    """The staged rows of one producer's transactions. `folder`: the restore's."""

    def __init__(self, storage: Storage, folder: str, producer: str) -> None:
        self._storage = storage
        self._folder = f"{folder}aside/"
        self._attempts = f"{self._folder}{producer}/"
        self._path = f"{self._attempts}{uuid4().hex}.parquet"
        self._rows: defaultdict[tuple[str, str], list[StagedRows]] = defaultdict(list)
        self._paths: list[str] = []
        for stat in storage.list(self._attempts):
            self._read(stat.path)

    def of(self, identity: Translation) -> list[StagedRows]:
        """Return the rows that earlier attempts staged for a partition, at most one transaction of each."""
        partition = (identity.epoch, identity.region)
        if partition not in self._rows:
            self._read_earlier_version(partition)
        return self._rows[partition]

    def stage(self, parts: Iterable[tuple[Translation, StagedRows]]) -> None:
        """Stage a transaction, in place of the one before."""
        tables, described = [], []
        for identity, staged in parts:
            tables.append(table_of(identity, staged.rows))
            described.append((identity.epoch, identity.region, staged.position, len(staged.rows)))
        if tables:
            table = pa.concat_tables(tables).replace_schema_metadata({_PARTS: json.dumps(described)})
            self._storage.put(self._path, encode(table))
            self._paths.append(self._path)

    def retire(self) -> None:
        """Delete what is staged, here and by earlier attempts: all of it is decided."""
        for path in self._paths:
            working.retire(self._storage, path)
        self._paths.clear()

    def _read(self, path: str) -> None:
        try:
            table = read_table(self._storage, path)
        except NotFound:
            return
        self._paths.append(path)
        start = 0
        for epoch, region, position, count in json.loads(table.schema.metadata[_PARTS]):
            rows = positions(table.slice(start, count))
            self._rows[epoch, region].append(StagedRows(rows, position))
            start += count

    def _read_earlier_version(self, partition: tuple[str, str]) -> None:
        path = f"{self._folder}{'-'.join(partition)}.parquet"
        try:
            table = read_table(self._storage, path)
        except NotFound:
            return
        self._paths.append(path)
        self._rows[partition].append(StagedRows(positions(table), int(table.schema.metadata[_POSITION])))
