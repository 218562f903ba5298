"""`lakebackup catalog break-lease`."""

from __future__ import annotations

from lakebackup.storage import open_storage
from lakebackup.store import lease
from lakebackup.store.caller import OK
from lakebackup.store.writer import CatalogWriter
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.lifecycle.identity import audit_entry


@verb(options.REPO)
def break_lease(
    call: Call,
    name: str = argument("LEASE", "Its name, as the run that is refused says.", ...),
    reason: str = option("--reason TEXT", "The reason, for the audit log.", ...),
) -> None:
    """End the lease of a run that is dead, instead of waiting for it to expire.

    If the run is alive after all, it notices at its next renewal and stops.

    Examples:
        lakebackup catalog break-lease source-prod --reason 'its machine is gone'
    """
    repo = call.repository
    broken = lease.break_lease(open_storage(repo), name, reason)
    detail = {"reason": reason, "holder": broken.holder, "since_ms": broken.since_ms}
    entry = audit_entry("break_lease", name, detail, outcome=OK)
    CatalogWriter(None, *call.repository_and_catalog).append_audit(entry)
    call.report.result({"lease": name, "holder": broken.holder, "reason": reason})
