"""Verbs that only look: they read the catalog with DuckDB and start no Java."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lakebackup.errors import NotFound
from lakebackup_jobs.cli.invocation import destination, instant, settings

if TYPE_CHECKING:
    from pathlib import Path

    from lakebackup.config import Settings
    from lakebackup.store import CatalogReader


def open_catalog(
    config: Path | None, from_: str | None, catalog: str | None, as_of: str | None = None
) -> CatalogReader:
    """The catalog that the flags and settings name, as it was at a time. Raises NotFound without one."""
    return open_found(settings(config, destination=from_, catalog=catalog), as_of)


def open_found(found: Settings, as_of: str | None = None) -> CatalogReader:
    """The catalog that these settings name, as it was at a time. Raises NotFound when there is none."""
    where = destination(found, "--from")
    from lakebackup.store import CatalogReader

    then = instant(as_of)
    reader = CatalogReader.open(where, found.catalog, as_of=None if then is None else then * 1000)
    if reader is None:
        raise NotFound(
            f"There is no catalog at {found.catalog or where}.",
            hint="Nothing was backed up to there yet. If the catalog was lost: lakebackup catalog rebuild.",
        )
    if then is None:
        _warn_if_behind(reader)
    return reader


def _warn_if_behind(reader: CatalogReader) -> None:
    """A question is answered all the same; what restores, deletes or makes backups refuses."""
    from lakebackup.behind import HINT, what_is_lost

    if lost := what_is_lost(reader):
        print(f"warning: {lost}\n{HINT}", file=sys.stderr)
