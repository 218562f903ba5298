"""Write a command's output into a new file (`--out`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lakebackup.errors import EnvironmentProblem
from lakebackup.requests import Request
from lakebackup.storage.nesting import require_outside


def write_new_file(request: Request, path: Path, pieces: Iterator[str]) -> None:
    """Write pieces of text into a new file, which is deleted when one of them raises an error.

    Raises UsageProblem when the file would be in a repository, and EnvironmentProblem when it cannot be
    written or exists.
    """
    require_outside(request, str(path), is_file=True)
    first_piece = next(pieces)  # raises before the file is created
    try:
        with path.open("x", encoding="utf-8") as file:
            try:
                file.write(first_piece)
                file.writelines(pieces)
            except BaseException:
                with suppress(OSError):
                    path.unlink()
                raise
    except OSError as error:
        raise EnvironmentProblem(
            f"{path} cannot be written: {os.strerror(error.errno or 0)}.",
            hint="Name a new file in a writable folder.",
        ) from error
