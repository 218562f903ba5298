"""Carry out the restore of an engine: its snapshot, its configuration, a watermark, its queues' messages.

All that is going to be done is put down before anything is written, so that a restore that was cut off goes
on with the same backups, the same messages and the same watermark, and nothing is there twice.
"""

from __future__ import annotations

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakebackup import layout
from lakebackup.engine.failures import task_errors
from lakebackup.errors import Damaged, LakebackupError, Refused, UsageProblem
from lakebackup.lease import Lease
from lakebackup.model import QueueRestore
from lakebackup.plan.restore_queue import plan_restore, require_restorable
from lakebackup.plan.restore_snapshot import SnapshotRestoreRequest
from lakebackup.queues import schema_history
from lakebackup.queues.watermark import Watermark, headers_of
from lakebackup.storage import open_storage
from lakebackup.store import CatalogReader, CatalogWriter
from lakebackup.times import format_ts
from lakebackup_jobs import restore_snapshot
from lakebackup_jobs.identity import holder, micros
from lakebackup_jobs.outcome import RESTORED, raise_first
from lakebackup_jobs.queues import prepared as kept
from lakebackup_jobs.queues.engine_folder import EngineFolder
from lakebackup_jobs.queues.prepared import Done, Prepared
from lakebackup_jobs.queues.replay_task import QueueReplayJob, WatermarkMessage
from lakebackup_jobs.queues.restore_shares import Partition, deal, found
from lakebackup_jobs.queues.scan_task import Known, OpenAt, tid_at, write_ids
from lakebackup_jobs.restoring import RestoreLog, refuse_pruned_meanwhile, unfinished
from lakebackup_jobs.targets import RegionOutcome
from lakebackup_jobs.targets.topics import Topics, group_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from lakebackup.plan.restore_queue import ConfigFile, Queue, QueueRestorePlan, QueueRestoreRequest
    from lakebackup.storage import Storage
    from lakebackup_jobs.progress import Reporter
    from lakebackup_jobs.queues.restore_shares import QueueShares

# So many stored bytes are read by threads of this process, before Spark's tasks would have begun.
LITTLE = 256 << 20
_AT_ONCE = 8


def run(
    request: QueueRestoreRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> dict[str, Any]:
    """Restore an engine; returns what a person wants to know of it.

    Raises NotFound, Refused (a point that is not covered, damaged or missing files, a folder or topics that
    hold something already), Damaged (a file that is not what the catalog says, found before any of it
    becomes visible), Busy, EnvironmentProblem.
    """
    run = _Run(request, spark, reporter)
    if request.dry_run:
        return run.foresee()
    storage, name = open_storage(request.destination), f"restore-{request.digest()}"
    with Lease.acquire(storage, name, holder(), ttl_s=request.lease_ttl_s):
        return run.carry_out(storage)


class _Run:
    """One run on its way."""

    def __init__(self, request: QueueRestoreRequest, spark: SparkSession | None, reporter: Reporter) -> None:
        scheme, _, servers = request.target.partition("://")
        if scheme != "kafka" or not servers:
            raise UsageProblem(
                f"{request.target!r} is no place messages can be restored to.",
                hint="Give --to kafka://HOST:PORT.",
            )
        if request.settings not in ("auto", "saved", "suspended"):
            raise UsageProblem(f"--settings {request.settings!r}: use auto, saved or suspended.")
        self.request, self.reporter, self._spark = request, reporter, spark
        self._client = {**request.kafka, "bootstrap.servers": servers}
        self._topics = Topics(self._client)
        self._reader = CatalogReader.require(request.destination, request.catalog)
        self._folder = EngineFolder(request.folder)

    def foresee(self) -> dict[str, Any]:
        """What would be done; nothing is written."""
        made = self._plan()
        there = set(self._topics.topic_names())
        return {
            "dry_run": True,
            **_summary(made),
            "queues": [
                {
                    **_queue(queue),
                    "action": "write into" if queue.target in there else "create",
                    "refused_because": self._misfit(queue, there),
                }
                for queue in made.queues
            ],
            "obstacles": list(made.obstacles),
            "refused_because": self._folder.taken(),
            "selection": made.selection,
            "parameters": dict(made.parameters),
        }

    def carry_out(self, storage: Storage) -> dict[str, Any]:
        """All of it, from where an earlier run was cut off."""
        started = time.monotonic()
        resumed = unfinished(self._reader, self.request.digest())
        restore_id = resumed or layout.new_backup_id(datetime.now(UTC))
        made = self._begun(storage, resumed) if resumed else None
        writer = CatalogWriter.open(None, self.request.destination, self.request.catalog)
        plan = None if made else self._checked(restore_id)
        log = self._log(writer, restore_id, made or plan)
        log.row("running")
        try:
            if made is None and plan is not None:
                refuse_pruned_meanwhile(
                    self.request.destination, self.request.catalog, plan.source, self._reader
                )
                made = self._prepare(storage, restore_id, plan)
            assert made is not None  # noqa: S101 - one of both is there
            outcomes, done, notes = self._do(storage, restore_id, made)
        except LakebackupError as error:
            log.row("failed", problem=error.message)
            raise
        writer.tell_once(_rows(restore_id, made, done), f"queue-restore-{restore_id}")
        self._folder.finish()
        log.finish(outcomes)
        self._topics.delete_group(group_of(restore_id))
        kept.clear(storage, restore_id)
        for note in notes:
            self.reporter.warning(note)
        return {
            "restore_id": restore_id,
            "resumed": resumed is not None,
            **_told(made),
            "entries": sum(outcome.entries for outcome in outcomes),
            "seconds": round(time.monotonic() - started, 3),
        }

    # --- before anything is written

    def _plan(self) -> QueueRestorePlan:
        request = self.request
        made = plan_restore(
            request, self._reader, lambda _: tid_at(self._reader, request.to_ts or 0, request.names)
        )
        for note in made.notes:
            self.reporter.note(note)
        return made

    def _begun(self, storage: Storage, restore_id: str) -> Prepared | None:
        """What a restore that did not finish was to do; None when it begins anew: what it had written is
        gone, or it had written nothing."""
        made = kept.read(storage, restore_id)
        if made is None:
            return None
        there = set(self._topics.topic_names()) & made.epochs.keys()
        epochs = {state.scope: state.epoch for state in self._topics.describe(there)}
        own = self._folder.is_own(restore_id) or kept.read_done(storage, restore_id) is not None
        if own and epochs == made.epochs:
            self.reporter.note(f"going on with restore {restore_id}, which did not finish")
            return made
        self.reporter.note(
            f"what restore {restore_id}, which did not finish, had written is gone: it begins anew"
        )
        self._topics.delete_group(group_of(restore_id))
        kept.clear(storage, restore_id)
        return None

    def _checked(self, restore_id: str) -> QueueRestorePlan:
        """A plan that can be carried out. Raises Refused."""
        made = self._plan()
        require_restorable(made)
        if why := self._folder.taken(restore_id):
            raise Refused(f"{why}.", hint="Give --into a folder that is empty or not there.")
        there = set(self._topics.topic_names())
        if misfits := [why for queue in made.queues if (why := self._misfit(queue, there))]:
            raise Refused(
                "; ".join(misfits) + ".",
                hint="Restore into other topics with --map a=b; --append puts the watermark and the messages "
                "behind what the engine's own queues hold.",
            )
        return made

    def _misfit(self, queue: Queue, there: Collection[str]) -> str | None:
        topic = queue.target
        if (why := self._topics.misfit(topic)) or topic not in there:
            return why
        (state,) = self._topics.describe([topic])
        if state.regions < queue.regions or (state.regions > queue.regions and not self.request.append):
            return f"topic {topic} has {state.regions} partitions, the backup {queue.regions}"
        held = 0 if self.request.append else self._topics.held(topic)
        return f"topic {topic} holds messages already ({held} offsets)" if held else None

    def _prepare(self, storage: Storage, restore_id: str, plan: QueueRestorePlan) -> Prepared:
        """Take the folder, make the topics, find out what is left out, and put all that down."""
        self._folder.begin(restore_id)
        there = set(self._topics.topic_names())
        for queue in plan.queues:
            self._topics.make_ready(
                queue.target,
                regions=queue.regions,
                replication=queue.replication,
                settings=queue.settings,
                there=queue.target in there,
            )
        states = {state.scope: state for state in self._topics.describe([q.target for q in plan.queues])}
        bases = self._ends({state.scope: state.regions for state in states.values()})
        folder = kept.folder_of(restore_id)
        segments = plan.way.segments()
        leave_out, count = self._left_out(storage, folder, plan)
        deal(storage, self._reader, folder, _partitions(plan.queues, bases))
        made = Prepared(
            source=plan.source,
            selection=plan.selection,
            full_id=plan.way.full.backup_id,
            snapshot_id=plan.way.full.snapshot_id or "",
            backup_id=plan.reached.backup_id,
            whole=plan.whole,
            first_tid=plan.way.full.last_tid,
            to_tid=plan.to_tid,
            upto_tid=plan.upto_tid,
            to_ts=plan.to_ts,
            stamp=time.time_ns() // 1_000_000,
            cluster=self._topics.cluster_id(),
            queues=list(plan.queues),
            epochs={scope: state.epoch for scope, state in states.items()},
            bases=bases,
            config=list(plan.config),
            segments={link.link: segment for link, segment in zip(plan.way.links, segments, strict=True)},
            leave_out=leave_out,
            open_transactions=count,
        )
        kept.write(storage, restore_id, made)
        return made

    def _left_out(
        self, storage: Storage, folder: str, plan: QueueRestorePlan
    ) -> tuple[list[str | None], int]:
        """For each stretch between two restores of the engine the object that names the transactions that
        did not end in it, and how many are open at the end of all."""
        links, segments = plan.way.links, plan.way.segments()
        paths: list[str | None] = []
        count = 0
        for segment in range(segments[-1] + 1):
            path = f"{folder}open/{segment:06d}.parquet"
            last = max(place for place, of in enumerate(segments) if of == segment)
            if segment < segments[-1] or (plan.upto_tid is None and not self.request.keep_open):
                count = write_ids(
                    self._reader, storage.uri, path, "queue_carried", backup_id=links[last].backup_id
                )
            elif self.request.keep_open:
                count = 0
            else:
                count = self._open_at(storage, folder, plan).write(
                    path, plan.upto_tid or 0, _known(plan, segment)
                )
            paths.append(path if count else None)
        return paths, count

    def _open_at(self, storage: Storage, folder: str, plan: QueueRestorePlan) -> OpenAt:
        return OpenAt(
            self._reader,
            self._session(plan.bytes),
            storage.uri,
            f"{folder}scan/",
            self.request.names,
            plan.parameters,
        )

    # --- in order: snapshot, configuration, watermark and messages

    def _do(
        self, storage: Storage, restore_id: str, made: Prepared
    ) -> tuple[list[RegionOutcome], Done, list[str]]:
        self._snapshot(restore_id, made)
        for file in made.config:
            self._put(file, made)
        rows = self._replay(storage, restore_id, made)
        notes = [
            note
            for queue in made.queues
            if (
                note := self._topics.settle(queue.target, queue.settings, queue.min_ts, self.request.settings)
            )
        ]
        notes += self._topics.hidden(made.bases)
        done = kept.read_done(storage, restore_id)
        if done is None:
            ends = self._ends({topic: len(bases) for topic, bases in made.bases.items()})
            done = Done(micros(datetime.now(UTC)), ends)
            kept.write_done(storage, restore_id, done)
        outcomes = [
            RegionOutcome(
                row["scope"],
                row["region"],
                row["entries"],
                row["bytes"],
                done.ends[row["scope"]][int(row["region"])],
            )
            for row in rows
        ]
        return outcomes, done, notes

    def _snapshot(self, restore_id: str, made: Prepared) -> None:
        if self._folder.has_snapshot(restore_id):
            return
        request = SnapshotRestoreRequest(
            destination=self.request.destination,
            folder=str(self._folder.snapshot_being(restore_id)),
            catalog=self.request.catalog,
            source=layout.snapshot_source(made.source),
            backup=made.snapshot_id,
            form="flat",
            remote=self.request.remote,
        )
        restore_snapshot.run(request, spark=self._spark, reporter=self.reporter)
        if not self._folder.has_snapshot(restore_id):
            raise Damaged(
                f"The snapshot of full {made.full_id} holds no file.",
                hint="Choose another full with --backup.",
            )

    def _put(self, file: ConfigFile, made: Prepared) -> None:
        root = self._reader.destinations()[file.destination]
        content = open_storage(root).get(file.path)
        if len(content) != file.bytes or hashlib.sha256(content).hexdigest() != file.sha256:
            raise Damaged(
                f"{file.path} is not what was written (size or sha256).",
                hint="Bring the file back from a copy of the destination, or choose another backup.",
            )
        if file.role == "schema" and made.upto_tid is not None:
            content = schema_history.cut(content, made.upto_tid, file.path)
        self._folder.put(file.path.rpartition("/")[2], content)

    def _replay(self, storage: Storage, restore_id: str, made: Prepared) -> list[dict[str, Any]]:
        shares = found(storage, kept.folder_of(restore_id))
        if shares is None:
            raise Damaged(
                f"The plan of restore {restore_id} is gone from {storage.uri}.",
                hint="Restore into other topics and another folder.",
            )
        watermark = Watermark(
            made.source, made.full_id, made.backup_id, restore_id, made.first_tid, made.to_tid
        )
        job = QueueReplayJob(
            roots=dict(self._reader.destinations()),
            shares=shares,
            group=group_of(restore_id),
            client=self._client,
            names=self.request.names,
            watermark=WatermarkMessage(watermark.value, tuple(headers_of(self.request.names)), made.stamp),
            upto_tid=made.upto_tid,
            segments=made.segments,
            leave_out=tuple(made.leave_out),
            zero_as_one=self.request.zero_as_one,
        )
        self.reporter.start(made.entries, made.bytes, "restore")
        with shares.board().watched(self.reporter.update):
            rows = _replayed(job, shares, self._session(made.bytes))
        self.reporter.update(made.entries, made.bytes)
        return rows

    def _session(self, size: int) -> SparkSession | None:
        """A session where there is so much to read that it is worth one."""
        if size <= LITTLE:
            return None
        if self._spark is None:
            from lakebackup_jobs.session import spark_session

            self._spark = spark_session(remote=self.request.remote)
        return self._spark

    def _ends(self, topics: Mapping[str, int]) -> dict[str, list[int]]:
        """Of each topic, with so many partitions, where they end."""
        places = [(topic, partition) for topic, count in topics.items() for partition in range(count)]
        ends = self._topics.ends(places)
        return {
            topic: [ends[topic, partition].high for partition in range(count)]
            for topic, count in topics.items()
        }

    def _log(
        self, writer: CatalogWriter, restore_id: str, made: Prepared | QueueRestorePlan | None
    ) -> RestoreLog:
        assert made is not None  # noqa: S101 - one of both is there
        detail = {"digest": self.request.digest(), "folder": str(self._folder.folder)}
        return RestoreLog(writer, restore_id, made, self.request.target, detail)


def _replayed(job: QueueReplayJob, shares: QueueShares, spark: SparkSession | None) -> list[dict[str, Any]]:
    """Carry out all shares; rows as of RESTORED."""
    if spark is None:
        with ThreadPoolExecutor(min(_AT_ONCE, 4 * (os.cpu_count() or 2))) as pool:
            try:
                return [row for rows in pool.map(job.run, range(len(shares.tasks))) for row in rows]
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    with task_errors():
        rows = shares.frame(spark).mapInArrow(job, RESTORED).collect()  # one row a partition
    raise_first(row.error for row in rows)
    return [row.asDict() for row in rows]


def _known(plan: QueueRestorePlan, segment: int) -> Known:
    """What is known of transactions at the last backup whose end lies before the plan's tid."""
    links, segments = plan.way.links, plan.way.segments()
    # Behind a restore of the engine nothing is open.
    place = max(plan.done_by, segments.index(segment) - 1)
    behind = links[place + 1] if place + 1 < len(links) else None
    return Known(
        open_at=links[place].backup_id if segments[place] == segment else None,
        link=links[place].link,
        last_tid=links[place].last_tid,
        next_link=behind.link if behind else None,
    )


def _partitions(queues: Sequence[Queue], bases: Mapping[str, Sequence[int]]) -> Iterator[Partition]:
    """Those of the topics that are written into; they may have got more since the backup."""
    for queue in queues:
        for partition in range(len(bases[queue.target])):
            yield Partition(queue.scope, queue.epoch, str(partition), queue.target)


def _rows(restore_id: str, made: Prepared, done: Done) -> list[QueueRestore]:
    """What the next backup of these queues goes on from."""
    return [
        QueueRestore(
            restore_id=restore_id,
            at=done.at,
            actor=holder(),
            source=made.source,
            backup_id=made.backup_id,
            full_id=made.full_id,
            whole=made.whole,
            last_tid=made.to_tid,
            cluster=made.cluster,
            scope=topic,
            epoch=made.epochs[topic],
            region=str(partition),
            base_position=base,
            end_position=done.ends[topic][partition],
        )
        for topic, bases in made.bases.items()
        for partition, base in enumerate(bases)
    ]


def _summary(made: QueueRestorePlan) -> dict[str, Any]:
    return {
        "source": made.source,
        "full": made.way.full.backup_id,
        "snapshot": made.way.full.snapshot_id,
        "backups": [link.backup_id for link in made.way.links],
        "backup_id": made.reached.backup_id,
        "whole": made.whole,
        "first_tid": made.way.full.last_tid,
        "to_tid": made.to_tid,
        "to_time": format_ts(made.to_ts) if made.to_ts is not None else None,
        "files": made.files,
        "bytes": made.bytes,
        "entries_in_files": made.entries,
        "config": [file.path.rpartition("/")[2] for file in made.config],
    }


def _told(made: Prepared) -> dict[str, Any]:
    return {
        "source": made.source,
        "full": made.full_id,
        "snapshot": made.snapshot_id,
        "backup_id": made.backup_id,
        "whole": made.whole,
        "first_tid": made.first_tid,
        "to_tid": made.to_tid,
        "to_time": format_ts(made.to_ts) if made.to_ts is not None else None,
        "open_transactions": made.open_transactions,
        "bytes": made.bytes,
        "queues": [_queue(queue) for queue in made.queues],
    }


def _queue(queue: Queue) -> dict[str, Any]:
    return {
        "queue": queue.scope,
        "target": queue.target,
        "partitions": queue.regions,
        "files": queue.files,
        "bytes": queue.bytes,
        "entries_in_files": queue.entries,
    }


def main(argv: Sequence[str] | None = None, spark: SparkSession | None = None) -> int:
    """As a program for spark-submit: the arguments of `lakebackup restore queue`."""
    from lakebackup_jobs.cli import run_verb

    return run_verb(["restore", "queue"], argv, spark=spark)


if __name__ == "__main__":
    raise SystemExit(main())
