"""Opening the catalog's Delta tables without a JVM, appending rows to them and changing some.

Whoever has rows writes them as a Parquet file of the table, on the driver or in a Spark task; one commit then
makes all files visible. Spark's own writer needs more than a second for one row, this some milliseconds.
pyarrow writes the file, because it adds a checksum to each page, which delta-rs' writer does not. A commit is
a few lines of JSON, put if nobody else was faster: delta-rs does not sync what it writes to a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Busy, EnvironmentProblem, NotFound, UsageProblem
from lakebackup.rows.base import Row
from lakebackup.rows.tables import ARROW_SCHEMAS, OF_BACKUPS, as_row
from lakebackup.sql_engine.delta.log import (
    FOLDER,
    entries_of,
    folder_of,
    is_entry,
    local_log,
    needed,
    put_checkpoint,
    put_entry,
    put_summed,
    remote_log,
    until_fork,
)
from lakebackup.sql_engine.delta.sums import is_whole
from lakebackup.sql_engine.failures import damaged_catalog
from lakebackup.storage import AlreadyExists

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from deltalake import DeltaTable
    from duckdb import DuckDBPyConnection

    from lakebackup.rows.base import Row
    from lakebackup.storage import Storage

#: What the names of the properties that hold CHECK constraints begin with.
CONSTRAINT = "delta.constraints."
TRIES = 5
# Of the tables that the migrations create; Delta may state the same as features.
_WRITER_VERSION = 3
_WRITER_FEATURES = (7, {"appendOnly", "invariants", "checkConstraints"})
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
    """Table -> version that it had when rows were last committed to `backups`, where that is known.

    The log of `backups` was verified when the table was opened.
    """
    uri = f"{catalog_uri}/backups"
    for name, data in reversed(entries_of(uri).items()):
        actions = map(json.loads, data.splitlines()) if name.endswith(".json") else ()
        ids = [action["txn"] for action in actions if "txn" in action]
        found = {one["appId"]: one["version"] for one in ids if one["appId"].startswith(_VERSION_OF)}
        if found:  # each commit has all of them
            return {table.removeprefix(_VERSION_OF): version for table, version in found.items()}
    with local_log(uri, known=True) as folder:  # transaction versions are read from the log on demand
        backups = open_folder(uri, folder)
        found = {table: backups.transaction_version(_VERSION_OF + table) for table in _COMMITTED_BEFORE}
    return {table: version for table, version in found.items() if version is not None}


def _verify_log(log: Path, *, history: bool = False) -> None:
    """Raises Damaged when what the table is read from (`history`: all of the log) is not as it was written,
    where that is known.

    A commit that a power cut left empty is valid to Delta, and its rows would be missing without a word.
    """
    names = os.listdir(log)  # noqa: PTH208 - fast
    for name in sorted(filter(is_entry, names)) if history else needed(names):
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
    return append_files(
        storage, table, transaction, lambda settings: [write_rows(storage, table, batch, settings)]
    )


def settings_of(uri: str) -> dict[str, str]:
    """The properties of the table at a URI."""
    return open_table(uri, known=True).metadata().configuration


def append_files(
    storage: Storage, table: str, transaction: str, write: Callable[[Mapping[str, str]], Sequence[str]]
) -> bool:
    """As `append`, for the rows in the files that `write` makes, given the table's settings."""
    opened = _open_before(f"{storage.uri}/{table}", transaction)
    if opened is None:
        return False
    added = write(opened.metadata().configuration)
    if added and commit_once(storage, table, opened, added, transaction):
        return True
    return commit(storage, table, added, transaction)


def write_rows(
    storage: Storage, table: str, rows: pa.Table, settings: Mapping[str, str] | None = None
) -> str:
    """Write rows as a Parquet file of a catalog table; returns what `commit` makes visible, as JSON.

    Until then the file is invisible, so that any process may write one. `settings`: the table's, where they
    are known. Raises UsageProblem when a row breaks a constraint of the table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    settings = settings_of(f"{storage.uri}/{table}") if settings is None else settings
    _check(table, rows, settings)
    order = [column for column in SORTED_BY if column in rows.column_names]
    if order:
        rows = rows.sort_by([(column, "ascending") for column in order])
    sink = pa.BufferOutputStream()
    # The footer has no checksum: without statistics in it, a flipped bit there cannot hide rows.
    pq.write_table(rows, sink, write_page_checksum=True, write_statistics=False, compression="snappy")
    data = sink.getvalue().to_pybytes()
    name = f"part-{uuid.uuid4().hex}-{hashlib.sha256(data).hexdigest()}.parquet"  # what readers verify
    put_summed(storage, f"{table}/{name}", data)
    return json.dumps({"path": name, "size": len(data), "stats": json.dumps(_statistics(rows, settings))})


def commit(storage: Storage, table: str, added: Sequence[str], transaction: str) -> bool:
    """Make files of `write_rows` part of a table in one commit, once for each `transaction`; whether new.

    The caller holds the catalog's lease. Raises Busy when others commit all the same.
    """
    uri = f"{storage.uri}/{table}"
    for _ in range(TRIES if added else 0):
        opened = _open_before(uri, transaction)
        if opened is None:
            return False
        if commit_once(storage, table, opened, added, transaction):
            return True
    if not added:
        return False
    raise outrun(uri)


def _open_before(uri: str, transaction: str) -> DeltaTable | None:
    """The newest version of the table at a URI; None when it has that transaction already."""
    with local_log(uri) as folder:  # transaction versions are read from the log on demand
        opened = open_folder(uri, folder)
        return opened if opened.transaction_version(transaction) is None else None


def outrun(uri: str) -> Busy:
    return Busy(
        f"Others commit to {uri} although this run holds the catalog's lease.",
        hint="Nothing of this run is visible. Run it again when they are done.",
    )


def commit_once(
    storage: Storage,
    table: str,
    opened: DeltaTable,
    added: Sequence[str],
    transaction: str | None,
    gone: Sequence[str] = (),
) -> bool:
    """One try at a commit behind a table that was opened; False when another writer was faster."""
    _require_writable(storage, table, opened)
    before, now = opened.version(), int(time.time() * 1000)
    once = {} if transaction is None else {transaction: 1}
    if table == "backups":
        reached = {name: newest_version(f"{storage.uri}/{name}", known=True) for name in _COMMITTED_BEFORE}
        once |= {_VERSION_OF + name: version for name, version in reached.items() if version > 0}
    info = {"timestamp": now, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
    actions: list[dict[str, Any]] = [
        {"commitInfo": info},
        *({"txn": {"appId": name, "version": version}} for name, version in once.items()),
        *({"remove": {"path": path, "dataChange": True, "deletionTimestamp": now}} for path in gone),
        *(
            {"add": {**json.loads(file), "partitionValues": {}, "modificationTime": now, "dataChange": True}}
            for file in added
        ),
    ]
    put_checkpoint(storage, table, before)
    try:
        put_entry(storage, table, before + 1, actions)
    except AlreadyExists:
        return False
    return True


def _require_writable(storage: Storage, table: str, opened: DeltaTable) -> None:
    """Raises EnvironmentProblem when a writer has to keep rules that this program does not know."""
    protocol = opened.protocol()
    version, features = _WRITER_FEATURES
    if protocol.min_writer_version > _WRITER_VERSION and (
        protocol.min_writer_version > version or set(protocol.writer_features or ()) - features
    ):
        raise EnvironmentProblem(
            f"The table at {storage.uri}/{table} has features of Delta that lakebackup cannot write.",
            hint="Another program added them. Move the catalog away and run `lakebackup catalog rebuild`.",
        )


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


@until_fork
def _checker() -> DuckDBPyConnection:
    """A database without tables: to open one takes longer than to check a few rows."""
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
