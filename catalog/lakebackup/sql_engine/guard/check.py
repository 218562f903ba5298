"""Whether a person's SQL is one harmless SELECT over given relations, and its text for both engines.

Syntax, its options and types are allow-lists, and so are functions on Spark; DuckDB, which is locked, may
call all but refused ones. The engines never see the given text, only what is generated from the tree. Which
functions that calls is read from it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol, runtime_checkable

from lakebackup.errors import NeedsSpark, UsageProblem
from lakebackup.rules.suggestions import did_you_mean
from lakebackup.sql_engine.guard.allowed import (
    ARGUMENTS,
    JOIN_KINDS,
    MOST,
    OPTION_WORDS,
    OPTIONS,
    ROWS,
    SIZES,
    SYNTAX,
    SYNTAX_WORDS,
    TYPES,
    UNITS,
)
from lakebackup.sql_engine.guard.characters import NAME, check_characters
from lakebackup.sql_engine.guard.place import ON_SPARK, place_of, span_of, whole, word, wrong
from lakebackup.sql_engine.guard.records import COLUMNS, USAGE, arguments, is_call, take_calls
from lakebackup.sql_engine.guard.texts import texts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    from lakebackup.sql_engine.guard.records import RecordsCall

_MAX_TOKENS = 10_000
_MAX_DEPTH = 120
# sqlglot also takes 0x1F, which is a name on Spark, and all that Python takes for a number: '1_1'.
_BYTES = re.compile(r"[xX]'[0-9A-Fa-f]*'")
# All escapes but those that are written here too.
_PLAIN = re.compile(r"[A-Za-z_ ]*")
_HINT = re.compile(r"/\*\+.*?\*/", re.DOTALL)
_SHOW = re.compile(r"\s*show\s+(?:tables|views)\s*;?\s*", re.IGNORECASE)
_DESCRIBE = re.compile(r"\s*(?:describe|desc)\s+(?:table\s+)?`?(\w+)`?(\([^()]*\))?\s*;?\s*", re.IGNORECASE)
_EXPLAIN = re.compile(r"\s*explain(?=[\s(])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Checked:
    """A SELECT that may run: its text for Spark and for DuckDB, and the relations it reads, sorted.

    `records`: what it asks inside the backups; relations that are not the catalog's, to be given their rows.
    `explained`: its plan is asked for, not its rows. `given`: the person's own text. `foreign`: a function in
    it that an engine has not, or other SQL in words, by engine.
    """

    spark: str
    duckdb: str
    relations: tuple[str, ...]
    records: tuple[RecordsCall, ...] = ()
    explained: bool = False
    given: str = field(default="", compare=False)
    foreign: Mapping[str, str] = field(default_factory=dict, compare=False)

    def text(self, engine: Literal["spark", "duckdb"]) -> str:
        """What the engine runs. Raises UsageProblem when it lacks a function."""
        return f"EXPLAIN {self._runnable(engine)}" if self.explained else self._runnable(engine)

    def selected(self, engine: Literal["spark", "duckdb"]) -> str:
        """As `text`, where rows are wanted. Raises UsageProblem when it is to be explained only."""
        if self.explained:
            raise UsageProblem("EXPLAIN gives a plan, no rows.", hint="Write the SELECT alone.")
        return self._runnable(engine)

    def _runnable(self, engine: Literal["spark", "duckdb"]) -> str:
        if name := self.foreign.get(engine):
            place = word(self.given, name)
            what = f"The function {name}" if NAME.fullmatch(name) else name
            if engine == "spark":
                message = f"{what} runs on DuckDB only."
                raise wrong(self.given, place, message, "Use --engine duckdb.")
            raise wrong(self.given, place, f"{what} runs on Spark only.", ON_SPARK, kind=NeedsSpark)
        return self.spark if engine == "spark" else self.duckdb


def check_select(sql: str, relations: Mapping[str, Sequence[str]], *, records: bool = False) -> Checked:
    """Check `sql` (Spark's dialect) against `relations`: the name of each and its columns' names.

    `records`: whether it may ask inside the backups with records('topic'). SHOW TABLES and DESCRIBE are
    SELECTs of what is known here, EXPLAIN is one that is explained.
    Raises UsageProblem, with the place of what is not allowed or not known, and the nearest known names.
    """
    from sqlglot.errors import SqlglotError

    if _SHOW.fullmatch(sql):
        return check_select(_values("name", ((name,) for name in sorted(relations))), {})
    if asked := _DESCRIBE.fullmatch(sql):
        return check_select(_described(sql, asked[1], relations, records=records), {})
    explained = _EXPLAIN.match(sql)
    text = sql
    if explained:  # places and lines stay what they are
        text = re.sub(r"\S", " ", explained[0]) + sql[explained.end() :]
    known = _Known(relations)
    check_characters(sql)
    try:
        tree = _parse(text, sql)
        calls = _records(tree, sql, allowed=records)
        known.own |= {call.relation: set(COLUMNS) for call in calls}
        used = _Check(tree, known, sql).run() - {call.relation for call in calls}
        spark, duckdb, foreign = texts(tree, sql)
        try:
            _Check(_parse(spark, spark), known, spark).run()
        except UsageProblem as error:  # it quotes what was written for Spark, not what the person wrote
            raise wrong(sql, whole(sql), error.message.partition("\n")[0], error.hint) from error
    except SqlglotError as error:
        raise _unreadable(text, sql, error) from error
    except RecursionError as error:
        raise wrong(
            sql, whole(sql), "The SQL is nested too deeply.", "Use IN, a CTE or a join instead."
        ) from error
    return Checked(spark, duckdb, tuple(sorted(used)), calls, explained is not None, sql, foreign)


def _values(columns: str, rows: Iterable[tuple[str, ...]]) -> str:
    """A SELECT of some names."""
    found = ", ".join("(" + ", ".join(f"'{value}'" for value in row) + ")" for row in rows)
    return f"SELECT {columns} FROM VALUES {found} AS relations({columns})"  # noqa: S608 - our own names


def _described(sql: str, name: str, relations: Mapping[str, Sequence[str]], *, records: bool) -> str:
    from sqlglot import exp

    if records and name.lower() == "records":
        return _values("name, type", COLUMNS.items())
    found = {known.lower(): known for known in relations}.get(name.lower())
    if found is None:
        raise wrong(sql, word(sql, name), f"There is no relation {name[:60]}.", _near(name, relations))
    types = relations.types(found) if isinstance(relations, Typed) else {}
    kinds = {
        column: exp.DataType.build(types[column], dialect="duckdb").sql("spark") if column in types else ""
        for column in relations[found]
    }
    return _values("name, type", kinds.items())


def _near(name: str, known: Iterable[str]) -> str:
    return did_you_mean(
        name, sorted(one.lower() for one in known), f"There are: {', '.join(sorted(known))}."[:600]
    )


def _unreadable(text: str, sql: str, error: SqlglotError) -> UsageProblem:
    from sqlglot.errors import ParseError, UnsupportedError

    if not isinstance(error, ParseError) or not error.errors:
        if isinstance(error, UnsupportedError):
            return wrong(sql, whole(sql), "The SQL holds what only one engine knows, and cannot be run.")
        return wrong(sql, whole(sql), "The SQL cannot be read.", "A text, a name or a comment is not closed.")
    found = error.errors[0]
    before = str(found.get("start_context") or "")
    end = text.find(before) + len(before) if before else 0
    what = str(found.get("highlight") or "")
    at = text.find(what, max(end, 0)) if what else -1
    span = (at, at + len(what) - 1) if at >= 0 else (max(len(sql.rstrip()) - 1, 0),) * 2
    said = str(found.get("description") or "")
    missing = re.match(r"Expecting ([^A-Za-z\s])", said)
    message = f"The SQL cannot be read here{f': a {missing[1]!r} is missing' if missing else ''}."
    if "argument" in said.lower():
        message = "The function that ends here has too few or too many arguments."
    return wrong(sql, span, message, "Write it as Spark SQL.")


@runtime_checkable
class Typed(Protocol):
    """Relations whose columns' types (DuckDB's) are known."""

    def types(self, relation: str) -> Mapping[str, str]: ...


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


def _records(tree: exp.Expr, sql: str, *, allowed: bool) -> tuple[RecordsCall, ...]:
    from sqlglot import exp

    for table in tree.find_all(exp.Table):
        if not is_call(table):
            continue
        if not allowed:
            raise wrong(
                sql,
                span_of(table),
                "records(…) cannot be asked here.",
                "`lakebackup sql` takes it; here the relations of the catalog are read alone.",
            )
        if arguments(table) is None:
            raise wrong(sql, span_of(table), "records(…) takes one text or two, written out.", USAGE)
    return take_calls(tree)


def _parse(text: str, sql: str) -> exp.Expr:
    """The syntax tree of a text; errors show `sql`, whose places are the same."""
    import sqlglot
    from sqlglot import TokenType, exp
    from sqlglot.errors import ErrorLevel, SqlglotError

    # It warns of syntax that it does not know, which is refused below.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    from lakebackup.sql_engine.guard.dialect import Asked, without_limit_all

    written = sqlglot.tokenize(text, dialect=Asked)
    tokens = list(written)
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise UsageProblem("There is no SQL.", hint="Write one SELECT.")
    if len(tokens) > _MAX_TOKENS:
        raise UsageProblem(f"The SQL has {len(tokens)} words and signs; at most {_MAX_TOKENS} are read.")
    depth, before = 0, tokens[0]
    for token in tokens:
        if before is not token and before.token_type is token.token_type is TokenType.STRING:
            place = (token.start, token.end)
            raise wrong(sql, place, "Two texts stand side by side.", 'A quote in text: "it\'s".')
        bytes_ = token.token_type is TokenType.HEX_STRING
        if bytes_ and not _BYTES.fullmatch(text, token.start, token.end + 1):
            place = (token.start, token.end)
            raise wrong(sql, place, "Bytes are not written like this.", "Write hexadecimal digits: x'00ff'.")
        before = token
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth > _MAX_DEPTH:
            raise RecursionError
    starts = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN)
    if tokens[0].token_type not in starts or any(t.token_type is TokenType.SEMICOLON for t in tokens):
        second = next((t for t in tokens if t.token_type is TokenType.SEMICOLON), tokens[0])
        place = (second.start, second.end)
        hint = "Or SHOW TABLES, DESCRIBE a table, EXPLAIN a SELECT. Nothing else, and no second statement."
        raise wrong(sql, place, "Only one SELECT can be run here.", hint)
    try:
        found = Asked().parser(error_level=ErrorLevel.IMMEDIATE).parse(written, text)
    except (SqlglotError, RecursionError):
        raise
    except Exception as error:  # the parser stumbles over some wrong SQL
        raise wrong(sql, whole(sql), "The SQL cannot be read.", "Write it as Spark SQL.") from error
    # A comment after the last semicolon is one more, empty statement.
    (tree,) = (statement for statement in found if statement and not isinstance(statement, exp.Semicolon))
    without_limit_all(tree)
    return tree


class _Check:
    """One walk over a tree; `known` maps relations to their columns, all in lower case."""

    def __init__(self, tree: exp.Expr, known: Mapping[str, Collection[str]], sql: str) -> None:
        self.tree, self.sql = tree, sql
        self.known = known
        self.ctes: list[str] = []
        self.used: set[str] = set()
        self.pivots = False
        self.aliases: set[str] = set()  # of columns
        self.sources: dict[str, Collection[str] | None] = {}  # names before a dot; None: columns not known

    def run(self) -> set[str]:  # noqa: C901 - one walk
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
            elif isinstance(node, (exp.Subquery, exp.Lateral, exp.Values)) and node.alias:
                self.sources[node.alias.lower()] = None
            elif isinstance(node, (exp.Alias, exp.Window)) and node.alias:
                self.aliases.add(node.alias.lower())
            elif isinstance(node, exp.Pivot):  # its columns are named by values
                self.pivots = True
                self.sources[node.alias.lower()] = None
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
        from sqlglot import exp

        if kind not in SYNTAX and not isinstance(node, exp.Func):
            self._refuse(node, f"{SYNTAX_WORDS.get(kind) or _words(kind).upper()} is not allowed here")
        function = isinstance(node, exp.Func)
        options = OPTIONS.get(kind, OPTIONS["*"])
        for key, value in node.args.items():
            if value is None or value is False or value == []:
                continue
            if isinstance(value, str) and function and key != "this" and not _PLAIN.fullmatch(value):
                self._refuse(node, f"the option {_words(key)} of {_words(kind)} is not allowed here")
            if key.rstrip("_") in options or (function and kind not in OPTIONS):
                continue
            self._option(node, key.rstrip("_"), value)
        if isinstance(node, exp.Func):
            if isinstance(node.parent, exp.Dot) and node.arg_key == "expression":
                self._refuse(node, "a function has no name in front of it")
            self._arguments(node)
            self._size(node)
        self._values(node, kind)

    def _option(self, node: exp.Expr, name: str, value: object) -> NoReturn:
        """Refuse an option by the word that was written for it, if it is one that was."""
        from sqlglot import exp

        words = _words(name)
        said = OPTION_WORDS.get(name) or words
        first = value[0] if isinstance(value, list) else value
        own = place_of(self.sql, first) if isinstance(first, exp.Expr) else None
        hint = _HINT.search(self.sql) if name == "hint" else None
        place = (hint.start(), hint.end() - 1) if hint else word(self.sql, words) or own
        self._refuse(node, f"{said} is not allowed here", place)

    def _arguments(self, node: exp.Func) -> None:
        from sqlglot import exp

        name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
        count = len(list(node.iter_expressions()))
        counts = ARGUMENTS.get(name)
        if counts and count not in counts:
            more = " or more" if len(counts) > 1 else ""
            message = f"The function {name} has too few or too many arguments: {count}."
            raise wrong(self.sql, place_of(self.sql, node), message, f"On Spark it has {counts[0]}{more}.")

    def _size(self, node: exp.Func) -> None:
        """Few words must not make gigabytes."""
        from sqlglot import exp

        name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
        name = {"pad": "lpad", "generate_series": "sequence"}.get(name, name)
        if name == "stack":  # Spark writes code for each row
            rows, *values = node.iter_expressions()
            if not (isinstance(rows, exp.Literal) and rows.name.isdigit() and int(rows.name) <= len(values)):
                self._refuse(rows, "stack makes a written number of rows, at most one a value")
        if name not in SIZES or name == "range":
            return
        for number in (one for one in node.iter_expressions() if isinstance(one, exp.Literal)):
            if not number.is_string and float(number.this) > MOST:
                self._refuse(number, f"a size of at most {MOST:,} is allowed")

    def _values(self, node: exp.Expr, kind: str) -> None:  # noqa: C901 - one line a kind
        """What a node holds beside other nodes."""
        from sqlglot import exp

        value = node.args.get("this")
        if kind == "Identifier":
            if not isinstance(value, str) or not NAME.fullmatch(value):
                self._refuse(node, "names are of letters, digits and '_' only")
        elif (kind == "Literal" and node.args.get("is_string")) or kind == "RawString":
            if "${" in str(value):
                self._refuse(node, "'${' is not allowed in text")
        elif kind == "Like" and "\\" in getattr(node.expression, "name", ""):
            self._refuse(
                node.expression, "a pattern of LIKE escapes with another sign: LIKE 'a!%' ESCAPE '!'"
            )
        elif kind == "Anonymous" and str(value).lower() in ("date_trunc", "trunc"):
            units = node.expressions[:1] if str(value).lower() == "date_trunc" else node.expressions[1:2]
            if any(isinstance(unit, exp.Literal) and not _PLAIN.fullmatch(unit.name) for unit in units):
                self._refuse(node, "not a unit of time")
        elif kind == "Anonymous" and not (isinstance(value, str) and NAME.fullmatch(value)):
            self._refuse(node, "names are of letters, digits and '_' only")
        elif kind == "Var" and not self._is_word(node, str(value).upper()):
            self._refuse(node, "not a unit of time")
        elif kind == "DataType" and getattr(value, "name", value) not in TYPES:
            self._refuse(node, "type not allowed")
        elif kind == "Select" and not node.expressions:
            self._refuse(node, "it selects nothing")
        elif kind == "Join":
            words = {str(node.args.get(key) or "").upper() for key in ("side", "kind")}
            if not words <= JOIN_KINDS:
                self._refuse(node, "kind of join not allowed")
        elif kind.startswith("JSONPath") or kind == "JSONExtractScalar":
            self._json(node, kind, value)

    def _is_word(self, node: exp.Expr, word: str) -> bool:
        """A unit of time, or ORDER BY ALL."""
        from sqlglot import exp

        return (
            word in UNITS
            or word.removesuffix("S") in UNITS
            or (isinstance(node.parent, exp.Ordered) and word == "ALL")
        )

    def _json(self, node: exp.Expr, kind: str, value: object) -> None:
        """A path into JSON is written out, of names and numbers that both engines read alike."""
        path = type(node.args.get("expression")).__name__
        wrong = (
            (kind == "JSONExtractScalar" and path != "JSONPath")
            or (kind == "JSONPathKey" and not (isinstance(value, str) and NAME.fullmatch(value)))
            or (kind == "JSONPathSubscript" and not _is_place(value))
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
        if isinstance(node.this, exp.Anonymous) and node.this.name.lower() in ROWS:
            self.sources[(node.alias or node.this.name).lower()] = None
            self.aliases.add("id")
            return
        if not isinstance(node.this, exp.Identifier):
            self._refuse(node, "only relations, records(…) and range(…) can be read")
        inside = node.find_ancestor(exp.CTE)
        before = self.ctes[: self.ctes.index(inside.alias.lower())] if inside else self.ctes
        if name in self.known:
            self.used.add(name)
        elif name not in before:
            self._unknown(node, "relation", node.name, [*self.known, *before])
        columns = self.known.get(name)
        alias = (node.alias or name).lower()
        # One name for two things in different places: then either's columns may be meant.
        if alias in self.sources and self.sources[alias] != columns:
            columns = None
        self.sources[alias] = columns

    def _column(self, node: exp.Column) -> None:
        from sqlglot import exp

        if isinstance(node.this, exp.Star) and node.table.lower() in self.sources:
            return
        table = node.table.lower()
        columns = self.sources.get(table) if table else None
        if columns is None:
            columns = set().union(*(self.known[name] for name in self.used))
        found = {*columns, *self.aliases}
        if table and table not in self.sources:
            if table not in found and not self.pivots:  # else it is a field of that column
                self._unknown(node, "relation", node.table, self.sources)
        elif node.name.lower() not in found and not self.pivots and not self._unit(node):
            self._unknown(node.this, "column", node.name, found)

    def _unit(self, node: exp.Column) -> bool:
        """Whether a name is a unit of time, in front of what a function takes."""
        from sqlglot import exp

        return isinstance(node.parent, exp.Func) and not node.table and node.name.upper() in UNITS

    def _unknown(self, node: exp.Expr, what: str, name: str, known: Iterable[str]) -> NoReturn:
        raise wrong(self.sql, span_of(node), f"There is no {what} {name[:60]}.", _near(name, known))

    def _refuse(self, node: exp.Expr, why: str, place: tuple[int, int] | None = None) -> NoReturn:
        raise wrong(
            self.sql,
            place or place_of(self.sql, node),
            f"The SQL may not be run: {why}.",
            "Allowed is one SELECT over the relations, with joins, subqueries, WITH, windows, UNION.",
        )


def _is_place(value: object) -> bool:
    """Whether it is the number of an element in a path into JSON, or stands for all."""
    return type(value).__name__ == "JSONPathWildcard" or (type(value) is int and value >= 0)


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").strip().lower()
