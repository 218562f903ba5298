"""A catalog that is behind its destination: a commit of it was lost, or it is an old copy.

A run commits a backup's row last, with the versions of the other tables in it, and then puts the marker
`complete` beside the data; rows are never removed from `backups`. So a marker without a row, or a table at an
earlier version, shows that the catalog lost something.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from lakebackup.errors import NotFound, Refused
from lakebackup.rules import layout
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id

if TYPE_CHECKING:
    from collections.abc import Iterator


_SHOWN = 5
#: What brings the lost rows back.
HINT = (
    "Name the catalog that has them with --catalog. If they were lost, move its folder away and run "
    "`lakebackup catalog rebuild`, which finds every backup again."
)


def lost_backups(reader: CatalogReader) -> list[str]:
    """Ids of some backups that are marked `complete` in the destination and have no row in the catalog.

    Looks behind the newest backup that the catalog has of each source, by a listing or two of a source
    however many backups it has: a commit that was lost before others were made is not found.
    """
    return list(islice(_lost(reader), _SHOWN))


def what_is_lost(reader: CatalogReader) -> str | None:
    """Why the catalog is behind its destination, for the person who has to know of it; None: it is not."""
    if lost := lost_backups(reader):
        why = (
            f"{', '.join(lost)} {'is' if len(lost) == 1 else 'are'} complete in {reader.home.uri}, and not "
            "in the catalog"
        )
    elif tables := reader.tables_behind():
        why = f"the newest commits of {', '.join(tables)} are not there, and a backup was made after them"
    else:
        return None
    return (
        f"The catalog at {reader.catalog_uri} is behind: {why}. "
        "A commit of it was lost, or it is an old copy."
    )


def current_catalog(destination: str, catalog: str | None = None) -> CatalogReader:
    """As `CatalogReader.require`, for what restores, deletes or makes backups; Refused when the catalog is
    behind what is complete in the destination."""
    reader = CatalogReader.require(destination, catalog)
    require_current(reader)
    return reader


def require_current(reader: CatalogReader) -> None:
    """Raises Refused when the catalog lost something: restores would be of an older state or not whole, and
    numbers of backups would be used again."""
    if lost := what_is_lost(reader):
        raise Refused(lost, hint=HINT)


def _lost(reader: CatalogReader) -> Iterator[str]:
    try:
        home = destination_id(reader.home, create=False)
    except NotFound:
        return
    newest = {row["source"]: row["backup_id"] for row in reader.rows("newest_ids", destination=home)}
    for source in filter(None, map(layout.source_of, reader.home.folders())):
        folder = layout.backups_folder(source)
        # `0` follows `/`: everything in the folder of the newest is skipped.
        after = f"{folder}{newest[source]}0" if source in newest else ""
        for found in reader.home.list(folder, after=after):
            backup_id, _, name = found.path.removeprefix(folder).partition("/")
            if name == "complete" and layout.is_backup_id(backup_id) and not _known(reader, backup_id):
                yield backup_id


def _known(reader: CatalogReader, backup_id: str) -> bool:
    """Whether the catalog has it by now, since a run may have committed meanwhile; or has on record that a
    rebuild could not put it in."""
    now = CatalogReader(reader.home.uri, reader.catalog_uri)
    return bool(
        now.rows("show_backup", backup_id=backup_id) or now.rows("rebuild_left_out", backup_id=backup_id)
    )
