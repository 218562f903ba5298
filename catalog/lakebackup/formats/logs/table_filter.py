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


# A part of a name: in backquotes, where two of them mean one, or up to the next dot.
_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]*)")


@dataclass(frozen=True)
class TableFilter:
    """Rules `db.table`, each part with `*`, `?` and `[...]`; the first dot parts them, but within backquotes.

    A table whose database has schemas fits as `db.schema.table`, and as `schema.table` in every database.
    The last rule that fits a table decides. A table that none fits is meant only when no rule takes any: all
    begin with `!`, or there are none. Raises UsageProblem for a rule that is none, naming it.
    """

    rules: Sequence[str] = ()
    _parsed: list[_Rule] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_parsed", [_parse(rule) for rule in self.rules])

    def takes(self, db: str, name: str) -> bool:
        """Whether the table is meant. `db`: a database, a schema, or both, as `quoted` parts with a dot."""
        first, schema = _split(db)
        names = (
            [(first, name)] if schema is None else [(first, f"{schema}.{name}"), (_unquoted(schema), name)]
        )
        for rule in reversed(self._parsed):
            if any(rule.db.match(own_db) and rule.name.match(own_name) for own_db, own_name in names):
                return rule.takes
        return not any(rule.takes for rule in self._parsed)


@dataclass(frozen=True)
class _Rule:
    """Whether it takes the tables that fit, and the expressions that they fit."""

    takes: bool
    db: re.Pattern[str]
    name: re.Pattern[str]


def quoted(part: str) -> str:
    """A part of a name as a rule, and the catalog, has it: in backquotes when it has a dot or a backquote."""
    return f"`{part.replace('`', '``')}`" if "." in part or "`" in part else part


def _split(text: str) -> tuple[str, str | None]:
    """The first part of a name, and what follows its dot; None: there is no dot."""
    match = _PART.match(text)
    end = match.end() if match else 0
    if match is None or text[end : end + 1] not in ("", "."):  # a backquote within a part is a letter
        first, dot, second = text.partition(".")
        return first, second if dot else None
    first = match[2] if match[1] is None else match[1].replace("``", "`")
    return first, text[end + 1 :] if end < len(text) else None


def _unquoted(part: str) -> str:
    match = _PART.fullmatch(part)
    return part if match is None or match[1] is None else match[1].replace("``", "`")


def _parse(rule: str) -> _Rule:
    db, name = _split(rule.removeprefix("!"))
    if not db or not name:
        raise UsageProblem(
            f"{rule!r} is no rule for tables.",
            hint="A rule is db.table or db.schema.table, each with * or ? if need be: "
            "-f 'shop.*' -f '!mysql.*' -f '*.orders'.",
        )
    return _Rule(not rule.startswith("!"), re.compile(translate(db)), re.compile(translate(_unquoted(name))))
