"""A trial restore of an engine: everything but writing into queues, since a trial has no Kafka cluster."""

from __future__ import annotations

from pyspark.sql import SparkSession

from lakebackup.formats.queues.headers import HeaderNames
from lakebackup.plan.queues.restore import QueueRestoreRequest, plan_restore, require_restorable
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.rules import layout
from lakebackup.storage import open_storage
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.keyring import open_roots
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.restore import Subject, restoring
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.queues.restore.config_files import read_config
from lakebackup_jobs.queues.restore.scan_task import ALL, ScanJob
from lakebackup_jobs.queues.restore.shares import run_shares, store_scan
from lakebackup_jobs.snapshots import restore as restore_snapshot


def run(request: QueueRestoreRequest, *, spark: SparkSession | None, reporter: Reporter) -> str:
    """Restore a backup of an engine's queues as far as a folder allows; return how much it was, as text.

    It writes the snapshot, and reads the engine's own files and every message of the chain. Raises Refused
    and Damaged where a restore to the backup's end would raise them, and Busy when a prune interferes.
    """
    reader = CatalogReader.require(request.destination, request.catalog)
    plan = plan_restore(request, reader, lambda *_: ALL)
    require_restorable(plan)
    snapshot = SnapshotRestoreRequest(
        destination=request.destination,
        catalog=request.catalog,
        source=layout.snapshot_source(request.source),
        folder=f"{request.folder}/snapshot",
        backup=plan.restore_path.full.snapshot_id,
        bandwidth=request.bandwidth,
    )
    subject = Subject(source=request.source, target=f"dir:{request.folder}", selection=plan.selection)
    with restoring(Workspace(request, "", reporter, spark), reader) as run:
        run.begin(subject)
        files = restore_snapshot.run(snapshot, spark=spark, reporter=reporter)["files"]
        for file in plan.config:
            read_config(file, reader)
        shares = store_scan(open_storage(request.folder), reader, plan.file, "messages/", 0)
        run_shares(ScanJob(open_roots(reader, shares.file), shares, HeaderNames()), shares, spark)
        run.complete(entries=plan.entries, size=plan.bytes)
    return f"{files} files of its snapshot and {plan.entries} messages restored"
