"""Long output page by page."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager, redirect_stdout, suppress
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def paged() -> Iterator[None]:
    """Standard output, if it is a terminal, goes to $PAGER, else less, while the block runs. An empty $PAGER
    and one that is not installed is none."""
    command = shlex.split(os.environ.get("PAGER", "less"))
    if not (sys.stdout.isatty() and command and shutil.which(command[0])):
        yield
        return
    sys.stdout.flush()
    # Ends by itself when all fits the screen; keeps colours; cuts long lines.
    environment = {"LESS": "-FRSX", **os.environ}
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment) as pager:
        try:
            with redirect_stdout(cast("IO[str]", pager.stdin)):
                yield
        finally:
            with suppress(BrokenPipeError):
                cast("IO[str]", pager.stdin).close()
