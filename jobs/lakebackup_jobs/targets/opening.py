"""Opens the target that a person names."""

from __future__ import annotations

from collections.abc import Callable

from lakebackup.errors import UsageProblem
from lakebackup.requests import Request
from lakebackup.storage.nesting import require_outside
from lakebackup_jobs.targets import Target
from lakebackup_jobs.targets.delta import DeltaTarget
from lakebackup_jobs.targets.folder import FolderTarget


def open_target(
    request: Request, text: str, kafka: Callable[[str], Target], *, append: bool = False
) -> Target:
    """Open the target that `text` names: delta:PATH, dir:PATH or kafka://…; `kafka` opens the last kind.

    `append`: rows may be added to an existing table. Raises UsageProblem (also for a path in a repository).
    """
    scheme, _, location = text.partition(":")
    if location and scheme in ("delta", "dir"):
        require_outside(request, location)
    if location and scheme == "delta":
        return DeltaTarget(location, append=append)
    if location and scheme == "dir":
        return FolderTarget(location)
    if location and scheme == "kafka":
        return kafka(location.removeprefix("//"))
    raise UsageProblem(
        f"{text!r} is no place to restore to.",
        hint="Name kafka://HOST:PORT, delta:PATH or dir:PATH.",
    )
