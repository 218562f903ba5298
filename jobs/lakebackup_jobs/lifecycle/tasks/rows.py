"""Rows on their way between the steps of a backup: Parquet objects in the destination."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from lakebackup.storage import Storage


def write_rows(
    storage: Storage, path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> tuple[int, int, str]:
    """Put rows as a Parquet object in place of an older one: its bytes, how many rows, its SHA-256.

    The compressed object is held in memory, the rows are not.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink, count = pa.BufferOutputStream(), 0
    with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
        for batch in batches:
            count += len(batch)
            writer.write_batch(batch)
    data = sink.getvalue().to_pybytes()
    storage.put(path, data)
    return len(data), count, hashlib.sha256(data).hexdigest()


def read_rows(storage: Storage, path: str) -> Iterator[pa.RecordBatch]:
    """The rows of such an object, in batches. Raises NotFound."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = pa.BufferReader(storage.get(path))
    yield from pq.ParquetFile(data, page_checksum_verification=True).iter_batches(10_000)


def read_table(storage: Storage, path: str) -> pa.Table:
    """All rows of such an object, with the metadata of its schema. Raises NotFound, or Arrow's errors."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.read_table(pa.BufferReader(storage.get(path)), page_checksum_verification=True)
