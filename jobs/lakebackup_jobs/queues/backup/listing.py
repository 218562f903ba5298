"""The rows of `files` beside those of the messages, in a backup of queues: the engine's files, and objects
that hold rows of other tables."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from lakebackup.rows.backups import DataFile
from lakebackup.rows.queues import QueuePoint, QueuePosition, QueueSchema
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row
from lakebackup.storage import Storage
from lakebackup.store.delta_append import LISTED
from lakebackup_jobs.lifecycle.tasks.part import Parts
from lakebackup_jobs.lifecycle.tasks.rows import RowObject, write_rows
from lakebackup_jobs.queues.backup.request import StoredFile

Table = Literal["queue_points", "queue_positions", "queue_transactions", "queue_schemas"]


@dataclass
class Listing:
    """Writes objects and collects their rows. `end_ts`: the time of the engine's files, in ms."""

    storage: Storage
    parts: Parts
    end_ts: int
    rows: list[DataFile] = field(default_factory=list)

    def path(self, table: Table) -> str:
        """Return a new path for an object with rows of a table."""
        return f"{self.parts.folder}listing/{LISTED[table]}-{secrets.token_hex(4)}.parquet"

    def write_rows(self, table: Table, rows: Sequence[QueuePoint | QueuePosition | QueueSchema]) -> None:
        """Write rows of a table, which must be few, as an object."""
        schema, path = ARROW_SCHEMAS[table], self.path(table)
        batch = pa.RecordBatch.from_pylist([as_row(row) for row in rows], schema)
        self.add(table, RowObject(path, *write_rows(self.storage, path, schema, [batch])))

    def add(self, table: Table, written_object: RowObject) -> None:
        """Add the row of an object that was written, unless the object is empty."""
        if written_object.rows:
            self.rows.append(
                self.parts.listing(table, written_object.path, written_object.bytes, written_object.sha256)
            )

    def file(self, file: StoredFile) -> None:
        """Add the row of one of the engine's files."""
        self.rows.append(
            self.parts.row(
                path=file.path,
                scope="-",
                epoch="-",
                region="-",
                role=file.role,
                format="file",
                codec="null",
                bytes=len(file.data),
                raw_bytes=file.content_bytes,
                sha256=hashlib.sha256(file.data).hexdigest(),
                entries=0,
                min_ts=self.end_ts,
                max_ts=self.end_ts,
                start_position=0,
                end_position=1,
            )
        )
