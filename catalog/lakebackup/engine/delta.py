"""Opening the catalog's Delta tables without a JVM, and appending rows to them.

Whoever has rows writes them as a Parquet file of the table, on the driver or in a Spark task; one commit then
makes all files visible. Spark's own writer needs more than a second for one row, this some milliseconds.
pyarrow writes the file, because it adds a checksum to each page, which delta-rs' writer does not;
delta-rs commits.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Damaged, NotFound, UsageProblem
from lakebackup.model import ARROW_SCHEMAS, Row, as_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from deltalake import DeltaTable

    from lakebackup.storage import Storage

_CONSTRAINT = "delta.constraints."
# Within a file, so that a topic and time range touches few of its pages, and few of a table's files.
SORTED_BY = ("source", "scope", "min_ts")


def open_table(uri: str) -> DeltaTable:
    """The newest version of the Delta table at a file:// URI. Raises NotFound, and Damaged (its log)."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        table = DeltaTable(uri.removeprefix("file://"))
    except TableNotFoundError as error:
        raise NotFound(f"There is no table at {uri}.") from error
    except (DeltaError, OSError) as error:
        raise Damaged(
            f"The log of the table at {uri} cannot be read: {error}",
            hint="Move the catalog away and run `lakebackup catalog rebuild`.",
        ) from error
    # A commit that a power cut left empty is valid to Delta, and its rows would be missing without a word.
    for entry in Path(uri.removeprefix("file://"), "_delta_log").glob("*.json"):
        if not entry.stat().st_size:
            raise Damaged(
                f"{entry} is empty.", hint="Move the catalog away and run `lakebackup catalog rebuild`."
            )
    return table


def append(storage: Storage, table: str, rows: Sequence[Row], transaction: str) -> bool:
    """Append rows to a catalog table, once for each `transaction`; whether they were new.

    `storage` is that of the catalog's folder. The caller holds the catalog's lease. Raises UsageProblem when
    a row breaks a constraint of the table.
    """
    import pyarrow as pa

    if not rows:
        return False
    batch = pa.Table.from_pylist([as_row(row) for row in rows], schema=ARROW_SCHEMAS[table])
    return commit(storage, table, [write_rows(storage, table, batch)], transaction)


def write_rows(storage: Storage, table: str, rows: pa.Table) -> str:
    """Write rows as a Parquet file of a catalog table; returns what `commit` makes visible, as JSON.

    Until then nobody sees the file, so that any process may write one. Raises UsageProblem when a row
    breaks a constraint of the table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    settings = open_table(f"{storage.uri}/{table}").metadata().configuration
    _check(table, rows, settings)
    order = [column for column in SORTED_BY if column in rows.column_names]
    if order:
        rows = rows.sort_by([(column, "ascending") for column in order])
    sink = pa.BufferOutputStream()
    # The footer has no checksum: without statistics in it, a flipped bit there cannot hide rows.
    pq.write_table(rows, sink, write_page_checksum=True, write_statistics=False, compression="snappy")
    data = sink.getvalue().to_pybytes()
    name = f"part-{uuid.uuid4().hex}-{hashlib.sha256(data).hexdigest()}.parquet"  # what readers verify
    storage.put(f"{table}/{name}", data, if_absent=True)
    return json.dumps({"path": name, "size": len(data), "stats": json.dumps(_statistics(rows, settings))})


def commit(storage: Storage, table: str, added: Sequence[str], transaction: str) -> bool:
    """Make files of `write_rows` part of a table in one commit, once for each `transaction`; whether new.

    The caller holds the catalog's lease.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction

    opened = open_table(f"{storage.uri}/{table}")
    if not added or opened.transaction_version(transaction) is not None:
        return False
    opened.create_write_transaction(
        [
            AddAction(
                path=file["path"],
                size=file["size"],
                partition_values={},
                modification_time=int(time.time() * 1000),
                data_change=True,
                stats=file["stats"],
            )
            for file in map(json.loads, added)
        ],
        "append",
        opened.schema(),
        commit_properties=CommitProperties(app_transactions=[Transaction(transaction, 1)]),
    )
    return True


def _check(table: str, batch: pa.Table, settings: dict[str, str]) -> None:
    """The table's CHECK constraints, as Spark and delta-rs enforce them when they write."""
    import duckdb

    from lakebackup.engine import to_duckdb

    with duckdb.connect(":memory:") as connection:
        connection.register("batch", batch)
        for key, condition in settings.items():
            if not key.startswith(_CONSTRAINT):
                continue
            # The condition is the catalog's own text, from its migrations.
            query = to_duckdb(f"SELECT * FROM batch WHERE NOT ({condition}) LIMIT 1")  # noqa: S608
            broken = connection.execute(query).fetchone()
            if broken:
                raise UsageProblem(
                    f"A row for the table {table} breaks its rule {key.removeprefix(_CONSTRAINT)} "
                    f"({condition}): {broken}"
                )


def _statistics(batch: pa.Table, settings: dict[str, str]) -> dict[str, Any]:
    """Delta's statistics of a file, of the columns the table asks for."""
    import pyarrow.compute as pc

    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for column in settings.get("delta.dataSkippingStatsColumns", "").split(","):
        if not column:
            continue
        values = batch.column(column)
        nulls[column] = values.null_count
        if values.null_count < len(values):
            least[column], greatest[column] = pc.min_max(values).as_py().values()
    return {"numRecords": len(batch), "minValues": least, "maxValues": greatest, "nullCount": nulls}
