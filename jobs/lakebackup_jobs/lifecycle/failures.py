"""The row of `failures` that a run that writes leaves when it ends in an error."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, get_args

from lakebackup.errors import Busy, EnvironmentProblem, LakebackupError, NotFound, OutputLost, UsageProblem
from lakebackup.requests import Request
from lakebackup.rows.upkeep import FailedRun, Failure, UpkeepRun
from lakebackup.rules import layout
from lakebackup.rules.stored_json import object_of
from lakebackup.storage import Storage
from lakebackup.store.behind import require_current
from lakebackup.store.reader import CatalogReader
from lakebackup.store.roots import destination_id
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.lifecycle.identity import holder, origin
from lakebackup_jobs.runtime.masking import secrets_in, without_secrets

_MOST_TEXT = 2_000
# How long the row may wait for the catalog. The user sees the error only afterwards.
_WAIT_S = 10.0


class FailingWork(Protocol):
    """What is needed of a run to record its failure; `lifecycle.workspace.Workspace` has it."""

    request: Request
    source: str
    storage: Storage
    has_begun: bool

    def reader(self) -> CatalogReader: ...
    def existing(self) -> CatalogReader | None: ...
    def writer(self, *, in_process: bool = False) -> CatalogWriter: ...


@contextmanager
def recorded(work: FailingWork, run: FailedRun, source_kind: str | None) -> Iterator[None]:
    """Record an error of the block in the catalog, if there is one, and raise it. Upkeep that succeeds after
    a failure leaves a row too. `source_kind` None: the kind of the source's backups.

    Not recorded are: dry runs, wrong flags and runs without anything new (UsageProblem), runs beside another
    one, whose end is what counts (Busy), runs of which only the output was lost (OutputLost), interruptions
    by the user, sources that the catalog does not know, and wrong requests (`_is_mistake`).
    """
    is_upkeep = run in get_args(UpkeepRun)
    started = time.time_ns() // 1000
    try:
        yield
    except (UsageProblem, Busy, OutputLost):
        raise
    except Exception as error:
        if not work.request.dry_run:
            with suppress(Exception):  # the destination may be unreachable, which is the error to raise
                _record(work, source_kind, run, started, error)
        raise
    if is_upkeep:
        with suppress(Exception):  # the run has succeeded; the next successful one records it
            _record_end(work, source_kind, run, started)


def _record_end(work: FailingWork, source_kind: str | None, run: FailedRun, started: int) -> None:
    catalog = work.reader()
    if catalog.rows("failures_open", source=work.source, run=run):
        _append(work, catalog, source_kind, run, started, error="", message="", exit_code=0)


def _record(
    work: FailingWork, source_kind: str | None, run: FailedRun, started: int, error: Exception
) -> None:
    catalog = work.existing()
    if catalog is None:
        return
    destination_id(work.storage, create=False)
    require_current(catalog)  # otherwise it may be the catalog of another destination
    if not _is_known(work, catalog) or _is_mistake(work, run, error, catalog):
        return
    code = error.exit_code if isinstance(error, LakebackupError) else LakebackupError.exit_code
    secrets = secrets_in(getattr(work.request, "kafka", {}))
    message = without_secrets(str(error) or repr(error), secrets).strip()[:_MOST_TEXT]
    _append(
        work, catalog, source_kind, run, started,
        error=type(error).__name__, message=message, exit_code=code,
    )  # fmt: skip


def _is_known(work: FailingWork, catalog: CatalogReader) -> bool:
    """Whether a source has backups or a policy, or this or an earlier run began its first backup."""
    queries = ("source_kinds", "policy_in_force")
    return (
        work.has_begun
        or any(catalog.rows(query, source=work.source) for query in queries)
        or work.storage.exists(layout.in_progress_path(work.source))
    )


def _is_mistake(work: FailingWork, run: FailedRun, error: Exception, catalog: CatalogReader) -> bool:
    """Whether the request was wrong, not the source: no backup of the source was taken from what it names."""
    if run in get_args(UpkeepRun):
        return isinstance(error, NotFound)
    if not isinstance(error, NotFound | EnvironmentProblem):
        return False
    request_origin = origin(work.request)
    origins = [object_of(row["origin"]) for row in catalog.rows("backup_origins", source=work.source)]
    if isinstance(error, EnvironmentProblem):
        servers = {saved["servers"] for saved in origins if "servers" in saved}
        return bool(servers) and request_origin.get("servers") not in servers
    topics = {row["scope"] for row in catalog.rows("sources_known") if row["source"] == work.source}
    return request_origin not in origins and topics.isdisjoint(request_origin.get("topics", ()))


def _append(
    work: FailingWork,
    catalog: CatalogReader,
    source_kind: str | None,
    run: FailedRun,
    started: int,
    **outcome: Any,
) -> None:
    if source_kind is None:
        (source_kind, *_) = [row["source_kind"] for row in catalog.rows("source_kinds", source=work.source)]
    row = Failure(
        source=work.source,
        source_kind=source_kind,
        run=run,
        started_at=started,
        at=time.time_ns() // 1000,
        actor=holder(),
        **outcome,
    )
    writer = work.writer(in_process=True)
    writer.migrate()
    writer.append([row], wait_s=_WAIT_S)
