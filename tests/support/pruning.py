"""Destinations with backups made by hand, rows and objects, for tests of prunes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.support.catalogs import data_file, manifest, publish
from tests.support.command_line import quiet
from tests.support.looks import select_rows

from lakebackup.storage import open_storage
from lakebackup_jobs.upkeep import prune

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebackup.store.writer import CatalogWriter

SETTINGS = json.dumps({"cleanup.policy": "delete", "retention.ms": "2000", "retention.bytes": "-1"})


def write_backup(
    root: Path, writer: CatalogWriter, number: int, *, settings: str = SETTINGS, **changes: Any
) -> None:
    """Write backup `number`, whose records have timestamps from 1000 * number to 1000 * number + 900."""
    backup_manifest, parts = manifest(number, **changes)
    backup_manifest = replace(
        backup_manifest, scopes=[replace(scope, settings=settings) for scope in backup_manifest.scopes]
    )
    publish(open_storage(str(root)), writer, (backup_manifest, parts))
    for row in (row for rows in parts for row in rows):
        (root / row.path).parent.mkdir(parents=True, exist_ok=True)
        (root / row.path).write_bytes(b"x" * row.bytes)
        if row.keys_path:
            (root / row.keys_path).parent.mkdir(parents=True, exist_ok=True)
            (root / row.keys_path).write_bytes(b"x" * 72)


def run(root: Path, spark: SparkSession | None = None, **changes: Any) -> dict[str, Any]:
    """Prune the source `prod`."""
    request = prune.PruneRequest(destination=str(root), source="prod", **changes)
    return prune.run(request, spark=spark, reporter=quiet())


def data(root: Path) -> set[str]:
    """Paths of the data files that exist."""
    return {str(path.relative_to(root)) for path in root.glob("*/*/topics/**/*.data")}


def listed(root: Path) -> set[str]:
    """Paths of the data files in the catalog."""
    return {row["path"] for row in select_rows(root, "SELECT path FROM files")}


def orders(*numbers: int, regions: int = 2) -> set[str]:
    """Paths of the files that these backups wrote of the topic orders."""
    return {data_file(number, region=region).path for number in numbers for region in range(regions)}
