"""Write `stream-metas/<ts>-<backup id>.meta`: the log files of one flush, for tools without the catalog.

It is JSON with a checksum. It has all fields of DataFileInfo in TiDB's log backup, and those needed to find
and read a file. A long list is split into pieces and an index. The index is written last, so that the pieces
it names exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from lakebackup.formats.logs.events import META_TABLE, PUT
from lakebackup.formats.logs.logfile import FORMAT
from lakebackup.rows.backups import DataFile
from lakebackup.rules import layout
from lakebackup.rules.layout import FORMAT as SEALED
from lakebackup.storage import Storage
from lakebackup.store.manifest import put_sealed

#: A list with more files, or more characters of JSON, is split into pieces.
MOST_FILES, MOST_BYTES = 20_000, 8 << 20


def file_info(row: DataFile) -> dict[str, Any]:
    """The entry of a log file in a `.meta` object, from the file's row in the catalog.

    `path` is relative to the destination's root. Timestamps are in the feed's domain. Keys are in lower hex;
    a shortened `end_key` is an upper bound, and null means no bound. `sha_256` and `bytes` are those of the
    stored object.
    """
    is_meta = row.role == "schema"
    return {
        "path": row.path,
        "sha_256": row.sha256,
        "bytes": row.bytes,
        "number_of_entries": row.entries,
        "min_ts": row.min_ts,
        "max_ts": row.max_ts,
        "min_begin_ts": row.min_begin_ts,
        "resolved_ts": row.resolved_ts,
        "region_id": int(row.region) if row.region != "-" else 0,
        "start_key": row.start_key,
        "end_key": row.end_key,
        "cf": row.cf,
        "type": "Put" if row.op == PUT else "Delete",
        "is_meta": is_meta,
        "table_id": META_TABLE if is_meta else int(row.scope),
        "codec": row.codec,
        "key_id": row.key_id,
    }


def write_stream_meta(
    storage: Storage, source: str, backup_id: str, ts: int, rows: Iterable[DataFile]
) -> str:
    """Write the `.meta` of a flush whose checkpoint is `ts`, and return its path.

    `rows` are the flush's files, of which only log files are listed. Memory holds one piece at a time. A
    second call writes the same content. Raises EnvironmentProblem.
    """
    head = {"format": SEALED, "source": source, "backup_id": backup_id, "resolved_ts": ts}
    pieces: list[dict[str, Any]] = []
    infos: list[dict[str, Any]] = []
    size = 0

    def put_piece() -> None:
        path = layout.stream_meta_path(source, backup_id, ts, len(pieces))
        put_sealed(storage, path, {**head, "piece": len(pieces), "files": infos})
        entries = sum(info["number_of_entries"] for info in infos)
        stored_bytes = sum(info["bytes"] for info in infos)
        pieces.append({"path": path, "files": len(infos), "entries": entries, "bytes": stored_bytes})
        infos.clear()

    for row in rows:
        if row.format != FORMAT:
            continue
        info = file_info(row)
        length = len(json.dumps(info))
        if infos and (len(infos) >= MOST_FILES or size + length > MOST_BYTES):
            put_piece()
            size = 0
        infos.append(info)
        size += length
    path = layout.stream_meta_path(source, backup_id, ts)
    if not pieces:
        put_sealed(storage, path, {**head, "files": infos})
        return path
    put_piece()
    put_sealed(storage, path, {**head, "pieces": pieces})
    return path
