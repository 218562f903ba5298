"""`lakebackup manage`: report, prune and merge under the names that cbbackup-manage was to have."""

from __future__ import annotations

from typing import Annotated

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.invocation import Invocation, one_of


def manage(
    context: typer.Context,
    folder: Annotated[
        str | None, typer.Argument(metavar="BACKUP_DIR", help="Where the backups are kept.")
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="As `lakebackup report`.")] = False,
    prune: Annotated[
        int | None, typer.Option("--prune", min=0, metavar="DAYS", help="As `lakebackup prune DAYS`.")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="With --prune: do it.")] = False,
    merge: Annotated[
        int | None, typer.Option("--merge", min=1, metavar="LEVEL", help="As `lakebackup merge LEVEL`.")
    ] = None,
    catalog: options.Catalog = None,
    source: options.Source = None,
    config: options.Config = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Do what the command of that name does."""
    verb = one_of({"report": report, "prune": prune is not None, "merge": merge is not None}, otherwise="")
    if not verb:
        raise UsageProblem(
            "Nobody said what to do.",
            hint="Give --report, --prune DAYS or --merge LEVEL; `lakebackup manage --help` says more.",
        )
    if delete and verb != "prune":
        raise UsageProblem(
            "--delete goes with --prune.", hint="Leave it out, or give --prune DAYS in place of the other."
        )
    if source and verb == "report":
        raise UsageProblem(
            "A report tells of every source.", hint="Leave --source out; --json gives rows that name theirs."
        )
    number = {"prune": prune, "merge": merge}.get(verb)
    arguments = [] if number is None else [str(number)]
    told = {"from": folder, "catalog": catalog, "source": source, "config": config}
    arguments += [part for flag, value in told.items() if value for part in (f"--{flag}", str(value))]
    arguments += [f"--{flag}" for flag, given in (("delete", delete), ("json", json)) if given]
    from lakebackup_jobs.cli import main

    spark = context.obj.spark if isinstance(context.obj, Invocation) else None
    raise typer.Exit(main([verb, *arguments], spark))
