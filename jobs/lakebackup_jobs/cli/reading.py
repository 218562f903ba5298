"""Verbs that only look: they read the catalog with DuckDB and start no Java."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebackup.errors import NotFound
from lakebackup_jobs.cli.invocation import destination, settings

if TYPE_CHECKING:
    from pathlib import Path

    from lakebackup.config import Settings
    from lakebackup.store import CatalogReader


def open_catalog(config: Path | None, from_: str | None, catalog: str | None) -> CatalogReader:
    """The catalog that the flags and settings name. Raises NotFound when there is none."""
    return open_found(settings(config, destination=from_, catalog=catalog))


def open_found(found: Settings) -> CatalogReader:
    """The catalog that these settings name. Raises NotFound when there is none."""
    where = destination(found, "--from")
    from lakebackup.store import CatalogReader

    reader = CatalogReader.open(where, found.catalog)
    if reader is None:
        raise NotFound(
            f"There is no catalog at {found.catalog or where}.",
            hint="Nothing was backed up to there yet. If the catalog was lost: lakebackup catalog rebuild.",
        )
    return reader
