"""Upkeep of a catalog table, without a JVM: merge its files, and delete what no reader needs any more.

Small files are merged in groups. A group has files that follow each other in time, as many as fit in memory.
They are verified as for any reader, sorted, and written as files of `_FILE_BYTES`. One commit then replaces
the group's files. Files of that size are not read again. The table ends up in slices of time, each ordered by
source, scope and time. `catalog optimize` merges all small files; every run that commits merges those of a
tier (tiers.py) when there are enough of them.

Rows are read and written without the catalog's lease; only the commit takes it. If another process has
removed a file of the group by then, nothing is committed, and the next run merges what there is.

delta-rs plans what may be deleted: it knows the files that were removed within the retention, and the entries
of the log that are older than their retention. `Storage` deletes them.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from lakebackup.errors import Busy, LakebackupError, NotFound
from lakebackup.rows.tables import TABLES
from lakebackup.sql_engine.delta.as_of import open_then
from lakebackup.sql_engine.delta.dataset import rows_in_files
from lakebackup.sql_engine.delta.log import (
    FOLDER,
    commits_since_checkpoint,
    folder_of,
    is_entry,
    local_log,
    needed,
    pool,
    put_checkpoint,
)
from lakebackup.sql_engine.delta.table import (
    MERGED_AT,
    TRIES,
    commit_once,
    encoded,
    in_order,
    live_paths,
    newest_version,
    open_copy,
    open_table,
    open_to_write,
    outrun,
    put_rows,
)
from lakebackup.sql_engine.delta.tiers import GROUP_ROWS, SMALL_BYTES, TableFile, due_files, table_files
from lakebackup.storage import Storage

#: The size that merged files have. A compromise: large files mean fewer to open, but readers verify a whole
#: file before they use a row of it.
_FILE_BYTES = 2 * SMALL_BYTES
#: A larger file is divided. Merged files are smaller, so none is divided again.
_LARGE_BYTES = 2 * _FILE_BYTES
# The most bytes of a group of files. With `GROUP_ROWS` it takes some 600 MB for rows of `files`.
_GROUP_BYTES = 8 * _FILE_BYTES
# The number of rows from whose size the number of rows in a file is estimated.
_SAMPLE_ROWS = 50_000
_HOUR_MS = 3_600_000
# A checkpoint names only the files that were removed in the seven days before it. For a longer retention, the
# version at its beginning is read too.
_TOMBSTONES_MS = 7 * 24 * _HOUR_MS
_warn = logging.getLogger(__name__).warning


class Upkeep(NamedTuple):
    """How much work a catalog's tables are for a reader, and when small files were last merged.

    `log_entries`: commits since the last checkpoints. `most_small_files`: in the table with the most.
    `merged_ms`: ms since 1970; None: never.
    """

    small_files: int
    most_small_files: int
    log_entries: int
    merged_ms: int | None


def upkeep_of(catalog_uri: str) -> Upkeep:
    """Return the state of upkeep of the catalog at a URI, from the logs of its tables. Raises Damaged."""
    small_files, log_entries, merged_ms = [0], 0, list[int]()
    for table in TABLES:
        uri = f"{catalog_uri}/{table}"
        if newest_version(uri, cached=True) == 0:  # a table that has never had a row
            continue
        with suppress(NotFound), local_log(uri, cached=True) as copy:  # an older catalog lacks tables
            delta_table = open_copy(uri, copy)
            small_files.append(sum(file.is_small for file in table_files(delta_table)))
            log_entries += commits_since_checkpoint(os.listdir(Path(copy, FOLDER)))  # noqa: PTH208 - fast
            merged_ms += filter(None, [delta_table.transaction_version(MERGED_AT)])
    return Upkeep(sum(small_files), max(small_files), log_entries, max(merged_ms, default=None))


def merge_files(storage: Storage, table: str, lease: Callable[[], AbstractContextManager[Any]]) -> None:
    """Merge the small files of a table, and divide the large ones. The table's rows do not change.

    `storage`: the catalog's folder. `lease` acquires the catalog's lease for a block. Other processes may
    commit meanwhile. If one has removed a file of a group, that group is not merged. Raises Busy when others
    commit despite the lease, NotFound, Damaged.
    """
    delta_table = open_table(f"{storage.uri}/{table}")
    for group in _groups(table_files(delta_table)):
        added = _rewritten(storage, table, delta_table, group)
        with lease():
            replace_files(storage, table, group, added)


def merge_due_files(
    storage: Storage, tables: Iterable[str], lease: Callable[[], AbstractContextManager[Any]]
) -> None:
    """Merge one group of small files in each of some tables, if enough of them are in a tier (tiers.py).

    `storage`, `lease`: see `merge_files`; `lease` is called once, after the rows are written. When it raises
    Busy, nothing is merged. Other errors are logged. In both cases the next commit finds the same files due.
    """
    merges: list[tuple[str, list[str], list[str]]] = []
    for table in tables:
        with _logged(f"{storage.uri}/{table}"):
            delta_table = open_table(f"{storage.uri}/{table}", cached=True)
            if removed := [file.path for file in due_files(table_files(delta_table))]:
                merges.append((table, removed, _rewritten(storage, table, delta_table, removed)))
    if merges:
        with _logged(storage.uri), lease():
            for table, removed, added in merges:
                with _logged(f"{storage.uri}/{table}"):
                    replace_files(storage, table, removed, added)


@contextmanager
def _logged(uri: str) -> Iterator[None]:
    """Log an error of the block instead of raising it. Busy is expected, and not logged."""
    try:
        yield
    except Busy:
        return
    except Exception as error:  # noqa: BLE001 - the run that merges has done its work
        text = error.message if isinstance(error, LakebackupError) else repr(error)
        _warn("The small files of %s are not merged: %s", uri, text)


def _rewritten(storage: Storage, table: str, delta_table: DeltaTable, paths: Sequence[str]) -> list[str]:
    """Write the rows of some files of a table as new files, and return these as `put_rows` does."""
    settings = delta_table.metadata().configuration
    rows = in_order(table, rows_in_files(f"{storage.uri}/{table}", delta_table, paths))
    return [put_rows(storage, f"{table}/", part, settings) for part in divided(rows)]


def _groups(files: Sequence[TableFile]) -> Iterator[list[str]]:
    """Yield the paths of the files to rewrite together."""
    group: list[TableFile] = []
    for file in files:
        if SMALL_BYTES <= file.bytes <= _LARGE_BYTES:
            continue
        if group and (
            sum(member.bytes for member in group) + file.bytes > _GROUP_BYTES
            or sum(member.rows for member in group) + file.rows > GROUP_ROWS
        ):
            yield from _worth_it(group)
            group = []
        group.append(file)
    yield from _worth_it(group)


def _worth_it(group: Sequence[TableFile]) -> Iterator[list[str]]:
    if len(group) > 1 or any(file.bytes > _LARGE_BYTES for file in group):
        yield [file.path for file in group]


def divided(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield rows in tables of equal length, each for a file of about `_FILE_BYTES`."""
    if rows.nbytes <= _FILE_BYTES:
        yield rows
        return
    sample = rows.slice(0, _SAMPLE_ROWS)
    total_bytes = len(encoded(sample)) * len(rows) / max(1, len(sample))
    count = max(1, round(total_bytes / _FILE_BYTES))
    length = max(1, -(-len(rows) // count))
    yield from (rows.slice(start, length) for start in range(0, len(rows), length))


def replace_files(
    storage: Storage, table: str, removed: Sequence[str], added: Sequence[str], transaction: str | None = None
) -> bool:
    """Replace files of a table by files with the same rows, in one commit. Returns False when another process
    has removed one of them. `transaction`: the id of an application transaction, which the commit records."""
    for _ in range(TRIES):
        with open_to_write(f"{storage.uri}/{table}") as opened:
            if not set(removed) <= set(live_paths(opened.table)):
                return False
            if commit_once(storage, table, opened, added, transaction, removed, data_change=False):
                return True
    raise outrun(f"{storage.uri}/{table}")


def delete_old_files(storage: Storage, table: str, retain_ms: int) -> None:
    """Delete the files of a table that are older than `retain_ms` and that no version since then needs.

    A file that no version has yet may belong to a run at work, so its age protects it too. Raises NotFound,
    Damaged.
    """
    cutoff_ms, prefix = time.time_ns() // 1_000_000 - retain_ms, f"{table}/"
    # The files are listed before the log is read: those that are committed in between are in the log then.
    objects = [
        entry
        for entry in storage.list(prefix)
        if entry.modified_ms < cutoff_ms and "/" not in entry.path.removeprefix(prefix)
    ]
    needed_names = _needed_files(f"{storage.uri}/{table}", cutoff_ms, retain_ms)
    expired = []
    for entry in objects:
        name = entry.path.removeprefix(prefix)
        if name.startswith(".") and name.endswith(".crc"):  # a checksum file goes with its file
            name = name[1:].removesuffix(".crc")
        if name.endswith(".parquet") and name not in needed_names:
            expired.append(entry.path)
    list(pool().map(storage.delete, expired))


def _needed_files(uri: str, cutoff_ms: int, retain_ms: int) -> set[str]:
    """Return the names of the files that the versions since `cutoff_ms` have."""
    with local_log(uri) as copy:
        delta_table = open_copy(uri, copy)
        paths = live_paths(delta_table)

        def removed_before(hours: int) -> set[str]:
            return set(delta_table.vacuum(hours, dry_run=True, enforce_retention_duration=False))

        paths += removed_before(0) - removed_before(-(-retain_ms // _HOUR_MS))
    if retain_ms > _TOMBSTONES_MS:
        with suppress(NotFound):  # that version cannot be read any more
            if old_table := open_then(uri, cutoff_ms * 1000):
                paths += live_paths(old_table)
    names = {path.rpartition("/")[2] for path in paths}
    return names | {unquote(name) for name in names}


def tidy_log(storage: Storage, table: str) -> None:
    """Put a checkpoint of a table's newest version, and delete the entries of its log that are older than the
    log's retention.

    Both only make reading faster. Raises NotFound, Damaged.
    """
    uri = f"{storage.uri}/{table}"
    with open_to_write(uri) as opened:
        put_checkpoint(storage, table, opened.table, opened.copy, is_due=True)
    if folder_of(uri) is None:  # in a folder `put_checkpoint` does it
        _delete_old_entries(storage, table)


def _delete_old_entries(storage: Storage, table: str) -> None:
    """Delete the old entries of a log in object storage: those that delta-rs deletes in a copy of it.

    It chooses them by name and time alone, so in the copy these entries are empty files.
    """
    prefix = f"{table}/{FOLDER}/"
    entries = {entry.path.removeprefix(prefix): entry for entry in storage.list(prefix)}
    names = {name for name in entries if is_entry(name)}
    with local_log(f"{storage.uri}/{table}") as copy:
        log = Path(copy, FOLDER)
        for name in names:
            file = log / name
            file.touch()
            os.utime(file, (entries[name].modified_ms / 1000,) * 2)
        DeltaTable(copy).cleanup_metadata()
        expired = sorted(name for name in names - set(needed(names)) if not (log / name).exists())
    for name in expired:  # in order, so that what an interruption leaves is a log
        storage.delete(f"{prefix}{name}")
