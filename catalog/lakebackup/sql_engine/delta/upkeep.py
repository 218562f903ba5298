"""Upkeep of a catalog table, without a JVM: merge its files, and delete what no reader needs any more.

Small files are merged in groups. A group has files that follow each other in time, so its rows fit in memory.
They are verified as for any reader, sorted, and written as files of `_FILE_BYTES`. One commit then replaces
the group's files. Files of that size are not read again, so a weekly run costs what the week has added. The
table ends up in slices of time, each ordered by source, scope and time.

Rows are read and written without the catalog's lease; only the commit takes it. If another process has
removed a file of the group by then, nothing is committed, and the next run merges what there is.

delta-rs plans what may be deleted: it knows the files that were removed within the retention, and the entries
of the log that are older than their retention. `Storage` deletes them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from lakebackup.errors import NotFound
from lakebackup.sql_engine.delta.as_of import open_then
from lakebackup.sql_engine.delta.dataset import rows_in_files
from lakebackup.sql_engine.delta.log import (
    FOLDER,
    folder_of,
    is_entry,
    local_log,
    needed,
    pool,
    put_checkpoint,
)
from lakebackup.sql_engine.delta.table import (
    TRIES,
    commit_once,
    encoded,
    in_order,
    live_paths,
    open_folder,
    open_table,
    open_to_write,
    outrun,
    put_rows,
)
from lakebackup.storage import Storage

#: The size that merged files have. A compromise: large files mean fewer to open, but readers verify a whole
#: file before they use a row of it.
_FILE_BYTES = 4 << 20
#: A smaller file is merged with others.
SMALL_BYTES = _FILE_BYTES // 2
#: A larger file is divided. Merged files are smaller, so none is divided again.
_LARGE_BYTES = 2 * _FILE_BYTES
# The limits of a group. Its rows are in memory twice while they are sorted: some 600 MB for rows of `files`.
_GROUP_BYTES = 8 * _FILE_BYTES
_GROUP_ROWS = 400_000
# The number of rows from whose size the number of rows in a file is estimated.
_SAMPLE_ROWS = 50_000
_HOUR_MS = 3_600_000
# Checkpoints name the files that were removed in so many days before them. Which files earlier versions need
# has to be read from the version itself.
_TOMBSTONES_MS = 7 * 24 * _HOUR_MS


class _File(NamedTuple):
    """A file of a table, as the log describes it."""

    order: int
    path: str
    bytes: int
    rows: int


def small_files(uri: str) -> int:
    """Return how many files of the table at a URI are small. Raises NotFound, Damaged."""
    return sum(file.bytes < SMALL_BYTES for file in _files(open_table(uri)))


def merge_files(storage: Storage, table: str, lease: Callable[[], AbstractContextManager[Any]]) -> None:
    """Merge the small files of a table, and divide the large ones. The table's rows do not change.

    `storage`: the catalog's folder. `lease` acquires the catalog's lease for a block. What another process
    changes meanwhile stays; the files that it removed are left out. Raises Busy when others commit despite
    the lease, NotFound, Damaged.
    """
    uri = f"{storage.uri}/{table}"
    delta_table = open_table(uri)
    settings = delta_table.metadata().configuration
    for group in _groups(_files(delta_table)):
        added = [
            put_rows(storage, f"{table}/", rows, settings)
            for rows in _divided(in_order(table, rows_in_files(uri, delta_table, group)))
        ]
        with lease():
            _replace(storage, table, group, added)


def _files(delta_table: DeltaTable) -> list[_File]:
    """Return the files of a table, in the order of the least time of their rows, or else of their commits."""
    actions = delta_table.get_add_actions(flatten=True)
    times = actions.column("min.min_ts" if "min.min_ts" in actions.schema.names else "modification_time")
    files = zip(
        (value or 0 for value in times.to_pylist()),
        actions.column("path").to_pylist(),
        actions.column("size_bytes").to_pylist(),
        (count or 0 for count in actions.column("num_records").to_pylist()),
        strict=True,
    )
    return sorted(_File(*file) for file in files)


def _groups(files: Sequence[_File]) -> Iterator[list[str]]:
    """Yield the paths of the files to rewrite together."""
    group: list[_File] = []
    for file in files:
        if SMALL_BYTES <= file.bytes <= _LARGE_BYTES:
            continue
        if group and (
            sum(member.bytes for member in group) + file.bytes > _GROUP_BYTES
            or sum(member.rows for member in group) + file.rows > _GROUP_ROWS
        ):
            yield from _worth_it(group)
            group = []
        group.append(file)
    yield from _worth_it(group)


def _worth_it(group: Sequence[_File]) -> Iterator[list[str]]:
    if len(group) > 1 or any(file.bytes > _LARGE_BYTES for file in group):
        yield [file.path for file in group]


def _divided(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield rows in tables of equal length, each for a file of about `_FILE_BYTES`."""
    sample = rows.slice(0, _SAMPLE_ROWS)
    total_bytes = len(encoded(sample)) * len(rows) / max(1, len(sample))
    count = max(1, round(total_bytes / _FILE_BYTES))
    length = max(1, -(-len(rows) // count))
    yield from (rows.slice(start, length) for start in range(0, len(rows), length))


def _replace(storage: Storage, table: str, removed: Sequence[str], added: Sequence[str]) -> bool:
    """Replace files of a table by files with the same rows, in one commit. Returns False when another process
    has removed one of them."""
    for _ in range(TRIES):
        with open_to_write(f"{storage.uri}/{table}") as opened:
            if not set(removed) <= set(live_paths(opened.table)):
                return False
            if commit_once(storage, table, opened, added, None, removed, data_change=False):
                return True
    raise outrun(f"{storage.uri}/{table}")


def delete_old_files(storage: Storage, table: str, retain_ms: int) -> None:
    """Delete the files of a table that no version of the last `retain_ms` needs, and that are older.

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
    with local_log(uri) as folder:
        delta_table = open_folder(uri, folder)
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
    if folder_of(uri) is None:  # in a folder the checkpoint has done it
        _delete_old_entries(storage, table)


def _delete_old_entries(storage: Storage, table: str) -> None:
    """Delete what delta-rs deletes in a copy of a log in object storage.

    To choose, it needs the names and times of old entries, and not what is in them.
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
