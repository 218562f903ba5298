"""Where the files of a snapshot may go: below a folder, each under a name of its own. Pure.

Names in a catalog are not trusted: they may come from another tool, or from a file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from lakebackup.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What a restore keeps for itself in the folder that it writes to, until it is done.
OWN = ".lakebackup-restore"
_SHOWN = 20
_DEEPEST = 255


@dataclass(frozen=True, slots=True)
class Limits:
    """What a folder's file system takes: bytes of a name, bytes of a path below the folder; `fold`: it takes
    `A` and `a` for one name."""

    name: int = 255
    path: int = 4095
    fold: bool = False


def unsafe(target: str, limits: Limits) -> str | None:
    """Why no file may be written at `target`, a path below a folder; None when one may."""
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
    if len(parts) > _DEEPEST:
        return f"it is more than {_DEEPEST} folders deep"
    longest = max(len(os.fsencode(part)) for part in parts)
    return f"a part of it has more than {limits.name} bytes" if longest > limits.name else None


def clash(before: str, after: str, *, fold: bool) -> str | None:
    """Why two files cannot exist beside each other: one name, a file where the other needs a folder, or, with
    `fold`, names that differ in upper and lower case alone."""
    if before == after:
        return "it comes twice"
    for one, other in zip_longest(before.split("/"), after.split("/")):
        if one == other:
            continue
        if one is None or other is None:
            return "it is a file and a folder"
        if fold and one.casefold() == other.casefold():
            return f"it differs from {before!r} in upper and lower case alone"
        return None
    return None


def require_safe(targets: Iterable[str], limits: Limits) -> None:
    """Refused, with the first of them, when not all files can be written. `targets` come in order, so that
    what clashes is adjacent: a folder's own files right after a file of its name."""
    before: str | None = None
    wrong: list[str] = []
    count = 0
    for target in targets:
        why = unsafe(target, limits)
        if why is None and before is not None:
            why = clash(before, target, fold=limits.fold)
        before = target
        if why is not None:
            count += 1
            if count <= _SHOWN:
                wrong.append(f"  {target[:200]!r}: {why}")
    if count:
        more = [f"  and {count - _SHOWN} more"] if count > _SHOWN else []
        raise Refused(
            "Nothing was written, since these files cannot all exist:\n" + "\n".join([*wrong, *more]),
            hint="Restore fewer of them at once (--table, --tablet, --select), or into a file system that "
            "takes these names.",
        )
