"""`lakebackup due`: the backups that policies want now, for cron and the like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lakebackup.errors import Incomplete
from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.invocation import Invocation, destination, settings

EXAMPLES = options.examples(
    "lakebackup due --from ./backups",
    "*/5 * * * *  lakebackup due --run --config /etc/lakebackup.toml    # in a crontab",
)


def due(
    context: typer.Context,
    run: Annotated[bool, typer.Option("--run", help="Take them, one after another.")] = False,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    source: options.Source = None,
    bootstrap_servers: options.BootstrapServers = None,
    kafka_config: options.KafkaConfig = None,
    config: options.Config = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Tell which backups are due by the policies' schedules, or take them. Ends at once when none is.

    A backup takes the topics that the policy's patterns match, new ones too (`policy set --pattern`); without
    patterns, those that some backup of the source holds. The view unprotected_topics has the others.
    """
    import shlex
    import time
    from dataclasses import asdict

    from lakebackup.store import CatalogReader
    from lakebackup_jobs import policies
    from lakebackup_jobs.progress import reporter

    found = settings(config, destination=from_, catalog=catalog, source=source)
    where = destination(found, "--from")
    reader = CatalogReader.require(where, found.catalog)
    wanted = policies.due(reader, found.source, time.time_ns() // 1_000_000)
    with reporter(as_json=json) as report:
        if not wanted and not json:
            # Cron mails what is printed: there, nothing is due most of the time.
            report.note("No backup is due.") if run else typer.echo("No backup is due.")
        told: list[dict[str, Any]] = [
            asdict(one) | {"arguments": shlex.join(one.arguments)} for one in wanted
        ]
        report.result({"due": told})
    if not run:
        return
    shared: list[str] = ["--to", where]
    given: tuple[tuple[str, str | Path | None], ...] = (
        ("--catalog", catalog),
        ("--bootstrap-server", bootstrap_servers),
        ("--kafka-config", kafka_config),
        ("--config", config),
    )
    shared += [text for flag, value in given if value is not None for text in (flag, str(value))]
    shared += ["--json"] if json else []
    spark = context.obj.spark if isinstance(context.obj, Invocation) else None
    from lakebackup_jobs.cli import main

    codes = [main(["backup", "topics", *one.arguments, *shared], spark) for one in wanted]
    failed = [one.source for one, code in zip(wanted, codes, strict=True) if code]
    if failed:
        raise Incomplete(
            f"The backups that were due of {', '.join(failed)} did not end well.",
            hint="What went wrong stands above; they stay due.",
        )
