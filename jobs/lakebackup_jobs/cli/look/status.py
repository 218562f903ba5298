"""`lakebackup status`: what somebody has to look after."""

from __future__ import annotations

from pathlib import Path

from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option
from lakebackup_jobs.cli.verb import Call, verb

COLUMNS = (
    "status",
    "source",
    "detail",
    "restorable_time",
    "due_time",
    "verified_time",
    "last_drill",
    "held_bytes",
)
FIRST_OUT = ("held_bytes", "last_drill", "verified_time", "due_time")


@verb(options.ROWS, options.ONE_SOURCE)
def status(
    call: Call,
    metrics: Path | None = option(
        "--metrics FILE", "Also write the figures to this file, as OpenMetrics text."
    ),
) -> None:
    """Show for each source whether it is OK, LATE, FAILED, DAMAGED, FUTURE, UNVERIFIED or UNPROTECTED.

    Ends with 0 when all are OK, with 7 when one is DAMAGED, else with 4. The column `detail` has all
    that is true of a source.

    Examples:
        lakebackup status --repo ./backups
        lakebackup status --repo ./backups --json | jq -r 'select(.status != "OK") | .source'
        lakebackup status --repo ./backups --metrics /var/lib/node_exporter/lakebackup.prom
    """
    from lakebackup.errors import Damaged, Incomplete
    from lakebackup.rules.kinds import no_source
    from lakebackup.store.trust import HINT
    from lakebackup_jobs.cli.output.rows import Brief
    from lakebackup_jobs.upkeep.approvals import unapproved

    source = call.flags["source"]  # the setting must not hide the others
    reader = call.reader()
    found = reader.query("list_status", source=source).read_all()
    rows = found.to_pylist()
    if not rows and source:
        raise no_source(reader, source)
    call.write(found.to_reader(), COLUMNS, Brief(COLUMNS, FIRST_OUT))
    if metrics:
        from lakebackup_jobs.query.source_metrics import write_file

        write_file(metrics, rows)
    for claim in unapproved(reader, unreadable=lambda error: call.warn(error.message)):
        if source in (None, claim.name):
            call.warn(f"Not approved on this machine, so not carried out: {claim.text}. {HINT}")
    if damaged := [row["source"] for row in rows if row["status"] == "DAMAGED"]:
        raise Damaged(
            f"Backups of {', '.join(damaged)} are damaged.",
            hint="The column detail says why; `lakebackup report` has the command that mends it.",
        )
    if others := [f"{row['source']} is {row['status']}" for row in rows if row["status"] != "OK"]:
        raise Incomplete(f"Not all is well: {', '.join(others)}.", hint="The column detail says why.")
