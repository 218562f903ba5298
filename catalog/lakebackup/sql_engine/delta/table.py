"""Opening the catalog's Delta tables without a JVM, appending rows to them and changing some.

Whoever has rows writes them as a Parquet file of the table, on the driver or in a Spark task; one commit then
makes all files visible. Spark's own writer needs more than a second for one row, this some milliseconds.
pyarrow writes the file, because it adds a checksum to each page, which delta-rs' writer does not. delta-rs
writes the commit into a copy of the log, and the storage puts it: delta-rs does not sync what it writes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lakebackup.errors import Busy, EnvironmentProblem, NotFound, UsageProblem
from lakebackup.rows.base import Row
from lakebackup.rows.tables import ARROW_SCHEMAS, OF_BACKUPS, as_row
from lakebackup.sql_engine.delta.log import (
    FOLDER,
    copied_log,
    folder_entries,
    folder_of,
    local_log,
    put_checkpoint,
    put_entry,
    put_summed,
    remote_log,
    require_regular,
    until_fork,
)
from lakebackup.sql_engine.failures import damaged_catalog
from lakebackup.storage import AlreadyExists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction
    from duckdb import DuckDBPyConnection

    from lakebackup.rows.base import Row
    from lakebackup.storage import Storage

#: What the names of the properties that hold CHECK constraints begin with.
CONSTRAINT = "delta.constraints."
TRIES = 5
# Within a file, so that a topic and time range touches few of its pages, and few of a table's files.
SORTED_BY = ("source", "scope", "min_ts")
# A backup's row comes last. Its commit keeps the versions of the tables before it, as Delta keeps those of an
# application: through checkpoints and other writers' commits. A table that is behind them lost a commit.
_COMMITTED_BEFORE = (*OF_BACKUPS, "departures", "snapshot_departures")
_VERSION_OF = "version of "


# Absolute, through a parent folder, or of another place; as written, and as a URL has it.
_ELSEWHERE = re.compile(r"^(/|%2f)|^[a-z][a-z0-9+.-]*:|(^|/|%2f)(\.|%2e){2}(/|%2f|$)", re.IGNORECASE)


def open_table(uri: str, *, known: bool = False) -> DeltaTable:
    """The newest version of the Delta table at a URI (`known`: what this process saw of it last will do).
    Raises NotFound, and Damaged (its log)."""
    with local_log(uri, known=known) as folder:
        return open_folder(uri, folder)


def open_folder(uri: str, folder: str, *, history: bool = False) -> DeltaTable:
    """A table at `uri` whose log is in a local folder: its own, or a copy."""
    within = folder_of(uri)
    if within:
        require_regular(within)  # delta-rs would wait for a pipe
    table = _opened(uri, folder)
    if within:
        folder_entries(within, history=history)  # raises Damaged
    _require_below(uri, table)
    return table


def _require_below(uri: str, table: DeltaTable) -> None:
    """Raise Damaged for a log that names files elsewhere, which the format allows.

    This catalog has none, so a stranger wrote that.
    """
    for path in table.get_add_actions().column("path").to_pylist():
        if _ELSEWHERE.search(path):
            raise damaged_catalog(
                f"The log of the table at {uri} names a file that is not below it: {path!r}."
            )


def _opened(uri: str, folder: str) -> DeltaTable:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(folder)
    except TableNotFoundError as error:
        raise NotFound(f"There is no table at {uri}.") from error
    except (DeltaError, OSError) as error:
        raise damaged_catalog(f"The log of the table at {uri} cannot be read: {error}") from error


class Writable(NamedTuple):
    """A table as it is now, opened in a copy of its log, in which `commit_once` has delta-rs write."""

    table: DeltaTable
    copy: str


@contextmanager
def open_to_write(uri: str) -> Iterator[Writable]:
    """The newest version of the table at a URI, while the block runs. Raises NotFound, Damaged (its log)."""
    with copied_log(uri) as copy:
        yield Writable(_opened(uri, copy), copy)


def newest_version(uri: str, *, known: bool = False) -> int:
    """Version of the newest commit of the table at a URI, by the names in its log alone; -1: it has none.

    `known`: as of `open_table`.
    """
    folder = folder_of(uri)
    if folder is None:
        return remote_log(uri).newest if known else remote_log(uri).refresh()
    try:
        found = os.listdir(folder / FOLDER)  # noqa: PTH208 - fast
    except (FileNotFoundError, NotADirectoryError):
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


def append(storage: Storage, table: str, rows: Sequence[Row], transaction: str) -> bool:
    """Append rows to a catalog table, once for each `transaction`; whether they were new.

    `storage` is that of the catalog's folder. The caller holds the catalog's lease. Raises UsageProblem when
    a row breaks a constraint of the table.
    """
    import pyarrow as pa

    if not rows:
        return False
    batch = pa.Table.from_pylist([as_row(row) for row in rows], schema=ARROW_SCHEMAS[table])
    return append_files(
        storage, table, transaction, lambda settings: [write_rows(storage, table, batch, settings)]
    )


def settings_of(uri: str) -> dict[str, str]:
    """The properties of the table at a URI."""
    return open_table(uri, known=True).metadata().configuration


def append_files(
    storage: Storage, table: str, transaction: str, write: Callable[[Mapping[str, str]], Sequence[str]]
) -> bool:
    """As `append`, for the rows in the files that `write` makes, given the table's settings.

    The caller holds the catalog's lease. Raises Busy when others commit all the same.
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
    """Write rows as a Parquet file of a catalog table; returns what `commit` makes visible, as JSON.

    Until then the file is invisible, so that any process may write one. `settings`: the table's, where they
    are known. Raises UsageProblem when a row breaks a constraint of the table.
    """
    settings = settings_of(f"{storage.uri}/{table}") if settings is None else settings
    _check(table, rows, settings)
    order = [column for column in SORTED_BY if column in rows.column_names]
    if order:
        rows = rows.sort_by([(column, "ascending") for column in order])
    return put_rows(storage, f"{table}/", rows, settings)


def put_rows(storage: Storage, folder: str, rows: pa.Table, settings: Mapping[str, str]) -> str:
    """As `write_rows`, for any table in a folder of `storage`, which ends in `/` or is empty."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    # The footer has no checksum: without statistics in it, a flipped bit there cannot hide rows.
    pq.write_table(rows, sink, write_page_checksum=True, write_statistics=False, compression="snappy")
    data = sink.getvalue().to_pybytes()
    name = f"part-{uuid.uuid4().hex}-{hashlib.sha256(data).hexdigest()}.parquet"  # what readers verify
    put_summed(storage, f"{folder}{name}", data)
    return json.dumps({"path": name, "size": len(data), "stats": json.dumps(_statistics(rows, settings))})


def rows_in(added: Sequence[str]) -> int:
    """How many rows the files have that `write_rows` wrote."""
    return sum(json.loads(json.loads(file)["stats"])["numRecords"] for file in added)


def commit(storage: Storage, table: str, added: Sequence[str], transaction: str) -> bool:
    """As `append_files`, for files that `write_rows` has written."""
    return append_files(storage, table, transaction, lambda _: added)


def outrun(uri: str) -> Busy:
    return Busy(
        f"Others commit to {uri} although this run holds the catalog's lease.",
        hint="Nothing of this run is visible. Run it again when they are done.",
    )


def add_actions(added: Sequence[str], now: int) -> list[AddAction]:
    """What adds files that `write_rows` wrote to a table; `now` in ms since 1970."""
    from deltalake.transaction import AddAction

    return [
        AddAction(
            path=file["path"],
            size=file["size"],
            partition_values={},
            modification_time=now,
            data_change=True,
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
    gone: Sequence[str] = (),
) -> bool:
    """One try at a commit behind a table that was opened; False when another writer was faster."""
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import RemoveAction

    behind, now = opened.table, int(time.time() * 1000)
    once = [] if transaction is None else [Transaction(transaction, 1)]
    if table == "backups":
        reached = {name: newest_version(f"{storage.uri}/{name}", known=True) for name in _COMMITTED_BEFORE}
        once += [Transaction(_VERSION_OF + name, version) for name, version in reached.items() if version > 0]
    put_checkpoint(storage, table, behind, opened.copy)
    name = f"{behind.version() + 1:020d}.json"
    try:
        behind.create_write_transaction(
            [
                *(RemoveAction(path, data_change=True, deletion_timestamp=now) for path in gone),
                *add_actions(added, now),
            ],
            "append",
            behind.schema(),
            commit_properties=CommitProperties(app_transactions=once),
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
    return True


def _check(table: str, batch: pa.Table, settings: Mapping[str, str]) -> None:
    """The table's CHECK constraints, as Spark enforces them when it writes."""
    rules = {key: text for key, text in settings.items() if key.startswith(CONSTRAINT)}
    if not rules:
        return
    with _checker().cursor() as connection:
        connection.register("batch", batch)
        if not _broken(connection, "1", " AND ".join(f"({text})" for text in rules.values())):
            return
        for key, text in rules.items():
            if row := _broken(connection, "*", text):
                rule = f"{key.removeprefix(CONSTRAINT)} ({text})"
                raise UsageProblem(f"A row for the table {table} breaks its rule {rule}: {row}")


def _broken(connection: DuckDBPyConnection, columns: str, condition: str) -> tuple[Any, ...] | None:
    """The first row of `batch` for which a constraint is not true, as the catalog's migrations have it."""
    from duckdb import ParserException

    query = f"SELECT {columns} FROM batch WHERE ({condition}) IS NOT TRUE LIMIT 1"  # noqa: S608
    try:
        return connection.execute(query).fetchone()
    except ParserException:  # a column's name is one of DuckDB's own words
        from lakebackup.sql_engine import to_duckdb  # slow to load, and seldom needed

        return connection.execute(to_duckdb(query)).fetchone()


def _checker() -> DuckDBPyConnection:
    """The database of this process's questions, or one of its own: to open one takes longer than to check."""
    questions = sys.modules.get("lakebackup.sql_engine.duck")
    return questions.database() if questions else _own_database()


@until_fork
def _own_database() -> DuckDBPyConnection:
    import duckdb

    return duckdb.connect(":memory:")


def _statistics(batch: pa.Table, settings: Mapping[str, str]) -> dict[str, Any]:
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
