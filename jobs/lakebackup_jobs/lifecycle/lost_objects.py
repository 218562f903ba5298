"""Objects that a source's newest backup needs and that are lost. The next backup notices them in one listing.

Objects that are missing, or have another size, become rows of `checks`, as if verify had found them. The
backup then copies such files of a snapshot again, and does not continue a chain that needs them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal

from lakebackup.rows.upkeep import Check
from lakebackup.rules import layout
from lakebackup.storage import Storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.workspace import Workspace

# The most rows of one commit.
_ROWS = 10_000


def notice_lost_objects(work: Workspace, reader: CatalogReader) -> CatalogReader:
    """Compare the objects that the source's newest backup needs with a listing of the source's folder.

    Records the lost ones, and returns the catalog with these rows; `reader` itself when nothing is lost.
    Raises EnvironmentProblem.
    """
    destination = work.existing_destination()
    if destination is None:  # no backup was written to this destination yet
        return reader
    folder = layout.source_folder(work.source)
    check_id, started_us = layout.new_backup_id(datetime.now(UTC)), time.time_ns() // 1000
    needed = reader.query("objects_needed", source=work.source, destination=destination, folder=folder)
    rows = (row for batch in needed for row in batch.to_pylist())
    checks = (
        Check(
            check_id=check_id,
            at=started_us,
            backup_id=row["backup_id"],
            destination=destination,
            path=row["path"],
            mode="list",
            outcome=outcome,
            detail="noticed by a backup of the source",
        )
        for row, outcome in _lost(work.storage, folder, rows)
    )
    count, first = 0, ""
    while rows_of_commit := list(islice(checks, _ROWS)):
        first = first or f"{rows_of_commit[0].path} is {rows_of_commit[0].outcome}"
        count += len(rows_of_commit)
        work.writer().append(rows_of_commit)
    if not count:
        return reader
    are = "is" if count == 1 else "are"
    work.reporter.warning(
        f"{count} of the objects that the last backup of {work.source} needs {are} not as written: {first}. "
        "The view unusable_backups names what cannot be restored; `lakebackup verify` looks again"
    )
    return work.reader()


def _lost(
    storage: Storage, folder: str, needed: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], Literal["missing", "changed"]]]:
    """The rows of `needed`, sorted by path, whose objects do not exist or have another size."""
    listing = None
    current = None
    for row in needed:
        if listing is None:  # without needed objects nothing is listed
            listing = storage.list(folder)
            current = next(listing, None)
        while current is not None and current.path < row["path"]:
            current = next(listing, None)
        if current is None or current.path != row["path"]:
            yield row, "missing"
        elif current.bytes != row["bytes"]:
            yield row, "changed"
