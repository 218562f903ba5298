"""`stream-metas/<ts>-<backup id>.meta`: what one flush of a change feed wrote, for tools without the catalog.

Sealed JSON with everything that TiDB's backup puts into its DataFileInfo, and what finding and reading a file
needs besides. One that would be long is an index of pieces; the index comes last, so that all of it is there.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakebackup.formats.logs.events import META_TABLE, PUT
from lakebackup.formats.logs.logfile import FORMAT
from lakebackup.rules import layout
from lakebackup.rules.layout import FORMAT as SEALED
from lakebackup.store.manifest import put_sealed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebackup.rows.backups import DataFile
    from lakebackup.storage import Storage

#: A `.meta` object with more than either is written as pieces.
MOST_FILES, MOST_BYTES = 20_000, 8 << 20


def file_info(row: DataFile) -> dict[str, Any]:
    """What a `.meta` object holds of a log file, from its row in the catalog.

    `path` below the destination's root; instants in the feed's domain; keys in lower hex, `end_key` an upper
    bound where it was cut, null where there is none. `sha_256` and `bytes` are of the object as it is stored.
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
    """Put the `.meta` of a flush whose checkpoint is `ts`; its path.

    `rows`: of all its parts, one after another; those that are no log files are left out, and at most a
    piece's are held. Writing it again replaces it by the same. Raises EnvironmentProblem.
    """
    head = {"format": SEALED, "source": source, "backup_id": backup_id, "resolved_ts": ts}
    pieces: list[dict[str, Any]] = []
    held: list[dict[str, Any]] = []
    size = 0

    def put_piece() -> None:
        path = layout.stream_meta_path(source, backup_id, ts, len(pieces))
        put_sealed(storage, path, {**head, "piece": len(pieces), "files": held})
        entries = sum(info["number_of_entries"] for info in held)
        stored = sum(info["bytes"] for info in held)
        pieces.append({"path": path, "files": len(held), "entries": entries, "bytes": stored})
        held.clear()

    for row in rows:
        if row.format != FORMAT:
            continue
        info = file_info(row)
        length = len(json.dumps(info))
        if held and (len(held) >= MOST_FILES or size + length > MOST_BYTES):
            put_piece()
            size = 0
        held.append(info)
        size += length
    path = layout.stream_meta_path(source, backup_id, ts)
    if not pieces:
        put_sealed(storage, path, {**head, "files": held})
        return path
    put_piece()
    put_sealed(storage, path, {**head, "pieces": pieces})
    return path
