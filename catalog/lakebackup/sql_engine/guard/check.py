"""Checks that a person's SQL is one harmless SELECT over given relations, and writes it for both engines.

Syntax, its options and types must be on lists of what is allowed, and so must functions on Spark. DuckDB is
locked, so it may call all functions except the refused ones. The engines never see the person's text, only
texts that are written from its syntax tree. The functions that these call are read from the texts themselves.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn, Protocol, runtime_checkable

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError, UnsupportedError

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
from lakebackup.sql_engine.guard.dialect import SelectDialect, without_limit_all
from lakebackup.sql_engine.guard.place import ON_SPARK, place_of, span_of, statement_span, word, wrong
from lakebackup.sql_engine.guard.records import COLUMNS, USAGE, RecordsCall, arguments, is_call, take_calls
from lakebackup.sql_engine.guard.texts import texts

_MAX_TOKENS = 10_000
_MAX_DEPTH = 120
# sqlglot also takes 0x1F, which is a name on Spark, and digits that only Python accepts, as in x'1_1'.
_HEX_BYTES = re.compile(r"[xX]'[0-9A-Fa-f]*'")
# Values of options and units of time that need no escape in the generated texts.
_PLAIN = re.compile(r"[A-Za-z_ ]*")
_HINT = re.compile(r"/\*\+.*?\*/", re.DOTALL)
_SHOW = re.compile(r"\s*show\s+(?:tables|views)\s*;?\s*", re.IGNORECASE)
_DESCRIBE = re.compile(r"\s*(?:describe|desc)\s+(?:table\s+)?`?(\w+)`?(\([^()]*\))?\s*;?\s*", re.IGNORECASE)
_EXPLAIN = re.compile(r"\s*explain(?=[\s(])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Checked:
    """A SELECT that may run: its texts for Spark and for DuckDB, and the relations that it reads, sorted.

    `records`: its calls of records(…); the caller must supply the rows of their relations. `explained`: the
    SELECT's plan is wanted, not its rows. `select`: the person's own text. `foreign`: engine -> a function in
    it that the engine lacks, or words for other SQL.
    """

    spark: str
    duckdb: str
    relations: tuple[str, ...]
    records: tuple[RecordsCall, ...] = ()
    explained: bool = False
    select: str = field(default="", compare=False)
    foreign: Mapping[str, str] = field(default_factory=dict, compare=False)

    def text(self, engine: Literal["spark", "duckdb"]) -> str:
        """Return the text that an engine runs. Raises UsageProblem when the engine lacks a function."""
        return f"EXPLAIN {self._runnable(engine)}" if self.explained else self._runnable(engine)

    def selected(self, engine: Literal["spark", "duckdb"]) -> str:
        """Like `text`, for callers that need rows. Raises UsageProblem also for an EXPLAIN, which has
        none."""
        if self.explained:
            raise UsageProblem("EXPLAIN gives a plan, no rows.", hint="Write the SELECT alone.")
        return self._runnable(engine)

    def _runnable(self, engine: Literal["spark", "duckdb"]) -> str:
        if name := self.foreign.get(engine):
            span = word(self.select, name)
            subject = f"The function {name}" if NAME.fullmatch(name) else name
            if engine == "spark":
                message = f"{subject} runs on DuckDB only."
                raise wrong(self.select, span, message, "Use --engine duckdb.")
            raise wrong(self.select, span, f"{subject} runs on Spark only.", ON_SPARK, kind=NeedsSpark)
        return self.spark if engine == "spark" else self.duckdb


def check_select(sql: str, relations: Mapping[str, Sequence[str]], *, records: bool = False) -> Checked:
    """Check `sql` (in Spark's dialect) against `relations`: name -> names of the columns.

    `records`: whether it may read records inside the backups with records('topic'). SHOW TABLES and DESCRIBE
    become SELECTs of names, EXPLAIN a SELECT with `explained`.

    Raises UsageProblem, which shows the place of what is not allowed or unknown, and suggests similar names.
    """
    if _SHOW.fullmatch(sql):
        return check_select(_values("name", ((name,) for name in sorted(relations))), {})
    if describe := _DESCRIBE.fullmatch(sql):
        return check_select(_description(sql, describe[1], relations, records=records), {})
    explained = _EXPLAIN.match(sql)
    text = sql
    if explained:  # spaces, so that positions and lines do not change
        text = re.sub(r"\S", " ", explained[0]) + sql[explained.end() :]
    columns_by_relation = _RelationColumns(relations)
    check_characters(sql)
    try:
        tree = _parse(text, sql)
        calls = _records(tree, sql, allowed=records)
        columns_by_relation.extra |= {call.relation: set(COLUMNS) for call in calls}
        read_relations = _Check(tree, columns_by_relation, sql).run() - {call.relation for call in calls}
        spark, duckdb, foreign = texts(tree, sql)
        try:
            _Check(_parse(spark, spark), columns_by_relation, spark).run()
        except UsageProblem as error:  # it quotes the text for Spark, not the person's
            raise wrong(sql, statement_span(sql), error.message.partition("\n")[0], error.hint) from error
    except SqlglotError as error:
        raise _syntax_problem(text, sql, error) from error
    except RecursionError as error:
        raise wrong(
            sql, statement_span(sql), "The SQL is nested too deeply.", "Use IN, a CTE or a join instead."
        ) from error
    return Checked(spark, duckdb, tuple(sorted(read_relations)), calls, explained is not None, sql, foreign)


def _values(columns: str, rows: Iterable[tuple[str, ...]]) -> str:
    """Return a SELECT of some literal rows."""
    rows_text = ", ".join("(" + ", ".join(f"'{value}'" for value in row) + ")" for row in rows)
    return f"SELECT {columns} FROM VALUES {rows_text} AS relations({columns})"  # noqa: S608 - our own names


def _description(sql: str, name: str, relations: Mapping[str, Sequence[str]], *, records: bool) -> str:
    if records and name.lower() == "records":
        return _values("name, type", COLUMNS.items())
    relation = {relation_name.lower(): relation_name for relation_name in relations}.get(name.lower())
    if relation is None:
        raise wrong(sql, word(sql, name), f"There is no relation {name[:60]}.", _near_hint(name, relations))
    types = relations.types(relation) if isinstance(relations, Typed) else {}
    kinds = {
        column: exp.DataType.build(types[column], dialect="duckdb").sql("spark") if column in types else ""
        for column in relations[relation]
    }
    return _values("name, type", kinds.items())


def _near_hint(name: str, names: Iterable[str]) -> str:
    return did_you_mean(
        name,
        sorted(candidate.lower() for candidate in names),
        f"There are: {', '.join(sorted(names))}."[:600],
    )


def _syntax_problem(text: str, sql: str, error: SqlglotError) -> UsageProblem:
    if not isinstance(error, ParseError) or not error.errors:
        if isinstance(error, UnsupportedError):
            return wrong(
                sql, statement_span(sql), "The SQL holds what only one engine knows, and cannot be run."
            )
        return wrong(
            sql, statement_span(sql), "The SQL cannot be read.", "A text, a name or a comment is not closed."
        )
    details = error.errors[0]
    context = str(details.get("start_context") or "")
    end = text.find(context) + len(context) if context else 0
    highlight = str(details.get("highlight") or "")
    start = text.find(highlight, max(end, 0)) if highlight else -1
    span = (start, start + len(highlight) - 1) if start >= 0 else (max(len(sql.rstrip()) - 1, 0),) * 2
    description = str(details.get("description") or "")
    missing = re.match(r"Expecting ([^A-Za-z\s])", description)
    message = f"The SQL cannot be read here{f': a {missing[1]!r} is missing' if missing else ''}."
    if "argument" in description.lower():
        message = "The function that ends here has too few or too many arguments."
    return wrong(sql, span, message, "Write it as Spark SQL.")


@runtime_checkable
class Typed(Protocol):
    """Relations that know the types of their columns, by DuckDB's names."""

    def types(self, relation: str) -> Mapping[str, str]: ...


class _RelationColumns(Mapping[str, "Collection[str]"]):
    """Relation -> its columns, all in lower case. The columns are computed at the first access, except those
    of `extra` relations."""

    def __init__(self, relations: Mapping[str, Sequence[str]]) -> None:
        self._names = {name.lower(): name for name in relations}
        self._relations = relations
        self.extra: dict[str, Collection[str]] = {}

    def __getitem__(self, name: str) -> Collection[str]:
        if name in self.extra:
            return self.extra[name]
        return {column.lower() for column in self._relations[self._names[name]]}

    def __iter__(self) -> Iterator[str]:
        return iter({**self._names, **self.extra})

    def __len__(self) -> int:
        return len({**self._names, **self.extra})


def _records(tree: exp.Expr, sql: str, *, allowed: bool) -> tuple[RecordsCall, ...]:
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
    """Return the syntax tree of a text. Errors show `sql`, in which the positions are the same."""
    # sqlglot logs warnings about syntax that it does not know, which is refused below.
    logging.getLogger("sqlglot").setLevel(logging.ERROR)

    all_tokens = sqlglot.tokenize(text, dialect=SelectDialect)
    tokens = list(all_tokens)
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise UsageProblem("There is no SQL.", hint="Write one SELECT.")
    if len(tokens) > _MAX_TOKENS:
        raise UsageProblem(f"The SQL has {len(tokens)} words and signs; at most {_MAX_TOKENS} are read.")
    depth, previous = 0, tokens[0]
    for token in tokens:
        if previous is not token and previous.token_type is token.token_type is TokenType.STRING:
            span = (token.start, token.end)
            raise wrong(sql, span, "Two texts stand side by side.", 'A quote in text: "it\'s".')
        is_hex = token.token_type is TokenType.HEX_STRING
        if is_hex and not _HEX_BYTES.fullmatch(text, token.start, token.end + 1):
            span = (token.start, token.end)
            raise wrong(sql, span, "Bytes are not written like this.", "Write hexadecimal digits: x'00ff'.")
        previous = token
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth > _MAX_DEPTH:
            raise RecursionError
    starts = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN)
    if tokens[0].token_type not in starts or any(t.token_type is TokenType.SEMICOLON for t in tokens):
        second = next((t for t in tokens if t.token_type is TokenType.SEMICOLON), tokens[0])
        span = (second.start, second.end)
        hint = "Or SHOW TABLES, DESCRIBE a table, EXPLAIN a SELECT. Nothing else, and no second statement."
        raise wrong(sql, span, "Only one SELECT can be run here.", hint)
    try:
        statements = SelectDialect().parser(error_level=ErrorLevel.IMMEDIATE).parse(all_tokens, text)
    except (SqlglotError, RecursionError):
        raise
    except Exception as error:  # the parser crashes on some wrong SQL
        raise wrong(sql, statement_span(sql), "The SQL cannot be read.", "Write it as Spark SQL.") from error
    # A comment after the last semicolon is one more, empty statement.
    (tree,) = (
        statement for statement in statements if statement and not isinstance(statement, exp.Semicolon)
    )
    without_limit_all(tree)
    return tree


class _Check:
    """The check of one tree. `columns_by_relation`: the relations that may be read, in lower case."""

    def __init__(self, tree: exp.Expr, columns_by_relation: Mapping[str, Collection[str]], sql: str) -> None:
        self.tree, self.sql = tree, sql
        self.columns_by_relation = columns_by_relation
        self.ctes: list[str] = []
        self.read_relations: set[str] = set()
        self.pivots = False
        self.aliases: set[str] = set()  # of columns
        self.sources: dict[str, Collection[str] | None] = {}  # names before a dot -> columns, None: unknown

    def run(self) -> set[str]:  # noqa: C901 - one walk
        """Check the tree; returns the relations that it reads. Raises UsageProblem, RecursionError."""
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
        return self.read_relations

    def _depth(self) -> None:
        level: list[exp.Expr] = [self.tree]
        for _ in range(_MAX_DEPTH):
            level = [child for node in level for child in node.iter_expressions()]
            if not level:
                return
        raise RecursionError

    def _syntax(self, node: exp.Expr) -> None:
        kind = type(node).__name__

        # Operators of JSONB, such as `?`, are functions to sqlglot. Neither engine has them.
        if kind.startswith("JSONB") or (kind not in SYNTAX and not isinstance(node, exp.Func)):
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
            name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
            self._check_count(node, name)
            self._size(node, name)
        self._values(node, kind)

    def _option(self, node: exp.Expr, name: str, value: object) -> NoReturn:
        """Refuse an option, and show the word in the person's SQL that set it, if there is one."""
        words = _words(name)
        label = OPTION_WORDS.get(name) or words
        first = value[0] if isinstance(value, list) else value
        own_span = place_of(self.sql, first) if isinstance(first, exp.Expr) else None
        hint = _HINT.search(self.sql) if name == "hint" else None
        span = (hint.start(), hint.end() - 1) if hint else word(self.sql, words) or own_span
        self._refuse(node, f"{label} is not allowed here", span)

    def _check_count(self, node: exp.Func, name: str) -> None:
        """Refuse a call with a number of arguments that the translation does not expect."""
        count = len(list(node.iter_expressions()))
        counts = ARGUMENTS.get(name)
        if counts and count not in counts:
            suffix = " or more" if len(counts) > 1 else ""
            message = f"The function {name} has too few or too many arguments: {count}."
            raise wrong(self.sql, place_of(self.sql, node), message, f"On Spark it has {counts[0]}{suffix}.")

    def _size(self, node: exp.Func, name: str) -> None:
        """Refuse calls with a large size: a few words must not create gigabytes."""
        name = {"pad": "lpad", "generate_series": "sequence"}.get(name, name)
        if name == "stack":  # Spark writes code for each row
            rows, *values = node.iter_expressions()
            if not (isinstance(rows, exp.Literal) and rows.name.isdigit() and int(rows.name) <= len(values)):
                self._refuse(rows, "stack makes a written number of rows, at most one a value")
        if name not in SIZES:
            return
        for number in (argument for argument in node.iter_expressions() if isinstance(argument, exp.Literal)):
            if not number.is_string and float(number.this) > MOST:
                self._refuse(number, f"a size of at most {MOST:,} is allowed")

    def _values(self, node: exp.Expr, kind: str) -> None:  # noqa: C901 - one line a kind
        """Check the values in a node that are no nodes, such as names, texts and units."""
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
        """Whether a word is a unit of time, or the ALL of ORDER BY ALL."""
        return (
            word in UNITS
            or word.removesuffix("S") in UNITS
            or (isinstance(node.parent, exp.Ordered) and word == "ALL")
        )

    def _json(self, node: exp.Expr, kind: str, value: object) -> None:
        """Check that a JSON path is a literal of names and numbers, which both engines read the same way."""
        path = type(node.args.get("expression")).__name__
        is_invalid = (
            (kind == "JSONExtractScalar" and path != "JSONPath")
            or (kind == "JSONPathKey" and not (isinstance(value, str) and NAME.fullmatch(value)))
            or (kind == "JSONPathSubscript" and not _is_element_index(value))
        )
        if is_invalid:
            self._refuse(node, "a path is written like '$.customer.names[0]'")

    def _with(self, node: exp.With) -> None:
        if node.parent is not self.tree:
            self._refuse(node, "WITH may only be at the beginning")
        for cte in node.expressions:
            name = cte.alias.lower()
            if name in self.columns_by_relation or name in self.ctes:
                self._refuse(cte, f"the name {cte.alias} is taken already")
            self.ctes.append(name)
            self.sources[name] = None

    def _table(self, node: exp.Table) -> None:
        name = node.name.lower()
        if isinstance(node.this, exp.Anonymous) and node.this.name.lower() in ROWS:
            self.sources[(node.alias or node.this.name).lower()] = None
            self.aliases.add("id")
            return
        if not isinstance(node.this, exp.Identifier):
            self._refuse(node, "only relations, records(…) and range(…) can be read")
        cte = node.find_ancestor(exp.CTE)
        earlier_ctes = self.ctes[: self.ctes.index(cte.alias.lower())] if cte else self.ctes
        if name in self.columns_by_relation:
            self.read_relations.add(name)
        elif name not in earlier_ctes:
            self._unknown(node, "relation", node.name, [*self.columns_by_relation, *earlier_ctes])
        columns = self.columns_by_relation.get(name)
        alias = (node.alias or name).lower()
        # One name for two relations in different places: then the columns of either may be meant.
        if alias in self.sources and self.sources[alias] != columns:
            columns = None
        self.sources[alias] = columns

    def _column(self, node: exp.Column) -> None:
        if isinstance(node.this, exp.Star) and node.table.lower() in self.sources:
            return
        table = node.table.lower()
        columns = self.sources.get(table) if table else None
        if columns is None:
            columns = set().union(*(self.columns_by_relation[name] for name in self.read_relations))
        names = {*columns, *self.aliases}
        if table and table not in self.sources:
            if table not in names and not self.pivots:  # else the name is a column, and this its field
                self._unknown(node, "relation", node.table, self.sources)
        elif node.name.lower() not in names and not self.pivots and not self._unit(node):
            self._unknown(node.this, "column", node.name, names)

    def _unit(self, node: exp.Column) -> bool:
        """Whether a name is a unit of time among the arguments of a function."""
        return isinstance(node.parent, exp.Func) and not node.table and node.name.upper() in UNITS

    def _unknown(self, node: exp.Expr, kind: str, name: str, names: Iterable[str]) -> NoReturn:
        raise wrong(self.sql, span_of(node), f"There is no {kind} {name[:60]}.", _near_hint(name, names))

    def _refuse(self, node: exp.Expr, reason: str, span: tuple[int, int] | None = None) -> NoReturn:
        raise wrong(
            self.sql,
            span or place_of(self.sql, node),
            f"The SQL may not be run: {reason}.",
            "Allowed is one SELECT over the relations, with joins, subqueries, WITH, windows, UNION.",
        )


def _is_element_index(value: object) -> bool:
    """Whether a value is the index of an element in a JSON path, or the wildcard for all elements."""
    return type(value).__name__ == "JSONPathWildcard" or (type(value) is int and value >= 0)


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").strip().lower()
