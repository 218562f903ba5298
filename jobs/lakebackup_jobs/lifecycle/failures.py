"""What a run leaves that was to make a backup and ended in an error: a row of `failures`."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lakebackup.errors import Busy, LakebackupError, UsageProblem
from lakebackup.rows.upkeep import Failure
from lakebackup.store.behind import require_current
from lakebackup.store.roots import destination_id
from lakebackup_jobs.lifecycle.identity import holder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebackup.rows.upkeep import FailedRun
    from lakebackup_jobs.lifecycle.workspace import Workspace

_MOST_TEXT = 300
# The error is not shown before.
_WAIT_S = 10.0


@contextmanager
def recorded(work: Workspace, source_kind: str, run: FailedRun = "backup") -> Iterator[None]:
    """Let an error of the block pass, and leave a row of it where there is a catalog.

    Not of a dry run, of wrong flags, of nothing new (UsageProblem), or where another run is at work (Busy):
    its end is what counts. Not of one that a person interrupted.
    """
    started = time.time_ns() // 1000
    try:
        yield
    except (UsageProblem, Busy):
        raise
    except Exception as error:
        if not work.request.dry_run:
            with suppress(Exception):  # a destination that cannot be reached, say, which is the error
                _record(work, source_kind, run, started, error)
        raise


def _record(work: Workspace, source_kind: str, run: FailedRun, started: int, error: Exception) -> None:
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
    row = Failure(
        source=work.source,
        source_kind=source_kind,
        run=run,
        started_at=started,
        at=time.time_ns() // 1000,
        error=type(error).__name__,
        message=lines[0][:_MOST_TEXT] if lines else "",
        exit_code=code,
        actor=holder(),
    )
    writer = work.writer(here=True)
    writer.migrate()
    writer.append([row], wait_s=_WAIT_S)
