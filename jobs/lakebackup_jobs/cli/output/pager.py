"""Sends long output to a pager."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import IO, cast


@contextmanager
def paged() -> Iterator[None]:
    """While the block runs, send standard output to $PAGER (default: less) if it is a terminal.

    If $PAGER is empty or not installed, there is no pager.
    """
    command = shlex.split(os.environ.get("PAGER", "less"))
    if not (sys.stdout.isatty() and command and shutil.which(command[0])):
        yield
        return
    sys.stdout.flush()
    # These options end less when all fits the screen (F), keep colours (R) and cut long lines (S).
    environment = {"LESS": "-FRSX", **os.environ}
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment) as pager:
        try:
            with redirect_stdout(cast("IO[str]", pager.stdin)):
                yield
        finally:
            with suppress(BrokenPipeError):
                cast("IO[str]", pager.stdin).close()
