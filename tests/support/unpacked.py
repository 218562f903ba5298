"""Tar archives that the tests ship or fetch."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import IO


def unpack(archive: IO[bytes], folder: Path) -> None:
    """Unpack an archive. Its filter is set before, since Python below 3.11.4 has no argument for it."""
    with tarfile.open(fileobj=archive, mode="r|*") as files:
        files.extraction_filter = getattr(tarfile, "tar_filter", None)
        files.extractall(folder)
