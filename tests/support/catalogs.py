"""Catalogs with rows made by hand, for tests of the catalog, of its SQL and of its readers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.rows import EPOCH, backup_id, backup_row, file_row, filled

from lakebackup.rows.backups import Backup, DataFile, Gap, Position, Scope
from lakebackup.rows.base import Row
from lakebackup.rows.digest import Digest
from lakebackup.rows.tables import ARROW_SCHEMAS, as_row, json_line
from lakebackup.rules import layout
from lakebackup.storage import Storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.delta_append import LISTED
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter


def made_backup(
    number: int, rows: Sequence[DataFile] = (), *, full_number: int | None = None, **overrides: Any
) -> Backup:
    """Backup `number` of these files: a full, or a differential in the chain of the full `full_number`.

    `overrides` replace columns.
    """
    totals = {
        "files": len(rows),
        "bytes": sum(row.bytes for row in rows),
        "entries": sum(row.entries for row in rows),
    }
    columns: dict[str, Any] = {
        "destination": "d",
        "created_by": "test",
        "isolation": "read_committed",
        "codec": "zstandard",
        **totals,
    }
    if full_number not in (None, number):
        columns |= {
            "kind": "differential",
            "level": 1,
            "parent": backup_id(number - 1),
            "base": backup_id(full_number or 0),
        }
        columns |= {"chain_position": number - (full_number or 0), "parent_place": number - 1}
    return backup_row(number, **columns | {"finished_at": 1_000_000 * number} | overrides)


def made_scope(**overrides: Any) -> Scope:
    """The row of a topic, table or feed of one region in a backup."""
    return Scope(**{"epoch": EPOCH, "regions": 1, "settings": "{}", "replication": 1, **overrides})


def made_position(start: int, end: int, **overrides: Any) -> Position:
    """A backup's position in a region: [start, end) of a log that starts at 0 and ends at `end`."""
    ends = {"start_position": start, "end_position": end, "low_position": 0, "high_position": end}
    return Position(**{"epoch": EPOCH, "region": "0", "ts": 0, **ends, **overrides})


def put_object(storage: Storage, path: str, content: bytes, **overrides: Any) -> DataFile:
    """Write an object without Kafka records; returns its row."""
    storage.put(path, content)
    location = {"path": path, "scope": "", "epoch": "-", "region": "", "codec": "null", "end_position": 1}
    size = {"bytes": len(content), "raw_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return filled(DataFile, **location | size | overrides)


def put_listing(storage: Storage, path: str, table: str, rows: Sequence[Row], **overrides: Any) -> DataFile:
    """Write rows of a table as an object of a backup; returns the object's row."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([as_row(row) for row in rows], ARROW_SCHEMAS[table]), sink)
    content = sink.getvalue().to_pybytes()
    return put_object(storage, path, content, **{"role": "meta", "format": LISTED[table], **overrides})


def data_file(number: int, *, region: int = 0, topic: str = "orders", source: str = "prod") -> DataFile:
    """The row of backup `number`'s file of a partition: ten records, offsets from 10 * (number - 1)."""
    start, path = 10 * (number - 1), layout.data_path(source, EPOCH, topic, region, number - 1)
    return file_row(
        number, destination="d", path=path, source=source, scope=topic, region=str(region), codec="zstandard",
        bytes=100, raw_bytes=200, sha256="00" * 32, entries=10, min_ts=1000 * number,
        max_ts=1000 * number + 900, start_position=start, end_position=start + 10,
    )  # fmt: skip


def manifest(
    number: int,
    *,
    base: int = 1,
    regions: int = 2,
    topics: Sequence[str] = ("orders",),
    source: str = "prod",
    gaps: Sequence[Gap] = (),
    keys: bool = False,
) -> tuple[sidecar.Manifest, list[list[DataFile]]]:
    """A backup of some topics with a file in each partition, and its parts (one a topic).

    `keys`: the files have key filters.
    """
    name = backup_id(number)
    parts = [
        [data_file(number, region=region, topic=topic, source=source) for region in range(regions)]
        for topic in topics
    ]
    if keys:
        for task, part in enumerate(parts):
            path = layout.keys_path(source, name, task, "0" * 8)
            part[:] = [
                replace(row, keys_path=path, keys_start=36 * i, keys_blocks=1) for i, row in enumerate(part)
            ]
    rows = [row for part in parts for row in part]
    digest = Digest()
    for row in rows:
        digest.add(json_line(row))
    end_ts = 1000 * number + 999
    backup = made_backup(
        number,
        rows,
        full_number=base,
        source=source,
        start_ts=None if number == base else 1000 * number,
        end_ts=end_ts,
        started_at=1_000_000 * number,
        finished_at=1_000_000 * number + 500_000,
        digest=digest.hex(),
        tool="lakebackup test",
    )
    backup_keys = {"backup_id": name, "source": source}
    positions = [
        made_position(
            row.start_position, row.end_position, **backup_keys, scope=row.scope, region=row.region, ts=end_ts
        )
        for row in rows
    ]
    settings = '{"cleanup.policy": "delete"}'
    scopes = [made_scope(**backup_keys, scope=topic, regions=regions, settings=settings) for topic in topics]
    return sidecar.Manifest(
        backup=backup, positions=positions, scopes=scopes, gaps=gaps, parts=len(parts)
    ), parts


def publish(
    storage: Storage, writer: CatalogWriter, manifest_and_parts: tuple[sidecar.Manifest, list[list[DataFile]]]
) -> sidecar.Manifest:
    """Publish a backup as a job does: write its parts, manifest, catalog rows and marker."""
    stored_manifest = put_sidecar(storage, manifest_and_parts)
    writer.commit_backup(storage, stored_manifest, source_lease=None)
    backup = stored_manifest.backup
    sidecar.mark(storage, layout.marker_path(backup.source, backup.backup_id, "complete"))
    return stored_manifest


def put_sidecar(
    storage: Storage, manifest_and_parts: tuple[sidecar.Manifest, list[list[DataFile]]]
) -> sidecar.Manifest:
    """Write the parts and the manifest of a backup, with the id of the destination in the rows."""
    backup_manifest, parts = manifest_and_parts
    name = destination_id(storage)
    backup = backup_manifest.backup
    digest = Digest()
    for task, rows in enumerate(parts):
        destination_rows = [replace(row, destination=name) for row in rows]
        for row in destination_rows:
            digest.add(json_line(row))
        sidecar.write_part(
            storage, layout.parts_path(backup.source, backup.backup_id, task), destination_rows
        )
    backup_manifest = replace(backup_manifest, backup=replace(backup, destination=name, digest=digest.hex()))
    sidecar.write_manifest(storage, layout.manifest_path(backup.source, backup.backup_id), backup_manifest)
    return backup_manifest


#: A program that appends rows to the audit of a catalog. Arguments: the catalog's URI, a name, a count.
APPEND_MANY = """
import sys
from lakebackup.sql_engine.delta.table import append
from lakebackup.store.lease import Lease
from lakebackup.rows.upkeep import Audit
from lakebackup.storage import open_storage

catalog, process, count = sys.argv[1:]
storage = open_storage(catalog)
for number in range(int(count)):
    with Lease.acquire(storage, "catalog", f"process {process}", ttl_s=30, wait_s=120):
        entry = Audit(at=number, actor=process, action="a", subject="s", detail="{}")
        assert append(storage, "audit", [entry], f"{process}-{number}")
    print(number, flush=True)
"""
