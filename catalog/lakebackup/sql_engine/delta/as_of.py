"""The catalog's tables as they were at an instant."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lakebackup.errors import NotFound
from lakebackup.rules.times import format_ts
from lakebackup.sql_engine.delta.dataset import rows_of
from lakebackup.sql_engine.delta.log import folder_of, local_log
from lakebackup.sql_engine.delta.table import open_folder, open_table
from lakebackup.storage import open_storage
from lakebackup_sql import names

if TYPE_CHECKING:
    from deltalake import DeltaTable


def open_then(uri: str, as_of: int | None, *, known: bool = False) -> DeltaTable | None:
    """The table as it was at an instant (us since 1970), or as it is (`known`: as of `open_table`); None when
    it was not made yet then, or the catalog has not gone through the migration that makes it.

    What counts is the time of a commit that its writer put into the log. Raises NotFound when what the table
    held then is not kept any more.
    """
    try:
        return open_table(uri, known=known) if as_of is None else _open_as_of(uri, as_of)
    except NotFound:
        if _is_to_come(uri):
            return None
        raise


def open_version(uri: str, version: int) -> DeltaTable:
    """A version of the table, whatever was committed since."""
    table = open_table(uri)
    if table.version() == version:
        return table
    with local_log(uri, history=True) as folder:
        table = open_folder(uri, folder, history=True)
        table.load_as_version(version)
    return table


def _is_to_come(uri: str) -> bool:
    """Whether a table comes with a migration that its catalog has not gone through."""
    catalog, _, table = uri.rpartition("/")
    made_by = next(
        n for n, folder in enumerate(names("migrations"), 1) if table in names(f"migrations/{folder}")
    )
    if made_by == 1:
        return False
    return max(rows_of(f"{catalog}/migrations")["version"].to_pylist(), default=0) < made_by


def _open_as_of(uri: str, as_of: int) -> DeltaTable | None:
    with local_log(uri, history=True) as folder:
        table = open_folder(uri, folder, history=True)
        history = sorted((entry["version"], int(entry.get("timestamp") or 0)) for entry in table.history())
        earliest, reached, version = history[0], 0, None
        for number, at in history:
            reached = max(reached, at)  # clocks differ, the order of commits does not
            if reached * 1000 > as_of:
                break
            version = number
        if version is None:
            if earliest[0]:
                raise _not_kept(uri, as_of)
            return None
        if version == table.version():
            return table
        table.load_as_version(version)
    names = {file.rpartition("/")[2] for file in table.file_uris()}  # with its folder encoded
    if names - _names(uri):
        raise _not_kept(uri, as_of)
    return table


def _names(uri: str) -> set[str]:
    """Names in a table's folder."""
    folder = folder_of(uri)
    if folder:
        return set(os.listdir(folder))  # noqa: PTH208 - fast
    root, _, table = uri.rpartition("/")
    return {found.path.partition("/")[2] for found in open_storage(root).list(f"{table}/")}


def require_then(catalog_uri: str, as_of: int) -> None:
    """Raises NotFound when there was no catalog in that folder at an instant (us since 1970)."""
    if open_then(f"{catalog_uri}/migrations", as_of) is None:
        raise NotFound(
            f"The catalog at {catalog_uri} was not made yet at {format_ts(as_of // 1000)}.",
            hint="Choose a later --as-of; the column started_time of `backups` shows what there was when.",
        )


def _not_kept(uri: str, as_of: int) -> NotFound:
    return NotFound(
        f"What {uri} held at {format_ts(as_of // 1000)} is not kept any more.",
        hint="`lakebackup catalog optimize` and Delta itself clean up what is older than their retention: "
        "choose a later --as-of.",
    )
