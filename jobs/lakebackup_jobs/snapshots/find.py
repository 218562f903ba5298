"""Finds the snapshots in a tree: the folders of tables, tablets and snapshots whose names fit its layout."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lakebackup.errors import EnvironmentProblem, NotFound, Refused, UsageProblem
from lakebackup.formats.snapshots.tree import NO_TABLET, Layout
from lakebackup.plan.snapshots.backup import Role, Snapshot, Unit, require_distinct, require_restorable

# YugabyteDB creates a tablet's snapshot in the folder ID.tmp, and renames that to ID when it is complete.
# Before it deletes the snapshot, it renames the folder to ID.deleted.tmp.
_UNFINISHED_SUFFIX, _DELETED_SUFFIX = ".tmp", ".deleted"
STAY = "A snapshot must stay as it is until its backup is done. Nothing of this one is visible."


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn the operating system's errors about a source into the project's.

    Raises Refused for a file or folder that no longer exists, since then the snapshot has changed, and for a
    symbolic link; EnvironmentProblem for other errors.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise Refused(
            f"{error.filename or path} was there when the snapshot was listed and is gone.",
            hint=STAY,
        ) from error
    except OSError as error:
        if error.errno == errno.ELOOP:  # O_NOFOLLOW met a symbolic link
            raise no_link(path) from error
        raise EnvironmentProblem(f"Cannot read {error.filename or path}: {error.strerror}.") from error


def find(trees: Sequence[str], layout: Layout, sidecars: Sequence[tuple[Role, str]]) -> list[Snapshot]:
    """Return the snapshots in some trees, in no order. Each of them includes the `sidecars` (role, path).

    Raises NotFound (a tree or a sidecar does not exist, or nothing fits the layout), Refused (symbolic links,
    names that could not be restored), UsageProblem (two folders for one tablet).
    """
    units_by_snapshot: dict[str, tuple[int, list[Unit]]] = {}
    unfinished: dict[str, str] = {}
    for tree in trees:
        root = root_of(tree)
        if not root.is_dir():
            raise NotFound(
                f"There is no folder {tree}.", hint="Check the path; it must be there on each worker."
            )
        for folder, fields in _matching(str(root), layout, 0, {}, unfinished):
            taken_ms, units = units_by_snapshot.get(fields.get("snapshot", ""), (0, []))
            taken_ms = max(taken_ms, os.stat(folder).st_mtime_ns // 1_000_000)  # noqa: PTH116
            scope, region = fields.get("scope", root.name), fields.get("region", NO_TABLET)
            has_parts = layout.parts or None
            new_units = [Unit(scope, region, folder)] if has_parts else list(_split(scope, folder))
            units_by_snapshot[fields.get("snapshot", "")] = (taken_ms, [*units, *new_units])
    if not units_by_snapshot:
        raise NotFound(
            f"Nothing in {', '.join(trees)} fits {layout.text}.",
            hint="Check --layout: yugabyte (below `rocksdb`), plain, or a pattern of your own.",
        )
    sidecar_units = [_sidecar(role, path) for role, path in sidecars]
    snapshots = [
        Snapshot(name, taken_ms, (*units, *sidecar_units), unfinished.get(name, ""))
        for name, (taken_ms, units) in units_by_snapshot.items()
    ]
    for snapshot in snapshots:
        require_distinct(snapshot.units)
        require_restorable(snapshot.units)
    return snapshots


def root_of(tree: str) -> Path:
    """Return the absolute path of a tree. A path with `..` is resolved, so that its last part is a name."""
    path = Path(tree).absolute()
    return path.resolve() if ".." in path.parts else path


def _matching(
    folder: str, layout: Layout, depth: int, fields: Mapping[str, str], unfinished: dict[str, str]
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the folders below `folder` that fit the layout from level `depth` on, with the fields of their
    names.

    `unfinished` collects a folder of each snapshot that is being created or deleted, by the snapshot's id.
    """
    if depth == len(layout.parts):
        yield folder, fields
        return
    with reading(folder):
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    for entry in entries:
        match = layout.parts[depth].fullmatch(entry.name)
        if not match:
            continue
        snapshot = match.groupdict().get("snapshot", "")
        if snapshot.endswith(_UNFINISHED_SUFFIX):
            unfinished[snapshot.removesuffix(_UNFINISHED_SUFFIX).removesuffix(_DELETED_SUFFIX)] = entry.path
            continue
        if entry.is_symlink():
            raise no_link(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _matching(entry.path, layout, depth + 1, {**fields, **match.groupdict()}, unfinished)


def _split(scope: str, folder: str) -> Iterator[Unit]:
    """Split a tree that is one region into a unit for each folder, so that several tasks can list it."""
    with reading(folder):
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    yield Unit(scope, NO_TABLET, folder, deep=False)
    for name in names:
        yield Unit(scope, NO_TABLET, folder, prefix=f"{name}/")


def _sidecar(role: Role, path: str) -> Unit:
    file = Path(path).absolute()
    if not file.is_file():
        raise NotFound(f"There is no file {path}.", hint="--sidecar takes ROLE=FILE.")
    if file.is_symlink():
        raise no_link(str(file))
    return Unit(NO_TABLET, NO_TABLET, str(file.parent), role=role, file=file.name)


def no_link(path: str) -> Refused:
    """Return the error for a symbolic link in a source."""
    return Refused(
        f"{path} is a symbolic link, which a backup of a snapshot does not follow.",
        hint="Name the folder that it leads to, or take the link out of the snapshot.",
    )


def roles(texts: Sequence[str]) -> list[tuple[Role, str]]:
    """Parse flags `ROLE=FILE`; returns pairs of role and file. Raises UsageProblem."""
    roles_by_name: dict[str, Role] = {"meta": "meta", "schema": "schema", "config": "config"}
    pairs = [text.partition("=") for text in texts]
    for role, equals, file in pairs:
        if role not in roles_by_name or not equals or not file:
            raise UsageProblem(
                f"--sidecar {role}{equals}{file} does not say what file of which role.",
                hint=f"Write ROLE=FILE, with one of {', '.join(roles_by_name)}.",
            )
    return [(roles_by_name[role], file) for role, _, file in pairs]
