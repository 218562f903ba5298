"""The contents of files of snapshots, read from a repository without lakebackup's own reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backports import zstd

from lakebackup.storage import Storage


def stored_contents(storage: Storage, row: Mapping[str, Any]) -> bytes:
    """The contents of a file, by its row of the view snapshot_files."""
    data = storage.get(row["path"], start=row["position"], length=row["stored_bytes"])
    return zstd.decompress(data) if row["codec"] == "zstd" else data
