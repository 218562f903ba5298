"""Compare storage and catalog in both directions, and keep what was found as rows.

Missing, changed and damaged files, orphans (objects that no backup names), sidecars without which a lost
catalog could not be rebuilt; then, if asked, every record decoded, or a trial restore into a temporary
folder.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from lakebackup.errors import Busy, Damaged, LakebackupError, NotFound, Refused
from lakebackup.formats.logs.cipher import LogKeys
from lakebackup.plan.logs.restore import LogRestoreRequest
from lakebackup.plan.snapshots.restore import SnapshotRestoreRequest
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.requests import Request
from lakebackup.rows.base import CHANGES, QUEUES, SNAPSHOT
from lakebackup.rows.tables import spark_columns
from lakebackup.rows.upkeep import Check
from lakebackup.rules import layout
from lakebackup.store import tombstones
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.scratch import findings
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.splits import MOST_TASKS
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.logs.restore import job as log_restore
from lakebackup_jobs.queues.restore import trial as queue_trial
from lakebackup_jobs.snapshots import restore as restore_snapshot
from lakebackup_jobs.topics import restore as restore_topics
from lakebackup_jobs.upkeep.verify_task import CheckFiles, CheckKeys, CheckMembers, CheckSidecars, ListObjects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.storage import Storage
    from lakebackup.store.roots import Roots
    from lakebackup.store.writer import CatalogWriter
    from lakebackup_jobs.lifecycle.progress import Reporter

# An object this young may belong to a backup that has not committed yet.
GRACE_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class VerifyRequest(Request):
    """What to verify; no `backup_ids` means all backups.

    `keys_file`: the file of keys that log files are encrypted with.
    """

    backup_ids: tuple[str, ...] = ()
    mode: Literal["stat", "hash", "decode", "restore"] = "hash"
    grace_ms: int = GRACE_MS
    keys_file: str | None = None


def run(request: VerifyRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Check, and return the totals and the first findings.

    Raises NotFound (no catalog, no such backup, none that counts). Findings are no error here: the command
    line ends with the exit code of Damaged when there are any but orphans; see `require_whole`.
    """
    work = Workspace(request, "", reporter, spark)
    reader = work.current()
    ids = ",".join(_with_snapshots(reader, [reader.resolve_backup(part) for part in request.backup_ids]))
    if not reader.one("backups_to_check", backup_ids=ids):
        raise NotFound(
            f"There is nothing to verify: no backup in {reader.home.uri} counts.",
            hint="`lakebackup list` shows what there is, and the state of each.",
        )
    with findings(work) as (writer, recorded):
        return work.timed(_Check(request, ids, work, reader, writer, recorded).run())


class _Check:
    """One check on its way. `writer`: where its findings go, the catalog if they are `recorded` there."""

    def __init__(
        self,
        request: VerifyRequest,
        ids: str,
        work: Workspace,
        reader: CatalogReader,
        writer: CatalogWriter,
        recorded: bool,
    ) -> None:
        from lakebackup.sql_engine.spark import SparkEngine

        self.request, self.ids, self.spark, self.reader = request, ids, work.spark, reader
        self.writer, self.reporter, self.recorded = writer, work.reporter, recorded
        self.engine = SparkEngine(work.spark, reader.catalog_uri)
        now = datetime.now(UTC)
        self.check_id, self.at = layout.new_backup_id(now), micros(now)
        self.roots = reader.destinations()
        self.common = self.check_id, self.at, self.roots

    def run(self) -> dict[str, Any]:
        """Every requested check; the totals and the first findings."""
        request = self.request
        mode = "hash" if request.mode == "restore" else request.mode
        (totals,) = self.reader.rows("check_size", backup_ids=self.ids)
        self.reporter.start(totals["entries"], totals["bytes"], "verify")
        self._files(mode, totals)
        sidecars = CheckSidecars(*self.common)
        self._put(self.engine.query("backups_to_check", backup_ids=self.ids), sidecars, "sidecars")
        tasks = _tasks(totals["files"])
        filters = self._parts("key_filters_to_check", tasks, "keys_path", "keys_start")
        self._put(filters, CheckKeys(*self.common, mode != "stat"), "keys")
        if mode == "decode":
            packed = self._parts("pack_members_to_check", tasks, "path", "position")
            self._put(packed, CheckMembers(*self.common), "members")
        if not self.ids:
            self._find_orphans()
        if request.mode == "restore":
            self.writer.append(list(self._trials()))
        return self._summary()

    def _parts(self, query: str, tasks: int, path: str, position: str) -> DataFrame:
        """Parts of objects: those of an object in one task, in their order."""
        rows = self.engine.query(query, backup_ids=self.ids).repartition(tasks, "destination", path)
        return rows.sortWithinPartitions("destination", path, position)

    def _put(self, rows: DataFrame, job: Any, name: str) -> None:
        found = rows.mapInArrow(job, spark_columns("checks"))
        self.writer.append_frame("checks", found, f"{self.check_id}-{name}")

    def _files(self, mode: Literal["stat", "hash", "decode"], totals: Mapping[str, Any]) -> None:
        keys_file = self.request.keys_file
        log_keys = LogKeys.load(keys_file) if keys_file and mode == "decode" else None
        if mode == "decode" and totals["encrypted"] and log_keys is None:
            self.reporter.warning(
                f"{totals['encrypted']} files are encrypted and stay closed: name the file of their keys by "
                "LAKEBACKUP_LOG__KEYS_FILE, or keys_file under [log] in lakebackup.toml"
            )
        files = self.engine.query("files_to_check", backup_ids=self.ids).repartition(_tasks(totals["files"]))
        progress = TaskProgress(self.writer.home, f"checks/{self.check_id}/")
        job = CheckFiles(*self.common, mode, self.writer.home.uri, log_keys)
        with progress.watched(self.reporter.update):
            self._put(files, job, "files")

    def _summary(self) -> dict[str, Any]:
        found = CatalogReader(self.writer.home.uri, self.writer.catalog_uri)
        adds_up = list(found.rows("check_totals", check_id=self.check_id))
        outcomes = [row for row in adds_up if row["mode"] != "keys"]
        filters_lost = sum(
            row["objects"] for row in adds_up if row["mode"] == "keys" and row["outcome"] != "ok"
        )
        if filters_lost:
            self.reporter.warning(
                f"{filters_lost} objects with key filters are not whole: asking for a key reads more"
            )
        return {
            "check_id": self.check_id,
            "mode": self.request.mode,
            "objects": sum(row["objects"] for row in outcomes),
            **{
                outcome: sum(row["objects"] for row in outcomes if row["outcome"] == outcome)
                for outcome in ("ok", "missing", "changed", "damaged", "unconfirmed", "orphan")
            },
            "filters_lost": filters_lost,
            "findings": list(found.rows("check_findings", check_id=self.check_id)),
        }

    def _find_orphans(self) -> None:
        from pyspark.sql import functions as sf

        def of_queues(source: str) -> bool:
            kinds = {row["source_kind"] for row in self.engine.rows("source_kinds", source=source)}
            return not kinds or QUEUES in kinds

        storages = {name: self.roots.open(name) for name in _proved(self.roots, self.reporter)}
        folders = [
            (name, folder)
            for name, storage in storages.items()
            for folder in _data_folders(storage, of_queues)
        ]
        if not folders:
            return
        frame = self.spark.createDataFrame(folders, "destination STRING, folder STRING").repartition(
            _tasks(len(folders))
        )
        listing = ListObjects(*self.common)
        objects = frame.mapInArrow(listing, spark_columns("storage_objects"))
        self.writer.append_frame("storage_objects", objects, f"{self.check_id}-objects")
        if not self.recorded:
            seen = self.spark.read.format("delta").load(f"{self.writer.catalog_uri}/storage_objects")
            self.engine.replace("raw_storage_objects", seen)
        unfinished = [name for storage in storages.values() for name in tombstones.incomplete(storage)]
        orphans: DataFrame = self.engine.query(
            "find_orphans",
            check_id=self.check_id,
            before_ms=self.at // 1000 - self.request.grace_ms,
            unfinished=",".join(unfinished),
        )
        self.writer.append_frame(
            "checks",
            orphans.select(
                sf.lit(self.check_id).alias("check_id"),
                sf.lit(self.at).cast("BIGINT").alias("at"),
                sf.lit(None).cast("STRING").alias("backup_id"),
                "destination",
                "path",
                sf.lit("stat").alias("mode"),
                sf.lit("orphan").alias("outcome"),
                sf.concat("bytes", sf.lit(" bytes that no backup names")).alias("detail"),
            ),
            f"{self.check_id}-orphans",
        )

    def _trials(self) -> Iterator[Check]:
        """Restore the newest backup of each source (or the backups named) into a folder, and report how it
        went."""
        for row in self.reader.rows("trial_targets", backup_ids=self.ids):
            outcome: Literal["ok", "damaged"] = "ok"
            try:
                with tempfile.TemporaryDirectory(prefix="lakebackup-trial-") as folder:
                    detail = self._restored(row, folder)
            except Busy as busy:
                self.reporter.warning(f"no trial restore of backup {row['backup_id']}: {busy.message}")
                continue
            except LakebackupError as error:
                outcome, detail = "damaged", error.message
            yield Check(
                check_id=self.check_id,
                at=self.at,
                backup_id=row["backup_id"],
                destination=row["destination"],
                path=None,
                mode="restore",
                outcome=outcome,
                detail=detail,
            )

    def _restored(self, row: Mapping[str, Any], folder: str) -> str:
        """What a trial restore of a row of trial_targets brought back."""
        places: Any = {"destination": self.request.destination, "catalog": self.request.catalog}
        means: Any = {"spark": self.spark, "reporter": self.reporter}
        if row["source_kind"] == SNAPSHOT:
            whole = SnapshotRestoreRequest(**places, folder=folder, backup=row["backup_id"])
            return f"{restore_snapshot.run(whole, **means)['files']} files restored"
        if row["source_kind"] == CHANGES:
            log = LogRestoreRequest(
                **places,
                name=row["source"],
                end_ts=row["to_ts"],
                on_full=row["kind"] == "full",
                target=f"delta:{folder}/restored",
                keys_file=self.request.keys_file,
                allow_gaps=True,  # what was never captured is not checked
            )
            done = log_restore.run(log, **means)
            over = f", over gaps: {len(done['obstacles'])}" if done["obstacles"] else ""
            return f"{done['entries']} rows restored{over}"
        if row["source_kind"] == QUEUES:
            one = {"source": row["source"], "backup_id": row["backup_id"], "folder": folder}
            return queue_trial.run(**places, **one, **means)
        topics = RestoreRequest(
            **places,
            source=row["source"],
            topics=tuple(row["scopes"].split(",")),
            to_ts=row["to_ts"],
            target=f"dir:{folder}",
        )
        return f"{restore_topics.run(topics, **means)['entries']} records restored"


def _with_snapshots(reader: CatalogReader, ids: Sequence[str]) -> list[str]:
    """Backups, and those of an engine's snapshots that fulls among them depend on."""
    beneath = [row["snapshot_id"] for row in reader.rows("snapshots_beneath", backup_ids=",".join(ids))]
    return list(dict.fromkeys([*ids, *beneath]))


def require_whole(result: Mapping[str, Any]) -> None:
    """Raises Damaged when a check found something that a restore may need to be missing or changed."""
    wrong = {name: result[name] for name in ("missing", "changed", "damaged") if result[name]}
    if wrong:
        raise Damaged(
            "Not whole: " + ", ".join(f"{count} {name}" for name, count in wrong.items()) + ".",
            hint=f"The view `checks` lists them under check_id {result['check_id']}.",
        )


def _proved(roots: Roots, reporter: Reporter) -> Iterator[str]:
    """The destinations that prove to be the catalog's."""
    for name in roots.uris:
        try:
            roots.open(name)
            yield name
        except Refused as error:
            reporter.warning(f"objects that no backup names were not looked for: {error.message}")


def _data_folders(storage: Storage, of_queues: Callable[[str], bool]) -> Iterator[str]:
    """One folder a topic and epoch, some a backup of a snapshot, of a change feed or of an engine's
    queues: not as many as there are files. `of_queues`: whether a source may be an engine."""
    for source in storage.folders():
        if source in layout.RESERVED:
            continue
        for backup_id in storage.folders(f"{source}/snapshots/"):
            yield f"{source}/snapshots/{backup_id}/"
            yield f"{source}/backups/{backup_id}/listing/"
        # Not each of them has files of the engine's own.
        for backup_id in storage.folders(layout.backups_folder(source)) if of_queues(source) else ():
            yield layout.queue_files_folder(source, backup_id)
            yield f"{source}/backups/{backup_id}/listing/"
            yield layout.scan_folder(source, backup_id)
        for folder in ("log", "fulls"):
            for backup_id in storage.folders(f"{source}/{folder}/"):
                yield f"{source}/{folder}/{backup_id}/"
        for epoch in storage.folders(f"{source}/"):
            for topic in storage.folders(f"{source}/{epoch}/topics/"):
                yield f"{source}/{epoch}/topics/{topic}/"


def _tasks(things: int) -> int:
    return max(1, min(MOST_TASKS, things))
