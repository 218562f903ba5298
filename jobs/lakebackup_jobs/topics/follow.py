"""Back up what is new of a source every few seconds, until stopped, by Spark's Structured Streaming."""

from __future__ import annotations

import threading
from dataclasses import replace
from io import StringIO
from typing import Any

from pydantic import TypeAdapter
from pyspark.sql import DataFrame, Row, SparkSession

from lakebackup.errors import Incomplete, LakebackupError, UsageProblem
from lakebackup.plan.topics.backup import Prepared
from lakebackup.rows.base import TOPICS
from lakebackup.rules import layout
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.lease import Lease
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.admin.groups import Groups
from lakebackup_jobs.lifecycle.lost_objects import notice_lost_objects
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.run import publish, result_of
from lakebackup_jobs.lifecycle.stream import Stream
from lakebackup_jobs.lifecycle.stream_source import Job, Planner
from lakebackup_jobs.lifecycle.tasks.numbers import latest_number, next_sequences
from lakebackup_jobs.lifecycle.tasks.totals import Totals
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.topics import forks
from lakebackup_jobs.topics.announce import announce, summary
from lakebackup_jobs.topics.backup import copy_job, manifest
from lakebackup_jobs.topics.planning import prepare
from lakebackup_jobs.topics.request import BackupRequest

_CHECK_EVERY_S = 0.2
_NAME = "lakebackup_topics"


def follow(
    request: BackupRequest,
    *,
    every_s: float,
    stop: threading.Event,
    spark: SparkSession | None = None,
    reporter: Reporter,
) -> dict[str, Any]:
    """Back up the new records every `every_s` seconds until `stop` is set. Returns the totals.

    A batch that runs when `stop` is set is finished first. Raises what a backup raises, Busy (another process
    follows the source), Incomplete (at the end, when the last batch left out what could not be read).
    """
    if request.mode in ("full", "incr-accu") or request.new_generation or request.parent:
        raise UsageProblem(
            "Following backs up what is new since the newest backup; its batches cannot start elsewhere.",
            hint="Take one backup with --mode full, --parent or --new-generation first, then follow.",
        )
    if request.remote:
        raise UsageProblem(
            "Following runs its batches in this process; a Spark Connect server cannot do that.",
            hint="Leave --remote out, or name a cluster with --master.",
        )
    if request.runner == "local":
        raise UsageProblem("Following runs on Spark.", hint="Leave --runner local out.")
    source = layout.check_source(request.source or f"kafka-{Cluster(request.kafka).cluster_id()}")
    request = replace(request, log=True, source=source)
    work = Workspace(request, source, reporter, spark)
    with work.running("follow", TOPICS, lease=f"follow-{source}") as lease:
        notice_lost_objects(work, work.writer().prepare())
        reporter.start(None, None, "follow")
        stream = _Following(work, request, every_s)
        try:
            while stream.runs and not stop.wait(_CHECK_EVERY_S):
                lease.check()
        except BaseException:
            stream.abandon()
            raise
        stream.finish()
        result = work.timed({"source": source, **stream.totals, "last_backup": stream.last})
        if stream.reported_warnings:
            raise Incomplete(
                "The last batch was taken without what could not be read: "
                f"{len(stream.reported_warnings)} in all.",
                hint="Give this user the rights that the warnings name.",
            ).with_result(result)
        return result


class TopicsPlanner(Planner[Prepared]):
    """Plans batches of one source's topics."""

    DRAFT = TypeAdapter(Prepared)

    def __init__(self, request: BackupRequest, source: str, encryption: RunEncryption | None) -> None:
        self._request, self._source, self._encryption = request, source, encryption
        self._cluster: Groups | None = None
        # Whether records of the source were compared with the newest backup's. The first batch compares
        # them; after that, comparing epochs is enough.
        self._compared = False

    def plan(self) -> Prepared | None:
        if self._cluster is None:
            self._cluster = Groups(self._request.kafka)
        prepared = prepare(
            self._request, self._source, self._cluster, self._work().reader(), contents=not self._compared
        )
        self._compared = True
        return None if prepared.plan.idle else prepared

    def job(self, draft: Prepared) -> tuple[Job, int] | None:
        work = self._work()
        reader = work.reader()
        if latest_number(reader, self._source) + 1 != draft.number:
            return None
        plan = draft.plan
        sequences = next_sequences(reader, self._source, plan.scopes, plan.partitions_read)
        job = copy_job(self._request, work, draft, sequences, self._encryption, report=False)
        return job, len(draft.plan.tasks)

    def _work(self) -> Workspace:
        return Workspace(self._request, self._source, Reporter(StringIO(), StringIO()))


class _Following(Stream[Prepared]):
    """The query that follows one source, on the driver."""

    def __init__(self, work: Workspace, request: BackupRequest, every_s: float) -> None:
        self.request = request
        self.totals = {"backups": 0, "files": 0, "bytes": 0, "entries": 0}
        self.last: str | None = None
        self.reported_warnings: set[str] = set()
        self.long_open: set[tuple[str, str, int]] = set()
        self._failed = False
        self.encryption = RunEncryption.of(request.recipients, work.storage)
        planner = TopicsPlanner(request, work.source, self.encryption)
        super().__init__(work, _NAME, planner, every_ms=max(1, round(every_s * 1000)))

    def failed(self, draft: Prepared, error: LakebackupError) -> None:  # noqa: ARG002
        # Records were purged, say, or a topic was deleted: the next batch is planned without them.
        if self._failed:
            raise error
        self._failed = True
        self.workspace.reporter.warning(
            f"{error.message} The batch is abandoned; the next one starts where it did."
        )

    def publish(
        self,
        draft: Prepared,
        rows: list[Row],  # noqa: ARG002
        totals: Totals,
        lease: Lease,
        batch: DataFrame,  # noqa: ARG002
    ) -> None:
        work, plan = self.workspace, draft.plan
        self._failed = False
        for warning in set(plan.left_out) - self.reported_warnings:
            work.reporter.warning(warning)
        self.reported_warnings = set(plan.left_out)
        reported = {(p.scope, p.region, p.end_position) for p in plan.long_open}
        announce(plan, work.reporter, reported=self.long_open)
        self.long_open = reported
        if plan.fork:
            forks.record(work.writer(), plan.fork)
        backup_manifest = manifest(self.request, work, draft, totals, self.encryption)
        publish(work, backup_manifest, lease, encrypted=self.encryption is not None)
        result = result_of(backup_manifest.backup, summary(plan, work.source))
        self.last = backup_manifest.backup.backup_id
        self.totals["backups"] += 1
        for name in ("files", "bytes", "entries"):
            self.totals[name] += result[name]
        work.reporter.update(self.totals["entries"], self.totals["bytes"])
        work.reporter.note(f"backup {self.last}, {result['kind']}: {result['entries']} records")
