"""Compare storage and catalog in both directions, and keep what was found as rows.

Missing, changed and damaged files, orphans (objects that no backup names), sidecars without which a lost
catalog could not be made again; then, if asked, every record decoded, or a trial restore into a folder
that is read back and taken away.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from lakebackup import layout, tombstones
from lakebackup.changelog.cipher import LogKeys
from lakebackup.errors import Busy, Damaged, LakebackupError, Refused
from lakebackup.model import CHANGES, QUEUES, SNAPSHOT, Check, spark_columns
from lakebackup.plan.restore_log import LogRestoreRequest
from lakebackup.plan.restore_request import RestoreRequest
from lakebackup.plan.restore_snapshot import SnapshotRestoreRequest
from lakebackup.storage import Storage, open_storage
from lakebackup.store import CatalogReader, CatalogWriter
from lakebackup_jobs import restore_snapshot, restore_topics
from lakebackup_jobs.changelog import restore as log_restore
from lakebackup_jobs.check_task import CheckFiles, CheckKeys, CheckMembers, CheckSidecars, ListObjects
from lakebackup_jobs.identity import micros
from lakebackup_jobs.queues import trial as queue_trial
from lakebackup_jobs.shares import MOST_TASKS
from lakebackup_jobs.taskboard import TaskBoard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.roots import Roots
    from lakebackup_jobs.progress import Reporter

# An object this young may belong to a backup that has not committed yet.
GRACE_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What a person asked for; no `backup_ids` means all backups.

    `keys_file`: the file of keys that log files are encrypted with.
    """

    destination: str
    catalog: str | None = None
    backup_ids: tuple[str, ...] = ()
    mode: Literal["stat", "hash", "decode", "restore"] = "hash"
    remote: str | None = None
    grace_ms: int = GRACE_MS
    keys_file: str | None = None


def run(request: VerifyRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Check, and return the totals and the first findings.

    Raises NotFound (no catalog, no such backup). Findings are no error here: the command line ends with
    the exit code of Damaged when there are any but orphans; see `require_whole`.
    """
    from lakebackup.engine.spark import SparkEngine
    from lakebackup_jobs.session import spark_session

    started = time.monotonic()
    reader = CatalogReader.current(request.destination, request.catalog)
    ids = ",".join(_with_snapshots(reader, [reader.resolve_backup(part) for part in request.backup_ids]))
    spark = spark or spark_session(remote=request.remote)
    writer = CatalogWriter.open(spark, request.destination, request.catalog)
    engine = SparkEngine(spark, writer.catalog_uri)
    now = datetime.now(UTC)
    check_id, at = layout.new_backup_id(now), micros(now)
    roots = reader.destinations()

    mode = "hash" if request.mode == "restore" else request.mode
    (totals,) = reader.rows("check_size", backup_ids=ids)
    reporter.start(totals["entries"], totals["bytes"], "verify")
    board = TaskBoard(open_storage(request.destination), f"checks/{check_id}/")
    files = engine.query("files_to_check", backup_ids=ids).repartition(_tasks(totals["files"]))
    log_keys = LogKeys.load(request.keys_file) if request.keys_file and mode == "decode" else None
    if mode == "decode" and totals["encrypted"] and log_keys is None:
        reporter.warning(
            f"{totals['encrypted']} files are encrypted and stay closed: name the file of their keys by "
            "LAKEBACKUP_LOG__KEYS_FILE, or keys_file under [log] in lakebackup.toml"
        )
    job = CheckFiles(check_id, at, mode, roots, request.destination, log_keys)
    with board.watched(reporter.update):
        writer.append_frame("checks", files.mapInArrow(job, spark_columns("checks")), f"{check_id}-files")
    backups = engine.query("backups_to_check", backup_ids=ids)
    sidecars = CheckSidecars(check_id, at, roots)
    writer.append_frame(
        "checks", backups.mapInArrow(sidecars, spark_columns("checks")), f"{check_id}-sidecars"
    )
    filters = (
        engine.query("key_filters_to_check", backup_ids=ids)
        .repartition(_tasks(totals["files"]), "destination", "keys_path")
        .sortWithinPartitions("destination", "keys_path", "keys_start")
    )
    keys = CheckKeys(check_id, at, mode != "stat", roots)
    writer.append_frame("checks", filters.mapInArrow(keys, spark_columns("checks")), f"{check_id}-keys")
    if mode == "decode":
        packed = (
            engine.query("pack_members_to_check", backup_ids=ids)
            .repartition(_tasks(totals["files"]), "destination", "path")
            .sortWithinPartitions("destination", "path", "position")
        )
        members = CheckMembers(check_id, at, roots)
        writer.append_frame(
            "checks", packed.mapInArrow(members, spark_columns("checks")), f"{check_id}-members"
        )
    if not ids:
        _find_orphans(spark, engine, writer, roots, check_id, at, request.grace_ms, reporter)
    if request.mode == "restore":
        writer.append(list(_trial(request, reader, spark, reporter, check_id, at, ids)))

    found = CatalogReader(request.destination, request.catalog)
    adds_up = list(found.rows("check_totals", check_id=check_id))
    outcomes = [row for row in adds_up if row["mode"] != "keys"]
    filters_lost = sum(row["objects"] for row in adds_up if row["mode"] == "keys" and row["outcome"] != "ok")
    if filters_lost:
        reporter.warning(
            f"{filters_lost} objects with key filters are not whole: asking for a key reads more"
        )
    return {
        "check_id": check_id,
        "mode": request.mode,
        "objects": sum(row["objects"] for row in outcomes),
        **{
            outcome: sum(row["objects"] for row in outcomes if row["outcome"] == outcome)
            for outcome in ("ok", "missing", "changed", "damaged", "unconfirmed", "orphan")
        },
        "filters_lost": filters_lost,
        "findings": list(found.rows("check_findings", check_id=check_id)),
        "seconds": round(time.monotonic() - started, 3),
    }


def _with_snapshots(reader: CatalogReader, ids: Sequence[str]) -> list[str]:
    """Backups, and those of an engine's snapshots that fulls among them stand on."""
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


def _find_orphans(
    spark: SparkSession,
    engine: Any,
    writer: CatalogWriter,
    roots: Roots,
    check_id: str,
    at: int,
    grace_ms: int,
    reporter: Reporter,
) -> None:
    from pyspark.sql import functions as sf

    def of_queues(source: str) -> bool:
        kinds = {row["source_kind"] for row in engine.rows("source_kinds", source=source)}
        return not kinds or QUEUES in kinds

    storages = {name: roots.open(name) for name in _proved(roots, reporter)}
    folders = [
        (name, folder) for name, storage in storages.items() for folder in _data_folders(storage, of_queues)
    ]
    if not folders:
        return
    frame = spark.createDataFrame(folders, "destination STRING, folder STRING").repartition(
        _tasks(len(folders))
    )
    listing = ListObjects(check_id, at, roots)
    objects = frame.mapInArrow(listing, spark_columns("storage_objects"))
    writer.append_frame("storage_objects", objects, f"{check_id}-objects")
    unfinished = [name for storage in storages.values() for name in tombstones.unfinished(storage)]
    orphans: DataFrame = engine.query(
        "find_orphans", check_id=check_id, before_ms=at // 1000 - grace_ms, unfinished=",".join(unfinished)
    )
    writer.append_frame(
        "checks",
        orphans.select(
            sf.lit(check_id).alias("check_id"),
            sf.lit(at).cast("BIGINT").alias("at"),
            sf.lit(None).cast("STRING").alias("backup_id"),
            "destination",
            "path",
            sf.lit("stat").alias("mode"),
            sf.lit("orphan").alias("outcome"),
            sf.concat("bytes", sf.lit(" bytes that no backup names")).alias("detail"),
        ),
        f"{check_id}-orphans",
    )


def _proved(roots: Roots, reporter: Reporter) -> Iterator[str]:
    """The destinations that are where the catalog says."""
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
            yield layout.seen_folder(source, backup_id)
        for folder in ("log", "fulls"):
            for backup_id in storage.folders(f"{source}/{folder}/"):
                yield f"{source}/{folder}/{backup_id}/"
        for epoch in storage.folders(f"{source}/"):
            for topic in storage.folders(f"{source}/{epoch}/topics/"):
                yield f"{source}/{epoch}/topics/{topic}/"


def _trial(
    request: VerifyRequest,
    reader: CatalogReader,
    spark: SparkSession,
    reporter: Reporter,
    check_id: str,
    at: int,
    ids: str,
) -> Iterator[Check]:
    """Restore what is newest of each source (or of the backups named) into a folder, and say how it went."""
    for row in reader.rows("trial_targets", backup_ids=ids):
        with tempfile.TemporaryDirectory(prefix="lakebackup-trial-") as folder:
            outcome, detail = "ok", None
            try:
                detail = _restored(request, row, folder, spark, reporter)
            except Busy as busy:
                reporter.warning(f"no trial restore of backup {row['backup_id']}: {busy.message}")
                continue
            except LakebackupError as error:
                outcome, detail = "damaged", error.message
            yield Check(
                check_id=check_id,
                at=at,
                backup_id=row["backup_id"],
                destination=row["destination"],
                path=None,
                mode="restore",
                outcome=outcome,  # type: ignore[arg-type]
                detail=detail,
            )


def _restored(
    request: VerifyRequest, row: Mapping[str, Any], folder: str, spark: SparkSession, reporter: Reporter
) -> str:
    """What a trial restore of a row of trial_targets brought back."""
    if row["source_kind"] == SNAPSHOT:
        whole = SnapshotRestoreRequest(
            destination=request.destination, catalog=request.catalog, folder=folder, backup=row["backup_id"]
        )
        return f"{restore_snapshot.run(whole, spark=spark, reporter=reporter)['files']} files restored"
    if row["source_kind"] == CHANGES:
        log = LogRestoreRequest(
            destination=request.destination,
            catalog=request.catalog,
            name=row["source"],
            end_ts=row["to_ts"],
            on_full=row["kind"] == "full",
            target=f"delta:{folder}/restored",
            keys_file=request.keys_file,
            allow_gaps=True,  # what is there is looked at, not what was never captured
        )
        done = log_restore.run(log, spark=spark, reporter=reporter)
        over = f", over gaps: {len(done['obstacles'])}" if done["obstacles"] else ""
        return f"{done['entries']} rows restored{over}"
    if row["source_kind"] == QUEUES:
        return queue_trial.run(
            request.destination,
            request.catalog,
            row["source"],
            row["backup_id"],
            folder,
            spark=spark,
            reporter=reporter,
        )
    topics = RestoreRequest(
        destination=request.destination,
        catalog=request.catalog,
        source=row["source"],
        topics=tuple(row["scopes"].split(",")),
        to_ts=row["to_ts"],
        target=f"dir:{folder}",
    )
    return f"{restore_topics.run(topics, spark=spark, reporter=reporter)['entries']} records restored"


def _tasks(things: int) -> int:
    return max(1, min(MOST_TASKS, things))


def main(argv: Sequence[str] | None = None, spark: SparkSession | None = None) -> int:
    """As a program for spark-submit: the arguments of `lakebackup verify`."""
    from lakebackup_jobs.cli import run_verb

    return run_verb(["verify"], argv, spark=spark)


if __name__ == "__main__":
    raise SystemExit(main())
