"""A trial restore of an engine: everything but the writing into queues, which a trial has none of."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from lakebackup.errors import Damaged
from lakebackup.formats.queues import schema_history
from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.plan.queues.restore import QueueRestoreRequest, plan_restore, require_restorable
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.deletion.lock import noted
from lakebackup_jobs.lifecycle.tasks.task import run_all
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.queues.restore.scan_task import ScanJob
from lakebackup_jobs.queues.restore.splits import deal_scan
from lakebackup_jobs.snapshots import restore as restore_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebackup.plan.queues.restore import ConfigFile
    from lakebackup.storage import Storage
    from lakebackup_jobs.lifecycle.progress import Reporter

_ALL = 2**63 - 1


def run(
    destination: str,
    catalog: str | None,
    source: str,
    backup_id: str,
    folder: str,
    *,
    spark: SparkSession,
    reporter: Reporter,
) -> str:
    """Restore what a backup of an engine's queues needs, below `folder`; returns how much it was, as text.

    The snapshot is written, the engine's own files and every message of the chain are read and understood.
    Raises Refused, Damaged: what a restore to the backup's end would stop at; Busy: a prune came in.
    """
    reader = CatalogReader.require(destination, catalog)
    request = QueueRestoreRequest(
        destination=destination, source=source, target="", folder=folder, catalog=catalog, backup=backup_id
    )
    made = plan_restore(request, reader, lambda *_: _ALL)
    require_restorable(made)
    snapshot = SnapshotRestoreRequest(
        destination=destination,
        catalog=catalog,
        source=layout.snapshot_source(source),
        folder=f"{folder}/snapshot",
        backup=made.restore_path.full.snapshot_id,
    )
    with noted(
        Workspace(request, "", reporter, spark),
        reader,
        source=source,
        target=f"dir:{folder}",
        selection=made.selection,
    ) as (_, counts):
        files = restore_snapshot.run(snapshot, spark=spark, reporter=reporter)["files"]
        for file in made.config:
            _look_at(reader.destinations().open(file.destination), file)
        shares = deal_scan(open_storage(folder), made.chosen, "messages/", 0)
        run_all(ScanJob(reader.destinations(), shares, HeaderNames(), _ALL), shares.numbers, spark)
        counts.update(entries=made.entries, bytes=made.bytes)
    return f"{files} files of its snapshot and {made.entries} messages restored"


def _look_at(storage: Storage, file: ConfigFile) -> None:
    content = storage.get(file.path)
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise Damaged(f"{file.path} is not what was written (sha256).")
    if file.role == "schema":
        schema_history.parse(content, file.path)
