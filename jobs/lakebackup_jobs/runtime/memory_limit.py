"""Finds how much memory this process and its children may use: the container's limit, else the machine's."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")
_MIB = 1 << 20


def memory_limit() -> int:
    """Return the limit in bytes.

    It is the least of the machine's memory and the limits of this process's control groups (versions 1 and
    2).
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *filter(None, map(_bytes, _limit_files()))])


def heap_mib() -> int:
    """Return the default heap of Spark's JVM in MiB.

    It is a quarter of the limit, but at least 1 GiB or half of the limit, whichever is less, and between 256
    MiB and 4 GiB. Python workers, DuckDB and the Kafka client use the rest.
    """
    limit = memory_limit() // _MIB
    return max(256, min(4096, max(limit // 4, min(limit // 2, 1024))))


def _limit_files() -> list[Path]:
    files = [_GROUPS / "memory.max", _GROUPS / "memory/memory.limit_in_bytes"]
    with suppress(OSError):
        for line in _OWN_GROUP.read_text("ascii", "replace").splitlines():
            _, controllers, path = line.split(":", 2)
            base = _GROUPS / "memory" if controllers == "memory" else _GROUPS
            if controllers not in ("", "memory"):
                continue
            name = "memory.limit_in_bytes" if controllers else "memory.max"
            group = base / path.lstrip("/")
            files += [folder / name for folder in (group, *group.parents) if folder.is_relative_to(base)]
    return files


def _bytes(file: Path) -> int | None:
    """Return the limit in a file; None if there is none."""
    try:
        return int(file.read_text("ascii"))
    except (OSError, ValueError):  # "max", or no such file
        return None
