"""What a Spark task of a snapshot's backup does first: list folders, each file with size, times, inode."""

from __future__ import annotations

import os
import re
import stat
import time
from dataclasses import dataclass
from fnmatch import translate
from itertools import islice
from typing import TYPE_CHECKING

from lakebackup.errors import Refused
from lakebackup.sql_engine.worker import PerNumber
from lakebackup_jobs.lifecycle.tasks.errors import arrow_schema
from lakebackup_jobs.snapshots.find import no_link, reading
from lakebackup_jobs.snapshots.source import FOLDER, LISTED, signed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lakebackup.plan.snapshots.backup import Unit

_BATCH = 10_000
#: Columns of the relation `snapshot_listed`.
COLUMNS = f"{LISTED}, always BOOLEAN, by_ctime BOOLEAN"
# A file may be written again within the tick of the clock that stamped it, and keeps its time. File systems
# have ticks of up to 2 s (FAT), and a server's clock may be behind: a younger ctime is not relied on.
_RACY_NS = 2_000_000_000
# Times that fit into the catalog as ms.
_TIMES_MS = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class ListRows(PerNumber):
    """For `mapInArrow` over numbers: what is in the folders `units[number]`, as `list_units` has it."""

    units: tuple[tuple[Unit, ...], ...]
    always: tuple[str, ...]
    linked: bool = False

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        return list_units(self.units[number], self.always, linked=self.linked)


def list_units(
    units: Sequence[Unit], always: Sequence[str], *, linked: bool = False
) -> Iterator[pa.RecordBatch]:
    """The files and folders in some folders, and these themselves, in batches of COLUMNS.

    Folders have the role FOLDER and no bytes. `always`: patterns of names to copy whatever.

    `linked`: the folders are checkpoints of hard links to files that do not change. Each checkpoint changes
    the ctime of all of them, so it shows nothing there. Raises Refused for what is neither a file nor a
    folder, and for names that are no text.
    """
    pattern = re.compile("|".join(map(translate, always)) or r"(?!)")
    settled_ns = time.time_ns() - _RACY_NS
    files = ((unit, *entry) for unit in units for entry in _entries(unit))
    while some := list(islice(files, _BATCH)):
        yield _batch(some, pattern, settled_ns, linked=linked)


def _entries(unit: Unit) -> Iterator[tuple[str, os.stat_result]]:
    """Each file and folder of a unit: its name below the region's folder, and its stat."""
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
                    raise _no_file(entry.path, entry.stat(follow_symlinks=False).st_mode)
                elif unit.deep:
                    waiting.append(f"{prefix}{entry.name}/")


def _batch(
    files: list[tuple[Unit, str, os.stat_result]], always: re.Pattern[str], settled_ns: int, *, linked: bool
) -> pa.RecordBatch:
    """Rows of files. A ctime from `settled_ns` on is too new to be relied on."""
    import pyarrow as pa

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
        "mode": [stat.S_IMODE(found.st_mode) for found in stats],
        "links": [found.st_nlink for found in stats],
        "device": [signed(found.st_dev) for found in stats],
        "inode": [signed(found.st_ino) for found in stats],
        "ctime_ns": [
            signed(ctime) if counts and ctime < settled_ns else None
            for ctime, counts in zip(ctimes, by_ctime, strict=True)
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


def _no_file(path: str, mode: int) -> Refused:
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
