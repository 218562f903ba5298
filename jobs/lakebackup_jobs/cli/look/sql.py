"""`lakebackup sql`: a SELECT over the catalog, and the shell."""

from __future__ import annotations

import json
import sys

import typer
from pyspark.sql import SparkSession

from lakebackup.errors import NeedsSpark, UsageProblem
from lakebackup.sql_engine import EngineChoice
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import argument, option
from lakebackup_jobs.cli.flags.values import span
from lakebackup_jobs.cli.output.errors import end_process
from lakebackup_jobs.cli.shell.prompt import interact
from lakebackup_jobs.cli.shell.shell import Shell
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.connection import Connection
from lakebackup_jobs.lifecycle.progress import JSON_VERSION, display
from lakebackup_jobs.query import record_query as ask
from lakebackup_jobs.query.answer import Answer, Reading
from lakebackup_jobs.runtime.session import spark_session
from lakebackup_jobs.runtime.terminal_text import visible


@verb(options.ROWS, options.AGENT, options.SPARK_JOB, options.EXPLAIN)
def sql(
    call: Call,
    statement: str | None = argument("SELECT", "One SELECT; without it, a shell."),
    timeout: str = option("--timeout SPAN", "Stop a query after this time.", "5m"),
    engine: EngineChoice = option(
        "--engine NAME",
        "SQL engine: auto, duckdb or spark. auto takes Spark for what DuckDB cannot answer.",
        "auto",
    ),
) -> None:
    """Query the catalog, and the records inside the backups, with a SELECT.

    Its views are backups, files, positions, gaps, restores and more; records('topic') reads the records
    inside the backups without restoring anything.

    It only reads: one SELECT (or SHOW TABLES, DESCRIBE, EXPLAIN), and no function that touches files. With
    --as-of, views show the catalog as it was at that time; now_files is the present view files.

    On a terminal, long texts are shortened to fit. If a table has too many columns, each column gets a line.
    --wide shows the table in full.

    Without a SELECT, a shell starts, with history and completion; help shows its commands. If standard input
    is not a terminal, its statements run up to the first error.

    Examples:
        lakebackup sql --repo ./backups
        lakebackup sql "SELECT source, count(*) AS backups FROM backups GROUP BY source"
        lakebackup sql "SELECT path FROM files WHERE scope = 'orders' AND bytes > 1000000" --csv
        lakebackup sql "SELECT scope, restorable_time FROM rpo" --agent
        lakebackup sql < questions.sql
        lakebackup sql "SELECT time, value FROM records('orders') WHERE key = 'customer-7'"
        lakebackup sql --as-of -7d "SELECT scope, max(covers_to) AS until FROM restore_points GROUP BY scope"
    """
    if call.explain:
        if statement is None:
            raise UsageProblem("--explain explains one SELECT.", hint='Give it: lakebackup sql "SELECT …".')
        _explain(call, statement)
        return
    span("--timeout", timeout)  # raises an error that names the flag
    connection = _connection(call, engine)
    if statement is None:
        _shell(call, connection, timeout)
    else:
        answer = connection.sql(statement, timeout=timeout)
        call.write(answer.batches())
        _note(answer)


def _connection(call: Call, engine: str) -> Connection:
    def session() -> SparkSession:
        call.report.wait("starting Spark")
        try:
            return call.spark() or spark_session(remote=call.settings.remote)
        finally:
            call.report.clear()

    def fallback(error: NeedsSpark) -> SparkSession:
        if not call.json:
            message = visible(error.message.splitlines()[0].rstrip("."))
            call.report.clear()
            typer.echo(f"{message}. Starting Spark.", err=True)
        return session()

    by_spark = engine == "spark" or (engine == "auto" and bool(call.flags["remote"]))
    return call.connection(
        spark=session if by_spark else None,
        fallback=fallback if engine == "auto" and not by_spark else None,
        bounded=True,
        give_up=end_process(call.json),
    )


def _shell(call: Call, connection: Connection, timeout: str) -> None:
    mode = call.row_mode
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    connection.catalog()  # raises NotFound before the prompt if there is none
    call.report.clear()
    with Shell(connection, timeout=timeout, mode=mode, interactive=interactive, on_answer=_note) as shell:
        if interactive:
            interact(shell)
        else:
            shell.read(sys.stdin)


def _explain(call: Call, text: str) -> None:
    readings: list[Reading] = []
    call.print_explanation(lambda: readings.extend(ask.explain(call.reader(), text)))
    for reading in readings:
        if call.json:
            figures = {"held": reading.stored_files, "chosen": reading.selected, "possible": reading.possible}
            typer.echo(json.dumps({"v": JSON_VERSION, "records": reading.topic, "files": figures}))
        else:
            typer.echo(
                f"-- records({reading.topic!r}): of {reading.stored_files} files {reading.selected} "
                f"are chosen by record_files, and {reading.possible} are left by their key filters."
            )


def _note(answer: Answer) -> None:
    """Print on standard error how many files and bytes a query of records read."""
    for reading in answer.readings:
        typer.echo(
            f"records({reading.topic!r}): {reading.opened} of {reading.stored_files} files opened, "
            f"{display('bytes', reading.opened_bytes)} of {display('bytes', reading.stored_bytes)}.",
            err=True,
        )
