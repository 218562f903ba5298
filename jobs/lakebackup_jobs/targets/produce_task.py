"""What a Spark task of a restore into topics does: staged changes become records, in transactions that
carry how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lakebackup.plan.logs.flush import physical_ms
from lakebackup.storage import open_storage
from lakebackup_jobs.kafka.admin.committed import Progress
from lakebackup_jobs.kafka.client.produce import RestoreProducer
from lakebackup_jobs.kafka.format.records import (
    HEADER_COUNT,
    HEADERS,
    KEY,
    KEY_LENGTH,
    OFFSET,
    TIMESTAMP,
    VALUE,
    VALUE_LENGTH,
    WIDTH,
    Columns,
)
from lakebackup_jobs.kafka.format.schemas import FORMAT_V2
from lakebackup_jobs.lifecycle.tasks.task import Task
from lakebackup_jobs.targets.replay_task import ANY, PARTITIONER, TRANSACTION_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

_HEADER = b"\x02\x12commit_ts\x02"  # one header of that name, its value not null: Avro, as data files have it
_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class ProduceJob(Task):
    """Produces the changes in a staged file.

    `mark`: a partition that is there, on which progress is kept; each file has a group of its own.
    """

    COLUMNS = "task INT, entries BIGINT, error STRING"

    uri: str
    files: Sequence[str]
    group: str
    client: Mapping[str, str]
    prefix: str
    mark: tuple[str, int]
    domain: str

    def run(self, number: int) -> dict[str, object]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        name = group_of(self.group, number)
        data = open_storage(self.uri).get(self.files[number])
        position = pending = 0
        client = {**self.client, "partitioner": PARTITIONER}
        with RestoreProducer(client, name, name, zero_as_one=True) as producer:
            done = producer.committed(*self.mark)
            for batch in pq.ParquetFile(pa.BufferReader(data)).iter_batches(_ROWS):
                position += len(batch)
                if done and position <= done.position:
                    continue
                if not pending:
                    producer.begin()
                for topic, rows in self._topics(batch):
                    producer.produce_block(topic, ANY, columns_of(rows, self.domain))
                pending += batch.nbytes
                if pending >= TRANSACTION_BYTES:
                    producer.commit({self.mark: Progress(position, "")})
                    pending = 0
            if pending:
                producer.commit({self.mark: Progress(position, "")})
        return {"task": number, "entries": position}

    def _topics(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of each table, in the order of a staged file: those of one stand together."""
        import pyarrow.compute as pc

        names = pc.binary_join_element_wise(batch["db"], batch["name"], ".")
        changes = np.flatnonzero(pc.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False)) + 1
        for start, stop in pairwise([0, *changes.tolist(), len(batch)]):
            yield topic_of(self.prefix, names[start].as_py()), batch.slice(start, stop - start)


def topic_of(prefix: str, name: str) -> str:
    """The topic of a table by its `db.name`."""
    return prefix + name


def group_of(group: str, number: int) -> str:
    """Whose committed offset is the progress of a staged file; also who produces it."""
    return f"{group}-{number}"


def columns_of(batch: pa.RecordBatch, domain: str) -> Columns:
    """Rows of apply.COLUMNS as records: key, value (null: deleted), the commit's time, and its ts as a
    header `commit_ts`, a decimal number as text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = batch["commit_ts"].cast(pa.string())
    lengths = pa.array([bytes([2 * length]) for length in range(32)], pa.binary())
    headers = pc.binary_join_element_wise(
        pa.scalar(_HEADER),
        lengths.take(pc.binary_length(texts)),
        texts.cast(pa.binary()),
        pa.scalar(b"\0"),
        b"",
    )
    rows = np.zeros((len(batch), WIDTH), np.int64)
    pieces: list[Any] = []
    base = 0
    for array, at, length in (
        (batch["key"], KEY, KEY_LENGTH),
        (batch["value"], VALUE, VALUE_LENGTH),
        (headers, HEADERS, None),
    ):
        begins, sizes, data = _bytes(array)
        rows[:, at] = base + begins
        if length is not None:
            rows[:, length] = sizes
        pieces.append(data)
        base += len(data)
    rows[:, HEADER_COUNT] = 1
    rows[:, OFFSET] = np.arange(len(batch))
    commit_ts = batch["commit_ts"].to_numpy(zero_copy_only=False)
    rows[:, TIMESTAMP] = physical_ms(commit_ts, domain)
    return Columns(np.concatenate(pieces), rows, FORMAT_V2)


def _bytes(array: pa.Array) -> tuple[Any, Any, Any]:
    """Of each value of a binary array where it begins and how long it is (null: -1), and the bytes."""
    import pyarrow as pa

    array = pa.concat_arrays([array.cast(pa.binary())])  # from 0 on, without what a slice leaves out
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    sizes = np.diff(ends)
    sizes[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return ends[:-1], sizes, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
