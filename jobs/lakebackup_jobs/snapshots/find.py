"""The folders of tables, tablets and snapshots in a tree, as its layout names them."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakebackup.errors import EnvironmentProblem, NotFound, Refused, UsageProblem
from lakebackup.formats.snapshots.tree import WHOLE, Layout
from lakebackup.plan.snapshots.backup import Snapshot, Unit, require_distinct, require_restorable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakebackup.plan.snapshots.backup import Role

# YugabyteDB makes a tablet's snapshot in such a folder, and renames it when it is whole. It renames one again
# before it deletes it.
_IN_MAKING, _DELETED = ".tmp", ".deleted"
STAY = "A snapshot must stay as it is until its backup is done. Nothing of this one is visible."


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn the operating system's errors about a source into the project's.

    What was there and is not any more is Refused: the snapshot is not what it was.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise Refused(
            f"{error.filename or path} was there when the snapshot was listed and is gone.",
            hint=STAY,
        ) from error
    except OSError as error:
        if error.errno == errno.ELOOP:  # only links that are not followed give this
            raise no_link(path) from error
        raise EnvironmentProblem(f"Cannot read {error.filename or path}: {error.strerror}.") from error


def find(trees: Sequence[str], layout: Layout, sidecars: Sequence[tuple[Role, str]]) -> list[Snapshot]:
    """The snapshots in some trees; files beside them belong to each. In no order.

    Raises NotFound (a tree that is not there, or nothing in it that fits), Refused (symbolic links, names
    that could not be restored), UsageProblem (two folders for one tablet).
    """
    found: dict[str, tuple[int, list[Unit]]] = {}
    unfinished: dict[str, str] = {}
    for tree in trees:
        root = root_of(tree)
        if not root.is_dir():
            raise NotFound(
                f"There is no folder {tree}.", hint="Check the path; it must be there on each worker."
            )
        for folder, fields in _matching(str(root), layout, 0, {}, unfinished):
            taken, units = found.get(fields.get("snapshot", ""), (0, []))
            taken = max(taken, os.stat(folder).st_mtime_ns // 1_000_000)  # noqa: PTH116
            scope, region = fields.get("scope", root.name), fields.get("region", WHOLE)
            whole = layout.parts or None
            some = [Unit(scope, region, folder)] if whole else list(_split(scope, folder))
            found[fields.get("snapshot", "")] = (taken, [*units, *some])
    if not found:
        raise NotFound(
            f"Nothing in {', '.join(trees)} fits {layout.text}.",
            hint="Check --layout: yugabyte (below `rocksdb`), plain, or a pattern of your own.",
        )
    beside = [_sidecar(role, path) for role, path in sidecars]
    made = [
        Snapshot(name, taken, (*units, *beside), unfinished.get(name, ""))
        for name, (taken, units) in found.items()
    ]
    for snapshot in made:
        require_distinct(snapshot.units)
        require_restorable(snapshot.units)
    return made


def root_of(tree: str) -> Path:
    """The folder that a person named, as it is called: `..` has a name only once it is looked up."""
    path = Path(tree).absolute()
    return path.resolve() if ".." in path.parts else path


def _matching(
    folder: str, layout: Layout, depth: int, fields: Mapping[str, str], unfinished: dict[str, str]
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Folders below `folder` that fit the rest of the layout, with the fields of their names.

    `unfinished` gets, by its id, a folder of each snapshot that is being made or deleted.
    """
    if depth == len(layout.parts):
        yield folder, fields
        return
    with reading(folder):
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    for entry in entries:
        fits = layout.parts[depth].fullmatch(entry.name)
        if not fits:
            continue
        snapshot = fits.groupdict().get("snapshot", "")
        if snapshot.endswith(_IN_MAKING):
            unfinished[snapshot.removesuffix(_IN_MAKING).removesuffix(_DELETED)] = entry.path
            continue
        if entry.is_symlink():
            raise no_link(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _matching(entry.path, layout, depth + 1, {**fields, **fits.groupdict()}, unfinished)


def _split(scope: str, folder: str) -> Iterator[Unit]:
    """A tree that is one region, by its folders: else one task alone would list it."""
    with reading(folder):
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    yield Unit(scope, WHOLE, folder, deep=False)
    for name in names:
        yield Unit(scope, WHOLE, folder, prefix=f"{name}/")


def _sidecar(role: Role, path: str) -> Unit:
    file = Path(path).absolute()
    if not file.is_file():
        raise NotFound(f"There is no file {path}.", hint="--sidecar takes ROLE=FILE.")
    if file.is_symlink():
        raise no_link(str(file))
    return Unit(WHOLE, WHOLE, str(file.parent), role=role, file=file.name)


def no_link(path: str) -> Refused:
    """The error for a symbolic link in a source."""
    return Refused(
        f"{path} is a symbolic link, which a backup of a snapshot does not follow.",
        hint="Name the folder that it leads to, or take the link out of the snapshot.",
    )


def roles(texts: Sequence[str]) -> list[tuple[Role, str]]:
    """`ROLE=FILE` flags. Raises UsageProblem."""
    known: dict[str, Role] = {"meta": "meta", "schema": "schema", "config": "config"}
    pairs = [text.partition("=") for text in texts]
    for role, equals, file in pairs:
        if role not in known or not equals or not file:
            raise UsageProblem(
                f"--sidecar {role}{equals}{file} does not say what file of which role.",
                hint=f"Write ROLE=FILE, with one of {', '.join(known)}.",
            )
    return [(known[role], file) for role, _, file in pairs]
