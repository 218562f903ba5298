"""Reads `.meta` objects as a tool without the catalog does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakebackup.errors import Damaged
from lakebackup.storage import Storage
from lakebackup.store.manifest import get_sealed


def read_stream_meta(storage: Storage, path: str) -> Iterator[dict[str, Any]]:
    """The log files that a `.meta` object lists, in itself or in its pieces, piece by piece."""
    content = get_sealed(storage, path)
    yield from content.get("files", ())
    for number, piece in enumerate(content.get("pieces", ())):
        piece_content = get_sealed(storage, piece["path"])
        head = {name: content[name] for name in ("source", "backup_id", "resolved_ts")}
        if {**piece_content, **head, "piece": number} != piece_content:
            raise Damaged(f"{piece['path']}: it is not the piece that {path} names.")
        files = piece_content["files"]
        assert len(files) == piece["files"]
        assert sum(info["number_of_entries"] for info in files) == piece["entries"]
        assert sum(info["bytes"] for info in files) == piece["bytes"]
        yield from files
