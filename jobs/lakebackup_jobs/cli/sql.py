"""`lakebackup sql`: any question to the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lakebackup_jobs.cli import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakebackup.config import Settings
    from lakebackup_jobs.ask import Reading

EXAMPLES = options.examples(
    'lakebackup sql "SELECT source, count(*) AS backups FROM backups GROUP BY source"',
    "lakebackup sql \"SELECT path FROM files WHERE scope = 'orders' AND bytes > 1000000\" --csv",
    "lakebackup sql - < question.sql",
    "lakebackup sql \"SELECT time, value FROM records('orders') WHERE key = 'customer-7'\"",
    'lakebackup sql --as-of -7d "SELECT scope, max(covers_to) AS until FROM restore_points GROUP BY scope"',
)


def sql(
    context: typer.Context,
    statement: Annotated[
        str, typer.Argument(metavar="SELECT", help="One SELECT; '-' reads it from standard input.")
    ],
    as_of: options.AsOf = None,
    explain: options.Explain = False,
    engine: Annotated[
        Literal["duckdb", "spark"] | None,
        typer.Option("--engine", help="What runs it.", show_default="duckdb; spark with --remote"),
    ] = None,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    remote: options.Remote = None,
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    json: options.Json = False,
    csv: options.Csv = False,
    _debug: options.Debug = False,
) -> None:
    """Ask the catalog with a SELECT over its tables (backups, files, positions, gaps, restores, …), and the
    records inside the backups with records('topic'), which restores nothing.

    Only reads: one SELECT, catalog tables alone, no function that touches files. With --as-of, tables are
    as they were then, and now_files is what files is now.
    """
    import sys

    from lakebackup_jobs.cli import rows
    from lakebackup_jobs.cli.invocation import settings
    from lakebackup_jobs.cli.reading import open_found

    text = sys.stdin.read() if statement == "-" else statement
    found = settings(
        config,
        spark_conf=spark_conf or (),
        destination=from_,
        catalog=catalog,
        remote=remote,
        master=master,
    )
    from lakebackup_jobs import ask

    if explain:
        _explain(found, text, as_of, as_json=json)
    elif (engine or ("spark" if remote else "duckdb")) == "spark":
        rows.write(_by_spark(context, found, text, as_of), as_json=json, as_csv=csv)
    else:
        answer = ask.select(open_found(found, as_of), text)
        rows.write(answer.rows, as_json=json, as_csv=csv)
        _note(answer.readings)


def _by_spark(context: typer.Context, found: Settings, text: str, as_of: str | None) -> pa.RecordBatchReader:
    from lakebackup_jobs import ask
    from lakebackup_jobs.cli.invocation import instant, session_of
    from lakebackup_jobs.cli.reading import open_found
    from lakebackup_jobs.session import spark_session

    reader = open_found(found, as_of)
    spark = session_of(context, found) or spark_session(remote=found.remote)
    then = instant(as_of)
    frame = ask.select_on_spark(spark, reader, text, as_of=None if then is None else then * 1000)
    return ask.streamed(frame)


def _explain(found: Settings, text: str, as_of: str | None, *, as_json: bool) -> None:
    import json

    from lakebackup_jobs import ask
    from lakebackup_jobs.cli.explain import explain
    from lakebackup_jobs.cli.reading import open_found

    readings: list[Reading] = []
    explain(lambda: readings.extend(ask.explain(open_found(found, as_of), text)), as_json=as_json)
    for reading in readings:
        if as_json:
            figures = {"held": reading.held, "chosen": reading.chosen, "possible": reading.possible}
            typer.echo(json.dumps({"records": reading.topic, "files": figures}))
        else:
            typer.echo(
                f"-- records({reading.topic!r}): of {reading.held} files {reading.chosen} are chosen by "
                f"record_files, and {reading.possible} are left by their key filters."
            )


def _note(readings: Sequence[Reading]) -> None:
    """Where the time went, for a person: not among the rows."""
    from lakebackup_jobs.progress import display

    for reading in readings:
        typer.echo(
            f"records({reading.topic!r}): {reading.opened} of {reading.held} files opened, "
            f"{display('bytes', reading.opened_bytes)} of {display('bytes', reading.held_bytes)}.",
            err=True,
        )
