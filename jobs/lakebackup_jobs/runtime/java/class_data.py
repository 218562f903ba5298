"""An archive of the classes that Spark loads, from which its JVM starts in half the time.

The JVM writes it when it ends (dynamic class data sharing, JEP 350), and uses it only if Java and jars are
the same. There are two in the cache, made by `make setup` or after the first use of Spark: some 60 MB for
what only runs tasks, and 190 MB with the classes of SQL, most of which every JVM would hold in memory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from lakebackup_jobs.runtime.java.home import java_home
from lakebackup_jobs.runtime.java.jars import cache_folder

# Bytes that are free where an archive is made.
_ROOM = 2 << 30
_QUIET = ["-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
# Where it was written for, if that is free: moving it elsewhere touches all of it.
_IN_PLACE = ["-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"]
_AGAIN_S = 86_400


def archive(class_path: str, *, sql: bool = True) -> Path:
    """Where the archive of this Java and these jars (separated by ':') is, or would be.

    The first part of its name says where both are, the second what they are. `sql`: that with SQL's classes.
    """
    home, jars = java_home(), class_path.split(os.pathsep)
    where = hashlib.sha256("\0".join([str(home), *sorted({str(Path(jar).parent) for jar in jars})]).encode())
    what = hashlib.sha256(class_path.encode())
    for file in (home / "release", *map(Path, jars)):
        with suppress(OSError):  # a jar that is missing is reported when Spark starts
            found = file.stat()
            # To the second, as the JVM compares it: the layers of an image keep no more.
            what.update(f"{found.st_size} {int(found.st_mtime)}\0".encode())
    name = f"{where.hexdigest()[:12]}-{what.hexdigest()[:12]}{'' if sql else '-tasks'}.jsa"
    return cache_folder() / "classes" / name


def java_options(class_path: str, archive_to: Path | None = None, *, sql: bool = True) -> list[str]:
    """The JVM's options to start from the archive, if there is one, or to write it.

    The JVM says nothing if it cannot use the archive, and starts as it would without one.
    """
    if archive_to:
        return [f"-XX:ArchiveClassesAtExit={archive_to}", *_QUIET]
    found = archive(class_path, sql=sql)
    return [f"-XX:SharedArchiveFile={found}", *_QUIET, *_IN_PLACE] if is_whole(found) else []


def make_later(class_path: str) -> None:
    """Make the archives in a process that outlives this one, unless they are there, were tried, or have no
    room."""
    paths = [archive(class_path, sql=sql) for sql in (True, False)]
    with suppress(OSError):  # Spark starts without them too
        if all(is_whole(path) or was_tried(path) for path in paths) or not has_room(paths[0]):
            return
        subprocess.Popen(
            [sys.executable, "-P", "-m", "lakebackup_jobs.runtime.class_data_maker"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def bytes_file(path: Path) -> Path:
    """The file that says how many bytes an archive has: a JVM that reads a truncated one crashes."""
    return path.with_suffix(".bytes")


def is_whole(path: Path) -> bool:
    """Whether an archive is there, with as many bytes as were written."""
    with suppress(OSError, ValueError):
        return size(path) == int(bytes_file(path).read_text("ascii")) > 0
    return False


def size(path: Path) -> int:
    """Bytes of an archive; 0: there is none, or none could be made."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


def was_tried(path: Path) -> bool:
    """Whether to make an archive was tried within a day."""
    with suppress(OSError):
        return time.time() - path.stat().st_mtime < _AGAIN_S
    return False


def has_room(path: Path) -> bool:
    """Whether an archive can be made there; its folder is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.access(path.parent, os.W_OK) and shutil.disk_usage(path.parent).free > _ROOM
