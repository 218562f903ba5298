"""`lakebackup status`: the sources that need attention."""

from __future__ import annotations

from pathlib import Path

from lakebackup.errors import Damaged, Incomplete, LakebackupError
from lakebackup.rules.kinds import no_source
from lakebackup.rules.times import format_ts
from lakebackup.sql_engine.delta.upkeep import upkeep_of
from lakebackup.store.trust import HINT
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option
from lakebackup_jobs.cli.output.rows import Brief
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.query.report.values import status_lines
from lakebackup_jobs.query.source_metrics import write_file
from lakebackup_jobs.query.words import counted
from lakebackup_jobs.upkeep.approvals import unapproved

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
# Without `detail`: the lines below the table have its text in full.
_TERMINAL = tuple(name for name in COLUMNS if name != "detail")
_REPOSITORY_FLAGS = {flag.name for flag in (*options.REPO, options.CONFIG)}
# With so many small files in a table, upkeep does not keep up, or no command has changed the catalog since an
# earlier version.
MUCH_TO_MERGE = 100
FIRST_OUT = ("held_bytes", "last_drill", "verified_time", "due_time")


@verb(options.ROWS, options.AGENT, options.ONE_SOURCE)
def status(
    call: Call,
    metrics: Path | None = option(
        "--metrics FILE", "Also write the figures to this file, as OpenMetrics text."
    ),
) -> None:
    """Show for each source whether it is OK, LATE, FAILED, DAMAGED, FUTURE, UNVERIFIED or UNPROTECTED.

    Below it, each problem has a line that ends with the command that mends it. Exit code 0: all are OK. 7:
    one is DAMAGED. 4: one is not OK for another reason. The column `detail` of --json has every problem.

    Examples:
        lakebackup status --repo ./backups
        lakebackup status --repo ./backups --json | jq -r 'select(.status != "OK") | .source'
        lakebackup status --repo ./backups --agent
        lakebackup status --repo ./backups --metrics /var/lib/node_exporter/lakebackup.prom
    """
    source = call.flags["source"]  # not from the settings, which would hide other sources
    reader = call.reader()
    table = reader.query("list_status", source=source).read_all()
    rows = table.to_pylist()
    if not rows and source:
        raise no_source(reader, source)
    call.write(table.to_reader(), COLUMNS, Brief(_TERMINAL, FIRST_OUT))
    if metrics:
        write_file(metrics, rows, reader.catalog_uri)
    if source is None and call.flags["as_of"] is None:
        _show_upkeep(call, reader.catalog_uri)
    for claim in unapproved(reader, unreadable=lambda error: call.warn(error.message)):
        if source in (None, claim.name):
            call.warn(f"Not approved on this machine, so not carried out: {claim.text}. {HINT}")
    states = {row["status"] for row in rows} - {"OK"}
    if states:
        lines = "\n".join(
            status_lines(reader, rows, call.shared_arguments(*(set(call.flags) - _REPOSITORY_FLAGS)))
        )
        raise Damaged(lines) if "DAMAGED" in states else Incomplete(lines)


def _show_upkeep(call: Call, catalog_uri: str) -> None:
    """Print the state of the catalog's upkeep with --json and --wide, or when `catalog optimize` is due."""
    try:
        upkeep = upkeep_of(catalog_uri)
    except LakebackupError as error:  # what `status` is about does not need all tables
        call.warn(error.message)
        return
    is_due = upkeep.most_small_files > MUCH_TO_MERGE
    if not (is_due or call.json or call.wide):
        return
    merged_at = None if upkeep.merged_ms is None else format_ts(upkeep.merged_ms)
    text = (
        f"Catalog: {counted(upkeep.small_files, 'small file')}, "
        f"{counted(upkeep.log_entries, 'commit')} since checkpoints, "
        f"{f'files last merged at {merged_at}' if merged_at else 'no files merged yet'}."
    )
    if is_due:
        text += " `lakebackup catalog optimize` merges the files."
    call.note(
        text, small_files=upkeep.small_files, log_entries=upkeep.log_entries, merged_ms=upkeep.merged_ms
    )
