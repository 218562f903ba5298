"""Archives of the classes that Spark loads, with which its JVM starts in half the time.

A JVM writes an archive when it ends (dynamic class data sharing, JEP 350). Another JVM uses it only if Java
and jars are the same. There are two in the cache, since a JVM holds most of its archive in memory: one of
about 60 MB for JVMs that only run tasks, and one of 190 MB with the classes of SQL. They are made by `make
setup` or after the first use of Spark.
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

# Bytes that must be free where an archive is made.
_ROOM = 2 << 30
_QUIET = ["-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
# Maps the archive at the address for which it was written, if that is free: relocating it touches all of it.
_IN_PLACE = ["-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"]
_AGAIN_S = 86_400


def archive(class_path: str, *, sql: bool = True) -> Path:
    """Return the path of the archive of this Java and these jars (separated by ':'), which may not exist.

    The first part of its name is a digest of the folders of both, the second one of their paths, sizes and
    times. `sql`: the archive with the classes of SQL.
    """
    home, jars = java_home(), class_path.split(os.pathsep)
    folders = hashlib.sha256(
        "\0".join([str(home), *sorted({str(Path(jar).parent) for jar in jars})]).encode()
    )
    versions = hashlib.sha256(class_path.encode())
    for file in (home / "release", *map(Path, jars)):
        with suppress(OSError):  # a jar that is missing is reported when Spark starts
            file_stat = file.stat()
            # Whole seconds, as the JVM compares them: the layers of an image keep no fractions.
            versions.update(f"{file_stat.st_size} {int(file_stat.st_mtime)}\0".encode())
    name = f"{folders.hexdigest()[:12]}-{versions.hexdigest()[:12]}{'' if sql else '-tasks'}.jsa"
    return cache_folder() / "classes" / name


def java_options(class_path: str, archive_to: Path | None = None, *, sql: bool = True) -> list[str]:
    """Return the JVM's options to use the archive, if there is one, or to write one to `archive_to`.

    If the JVM cannot use the archive, it starts as without one, and reports nothing.
    """
    if archive_to:
        return [f"-XX:ArchiveClassesAtExit={archive_to}", *_QUIET]
    path = archive(class_path, sql=sql)
    return [f"-XX:SharedArchiveFile={path}", *_QUIET, *_IN_PLACE] if is_whole(path) else []


def make_later(class_path: str) -> None:
    """Make the archives in a process that outlives this one.

    Does nothing if all exist or were tried within a day, or if there is no room.
    """
    paths = [archive(class_path, sql=sql) for sql in (True, False)]
    with suppress(OSError):  # Spark also starts without them
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
    """Return the file with the number of an archive's bytes: a JVM that reads a truncated archive crashes."""
    return path.with_suffix(".bytes")


def is_whole(path: Path) -> bool:
    """Return whether an archive exists and has as many bytes as were written."""
    with suppress(OSError, ValueError):
        return size(path) == int(bytes_file(path).read_text("ascii")) > 0
    return False


def size(path: Path) -> int:
    """Return the size of an archive in bytes; 0: there is none, or it could not be made."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


def was_tried(path: Path) -> bool:
    """Return whether a process tried to make an archive within the last day."""
    with suppress(OSError):
        return time.time() - path.stat().st_mtime < _AGAIN_S
    return False


def has_room(path: Path) -> bool:
    """Return whether an archive can be made at a path. Creates its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.access(path.parent, os.W_OK) and shutil.disk_usage(path.parent).free > _ROOM
