"""Parse layouts: how a tree of folders names the tables, tablets, snapshots and files in it. Without I/O.

A layout is a pattern of path parts below the tree, such as
`table-{scope}/tablet-{region}.snapshots/{snapshot}/{name}`. Folders that do not match it are not part of the
snapshot. `{name}` is last and stands for a file at any depth. Without `{scope}`, the tree's own folder names
the only table. Without `{region}`, a table has one tablet. Without `{snapshot}`, the tree is the snapshot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakebackup.errors import UsageProblem

#: Layouts by name. `yugabyte` is the layout below `rocksdb` in the data folders of YugabyteDB.
LAYOUTS = {"yugabyte": "table-{scope}/tablet-{region}.snapshots/{snapshot}/{name}", "plain": "{name}"}
#: The region of a table without tablets, and the scope and region of files that belong to no table.
NO_TABLET = "-"

_FIELD = re.compile(r"\{([^{}]*)\}")
_FIELDS = frozenset({"scope", "region", "snapshot"})


@dataclass(frozen=True, slots=True)
class Layout:
    """A parsed layout. `parts` has the expression for folder names of each level, with a group per field."""

    text: str
    parts: tuple[re.Pattern[str], ...]

    @property
    def has_snapshot(self) -> bool:
        """Whether the folders name their snapshot."""
        return "{snapshot}" in self.text


def layout_of(text: str) -> Layout:
    """The layout with the name `text`, or with the pattern `text`. Raises UsageProblem for an invalid one."""
    pattern = LAYOUTS.get(text, text)
    *folders, last_part = pattern.split("/")
    fields = [name for part in folders for name in _FIELD.findall(part)]
    problem = ""
    if last_part != "{name}":
        problem = "it does not end in {name}"
    elif unknown := sorted(set(fields) - _FIELDS):
        problem = f"it has {{{unknown[0]}}}"
    elif len(set(fields)) < len(fields):
        problem = "it has a field twice"
    elif any(part in ("", ".", "..") for part in folders):
        problem = "a part of it names no folder"
    elif "region" in fields and "scope" not in fields:
        problem = "it has {region} without {scope}"
    if problem:
        raise UsageProblem(
            f"{text!r} is no layout: {problem}.",
            hint=f"Give {', '.join(LAYOUTS)}, or a pattern such as {LAYOUTS['yugabyte']}.",
        )
    return Layout(pattern, tuple(re.compile(_expression(part), re.DOTALL) for part in folders))


def _expression(part: str) -> str:
    pieces = _FIELD.split(part)  # text, field, text, field, … text
    return "".join(
        f"(?P<{piece}>.+)" if number % 2 else re.escape(piece) for number, piece in enumerate(pieces)
    )
