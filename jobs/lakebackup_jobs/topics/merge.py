"""Make one backup of a lower level out of several that follow one another, from their files alone.

What comes of it is a backup like any other: it ends at the positions and at the instant of the last one
merged and takes its place. Those it was made from stay until a prune. A merge that is cut off leaves them as
they were; run again, it goes on with what is there.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from lakebackup.errors import Damaged, Refused
from lakebackup.plan.topics.generations import Held
from lakebackup.plan.topics.merge import Member, MergePlan, choose, targets, with_topics
from lakebackup.plan.topics.request import only_source, require_own
from lakebackup.rows.backups import Backup, Gap, Position
from lakebackup.rows.base import pick
from lakebackup.rows.topics import Group
from lakebackup.rules import layout, topic_settings
from lakebackup.rules.retention import roll_ms
from lakebackup.sql_engine.failures import task_errors
from lakebackup.storage import Storage, open_storage
from lakebackup.store import manifest as sidecar
from lakebackup.store import tombstones
from lakebackup.store.behind import current_catalog
from lakebackup.store.lease import Lease
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.kafka.format.registry import SCHEMAS_TOPIC
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.lifecycle.numbers import latest_number, next_sequences
from lakebackup_jobs.lifecycle.task_progress import TaskBoard
from lakebackup_jobs.lifecycle.task_totals import Totals
from lakebackup_jobs.topics import compact_splits as pieces
from lakebackup_jobs.topics.tasks.merge import MergedFile, deal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakebackup_jobs.lifecycle.progress import Reporter

# More tasks than this share Spark's.
MOST_TASKS = 2_000


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """What a person asked for: backups of `level` become one of the level below.

    `until`: the last backup to look at, by the beginning of its id; `to_ts` (ms): those that end by then.
    """

    destination: str
    level: int
    catalog: str | None = None
    source: str | None = None
    until: str | None = None
    to_ts: int | None = None
    drop_gone: bool = False
    target_bytes: int = 128 << 20
    schema_topics: tuple[str, ...] = (SCHEMAS_TOPIC,)
    dry_run: bool = False
    lease_ttl_s: float = 60.0
    note: str | None = None
    remote: str | None = None


@dataclass(frozen=True, slots=True)
class _Begun:
    """A merge that is at work, as `merge.json` has it; `asked` tells whether it is the one that is wanted."""

    backup_id: str
    number: int
    started_at: int
    tasks: int
    asked: str


_BEGUN = TypeAdapter(_Begun)


def run(request: MergeRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Merge; returns what a person wants to know of it. Nothing to merge is no error.

    Raises NotFound (no catalog, no such backup), UsageProblem (level 0), Refused (the last backup lacks
    topics, or its tombstones are in doubt), Damaged (a file is not what the catalog says; no backup was
    made), Busy (another run on the source), EnvironmentProblem.
    """
    reader = current_catalog(request.destination, request.catalog)
    source = layout.check_source(only_source(reader, request.source))
    if request.dry_run:
        return {"dry_run": True, **_summary(request, source, _plan(request, reader, source))}
    storage = open_storage(request.destination)
    with Lease.acquire(storage, f"source-{source}", holder(), ttl_s=request.lease_ttl_s) as lease:
        return _Run(request, source, storage, lease, spark, reporter).merge()


class _Run:
    """One merge on its way."""

    def __init__(
        self,
        request: MergeRequest,
        source: str,
        storage: Storage,
        lease: Lease,
        spark: SparkSession | None,
        reporter: Reporter,
    ) -> None:
        self.request, self.source, self.storage = request, source, storage
        self.lease, self.given_spark, self.reporter = lease, spark, reporter
        self.reader = CatalogReader(request.destination, request.catalog)

    def merge(self) -> dict[str, Any]:
        from lakebackup_jobs.runtime.session import spark_session

        started = datetime.now(UTC)
        begun = self._begun()
        if begun and self.reader.rows("merge_path", backup_id=begun.backup_id):
            self._finish(begun)  # only its marker may be missing
            begun = None
        plan = _plan(self.request, self.reader, self.source)
        made, resumed = None, False
        if plan is not None:
            if self.request.until and plan.parent:
                tombstones.require_staying(self.storage, self.source, plan.parent.backup_id)
            if plan.without:
                self.reporter.warning(
                    f"left out, since the last backup lacks them: {', '.join(plan.without)}"
                )
            spark = self.given_spark or spark_session(remote=self.request.remote)
            resumed, begun = self._go_on(begun, plan)
            made = self._make(spark, plan, begun)
        return {
            "backup_id": made.backup_id if made else None,
            **_summary(self.request, self.source, plan),
            **({"made_files": made.files, "made_bytes": made.bytes, "resumed": resumed} if made else {}),
            "seconds": round((datetime.now(UTC) - started).total_seconds(), 3),
        }

    def _begun(self) -> _Begun | None:
        return sidecar.get_record(self.storage, layout.merge_path(self.source), _BEGUN)

    def _go_on(self, begun: _Begun | None, plan: MergePlan) -> tuple[bool, _Begun]:
        """Whether it is the merge that was cut off, or else a new one, its tasks written down."""
        asked = self._asked(plan)
        number = latest_number(self.reader, self.source) + 1
        if begun and (begun.asked, begun.number) == (asked, number):
            self.reporter.note(f"going on with merge {begun.backup_id}, which did not finish")
            return True, begun
        if begun:
            self.lease.renew()
            pieces.clear(self.storage, layout.backup_folder(self.source, begun.backup_id))
        now = datetime.now(UTC)
        backup_id = layout.new_backup_id(now)
        rolls = {topic.scope: roll_ms(topic_settings.in_force(topic.settings), None) for topic in plan.topics}
        made = targets(self._files(plan), self.request.target_bytes, rolls)
        tasks = deal(self.storage, layout.backup_folder(self.source, backup_id), made)
        begun = _Begun(backup_id, number, micros(now), tasks, asked)
        content: dict[str, object] = {"format": layout.FORMAT}
        content |= {name: getattr(begun, name) for name in _Begun.__match_args__}
        sidecar.put_sealed(self.storage, layout.merge_path(self.source), content)
        return False, begun

    def _asked(self, plan: MergePlan) -> str:
        """What makes two merges the same: what is merged, as it is now, and into what."""
        told = [
            [member.backup_id for member in plan.members], plan.level, plan.kind, self.request.target_bytes,
            [[getattr(topic, name) for name in topic.__match_args__] for topic in plan.topics],
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def _files(self, plan: MergePlan) -> Iterator[MergedFile]:
        for batch in self.reader.query("merge_files", **self._of(plan)):
            for row in batch.to_pylist():
                yield MergedFile(**row)

    def _of(self, plan: MergePlan) -> dict[str, str]:
        return {"source": self.source, "last": plan.last.backup_id}

    def _make(self, spark: SparkSession, plan: MergePlan, begun: _Begun) -> Backup:
        totals = self._copy(spark, plan, begun)
        writer = CatalogWriter.open(spark, self.request.destination, self.request.catalog)
        self._decode(writer, plan, begun)
        manifest = self._manifest(plan, begun, totals)
        self.lease.renew()
        sidecar.write_manifest(self.storage, layout.manifest_path(self.source, begun.backup_id), manifest)
        writer.commit_backup(self.storage, manifest, held=self.lease)
        self._finish(begun)
        return manifest.backup

    def _copy(self, spark: SparkSession, plan: MergePlan, begun: _Begun) -> Totals:
        from lakebackup_jobs.lifecycle.task_totals import OUTCOME
        from lakebackup_jobs.topics.tasks.merge import Merge

        totals = Totals()
        if not begun.tasks:
            return totals
        folder = layout.backup_folder(self.source, begun.backup_id)
        job = Merge(
            uri=self.storage.uri,
            folder=folder,
            roots=self.reader.destinations(),
            destination=destination_id(self.storage),
            source=self.source,
            backup_id=begun.backup_id,
            number=begun.number,
            level=plan.level,
            parent=plan.parent.backup_id if plan.parent else None,
            sequences=next_sequences(self.reader, self.source, plan.topics),
        )
        expected = sum(topic.entries for topic in plan.topics)
        self.reporter.start(expected, sum(topic.bytes for topic in plan.topics), "merge")
        numbers = spark.range(0, begun.tasks, 1, min(begun.tasks, MOST_TASKS))
        try:
            with TaskBoard(self.storage, folder).watched(self.reporter.update), task_errors():
                totals.add(numbers.mapInArrow(job, OUTCOME).collect())  # one row a task
        except Damaged:  # also: what a run that was cut off had written is gone
            self.storage.delete(layout.merge_path(self.source))
            raise
        self.reporter.update(totals.entries, totals.bytes)
        if totals.entries != expected:
            raise Refused(
                f"What was merged holds {totals.entries} records, its backups hold {expected}: they changed "
                "meanwhile. Nothing was merged.",
                hint="Run it again.",
            )
        return totals

    def _decode(self, writer: CatalogWriter, plan: MergePlan, begun: _Begun) -> None:
        """Rows that are read out of data files go with these, so the new ones get their own."""
        from lakebackup_jobs.topics.tasks.decode import decode_backup, decoded_topics

        every = [layout.parts_path(self.source, begun.backup_id, task) for task in range(begun.tasks)]
        known = frozenset[str]().union(*decoded_topics(self.request.schema_topics).values())
        parts = {topic.scope: every for topic in plan.topics if topic.scope in known}
        root = (destination_id(self.storage), self.storage.uri)
        decode_backup(writer, begun.backup_id, root, parts, self.request.schema_topics)

    def _manifest(self, plan: MergePlan, begun: _Begun, totals: Totals) -> sidecar.Manifest:
        of: dict[str, Any] = {"backup_id": begun.backup_id, "source": self.source}
        scopes = ",".join(topic.scope for topic in plan.topics)
        return sidecar.Manifest(
            backup=self._backup(plan, begun, totals),
            positions=[
                Position(**of, **row) for row in self.reader.rows("merge_positions", **self._of(plan))
            ],
            scopes=[topic.row(**of) for topic in plan.topics],
            gaps=[Gap(**of, **row) for row in self.reader.rows("merge_gaps", **self._of(plan))],
            groups=[
                Group(**of, **row)
                for row in self.reader.rows(
                    "compact_groups", source=self.source, backup_id=plan.last.backup_id, scopes=scopes
                )
            ],
            parts=begun.tasks,
        )

    def _backup(self, plan: MergePlan, begun: _Begun, totals: Totals) -> Backup:
        first, last, parent = plan.members[0], plan.last, plan.parent
        merged = f"merge of {len(plan.members)} backups, {first.backup_id} to {last.backup_id}"
        return Backup(
            backup_id=begun.backup_id,
            number=begun.number,
            source=self.source,
            destination=destination_id(self.storage),
            kind=plan.kind,
            level=plan.level,
            parent=parent.backup_id if parent else None,
            base=parent.base if parent else begun.backup_id,
            chain_position=parent.chain_position + 1 if parent else 0,
            place=last.place,
            parent_place=parent.place if parent else None,
            branch=last.branch if parent else 0,
            start_ts=parent.end_ts if parent else None,
            end_ts=last.end_ts,
            started_at=begun.started_at,
            **totals.columns(),
            isolation=last.isolation,
            codec=last.codec,
            note=self.request.note or merged,
        )

    def _finish(self, begun: _Begun) -> None:
        """What follows the row of `backups`; again and again."""
        folder = layout.backup_folder(self.source, begun.backup_id)
        sidecar.mark(self.storage, layout.marker_path(self.source, begun.backup_id, "complete"))
        pieces.clear(self.storage, folder)
        self.storage.delete(layout.merge_path(self.source))


def _plan(request: MergeRequest, reader: CatalogReader, source: str) -> MergePlan | None:
    """What is merged, None when there is nothing; afterwards the reader has the relation `to_merge`."""
    import pyarrow as pa

    require_own(source, [row["source_kind"] for row in reader.rows("source_kinds", source=source)])
    if request.until is None:
        newest = reader.one("latest_backup", source=source, level=None)
        tip = newest["backup_id"] if newest else ""
    else:
        tip = reader.resolve_backup(request.until)
    rows = reader.rows("merge_path", backup_id=tip)
    if request.until is not None:
        _require_whole(tip, source, rows)
        _require_in_line(tip, request.level, reader)
    path = [pick(Member, row) for row in rows]
    plan = choose(request.level, path, request.to_ts)
    if plan is None:
        return None
    reader.give("to_merge", pa.table({"backup_id": [member.backup_id for member in plan.members]}))
    of = {"source": source, "last": plan.last.backup_id}
    held = reader.rows("generations", source=source, base=plan.last.base, link=plan.last.link)
    return with_topics(
        plan,
        reader.rows("merge_scopes", **of),
        [Held(**row) for row in held],
        drop_gone=request.drop_gone,
    )


def _require_whole(backup_id: str, source: str, path: Sequence[Mapping[str, Any]]) -> None:
    *_, last = path or [{"backup_id": None, "source": None, "intact": False}]
    if (last["backup_id"], last["source"], last["intact"]) != (backup_id, source, True):
        raise Refused(
            f"Backup {backup_id} is none of {source} that can be restored: nothing can be merged up to it.",
            hint="`SELECT * FROM unusable_backups` says why.",
        )


def _require_in_line(backup_id: str, level: int, reader: CatalogReader) -> None:
    """A merge comes in place of its members for all behind them, also for one that stands on some of them."""
    found = reader.one("parent_backup", backup_id=backup_id)
    if level > 1 and found and found["reason"] == "aside":
        raise Refused(
            f"Later backups of its chain do not stand on backup {backup_id}, but on an earlier one in its "
            "place: what they need would not be there any more.",
            hint="Leave --until out, or `lakebackup merge 1` up to it: that makes a full of its own.",
        )


def _summary(request: MergeRequest, source: str, plan: MergePlan | None) -> dict[str, Any]:
    topics = plan.topics if plan else ()
    return {
        "source": source,
        "level": request.level,
        "kind": plan.kind if plan else None,
        "parent": plan.parent.backup_id if plan and plan.parent else None,
        "merged": [
            {"backup_id": m.backup_id, "kind": m.kind, "level": m.level, "end_ts": m.end_ts}
            for m in (plan.members if plan else ())
        ],
        "topics": len(topics),
        **{name: sum(getattr(t, name) for t in topics) for name in ("files", "bytes", "entries")},
        "older_files": plan.older if plan else 0,
        "left_out": list(plan.without) if plan else [],
        "because": None if plan else f"no two backups of level {request.level} follow one another",
    }
