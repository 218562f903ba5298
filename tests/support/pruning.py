"""Destinations with backups made by hand, rows and objects, for prunes to work on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.support.catalogs import data_file, manifest, publish
from tests.support.command_line import quiet
from tests.support.looks import seen

from lakebackup.storage import open_storage
from lakebackup_jobs.upkeep import prune

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebackup.store.writer import CatalogWriter

SETTINGS = json.dumps({"cleanup.policy": "delete", "retention.ms": "2000", "retention.bytes": "-1"})


def put(root: Path, writer: CatalogWriter, number: int, *, settings: str = SETTINGS, **changes: Any) -> None:
    """Backup `number`, whose files hold the times from 0 to 900 behind 1000 times its number."""
    found, parts = manifest(number, **changes)
    found = replace(found, scopes=[replace(scope, settings=settings) for scope in found.scopes])
    publish(open_storage(str(root)), writer, (found, parts))
    for row in (row for rows in parts for row in rows):
        (root / row.path).parent.mkdir(parents=True, exist_ok=True)
        (root / row.path).write_bytes(b"x" * row.bytes)
        if row.keys_path:
            (root / row.keys_path).parent.mkdir(parents=True, exist_ok=True)
            (root / row.keys_path).write_bytes(b"x" * 72)


def run(root: Path, spark: SparkSession | None = None, **changes: Any) -> dict[str, Any]:
    """A prune of the source `prod`."""
    request = prune.PruneRequest(destination=str(root), source="prod", **changes)
    return prune.run(request, spark=spark, reporter=quiet())


def data(root: Path) -> set[str]:
    """Paths of the data files that are there."""
    return {str(found.relative_to(root)) for found in root.glob("*/*/topics/**/*.data")}


def listed(root: Path) -> set[str]:
    """Paths of the data files that count."""
    return {row["path"] for row in seen(root, "SELECT path FROM files")}


def orders(*numbers: int, regions: int = 2) -> set[str]:
    """Paths of the files that some backups wrote of the topic orders."""
    return {data_file(number, region=region).path for number in numbers for region in range(regions)}
