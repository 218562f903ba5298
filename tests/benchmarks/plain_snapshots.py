"""What a backup of files cannot do without, in one thread: `python -m tests.benchmarks.plain_snapshots A B`.

Size and time of each file are compared with the copy; a file that differs is copied, hashed on the way.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

PIECE = 1 << 20


def main(source: str, place: str) -> int:
    """Copies what is new; prints nothing."""
    for above, _, names in os.walk(source):
        folder = Path(place, os.path.relpath(above, source))
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            file, copy = os.path.join(above, name), os.path.join(folder, name)  # noqa: PTH118 - fast
            found = os.stat(file)  # noqa: PTH116
            try:
                held = os.stat(copy)  # noqa: PTH116
                if (held.st_size, held.st_mtime_ns) == (found.st_size, found.st_mtime_ns):
                    continue
            except FileNotFoundError:
                pass
            hashed = hashlib.sha256()
            with open(file, "rb") as reading, open(copy, "wb") as writing:  # noqa: PTH123
                while piece := reading.read(PIECE):
                    hashed.update(piece)
                    writing.write(piece)
            os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
