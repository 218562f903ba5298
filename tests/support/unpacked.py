"""Unpacks tar archives that the tests ship or fetch."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import IO


def unpack(archive: IO[bytes], folder: Path) -> None:
    """Unpack an archive. Sets the filter as an attribute: `extractall` has no argument for it before
    3.11.4."""
    with tarfile.open(fileobj=archive, mode="r|*") as files:
        files.extraction_filter = getattr(tarfile, "tar_filter", None)
        files.extractall(folder)
