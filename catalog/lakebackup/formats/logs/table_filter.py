"""Select tables of a change feed by rules: `db.table` with wildcards, or `!db.table` to exclude. The last
rule that matches a table decides.

The syntax is that of TiDB's table filter, without its regular expressions and its files of rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import translate

from lakebackup.errors import UsageProblem

# A part of a name: text in backquotes, where two backquotes stand for one, or text up to a dot or backquote.
_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]*)")


@dataclass(frozen=True)
class TableFilter:
    """Rules `db.table`, with `*`, `?` and `[...]` in either part. They are split at the first dot that is not
    in backquotes.

    If the database has schemas, a rule can be `db.schema.table`, or `schema.table` for every database. The
    last rule that matches a table decides. A table that no rule matches is selected only if there are no
    rules, or if all of them begin with `!`. Raises UsageProblem, which names the rule, for an invalid one.

    `has_schemas`: whether the databases of `matches` are written as rules write them, with schemas if there
    are any. Otherwise they are plain names, in which a dot is a letter like others.
    """

    rules: Sequence[str] = ()
    has_schemas: bool = True
    _parsed: list[_Rule] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_parsed", [_parse(rule) for rule in self.rules])

    def matches(self, db: str, name: str) -> bool:
        """Whether the rules select the table. `db` is a database, a schema, or both with a dot between them.
        Each part is `quoted`, unless there are no schemas."""
        database, schema = _split(db) if self.has_schemas else (db, None)
        names = [(database, name)]
        if schema is not None:
            names = [(database, f"{_unquoted(schema)}.{name}"), (_unquoted(schema), name)]
        for rule in reversed(self._parsed):
            if any(rule.db.match(own_db) and rule.name.match(own_name) for own_db, own_name in names):
                return rule.includes
        return not any(rule.includes for rule in self._parsed)


@dataclass(frozen=True)
class _Rule:
    """A parsed rule. `includes`: whether it selects the tables that it matches, or excludes them."""

    includes: bool
    db: re.Pattern[str]
    name: re.Pattern[str]


def quoted(part: str) -> str:
    """A part of a name as rules and the catalog write it: in backquotes if it has a dot or a backquote."""
    return f"`{part.replace('`', '``')}`" if "." in part or "`" in part else part


def _split(text: str) -> tuple[str, str | None]:
    """The first part of a name, and the rest after the dot; None if there is no dot."""
    match = _PART.match(text)
    end = match.end() if match else 0
    # A backquote within a part is an ordinary character.
    if match is None or text[end : end + 1] not in ("", "."):
        first_part, dot, other_parts = text.partition(".")
        return first_part, other_parts if dot else None
    first_part = match[2] if match[1] is None else match[1].replace("``", "`")
    return first_part, text[end + 1 :] if end < len(text) else None


def _unquoted(text: str) -> str:
    """The parts of a name without backquotes, with dots between them."""
    first_part, other_parts = _split(text)
    return first_part if other_parts is None else f"{first_part}.{_unquoted(other_parts)}"


def _parse(rule: str) -> _Rule:
    db, name = _split(rule.removeprefix("!"))
    if not db or not name:
        raise UsageProblem(
            f"{rule!r} is no rule for tables.",
            hint="A rule is db.table or db.schema.table, each with * or ? if need be: "
            "-f 'shop.*' -f '!mysql.*' -f '*.orders'.",
        )
    return _Rule(not rule.startswith("!"), re.compile(translate(db)), re.compile(translate(_unquoted(name))))
