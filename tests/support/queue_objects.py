"""Objects of an engine's backups made by hand, and their rows: messages, listed rows, its own files."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.made_backups import Record, as_avro, avro_schema

from lakebackup.formats.queues.headers import NAMES, HeaderNames
from lakebackup.rows.backups import DataFile
from lakebackup.rows.tables import ARROW_SCHEMAS, Row, as_row, table_of
from lakebackup.rules import layout
from lakebackup.store.delta_append import LISTED
from lakebackup_jobs.kafka.format.container import FileWriter
from lakebackup_jobs.kafka.format.key_filter import hashes_of
from lakebackup_jobs.kafka.format.records import Block, decode_block
from lakebackup_jobs.kafka.format.schemas import FORMAT_V2
from lakebackup_jobs.queues.messages import read_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebackup.storage import Storage

#: Topic and partition.
Place = tuple[str, int]
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
    """Puts the objects of the backups of one engine, and says what their rows are."""

    storage: Storage
    destination: str
    source: str
    _seq: dict[Place, int] = field(default_factory=dict)

    def messages(
        self, name: str, number: int, epoch: str, place: Place, found: Sequence[tuple[int, Message]]
    ) -> DataFile:
        """A file of messages, each with its offset."""
        topic, partition = place
        names, packed = HeaderNames(), io.BytesIO()
        for position, one in found:
            headers: list[tuple[str, bytes | None]] = [("tid", str(one.tid).encode())]
            headers += [("kind", one.kind.encode())]
            headers += [("transaction", one.transaction.encode())] if one.transaction else []
            record = Record(partition, position, one.ts, None, one.value, tuple(headers))
            fastavro.schemaless_writer(packed, avro_schema(), as_avro(topic, record))
        columns = decode_block(packed.getvalue(), len(found))
        stats, bounds = columns.stats(), read_messages(columns, names, name).bounds
        assert stats is not None
        assert bounds is not None
        seq = self._seq[place] = self._seq.get(place, -1) + 1
        path = layout.data_path(self.source, epoch, topic, partition, seq)
        with self.storage.writer() as sink:
            writer = FileWriter(sink, metadata={NAMES: names.text})
            writer.write_block(Block(columns.data, stats, hashes=hashes_of(columns)))
            file = writer.finish()
            sink.commit(path)
        return DataFile(
            destination=self.destination,
            path=path,
            backup_id=name,
            added_in=number,
            source=self.source,
            scope=topic,
            epoch=epoch,
            region=str(partition),
            format=FORMAT_V2,
            codec="zstandard",
            **{**file.columns(), "min_tid": bounds[0], "max_tid": bounds[1]},
        )

    def listed(self, name: str, number: int, rows: Sequence[Row]) -> list[DataFile]:
        """The objects of rows of the catalog, one a table."""
        found = []
        for table in sorted({table_of(type(row)) for row in rows}):
            own = [as_row(row) for row in rows if table_of(type(row)) == table]
            sink = pa.BufferOutputStream()
            pq.write_table(pa.Table.from_pylist(own, ARROW_SCHEMAS[table]), sink)
            path = f"{layout.backup_folder(self.source, name)}listing/{LISTED[table]}-00000000.parquet"
            content = sink.getvalue().to_pybytes()
            found.append(self._object(name, number, path, content, role="meta", format=LISTED[table]))
        return found

    def own_file(
        self,
        name: str,
        number: int,
        end_ts: int,
        file: Literal["config.yaml", "delta_schema_history.yaml"],
        content: bytes,
    ) -> DataFile:
        """A file of the engine."""
        path = layout.queue_file_path(self.source, name, file)
        more = {"scope": "-", "region": "-", "min_ts": end_ts, "max_ts": end_ts, "format": "file"}
        role = "config" if file == "config.yaml" else "schema"
        return self._object(name, number, path, content, role=role, **more)

    def _object(self, name: str, number: int, path: str, content: bytes, **more: Any) -> DataFile:
        self.storage.put(path, content)
        known: dict[str, Any] = {"scope": "", "region": "", "min_ts": 0, "max_ts": 0, **more}
        return DataFile(
            destination=self.destination,
            path=path,
            backup_id=name,
            added_in=number,
            source=self.source,
            epoch="-",
            codec="null",
            bytes=len(content),
            raw_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            entries=0,
            start_position=0,
            end_position=1,
            **known,
        )
