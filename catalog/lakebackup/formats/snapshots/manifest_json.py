"""Write a snapshot's manifest as JSON, for other tools: table -> tablet -> file -> location and attributes.

The keys `location`, `timestamp` and `version` come from YugabyteDB's design of differential backups; the
other keys are lakebackup's own. A file's bytes are `[offset, offset + size)` of the object at `location`; if
it has a `codec`, they are the zstd frame `[offset, offset + stored_size)` there. If it has a `key_id`, the
object is encrypted, and they are bytes of its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from json.encoder import encode_basestring as _text  # three times as fast as an encoder's `encode`

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.rows.base import SNAPSHOT
from lakebackup.rules import layout
from lakebackup.storage import Storage
from lakebackup.store.reader import CatalogReader

_END_TABLE = "\n  }\n },"
_COLUMNS = (
    "scope", "region", "name", "destination", "path", "mtime_ms", "links", "bytes", "sha256", "mode",
    "position", "role", "codec", "stored_bytes", "key_id",
)  # fmt: skip


def export_manifest(reader: CatalogReader, storage: Storage, backup_id: str) -> str:
    """Write a backup's manifest and its checksum, replacing older ones, and return the manifest's path.

    Open `reader` after the backup's commit. Raises NotFound and UsageProblem as `manifest_json` does.
    """
    backup = _snapshot_backup(reader, backup_id)
    backup_key = str(backup["source"]), backup_id, int(str(backup["end_ts"]))
    path, digest = layout.json_manifest_path(*backup_key), hashlib.sha256()
    with storage.writer() as writer:
        for piece in manifest_json(reader, backup_id):
            data = piece.encode()
            digest.update(data)
            writer.write(data)
        writer.commit(path, if_absent=False)
    line = f"{digest.hexdigest()}  {path.rpartition('/')[2]}\n"
    storage.put(layout.json_manifest_checksum_path(*backup_key), line.encode())
    return path


def manifest_json(reader: CatalogReader, backup_id: str) -> Iterator[str]:
    """Yield the JSON text of a backup's manifest in pieces. Each file is on a line of its own.

    A file has location (URI of the object), timestamp (of its last change, ms since 1970 UTC), version (its
    number of hard links), size (bytes), sha256 (lower hex), mode (permission bits), offset and role. Size and
    sha256 are null when they are not known. A compressed file has codec and stored_size too, and an encrypted
    one has key_id.

    Raises NotFound if the backup does not exist or was deleted, UsageProblem if it is not of a snapshot.
    """
    backup = _snapshot_backup(reader, backup_id)
    roots = {name: uri.rstrip("/") for name, uri in reader.destinations().uris.items()}
    yield "{"
    table = tablet = None
    for batch in reader.query("snapshot_manifest", source=backup["source"], number=backup["number"]):
        lines: list[str] = []
        # Casting columns to text is ten times as fast as converting value by value.
        columns = (
            batch.column(name).cast("string").to_numpy(zero_copy_only=False).tolist() for name in _COLUMNS
        )
        for (
            scope, region, name, destination, path, mtime, links, size, sha256, mode, offset, role, codec,
            stored_size, key_id,
        ) in zip(*columns, strict=True):  # fmt: skip
            if scope != table:
                lines.append(
                    f"{_END_TABLE if table is not None else ''}\n {_text(scope)}: {{\n  {_text(region)}: {{"
                )
            elif region != tablet:
                lines.append(f"\n  }},\n  {_text(region)}: {{")
            else:
                lines.append(",")
            table, tablet = scope, region
            location = _text(f"{roots[destination]}/{path}")
            digest = "null" if sha256 is None else _text(sha256)
            key = "" if key_id is None else f', "key_id": {_text(key_id)}'
            frame = "" if codec == "none" else f', "codec": {_text(codec)}, "stored_size": {stored_size}'
            lines.append(
                f'\n   {_text(name)}: {{"location": {location}, "timestamp": {mtime}, "version": {links}, '
                f'"size": {"null" if size is None else size}, "sha256": {digest}, "mode": {mode}, '
                f'"offset": {offset}, "role": {_text(role)}{frame}{key}}}'
            )
        yield "".join(lines)
    yield ("" if table is None else _END_TABLE[:-1]) + "\n}\n"


def _snapshot_backup(reader: CatalogReader, backup_id: str) -> Mapping[str, object]:
    backup = reader.first_row("show_backup", backup_id=backup_id)
    if backup is None or backup["state"] == "deleted":
        raise NotFound(
            f"Backup {backup_id} {'was deleted' if backup else 'does not exist'}.",
            hint="`lakebackup list` shows all backups.",
        )
    if backup["source_kind"] != SNAPSHOT:
        raise UsageProblem(
            f"{backup_id} is not a backup of a snapshot, so it has no manifest of this kind.",
            hint="`lakebackup show` shows what it holds.",
        )
    return backup
