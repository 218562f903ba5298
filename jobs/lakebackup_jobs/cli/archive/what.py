"""Which part of an archive a verb reads, and where it writes it."""

from __future__ import annotations

from typing import Annotated

from lakebackup_jobs.cli.options import argument, option
from lakebackup_jobs.cli.values import required

What = Annotated[str | None, argument("BACKUP|SOURCE", "A backup's id, or a source: its newest backup.")]
Bucket = Annotated[list[str] | None, option("--bucket NAME", "Only this bucket or topic; repeatable.")]
Folder = Annotated[str, option("--to FOLDER", "An empty folder, or one to make.")]


def folder(to: str) -> str:
    """The folder to write. Raises UsageProblem without one."""
    return required(to, "--to", "which folder is to be written?", hint="Give --to FOLDER.").removeprefix(
        "dir:"
    )
