"""`lakebackup manage`: report, prune and merge under the names that cbbackup-manage was to have."""

from __future__ import annotations

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option, switch
from lakebackup_jobs.cli.flags.values import one_of, required
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.CATALOG, options.SOURCE)
def manage(
    call: Call,
    folder: str | None = argument("BACKUP_DIR", "Where the backups are kept."),
    report: bool = switch("--report", "As `lakebackup report`."),
    prune: int | None = option("--prune DAYS", "As `lakebackup prune DAYS`.", min=0),
    delete: bool = switch("--delete", "With --prune: do it."),
    merge: int | None = option("--merge LEVEL", "As `lakebackup merge LEVEL`.", min=1),
) -> int:
    """Do what the command of that name does."""
    modes = {"report": report, "prune": prune is not None, "merge": merge is not None}
    name = required(
        one_of(modes, otherwise=""),
        "--report, --prune or --merge",
        "what is to be done?",
        hint="Give --report, --prune DAYS or --merge LEVEL; `lakebackup manage --help` says more.",
    )
    if delete and name != "prune":
        raise UsageProblem(
            "--delete goes with --prune.", hint="Leave it out, or give --prune DAYS in place of the other."
        )
    if call.flags["source"] and name == "report":
        raise UsageProblem(
            "--source: a report covers every source.",
            hint="Leave --source out; each row of --json names its own.",
        )
    number = {"prune": prune, "merge": merge}.get(name)
    arguments = [] if number is None else [str(number)]
    arguments += ["--from", folder] if folder else []
    arguments += ["--delete"] if delete else []
    from lakebackup_jobs.cli import main

    return main([name, *arguments, *call.passed_on()], call.session)
