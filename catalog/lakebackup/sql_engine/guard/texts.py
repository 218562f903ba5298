"""Writes a checked SELECT for each engine, and checks the functions that the two texts call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, UnsupportedError
from sqlglot.tokenizer_core import Token

from lakebackup.rules.suggestions import did_you_mean
from lakebackup.sql_engine.guard.allowed import ONLY_SPARK, SPARK, UNPARENTHESIZED, WORDS, refused
from lakebackup.sql_engine.guard.characters import NAME
from lakebackup.sql_engine.guard.dialect import SelectDialect, for_duckdb, for_spark, is_explode, name_columns
from lakebackup.sql_engine.guard.place import span_of, word, wrong


def texts(tree: exp.Expr, sql: str) -> tuple[str, str, dict[str, str]]:
    """Write a SELECT for both engines; `sql` is the person's own text. Returns the text for Spark, the text
    for DuckDB ("": DuckDB cannot run it), and engine -> a function that the engine lacks.

    Raises UsageProblem for a function that is refused or that neither engine has, UnsupportedError for a
    SELECT of which each engine lacks a part.
    """
    _strict_casts(tree)
    _tuples_by_element(tree)
    name_columns(tree)
    spark, duckdb = _write(for_spark(tree), SelectDialect), ""
    foreign = {}
    try:
        duckdb = _write(for_duckdb(tree), "duckdb")
    except UnsupportedError:
        foreign["duckdb"] = _unsupported_function(tree, sql)
    sql_calls = _calls_in_sql(tree, sql)
    tokens = sqlglot.tokenize(duckdb, dialect="duckdb")
    spark_calls, duckdb_calls = (
        _called_functions(sqlglot.tokenize(spark, dialect="spark")),
        _called_functions(tokens),
    )
    for name in sorted(spark_calls | duckdb_calls | sql_calls | _unquoted_words(tokens) & UNPARENTHESIZED):
        if refused(name):
            raise wrong(
                sql, word(sql, name), f"The function {name[:60]} is not allowed here.", _near_function(name)
            )
    for name in sorted((spark_calls | sql_calls) - SPARK):
        if name not in _duckdb_functions():
            raise wrong(sql, word(sql, name), f"There is no function {name[:60]}.", _near_function(name))
        foreign["spark"] = name
    if foreign.get("spark") and not duckdb:
        raise UnsupportedError
    for name in sorted((duckdb_calls | sql_calls) & ONLY_SPARK):
        foreign["duckdb"] = name
    for view in tree.find_all(exp.Lateral):
        if view.args.get("outer") and not is_explode(view):
            foreign["duckdb"] = "outer"
    return spark, duckdb, foreign


def _unsupported_function(tree: exp.Expr, sql: str) -> str:
    """Return the innermost function that cannot be written for DuckDB, as the person wrote it."""
    for call in reversed(list(tree.find_all(exp.Func))):
        try:
            _write(for_duckdb(call), "duckdb")
        except UnsupportedError:
            return _written_name(call, sql) or call.sql_name().lower()
    return "This SQL"


def _called_functions(tokens: Sequence[Token]) -> set[str]:
    """Return the names before a parenthesis: these are functions, however a parser reads them."""
    kinds = sqlglot.TokenType
    functions = {
        token.text.lower()
        for token, next_token in pairwise(tokens)
        if next_token.token_type is kinds.L_PAREN
        and token.token_type not in (kinds.IDENTIFIER, kinds.STRING, kinds.NUMBER)
        and token.text[:1].isalpha()
    }
    return functions - WORDS


def _unquoted_words(tokens: Sequence[Token]) -> set[str]:
    """Return all words that are not quoted, in lower case."""
    quoted = (sqlglot.TokenType.IDENTIFIER, sqlglot.TokenType.STRING)
    return {token.text.lower() for token in tokens if token.token_type not in quoted}


def _calls_in_sql(tree: exp.Expr, sql: str) -> set[str]:
    """Return the functions that a SELECT calls, by their names in the person's own text."""
    names = {_written_name(call, sql) for call in tree.find_all(exp.Func)} - WORDS
    return {name for name in names if name and NAME.fullmatch(name)}


def _written_name(call: exp.Expr, sql: str) -> str | None:
    """Return a function's name as the person wrote it; None where its place is not known."""
    span = span_of(call) if "start" in call.meta else None
    return sql[span[0] : span[1] + 1].lower() if span else None


@cache
def _duckdb_functions() -> frozenset[str]:
    """Return the functions of DuckDB that are not refused."""
    with duckdb.connect() as connection:
        rows = connection.execute("SELECT function_name FROM duckdb_functions()").fetchall()
    return frozenset(name for (name,) in rows if not refused(name))


def _near_function(name: str) -> str:
    return did_you_mean(
        name,
        SPARK,
        "Those of Spark's SQL and of DuckDB can be called that read no file, no setting and no network.",
    )


def _write(tree: exp.Expr, dialect: Any) -> str:
    return tree.sql(dialect=dialect, identify=True, comments=False, unsupported_level=ErrorLevel.RAISE)


def _tuples_by_element(tree: exp.Expr) -> None:
    """Rewrite (a, b) IN ((1, 2)) as a = 1 AND b = 2: Spark compares only tuples of the same types."""
    for node in list(tree.find_all(exp.In)):
        operand, tuples = node.this, node.expressions
        if not isinstance(operand, exp.Tuple) or not tuples:
            continue
        if any(
            not isinstance(row, exp.Tuple) or len(row.expressions) != len(operand.expressions)
            for row in tuples
        ):
            continue
        comparisons = [
            exp.and_(
                *(
                    exp.EQ(this=element.copy(), expression=value.copy())
                    for element, value in zip(operand.expressions, row.expressions, strict=True)
                )
            )
            for row in tuples
        ]
        node.replace(exp.paren(exp.or_(*comparisons)))


def _strict_casts(tree: exp.Expr) -> None:
    """Let CAST fail on both engines for a value that it cannot convert, as in Spark 4; TRY_CAST returns
    NULL."""
    for node in list(tree.find_all(exp.Sub)):  # INTERVAL 1 HOUR 30 MINUTES is one operand, also of a minus
        if isinstance(node.expression, exp.Add) and isinstance(node.expression.this, exp.Interval):
            node.set("expression", exp.Paren(this=node.expression))
    for cast in list(tree.find_all(exp.TryCast)):
        if not cast.args.get("safe"):
            cast.replace(exp.Cast(this=cast.this, to=cast.to))
