"""The command line. `main` runs one command and turns every failure into its documented exit code."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import typer
from pyspark.sql import SparkSession

from lakebackup.errors import LakebackupError
from lakebackup.store.caller import calling
from lakebackup_jobs.cli.app import app as root_app
from lakebackup_jobs.cli.interrupt import EXIT_CODES, end_spark, interruptible
from lakebackup_jobs.cli.interrupt import message as interruption
from lakebackup_jobs.cli.output.errors import expected, report, report_text
from lakebackup_jobs.cli.output.streams import open_streams
from lakebackup_jobs.cli.output.usage import usage_problem

# Set before numpy is loaded, which would otherwise start threads for computations that lakebackup never does.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def main(argv: Sequence[str] | None = None, spark: SparkSession | None = None) -> int:
    """Run `lakebackup` with `argv` (None means the process's own), on the session `spark` if it is given.

    Returns the exit code and never raises. Messages go to standard error, as one JSON object with --json.
    """
    if argv is None:
        gc.set_threshold(100_000)  # nearly all objects that a starting command creates stay in use
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Read from the words, because an error in the flags themselves must also be printed in the right form.
    as_json, debug = "--json" in arguments, "--debug" in arguments
    with interruptible() as interruption_state:
        try:
            code = _run(arguments, spark)
            with suppress(BrokenPipeError):
                sys.stdout.flush()
            if code not in EXIT_CODES:
                return code
        except KeyboardInterrupt:
            pass
        except LakebackupError as error:
            if not interruption_state:
                return report(expected(error) or error, as_json=as_json, debug=debug)
        except Exception as error:  # noqa: BLE001 - any other error has exit code 1
            if isinstance(error, BrokenPipeError) and getattr(sys.stdout, "reader_left", False):
                return 0
            problem = expected(error)
            if problem and not interruption_state:
                return report(problem, as_json=as_json, debug=debug)
            if not interruption_state:
                message = f"Unexpected failure: {type(error).__name__}: {error}"
                hint = (
                    "This is a defect of lakebackup. Please report it, with what --debug and --version print."
                )
                return report_text(error, 1, "Unexpected", message, hint, as_json=as_json, debug=debug)
        message = interruption(arguments)
        code = interruption_state.exit_code
        report_text(None, code, "Interrupted", message, "", as_json=as_json, debug=debug)
        if spark is None:
            end_spark()
    return code


def command() -> None:
    """Run `lakebackup` as a process. Skips interpreter teardown (saves 70 ms)."""
    _require_utf8()
    open_streams()
    process_exit = _ProcessExit()
    # The function that is registered first is called last, when threads, clients and databases have ended.
    atexit.register(process_exit.leave)
    process_exit.code = main()
    sys.exit(process_exit.code)


def _require_utf8() -> None:
    """Run the command again in UTF-8 mode if the locale has another encoding.

    Otherwise Python would decode file names by the locale, and the catalog would store wrong names.
    """
    if sys.getfilesystemencoding() == "utf-8" or sys.flags.utf8_mode:
        return
    os.environ["PYTHONUTF8"] = "1"  # for processes that this one starts, too
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - the same command


class _ProcessExit:
    """Ends the process with `code`, without interpreter teardown."""

    code = 1

    def leave(self) -> None:
        if sys.gettrace() is not None:  # a debugger or a coverage tool still has work to do
            return
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, LakebackupError):  # an error of standard output was reported before
                stream.flush()
        os._exit(self.code)


def _run(arguments: list[str], spark: SparkSession | None) -> int:
    words = arguments or ["--help"]
    try:
        # Outside its standalone mode typer returns the code of an Exit and lets errors through.
        with calling(words):
            code = _commands()(words, prog_name="lakebackup", obj=spark, standalone_mode=False)
    except typer.TyperException as error:
        raise usage_problem(error) from None
    return code if isinstance(code, int) else 0


@cache
def _commands() -> Any:
    """All commands with their flags. A process that runs several commands builds them once."""
    return typer.main.get_command(root_app)
