"""`lakebackup due`: the backups that policies want now, for cron and the like."""

from __future__ import annotations

import typer

from lakebackup.errors import Incomplete
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import switch
from lakebackup_jobs.cli.verb import Call, verb


@verb(options.FROM, options.SOURCE, options.BOOTSTRAP, options.KAFKA_CONFIG)
def due(call: Call, run: bool = switch("--run", "Take them, one after another.")) -> None:
    """Tell which backups are due by the policies' schedules, or take them. Ends at once when none is.

    A backup takes the topics that the policy's patterns match, new ones too (`policy set --pattern`); without
    patterns, those that some backup of the source holds. The view unprotected_topics has the others.

    Examples:
        lakebackup due --from ./backups
        */5 * * * *  lakebackup due --run --config /etc/lakebackup.toml    # in a crontab
    """
    import shlex
    import time
    from dataclasses import asdict

    where, source = call.where, call.settings.source
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.upkeep import policies

    reader = CatalogReader.require(*call.places)
    wanted = policies.due(reader, source, time.time_ns() // 1_000_000)
    if not wanted and not call.json:
        # Cron mails what is printed: there, nothing is due most of the time.
        call.report.note("No backup is due.") if run else typer.echo("No backup is due.")
    found = [asdict(one) | {"arguments": shlex.join(one.arguments)} for one in wanted]
    call.report.result({"due": found})
    if not run:
        return
    from lakebackup_jobs.cli import main

    shared = ["--to", where, *call.passed_on("from_", "source")]
    codes = [main(["backup", "topics", *one.arguments, *shared], call.session) for one in wanted]
    failed = [one.source for one, code in zip(wanted, codes, strict=True) if code]
    if failed:
        raise Incomplete(
            f"The backups that were due of {', '.join(failed)} did not end well.",
            hint="What went wrong stands above; they stay due.",
        )
