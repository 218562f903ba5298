"""Catalogs with rows made by hand: what tests of the catalog, of its SQL and of its readers stand on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakebackup.rows.backups import Backup, DataFile, Gap, Position, Scope
from lakebackup.rows.digest import Digest
from lakebackup.rows.tables import json_line
from lakebackup.rules import layout
from lakebackup.store import manifest as sidecar
from lakebackup.store.roots import destination_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebackup.storage import Storage
    from lakebackup.store.writer import CatalogWriter

EPOCH = "0123456789abcdef" * 2


def backup_id(number: int) -> str:
    """The id of the backup with a number."""
    return f"20260101T{number // 3600:02d}{number // 60 % 60:02d}{number % 60:02d}Z-{number:08x}"


def data_file(number: int, *, region: int = 0, topic: str = "orders", source: str = "prod") -> DataFile:
    """The file that backup `number` wrote of a partition: ten records, offsets from 10 * (number - 1)."""
    first = 10 * (number - 1)
    return DataFile(
        destination="d",
        path=layout.data_path(source, EPOCH, topic, region, number - 1),
        backup_id=backup_id(number),
        added_in=number,
        source=source,
        scope=topic,
        epoch=EPOCH,
        region=str(region),
        format="kafka-avro-2",
        codec="zstandard",
        bytes=100,
        raw_bytes=200,
        sha256="00" * 32,
        entries=10,
        min_ts=1000 * number,
        max_ts=1000 * number + 900,
        start_position=first,
        end_position=first + 10,
    )


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

    `keys`: the files of a part have key filters.
    """
    name = backup_id(number)
    parts = [
        [data_file(number, region=region, topic=topic, source=source) for region in range(regions)]
        for topic in topics
    ]
    if keys:
        parts = [
            [
                replace(
                    row,
                    keys_path=layout.keys_path(source, name, task, "0" * 8),
                    keys_start=36 * i,
                    keys_blocks=1,
                )
                for i, row in enumerate(part)
            ]
            for task, part in enumerate(parts)
        ]
    rows = [row for part in parts for row in part]
    digest = Digest()
    for row in rows:
        digest.add(json_line(row))
    return (
        sidecar.Manifest(
            backup=Backup(
                backup_id=name,
                number=number,
                source=source,
                destination="d",
                kind="full" if number == base else "differential",
                level=0 if number == base else 1,
                parent=None if number == base else backup_id(number - 1),
                base=backup_id(base),
                chain_position=number - base,
                place=number,
                parent_place=None if number == base else number - 1,
                start_ts=None if number == base else 1000 * number,
                end_ts=1000 * number + 999,
                started_at=1_000_000 * number,
                finished_at=1_000_000 * number + 500_000,
                files=len(rows),
                bytes=sum(row.bytes for row in rows),
                entries=sum(row.entries for row in rows),
                digest=digest.hex(),
                isolation="read_committed",
                codec="zstandard",
                created_by="test",
                tool="lakebackup test",
            ),
            positions=[
                Position(
                    backup_id=name,
                    source=source,
                    scope=row.scope,
                    epoch=EPOCH,
                    region=row.region,
                    start_position=row.start_position,
                    end_position=row.end_position,
                    low_position=0,
                    high_position=row.end_position,
                    ts=1000 * number + 999,
                )
                for row in rows
            ],
            scopes=[
                Scope(
                    backup_id=name,
                    source=source,
                    scope=topic,
                    epoch=EPOCH,
                    regions=regions,
                    settings='{"cleanup.policy": "delete"}',
                    replication=1,
                )
                for topic in topics
            ],
            gaps=gaps,
            parts=len(parts),
        ),
        parts,
    )


def publish(
    storage: Storage, writer: CatalogWriter, made: tuple[sidecar.Manifest, list[list[DataFile]]]
) -> sidecar.Manifest:
    """Take a backup's rows the whole way that a job takes them: parts, manifest, catalog, marker."""
    found = put_sidecar(storage, made)
    writer.commit_backup(storage, found, held=None)
    backup = found.backup
    sidecar.mark(storage, layout.marker_path(backup.source, backup.backup_id, "complete"))
    return found


def put_sidecar(storage: Storage, made: tuple[sidecar.Manifest, list[list[DataFile]]]) -> sidecar.Manifest:
    """Put the parts and the manifest of a backup, with the destination's own id in the rows."""
    found, parts = made
    name = destination_id(storage)
    backup = found.backup
    digest = Digest()
    for task, rows in enumerate(parts):
        own = [replace(row, destination=name) for row in rows]
        for row in own:
            digest.add(json_line(row))
        sidecar.write_part(storage, layout.parts_path(backup.source, backup.backup_id, task), own)
    found = replace(found, backup=replace(backup, destination=name, digest=digest.hex()))
    sidecar.write_manifest(storage, layout.manifest_path(backup.source, backup.backup_id), found)
    return found
