"""The least that a backup of files must do, in one thread: `python -m tests.benchmarks.plain_snapshots A B`.

Compares size and time of each file with its copy. A file that differs is copied and hashed.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

PIECE = 1 << 20


def main(source: str, destination: str) -> int:
    """Copy new and changed files. Returns 0 and prints nothing."""
    for source_folder, _, names in os.walk(source):
        folder = Path(destination, os.path.relpath(source_folder, source))
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            file, copy = os.path.join(source_folder, name), os.path.join(folder, name)  # noqa: PTH118 - fast
            file_stat = os.stat(file)  # noqa: PTH116
            try:
                copy_stat = os.stat(copy)  # noqa: PTH116
                if (copy_stat.st_size, copy_stat.st_mtime_ns) == (file_stat.st_size, file_stat.st_mtime_ns):
                    continue
            except FileNotFoundError:
                pass
            digest = hashlib.sha256()
            with open(file, "rb") as reader, open(copy, "wb") as writer:  # noqa: PTH123
                while piece := reader.read(PIECE):
                    digest.update(piece)
                    writer.write(piece)
            os.utime(copy, ns=(file_stat.st_atime_ns, file_stat.st_mtime_ns))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
