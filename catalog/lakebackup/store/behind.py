"""Detects a catalog that is behind its destination, because a commit was lost or because it is an old copy.

A run commits a backup's row last. The row holds the versions of the other tables. Then the run puts the
marker `complete` beside the data. Rows are never removed from `backups`. So a marker without a row, or a
table at an earlier version, shows that the catalog lost commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from lakebackup.errors import NotFound, Refused
from lakebackup.rules import layout
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id

_MAX_IDS = 5
#: How to get the lost rows back.
HINT = (
    "Name the catalog that has them with --catalog. If they were lost, move its folder away and run "
    "`lakebackup catalog rebuild`, which finds every backup again."
)


def lost_backups(reader: CatalogReader) -> list[str]:
    """Ids of up to five backups that are marked `complete` in the destination but have no row in the catalog.

    Lists only what follows the newest backup that the catalog has of each source, so each source costs one or
    two listings. A lost commit that later commits followed is not found.
    """
    return list(islice(_lost_backup_ids(reader), _MAX_IDS))


def what_is_lost(reader: CatalogReader) -> str | None:
    """Returns a message that says why the catalog is behind its destination, or None when it is not."""
    if ids := lost_backups(reader):
        reason = (
            f"{', '.join(ids)} {'is' if len(ids) == 1 else 'are'} complete in {reader.home.uri}, and not "
            "in the catalog"
        )
    elif tables := reader.tables_behind():
        reason = f"the newest commits of {', '.join(tables)} are not there, and a backup was made after them"
    else:
        return None
    return (
        f"The catalog at {reader.catalog_uri} is behind: {reason}. "
        "A commit of it was lost, or it is an old copy."
    )


def current_catalog(destination: str, catalog: str | None = None) -> CatalogReader:
    """Like `CatalogReader.require`, for commands that restore, delete or make backups.

    Raises Refused when the catalog lacks backups that are complete in the destination.
    """
    reader = CatalogReader.require(destination, catalog)
    require_current(reader)
    return reader


def require_current(reader: CatalogReader) -> None:
    """Raises Refused when the catalog lost commits.

    With such a catalog restores would be old or incomplete, and backup numbers would be used again.
    """
    if problem := what_is_lost(reader):
        raise Refused(problem, hint=HINT)


def _lost_backup_ids(reader: CatalogReader) -> Iterator[str]:
    try:
        home = destination_id(reader.home, create=False)
    except NotFound:
        return
    newest_ids = {row["source"]: row["backup_id"] for row in reader.rows("newest_ids", destination=home)}
    for source in filter(None, map(layout.source_of, reader.home.folders())):
        folder = layout.backups_folder(source)
        # `0` is the character after `/`, so the listing starts after the folder of the newest backup.
        skipped_prefix = f"{folder}{newest_ids[source]}0" if source in newest_ids else ""
        for stored_object in reader.home.list(folder, start_after=skipped_prefix):
            backup_id, _, name = stored_object.path.removeprefix(folder).partition("/")
            if name == "complete" and layout.is_backup_id(backup_id) and not _is_recorded(reader, backup_id):
                yield backup_id


def _is_recorded(reader: CatalogReader, backup_id: str) -> bool:
    """Whether the catalog has the backup now, or records that a rebuild could not add it.

    Opens the catalog again, because a run may have committed meanwhile.
    """
    current_reader = CatalogReader(reader.home.uri, reader.catalog_uri)
    return bool(
        current_reader.rows("show_backup", backup_id=backup_id)
        or current_reader.rows("rebuild_left_out", backup_id=backup_id)
    )
