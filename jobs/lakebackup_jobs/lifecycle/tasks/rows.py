"""Rows that one step of a run passes to the next one, as Parquet objects in the destination."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakebackup.storage import Storage, open_storage
from lakebackup.store.reader import CatalogReader


@dataclass(frozen=True, slots=True)
class RowObject:
    """An object in the destination that holds `rows` rows."""

    path: str
    bytes: int
    rows: int
    sha256: str


def write_rows(
    storage: Storage, path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> tuple[int, int, str]:
    """Put rows as a Parquet object, in place of an older one. Returns its bytes, the number of rows, its
    SHA-256.

    The compressed object is held in memory; the rows are not.
    """
    sink, count = pa.BufferOutputStream(), 0
    with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
        for batch in batches:
            count += len(batch)
            writer.write_batch(batch)
    data = sink.getvalue().to_pybytes()
    storage.put(path, data)
    return len(data), count, hashlib.sha256(data).hexdigest()


def read_rows(storage: Storage, path: str) -> Iterator[pa.RecordBatch]:
    """The rows of an object of `write_rows`, in batches. Raises NotFound."""
    data = pa.BufferReader(storage.get(path))
    yield from pq.ParquetFile(data, page_checksum_verification=True).iter_batches(10_000)


def read_table(storage: Storage, path: str) -> pa.Table:
    """All rows of an object of `write_rows`, with its schema's metadata. Raises NotFound, or Arrow's
    errors."""
    return pq.read_table(pa.BufferReader(storage.get(path)), page_checksum_verification=True)


@dataclass(frozen=True, slots=True)
class _QueryWriter:
    """Writes the rows of a query as one object, in one task; returns the fields of Written except `path`."""

    uri: str
    path: str
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (pa.Table.from_batches([b]).select(self.schema.names).cast(self.schema) for b in batches)
        rows = chain.from_iterable(table.to_batches() for table in tables)
        size, count, sha256 = write_rows(open_storage(self.uri), self.path, self.schema, rows)
        yield pa.RecordBatch.from_pydict({"bytes": [size], "rows": [count], "sha256": [sha256]})


def write_query(
    reader: CatalogReader, uri: str, path: str, schema: pa.Schema, query: str, **parameters: Any
) -> RowObject:
    """Write the rows of a query as one object, whichever engine runs the query."""
    summaries = reader.map(
        _QueryWriter(uri, path, schema),
        "bytes BIGINT, rows BIGINT, sha256 STRING",
        query,
        spread=lambda rows: rows.coalesce(1),
        **parameters,
    )
    # Spark does not run a task that it knows to have no row.
    return RowObject(path, **summaries[0]) if summaries else RowObject(path, 0, 0, "")
