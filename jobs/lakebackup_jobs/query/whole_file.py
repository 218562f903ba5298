"""Writes files that other programs may be reading."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from lakebackup.errors import EnvironmentProblem


def write_whole(text: str, target: Path, subject: str) -> None:
    """Replace a file by a text atomically: a reader sees the old content or the new one.

    Raises EnvironmentProblem, which says that `subject` cannot be written.
    """
    draft = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=target.absolute().parent, prefix=f".{target.name}-", delete=False
        ) as file:
            draft = Path(file.name)
            draft.chmod(0o644)
            file.write(text)
        draft.replace(target)
    except OSError as error:
        if draft:
            draft.unlink(missing_ok=True)
        raise EnvironmentProblem(
            f"{subject} cannot be written to {target}: {os.strerror(error.errno or 0)}.",
            hint="Name a file in a folder that exists and can be written.",
        ) from error
