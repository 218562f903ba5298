"""What a run that writes leaves when it ends in an error: a row of `failures`."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, get_args

from lakebackup.errors import Busy, LakebackupError, NotFound, UsageProblem
from lakebackup.rows.upkeep import Failure, UpkeepRun
from lakebackup.store.behind import require_current
from lakebackup.store.roots import destination_id
from lakebackup_jobs.lifecycle.identity import holder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebackup.rows.upkeep import FailedRun
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.lifecycle.workspace import Workspace

_MOST_TEXT = 300
# The error is not shown before.
_WAIT_S = 10.0


@contextmanager
def recorded(work: Workspace, run: FailedRun, source_kind: str | None) -> Iterator[None]:
    """Let an error of the block pass, and leave a row of it where there is a catalog; of upkeep that ends
    well after such, a row that records that. `source_kind` None: that of the source's backups.

    Not of a dry run, of wrong flags, of nothing new (UsageProblem), or where another run is at work (Busy):
    its end is what counts. Not of one that a person interrupted. NotFound means wrong flags of upkeep,
    and of a backup that the source lacks something.
    """
    upkeep = run in get_args(UpkeepRun)
    started = time.time_ns() // 1000
    try:
        yield
    except (UsageProblem, Busy):
        raise
    except Exception as error:
        if not work.request.dry_run and not (upkeep and isinstance(error, NotFound)):
            with suppress(Exception):  # a destination that cannot be reached, say, which is the error
                _record(work, source_kind, run, started, error)
        raise
    if upkeep:
        with suppress(Exception):  # what the run did is done; the next one that ends well records it
            _record_end(work, source_kind, run, started)


def _record_end(work: Workspace, source_kind: str | None, run: FailedRun, started: int) -> None:
    catalog = work.reader()
    if catalog.rows("failures_open", source=work.source, run=run):
        _append(work, catalog, source_kind, run, started, error="", message="", exit_code=0)


def _record(work: Workspace, source_kind: str | None, run: FailedRun, started: int, error: Exception) -> None:
    # A run that succeeds does not wait for the modules that send notifications.
    from lakebackup_jobs.runtime.notify import secrets_in, without_secrets

    catalog = work.existing()
    if catalog is None:
        return
    destination_id(work.storage, create=False)
    require_current(catalog)  # else it may be that of another destination
    text, code = str(error), LakebackupError.exit_code
    if isinstance(error, LakebackupError):
        text, code = error.message, error.exit_code
    secrets = secrets_in(getattr(work.request, "kafka", {}))
    lines = without_secrets(text, secrets).strip().splitlines()
    message = lines[0][:_MOST_TEXT] if lines else ""
    _append(
        work, catalog, source_kind, run, started,
        error=type(error).__name__, message=message, exit_code=code,
    )  # fmt: skip


def _append(
    work: Workspace,
    catalog: CatalogReader,
    source_kind: str | None,
    run: FailedRun,
    started: int,
    **ended: Any,
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
        **ended,
    )
    writer = work.writer(here=True)
    writer.migrate()
    writer.append([row], wait_s=_WAIT_S)
