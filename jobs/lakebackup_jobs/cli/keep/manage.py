"""`lakebackup manage`: report, prune and merge with the flags of cbbackup-manage."""

from __future__ import annotations

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli import main
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.flags.values import one_of, required
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.CATALOG, options.SOURCE)
def manage(
    call: Call,
    folder: str | None = argument("BACKUP_DIR", "Where the backups are stored."),
    report: bool = switch("--report", "Run `lakebackup report`."),
    prune: int | None = option("--prune DAYS", "Run `lakebackup prune DAYS`.", min=0),
    delete: bool = switch("--delete", "Delete. With --prune."),
    merge: int | None = option("--merge LEVEL", "Run `lakebackup merge LEVEL`.", min=1),
) -> int:
    """Run the report, prune or merge command."""
    modes = {"report": report, "prune": prune is not None, "merge": merge is not None}
    name = required(
        one_of(modes, otherwise=""),
        "--report, --prune or --merge",
        "which command?",
        hint="Give --report, --prune DAYS or --merge LEVEL; see `lakebackup manage --help`.",
    )
    if delete and name != "prune":
        raise UsageProblem("--delete needs --prune.", hint="Leave it out, or give --prune DAYS instead.")
    if call.flags["source"] and name == "report":
        raise UsageProblem(
            "--source: a report covers every source.",
            hint="Leave --source out; each row of --json names its own.",
        )
    number = {"prune": prune, "merge": merge}.get(name)
    arguments = [] if number is None else [str(number)]
    arguments += ["--repo", folder] if folder else []
    arguments += ["--delete"] if delete else []

    return main([name, *arguments, *call.shared_arguments()], call.session)
