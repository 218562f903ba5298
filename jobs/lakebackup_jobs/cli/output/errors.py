"""Prints a failure on standard error: its message and a hint, or one JSON object with --json."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

import typer

from lakebackup.errors import LakebackupError, TimedOut
from lakebackup_jobs.lifecycle.progress import event_line
from lakebackup_jobs.runtime.terminal_text import visible_lines


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
