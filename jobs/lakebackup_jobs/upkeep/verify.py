"""Compare storage and catalog in both directions, and record the findings as rows.

A check finds missing, changed and damaged files, orphans (objects that no backup names), and damaged
sidecars, without which a lost catalog could not be rebuilt. On request it also decodes every record, or
restores on trial into a temporary folder.

The rows to check are written as plan files, one object after the other. A task checks a share of the objects
and writes its findings as files of the catalog's tables. After all tasks, these files are committed.
Orphans come last: a query compares the objects that the tasks listed with the catalog.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import SparkSession

from lakebackup.encryption.objects import Keyring
from lakebackup.errors import Busy, Damaged, Incomplete, LakebackupError, NotFound, Refused
from lakebackup.formats.logs.cipher import LogKeys
from lakebackup.requests import RunRequest
from lakebackup.rows.base import QUEUES
from lakebackup.rows.tables import TABLES
from lakebackup.rows.upkeep import Check
from lakebackup.rules import layout
from lakebackup.sql_engine import EngineChoice
from lakebackup.sql_engine.delta.dataset import dataset
from lakebackup.sql_engine.delta.repeats import repeats_of
from lakebackup.sql_engine.delta.table import open_table
from lakebackup.storage import Storage, open_storage
from lakebackup.store import tombstones
from lakebackup.store.plan_file import PlanFile, write_plan_file
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import Roots
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import micros
from lakebackup_jobs.lifecycle.keyring import has_keys, keyring
from lakebackup_jobs.lifecycle.planning import plan_on_engine
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.scratch import findings_writer
from lakebackup_jobs.lifecycle.tasks.plan_shares import MOST_TASKS, clear, weighed
from lakebackup_jobs.lifecycle.tasks.progress import TaskProgress
from lakebackup_jobs.lifecycle.tasks.task import run_all
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.runtime.identities import configured_identities
from lakebackup_jobs.upkeep.evidence.observations import (
    Observations,
    ObservedTrial,
    observe_check,
    observe_limits,
)
from lakebackup_jobs.upkeep.trial import TrialContext, trial_of
from lakebackup_jobs.upkeep.verify_task import (
    OPEN_COST,
    CheckDataKeys,
    CheckFiles,
    CheckKeys,
    CheckMembers,
    CheckShares,
    CheckSidecars,
    ListObjects,
    Look,
    LookShare,
    Mode,
    NameOrphans,
)

# A younger object may belong to a backup that has not committed yet.
GRACE_MS = 3_600_000
# Each file adds this many bytes to the amount by which the runner is chosen.
_LEAST_BYTES = 1 << 10
# The size of a task's share: the bytes of its files, and the cost of opening each.
_SHARE = 128 << 20
_SHARE_IN_PROCESS = 4 << 20
# Shares of a kind of check in this process, for each processor. Each writes a file of findings and syncs it.
_SHARES_PER_PROCESSOR = 4


@dataclass(frozen=True, slots=True)
class VerifyRequest(RunRequest):
    """What to verify; without `backup_ids`, all backups.

    `grace_ms`: the age from which an object that no backup names is an orphan. `keys_file`: the file with the
    keys of encrypted log files.
    """

    backup_ids: tuple[str, ...] = ()
    mode: Literal["stat", "hash", "decode", "restore"] = "hash"
    grace_ms: int = GRACE_MS
    keys_file: str | None = None
    engine: EngineChoice = "auto"


def run(
    request: VerifyRequest,
    *,
    spark: SparkSession | None = None,
    reporter: Reporter,
    observations: Observations | None = None,
) -> dict[str, Any]:
    """Check the backups; returns the totals and the first findings.

    `observations` get what a statement about the check says.

    Raises NotFound (no catalog, no such backup, none that counts). Findings and failed trial restores raise
    no error here: see `require_whole`.
    """
    work = Workspace(request, "", reporter, spark)
    reader = work.current()
    ids = ",".join(_with_snapshots(reader, [reader.resolve_backup(part) for part in request.backup_ids]))
    if not reader.first_row("backups_to_check", backup_ids=ids):
        raise NotFound(
            f"There is nothing to verify: no backup in {reader.home.uri} counts.",
            hint="`lakebackup list` shows what there is, and the state of each.",
        )
    if observations is not None:
        observations.reads(reader)
        observe_check(observations, reader, ids, request.mode, request.grace_ms)
    with findings_writer(work) as (writer, recorded):
        check = _Check(request, ids, work, reader, writer, recorded, observations)
        return work.timed(check.run())


class _Check:
    """One run of a check. `writer` takes its findings; `recorded`: it writes into the catalog."""

    def __init__(
        self,
        request: VerifyRequest,
        ids: str,
        work: Workspace,
        reader: CatalogReader,
        writer: CatalogWriter,
        recorded: bool,
        observations: Observations | None,
    ) -> None:
        self.observations = observations
        self.request, self.ids, self.work, self.reader = request, ids, work, reader
        self.writer, self.reporter, self.recorded = writer, work.reporter, recorded
        started = datetime.now(UTC)
        self.check_id, self.start_us = layout.new_backup_id(started), micros(started)
        self.roots = reader.destinations()
        if request.mode == "decode" and configured_identities() is not None:
            self.roots = self.roots.with_keys(self._keys())
        self.look_arguments = self.check_id, self.start_us, self.roots
        self.folder = f"checks/{self.check_id}/"
        self.failed_trials: list[dict[str, str]] = []

    def run(self) -> dict[str, Any]:
        """Run every requested check; returns the totals and the first findings."""
        (totals,) = self.reader.rows("check_size", backup_ids=self.ids)
        size = totals["bytes"] + totals["files"] * _LEAST_BYTES
        self.work.choose_runner(self.request, size)
        in_process = self.work.runner == "local"
        storages = {} if self.ids else dict(_proven_storages(self.roots, self.reporter))
        if self.observations is not None:
            is_decoded = self.request.mode != "decode" or self.request.keys_file or self.roots.keys
            unlisted = [] if self.ids else self.roots.uris.keys() - storages.keys()
            observe_limits(
                self.observations,
                encrypted=0 if is_decoded else totals["encrypted"],
                unlisted=unlisted,
                recorded=self.recorded,
            )
        with tempfile.TemporaryDirectory(prefix="lakebackup-check-") as folder:
            # The plan of Spark's tasks goes to the place of the findings, where this run can write.
            self.storage = open_storage(folder if in_process else self.writer.catalog_uri)
            tables = self._run_tasks(totals, storages, in_process=in_process)
        self.writer.append_written(tables, self.check_id)
        if tables["storage_objects"]:
            self._find_orphans(
                [name for storage in storages.values() for name in tombstones.incomplete(storage)]
            )
        if self.request.mode == "restore":
            self.writer.append(list(self._trials()))
        return self._summary()

    def _keys(self) -> Keyring:
        """The data keys of the files to decode. Raises as `keyring`."""
        if not has_keys(self.reader):
            return Keyring()
        files = self.reader.with_query("selected", "files_to_check", backup_ids=self.ids)
        return keyring(files, self.roots)

    def _run_tasks(
        self, totals: Mapping[str, Any], storages: Mapping[str, Storage], *, in_process: bool
    ) -> dict[str, list[str]]:
        """Run the tasks, on Spark unless `in_process`; returns the files with the findings by table."""
        weight = totals["bytes"] + totals["files"] * OPEN_COST
        least, most_shares = (
            (_SHARE_IN_PROCESS, _SHARES_PER_PROCESSOR * (os.cpu_count() or 1))
            if in_process
            else (_SHARE, MOST_TASKS)
        )
        size = max(least, weight // most_shares)
        tables: dict[str, list[str]] = {"checks": [], "storage_objects": []}
        writers = {table: self.writer.frame_writer(table) for table in tables}
        self.reporter.start(totals["files"], totals["bytes"], "verify", "files")
        try:
            plan = partial(self._checks, self._looks(totals["encrypted"]), size)
            checks = plan_on_engine(self.reader, self.request, self.work.session, self.reporter, plan)
            checks += self._listings(storages, size)
            job = CheckShares(checks, writers)
            with TaskProgress(self.storage, self.folder).watched(self.reporter.update):
                rows = run_all(job, range(len(checks)), self.work.task_cluster)
        finally:
            clear(self.storage, self.folder)
        for row in rows:
            tables[row.relation] += json.loads(row.files)
        return tables

    def _looks(self, encrypted: int) -> list[Look]:
        """Return the checks of the objects that the catalog names."""
        mode: Mode = "hash" if self.request.mode == "restore" else self.request.mode
        keys_file = self.request.keys_file
        log_keys = LogKeys.load(keys_file) if keys_file and mode == "decode" else None
        if mode == "decode" and encrypted and log_keys is None and not self.roots.keys:
            self.reporter.warning(
                f"{encrypted} files are encrypted and cannot be decoded: set identity_file under "
                "[encryption] in lakebackup.toml, or keys_file under [log] for change logs"
            )
        return [
            CheckFiles(*self.look_arguments, mode, self.storage.uri, log_keys),
            CheckSidecars(*self.look_arguments),
            CheckDataKeys(*self.look_arguments, mode),
            CheckKeys(*self.look_arguments, mode != "stat"),
            *([CheckMembers(*self.look_arguments)] if mode == "decode" else []),
        ]

    def _checks(self, looks: Sequence[Look], size: int, reader: CatalogReader) -> list[LookShare]:
        """Record the rows to check, all parts of an object in the same share and in their order."""
        files = [(look, reader.plan_file(look.ROWS, backup_ids=self.ids)) for look in looks]
        return [share for look, file in files for share in self._shares_of(look, file, size)]

    def _listings(self, storages: Mapping[str, Storage], size: int) -> list[LookShare]:
        """Record the folders to list: all folders that may hold objects that no backup names."""

        def of_queues(source: str) -> bool:
            kinds = {row["source_kind"] for row in self.reader.rows("source_kinds", source=source)}
            return not kinds or QUEUES in kinds

        folders = [
            {"destination": name, "folder": folder}
            for name, storage in storages.items()
            for folder in _data_folders(storage, of_queues)
        ]
        if not folders:
            return []
        file = write_plan_file([pa.Table.from_pylist(folders).to_reader()])
        return self._shares_of(ListObjects(*self.look_arguments), file, size)

    def _shares_of(self, look: Look, file: PlanFile, size: int) -> list[LookShare]:
        """Copy rows to where the tasks read them, and divide them into shares of about the weight `size`."""
        copy = file.copy_to(self.storage, f"{self.folder}plan/{type(look).__name__}-")
        shares = weighed(
            copy.batches(), size, weight=look.BYTES, each=look.COST, together=("destination", look.OBJECT)
        )
        return [LookShare(look, copy, share) for share in shares]

    def _find_orphans(self, unfinished: Sequence[str]) -> None:
        """Record the listed objects that no backup names by now. `unfinished`: ids of interrupted prunes."""

        def write_findings(reader: CatalogReader) -> list[str]:
            rows = reader.query(
                "find_orphans",
                check_id=self.check_id,
                before_ms=self.start_us // 1000 - self.request.grace_ms,
                unfinished=",".join(unfinished),
            )
            return list(self.writer.frame_writer("checks").write(NameOrphans(*self.look_arguments)(rows)))

        reader = self.work.reader()
        if self.recorded:
            files = plan_on_engine(reader, self.request, self.work.session, self.reporter, write_findings)
        else:
            uri = f"{self.writer.catalog_uri}/storage_objects"
            files = write_findings(reader.with_rows("raw_storage_objects", dataset(uri, open_table(uri))))
        self.writer.append_written({"checks": files}, f"{self.check_id}-orphans")

    def _summary(self) -> dict[str, Any]:
        reader = CatalogReader(self.writer.home.uri, self.writer.catalog_uri)
        totals = list(reader.rows("check_totals", check_id=self.check_id))
        outcomes = [row for row in totals if row["mode"] != "keys"]
        filters_lost = sum(
            row["objects"] for row in totals if row["mode"] == "keys" and row["outcome"] != "ok"
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
            **({"repeated": repeated} if (repeated := self._repeated()) else {}),
            "findings": list(reader.rows("check_findings", check_id=self.check_id)),
            **({"failed": self.failed_trials} if self.failed_trials else {}),
        }

    def _repeated(self) -> list[str]:
        """Return the commits to the catalog's tables that repeated rows, unless only sizes are checked."""
        if self.request.mode == "stat":
            return []
        repeated: list[str] = []
        for table in TABLES:
            with suppress(NotFound):  # an older catalog lacks tables
                repeated += map(str, repeats_of(f"{self.reader.catalog_uri}/{table}").commits)
        return repeated

    def _trials(self) -> Iterator[Check]:
        """Restore the newest backup of each source, or the requested backups, on trial; yields the findings.

        A restore that fails for another reason, such as a full disk, says nothing about the backup: it yields
        no row.
        """
        context = TrialContext(self.request, self.request.keys_file, self.work.session, self.reporter)
        for row in self.reader.rows("trial_targets", backup_ids=self.ids):
            outcome, detail = self._try_restore(row, context)
            if outcome == "busy":
                self.reporter.warning(f"no trial restore of backup {row['backup_id']}: {detail}")
            elif outcome == "failed":
                self.failed_trials.append({"backup_id": row["backup_id"], "detail": detail})
            else:
                yield Check(
                    check_id=self.check_id,
                    at=self.start_us,
                    backup_id=row["backup_id"],
                    destination=row["destination"],
                    path=None,
                    mode="restore",
                    outcome=outcome,
                    detail=detail,
                )

    def _try_restore(
        self, row: Mapping[str, Any], context: TrialContext
    ) -> tuple[Literal["ok", "damaged", "busy", "failed"], str]:
        """Restore a row of trial_targets on trial; returns the outcome, and what was restored or is wrong."""
        outcome: Literal["ok", "damaged", "busy", "failed"] = "ok"
        observed = ObservedTrial()
        try:
            with tempfile.TemporaryDirectory(prefix="lakebackup-trial-") as folder:
                trial = trial_of(row, folder, context)
                if self.observations is not None:
                    observed.plan(trial)
                detail = trial.restore()
                differences = trial.differences()
                observed.is_compared = True
                if differences:
                    outcome, detail = "damaged", differences
        except Busy as busy:
            outcome, detail = "busy", busy.message
        except Damaged as error:
            # A wrong identity says nothing about the backup.
            outcome = "failed" if error.concerns_identity else "damaged"
            detail = error.message
        except LakebackupError as error:
            outcome, detail = "failed", error.message
        if self.observations is not None:
            amount = asdict(observed.trial.amount) if observed.trial else {}
            facts = {"outcome": outcome, "detail": detail, **amount}
            self.observations.add_trial(row, observed, self.reader, facts)
        return outcome, detail


def _with_snapshots(reader: CatalogReader, ids: Sequence[str]) -> list[str]:
    """Return these backups, and the backups of snapshots that an engine's fulls among them depend on."""
    snapshot_ids = [row["snapshot_id"] for row in reader.rows("snapshots_beneath", backup_ids=",".join(ids))]
    return list(dict.fromkeys([*ids, *snapshot_ids]))


def require_whole(result: Mapping[str, Any]) -> None:
    """Raises Damaged when objects that a restore may need are missing, changed or damaged, or rows of the
    catalog are repeated, and Incomplete when a trial restore failed for another reason."""
    counts = {name: result[name] for name in ("missing", "changed", "damaged") if result[name]}
    if counts:
        raise Damaged(
            "Stored files are not intact: "
            + ", ".join(f"{count} {name}" for name, count in counts.items())
            + ".",
            hint=f"The view `checks` lists them under check_id {result['check_id']}.",
        )
    if repeated := result.get("repeated"):
        raise Damaged(
            f"Another program has repeated rows of the catalog: {'; '.join(repeated)}.",
            hint="`lakebackup catalog optimize` removes them. Let no other program compact the catalog's "
            "tables.",
        )
    if failed_trials := result.get("failed"):
        texts = "; ".join(f"{trial['backup_id']}: {trial['detail']}" for trial in failed_trials)
        raise Incomplete(f"Trial restores failed: {texts}", hint="Remove the cause, then verify again.")


def _proven_storages(roots: Roots, reporter: Reporter) -> Iterator[tuple[str, Storage]]:
    """Yield the destinations that prove to belong to the catalog, with their storage."""
    for name in roots.uris:
        try:
            yield name, roots.open(name)
        except Refused as error:
            reporter.warning(f"could not look for files that no backup names: {error.message}")


def _data_folders(storage: Storage, of_queues: Callable[[str], bool]) -> Iterator[str]:
    """Yield the folders with data files: far fewer than there are files.

    That is one folder for each topic and epoch, and a few for each backup of a snapshot, of a change feed or
    of an engine's queues. `of_queues` returns whether a source may be an engine.
    """
    for folder_name in storage.folders():
        if folder_name in layout.RESERVED:
            continue
        source = layout.source_of(folder_name)
        for backup_id in storage.folders(f"{folder_name}/snapshots/"):
            yield f"{folder_name}/snapshots/{backup_id}/"
            yield f"{folder_name}/backups/{backup_id}/listing/"
        if source and of_queues(source):  # a backup may lack some of these folders
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
