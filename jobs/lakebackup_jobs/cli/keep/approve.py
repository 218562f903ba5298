"""`lakebackup approve`: approve on this machine what rows of the catalog would make it do."""

from __future__ import annotations

import sys

import typer

from lakebackup.errors import Refused
from lakebackup.store.reader import CatalogReader
from lakebackup.store.trust import Approvals
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, switch
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.runtime.terminal_text import visible_lines
from lakebackup_jobs.upkeep.approvals import rows_of, unapproved


@verb(options.REPO, options.DRY_RUN)
def approve(
    call: Call,
    names: list[str] | None = argument("NAME", "Only these repositories, log tasks or sources."),
    yes: bool = switch("--yes -y", "Do not ask for confirmation."),
) -> None:
    """Show what the catalog asks this machine to do that nobody has approved here, and approve it.

    Anyone who can write the storage can write the catalog. So other repositories, the servers of log tasks
    and scheduled commands count only if lakebackup.toml names them ([approved]), or a person approved them
    on this machine with this account. What was set on this machine is approved already.

    Examples:
        lakebackup approve --repo ./backups --dry-run
        lakebackup approve prod --repo ./backups
        lakebackup approve --yes --json
    """
    reader = CatalogReader.require(*call.repository_and_catalog)
    approvals = Approvals(reader.catalog_uri)
    claims = unapproved(reader, names or (), lambda error: call.warn(error.message))
    rows = rows_of(claims, approvals)
    if call.dry_run or not claims:
        call.report.result({"unapproved": rows, **({"dry_run": True} if call.dry_run else {})})
        return
    if not yes and not (sys.stdin.isatty() and sys.stdout.isatty() and not call.json):
        for claim in claims:
            call.warn(f"{claim.text}. {claim.reason}")
        raise Refused(
            f"{len(claims)} claims are not approved.", hint="Read them, and approve them with --yes."
        )
    accepted = []
    for claim, row in zip(claims, rows, strict=True):
        if not yes:
            call.report.clear()
            typer.echo(visible_lines(claim.text))
            if row["approved"]:
                typer.echo(f"  Changed since it was approved here: {', '.join(row['changed'])}.")
            typer.echo(f"  {visible_lines(claim.reason)}")
        if yes or typer.confirm("Approve it?"):
            accepted.append(claim)
    approvals.approve(accepted)
    call.report.result({"approved": rows_of(accepted, approvals)})
    if len(accepted) < len(claims):
        raise Refused(
            f"{len(claims) - len(accepted)} claims were not approved.", hint="They do not count here."
        )
