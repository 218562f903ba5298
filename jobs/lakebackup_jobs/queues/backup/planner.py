"""Plans the next backup of an engine's queues from the state of its cluster, its files and the catalog."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from lakebackup.errors import Busy, NeedsFull, Refused, UsageProblem
from lakebackup.formats.queues import schema_history, snapshot_json
from lakebackup.plan.partitions import PartitionKey, RegionState, TopicState
from lakebackup.plan.queues import backup as planning
from lakebackup.plan.queues.backup import QueuePlan, Queues
from lakebackup.plan.queues.history import (
    Continuation,
    History,
    Start,
    find_continuation,
    read_histories,
    read_watermarks,
    require_parent_topics,
    resume_limit,
)
from lakebackup.plan.topics.forks import BackupEnd, cut_back
from lakebackup.rows.base import QUEUES
from lakebackup.rows.upkeep import Audit
from lakebackup.rules import patterns
from lakebackup.rules.kinds import require_kind_of
from lakebackup.rules.stored_json import object_of
from lakebackup.store.lease import is_held
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.admin.cluster import Cluster
from lakebackup_jobs.kafka.client.epochs import Logs
from lakebackup_jobs.lifecycle.identity import holder
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.queues.backup import skipped
from lakebackup_jobs.queues.backup.cut import Tails
from lakebackup_jobs.queues.backup.draft import ISOLATION
from lakebackup_jobs.queues.backup.request import QueueRequest, files_of, read_report
from lakebackup_jobs.queues.restore.restore_state import Prepared, RestoreState


class QueuePlanner:
    """The engine as one run sees it. It reads the ends of the queues once, and opens the catalog after that;
    `catalog` returns None when there is none."""

    def __init__(
        self, request: QueueRequest, workspace: Workspace, catalog: Callable[[], CatalogReader | None]
    ) -> None:
        self.request, self._work = request, workspace
        self.report = read_report(request)
        self.cluster = Cluster(request.kafka)
        self._existing = self.cluster.topic_names()
        names = patterns.select_each(request.topics, self._existing)
        self.cluster.require_readable(names)
        self.topics = self.cluster.describe(names)
        self._end_ts, regions = self.cluster.positions(self.topics, ISOLATION)
        self.catalog = catalog()
        recorded = skipped.recorded(self.catalog, workspace.source)
        self._skip = skipped.parse_messages(request.skip, self.topics) - recorded
        self.skipped = self._skip | recorded
        tails = Tails(dict(request.kafka), ISOLATION, request.names, self.skipped)
        self.regions = tails.settled(regions, lambda: self.cluster.positions(self.topics, ISOLATION)[1])
        # The files are read after the ends, since a schema is in the history before the first message that
        # uses it is written.
        self.files = files_of(request)

    def request_identity(self, plan: QueuePlan) -> dict[str, Any]:
        """Return the options that make two requests the same backup; a full also needs the same snapshot."""
        return {**self.request.identity, **({"snapshot_is": self.report.mark} if plan.kind == "full" else {})}

    def record_skipped(self) -> None:
        """Record in the audit log which messages are left out from now on, with a warning for each."""
        skipped.record(self._work.writer(), self._work.source, self._skip, time.time_ns() // 1000)
        for scope, _, region, position in sorted(self._skip):
            self._work.reporter.warning(f"{scope}[{region}] at offset {position} is left out of all backups")

    def continuation(self) -> Continuation:
        reader = self.catalog
        if reader is None:
            return Continuation()
        require_kind_of(reader, self._work.source, QUEUES, hint="Give the engine a name of its own.")
        cluster = self.cluster.cluster_id()
        histories = read_histories(reader, self._work.source, cluster)
        if self.request.mode != "full":
            _require_restored(self._work, reader, histories, self.topics)
        try:
            continuation = find_continuation(reader, histories, self.topics, self.request.mode)
        except NeedsFull:
            if self.request.mode != "full":
                raise
            continuation = Continuation()
        if self.request.mode != "full":
            require_parent_topics(continuation.starts, self.topics, self._existing)
        if any(history.restore_id for history in histories):
            watermarks = read_watermarks(reader, self._work.source, cluster)
            continuation = replace(continuation, watermarks=watermarks)
        return continuation

    def plan(self, backup_id: str) -> QueuePlan:
        request, mode, continuation = self.request, self.request.mode, self.continuation()
        queues = Queues(
            backup_id,
            self._work.source,
            continuation,
            self.topics,
            self.regions,
            end_ts=continuation.end_after(self._end_ts),
            parallelism=request.parallelism,
        )
        if mode == "full" or (mode == "auto" and continuation.parent is None):
            if request.snapshot is None:
                raise UsageProblem(
                    f"A full of {self._work.source} needs a snapshot of the engine.",
                    hint="Name its folder with --snapshot-folder.",
                )
            snapshot = self.report.read
            if snapshot:
                snapshot_json.require_positions(snapshot, self.report.path, self._work.source, self.regions)
            return queues.full(snapshot)
        queues = replace(queues, regions=self._uncut_regions(continuation.starts))
        plan = queues.child("differential" if mode == "differential" else "incremental")
        if self.catalog:
            if mode == "differential" and plan.lost:
                self._require_not_in_others(plan, self.catalog, queues)
            self._compare_files(self.catalog, continuation)
        return plan

    def _uncut_regions(self, starts: Iterable[Start]) -> list[RegionState]:
        """Return the partitions, each up to where it still agrees with what was backed up of it.

        A partition that an unclean leader election has cut back may have grown beyond that point again.
        """
        cuts = self.cuts(BackupEnd(0, *s.key, s.own_from, s.leader_epoch) for s in starts)
        return [
            replace(region, end=min(region.end, cuts[region.key])) if region.key in cuts else region
            for region in self.regions
        ]

    def cuts(self, ends: Iterable[BackupEnd]) -> dict[PartitionKey, int]:
        """Return the partitions that were cut back below these ends, each with its new end."""
        regions = {region.key: region for region in self.regions}
        existing_ends = [end for end in ends if end.partition in regions]
        return cut_back(existing_ends, regions, Logs(self.request.kafka, lambda _: {}))

    def _require_not_in_others(self, plan: QueuePlan, reader: CatalogReader, queues: Queues) -> None:
        """Raise NeedsFull for a differential that lacks messages which backups since the full hold."""
        histories = read_histories(reader, self._work.source, self.cluster.cluster_id())
        newest = replace(
            find_continuation(reader, histories, self.topics, "incremental"),
            watermarks=queues.continuation.watermarks,
        )
        if not replace(queues, continuation=newest).child("incremental").lost:
            raise planning.only_incremental(plan.lost)

    def require_there(self, plan: QueuePlan) -> None:
        """Raise NeedsFull when messages that the backup needs are missing; the audit log records them."""
        if plan.kind == "full" or not plan.lost:
            return
        if not self.request.dry_run:
            names = ("scope", "epoch", "region", "from_position", "to_position")
            gaps = [{name: getattr(gap, name) for name in names} for gap in plan.lost[:100]]
            self._work.writer().append_audit(
                Audit(
                    at=time.time_ns() // 1000,
                    actor=holder(),
                    action="queue gap",
                    subject=self._work.source,
                    detail=json.dumps({"missing": gaps, "partitions": len(plan.lost)}),
                )
            )
        raise planning.needs_full(plan.lost)

    def _compare_files(self, reader: CatalogReader, continuation: Continuation) -> None:
        """Check that the engine's schema history continues that of the parent.

        Raises UsageProblem if the parent has one and the request names none; warns if it does not continue.
        """
        if continuation.parent is None:
            return
        rows = reader.rows("queue_versions", backup_id=continuation.parent.backup_id)
        parent_versions = [(row["version"], row["from_tid"]) for row in rows]
        if parent_versions and self.files.schema is None:
            raise UsageProblem(
                f"Backup {continuation.parent.backup_id} has a schema history, and "
                "--engine-schema is missing.",
                hint="Give --engine-schema FILE: each backup stores the file.",
            )
        missing_version = schema_history.unlike(self.files.versions, parent_versions)
        if missing_version and not continuation.restored:
            self._work.reporter.warning(
                f"{self.request.schema} does not continue that of backup {continuation.parent.backup_id}: "
                f"version {missing_version[0]}, valid from tid {missing_version[1]}, is not in it"
            )


def _require_restored(
    work: Workspace,
    reader: CatalogReader,
    histories: Iterable[History],
    topics: Sequence[TopicState],
) -> None:
    """Raise Busy while a restore of the source writes into these topics, Refused when one is unfinished.

    An unfinished restore from before the newest full, or from before a later completed one, does not matter.
    """
    names = {topic.epoch: topic.scope for topic in topics}
    limit = resume_limit(histories, topics)
    for row in reader.rows("prune_restores", source=work.source):
        restore_id = row["restore_id"]
        prepared = RestoreState(work.storage, restore_id).read(Prepared)
        hit = (
            next((names[epoch] for epoch in prepared.epochs.values() if epoch in names), None)
            if prepared
            else None
        )
        if hit is None:
            continue
        digest = object_of(row["detail"]).get("digest")
        if digest is not None and is_held(work.storage, f"restore-{digest}"):
            raise Busy(
                f"Restore {restore_id} is writing into topic {hit}.",
                hint="Wait until it is done, and run again.",
            )
        if row["at"] >= limit:
            raise Refused(
                f"Restore {restore_id} started to write into topic {hit} and did not finish: what a backup "
                "would read there is of two histories.",
                hint="Nothing was written. Run its command again to finish that restore; if it is given up, "
                "take a snapshot of the engine and a new full of it with --mode full.",
            )
