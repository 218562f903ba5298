"""Which tables of a change feed are meant: `db.table` with wildcards, `!` leaves out, the last rule wins.

The form is that of TiDB's table filter, without its regular expressions and its files of rules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import translate
from typing import TYPE_CHECKING

from lakebackup.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class TableFilter:
    """Rules `db.table`, each part with `*`, `?` and `[...]`; the first dot parts them.

    The last rule that fits a table decides. A table that none fits is meant only when no rule takes any: all
    begin with `!`, or there are none. Raises UsageProblem for a rule that is none, naming it.
    """

    rules: Sequence[str] = ()
    _parsed: list[tuple[bool, re.Pattern[str], re.Pattern[str]]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "_parsed", [_parse(rule) for rule in self.rules])

    def takes(self, db: str, name: str) -> bool:
        """Whether the table is meant."""
        for takes, of_db, of_name in reversed(self._parsed):
            if of_db.match(db) and of_name.match(name):
                return takes
        return not any(takes for takes, _, _ in self._parsed)


def _parse(rule: str) -> tuple[bool, re.Pattern[str], re.Pattern[str]]:
    text = rule.removeprefix("!")
    db, dot, name = text.partition(".")
    if not (db and dot and name):
        raise UsageProblem(
            f"{rule!r} is no rule for tables.",
            hint="A rule is db.table, each with * or ? if need be: -f 'shop.*' -f '!mysql.*' -f '*.orders'.",
        )
    return not rule.startswith("!"), re.compile(translate(db)), re.compile(translate(name))
