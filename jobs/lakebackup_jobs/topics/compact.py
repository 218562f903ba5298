"""Rewrite the newest restore points of compacted topics with only the latest record of each key.

The result is a backup that starts a new generation. It ends at the positions and the time of the restore
point that it rewrites, and the next backup continues from there. A compaction reads nothing from Kafka and
deletes nothing; a prune deletes the replaced backups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from lakebackup.errors import NotFound
from lakebackup.plan.topics.backup import Parent
from lakebackup.plan.topics.generations import CompactBatch, CompactPlan, plan_compaction, read_generations
from lakebackup.plan.topics.request import only_source
from lakebackup.requests import Request
from lakebackup.rows.backups import Backup, Gap, Position
from lakebackup.rows.base import pick
from lakebackup.rows.topics import Group
from lakebackup.rules import layout
from lakebackup.sql_engine.failures import task_errors
from lakebackup.store.behind import current_catalog
from lakebackup.store.data_keys import RunEncryption
from lakebackup.store.manifest import Manifest
from lakebackup.store.plan_file import PlanFile
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.kafka.format.stored import StoredFile
from lakebackup_jobs.lifecycle.keyring import open_replaced
from lakebackup_jobs.lifecycle.parts import parts_of
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.run import Life, backup_row, complete_newest
from lakebackup_jobs.lifecycle.source import Source
from lakebackup_jobs.lifecycle.tasks.numbers import next_backup, next_sequences
from lakebackup_jobs.lifecycle.tasks.plan_shares import all_rows, clear, require_plan, store_plan
from lakebackup_jobs.lifecycle.tasks.totals import OUTCOME, Totals
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.topics.tasks import compact as compact_task
from lakebackup_jobs.topics.tasks.compact import divide

# When there are more pieces than this, a task takes several pieces.
MOST_TASKS = 2_000
# What the summary shows of a topic.
_TOPIC_COLUMNS = ("backup_id", "end_ts", "generation", "files", "bytes", "entries")


@dataclass(frozen=True, slots=True)
class CompactRequest(Request):
    """The topics to compact; without topics and patterns, all compacted topics that are not internal.

    `recipients`: who can read the new files; without recipients they are not encrypted.
    """

    topics: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    all_keyed: bool = False
    source: str | None = None
    codec: str = "zstandard"
    compression_level: int | None = None
    target_bytes: int = 128 << 20
    recipients: tuple[str, ...] = ()
    note: str | None = None


def run(request: CompactRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Compact topics, and return a summary.

    Raises NotFound (no catalog, no such topic), Refused (a named topic that is not compacted or has records
    without a key), Damaged (a file differs from its row in the catalog; no backup was made), Busy (another
    run works on the source), EnvironmentProblem.
    """
    reader = current_catalog(request.destination, request.catalog)
    source = layout.check_source(only_source(reader, request.source))
    if request.dry_run:
        return {"dry_run": True, "source": source, **_summary(_plan(request, reader, source))}
    work = Workspace(request, source, reporter, spark)
    with work.running("compact") as lease:
        complete_newest(work)
        plan = _plan(request, work.reader(), source)
        _report(plan, reporter)
        results = []
        for batch in plan.batches:
            compaction = TopicsCompaction(work, request, batch)
            results.append(Life(compaction, lease).run(compaction.draft()))
    names = ("kept_files", "kept_bytes", "kept_entries")
    kept_totals = {name: sum(result[name] for result in results) for name in names}
    ids = [result["backup_id"] for result in results]
    return work.timed({"source": source, "backup_ids": ids, **_summary(plan), **kept_totals})


def _report(plan: CompactPlan, reporter: Reporter) -> None:
    for topic in plan.topics:
        if topic.doubtful:
            reporter.warning(
                f"topic {topic.scope}: its backups were further apart than its delete.retention.ms, so a "
                "deleted key may be in the result. A backup with --new-generation has no deleted keys"
            )
    for scope, reason in plan.skipped_topics.items():
        reporter.note(f"topic {scope} stays as it is: {reason}")


@dataclass(frozen=True, slots=True)
class CompactDraft:
    """A backup of a compaction. `parent`: the newest backup before it. `pieces`: the number of its pieces."""

    backup_id: str
    number: int
    started_at: int
    parent: SimpleNamespace
    pieces: int = 0


class TopicsCompaction(Source[CompactDraft]):
    """One backup of a compaction. An interrupted one is not resumed; the files that it wrote are orphans."""

    def __init__(self, workspace: Workspace, request: CompactRequest, batch: CompactBatch) -> None:
        super().__init__(workspace)
        self.request, self.batch = request, batch
        self.reader = workspace.reader()
        self.encryption = RunEncryption.of(request.recipients, workspace.storage)

    def draft(self) -> CompactDraft:
        """The draft of the backup. It continues the backup of the batch before. Raises NotFound."""
        source = self.workspace.source
        parent = self.reader.first_row("latest_backup", source=source, level=None)
        if parent is None:
            raise NotFound("The chain of these backups is no longer complete.")
        return CompactDraft(*next_backup(self.reader, source), SimpleNamespace(**parent))

    def prepare(self, draft: CompactDraft) -> CompactDraft:
        file, storage = self.batch.file, self.workspace.storage
        shares = divide(all_rows(file, StoredFile))
        store_plan(storage, self.folder(draft), file, shares, most_tasks=len(shares))
        return replace(draft, pieces=len(shares))

    def resume_blocker(self, draft: CompactDraft) -> str | None:  # noqa: ARG002
        return "a compaction starts over"

    def copy(self, draft: CompactDraft) -> Totals:
        work, count, topics = self.workspace, draft.pieces, self.batch.topics
        shares, _ = require_plan(work.storage, self.folder(draft))
        roots = open_replaced(self.reader, shares.file, self.encryption)
        keep_newest = compact_task.KeepNewest(
            **parts_of(work, draft, 1, draft.parent, self.encryption),
            plan=shares,
            roots=roots,
            codec=self.request.codec,
            compression_level=self.request.compression_level,
            target_bytes=self.request.target_bytes,
            sequences=next_sequences(self.reader, work.source, topics),
            generations={topic.scope: topic.generation for topic in topics},
            drop_before={topic.scope: topic.drop_before for topic in topics},
        )
        find_newest = compact_task.FindNewest(shares, roots)
        newest = (
            find_newest.over(work.spark, range(count), compact_task.NEWEST_COLUMNS, MOST_TASKS)
            .groupBy("part", "key")
            # The pieces of a partition are numbered by offset: the last piece has the last offset.
            .agg(sf.max("piece").alias("piece"), sf.max("position").alias("position"))
            .select("piece", "position")
        )
        no_position = work.spark.range(count).select(
            sf.col("id").cast("INT").alias("piece"), sf.lit(-1).cast("BIGINT")
        )
        # Twice as many tasks as pieces, because pieces are distributed by hash.
        survivors = newest.union(no_position).repartition(min(2 * count, MOST_TASKS), "piece")
        job = survivors.sortWithinPartitions("piece", "position").mapInArrow(keep_newest, OUTCOME)
        # Every record is read twice: to find the newest of each key, and to copy it.
        work.reporter.start(2 * shares.file.total("entries"), None, "compact")
        totals = Totals()
        with work.task_progress(keep_newest.folder).watched(work.reporter.update), task_errors():
            totals.add(job.collect())
        return totals

    def manifest(self, draft: CompactDraft, totals: Totals) -> Manifest:
        source, topics, parent = self.workspace.source, self.batch.topics, draft.parent
        identity: dict[str, Any] = {"backup_id": draft.backup_id, "source": source}
        end_ts = topics[0].end_ts
        backup = backup_row(
            self.workspace,
            draft,
            totals,
            parent,
            kind="differential",
            level=1,
            start_ts=min(parent.end_ts, end_ts),
            end_ts=end_ts,
            isolation=parent.isolation,
            codec=self.request.codec,
            note=self.request.note or f"compaction of {topics[0].backup_id}",
        )
        selection: dict[str, Any] = {"source": source, "scopes": self.batch.scopes}
        positions = self.reader.rows("compact_positions", **selection)
        groups = self.reader.rows("compact_groups", backup_id=topics[0].backup_id, **selection)
        # The result has the gaps of the compacted backups.
        epochs = {topic.scope: topic.epoch for topic in topics}
        gaps = self.reader.rows("restore_gaps", to_ts=None, **selection)
        return Manifest(
            backup=backup,
            positions=[Position(**identity, **row) for row in positions],
            scopes=[topic.row(**identity) for topic in topics],
            gaps=[Gap(**identity, epoch=epochs[row["scope"]], bridged=True, **row) for row in gaps],
            groups=[Group(**identity, **row) for row in groups],
            parts=draft.pieces,
        )

    def discard(self, draft: CompactDraft) -> int:  # noqa: ARG002
        """Nothing to delete: called only when the pieces could not be written."""
        return 0

    def finish(self, draft: CompactDraft) -> None:
        clear(self.workspace.storage, self.folder(draft))

    def result(self, draft: CompactDraft, backup: Backup) -> dict[str, Any]:  # noqa: ARG002
        kept_totals = {f"kept_{name}": getattr(backup, name) for name in ("files", "bytes", "entries")}
        return {"backup_id": backup.backup_id, **kept_totals}


def _plan(request: CompactRequest, reader: CatalogReader, source: str) -> CompactPlan:
    """Plan the compaction. Writes nothing to the repository."""
    latest = reader.first_row("latest_backup", source=source, level=None)
    plan = plan_compaction(
        reader.rows("compact_points", source=source),
        read_generations(reader, source, pick(Parent, latest) if latest else None),
        names=request.topics,
        expressions=request.patterns,
        all_keyed=request.all_keyed,
    )
    batches = (replace(batch, file=_files(reader, source, batch.scopes)) for batch in plan.batches)
    return replace(plan, batches=tuple(batches))


def _files(reader: CatalogReader, source: str, scopes: str) -> PlanFile:
    """The files of the newest restore points of some topics (names separated by commas)."""
    parameters: dict[str, Any] = {"source": source, "scopes": scopes, "to_ts": None}
    (bounds,) = reader.rows("restore_range", **parameters)
    selection = reader.with_query("selected", "restore_files", **parameters, **bounds, from_ts=None)
    return selection.plan_file("selected_files")


def _summary(plan: CompactPlan) -> dict[str, Any]:
    return {
        "files": sum(batch.file.rows for batch in plan.batches),
        **{name: sum(batch.file.total(name) for batch in plan.batches) for name in ("bytes", "entries")},
        "topics": [
            {"topic": topic.scope, **{name: getattr(topic, name) for name in _TOPIC_COLUMNS}}
            for topic in plan.topics
        ],
        "left_out": [{"topic": scope, "because": reason} for scope, reason in plan.skipped_topics.items()],
    }
