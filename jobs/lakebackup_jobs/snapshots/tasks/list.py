"""Spark tasks that list the folders of a snapshot before its backup: each file with size, times and inode."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from itertools import islice

import pyarrow as pa

from lakebackup.errors import Refused
from lakebackup.plan.snapshots.backup import Unit
from lakebackup.sql_engine.worker import PerNumber
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.snapshots.find import no_link, reading
from lakebackup_jobs.snapshots.source import FOLDER, signed

_BATCH = 10_000
#: Columns of the relation `snapshot_listed`.
COLUMNS = (
    "scope STRING, region STRING, name STRING, role STRING, folder STRING, bytes BIGINT, mtime_ns BIGINT, "
    "mtime_ms BIGINT, mode INT, links INT, device BIGINT, inode BIGINT, ctime_ns BIGINT, always BOOLEAN, "
    "by_ctime BOOLEAN"
)
# A file that is written again within one tick of the file system's clock keeps its time. Ticks last up to 2 s
# (FAT), and a server's clock may be behind, so a ctime younger than this does not prove a file unchanged.
_RACY_NS = 2_000_000_000
# Times that the catalog can hold, in ms.
_TIMES_MS = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class ListRows(PerNumber):
    """A function for `mapInArrow` over numbers, which lists the folders `units[number]` with `list_units`."""

    units: tuple[tuple[Unit, ...], ...]
    always: tuple[str, ...]
    linked: bool = False

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        return list_units(self.units[number], self.always, linked=self.linked)


def list_units(
    units: Sequence[Unit], always: Sequence[str], *, linked: bool = False
) -> Iterator[pa.RecordBatch]:
    """List some folders, with all files and folders in them: yields batches with the columns of COLUMNS.

    Folders have the role FOLDER and no bytes. `always`: patterns of the names of files to copy in any case.

    `linked`: the folders are checkpoints of hard links to files that do not change. Each new checkpoint
    changes the ctime of those files, so the ctime says nothing about their contents. Raises Refused for
    anything that is neither a file nor a folder, and for names that are not UTF-8.
    """
    pattern = re.compile("|".join(map(translate, always)) or r"(?!)")
    settled_ns = time.time_ns() - _RACY_NS
    files = ((unit, *entry) for unit in units for entry in _entries(unit))
    while batch := list(islice(files, _BATCH)):
        yield _batch(batch, pattern, settled_ns, linked=linked)


def _entries(unit: Unit) -> Iterator[tuple[str, os.stat_result]]:
    """Yield each file and folder of a unit: its name below the region's folder, and its stat."""
    if unit.file:
        with reading(f"{unit.folder}/{unit.file}"):
            yield unit.file, os.lstat(f"{unit.folder}/{unit.file}")
        return
    waiting = [unit.prefix]
    while waiting:
        prefix = waiting.pop()
        folder = f"{unit.folder}/{prefix}"
        with reading(folder), os.scandir(folder) as entries:
            yield prefix[:-1], os.stat(folder)  # noqa: PTH116
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    yield prefix + entry.name, entry.stat(follow_symlinks=False)
                elif entry.is_symlink():
                    raise no_link(entry.path)
                elif not entry.is_dir(follow_symlinks=False):
                    raise _not_a_file(entry.path, entry.stat(follow_symlinks=False).st_mode)
                elif unit.deep:
                    waiting.append(f"{prefix}{entry.name}/")


def _batch(
    files: list[tuple[Unit, str, os.stat_result]], always: re.Pattern[str], settled_ns: int, *, linked: bool
) -> pa.RecordBatch:
    """Return the rows of files. A ctime at or after `settled_ns` is too new to be relied on."""
    units, names, stats = zip(*files, strict=True)
    times = [status.st_mtime_ns // 1_000_000 for status in stats]
    for unit, name, time_ms in zip(units, names, times, strict=True):
        if time_ms not in _TIMES_MS:
            raise Refused(
                f"{unit.folder}/{name} was last changed {time_ms} ms after 1970, which no catalog can hold.",
                hint="Give the file a time with `touch`, or leave it out of the snapshot.",
            )
    by_ctime = [bool(unit.file) or not linked for unit in units]
    ctimes = [status.st_ctime_ns for status in stats]
    columns = {
        **{key: [getattr(unit, key) for unit in units] for key in ("scope", "region", "folder")},
        "name": names,
        "role": [
            FOLDER if stat.S_ISDIR(status.st_mode) else unit.role
            for unit, status in zip(units, stats, strict=True)
        ],
        "bytes": [0 if stat.S_ISDIR(status.st_mode) else status.st_size for status in stats],
        "mtime_ns": [signed(status.st_mtime_ns) for status in stats],
        "mtime_ms": times,
        "mode": [stat.S_IMODE(entry.st_mode) for entry in stats],
        "links": [entry.st_nlink for entry in stats],
        "device": [signed(entry.st_dev) for entry in stats],
        "inode": [signed(entry.st_ino) for entry in stats],
        "ctime_ns": [
            signed(ctime) if is_usable and ctime < settled_ns else None
            for ctime, is_usable in zip(ctimes, by_ctime, strict=True)
        ],
        "always": [always.fullmatch(name.rpartition("/")[2]) is not None for name in names],
        "by_ctime": by_ctime,
    }
    try:
        return pa.RecordBatch.from_pydict(columns, arrow_schema(COLUMNS))
    except UnicodeEncodeError:
        paths = (f"{unit.folder}/{name}" for unit, name, _ in files)
        bad = next(path for path in paths if path.encode(errors="ignore") != os.fsencode(path))
        raise Refused(
            f"The name of {os.fsencode(bad)!r} is not UTF-8.",
            hint="Rename the file, or leave it out of the snapshot.",
        ) from None


def _not_a_file(path: str, mode: int) -> Refused:
    kinds = {
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFBLK: "a device",
        stat.S_IFCHR: "a device",
    }
    return Refused(
        f"{path} is {kinds.get(stat.S_IFMT(mode), 'no file')}, which a backup of a snapshot cannot hold.",
        hint="Take it out of the snapshot, or name the folders that hold files alone.",
    )
