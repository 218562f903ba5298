"""Where delta-rs finds a table's log: in the table's folder, or in a copy of it.

delta-rs writes into copies, and never speaks to object storage. `Storage` does, with its own retries,
credentials and checksums, and a commit is its conditional put, synced, in a folder too: one way to reach S3,
one way to lose or win a race. A look at a table there is one listing of what came after its last checkpoint;
what was read stays in the process, for commits do not change.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from lakebackup.errors import Busy, EnvironmentProblem, NotFound
from lakebackup.rules.stored_json import NO_JSON
from lakebackup.sql_engine.delta.sums import is_whole, sums_of
from lakebackup.sql_engine.failures import damaged_catalog
from lakebackup.storage import A_FEW, AlreadyExists, open_storage
from lakebackup.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from deltalake import DeltaTable

    from lakebackup.storage import ObjectStat, Storage

FOLDER = "_delta_log"
_LAST = "_last_checkpoint"
_HINT = f"{FOLDER}/{_LAST}"
# Of an entry of a log. A checkpoint has some 200 bytes for each file of its table.
_MOST_BYTES = 1 << 28
_ENTRY = re.compile(r"(\d{20})\.(?:json|checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet)")
_AT_ONCE = 16
# Commits from checkpoint to checkpoint. In object storage each entry behind one is a request of every reader.
_IN_FOLDER, _IN_OBJECT_STORAGE = 20, 10
_TRIES = 5
P = ParamSpec("P")
T = TypeVar("T")
_warn = logging.getLogger(__name__).warning


def folder_of(uri: str) -> Path | None:
    """The folder that a URI names; None for object storage."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return Path(uri)
    return Path(rest) if scheme == "file" else None


def per_process(made: Callable[P, T]) -> Callable[P, T]:
    """As functools.cache, but empty after a fork: threads and locks do not survive one."""
    kept = cache(made)
    os.register_at_fork(after_in_child=kept.cache_clear)
    return cast("Callable[P, T]", kept)


def until_fork(made: Callable[P, T]) -> Callable[P, T]:
    """As functools.cache, for a database: drops it before a fork and at the end of the process.

    A fork has none of the database's threads and cannot close it. DuckDB reports a leak when a process ends
    with an open one.
    """
    kept = cache(made)
    os.register_at_fork(before=kept.cache_clear)
    atexit.register(kept.cache_clear)
    return cast("Callable[P, T]", kept)


@contextmanager
def local_log(uri: str, *, history: bool = False, known: bool = False) -> Iterator[str]:
    """A folder in which delta-rs opens the table at `uri`, as it is now, while the block runs.

    `history`: with the whole log. `known`: what this process knows will do. Raises NotFound when there
    is no such table in object storage, Damaged when an entry of its log there is empty.
    """
    folder = folder_of(uri)
    if folder:
        yield str(folder)
        return
    with _copied(remote_log(uri).entries(history=history, known=known)) as copy:
        yield copy


@contextmanager
def _copied(entries: Mapping[str, bytes]) -> Iterator[str]:
    """A folder with these entries as a table's log, while the block runs."""
    with tempfile.TemporaryDirectory(prefix="lakebackup-log-") as copy:
        log = Path(copy, FOLDER)
        log.mkdir()
        for name, data in entries.items():
            (log / name).write_bytes(data)
        yield copy


def is_entry(name: str) -> bool:
    """Whether a file of this name in a table's log is a commit or a checkpoint."""
    return _ENTRY.fullmatch(name) is not None


def needed(names: Iterable[str]) -> list[str]:
    """The entries among the names in a log that a table is read from, the oldest first."""
    entries = sorted(filter(is_entry, names))
    since = _checkpoint(entries)
    return [name for name in entries if name[:20] >= since]


def require_regular(folder: Path) -> None:
    """Raise Damaged where the log in a folder has what nobody should read: a pipe, which would never end, a
    link, which leads elsewhere, or a file that memory has no room for."""
    log = folder / FOLDER
    if link := next((path for path in (folder, log) if path.is_symlink()), None):
        raise damaged_catalog(f"{link} is a link.")
    try:
        with os.scandir(log) as items:
            for item in items:
                status = item.stat(follow_symlinks=False)
                is_read = is_entry(item.name) or item.name == _LAST
                if not stat.S_ISREG(status.st_mode) and (is_read or not stat.S_ISDIR(status.st_mode)):
                    raise damaged_catalog(f"{log / item.name} is no regular file.")
                if is_read and status.st_size > _MOST_BYTES:
                    raise damaged_catalog(f"{log / item.name} has {status.st_size} bytes.")
    except FileNotFoundError as error:
        raise NotFound(f"There is no table at {folder}.") from error
    except NotADirectoryError as error:
        raise damaged_catalog(f"{log} is no folder.") from error


def folder_entries(folder: Path, *, history: bool = False) -> dict[str, bytes]:
    """Name -> bytes of what the table in a folder is read from (`history`: of the whole log).

    Raises NotFound, and Damaged when one is not as it was written, where that is known. A commit that a power
    cut left empty is valid to Delta, and its rows would be missing without a word.
    """
    require_regular(folder)
    log = folder / FOLDER
    names = os.listdir(log)  # noqa: PTH208 - fast
    entries = {}
    for name in sorted(filter(is_entry, names)) if history else needed(names):
        data = (log / name).read_bytes()
        if not data or not is_whole(log / name, data):
            raise damaged_catalog(f"{log / name} is {'not as it was written' if data else 'empty'}.")
        entries[name] = data
    return entries


@contextmanager
def copied_log(uri: str) -> Iterator[str]:
    """A folder with a copy of what the table at a URI is read from now, in which delta-rs writes the next
    entry. Raises NotFound, Damaged."""
    folder = folder_of(uri)
    with _copied(folder_entries(folder) if folder else remote_log(uri).entries()) as copy:
        yield copy


def put_entry(storage: Storage, table: str, name: str, data: bytes) -> None:
    """Commit a version of a table of the catalog: the entry that delta-rs wrote in a copy of the log.

    Raises AlreadyExists when another writer was faster, EnvironmentProblem.
    """
    put_summed(storage, f"{table}/{FOLDER}/{name}", data)  # this alone is the commit
    if folder_of(storage.uri) is None:
        remote_log(f"{storage.uri}/{table}").remember(name, data)


def put_summed(storage: Storage, path: str, data: bytes) -> None:
    """Put a new file of a table, and in a folder its checksums behind it. Raises AlreadyExists."""
    if isinstance(storage, LocalStorage):
        storage.put_together({path: data, _sums_path(path): sums_of(data)})
    else:
        storage.put(path, data, if_absent=True)


def _sums_path(path: str) -> str:
    above, slash, name = path.rpartition("/")
    return f"{above}{slash}.{name}.crc"


def put_checkpoint(storage: Storage, table: str, opened: DeltaTable, copy: str) -> None:
    """Put a checkpoint of a table, opened in a copy of its log, when it is time for one.

    It only makes reading faster: that one cannot be put is no error.
    """
    uri, version = f"{storage.uri}/{table}", opened.version()
    folder = folder_of(uri)
    if not version or version % (_IN_FOLDER if folder else _IN_OBJECT_STORAGE):
        return
    from deltalake.exceptions import DeltaError

    try:
        opened.create_checkpoint()
        for made in sorted(Path(copy, FOLDER).glob("*.checkpoint*.parquet")):
            with suppress(AlreadyExists):
                put_summed(storage, f"{table}/{FOLDER}/{made.name}", made.read_bytes())
        hint = Path(copy, _HINT).read_bytes()
        storage.put(f"{table}/{_HINT}", hint)
        if folder:
            storage.put(_sums_path(f"{table}/{_HINT}"), sums_of(hint))
            _clean_up(folder)
    except (EnvironmentProblem, DeltaError, OSError) as error:
        _warn("%s has no new checkpoint: %s", uri, error)


def _clean_up(folder: Path) -> None:
    """Delete the entries of a log in a folder that Delta no longer keeps, with their checksums."""
    from deltalake import DeltaTable

    DeltaTable(str(folder)).cleanup_metadata()
    for sums in (folder / FOLDER).glob(".*.crc"):
        if not sums.with_name(sums.name[1:].removesuffix(".crc")).exists():
            sums.unlink(missing_ok=True)


@per_process
def remote_log(uri: str) -> RemoteLog:
    """What this process knows of the log of a table in object storage."""
    root, _, table = uri.rpartition("/")
    return RemoteLog(opened(root), table)


def prefetch(uris: Iterable[str]) -> None:
    """Read the logs of tables in object storage side by side; opening each as `known` is quick afterwards."""
    logs = [remote_log(uri) for uri in uris]
    if logs:
        with ThreadPoolExecutor(min(len(logs), _AT_ONCE)) as side_by_side:
            for looked in [side_by_side.submit(log.refresh) for log in logs]:
                with suppress(NotFound):  # opening it reports that
                    looked.result()


class RemoteLog:
    """The entries of one table's log since its last checkpoint."""

    def __init__(self, storage: Storage, table: str) -> None:
        self._storage, self._table = storage, table
        self._entries: dict[str, bytes] = {}
        self._older: dict[str, bytes] = {}  # what only a look back needs
        self._stat: ObjectStat | None = None  # of the newest entry, when it was last listed
        self._lock = Lock()

    def refresh(self) -> int:
        """The newest version, after one listing. Raises NotFound, Damaged."""
        with self._lock:
            self._look()
            return self._newest()

    @property
    def newest(self) -> int:
        """The newest version that this process saw, -1 if none."""
        with self._lock:
            return self._newest()

    def entries(self, *, history: bool = False, known: bool = False) -> dict[str, bytes]:
        """Name -> bytes of what the table is read from (`history`: of the whole log)."""
        with self._lock:
            if not (known and self._entries):
                self._look()
            if history:
                names = [name for name in self._listed("") if name not in self._entries]
                fetched = self._fetched(name for name in names if name not in self._older)
                self._older = {name: self._older.get(name) or fetched[name] for name in names}
                return self._older | self._entries
            return dict(self._entries)

    def remember(self, name: str, data: bytes) -> None:
        """This process has put an entry."""
        with self._lock:
            self._entries[name] = data

    def _look(self) -> None:
        for _ in range(_TRIES):
            try:
                newest = self._newest()
                start = f"{newest:020d}" if self._entries else self._hinted()
                found = self._listed(start)
                if self._entries and not self._is_same(found.get(f"{newest:020d}.json")):
                    self._forget()  # another table is in its place
                    continue
                if start and not self._entries and not _checkpoint(found):
                    found = self._listed("")
                self._entries |= self._fetched(name for name in found if name not in self._entries)
                self._stat = found.get(f"{self._newest():020d}.json")
            except NotFound:  # cleaned up meanwhile
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

    def _hinted(self) -> str:
        """The version of the last checkpoint, as entries write it; empty where it is unknown."""
        try:
            hint = json.loads(self._storage.get(f"{self._table}/{_HINT}", length=A_FEW))
            return f"{int(hint['version']):020d}"
        except (NotFound, KeyError, TypeError, OverflowError, *NO_JSON):  # it is only a hint
            return ""

    def _is_same(self, newest: ObjectStat | None) -> bool:
        """Whether the newest entry that is known is still what it was."""
        if newest is None:
            return False
        held = self._entries.get(newest.path.rpartition("/")[2], b"")
        if newest.bytes != len(held):
            return False
        return self._stat is None or self._stat.path != newest.path or self._stat == newest

    def _listed(self, after: str) -> dict[str, ObjectStat]:
        folder = f"{self._table}/{FOLDER}/"
        found = self._storage.list(folder, after=folder + after if after else "")
        named = {one.path.removeprefix(folder): one for one in found}
        return {name: one for name, one in named.items() if _ENTRY.fullmatch(name)}

    def _fetched(self, names: Iterable[str]) -> dict[str, bytes]:
        wanted = list(names)
        read: Callable[[str], bytes] = partial(_read, self._storage, f"{self._table}/{FOLDER}")
        return dict(zip(wanted, pool().map(read, wanted), strict=True))

    def _newest(self) -> int:
        return max((int(name[:20]) for name in self._entries), default=-1)

    def _forget(self) -> None:
        self._entries, self._older, self._stat = {}, {}, None

    def _forget_old(self) -> None:
        since = _checkpoint(self._entries)
        if since:
            self._entries = {name: data for name, data in self._entries.items() if name[:20] >= since}


def _checkpoint(names: Iterable[str]) -> str:
    """The version of the newest whole checkpoint among entries, as they write it; empty without one."""
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
    """The storage of a catalog, opened once a process."""
    return open_storage(root)


@per_process
def pool() -> ThreadPoolExecutor:
    """Threads that wait for object storage. What runs in them must not wait for another of them."""
    return ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="catalog")
