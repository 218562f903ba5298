"""Check that a restore of a snapshot writes only below its folder, and no two files at one path. It does no
I/O.

Names in a catalog are not trusted: they may come from another tool, or from a file that somebody changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from lakebackup.errors import Refused

#: The name that a restore uses for its own files in the target folder until it ends.
OWN = ".lakebackup-restore"
_MAX_PROBLEMS = 20
_MAX_PARTS = 255


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a folder's file system: the most bytes of a name, and of a path below the folder. `fold`
    tells whether it ignores case, so that `A` and `a` are one name."""

    name: int = 255
    path: int = 4095
    fold: bool = False


def unsafe(target: str, limits: Limits) -> str | None:
    """Return why no file may be written at `target`, a path relative to the folder; None if one may."""
    if "\0" in target:
        return "it holds a NUL"
    parts = target.split("/")
    if not parts[0]:
        return "it is absolute" if target else "it is empty"
    if not target.isascii():
        try:
            target.encode()
        except UnicodeEncodeError:
            return "it is no UTF-8"
    if "" in parts or "." in parts:
        return "it has an empty part or '.'"
    if ".." in parts:
        return "it has '..'"
    if parts[0] == OWN or (limits.fold and parts[0].casefold() == OWN):
        return f"{OWN} is reserved for the restore itself"
    if len(os.fsencode(target)) > limits.path:
        return f"it has more than {limits.path} bytes"
    if len(parts) > _MAX_PARTS:
        return f"it is more than {_MAX_PARTS} folders deep"
    longest_part = max(len(os.fsencode(part)) for part in parts)
    return f"a part of it has more than {limits.name} bytes" if longest_part > limits.name else None


def clash(first: str, second: str, *, fold: bool) -> str | None:
    """Return why two files cannot both exist; None if they can.

    They clash if they have one name, if one needs a folder where the other is a file, or if `fold` is set and
    their names differ only in case.
    """
    if first == second:
        return "it comes twice"
    for before_part, after_part in zip_longest(first.split("/"), second.split("/")):
        if before_part == after_part:
            continue
        if before_part is None or after_part is None:
            return "it is a file and a folder"
        if fold and before_part.casefold() == after_part.casefold():
            return f"it differs from {first!r} in upper and lower case alone"
        return None
    return None


def require_safe(targets: Iterable[str], limits: Limits) -> None:
    """Raise Refused, with the first problems, unless all files can be written.

    `targets` must be in an order in which paths that clash are adjacent: the files of a folder follow a file
    of the folder's name.
    """
    previous: str | None = None
    problems: list[str] = []
    count = 0
    for target in targets:
        problem = unsafe(target, limits)
        if problem is None and previous is not None:
            problem = clash(previous, target, fold=limits.fold)
        previous = target
        if problem is not None:
            count += 1
            if count <= _MAX_PROBLEMS:
                problems.append(f"  {target[:200]!r}: {problem}")
    if count:
        rest_line = [f"  and {count - _MAX_PROBLEMS} more"] if count > _MAX_PROBLEMS else []
        raise Refused(
            "Nothing was written, since these files cannot all exist:\n" + "\n".join([*problems, *rest_line]),
            hint="Restore fewer of them at once (--table, --tablet, --select), or into a file system that "
            "takes these names.",
        )
