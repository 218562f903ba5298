"""The catalog's tables as they were at an instant: at the last version that was committed until then."""

from __future__ import annotations

import os

from deltalake import DeltaTable

from lakebackup.errors import NotFound
from lakebackup.rules.times import format_ts
from lakebackup.sql_engine.delta.dataset import rows_of
from lakebackup.sql_engine.delta.log import folder_of, local_log
from lakebackup.sql_engine.delta.table import open_copy, open_table
from lakebackup.storage import open_storage
from lakebackup_sql import names


def open_then(uri: str, as_of: int | None, *, cached: bool = False) -> DeltaTable | None:
    """Open a table as it was at the instant `as_of` (us since 1970); None: as it is now (`cached`: see
    `open_table`). Returns None when the table did not exist yet, or its catalog has not gone through the
    migration that creates it.

    The time of a commit is the one that its writer put into the log. Raises NotFound when the table's rows of
    that instant were cleaned up.
    """
    try:
        return open_table(uri, cached=cached) if as_of is None else _open_as_of(uri, as_of)
    except NotFound:
        if _is_not_migrated(uri):
            return None
        raise


def open_version(uri: str, version: int) -> DeltaTable:
    """Open a table at a version, whatever was committed later."""
    table = open_table(uri)
    if table.version() == version:
        return table
    with local_log(uri, history=True) as copy:
        table = open_copy(uri, copy)
        table.load_as_version(version)
    return table


def _is_not_migrated(uri: str) -> bool:
    """Whether the catalog has not gone through the migration that creates a table."""
    catalog, _, table = uri.rpartition("/")
    migration = next(
        number
        for number, folder in enumerate(names("migrations"), 1)
        if table in names(f"migrations/{folder}")
    )
    if migration == 1:
        return False
    return max(rows_of(f"{catalog}/migrations")["version"].to_pylist(), default=0) < migration


def _open_as_of(uri: str, as_of: int) -> DeltaTable | None:
    with local_log(uri, history=True) as copy:
        table = open_copy(uri, copy)
        history = sorted((entry["version"], int(entry.get("timestamp") or 0)) for entry in table.history())
        earliest, latest_ms, version = history[0], 0, None
        for number, committed_ms in history:
            latest_ms = max(latest_ms, committed_ms)  # clocks of writers differ
            if latest_ms * 1000 > as_of:
                break
            version = number
        if version is None:
            if earliest[0]:
                raise _history_removed(uri, as_of)
            return None
        if version == table.version():
            return table
        table.load_as_version(version)
    file_names = {file.rpartition("/")[2] for file in table.file_uris()}  # the folder is URL-encoded
    if file_names - _file_names(uri):
        raise _history_removed(uri, as_of)
    return table


def _file_names(uri: str) -> set[str]:
    """Return the names of the files in a table's folder."""
    folder = folder_of(uri)
    if folder:
        return set(os.listdir(folder))  # noqa: PTH208 - fast
    root, _, table = uri.rpartition("/")
    return {file.path.partition("/")[2] for file in open_storage(root).list(f"{table}/")}


def require_then(catalog_uri: str, as_of: int) -> None:
    """Raise NotFound when there was no catalog in a folder at the instant `as_of` (us since 1970)."""
    if open_then(f"{catalog_uri}/migrations", as_of) is None:
        raise NotFound(
            f"The catalog at {catalog_uri} was not made yet at {format_ts(as_of // 1000)}.",
            hint="Choose a later --as-of; the column started_time of `backups` shows what there was when.",
        )


def _history_removed(uri: str, as_of: int) -> NotFound:
    return NotFound(
        f"What {uri} held at {format_ts(as_of // 1000)} is not kept any more.",
        hint="`lakebackup catalog optimize` and Delta itself clean up what is older than their retention: "
        "choose a later --as-of.",
    )
