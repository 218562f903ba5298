"""Compare storage and catalog in both directions, and keep what was found as rows.

Missing, changed and damaged files, orphans (objects that no backup names), sidecars without which a lost
catalog could not be rebuilt; then, if asked, every record decoded, or a trial restore into a temporary
folder.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from lakebackup.errors import Busy, Damaged, Incomplete, LakebackupError, NotFound, Refused
from lakebackup.formats.logs.cipher import LogKeys
from lakebackup.requests import Request
from lakebackup.rows.base import QUEUES
from lakebackup.rows.upkeep import Check
from lakebackup.rules import layout
from lakebackup.sql_engine.delta.dataset import dataset
from lakebackup.sql_engine.delta.table import open_table
from lakebackup.storage import open_storage
from lakebackup.store import tombstones
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.planning import planned
from lakebackup_jobs.lifecycle.scratch import findings
from lakebackup_jobs.lifecycle.tasks.arrow_splits import WRITTEN, ArrowSplitWriter
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.runner import is_small
from lakebackup_jobs.lifecycle.tasks.splits import MOST_TASKS, clear
from lakebackup_jobs.lifecycle.tasks.task import run_all
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.upkeep.trial import Means, trial_of
from lakebackup_jobs.upkeep.verify_task import (
    OPEN_COST,
    CheckFiles,
    CheckKeys,
    CheckMembers,
    CheckSidecars,
    CheckSplits,
    ListObjects,
    NameOrphans,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lakebackup.sql_engine import EngineChoice
    from lakebackup.storage import Storage
    from lakebackup.store.roots import Roots
    from lakebackup.store.writer import CatalogWriter
    from lakebackup_jobs.lifecycle.progress import Reporter
    from lakebackup_jobs.upkeep.verify_task import Look, Mode

# An object this young may belong to a backup that has not committed yet.
GRACE_MS = 3_600_000
# A file counts as so many bytes more than it has when it is decided whether there is little to check.
_LEAST_BYTES = 1 << 10
# What a task checks, in bytes that could be hashed in that time.
_SPLIT = 128 << 20
_SPLIT_HERE = 4 << 20


@dataclass(frozen=True, slots=True)
class VerifyRequest(Request):
    """What to verify; no `backup_ids` means all backups.

    `keys_file`: the file of keys that log files are encrypted with.
    """

    backup_ids: tuple[str, ...] = ()
    mode: Literal["stat", "hash", "decode", "restore"] = "hash"
    grace_ms: int = GRACE_MS
    keys_file: str | None = None
    engine: EngineChoice = "auto"


def run(request: VerifyRequest, *, spark: SparkSession | None = None, reporter: Reporter) -> dict[str, Any]:
    """Check, and return the totals and the first findings.

    Raises NotFound (no catalog, no such backup, none that counts). Findings are no error here, nor are trial
    restores that fail: see `require_whole`.
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
        self.request, self.ids, self.work, self.reader = request, ids, work, reader
        self.writer, self.reporter, self.recorded = writer, work.reporter, recorded
        now = datetime.now(UTC)
        self.check_id, self.at = layout.new_backup_id(now), micros(now)
        self.roots = reader.destinations()
        self.common = self.check_id, self.at, self.roots
        self.folder = f"checks/{self.check_id}/"
        self.failed: list[dict[str, str]] = []

    def run(self) -> dict[str, Any]:
        """Every requested check; the totals and the first findings."""
        (totals,) = self.reader.rows("check_size", backup_ids=self.ids)
        size = totals["bytes"] + totals["files"] * _LEAST_BYTES
        here = is_small(size, self.request, self.work.session)
        if not here:
            self.work.start_spark()
        storages = {} if self.ids else dict(_proved(self.roots, self.reporter))
        with tempfile.TemporaryDirectory(prefix="lakebackup-check-") as folder:
            # Splits for Spark are with the findings, where this run can write.
            self.storage = open_storage(folder if here else self.writer.catalog_uri)
            tables = self._findings(totals, storages, here=here)
        self.writer.append_written(tables, self.check_id)
        if tables["storage_objects"]:
            self._find_orphans([name for one in storages.values() for name in tombstones.incomplete(one)])
        if self.request.mode == "restore":
            self.writer.append(list(self._trials()))
        return self._summary()

    def _findings(
        self, totals: Mapping[str, Any], storages: Mapping[str, Storage], *, here: bool
    ) -> dict[str, list[str]]:
        """Run the tasks, in this process when `here`; by table, the files with the findings."""
        weight = totals["bytes"] + totals["files"] * OPEN_COST
        size = _SPLIT_HERE if here else max(_SPLIT, weight // MOST_TASKS)
        tables: dict[str, list[str]] = {"checks": [], "storage_objects": []}
        writers = {table: self.writer.frame_writer(table) for table in tables}
        self.reporter.start(totals["files"], totals["bytes"], "verify", "files")
        try:
            plan = partial(self._splits, self._looks(totals["encrypted"]), 1 + weight // size, size)
            splits = planned(self.reader, self.request, self.work.session, self.reporter, plan)
            splits += self._listing(storages, size)
            job = CheckSplits(self.storage.uri, splits, writers)
            with TaskProgress(self.storage, self.folder).watched(self.reporter.update):
                rows = run_all(job, range(len(splits)), None if here else self.work.cluster)
        finally:
            clear(self.storage, self.folder)
        for row in rows:
            tables[row.relation] += json.loads(row.files)
        return tables

    def _looks(self, encrypted: int) -> list[Look]:
        """The checks of what the catalog names."""
        mode: Mode = "hash" if self.request.mode == "restore" else self.request.mode
        keys_file = self.request.keys_file
        log_keys = LogKeys.load(keys_file) if keys_file and mode == "decode" else None
        if mode == "decode" and encrypted and log_keys is None:
            self.reporter.warning(
                f"{encrypted} files are encrypted and cannot be decoded: name the file of their keys by "
                "LAKEBACKUP_LOG__KEYS_FILE, or keys_file under [log] in lakebackup.toml"
            )
        return [
            CheckFiles(*self.common, mode, self.storage.uri, log_keys),
            CheckSidecars(*self.common),
            CheckKeys(*self.common, mode != "stat"),
            *([CheckMembers(*self.common)] if mode == "decode" else []),
        ]

    def _splits(
        self, looks: Sequence[Look], tasks: int, size: int, reader: CatalogReader
    ) -> list[tuple[Look, str]]:
        """Write what the checks are about as splits: an object's parts in one of them, in their order."""

        def of(look: Look) -> list[str]:
            order = ["destination", look.OBJECT, *([look.POSITION] if look.POSITION else [])]

            def spread(rows: DataFrame) -> DataFrame:
                return rows.repartition(tasks, *order[:2]).sortWithinPartitions(*order)

            writer = self._split_writer(look, size)
            found = reader.map(writer, WRITTEN, look.ROWS, spread=spread, backup_ids=self.ids)
            return [row["path"] for row in found]

        return [(look, path) for look in looks for path in of(look)]

    def _listing(self, storages: Mapping[str, Storage], size: int) -> list[tuple[Look, str]]:
        """Write as splits which folders to list: all that may hold objects that no backup names."""
        import pyarrow as pa

        def of_queues(source: str) -> bool:
            kinds = {row["source_kind"] for row in self.reader.rows("source_kinds", source=source)}
            return not kinds or QUEUES in kinds

        folders = [
            {"destination": name, "folder": folder}
            for name, storage in storages.items()
            for folder in _data_folders(storage, of_queues)
        ]
        look = ListObjects(*self.common)
        written = self._split_writer(look, size)([pa.RecordBatch.from_pylist(folders)] if folders else [])
        return [(look, path) for batch in written for path in batch["path"].to_pylist()]

    def _split_writer(self, look: Look, size: int) -> ArrowSplitWriter:
        name = f"{self.folder}plan/{type(look).__name__}-"
        return ArrowSplitWriter(self.storage.uri, name, size, look.BYTES, look.COST, look.OBJECT)

    def _find_orphans(self, unfinished: Sequence[str]) -> None:
        """Find the objects, of those listed, that no backup names by now; `unfinished`: prunes to come."""

        def found(reader: CatalogReader) -> list[str]:
            rows = reader.query(
                "find_orphans",
                check_id=self.check_id,
                before_ms=self.at // 1000 - self.request.grace_ms,
                unfinished=",".join(unfinished),
            )
            return list(self.writer.frame_writer("checks").write(NameOrphans(*self.common)(rows)))

        reader = self.work.reader()
        if self.recorded:
            files = planned(reader, self.request, self.work.session, self.reporter, found)
        else:
            uri = f"{self.writer.catalog_uri}/storage_objects"
            reader.give("raw_storage_objects", dataset(uri, open_table(uri)))
            files = found(reader)
        self.writer.append_written({"checks": files}, f"{self.check_id}-orphans")

    def _summary(self) -> dict[str, Any]:
        found = CatalogReader(self.writer.home.uri, self.writer.catalog_uri)
        adds_up = list(found.rows("check_totals", check_id=self.check_id))
        outcomes = [row for row in adds_up if row["mode"] != "keys"]
        filters_lost = sum(
            row["objects"] for row in adds_up if row["mode"] == "keys" and row["outcome"] != "ok"
        )
        if filters_lost:
            self.reporter.warning(
                f"{filters_lost} files of key filters are damaged: a search by key reads more files"
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
            **({"failed": self.failed} if self.failed else {}),
        }

    def _trials(self) -> Iterator[Check]:
        """Restore the newest backup of each source (or the backups named) into a folder, and report how it
        went. One that fails for another reason, such as a full disk, says nothing of the backup: no row."""
        means = Means(self.request, self.request.keys_file, self.work.session, self.reporter)
        for row in self.reader.rows("trial_targets", backup_ids=self.ids):
            outcome: Literal["ok", "damaged"] = "ok"
            try:
                with tempfile.TemporaryDirectory(prefix="lakebackup-trial-") as folder:
                    trial = trial_of(row, folder, means)
                    detail = trial.restore()
                    if different := trial.differences():
                        outcome, detail = "damaged", different
            except Busy as busy:
                self.reporter.warning(f"no trial restore of backup {row['backup_id']}: {busy.message}")
                continue
            except Damaged as error:
                outcome, detail = "damaged", error.message
            except LakebackupError as error:
                self.failed.append({"backup_id": row["backup_id"], "detail": error.message})
                continue
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


def _with_snapshots(reader: CatalogReader, ids: Sequence[str]) -> list[str]:
    """Backups, and those of an engine's snapshots that fulls among them depend on."""
    beneath = [row["snapshot_id"] for row in reader.rows("snapshots_beneath", backup_ids=",".join(ids))]
    return list(dict.fromkeys([*ids, *beneath]))


def require_whole(result: Mapping[str, Any]) -> None:
    """Raises Damaged when a check found something that a restore may need to be missing or changed,
    Incomplete when a trial restore failed otherwise."""
    wrong = {name: result[name] for name in ("missing", "changed", "damaged") if result[name]}
    if wrong:
        raise Damaged(
            "Stored files are not intact: "
            + ", ".join(f"{count} {name}" for name, count in wrong.items())
            + ".",
            hint=f"The view `checks` lists them under check_id {result['check_id']}.",
        )
    if failed := result.get("failed"):
        texts = "; ".join(f"{one['backup_id']}: {one['detail']}" for one in failed)
        raise Incomplete(f"Trial restores failed: {texts}", hint="Remove the cause, then verify again.")


def _proved(roots: Roots, reporter: Reporter) -> Iterator[tuple[str, Storage]]:
    """The destinations that prove to be the catalog's, with their storage."""
    for name in roots.uris:
        try:
            yield name, roots.open(name)
        except Refused as error:
            reporter.warning(f"could not look for files that no backup names: {error.message}")


def _data_folders(storage: Storage, of_queues: Callable[[str], bool]) -> Iterator[str]:
    """One folder a topic and epoch, some a backup of a snapshot, of a change feed or of an engine's
    queues: not as many as there are files. `of_queues`: whether a source may be an engine."""
    for folder_name in storage.folders():
        if folder_name in layout.RESERVED:
            continue
        source = layout.source_of(folder_name)
        for backup_id in storage.folders(f"{folder_name}/snapshots/"):
            yield f"{folder_name}/snapshots/{backup_id}/"
            yield f"{folder_name}/backups/{backup_id}/listing/"
        if source and of_queues(source):  # not each of them has files of the engine's own
            for backup_id in storage.folders(layout.backups_folder(source)):
                yield layout.queue_files_folder(source, backup_id)
                yield f"{folder_name}/backups/{backup_id}/listing/"
                yield layout.scan_folder(source, backup_id)
        for folder in ("log", "fulls"):
            for backup_id in storage.folders(f"{folder_name}/{folder}/"):
                yield f"{folder_name}/{folder}/{backup_id}/"
        for epoch in storage.folders(f"{folder_name}/"):
            for topic in storage.folders(f"{folder_name}/{epoch}/topics/"):
                yield f"{folder_name}/{epoch}/topics/{topic}/"
