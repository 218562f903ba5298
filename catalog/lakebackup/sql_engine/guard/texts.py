"""The text of a checked SELECT for each engine, and which functions it calls there."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lakebackup.rules.suggestions import did_you_mean
from lakebackup.sql_engine.guard.allowed import BARE, ONLY_SPARK, SPARK, WORDS, refused
from lakebackup.sql_engine.guard.characters import NAME
from lakebackup.sql_engine.guard.place import span_of, word, wrong

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp
    from sqlglot.tokenizer_core import Token


def texts(tree: exp.Expr, sql: str) -> tuple[str, str, dict[str, str]]:
    """The text for Spark and for DuckDB, and by engine a function that it has not.

    Raises UsageProblem for a function that is refused or that neither has, UnsupportedError for what each
    engine alone knows.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import UnsupportedError

    from lakebackup.sql_engine.guard.dialect import Asked, for_duckdb, for_spark, is_explode, named

    _strict_casts(tree)
    _tuples_by_element(tree)
    named(tree)
    spark, duckdb = _write(for_spark(tree), Asked), ""
    foreign = {}
    try:
        duckdb = _write(for_duckdb(tree), "duckdb")
    except UnsupportedError:
        foreign["duckdb"] = _unsupported(tree, sql)
    own = _written(tree, sql)
    words = sqlglot.tokenize(duckdb, dialect="duckdb")
    by_spark, by_duckdb = _called(sqlglot.tokenize(spark, dialect="spark")), _called(words)
    for name in sorted(by_spark | by_duckdb | own | _unquoted(words) & BARE):
        if refused(name):
            raise wrong(
                sql, word(sql, name), f"The function {name[:60]} is not allowed here.", _near_function(name)
            )
    for name in sorted((by_spark | own) - SPARK):
        if name not in _of_duckdb():
            raise wrong(sql, word(sql, name), f"There is no function {name[:60]}.", _near_function(name))
        foreign["spark"] = name
    if foreign.get("spark") and not duckdb:
        raise UnsupportedError
    for name in sorted((by_duckdb | own) & ONLY_SPARK):
        foreign["duckdb"] = name
    for view in tree.find_all(exp.Lateral):
        if view.args.get("outer") and not is_explode(view):
            foreign["duckdb"] = "outer"
    return spark, duckdb, foreign


def _unsupported(tree: exp.Expr, sql: str) -> str:
    """The innermost function that cannot be written for DuckDB, as the person wrote it."""
    from sqlglot import exp
    from sqlglot.errors import UnsupportedError

    from lakebackup.sql_engine.guard.dialect import for_duckdb

    for call in reversed(list(tree.find_all(exp.Func))):
        try:
            _write(for_duckdb(call), "duckdb")
        except UnsupportedError:
            return _asked(call, sql) or call.sql_name().lower()
    return "This SQL"


def _called(tokens: Sequence[Token]) -> set[str]:
    """The names that stand before a parenthesis: functions, whatever a parser makes of them."""
    import sqlglot

    kinds = sqlglot.TokenType
    named = {
        token.text.lower()
        for token, after in pairwise(tokens)
        if after.token_type is kinds.L_PAREN
        and token.token_type not in (kinds.IDENTIFIER, kinds.STRING, kinds.NUMBER)
        and token.text[:1].isalpha()
    }
    return named - WORDS


def _unquoted(tokens: Sequence[Token]) -> set[str]:
    """All words that are not quoted."""
    import sqlglot

    quoted = (sqlglot.TokenType.IDENTIFIER, sqlglot.TokenType.STRING)
    return {token.text.lower() for token in tokens if token.token_type not in quoted}


def _written(tree: exp.Expr, sql: str) -> set[str]:
    """The functions of the person's own text, by the names that it has for them."""
    from sqlglot import exp

    names = {_asked(call, sql) for call in tree.find_all(exp.Func)} - WORDS
    return {name for name in names if name and NAME.fullmatch(name)}


def _asked(call: exp.Expr, sql: str) -> str | None:
    """A function's name as the person wrote it, where its place is known."""
    span = span_of(call) if "start" in call.meta else None
    return sql[span[0] : span[1] + 1].lower() if span else None


@cache
def _of_duckdb() -> frozenset[str]:
    """The functions that DuckDB has and that no list refuses."""
    import duckdb

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
    from sqlglot.errors import ErrorLevel

    return tree.sql(dialect=dialect, identify=True, comments=False, unsupported_level=ErrorLevel.RAISE)


def _tuples_by_element(tree: exp.Expr) -> None:
    """(a, b) IN ((1, 2)) as a = 1 AND b = 2: Spark compares tuples of equal types alone."""
    from sqlglot import exp

    for node in list(tree.find_all(exp.In)):
        given, tuples = node.this, node.expressions
        if not isinstance(given, exp.Tuple) or not tuples:
            continue
        if any(
            not isinstance(one, exp.Tuple) or len(one.expressions) != len(given.expressions) for one in tuples
        ):
            continue
        same = [
            exp.and_(
                *(
                    exp.EQ(this=a.copy(), expression=b.copy())
                    for a, b in zip(given.expressions, one.expressions, strict=True)
                )
            )
            for one in tuples
        ]
        node.replace(exp.paren(exp.or_(*same)))


def _strict_casts(tree: exp.Expr) -> None:
    """CAST fails on both engines for what it cannot cast, as in Spark 4; TRY_CAST gives NULL."""
    from sqlglot import exp

    for node in list(tree.find_all(exp.Sub)):  # INTERVAL 1 HOUR 30 MINUTES is one thing, also after a minus
        if isinstance(node.expression, exp.Add) and isinstance(node.expression.this, exp.Interval):
            node.set("expression", exp.Paren(this=node.expression))
    for cast in list(tree.find_all(exp.TryCast)):
        if not cast.args.get("safe"):
            cast.replace(exp.Cast(this=cast.this, to=cast.to))
