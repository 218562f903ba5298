"""Open the catalog's Delta tables, append rows to them and commit changes, without a JVM.

The process that has the rows, a driver or a Spark task, writes them as a Parquet file of the table. One
commit then makes all such files visible. Spark's own writer needs more than a second for one row, this one
some milliseconds. pyarrow writes the file, because it adds a checksum to each page, and delta-rs does not.
delta-rs writes the commit into a copy of the log, and `Storage` puts it, because delta-rs does not sync what
it writes.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from duckdb import DuckDBPyConnection, ParserException

from lakebackup.errors import Busy, EnvironmentProblem, NotFound, UsageProblem
from lakebackup.rows.base import Row
from lakebackup.rows.tables import ARROW_SCHEMAS, OF_BACKUPS, TABLES, as_row
from lakebackup.sql_engine import to_duckdb
from lakebackup.sql_engine.arrow import leave_pandas_out
from lakebackup.sql_engine.delta.log import (
    FOLDER,
    folder_of,
    local_log,
    put_checkpoint,
    put_entry,
    put_summed,
    recent_names,
    remote_log,
    until_fork,
)
from lakebackup.sql_engine.delta.tiers import TableFile, due_files, table_files
from lakebackup.sql_engine.failures import damaged_catalog
from lakebackup.storage import AlreadyExists, Storage

leave_pandas_out()

#: The prefix of table properties that are CHECK constraints.
CONSTRAINT = "delta.constraints."
TRIES = 5
# The order of rows within a file, so that a topic and time range touches few pages of a file, and few files.
_SORTED_BY = ("source", "scope", "min_ts")
_ORDERS = {"departures": ("source", "gone_in")}
# The tables whose rows are committed before a backup's own row. The commit of that row records their versions
# as application transactions of Delta, which checkpoints and other writers' commits preserve. A table whose
# version is lower than recorded has lost a commit.
_COMMITTED_BEFORE = (*OF_BACKUPS, "departures", "snapshot_departures")
_VERSION_OF = "version of "
#: The application transaction whose version is the time (ms since 1970) of the last merge of small files.
MERGED_AT = "merged at"
# URIs of the tables that have had enough small files for a merge since this process's last commit to each.
_due_tables: set[str] = set()


# A path that is absolute, goes through a parent folder, or is a URI; plain or URL-encoded.
_OUTSIDE_PATH = re.compile(r"^(/|%2f)|^[a-z][a-z0-9+.-]*:|(^|/|%2f)(\.|%2e){2}(/|%2f|$)", re.IGNORECASE)


def open_table(uri: str, *, cached: bool = False) -> DeltaTable:
    """Open the newest version of the Delta table at a URI (`cached`: the newest that this process has read).
    Raises NotFound, and Damaged when its log is damaged."""
    with local_log(uri, cached=cached) as copy:
        return open_copy(uri, copy)


def open_copy(uri: str, copy: str) -> DeltaTable:
    """Open the table at `uri`, of whose log the folder `copy` has a copy. Raises NotFound, Damaged."""
    table = _open_delta(uri, copy)
    _require_below(uri, table)
    return table


def live_paths(table: DeltaTable) -> list[str]:
    """Return the paths of a table's files, as its log has them."""
    return [str(path) for path in table.get_add_actions().column("path").to_pylist()]


def _require_below(uri: str, table: DeltaTable) -> None:
    """Raise Damaged when a log names files outside of the table's folder.

    Delta allows that, but lakebackup never writes it, so someone else has changed the log.
    """
    for path in live_paths(table):
        if _OUTSIDE_PATH.search(path):
            raise damaged_catalog(
                f"The log of the table at {uri} names a file that is not below it: {path!r}."
            )


def _open_delta(uri: str, folder: str) -> DeltaTable:
    try:
        return DeltaTable(folder)
    except TableNotFoundError as error:
        raise NotFound(f"There is no table at {uri}.") from error
    except (DeltaError, OSError) as error:
        raise damaged_catalog(f"The log of the table at {uri} cannot be read: {error}") from error


class Writable(NamedTuple):
    """The newest version of a table, opened in a copy of its log, into which `commit_once` lets delta-rs
    write."""

    table: DeltaTable
    copy: str


@contextmanager
def open_to_write(uri: str) -> Iterator[Writable]:
    """Open the newest version of the table at a URI for a commit, while the block runs. Raises NotFound, and
    Damaged when its log is damaged."""
    with local_log(uri) as copy:
        yield Writable(_open_delta(uri, copy), copy)


def newest_version(uri: str, *, cached: bool = False) -> int:
    """Return the version of the newest commit of the table at a URI, from the names in its log alone; -1:
    none.

    `cached`: the newest that this process has read.
    """
    folder = folder_of(uri)
    if folder is None:
        return remote_log(uri).newest if cached else remote_log(uri).refresh()
    try:
        names = recent_names(folder / FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return -1
    commits = (name[:20] for name in names if name.endswith(".json") and name[:20].isdigit())
    return int(max(commits, default=-1))


def versions_then(catalog_uri: str) -> dict[str, int]:
    """Return the versions that tables had when rows were last committed to `backups`: table -> version,
    without the tables for which none is recorded."""
    uri = f"{catalog_uri}/backups"
    with local_log(uri, cached=True) as copy:  # transaction versions are read from the log on demand
        backups = open_copy(uri, copy)
        versions = {table: backups.transaction_version(_VERSION_OF + table) for table in _COMMITTED_BEFORE}
    return {table: version for table, version in versions.items() if version is not None}


def append(storage: Storage, table: str, rows: Sequence[Row], transaction: str) -> bool:
    """Append rows to a catalog table, once for each `transaction`. Returns False when there are no rows, or
    they were appended before.

    `storage`: the catalog's folder. The caller holds the catalog's lease. Raises UsageProblem when a row
    violates a constraint of the table.
    """
    if not rows:
        return False
    batch = pa.Table.from_pylist([as_row(row) for row in rows], schema=ARROW_SCHEMAS[table])
    return append_files(
        storage, table, transaction, lambda settings: [write_rows(storage, table, batch, settings)]
    )


def is_appended(uri: str, transaction: str) -> bool:
    """Return whether the table at a URI has the rows of a transaction."""
    with open_to_write(uri) as opened:
        return opened.table.transaction_version(transaction) is not None


def settings_of(uri: str) -> dict[str, str]:
    """Return the properties of the table at a URI."""
    return open_table(uri, cached=True).metadata().configuration


def append_files(
    storage: Storage, table: str, transaction: str, write: Callable[[Mapping[str, str]], Sequence[str]]
) -> bool:
    """Like `append`, for the rows in the files that `write` writes; it gets the table's properties, and
    returns the files as `write_rows` does.

    The caller holds the catalog's lease. Raises Busy when others commit despite the lease.
    """
    uri = f"{storage.uri}/{table}"
    added: Sequence[str] | None = None
    for _ in range(TRIES):
        with open_to_write(uri) as opened:
            if opened.table.transaction_version(transaction) is not None:
                return False
            if added is None:
                added = write(opened.table.metadata().configuration)
            if not added:
                return False
            if commit_once(storage, table, opened, added, transaction):
                return True
    raise outrun(uri)


def write_rows(
    storage: Storage, table: str, rows: pa.Table, settings: Mapping[str, str] | None = None
) -> str:
    """Write rows as a Parquet file of a catalog table; returns JSON that describes the file, for `commit`.

    No reader sees the file before the commit, so any process may write one. `settings`: the table's
    properties; None: read them. Raises UsageProblem when a row violates a constraint of the table.
    """
    settings = settings_of(f"{storage.uri}/{table}") if settings is None else settings
    _check(table, rows, settings)
    return put_rows(storage, f"{table}/", in_order(table, rows), settings)


def in_order(table: str, rows: pa.Table) -> pa.Table:
    """Return rows of a catalog table in the order that they have in a file of the table."""
    order = [column for column in _ORDERS.get(table, _SORTED_BY) if column in rows.column_names]
    return rows.sort_by([(column, "ascending") for column in order]) if order else rows


def put_rows(storage: Storage, folder: str, rows: pa.Table, settings: Mapping[str, str]) -> str:
    """Like `write_rows`, for any table, without its constraints. `folder` of `storage` ends in `/` or is
    empty."""
    data = encoded(rows)
    name = f"part-{uuid.uuid4().hex}-{hashlib.sha256(data).hexdigest()}.parquet"  # readers verify the SHA-256
    put_summed(storage, f"{folder}{name}", data)
    return json.dumps({"path": name, "size": len(data), "stats": json.dumps(_statistics(rows, settings))})


def encoded(rows: pa.Table) -> bytes:
    """Return rows as a Parquet file with a checksum of each page."""
    sink = pa.BufferOutputStream()
    # The footer has no checksum: without statistics in it, a flipped bit there cannot hide rows.
    pq.write_table(rows, sink, write_page_checksum=True, write_statistics=False, compression="snappy")
    data: bytes = sink.getvalue().to_pybytes()
    return data


def rows_in(added: Sequence[str]) -> int:
    """Return how many rows the files have that `write_rows` wrote."""
    return sum(json.loads(json.loads(file)["stats"])["numRecords"] for file in added)


def commit(storage: Storage, table: str, added: Sequence[str], transaction: str) -> bool:
    """Like `append_files`, for the files `added` that `write_rows` has written."""
    return append_files(storage, table, transaction, lambda _: added)


def outrun(uri: str) -> Busy:
    """Return the error for a table to which others commit despite the lease."""
    return Busy(
        f"Others commit to {uri} although this run holds the catalog's lease.",
        hint="Nothing of this run is visible. Run it again when they are done.",
    )


def add_actions(added: Sequence[str], now_ms: int, *, data_change: bool = True) -> list[AddAction]:
    """Return the actions of a commit that adds files which `write_rows` wrote; `now_ms` in ms since 1970.
    `data_change`: see `commit_once`."""
    return [
        AddAction(
            path=file["path"],
            size=file["size"],
            partition_values={},
            modification_time=now_ms,
            data_change=data_change,
            stats=file["stats"],
        )
        for file in map(json.loads, added)
    ]


def commit_once(
    storage: Storage,
    table: str,
    opened: Writable,
    added: Sequence[str],
    transaction: str | None,
    removed: Sequence[str] = (),
    *,
    data_change: bool = True,
) -> bool:
    """Try once to commit after the version in `opened`: add the files `added`, remove the paths `removed`.
    `data_change`: whether the rows of the table change; if not, streams that read it skip the commit.
    Returns False when another writer was faster. Raises EnvironmentProblem."""
    delta_table, now_ms = opened.table, int(time.time() * 1000)
    transactions = [] if transaction is None else [Transaction(transaction, 1)]
    if not data_change:
        transactions.append(Transaction(MERGED_AT, now_ms))
    if table == "backups":
        versions = {name: newest_version(f"{storage.uri}/{name}", cached=True) for name in _COMMITTED_BEFORE}
        transactions += [
            Transaction(_VERSION_OF + name, version) for name, version in versions.items() if version > 0
        ]
    put_checkpoint(storage, table, delta_table, opened.copy)
    name = f"{delta_table.version() + 1:020d}.json"
    try:
        delta_table.create_write_transaction(
            [
                *(RemoveAction(path, data_change=data_change, deletion_timestamp=now_ms) for path in removed),
                *add_actions(added, now_ms, data_change=data_change),
            ],
            "append",
            delta_table.schema(),
            commit_properties=CommitProperties(app_transactions=transactions),
        )
    except DeltaError as error:
        raise EnvironmentProblem(
            f"A commit to the table at {storage.uri}/{table} cannot be made: {error}",
            hint="Another program may have added features of Delta that lakebackup cannot write. "
            "Move the catalog away and run `lakebackup catalog rebuild`.",
        ) from error
    data = Path(opened.copy, FOLDER, name).read_bytes()
    try:
        put_entry(storage, table, name, data)
    except AlreadyExists:
        return False
    _note_due(f"{storage.uri}/{table}", delta_table, added, removed)
    return True


def _note_due(uri: str, delta_table: DeltaTable, added: Sequence[str], removed: Sequence[str]) -> None:
    """Remember whether small files are due for a merge, after a commit to the table that was opened before
    it."""
    removed_paths = set(removed)
    files = [file for file in table_files(delta_table) if file.path not in removed_paths]
    for text in added:
        file = json.loads(text)
        files.append(TableFile(0, file["path"], file["size"], rows_in([text])))
    if due_files(files):
        _due_tables.add(uri)
    else:
        _due_tables.discard(uri)


def take_due_tables(catalog_uri: str) -> list[str]:
    """Return the names of a catalog's tables in which small files are due for a merge since this process's
    last commit to each. They are not returned again before the next commit."""
    names = [table for table in TABLES if f"{catalog_uri}/{table}" in _due_tables]
    _due_tables.difference_update(f"{catalog_uri}/{name}" for name in names)
    return names


def _check(table: str, batch: pa.Table, settings: Mapping[str, str]) -> None:
    """Check the table's CHECK constraints, as Spark does when it writes. Raises UsageProblem."""
    rules = {key: text for key, text in settings.items() if key.startswith(CONSTRAINT)}
    if not rules:
        return
    with _constraint_database().cursor() as connection:
        connection.register("batch", batch)
        if not _violation(connection, "1", " AND ".join(f"({text})" for text in rules.values())):
            return
        for key, text in rules.items():
            if row := _violation(connection, "*", text):
                rule = f"{key.removeprefix(CONSTRAINT)} ({text})"
                raise UsageProblem(f"A row for the table {table} breaks its rule {rule}: {row}")


def _violation(connection: DuckDBPyConnection, columns: str, condition: str) -> tuple[Any, ...] | None:
    """Return the first row of `batch` for which a condition is not true; None if there is none."""
    query = f"SELECT {columns} FROM batch WHERE ({condition}) IS NOT TRUE LIMIT 1"  # noqa: S608
    try:
        return connection.execute(query).fetchone()
    except ParserException:  # a column's name is a keyword of DuckDB
        return connection.execute(to_duckdb(query)).fetchone()


def _constraint_database() -> DuckDBPyConnection:
    """Return the database that checks constraints: that of the process's queries if it is loaded, since to
    open one takes longer than to check."""
    duck = sys.modules.get("lakebackup.sql_engine.duck")
    return duck.database() if duck else _own_database()


@until_fork
def _own_database() -> DuckDBPyConnection:
    return duckdb.connect(":memory:")


def _statistics(batch: pa.Table, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return Delta's statistics of a file, for the columns that the table's properties name."""
    minimums: dict[str, Any] = {}
    maximums: dict[str, Any] = {}
    null_counts: dict[str, int] = {}
    for column in settings.get("delta.dataSkippingStatsColumns", "").split(","):
        if not column:
            continue
        values = batch.column(column)
        null_counts[column] = values.null_count
        if values.null_count < len(values):
            minimums[column], maximums[column] = pc.min_max(values).as_py().values()
    return {"numRecords": len(batch), "minValues": minimums, "maxValues": maximums, "nullCount": null_counts}
