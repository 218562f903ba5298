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

    A table whose database has schemas is `db.schema.table`. For such a table a rule of two parts means the
    schema, in every database. The last rule that fits a table decides. A table that none fits is meant only
    when no rule takes any: all begin with `!`, or there are none. Raises UsageProblem for a rule that is
    none, naming it.
    """

    rules: Sequence[str] = ()
    _parsed: list[_Rule] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_parsed", [_parse(rule) for rule in self.rules])

    def takes(self, db: str, name: str) -> bool:
        """Whether the table is meant. `db`: a database, a schema, or both, as `quoted` parts with a dot."""
        parts = [*split_name(db), name]
        for rule in reversed(self._parsed):
            if rule.fits(parts):
                return rule.takes
        return not any(rule.takes for rule in self._parsed)


@dataclass(frozen=True)
class _Rule:
    """`parts`: expressions for database and table. `of_schemas`: for database, schema and table, if the rule
    has three parts."""

    takes: bool
    parts: tuple[re.Pattern[str], ...]
    of_schemas: tuple[re.Pattern[str], ...] | None

    def fits(self, parts: Sequence[str]) -> bool:
        expressions = self.of_schemas if len(parts) > 2 and self.of_schemas else self.parts
        own = parts[-len(expressions) :]
        return len(own) == len(expressions) and all(
            expression.match(part) for expression, part in zip(expressions, own, strict=True)
        )


def quoted(part: str) -> str:
    """A part of a name as a rule, and the catalog, has it: in backquotes when it has a dot or a backquote."""
    return f"`{part.replace('`', '``')}`" if "." in part or "`" in part else part


def split_name(text: str, most: int = 0) -> list[str]:
    """The parts of a name, with dots between them; what is in backquotes is one part.

    `most`: how many parts at most, the last with all that remains; 0: any number.
    """
    parts: list[str] = []
    at = 0
    while most == 0 or len(parts) < most - 1:
        match = _PART.match(text, at)
        if match is None or (match.end() < len(text) and text[match.end()] != "."):
            break  # a backquote that begins or ends within a part is a letter like any other
        parts.append(match[2] if match[1] is None else match[1].replace("``", "`"))
        at = match.end() + 1
        if at > len(text):
            return parts
    return [*parts, *([unquoted(text[at:])] if text[at:] else [])]


def unquoted(part: str) -> str:
    """A part without the backquotes around it."""
    match = _PART.fullmatch(part)
    return part if match is None or match[1] is None else match[1].replace("``", "`")


def _parse(rule: str) -> _Rule:
    text = rule.removeprefix("!")
    parts = split_name(text, 2)
    if len(parts) != 2 or not all(parts):
        raise UsageProblem(
            f"{rule!r} is no rule for tables.",
            hint="A rule is db.table or db.schema.table, each with * or ? if need be: "
            "-f 'shop.*' -f '!mysql.*' -f '*.orders'.",
        )
    three = split_name(text, 3)
    return _Rule(
        not rule.startswith("!"),
        _expressions(parts),
        _expressions(three) if len(three) == 3 and all(three) else None,
    )


def _expressions(parts: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(translate(part)) for part in parts)
