"""`lakebackup sql`: any question to the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import typer

from lakebackup.errors import UsageProblem
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option
from lakebackup_jobs.cli.verb import Call, verb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lakebackup.errors import TimedOut
    from lakebackup.sql_engine.limits import Limits
    from lakebackup_jobs.query.record_query import Reading


@verb(options.ROWS, options.SPARK_JOB, options.EXPLAIN)
def sql(
    call: Call,
    statement: str = argument("SELECT", "One SELECT; '-' reads it from standard input.", ...),
    timeout: str = option("--timeout SPAN", "Stop the query when it has run for so long.", "5m"),
    engine: Literal["duckdb", "spark"] | None = option(
        "--engine", "What runs it.", show_default="duckdb; spark with --remote"
    ),
) -> None:
    """Ask the catalog with a SELECT over its tables (backups, files, positions, gaps, restores, …), and the
    records inside the backups with records('topic'), which restores nothing.

    Only reads: one SELECT (or SHOW TABLES, DESCRIBE, EXPLAIN), no function that touches files. With --as-of,
    tables are as they were then, and now_files is what files is now.

    Examples:
        lakebackup sql "SELECT source, count(*) AS backups FROM backups GROUP BY source"
        lakebackup sql "SELECT path FROM files WHERE scope = 'orders' AND bytes > 1000000" --csv
        lakebackup sql - < question.sql
        lakebackup sql "SELECT time, value FROM records('orders') WHERE key = 'customer-7'"
        lakebackup sql --as-of -7d "SELECT scope, max(covers_to) AS until FROM restore_points GROUP BY scope"
    """
    import sys

    text = sys.stdin.read() if statement == "-" else statement
    from lakebackup.sql_engine.limits import Limits
    from lakebackup_jobs.query import record_query as ask

    seconds, give_up = _seconds(timeout), _give_up(call.json)
    if call.explain:
        _explain(call, text)
    elif (engine or ("spark" if call.flags["remote"] else "duckdb")) == "spark":
        call.write(_by_spark(call, text, seconds, give_up))
    else:
        reader = call.reader()
        limits = Limits(reader.interrupt, seconds=seconds, give_up=give_up)
        with limits.running():
            answer = ask.select(reader, text)
        call.write(_within(limits, answer.rows))
        _note(answer.readings)


def _seconds(timeout: str) -> float:
    from lakebackup.rules.times import parse_duration

    seconds = parse_duration(timeout, of=timeout) / 1000
    if not seconds:
        raise UsageProblem("--timeout must be longer than 0.", hint="Example: --timeout 30m")
    return seconds


def _give_up(as_json: bool) -> Callable[[TimedOut], None]:
    """The last resort against a query that does not let itself be stopped: end the process."""
    import os
    import sys

    from lakebackup_jobs.cli.output.errors import report

    def give_up(error: TimedOut) -> None:
        code = report(error, as_json=as_json)
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
    call: Call, text: str, seconds: float, give_up: Callable[[TimedOut], None]
) -> pa.RecordBatchReader:
    from lakebackup.sql_engine.limits import Limits
    from lakebackup.sql_engine.spark import streamed
    from lakebackup_jobs.query import record_query as ask
    from lakebackup_jobs.runtime.session import spark_session

    reader = call.reader()
    spark = call.spark() or spark_session(remote=call.settings.remote)
    limits = Limits(spark.interruptAll, seconds=seconds, give_up=give_up, memory=False)
    with limits.running():
        rows = streamed(ask.select_on_spark(spark, reader, text, as_of=call.as_of))
    return _within(limits, rows)


def _explain(call: Call, text: str) -> None:
    import json

    from lakebackup_jobs.cli.output.explain import explain
    from lakebackup_jobs.query import record_query as ask

    readings: list[Reading] = []
    explain(lambda: readings.extend(ask.explain(call.reader(), text)), as_json=call.json)
    for reading in readings:
        if call.json:
            figures = {"held": reading.held, "chosen": reading.chosen, "possible": reading.possible}
            typer.echo(json.dumps({"records": reading.topic, "files": figures}))
        else:
            typer.echo(
                f"-- records({reading.topic!r}): of {reading.held} files {reading.chosen} are chosen by "
                f"record_files, and {reading.possible} are left by their key filters."
            )


def _note(readings: Sequence[Reading]) -> None:
    """Where the time went, for a person: not among the rows."""
    from lakebackup_jobs.lifecycle.progress import display

    for reading in readings:
        typer.echo(
            f"records({reading.topic!r}): {reading.opened} of {reading.held} files opened, "
            f"{display('bytes', reading.opened_bytes)} of {display('bytes', reading.held_bytes)}.",
            err=True,
        )
