"""Whether a person's SQL is one harmless SELECT over given relations, and its text for both engines.

Everything is refused that is not known to be harmless: kinds of syntax, their options, functions and types
are allow-lists. The engines never see the given text, only what is generated from the tree.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

from lakebackup.errors import UsageProblem
from lakebackup.sql_engine.guard.allowed import FUNCTIONS, JOIN_KINDS, OPTIONS, SYNTAX, TYPES, UNITS
from lakebackup.sql_engine.guard.records import COLUMNS, USAGE, arguments, is_call, take_calls

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    from lakebackup.sql_engine.guard.records import RecordsCall

_MAX_CHARACTERS = 64 * 1024
_MAX_TOKENS = 10_000
_MAX_DEPTH = 120
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ESCAPE = re.compile(r"\\(?!['\"nrt])")  # all but the escapes that are written here too
_FUNCTION_KINDS = frozenset(FUNCTIONS.values())


@dataclass(frozen=True, slots=True)
class Checked:
    """A SELECT that may run: its text for Spark and for DuckDB, and the relations it reads, sorted.

    `records`: what it asks inside the backups; relations that are not the catalog's, to be given their rows.
    """

    spark: str
    duckdb: str
    relations: tuple[str, ...]
    records: tuple[RecordsCall, ...] = ()


def check_select(sql: str, relations: Mapping[str, Sequence[str]], *, records: bool = False) -> Checked:
    """Check `sql` (Spark's dialect) against `relations`: the name of each and its columns' names.

    `records`: whether it may ask inside the backups with records('topic').
    Raises UsageProblem, naming what is not allowed or not known, and the nearest known name.
    """
    from sqlglot.errors import SqlglotError

    known = _Known(relations)
    _characters(sql)
    try:
        tree = _parse(sql)
        calls = _records(tree, allowed=records)
        known.own |= {call.relation: set(COLUMNS) for call in calls}
        used = _Check(tree, known).run() - {call.relation for call in calls}
        _strict_casts(tree)
        spark = _write(tree, "spark")
        _null_for_no_json(tree)
        duckdb = _write(tree, "duckdb")
        _Check(_parse(spark), known).run()
    except SqlglotError as error:
        raise UsageProblem(
            f"The SQL cannot be read{_place(error)}.", hint="Write it as Spark SQL."
        ) from error
    except RecursionError as error:
        raise UsageProblem(
            "The SQL is nested too deeply.", hint="Use IN, a CTE or a join instead."
        ) from error
    return Checked(spark, duckdb, tuple(sorted(used)), calls)


class _Known(Mapping[str, "Collection[str]"]):
    """Columns of relations, all in lower case, looked up when they are asked for; `own` are known at once."""

    def __init__(self, relations: Mapping[str, Sequence[str]]) -> None:
        self._names = {name.lower(): name for name in relations}
        self._relations = relations
        self.own: dict[str, Collection[str]] = {}

    def __getitem__(self, name: str) -> Collection[str]:
        if name in self.own:
            return self.own[name]
        return {column.lower() for column in self._relations[self._names[name]]}

    def __iter__(self) -> Iterator[str]:
        return iter({**self._names, **self.own})

    def __len__(self) -> int:
        return len({**self._names, **self.own})


def _records(tree: exp.Expr, *, allowed: bool) -> tuple[RecordsCall, ...]:
    from sqlglot import exp

    for table in tree.find_all(exp.Table):
        if not is_call(table):
            continue
        if not allowed:
            raise UsageProblem(
                "records(…) cannot be asked here.",
                hint="`lakebackup sql` takes it; here the relations of the catalog are read alone.",
            )
        if arguments(table) is None:
            raise UsageProblem("records(…) takes one text or two, written out.", hint=USAGE)
    return take_calls(tree)


def _characters(sql: str) -> None:
    if len(sql) > _MAX_CHARACTERS:
        raise UsageProblem(f"The SQL has {len(sql)} characters; at most {_MAX_CHARACTERS} are read.")
    if _ESCAPE.search(sql):
        raise UsageProblem(
            "The SQL holds a backslash, which engines do not read alike.",
            hint="In a pattern, write [.] for a point and [0-9] for a digit.",
        )
    for character in sql:
        if unicodedata.category(character) in ("Cc", "Cf", "Cs") and character not in "\t\r\n":
            raise UsageProblem(f"The SQL holds the invisible character U+{ord(character):04X}.")


def _parse(sql: str) -> exp.Expr:
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import ErrorLevel, SqlglotError

    # It warns of syntax that it does not know, which is refused below.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    tokens = sqlglot.tokenize(sql, dialect="spark")
    while tokens and tokens[-1].token_type is sqlglot.TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise UsageProblem("There is no SQL.", hint="Write one SELECT.")
    if len(tokens) > _MAX_TOKENS:
        raise UsageProblem(f"The SQL has {len(tokens)} words and signs; at most {_MAX_TOKENS} are read.")
    depth, before = 0, tokens[0]
    for token in tokens:
        if before is not token and before.token_type is token.token_type is sqlglot.TokenType.STRING:
            raise UsageProblem("Two texts stand side by side.", hint='A quote in text: "it\'s".')
        before = token
        depth += (token.token_type is sqlglot.TokenType.L_PAREN) - (
            token.token_type is sqlglot.TokenType.R_PAREN
        )
        if depth > _MAX_DEPTH:
            raise RecursionError
    starts = (sqlglot.TokenType.SELECT, sqlglot.TokenType.WITH, sqlglot.TokenType.L_PAREN)
    if tokens[0].token_type not in starts or any(t.token_type is sqlglot.TokenType.SEMICOLON for t in tokens):
        raise UsageProblem("Only one SELECT can be run here.", hint="Nothing else, and no second statement.")
    try:
        found = sqlglot.parse(sql, dialect="spark", error_level=ErrorLevel.IMMEDIATE)
    except (SqlglotError, RecursionError):
        raise
    except Exception as error:  # the parser stumbles over some wrong SQL
        raise UsageProblem("The SQL cannot be read.", hint="Write it as Spark SQL.") from error
    # A comment after the last semicolon makes one more, empty statement.
    (tree,) = (statement for statement in found if statement and not isinstance(statement, exp.Semicolon))
    return tree


def _write(tree: exp.Expr, dialect: str) -> str:
    from sqlglot.errors import ErrorLevel

    return tree.sql(dialect=dialect, identify=True, comments=False, unsupported_level=ErrorLevel.RAISE)


def _strict_casts(tree: exp.Expr) -> None:
    """CAST fails on both engines for what it cannot cast, as in Spark 4; TRY_CAST gives NULL."""
    from sqlglot import exp

    for node in list(tree.find_all(exp.TryCast)):
        if not node.args.get("safe"):
            node.replace(exp.Cast(this=node.this, to=node.to))


def _null_for_no_json(tree: exp.Expr) -> None:
    """For DuckDB, which fails where Spark's get_json_object gives NULL for a text that is no JSON."""
    from sqlglot import exp

    for node in reversed(list(tree.find_all(exp.JSONExtractScalar))):
        valid = exp.Anonymous(this="json_valid", expressions=[node.this.copy()])
        node.replace(exp.Case(ifs=[exp.If(this=valid, true=node.copy())]))


def _place(error: SqlglotError) -> str:
    from sqlglot.errors import ParseError

    if not isinstance(error, ParseError) or not error.errors:
        return ""
    found = error.errors[0]
    return (
        f" at line {found.get('line')}, column {found.get('col')}, near {str(found.get('highlight'))[:40]!r}"
    )


class _Check:
    """One walk over a tree; `known` maps relations to their columns, all in lower case."""

    def __init__(self, tree: exp.Expr, known: Mapping[str, Collection[str]]) -> None:
        self.tree = tree
        self.known = known
        self.ctes: list[str] = []
        self.used: set[str] = set()
        self.aliases: set[str] = set()  # of columns
        self.sources: dict[str, Collection[str] | None] = {}  # names before a dot; None: columns not known

    def run(self) -> set[str]:
        """The relations that are read."""
        from sqlglot import exp

        if not isinstance(self.tree, (exp.Select, exp.SetOperation)):
            self._refuse(self.tree, "only a SELECT can be run here")
        self._depth()
        nodes = list(self.tree.walk())
        for node in nodes:
            self._syntax(node)
        for node in nodes:
            if isinstance(node, exp.With):
                self._with(node)
        for node in nodes:
            if isinstance(node, exp.Table):
                self._table(node)
            elif isinstance(node, exp.Subquery) and node.alias:
                self.sources[node.alias.lower()] = None
            elif isinstance(node, exp.Alias):
                self.aliases.add(node.alias.lower())
            if isinstance(node, exp.TableAlias):
                self.aliases.update(column.name.lower() for column in node.columns)
        for node in nodes:
            if isinstance(node, exp.Column):
                self._column(node)
        return self.used

    def _depth(self) -> None:
        level: list[exp.Expr] = [self.tree]
        for _ in range(_MAX_DEPTH):
            level = [child for node in level for child in node.iter_expressions()]
            if not level:
                return
        raise RecursionError

    def _syntax(self, node: exp.Expr) -> None:
        kind = type(node).__name__
        if kind not in SYNTAX and kind not in _FUNCTION_KINDS:
            self._not_allowed(node, kind)
        options = OPTIONS.get(kind, OPTIONS["*"])
        for key, value in node.args.items():
            if value is None or value is False or value == [] or key.rstrip("_") in options:
                continue
            self._refuse(node, f"{_words(key)} in {_words(kind)} is not allowed")
        self._values(node, kind)

    def _values(self, node: exp.Expr, kind: str) -> None:
        """What a node holds beside other nodes."""
        value = node.args.get("this")
        if kind == "Identifier":
            if not isinstance(value, str) or not _NAME.fullmatch(value):
                self._refuse(node, "names are of letters, digits and '_' only")
        elif kind == "Literal" and node.args.get("is_string"):
            if "\\" in str(value) or "${" in str(value):
                self._refuse(
                    node, "'\\' and '${' are not allowed in text (in a pattern, write [.] and [0-9])"
                )
        elif kind == "Var" and str(value).upper().rstrip("S") not in UNITS:
            self._refuse(node, "not a unit of time")
        elif kind == "DataType" and getattr(value, "name", value) not in TYPES:
            self._refuse(node, "type not allowed")
        elif kind == "Select" and not node.expressions:
            self._refuse(node, "it selects nothing")
        elif kind == "Join":
            words = {str(node.args.get(key) or "").upper() for key in ("side", "kind")}
            if not words <= JOIN_KINDS:
                self._refuse(node, "kind of join not allowed")
        elif kind.startswith("JSON"):
            self._json(node, kind, value)

    def _json(self, node: exp.Expr, kind: str, value: object) -> None:
        """A path into JSON is written out, of names and numbers that both engines read alike."""
        path = type(node.args.get("expression")).__name__
        wrong = (
            (kind == "JSONExtractScalar" and path != "JSONPath")
            or (kind == "JSONPathKey" and not (isinstance(value, str) and _NAME.fullmatch(value)))
            or (kind == "JSONPathSubscript" and (type(value) is not int or value < 0))
        )
        if wrong:
            self._refuse(node, "a path is written like '$.customer.names[0]'")

    def _with(self, node: exp.With) -> None:
        if node.parent is not self.tree:
            self._refuse(node, "WITH may only be at the beginning")
        for cte in node.expressions:
            name = cte.alias.lower()
            if name in self.known or name in self.ctes:
                self._refuse(cte, f"the name {cte.alias} is taken already")
            self.ctes.append(name)
            self.sources[name] = None

    def _table(self, node: exp.Table) -> None:
        from sqlglot import exp

        name = node.name.lower()
        if not isinstance(node.this, exp.Identifier):
            self._refuse(node, "only relations can be read")
        inside = node.find_ancestor(exp.CTE)
        before = self.ctes[: self.ctes.index(inside.alias.lower())] if inside else self.ctes
        if name in self.known:
            self.used.add(name)
        elif name not in before:
            self._unknown("relation", node.name, [*self.known, *before])
        columns = self.known.get(name)
        alias = (node.alias or name).lower()
        # One name for two things in different places: then either's columns may be meant.
        if alias in self.sources and self.sources[alias] != columns:
            columns = None
        self.sources[alias] = columns

    def _column(self, node: exp.Column) -> None:
        from sqlglot import exp

        if node.table and node.table.lower() not in self.sources:
            self._unknown("relation", node.table, self.sources)
        if isinstance(node.this, exp.Star):
            return
        columns = self.sources[node.table.lower()] if node.table else None
        if columns is None:
            columns = set().union(*(self.known[name] for name in self.used))
        found = {*columns, *self.aliases}
        if node.name.lower() not in found:
            self._unknown("column", node.name, found)

    def _not_allowed(self, node: exp.Expr, kind: str) -> NoReturn:
        from sqlglot import exp

        if isinstance(node, exp.Func):
            name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
            near = get_close_matches(name, FUNCTIONS, 1)
            raise UsageProblem(
                f"The function {name[:60]} is not allowed here.",
                hint=f"Did you mean {near[0]}?"
                if near
                else f"Functions are: {', '.join(sorted(FUNCTIONS))}.",
            )
        self._refuse(node, f"{_words(kind)} is not allowed")

    def _unknown(self, what: str, name: str, known: Iterable[str]) -> NoReturn:
        names = sorted(known)
        near = get_close_matches(name.lower(), names, 1)
        raise UsageProblem(
            f"There is no {what} {name[:60]}.",
            hint=f"Did you mean {near[0]}?" if near else f"There are: {', '.join(names)}.",
        )

    def _refuse(self, node: exp.Expr, why: str) -> NoReturn:
        from sqlglot.errors import ErrorLevel

        with suppress(ValueError):  # a node that cannot be written in Spark's dialect
            text = node.sql(dialect="spark", comments=False, unsupported_level=ErrorLevel.IGNORE)
            why = f"{why}, at {text[:80]!r}"
        raise UsageProblem(
            f"The SQL may not be run: {why}.",
            hint="Allowed is one SELECT over the relations, with joins, subqueries, WITH, windows, UNION.",
        )


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").strip().lower()
