"""What keeps a prune from files that are being read: a row of `restores` and a lease, until the end."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakebackup import layout
from lakebackup.errors import Busy, LakebackupError
from lakebackup.lease import Lease
from lakebackup.model import Restore
from lakebackup.storage import open_storage
from lakebackup.store import CatalogReader, CatalogWriter
from lakebackup_jobs.identity import holder, micros

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@contextmanager
def noted(
    spark: SparkSession | None,
    planned: CatalogReader,
    *,
    destination: str,
    catalog: str | None,
    source: str,
    target: str,
    selection: str,
    from_ts: int | None = None,
    to_ts: int | None = None,
) -> Iterator[dict[str, Any]]:
    """While the block reads backups of a source, a prune of it is Busy. What the block puts into the dict
    (`entries`, `bytes`) is in the last row of `restores`.

    For what is not gone on with after it was cut off: then nothing is held any more. Raises Busy when a prune
    came in since `planned` was read.
    """
    now = datetime.now(UTC)
    restore_id = layout.new_backup_id(now)
    began = Restore(
        restore_id=restore_id,
        at=micros(now),
        source=source,
        state="running",
        target=target,
        from_ts=from_ts,
        to_ts=to_ts,
        selection=selection,
        detail=json.dumps({"digest": restore_id}),  # by which a prune finds the lease
    )
    writer = CatalogWriter.open(spark, destination, catalog)

    def put(state: Any, **counts: Any) -> None:
        writer.append([replace(began, at=micros(datetime.now(UTC)), state=state, **counts)])

    with Lease.acquire(open_storage(destination), f"restore-{restore_id}", holder()):
        writer.append([began])
        counts: dict[str, Any] = {}
        try:
            refuse_pruned_meanwhile(destination, catalog, source, planned)
            yield counts
        except LakebackupError:
            put("failed")
            raise
        put("complete", **counts)


def refuse_pruned_meanwhile(
    destination: str, catalog: str | None, source: str, planned: CatalogReader
) -> None:
    """Busy when a prune came between the plan and the row that says that this restore is at work.

    One that comes later sees the row, and spares what the restore reads.
    """
    now = CatalogReader(destination, catalog)
    if now.one("latest_prune", source=source) != planned.one("latest_prune", source=source):
        raise Busy(
            f"A prune of {source} came in while this restore was being planned; nothing was restored.",
            hint="Run the same command again.",
        )
