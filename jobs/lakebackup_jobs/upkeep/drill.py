"""Drills: restore one restore point of each source on trial, into a scratch folder.

A drill compares the restored data with what was backed up, deletes it, and records the outcome in `drills`.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import SparkSession

from lakebackup.errors import (
    Busy,
    Damaged,
    EnvironmentProblem,
    Incomplete,
    LakebackupError,
    NotFound,
    UsageProblem,
)
from lakebackup.requests import RunRequest
from lakebackup.rows.base import QUEUES
from lakebackup.rows.upkeep import Drill
from lakebackup.rules import layout
from lakebackup.rules.kinds import no_source
from lakebackup.rules.stored_json import object_of
from lakebackup.sql_engine.limits import Limits
from lakebackup.storage.local import writing_to
from lakebackup.storage.nesting import require_outside
from lakebackup.storage.scratch_folder import FolderLock, sweep
from lakebackup.store.lease import is_held
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.identity import holder, micros
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.scratch import findings_writer
from lakebackup_jobs.lifecycle.tasks.plan_shares import clear
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.query import record_query
from lakebackup_jobs.upkeep.evidence.observations import Observations, ObservedTrial, observe_targets
from lakebackup_jobs.upkeep.trial import Trial, TrialContext, trial_of

#: The prefix of the scratch folders of drills, by which the query drill_speed recognizes their restores.
PREFIX = "lakebackup-drill-"
#: How many of the rows that a check returned are shown at most.
MOST_ROWS = 20
_CHECK_LIMIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class DrillRequest(RunRequest):
    """What to restore on trial; without `sources`, all sources that have a restore point.

    `seed` determines which restore points are drawn; None: they are random. `backup_id` or `to_ts` (ms) names
    the restore point instead. `scratch`: the folder below which the restores go; None: that of temporary
    files. `check`: a SELECT over the relation `restored` that must return no row. `keys_file`: the file with
    the keys of encrypted log files.
    """

    sources: tuple[str, ...] = ()
    seed: int | None = None
    backup_id: str | None = None
    to_ts: int | None = None
    scratch: str | None = None
    check: str | None = None
    keys_file: str | None = None


def run(
    request: DrillRequest,
    *,
    spark: SparkSession | None = None,
    reporter: Reporter,
    observations: Observations | None = None,
) -> dict[str, Any]:
    """Drill one source after the other; returns the rows of `drills`, and those that the check returned.

    `observations` get what a statement about the drills says.

    A restore that fails or differs becomes a row and raises no error here, see `require_good`. A backup that
    the identity of the settings does not open becomes none, since nothing about it was tested. Unless another
    drill failed or differs, that ends with the error of a restore, and with the result.

    Raises NotFound (no catalog, no such source or backup, nothing to restore), UsageProblem (no such scratch
    folder).
    """
    work = Workspace(request, "", reporter, spark)
    reader = work.current()
    if request.scratch and not Path(request.scratch).is_dir():
        raise UsageProblem(
            f"--scratch {request.scratch} is not a folder.", hint="Make it, or give one that is there."
        )
    if request.scratch:
        require_outside(request, f"{request.scratch}/{PREFIX}")
    seed = None
    if request.backup_id is None and request.to_ts is None:
        seed = secrets.randbelow(2**31) if request.seed is None else request.seed
    context = TrialContext(request, request.keys_file, work.session, reporter)
    targets = _targets(request, reader, seed)
    if observations is not None:
        observations.reads(reader)
        observe_targets(observations, reader, targets, request.sources)
    drills = [_Drill(request, row, seed, context, reader) for row in targets]
    if request.dry_run:
        return {"dry_run": True, "seed": seed, "drills": [drill.preview() for drill in drills]}
    check_rows: list[dict[str, Any]] = []
    _sweep(_scratch_root(request), reporter)
    results = _recorded_drills(drills, work, observations, check_rows)
    problems = {
        drill.drill.source: drill.identity_problem for drill in drills if drill.identity_problem is not None
    }
    busy = len(drills) - len(results) - len(problems)
    result = work.timed(
        {
            "seed": seed,
            "drills": results,
            "found": check_rows,
            **({"busy": busy} if busy else {}),
            **({"not_opened": {name: error.message for name, error in problems.items()}} if problems else {}),
        }
    )
    if problems and all(row["outcome"] == "ok" for row in results):
        raise next(iter(problems.values())).with_result(result)
    return result


def _recorded_drills(
    drills: Sequence[_Drill],
    work: Workspace,
    observations: Observations | None,
    check_rows: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Run drills and record them. Return their rows, and add those of the check to `check_rows`."""
    results = []
    with findings_writer(work) as (writer, recorded):
        if recorded:
            writer.migrate()
        elif observations is not None:
            observations.leave_out("record", "The drills were not recorded: the catalog is not writable.")
        try:
            for drill in drills:
                row = drill.run(check_rows)
                if row:
                    writer.record(row)
                    results.append(_columns(row))
                if observations is not None:
                    drill.observe(observations, row)
        finally:
            if recorded:
                _forget_leftovers(work)
    return results


def require_good(result: Mapping[str, Any]) -> None:
    """Raises Damaged when a restore differs from what was backed up, Incomplete when a drill failed for
    another reason or could not run."""
    bad = {row["source"]: row for row in result["drills"] if row["outcome"] in ("different", "failed")}
    texts = "; ".join(f"{source}: {row['detail']}" for source, row in bad.items())
    hint = "The view `drills` has them; `lakebackup drill SOURCE --backup ID` repeats one."
    if any(row["outcome"] == "different" for row in bad.values()):
        raise Damaged(f"Not what was backed up: {texts}", hint=hint)
    if bad:
        raise Incomplete(f"Drills failed: {texts}", hint=hint)
    if busy := result.get("busy"):
        raise Incomplete(f"{busy} drills did not run: a prune came in.", hint="Run the same command again.")


class _Drill:
    """A drill of one restore point, a row of the query drill_targets."""

    def __init__(
        self,
        request: DrillRequest,
        row: Mapping[str, Any],
        seed: int | None,
        context: TrialContext,
        reader: CatalogReader,
    ) -> None:
        self.request, self.row, self.context, self.reader = request, row, context, reader
        started = datetime.now(UTC)
        self.drill = Drill(
            drill_id=layout.new_backup_id(started),
            at=micros(started),
            source=row["source"],
            backup_id=row["backup_id"],
            to_ts=None if row["source_kind"] == QUEUES else row["to_ts"],
            seed=seed,
            target=trial_of(row, "", context).TARGET,
            outcome="ok",
            actor=holder(),
        )
        self._observed = ObservedTrial()
        #: Why the identity of the settings does not open the backup; None: it does, or needs not.
        self.identity_problem: LakebackupError | None = None

    def observe(self, observations: Observations, row: Drill | None) -> None:
        """Add the drill to the observations. `row`: what `run` returned."""
        if row is None:
            problem = self.identity_problem
            reason = "a prune prevented it." if problem is None else problem.message
            text = f"The drill of {self.drill.source}: {reason}"
            observations.leave_out("drills", text, [self.drill.backup_id])
            return
        names = ("drill_id", "outcome", "detail", "files", "bytes", "entries", "real_ms")
        outcome = {name: getattr(row, name) for name in names}
        observations.add_trial(self.row, self._observed, self.reader, outcome)

    def preview(self) -> dict[str, Any]:
        """Return what the drill would restore, how long that may take, and whether there is room for it."""
        drill, scratch_root = self.drill, _scratch_root(self.request)
        forecast: dict[str, Any] = {
            "outcome": "planned",
            "needed_bytes": None,
            "free_bytes": _free_bytes(scratch_root),
        }
        trial = trial_of(self.row, scratch_root, self.context)
        try:
            drill = self._predict(trial)
            forecast["needed_bytes"] = trial.needed_bytes
            _require_room(scratch_root, trial)
        except LakebackupError as error:
            forecast |= {"outcome": "refused", "detail": error.message}
        columns = _columns(drill) | forecast
        return {name: value for name, value in columns.items() if name != "drill_id"}

    def run(self, check_rows: list[dict[str, Any]]) -> Drill | None:
        """Run the drill; returns its row of `drills`, or None if a prune or a wrong identity prevents it.

        Adds the rows that the check returned to `check_rows`.
        """
        drill = self.drill = replace(self.drill, at=time.time_ns() // 1000)
        self.context.reporter.note(f"drill of {drill.source}: backup {drill.backup_id}")
        try:
            with _scratch_folder(self.request) as folder:
                trial = trial_of(self.row, folder, self.context)
                self._observed.plan(trial)
                drill = self._predict(trial)
                _require_room(_scratch_root(self.request), trial)
                start = time.monotonic()
                detail = trial.restore()
                real_ms = round(1000 * (time.monotonic() - start))
                drill = replace(drill, detail=detail, real_ms=real_ms)
                differences = trial.differences()
                self._observed.is_compared = True
                if differences := differences or self._run_check(trial, check_rows):
                    drill = replace(drill, outcome="different", detail=differences)
        except Busy as busy:
            self.context.reporter.warning(f"no drill of {drill.source}: {busy.message}")
            return None
        except LakebackupError as error:
            if error.concerns_identity:
                self.context.reporter.warning(f"no drill of {drill.source}: {error.message}")
                self.identity_problem = error
                return None
            outcome: Literal["different", "failed"] = "different" if isinstance(error, Damaged) else "failed"
            return replace(drill, outcome=outcome, detail=error.message)
        return drill

    def _predict(self, trial: Trial) -> Drill:
        amount = trial.amount
        speed = self.reader.first_row("drill_speed", source=self.drill.source, bytes=amount.bytes)
        predicted = speed["predicted_ms"] if speed else None
        return replace(self.drill, **asdict(amount), predicted_ms=predicted)

    def _run_check(self, trial: Trial, check_rows: list[dict[str, Any]]) -> str | None:
        """Run the user's SELECT over the restored data; returns how many rows it found, None if it found
        none.

        Adds the first of these rows to `check_rows`.
        """
        if not self.request.check:
            return None
        reader = trial.reader
        with Limits(reader.interrupt, seconds=_CHECK_LIMIT_S).running():
            result = record_query.select(
                reader, self.request.check, extra_relations={"restored": trial.relation()}
            )
            rows = list(islice(chain.from_iterable(b.to_pylist() for b in result.rows), MOST_ROWS + 1))
        check_rows += [{"source": self.drill.source, "row": row} for row in rows[:MOST_ROWS]]
        if not rows:
            return None
        return f"the check found {'more than ' * (len(rows) > MOST_ROWS)}{min(len(rows), MOST_ROWS)} rows"


def _targets(request: DrillRequest, reader: CatalogReader, seed: int | None) -> Sequence[Mapping[str, Any]]:
    """Return a row of drill_targets for each source. Raises NotFound."""
    known_sources = {row["source"] for row in reader.rows("sources_known")}
    for source in request.sources:
        if source not in known_sources:
            raise no_source(reader, source)
    only_source = request.sources[0] if len(request.sources) == 1 else None
    rows = reader.rows(
        "drill_targets",
        sources=list(request.sources) or None,
        backup_id=reader.resolve_backup(request.backup_id, only_source) if request.backup_id else None,
        to_ms=request.to_ts,
        seed=seed,
    )
    missing_sources = sorted(set(request.sources) - {row["source"] for row in rows})
    if missing_sources or not rows:
        raise NotFound(
            f"There is nothing to restore{' of ' if missing_sources else ''}{', '.join(missing_sources)}.",
            hint='`lakebackup sql "SELECT * FROM restore_points"` shows what there is.',
        )
    return rows


def _forget_leftovers(work: Workspace) -> None:
    """Delete the plans of drills' restores that ended early, for example by `kill -9`.

    While a restore has a plan, somebody may resume it, so a prune would spare the files that it reads.
    """
    for row in work.reader().rows("drill_leftovers"):
        digest = object_of(row["detail"]).get("digest")
        if not is_held(work.storage, f"restore-{digest}"):
            clear(work.storage, layout.restore_folder(row["restore_id"]))


def _scratch_root(request: DrillRequest) -> str:
    return request.scratch or tempfile.gettempdir()


@contextmanager
def _scratch_folder(request: DrillRequest) -> Iterator[str]:
    """Create and lock a new folder for a restore. It is deleted after the block, also after an error."""
    with ExitStack() as stack:
        with writing_to(Path(_scratch_root(request))):
            temporary = tempfile.TemporaryDirectory(prefix=PREFIX, dir=_scratch_root(request))
            folder = stack.enter_context(temporary)
            stack.callback(FolderLock(folder).release)
        yield folder


def _sweep(folder: str, reporter: Reporter) -> None:
    """Delete the folders of drills that were killed."""
    for path in sweep(folder, PREFIX):
        reporter.note(f"deleted {path}, which a killed drill had left")


def _free_bytes(scratch_root: str) -> int:
    return shutil.disk_usage(scratch_root).free


def _require_room(scratch_root: str, trial: Trial) -> None:
    if (free := _free_bytes(scratch_root)) < trial.needed_bytes:
        raise EnvironmentProblem(
            f"No room in {scratch_root}: the restore takes {trial.needed_bytes} bytes, and {free} are free "
            "there. Make room, or name another folder with --scratch."
        )


def _columns(row: Drill) -> dict[str, Any]:
    """Return the columns of a drill that its summary shows."""
    names = (
        "source", "backup_id", "to_ts", "files", "bytes", "entries", "predicted_ms", "real_ms", "outcome",
        "detail", "drill_id",
    )  # fmt: skip
    return {name: getattr(row, name) for name in names}
