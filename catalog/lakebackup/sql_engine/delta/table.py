"""Opening the catalog's Delta tables without a JVM, appending rows to them and changing some.

Whoever has rows writes them as a Parquet file of the table, on the driver or in a Spark task; one commit then
makes all files visible. Spark's own writer needs more than a second for one row, this some milliseconds.
pyarrow writes the file, because it adds a checksum to each page, which delta-rs' writer does not;
delta-rs commits.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Busy, EnvironmentProblem, NotFound, UsageProblem
from lakebackup.rows.base import Row
from lakebackup.rows.tables import ARROW_SCHEMAS, OF_BACKUPS, as_row
from lakebackup.sql_engine.delta.log import FOLDER, folder_of, local_log, remote_log, until_fork
from lakebackup.sql_engine.delta.verified import is_whole, put_sums
from lakebackup.sql_engine.failures import damaged_catalog
from lakebackup.storage import AlreadyExists

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from deltalake import DeltaTable
    from duckdb import DuckDBPyConnection

    from lakebackup.rows.base import Row
    from lakebackup.storage import Storage

#: What the names of the properties that hold CHECK constraints begin with.
CONSTRAINT = "delta.constraints."
_CHECKPOINT_EVERY = 10
TRIES = 5
# Within a file, so that a topic and time range touches few of its pages, and few of a table's files.
SORTED_BY = ("source", "scope", "min_ts")
# A backup's row comes last. Its commit keeps the versions of the tables before it, as Delta keeps those of an
# application: through checkpoints and other writers' commits. A table that is behind them lost a commit.
_COMMITTED_BEFORE = (*OF_BACKUPS, "departures", "snapshot_departures")
_VERSION_OF = "version of "


def open_table(uri: str, *, known: bool = False) -> DeltaTable:
    """The newest version of the Delta table at a URI (`known`: what this process saw of it last will do).
    Raises NotFound, and Damaged (its log)."""
    with local_log(uri, known=known) as folder:
        return open_folder(uri, folder)


def open_folder(uri: str, folder: str, *, history: bool = False) -> DeltaTable:
    """A table at `uri` whose log is in a local folder: its own, or a copy."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        table = DeltaTable(folder)
    except TableNotFoundError as error:
        raise NotFound(f"There is no table at {uri}.") from error
    except (DeltaError, OSError) as error:
        raise damaged_catalog(f"The log of the table at {uri} cannot be read: {error}") from error
    if folder_of(uri):
        _verify_log(Path(folder, FOLDER), history=history)
    return table


def newest_version(uri: str, *, known: bool = False) -> int:
    """Version of the newest commit of the table at a URI, by the names in its log alone; -1: it has none.

    `known`: as of `open_table`.
    """
    folder = folder_of(uri)
    if folder is None:
        return remote_log(uri).newest if known else remote_log(uri).refresh()
    try:
        found = os.listdir(folder / FOLDER)  # noqa: PTH208 - fast
    except FileNotFoundError:
        return -1
    commits = (name[:20] for name in found if name.endswith(".json") and name[:20].isdigit())
    return int(max(commits, default=-1))


def versions_then(catalog_uri: str) -> dict[str, int]:
    """Table -> version that it had when rows were last committed to `backups`, where that is known."""
    uri = f"{catalog_uri}/backups"
    with local_log(uri, known=True) as folder:  # transaction versions are read from the log on demand
        backups = open_folder(uri, folder)
        found = {table: backups.transaction_version(_VERSION_OF + table) for table in _COMMITTED_BEFORE}
    return {table: version for table, version in found.items() if version is not None}


def _verify_log(log: Path, *, history: bool = False) -> None:
    """Raises Damaged when what the table is read from (`history`: all of the log) is not as it was written,
    where that is known.

    A commit that a power cut left empty is valid to Delta, and its rows would be missing without a word.
    """
    names = [name for name in os.listdir(log) if name.endswith((".json", ".parquet"))]  # noqa: PTH208 - fast
    names = sorted(name for name in names if name[:20].isdigit())
    since = max((name[:20] for name in names if name.endswith(".parquet")), default="")
    for name in names:
        if history or name[:20] >= since:
            data = (log / name).read_bytes()
            if not data or not is_whole(log / name, data):
                raise damaged_catalog(f"{log / name} is {'not as it was written' if data else 'empty'}.")


def append(storage: Storage, table: str, rows: Sequence[Row], transaction: str) -> bool:
    """Append rows to a catalog table, once for each `transaction`; whether they were new.

    `storage` is that of the catalog's folder. The caller holds the catalog's lease. Raises UsageProblem when
    a row breaks a constraint of the table.
    """
    import pyarrow as pa

    if not rows:
        return False
    batch = pa.Table.from_pylist([as_row(row) for row in rows], schema=ARROW_SCHEMAS[table])
    uri = f"{storage.uri}/{table}"
    with local_log(uri) as folder:
        opened = open_folder(uri, folder)
        if opened.transaction_version(transaction) is not None:
            return False
        added = [write_file(storage, table, batch, opened.metadata().configuration)]
        if commit_once(storage, table, (folder, opened), added, transaction):
            return True
    return commit(storage, table, added, transaction)


def write_rows(storage: Storage, table: str, rows: pa.Table) -> str:
    """Write rows as a Parquet file of a catalog table; returns what `commit` makes visible, as JSON.

    Until then the file is invisible, so that any process may write one. Raises UsageProblem when a row
    breaks a constraint of the table.
    """
    uri = f"{storage.uri}/{table}"
    settings = open_table(uri, known=True).metadata().configuration
    return write_file(storage, table, rows, settings)


def write_file(storage: Storage, table: str, rows: pa.Table, settings: dict[str, str]) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    _check(table, rows, settings)
    order = [column for column in SORTED_BY if column in rows.column_names]
    if order:
        rows = rows.sort_by([(column, "ascending") for column in order])
    sink = pa.BufferOutputStream()
    # The footer has no checksum: without statistics in it, a flipped bit there cannot hide rows.
    pq.write_table(rows, sink, write_page_checksum=True, write_statistics=False, compression="snappy")
    data = sink.getvalue().to_pybytes()
    name = f"part-{uuid.uuid4().hex}-{hashlib.sha256(data).hexdigest()}.parquet"  # what readers verify
    if folder_of(storage.uri):
        put_sums(storage, f"{table}/{name}", data)  # what Spark verifies in a folder
    storage.put(f"{table}/{name}", data, if_absent=True)
    return json.dumps({"path": name, "size": len(data), "stats": json.dumps(_statistics(rows, settings))})


def commit(storage: Storage, table: str, added: Sequence[str], transaction: str) -> bool:
    """Make files of `write_rows` part of a table in one commit, once for each `transaction`; whether new.

    The caller holds the catalog's lease. Raises Busy when others commit all the same.
    """
    uri = f"{storage.uri}/{table}"
    for _ in range(TRIES if added else 0):
        with local_log(uri) as folder:
            opened = open_folder(uri, folder)
            if opened.transaction_version(transaction) is not None:
                return False
            if commit_once(storage, table, (folder, opened), added, transaction):
                return True
    if not added:
        return False
    raise outrun(uri)


def outrun(uri: str) -> Busy:
    return Busy(
        f"Others commit to {uri} although this run holds the catalog's lease.",
        hint="Nothing of this run is visible. Run it again when they are done.",
    )


def commit_once(
    storage: Storage,
    table: str,
    at: tuple[str, DeltaTable],
    added: Sequence[str],
    transaction: str | None,
    gone: Sequence[str] = (),
) -> bool:
    """One try at a commit behind a table that was opened; False when another writer was faster."""
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction, RemoveAction

    folder, opened = at
    before, now = opened.version(), int(time.time() * 1000)
    once = [] if transaction is None else [Transaction(transaction, 1)]
    if table == "backups":
        reached = {name: newest_version(f"{storage.uri}/{name}", known=True) for name in _COMMITTED_BEFORE}
        once += [Transaction(_VERSION_OF + name, version) for name, version in reached.items() if version > 0]
    try:
        opened.create_write_transaction(
            [
                *(RemoveAction(path, data_change=True, deletion_timestamp=now) for path in gone),
                *(
                    AddAction(
                        path=file["path"],
                        size=file["size"],
                        partition_values={},
                        modification_time=now,
                        data_change=True,
                        stats=file["stats"],
                    )
                    for file in map(json.loads, added)
                ),
            ],
            "append",
            opened.schema(),
            commit_properties=CommitProperties(app_transactions=once),
        )
    except OSError as error:  # what delta-rs raises when it cannot write
        why = str(error).splitlines()[-1].strip()
        raise EnvironmentProblem(
            f"The log of the table at {storage.uri}/{table} cannot be written: {why}",
            hint="Nothing of this commit is visible. Free some space, or permit writing, then try again.",
        ) from error
    uri = f"{storage.uri}/{table}"
    if folder_of(uri) is None:
        if before and before % _CHECKPOINT_EVERY == 0:  # each entry behind it is a request of every reader
            opened.create_checkpoint()  # of the version before
        try:
            remote_log(uri).publish(folder, before)
        except AlreadyExists:
            return False
        return True
    from lakebackup.storage.local import LocalStorage

    # What delta-rs has just written has no checksums of its own, and the modes of the process's umask.
    for entry in storage.list(f"{table}/{FOLDER}/"):
        name = entry.path.rpartition("/")[2]
        if name.endswith((".json", ".parquet")) and name[:20] > f"{before:020d}":
            if isinstance(storage, LocalStorage):
                storage.protect(entry.path)
            with suppress(AlreadyExists):
                put_sums(storage, entry.path, storage.get(entry.path))
    return True


def _check(table: str, batch: pa.Table, settings: dict[str, str]) -> None:
    """The table's CHECK constraints, as Spark and delta-rs enforce them when they write."""
    from lakebackup.sql_engine import to_duckdb

    with _checker().cursor() as connection:
        connection.register("batch", batch)
        for key, condition in settings.items():
            if not key.startswith(CONSTRAINT):
                continue
            # The condition is the catalog's own text, from its migrations.
            query = to_duckdb(f"SELECT * FROM batch WHERE NOT ({condition}) LIMIT 1")  # noqa: S608
            broken = connection.execute(query).fetchone()
            if broken:
                raise UsageProblem(
                    f"A row for the table {table} breaks its rule {key.removeprefix(CONSTRAINT)} "
                    f"({condition}): {broken}"
                )


@until_fork
def _checker() -> DuckDBPyConnection:
    """A database without tables: to open one takes longer than to check a few rows."""
    import duckdb

    return duckdb.connect(":memory:")


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
