"""Objects of an engine's backups made by hand, and their rows: messages, listings and the engine's files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.support.catalogs import put_listing, put_object
from tests.support.made_backups import Record, block_of, put_data_file
from tests.support.rows import file_row

from lakebackup.formats.queues.headers import NAMES, HeaderNames
from lakebackup.rows.backups import DataFile
from lakebackup.rows.base import Row
from lakebackup.rows.tables import table_of
from lakebackup.rules import layout
from lakebackup.storage import Storage
from lakebackup.store.delta_append import LISTED
from lakebackup_jobs.queues.messages import read_messages

#: Topic and partition.
QueuePartition = tuple[str, int]
Kind = Literal["write", "begin", "commit", "rollback", "watermark"]


@dataclass(frozen=True)
class Message:
    """A message of an engine; `ts` in ms."""

    queue: str
    partition: int
    tid: int
    transaction: str | None = None
    kind: Kind = "write"
    ts: int = 0
    value: bytes = b"v"


@dataclass
class QueueObjects:
    """Writes the objects of the backups of one engine and returns their rows."""

    storage: Storage
    destination: str
    source: str
    _seq: dict[QueuePartition, int] = field(default_factory=dict)

    def messages(
        self,
        name: str,
        number: int,
        epoch: str,
        queue_partition: QueuePartition,
        positioned_messages: Sequence[tuple[int, Message]],
    ) -> DataFile:
        """Write a file of messages, each with its offset."""
        topic, partition = queue_partition
        names, records = HeaderNames(), []
        for position, message in positioned_messages:
            headers: list[tuple[str, bytes | None]] = [("tid", str(message.tid).encode())]
            headers += [("kind", message.kind.encode())]
            headers += [("transaction", message.transaction.encode())] if message.transaction else []
            records.append(Record(partition, position, message.ts, None, message.value, tuple(headers)))
        columns = block_of(topic, records)
        bounds = read_messages(columns, names, name).bounds
        seq = self._seq[queue_partition] = self._seq.get(queue_partition, -1) + 1
        path = layout.data_path(self.source, epoch, topic, partition, seq)
        file = put_data_file(self.storage, path, columns, metadata={NAMES: names.text})
        partition_columns = {
            "scope": topic,
            "epoch": epoch,
            "region": str(partition),
            "path": path,
            "codec": "zstandard",
        }
        tids = {"min_tid": bounds[0], "max_tid": bounds[1]}
        return file_row(
            number, **{**self._object_columns(name, number), **partition_columns, **file.columns(), **tids}
        )

    def listed(self, name: str, number: int, rows: Sequence[Row]) -> list[DataFile]:
        """Write the listings of catalog rows, one object a table."""
        files = []
        for table in sorted({table_of(type(row)) for row in rows}):
            path = f"{layout.backup_folder(self.source, name)}listing/{LISTED[table]}-00000000.parquet"
            table_rows = [row for row in rows if table_of(type(row)) == table]
            files.append(
                put_listing(self.storage, path, table, table_rows, **self._object_columns(name, number))
            )
        return files

    def own_file(
        self,
        name: str,
        number: int,
        end_ts: int,
        file: Literal["config.yaml", "delta_schema_history.yaml"],
        content: bytes,
    ) -> DataFile:
        """Write a file of the engine's own."""
        path = layout.queue_file_path(self.source, name, file)
        file_columns = {"scope": "-", "region": "-", "min_ts": end_ts, "max_ts": end_ts, "format": "file"}
        role = "config" if file == "config.yaml" else "schema"
        return put_object(
            self.storage, path, content, role=role, **file_columns, **self._object_columns(name, number)
        )

    def _object_columns(self, name: str, number: int) -> dict[str, Any]:
        """The columns that the rows of a backup's objects have in common."""
        source_columns = {"destination": self.destination, "source": self.source}
        return {"backup_id": name, "added_in": number, **source_columns}
