"""What must hold before a backup refers to what is stored already: the catalog knows what that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebackup.errors import Refused
from lakebackup.store import tombstones

if TYPE_CHECKING:
    from lakebackup.storage import Storage
    from lakebackup.store.reader import CatalogReader


def require_kept(storage: Storage, source: str, reader: CatalogReader) -> None:
    """Refused when the catalog counts objects of a source as stored that a prune deletes when it resumes.
    The caller holds the source's lease.
    """
    for name in tombstones.unfinished(storage):
        found = tombstones.read_prune(storage, name)
        # Once its removals are in the catalog, what it deletes does not count as stored.
        if found.source != source or not found.chunks:
            continue
        if not reader.rows("prune_on_record", prune_id=name)[0]["removals"]:
            raise Refused(
                f"Prune {name} was interrupted before the catalog knew what it deletes.",
                hint="Run `lakebackup prune --delete` again to resume it. Then back up.",
            )
