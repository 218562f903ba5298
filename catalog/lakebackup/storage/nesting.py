"""Check that no target lies in a repository, and that no source contains the repository.

Files that a restore or an export wrote into a repository would be deleted or counted as orphans. A source
that contained its repository would grow with each backup. Folders are compared by their real paths.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup.requests import Request
from lakebackup.rules.layout import ROOT_FILE, source_folder
from lakebackup.storage import open_storage
from lakebackup.storage.uris import normalized

_HINT = "Name a place outside the repository."


def is_within(inner: str, outer: str) -> bool:
    """Whether the path or URI `inner` is the same as `outer`, or lies below it."""
    parts, outer_parts = _parts(inner), _parts(outer)
    if parts[: len(outer_parts)] == outer_parts:
        return True
    if outer_parts[0] != "file:" or parts[0] != "file:":
        return False
    # A folder can have two names: by a bind mount, or in a file system that ignores case.
    folder = Path("/", *outer_parts[1:])
    return folder.exists() and any(path.samefile(folder) for path in _ancestors(parts) if path.exists())


def require_outside(request: Request | None, target: str, *, is_file: bool = False) -> None:
    """Raise UsageProblem if the target of a restore or an export lies in a repository or in its catalog.

    That applies to every repository. Unless it `is_file`, the target may not contain this request's
    repository or catalog either. The request is None where a command has no repository.
    """
    for description, root in (_roots(request) if request else {}).items():
        if is_within(target, root):
            raise UsageProblem(f"{target} lies in {description} {root}.", hint=_HINT)
        if not is_file and is_within(root, target):
            raise UsageProblem(f"{target} contains {description} {root}.", hint=_HINT)
    if repository := _repository_above(target):
        raise UsageProblem(f"{target} lies in the repository {repository}.", hint=_HINT)


def require_no_repository(request: Request, source: str, folder: str) -> None:
    """Raise UsageProblem if a folder to be backed up contains the repository, its catalog, or the folder of
    the source in the repository."""
    source_root = f"{request.destination.rstrip('/')}/{source_folder(source)}"
    for description, root in {**_roots(request), "this source's backups": source_root}.items():
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
    """The root of the repository that contains the path or URI `target`, or None if none is visible."""
    parts = _parts(target)
    if parts[0] == "file:":
        repositories = (path for path in _ancestors(parts) if (path / ROOT_FILE).is_file())
        return next(map(str, repositories), None)
    bucket, keys = f"s3://{parts[1]}", parts[2:]
    storage = open_storage(bucket)
    for depth in range(len(keys), -1, -1):
        # The account may have no rights above some prefix. Then these levels are skipped.
        with suppress(EnvironmentProblem):
            if storage.exists("/".join([*keys[:depth], ROOT_FILE])):
                return "/".join([bucket, *keys[:depth]])
    return None
