"""`lakebackup sql`: any question to the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli import options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lakebackup.config import Settings
    from lakebackup.engine.limits import Limits
    from lakebackup.errors import TimedOut
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
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="SPAN", help="Stop the query when it has run for so long.")
    ] = "5m",
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
    from lakebackup.engine.limits import Limits
    from lakebackup_jobs import ask

    seconds, give_up = _seconds(timeout), _give_up(json)
    if explain:
        _explain(found, text, as_of, as_json=json)
    elif (engine or ("spark" if remote else "duckdb")) == "spark":
        rows.write(_by_spark(context, found, text, as_of, seconds, give_up), as_json=json, as_csv=csv)
    else:
        reader = open_found(found, as_of)
        limits = Limits(reader.interrupt, seconds=seconds, give_up=give_up)
        with limits.running():
            answer = ask.select(reader, text)
        rows.write(_within(limits, answer.rows), as_json=json, as_csv=csv)
        _note(answer.readings)


def _seconds(timeout: str) -> float:
    from lakebackup.times import parse_duration

    seconds = parse_duration(timeout, of=timeout) / 1000
    if not seconds:
        raise UsageProblem("--timeout must be longer than 0.", hint="Example: --timeout 30m")
    return seconds


def _give_up(as_json: bool) -> Callable[[TimedOut], None]:
    """The last resort against a query that does not let itself be stopped: end the process."""
    import os
    import sys

    from lakebackup_jobs.cli import tell

    def give_up(error: TimedOut) -> None:
        code = tell(error, as_json=as_json)
        sys.stderr.flush()
        os._exit(code)

    return give_up


def _within(limits: Limits, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """The same rows, each batch read within the limits."""
    import pyarrow as pa

    def batches() -> Iterator[pa.RecordBatch]:
        while True:
            with limits.running():
                batch = next(rows, None)
            if batch is None:
                return
            yield batch

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


def _by_spark(
    context: typer.Context,
    found: Settings,
    text: str,
    as_of: str | None,
    seconds: float,
    give_up: Callable[[TimedOut], None],
) -> pa.RecordBatchReader:
    from lakebackup.engine.limits import Limits
    from lakebackup_jobs import ask
    from lakebackup_jobs.cli.invocation import instant, session_of
    from lakebackup_jobs.cli.reading import open_found
    from lakebackup_jobs.session import spark_session

    reader = open_found(found, as_of)
    spark = session_of(context, found) or spark_session(remote=found.remote)
    then = instant(as_of)
    limits = Limits(spark.interruptAll, seconds=seconds, give_up=give_up, memory=False)
    with limits.running():
        frame = ask.select_on_spark(spark, reader, text, as_of=None if then is None else then * 1000)
        rows = ask.streamed(frame)
    return _within(limits, rows)


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
