"""Sets of transaction ids, as Arrow columns of type pa.binary(), and the objects that store them."""

from __future__ import annotations

import io
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebackup.errors import Damaged, NotFound
from lakebackup.storage import Storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.format.arrow import binary
from lakebackup_jobs.kafka.memory import Bytes, Longs
from lakebackup_jobs.lifecycle.tasks.rows import write_query

RowMask: TypeAlias = "npt.NDArray[np.bool_]"


def members(block: Bytes, pieces: Longs, ids: Any) -> RowMask:
    """Select the `pieces` of a block that are among `ids`.

    `pieces`: int64[n, 2] of position and length; length -1: there is no piece.
    """
    selected: RowMask = pc.is_in(binary(block, pieces[:, 0], pieces[:, 1]), value_set=ids).to_numpy(False)
    return selected


def read_ids(storage: Storage, path: str) -> Any:
    """Return the column `transaction_id` of a Parquet object. Raises Damaged when it is gone or torn."""
    try:
        data = io.BytesIO(storage.get(path))
        return pq.read_table(data, columns=["transaction_id"])["transaction_id"].cast(pa.binary())
    except (NotFound, pa.ArrowException, OSError) as error:
        raise Damaged(
            f"{path}, which names the transactions of the messages in front, is gone or torn.",
            hint="Run the same command again: it is written again.",
        ) from error


def write_ids(reader: CatalogReader, uri: str, path: str, query: str, **parameters: Any) -> int:
    """Write the ids that a query returns as an object, for `read_ids`; return their number."""
    schema = pa.schema([("transaction_id", pa.string())])
    return write_query(reader, uri, path, schema, query, **parameters).rows
