"""A repository holds only its own objects, and nothing that is backed up holds the repository.

Where a restore or an export writes into a repository, its files would be deleted or counted as orphans; a
source that contains its repository would grow with each backup. Folders are compared by their real paths.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup.rules.layout import ROOT_FILE, source_folder
from lakebackup.storage import open_storage
from lakebackup.storage.uris import normalized

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebackup.requests import Request

_HINT = "Name a place outside the repository."


def is_within(inner: str, outer: str) -> bool:
    """Whether the place at a path or URI is another place, or lies below it."""
    parts, above = _parts(inner), _parts(outer)
    if parts[: len(above)] == above:
        return True
    if above[0] != "file:" or parts[0] != "file:":
        return False
    # The same folder under another name: a bind mount, or a file system that ignores case.
    folder = Path("/", *above[1:])
    return folder.exists() and any(path.samefile(folder) for path in _ancestors(parts) if path.exists())


def require_outside(request: Request, target: str, *, is_file: bool = False) -> None:
    """UsageProblem when a restore or an export would write into a repository, this one or any other, into
    this one's catalog, or (unless it `is_file`) into a folder that holds one of these."""
    for description, root in _roots(request).items():
        if is_within(target, root):
            raise UsageProblem(f"{target} lies in {description} {root}.", hint=_HINT)
        if not is_file and is_within(root, target):
            raise UsageProblem(f"{target} contains {description} {root}.", hint=_HINT)
    if repository := _repository_above(target):
        raise UsageProblem(f"{target} lies in the repository {repository}.", hint=_HINT)


def require_no_repository(request: Request, source: str, folder: str) -> None:
    """UsageProblem when a folder to be backed up as `source` contains the repository, its catalog, or what
    the repository keeps of this source."""
    own = f"{request.destination.rstrip('/')}/{source_folder(source)}"
    for description, root in {**_roots(request), "this source's backups": own}.items():
        if is_within(root, folder):
            raise UsageProblem(
                f"{folder} contains {description} {root}: each backup would hold those before it.",
                hint="Use a repository outside the folder, or back up a folder without it.",
            )


def _roots(request: Request) -> dict[str, str]:
    roots = {"the repository": request.destination}
    return {**roots, "the catalog": request.catalog} if request.catalog else roots


def _parts(uri: str) -> list[str]:
    scheme, _, path = normalized(uri).partition("//")
    return [scheme, *(part for part in path.split("/") if part)]


def _ancestors(parts: list[str]) -> Iterator[Path]:
    path = Path("/", *parts[1:])
    yield from (path, *path.parents)


def _repository_above(target: str) -> str | None:
    """The root of the repository that a place lies in; None: it lies in none that can be seen."""
    parts = _parts(target)
    if parts[0] == "file:":
        marked = (path for path in _ancestors(parts) if (path / ROOT_FILE).is_file())
        return next(map(str, marked), None)
    bucket, keys = f"s3://{parts[1]}", parts[2:]
    storage = open_storage(bucket)
    for depth in range(len(keys), -1, -1):
        # Rights may end at a prefix; what is above it is nobody's to look at.
        with suppress(EnvironmentProblem):
            if storage.exists("/".join([*keys[:depth], ROOT_FILE])):
                return "/".join([bucket, *keys[:depth]])
    return None
