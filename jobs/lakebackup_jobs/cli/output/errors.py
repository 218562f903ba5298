"""Prints a failure on standard error: its message and a hint, or one JSON object with --json."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

import typer

from lakebackup.errors import LakebackupError, TimedOut
from lakebackup.storage import s3a
from lakebackup_jobs.cli.extras import missing
from lakebackup_jobs.lifecycle.progress import event_line
from lakebackup_jobs.runtime.file_handles import too_many_files
from lakebackup_jobs.runtime.terminal_text import visible_lines


def expected(error: Exception) -> LakebackupError | None:
    """Return the expected error behind an error, whose exit code the command has; None for a defect."""
    if isinstance(error, ModuleNotFoundError):
        return missing(error)
    if isinstance(error, LakebackupError):
        return too_many_files(error) or error
    return too_many_files(error) or _lost_jvm() or _storage_problem(error)


def _lost_jvm() -> LakebackupError | None:
    """The error to report when the JVM died in the middle of a call; None when it did not."""
    jvm = sys.modules.get("lakebackup_jobs.runtime.java.jvm")
    return jvm.lost() if jvm is not None else None


def _storage_problem(error: Exception) -> LakebackupError | None:
    """The error to report when Spark could not reach its object storage; None for any other error."""
    if type(error).__module__.partition(".")[0] not in ("py4j", "pyspark"):
        return None

    return s3a.problem_in(str(error))


def report(error: LakebackupError, *, as_json: bool, debug: bool = False) -> int:
    """Print an expected failure, with `debug` also its traceback, and return its exit code."""
    return report_text(
        error, error.exit_code, type(error).__name__, error.message, error.hint, as_json=as_json, debug=debug
    )


def report_text(
    error: BaseException | None, code: int, kind: str, message: str, hint: str, *, as_json: bool, debug: bool
) -> int:
    """Print a failure from its parts, with `debug` also the traceback. Returns the exit code."""
    if debug and error is not None:
        print(visible_lines("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    if as_json:
        values = {"error": kind, "message": message, "hint": hint, "exit_code": code}
        print(event_line("error", values), file=sys.stderr)
        return code

    typer.secho("error: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(visible_lines(message), err=True)
    if hint:
        typer.secho(visible_lines(hint), dim=True, err=True)
    return code


def end_process(as_json: bool) -> Callable[[TimedOut], None]:
    """Return a function that ends the process: the last resort when a query cannot be stopped."""

    def report_and_end(error: TimedOut) -> None:
        code = report(error, as_json=as_json)
        sys.stderr.flush()
        os._exit(code)

    return report_and_end
