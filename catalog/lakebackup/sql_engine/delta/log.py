"""The log of a Delta table for delta-rs: a temporary copy of the entries that it needs.

delta-rs reads and writes only copies of a log, and never accesses object storage. `Storage` does that, with
its own retries, credentials and checksums. A commit is a conditional put of `Storage`, also in a local
folder, where it is synced. So there is one way to reach S3, and one way to win or lose a race. In a folder
each entry is verified before it is copied. A copy also saves time: a log has the entries of 30 days, and
delta-rs would look at all of them.

To see what is new in a table in object storage takes one listing of the entries since its last checkpoint.
The process keeps the entries that it has read, because commits do not change.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import ParamSpec, TypeVar, cast

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lakebackup.errors import Busy, EnvironmentProblem, LakebackupError, NotFound
from lakebackup.rules.stored_json import NO_JSON
from lakebackup.sql_engine.delta.sums import is_whole, sums_of
from lakebackup.sql_engine.failures import damaged_catalog
from lakebackup.storage import A_FEW, AlreadyExists, ObjectStat, Storage, open_storage
from lakebackup.storage.local import LocalStorage

FOLDER = "_delta_log"
_LAST_CHECKPOINT = "_last_checkpoint"
_HINT = f"{FOLDER}/{_LAST_CHECKPOINT}"
# The largest entry of a log that is read. A checkpoint has some 200 bytes for each file of its table.
_MAX_BYTES = 1 << 28
_ENTRY = re.compile(r"(\d{20})\.(?:json|checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet)")
_MAX_THREADS = 16
# After so many commits the next checkpoint is due. In object storage every reader sends a request for each
# entry after the last checkpoint.
_IN_FOLDER, _IN_OBJECT_STORAGE = 20, 10
# After so many missing versions, a log in a folder has ended.
_MOST_MISSING = 2 * _IN_FOLDER
_TRIES = 5
P = ParamSpec("P")
T = TypeVar("T")
_warn = logging.getLogger(__name__).warning


def folder_of(uri: str) -> Path | None:
    """Return the folder that a URI names; None for object storage."""
    scheme, separator, path = uri.partition("://")
    if not separator:
        return Path(uri)
    return Path(path) if scheme == "file" else None


def per_process(function: Callable[P, T]) -> Callable[P, T]:
    """Like functools.cache, but the cache is empty after a fork, which threads and locks do not survive."""
    cached = cache(function)
    os.register_at_fork(after_in_child=cached.cache_clear)
    return cast("Callable[P, T]", cached)


def until_fork(function: Callable[P, T]) -> Callable[P, T]:
    """Like functools.cache, for a database: it is dropped before a fork and at the end of the process.

    A forked process has none of the database's threads and cannot close it. DuckDB reports a leak when a
    process ends with an open database.
    """
    cached = cache(function)
    os.register_at_fork(before=cached.cache_clear)
    atexit.register(cached.cache_clear)
    return cast("Callable[P, T]", cached)


@contextmanager
def local_log(uri: str, *, history: bool = False, cached: bool = False) -> Iterator[str]:
    """Provide a folder with a copy of the log of the table at `uri`, as it is now, while the block runs.

    `history`: with all entries of the log. `cached`: in object storage, the entries that this process has
    read are new enough. Raises NotFound when there is no such table, Damaged when an entry of its log is
    damaged.
    """
    folder = folder_of(uri)
    if folder:
        entries = folder_entries(folder, history=history)
    else:
        entries = remote_log(uri).entries(history=history, cached=cached)
    with _copied(entries) as copy:
        yield copy


@contextmanager
def _copied(entries: Mapping[str, bytes]) -> Iterator[str]:
    """Provide a temporary folder with a table's log of these entries, while the block runs."""
    with tempfile.TemporaryDirectory(prefix="lakebackup-log-") as copy:
        log = Path(copy, FOLDER)
        log.mkdir()
        for name, data in entries.items():
            (log / name).write_bytes(data)
        yield copy


def is_entry(name: str) -> bool:
    """Whether a file with this name in a table's log is a commit or a checkpoint."""
    return _ENTRY.fullmatch(name) is not None


def needed(names: Iterable[str]) -> list[str]:
    """Return the entries from which a table is read, among the names in its log: those from the newest
    checkpoint on, oldest first."""
    names = list(names)
    since = _checkpoint(name for name in names if name.endswith(".parquet"))
    # A log can have tens of thousands of names: they are compared before they are matched.
    return sorted(name for name in names if name[:20] >= since and is_entry(name))


def commits_since_checkpoint(names: Iterable[str]) -> int:
    """Return how many commits a reader applies to the newest checkpoint, among the names in a table's log."""
    entries = needed(names)
    since = _checkpoint(entries)
    return sum(name.endswith(".json") and name[:20] > since for name in entries)


def folder_entries(folder: Path, *, history: bool = False) -> dict[str, bytes]:
    """Return the entries from which the table in a folder is read (`history`: all): name -> bytes.

    Raises NotFound when there is no log, and Damaged when an entry is a link, which leads elsewhere, or a
    pipe, which would never end, or too large for memory, or does not match its checksum, if it has one, or is
    empty. To Delta a commit that a power cut left empty is valid, and its rows would silently be missing.
    """
    log = folder / FOLDER
    if link := next((path for path in (folder, log) if path.is_symlink()), None):
        raise damaged_catalog(f"{link} is a link.")
    try:
        names = os.listdir(log) if history else recent_names(log)  # noqa: PTH208 - fast
    except FileNotFoundError as error:
        raise NotFound(f"There is no table at {folder}.") from error
    except NotADirectoryError as error:
        raise damaged_catalog(f"{log} is no folder.") from error
    entry_names = sorted(filter(is_entry, names)) if history else needed(names)
    return {name: _read_file(log / name) for name in entry_names}


def recent_names(log: Path) -> list[str]:
    """Return names in the log of a table in a folder: at least those of the entries from which the table is
    read. Raises FileNotFoundError, NotADirectoryError.

    A log has the entries of 30 days: to list tens of thousands takes longer than to read those since the last
    checkpoint. Their versions follow each other, so they are looked up. A lost entry does not hide those
    after it, because the search goes on beyond it, further than commits follow a checkpoint.
    """
    try:
        version = int(json.loads(_read_file(log / _LAST_CHECKPOINT))["version"])
    except (LakebackupError, OSError, KeyError, TypeError, OverflowError, *NO_JSON):  # it is only a hint
        return os.listdir(log)  # noqa: PTH208 - fast
    names = [f"{version:020d}.checkpoint.parquet"]
    if not os.path.lexists(log / names[0]):
        return os.listdir(log)  # noqa: PTH208 - fast
    missing = 0
    while missing < _MOST_MISSING:
        name = f"{version:020d}.json"
        is_there = os.path.lexists(f"{log}/{name}")
        if is_there:
            names.append(name)
        missing = 0 if is_there else missing + 1
        version += 1
    return names


def _read_file(file: Path) -> bytes:
    status = file.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise damaged_catalog(f"{file} is no regular file.")
    if status.st_size > _MAX_BYTES:
        raise damaged_catalog(f"{file} has {status.st_size} bytes.")
    data = file.read_bytes()
    if not data or not is_whole(file, data):
        raise damaged_catalog(f"{file} is {'not as it was written' if data else 'empty'}.")
    return data


def put_entry(storage: Storage, table: str, name: str, data: bytes) -> None:
    """Commit a version of a catalog table: put the entry that delta-rs wrote in a copy of the log.

    Raises AlreadyExists when another writer was faster, and EnvironmentProblem.
    """
    put_summed(storage, f"{table}/{FOLDER}/{name}", data)  # this alone is the commit
    if folder_of(storage.uri) is None:
        remote_log(f"{storage.uri}/{table}").remember(name, data)


def put_summed(storage: Storage, path: str, data: bytes) -> None:
    """Put a new file of a table, and in a folder also its checksum file. Raises AlreadyExists."""
    if isinstance(storage, LocalStorage):
        storage.put_together({path: data, _sums_path(path): sums_of(data)})
    else:
        storage.put(path, data, if_absent=True)


def _sums_path(path: str) -> str:
    above, slash, name = path.rpartition("/")
    return f"{above}{slash}.{name}.crc"


def put_checkpoint(
    storage: Storage, table: str, opened: DeltaTable, copy: str, *, is_due: bool = False
) -> None:
    """Put a checkpoint of a table, if one is due, by the length of its log or by `is_due`.

    `opened`: the table, opened in the copy `copy` of its log. In a folder, entries of the log that are older
    than its retention are then deleted, also if the newest version has a checkpoint already. Both only make
    reading faster, so a failure is only logged.
    """
    uri = f"{storage.uri}/{table}"
    folder = folder_of(uri)
    commits = commits_since_checkpoint(os.listdir(Path(copy, FOLDER)))  # noqa: PTH208 - fast
    is_due = is_due or commits >= (_IN_FOLDER if folder else _IN_OBJECT_STORAGE)
    if not is_due:
        return
    try:
        if commits and opened.version():
            _put_newest_checkpoint(storage, table, opened, copy)
        if folder:
            _clean_up(folder)
    except (EnvironmentProblem, DeltaError, OSError) as error:
        _warn("%s has no new checkpoint: %s", uri, error)


def _put_newest_checkpoint(storage: Storage, table: str, opened: DeltaTable, copy: str) -> None:
    """Put a checkpoint of the version at which a table is open, and the hint that names it."""
    uri = f"{storage.uri}/{table}"
    folder = folder_of(uri)
    opened.create_checkpoint()
    for file in sorted(Path(copy, FOLDER).glob("*.checkpoint*.parquet")):
        data = file.read_bytes()
        with suppress(AlreadyExists):
            put_summed(storage, f"{table}/{FOLDER}/{file.name}", data)
            if not folder:
                remote_log(uri).remember(file.name, data)
    hint = Path(copy, _HINT).read_bytes()
    storage.put(f"{table}/{_HINT}", hint)
    if folder:
        storage.put(_sums_path(f"{table}/{_HINT}"), sums_of(hint))


def _clean_up(folder: Path) -> None:
    """Delete the entries of a log in a folder that are older than Delta's retention, and their checksum
    files."""
    DeltaTable(str(folder)).cleanup_metadata()
    for sums in (folder / FOLDER).glob(".*.crc"):
        if not sums.with_name(sums.name[1:].removesuffix(".crc")).exists():
            sums.unlink(missing_ok=True)


@per_process
def remote_log(uri: str) -> RemoteLog:
    """Return the log of a table in object storage, of which the process has one object."""
    root, _, table = uri.rpartition("/")
    return RemoteLog(opened(root), table)


def prefetch(uris: Iterable[str]) -> None:
    """Read the logs of tables in object storage in parallel. Afterwards each opens fast with `known`."""
    logs = [remote_log(uri) for uri in uris]
    if logs:
        with ThreadPoolExecutor(min(len(logs), _MAX_THREADS)) as executor:
            for future in [executor.submit(log.refresh) for log in logs]:
                with suppress(NotFound):  # whoever opens the table reports that
                    future.result()


class RemoteLog:
    """The log of one table in object storage: the entries since its last checkpoint that this process has
    read."""

    def __init__(self, storage: Storage, table: str) -> None:
        self._storage, self._table = storage, table
        self._entries: dict[str, bytes] = {}
        self._history: dict[str, bytes] = {}  # older entries, which only reads of the past need
        self._stat: ObjectStat | None = None  # of the newest entry, when it was last listed
        self._lock = Lock()

    def refresh(self) -> int:
        """Read the new entries, with one listing; returns the newest version. Raises NotFound, Damaged."""
        with self._lock:
            self._update()
            return self._newest_version()

    @property
    def newest(self) -> int:
        """The newest version that this process has read, -1 if none."""
        with self._lock:
            return self._newest_version()

    def entries(self, *, history: bool = False, cached: bool = False) -> dict[str, bytes]:
        """Return the entries from which the table is read (`history`: all): name -> bytes. `cached`: those
        that this process has read are new enough."""
        with self._lock:
            if not (cached and self._entries):
                self._update()
            if history:
                names = [name for name in self._list("") if name not in self._entries]
                fetched = self._fetch(name for name in names if name not in self._history)
                self._history = {name: self._history.get(name) or fetched[name] for name in names}
                return self._history | self._entries
            return dict(self._entries)

    def remember(self, name: str, data: bytes) -> None:
        """Add an entry that this process has put."""
        with self._lock:
            self._entries[name] = data

    def _update(self) -> None:
        for _ in range(_TRIES):
            try:
                newest_version = self._newest_version()
                start = f"{newest_version:020d}" if self._entries else self._hinted_version()
                listed = self._list(start)
                if self._entries and not self._is_unchanged(listed.get(f"{newest_version:020d}.json")):
                    self._forget()  # another table was created in its place
                    continue
                if start and not self._entries and not _checkpoint(listed):
                    listed = self._list("")
                self._entries |= self._fetch(name for name in listed if name not in self._entries)
                self._stat = listed.get(f"{self._newest_version():020d}.json")
            except NotFound:  # entries were cleaned up meanwhile
                self._forget()
                continue
            if not self._entries:
                raise NotFound(f"There is no table at {self._storage.uri}/{self._table}.")
            self._forget_old()
            return
        raise Busy(
            f"The log of {self._storage.uri}/{self._table} changed {_TRIES} times while it was read.",
            hint="Try again.",
        )

    def _hinted_version(self) -> str:
        """Return the version of the last checkpoint, with 20 digits as in names of entries; "" if unknown."""
        try:
            hint = json.loads(self._storage.get(f"{self._table}/{_HINT}", length=A_FEW))
            return f"{int(hint['version']):020d}"
        except (NotFound, KeyError, TypeError, OverflowError, *NO_JSON):  # it is only a hint
            return ""

    def _is_unchanged(self, newest: ObjectStat | None) -> bool:
        """Whether the newest entry that this process has read is the one in storage."""
        if newest is None:
            return False
        entry = self._entries.get(newest.path.rpartition("/")[2], b"")
        if newest.bytes != len(entry):
            return False
        return self._stat is None or self._stat.path != newest.path or self._stat == newest

    def _list(self, start: str) -> dict[str, ObjectStat]:
        folder = f"{self._table}/{FOLDER}/"
        objects = self._storage.list(folder, start_after=folder + start if start else "")
        objects_by_name = {entry.path.removeprefix(folder): entry for entry in objects}
        return {name: entry for name, entry in objects_by_name.items() if _ENTRY.fullmatch(name)}

    def _fetch(self, names: Iterable[str]) -> dict[str, bytes]:
        entry_names = list(names)
        read: Callable[[str], bytes] = partial(_read, self._storage, f"{self._table}/{FOLDER}")
        return dict(zip(entry_names, pool().map(read, entry_names), strict=True))

    def _newest_version(self) -> int:
        return max((int(name[:20]) for name in self._entries), default=-1)

    def _forget(self) -> None:
        self._entries, self._history, self._stat = {}, {}, None

    def _forget_old(self) -> None:
        since = _checkpoint(self._entries)
        if since:
            self._entries = {name: data for name, data in self._entries.items() if name[:20] >= since}


def _checkpoint(names: Iterable[str]) -> str:
    """Return the version of the newest complete checkpoint among entries, with 20 digits; "" without one."""
    parts: dict[str, int] = {}
    for name in names:
        entry = _ENTRY.fullmatch(name)
        if entry and name.endswith(".parquet"):
            parts[entry[1]] = parts.get(entry[1], int(entry[2] or 1)) - 1
    return max((version for version, missing in parts.items() if not missing), default="")


def _read(storage: Storage, folder: str, name: str) -> bytes:
    data = storage.get(f"{folder}/{name}")
    if not data:
        raise damaged_catalog(f"{storage.uri}/{folder}/{name} is empty.")
    return data


@per_process
def opened(root: str) -> Storage:
    """Return the storage of a catalog's folder, which is opened once a process."""
    return open_storage(root)


@per_process
def pool() -> ThreadPoolExecutor:
    """Return the threads that wait for object storage. A task in them must not wait for another task in
    them."""
    return ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="catalog")
