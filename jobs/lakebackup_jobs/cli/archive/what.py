"""What of an archive, and where to."""

from __future__ import annotations

from typing import Annotated

import typer

from lakebackup_jobs.cli.values import required

What = Annotated[
    str | None,
    typer.Argument(metavar="BACKUP|SOURCE", help="A backup's id, or a source: its newest backup."),
]
Bucket = Annotated[
    list[str] | None, typer.Option("--bucket", metavar="NAME", help="Only this bucket or topic; repeatable.")
]
Folder = Annotated[str, typer.Option("--to", metavar="FOLDER", help="An empty folder, or one to make.")]


def folder(to: str) -> str:
    """The folder to write. Raises UsageProblem without one."""
    return required(to, "--to", "which folder is to be written?", hint="Give --to FOLDER.").removeprefix(
        "dir:"
    )
