"""How a tree of folders names the tables, tablets, snapshots and files in it. Pure.

A layout is a pattern of path parts below the tree, such as
`table-{scope}/tablet-{region}.snapshots/{snapshot}/{name}`; folders that it does not fit do not belong.
`{name}` comes last and stands for a file however deep. Without `{scope}` the tree's own folder names the one
table, without `{region}` that has one tablet, without `{snapshot}` the tree is the snapshot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakebackup.errors import UsageProblem

#: Layouts by name. Of `yugabyte` see YugabyteDB's data folders, below `rocksdb`.
LAYOUTS = {"yugabyte": "table-{scope}/tablet-{region}.snapshots/{snapshot}/{name}", "plain": "{name}"}
#: The region of a table that is not parted, and the scope and region of files that belong to no table.
WHOLE = "-"

_FIELD = re.compile(r"\{([^{}]*)\}")
_FIELDS = frozenset({"scope", "region", "snapshot"})


@dataclass(frozen=True, slots=True)
class Layout:
    """`parts`: for each level of folders the expression that its whole name fits, with groups of fields."""

    text: str
    parts: tuple[re.Pattern[str], ...]

    @property
    def has_snapshot(self) -> bool:
        """Whether its folders name the snapshot they are of."""
        return "{snapshot}" in self.text


def layout_of(text: str) -> Layout:
    """The layout of that name, or with that pattern. Raises UsageProblem."""
    pattern = LAYOUTS.get(text, text)
    *folders, last = pattern.split("/")
    fields = [name for part in folders for name in _FIELD.findall(part)]
    wrong = ""
    if last != "{name}":
        wrong = "it does not end in {name}"
    elif unknown := sorted(set(fields) - _FIELDS):
        wrong = f"it has {{{unknown[0]}}}"
    elif len(set(fields)) < len(fields):
        wrong = "it has a field twice"
    elif any(part in ("", ".", "..") for part in folders):
        wrong = "a part of it names no folder"
    elif "region" in fields and "scope" not in fields:
        wrong = "it has {region} without {scope}"
    if wrong:
        raise UsageProblem(
            f"{text!r} is no layout: {wrong}.",
            hint=f"Give {', '.join(LAYOUTS)}, or a pattern such as {LAYOUTS['yugabyte']}.",
        )
    return Layout(pattern, tuple(re.compile(_expression(part), re.DOTALL) for part in folders))


def _expression(part: str) -> str:
    pieces = _FIELD.split(part)  # text, field, text, field, … text
    return "".join(
        f"(?P<{piece}>.+)" if number % 2 else re.escape(piece) for number, piece in enumerate(pieces)
    )
