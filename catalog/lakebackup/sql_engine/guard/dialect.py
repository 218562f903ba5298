"""Parses a person's SQL, and rewrites its tree for each engine where sqlglot's translation would change its
meaning.

For some functions sqlglot's own syntax tree loses details of the SQL. They are parsed as plain calls by name,
and on DuckDB they are macros, or are rewritten here and in `calls`.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal

from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import UnsupportedError
from sqlglot.parsers.spark import SparkParser
from sqlglot.transforms import eliminate_qualify

from lakebackup.sql_engine.guard.aggregates import ARG_MAX_MIN, aggregate
from lakebackup.sql_engine.guard.arithmetic import COMPARED, number, with_scale, without_sign
from lakebackup.sql_engine.guard.calls import NAMES, ending, macro, units_between
from lakebackup.sql_engine.guard.calls import call as emulated
from lakebackup.sql_engine.guard.macros import MACROS, PREFIX

_BY_NAME_TEXT = """
    DATE_ADD DATEDIFF DATE_DIFF TO_UTC_TIMESTAMP SOUNDEX TO_CHAR PARSE_URL TO_NUMBER ARRAY_DISTINCT
    DATE_SUB DATE_FROM_UNIX_DATE DAYOFWEEK DAY_OF_WEEK DAYNAME MONTHNAME TRUNC UNIX_SECONDS
    UNIX_TIMESTAMP TO_UNIX_TIMESTAMP ANY SOME EVERY EXISTS LOCALTIMESTAMP FORMAT_STRING PERCENTILE_CONT
    PERCENTILE_DISC URL_ENCODE MAP_CONTAINS_KEY BIT_GET GETBIT TRY_ADD TRY_SUBTRACT TRY_MULTIPLY
    FROM_UTC_TIMESTAMP OCTET_LENGTH FROM_JSON TYPEOF UUID UNBASE64 UNHEX
    ARRAY_CONTAINS ARRAY_EXCEPT ARRAY_INTERSECT ARRAY_POSITION ARRAY_REMOVE SEQUENCE TO_JSON DATE_FORMAT
    FROM_UNIXTIME ADD_MONTHS MONTHS_BETWEEN LAST_DAY ARRAY_SIZE ARRAY_UNION ELEMENT_AT TRY_ELEMENT_AT
    FLATTEN SLICE DATEADD UNIX_MILLIS TIMESTAMP_SECONDS CONVERT_TIMEZONE
    LOWER LCASE UPPER UCASE INITCAP REVERSE
"""
_BY_NAME = frozenset(_BY_NAME_TEXT.split()) | NAMES

_NAMING = (exp.Alias, exp.Aliases, exp.Column, exp.Dot)
#: Functions that return several columns, or name their columns.
_MULTI_COLUMN = (exp.UDTF, exp.Explode, exp.Inline, exp.Columns)
_LONGEST_NAME = 60
_COMPARISONS = (*COMPARED, exp.Between, exp.In)
_INSTANT = re.compile(
    r"\d{4}-\d{1,2}$|\d{1,3}-\d{1,2}-\d{1,2}$|"
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*([+-]\d\d(:?\d\d)?| ?[A-Z]\w+/[\w/]+)$"
)
_PLAIN_TIME = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d([.]\d{1,6})?)?", re.ASCII)
_DATES = (exp.CurrentDate, exp.StrToDate, exp.TsOrDsToDate)
_DATES_BY_NAME_TEXT = """
    add_months date date_add date_from_unix_date date_sub last_day make_date next_day to_date trunc
"""
_DATES_BY_NAME = frozenset(_DATES_BY_NAME_TEXT.split())
_DECIMAL = re.compile(r"\d*[.]\d+|\d+[.]\d*", re.ASCII)
_BIGINT_DIGITS = 20  # of the DECIMAL to which Spark converts it
_MAX_DIGITS = 38
_DAYS = frozenset({"DAY", "WEEK", "MONTH", "QUARTER", "YEAR"})
_TYPES = exp.DataType.Type
_INTEGERS = (_TYPES.TINYINT, _TYPES.SMALLINT, _TYPES.INT, _TYPES.BIGINT)
_TEXTS = (_TYPES.TEXT, _TYPES.VARCHAR)
_INSTANTS = (_TYPES.TIMESTAMP, _TYPES.TIMESTAMPTZ)
_UNITS_TEXT = """
    YEAR=year Y=year YEARS=year YR=year YRS=year YEAROFWEEK=isoyear QUARTER=quarter QTR=quarter
    MONTH=month MON=month MONS=month MONTHS=month WEEK=week W=week WEEKS=week DAY=day D=day DAYS=day DOY=doy
    DAYOFWEEK_ISO=isodow DOW_ISO=isodow HOUR=hour H=hour HOURS=hour HR=hour HRS=hour
    MINUTE=minute M=minute MIN=minute MINS=minute MINUTES=minute
"""
# Parts of a time: Spark's names -> DuckDB's.
_UNITS = dict(pair.split("=") for pair in _UNITS_TEXT.split())
_TIME_PARTS: dict[type[exp.Expr], str] = {
    exp.Year: "YEAR",
    exp.Quarter: "QUARTER",
    exp.Month: "MONTH",
    exp.WeekOfYear: "WEEK",
    exp.Day: "DAY",
    exp.DayOfMonth: "DAY",
    exp.DayOfYear: "DOY",
    exp.Hour: "HOUR",
    exp.Minute: "MINUTE",
}
_SECONDS = frozenset({"S", "SEC", "SECS", "SECOND", "SECONDS"})
_FORMATS_TEXT = """
    yyyy=%Y yy=%y M=%-m MM=%m MMM=%b MMMM=%B d=%-d dd=%d D=%-j DDD=%j E=%a EE=%a EEE=%a EEEE=%A a=%p
    H=%-H HH=%H h=%-I hh=%I m=%-M mm=%M s=%-S ss=%S SSS=%g SSSSSS=%f
"""
_FORMATS = dict(pair.split("=") for pair in _FORMATS_TEXT.split())
_TIME_READERS = (exp.StrToTime, exp.StrToDate, exp.TsOrDsToDate)
# A part of a Spark time format: a text in quotes, a quote, a run of one letter, or another special character.
_FORMAT = re.compile(
    r"'(?P<quoted>(?:[^']|'')+)'|(?P<quote>'')|(?P<letters>([A-Za-z])\4*)|(?P<other>['\[\]{}#%])"
)
# In a format for reading a time: directives and characters that DuckDB interprets as Spark does. It would
# read the rest as plain text.
_DIRECTIVE = re.compile(r"%-?[A-Za-z](?:strict)?|[^A-Za-z']")
_AGGREGATES: dict[type[exp.Expr], str] = {
    exp.ApproxQuantile: "quantile_disc",
    exp.Quantile: "quantile_cont",
    exp.Skewness: f"{PREFIX}skewness",
    exp.Kurtosis: "kurtosis_pop",
}
# Functions and subqueries whose result may be a date as well as a number.
_ANY_TYPE = (
    *(exp.Max, exp.Min, exp.AnyValue, exp.Mode),
    *(exp.First, exp.Last, exp.FirstValue, exp.LastValue, exp.NthValue, exp.Lag, exp.Lead, exp.Subquery),
)
_MACRO_NAMES = frozenset(macro.partition("(")[0] for macro in MACROS)


class SelectDialect(Spark):
    """Spark's dialect as people may write it."""

    class Parser(SparkParser):
        def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
            """Parse CUBE and ROLLUP over any expressions; sqlglot takes only columns."""
            kind: type[exp.Cube | exp.Rollup]
            if self._match(TokenType.CUBE):
                kind = exp.Cube
            elif self._match(TokenType.ROLLUP):
                kind = exp.Rollup
            else:
                return None
            return self.expression(
                kind(expressions=[] if with_prefix else self._parse_wrapped_csv(self._parse_assignment))
            )

        FUNCTIONS = {name: builder for name, builder in SparkParser.FUNCTIONS.items() if name not in _BY_NAME}  # noqa: RUF012


def without_limit_all(tree: exp.Expr) -> None:
    """Remove LIMIT ALL, which limits nothing, from a tree."""
    for limit in list(tree.find_all(exp.Limit)):
        if isinstance(limit.expression, exp.Var) and limit.expression.name.upper() == "ALL":
            limit.pop()


def name_columns(tree: exp.Expr) -> None:
    """Name the columns that have no name after their own words: sum_bytes for sum(bytes).

    Otherwise each engine would invent its own name. A name that the SELECT uses already gets an underscore at
    its end, since it would change the meaning of the other uses.
    """
    names_in_tree = {name.name.lower() for name in tree.find_all(exp.Identifier)}
    for select in list(tree.find_all(exp.Select)):
        used_names = set(names_in_tree)
        for column in select.expressions:
            if isinstance(column, _NAMING) or column.is_star or column.find(*_MULTI_COLUMN):
                continue
            words = re.sub(
                r"\W+", "_", column.sql(dialect=SelectDialect, comments=False).lower(), flags=re.ASCII
            )
            name = words[:_LONGEST_NAME].strip("_") or "value"
            name = f"_{name}" if name[0].isdigit() else name
            while name in used_names:
                name += "_"
            used_names.add(name)
            column.replace(exp.alias_(column.copy(), name))


def for_spark(tree: exp.Expr) -> exp.Expr:
    """Return a copy of a tree for Spark: without QUALIFY, which Spark lacks, and with units of time as
    words."""
    tree = tree.copy()
    for call in tree.find_all(exp.Anonymous):
        if (
            call.name.lower() in ("datediff", "date_diff", "date_add", "dateadd")
            and len(call.expressions) == 3
        ):
            unit = call.expressions[0]
            unit.replace(exp.var(unit.name))
    for select in reversed(list(tree.find_all(exp.Select))):
        if not select.args.get("qualify"):
            continue
        names = {column.alias_or_name for column in select.expressions}
        rewritten = eliminate_qualify(select.copy())
        inner = rewritten.find(exp.Subquery)
        helpers = (
            [column.alias for column in inner.this.expressions if column.alias and column.alias not in names]
            if inner
            else []
        )
        for star in rewritten.expressions:
            if isinstance(star, exp.Star):
                star.set("except_", [exp.to_identifier(name) for name in helpers])
        if select is tree:
            return rewritten
        select.replace(rewritten)
    return tree


def for_duckdb(tree: exp.Expr) -> exp.Expr:
    """Return a copy of a tree with the same meaning on DuckDB. Raises UnsupportedError if there is none."""
    tree = tree.copy()
    for view in tree.find_all(exp.Lateral):
        if view.args.get("outer") and is_explode(view):  # DuckDB drops rows without elements
            rows = view.this.this
            not_empty = exp.GT(this=exp.func("len", rows.copy()), expression=exp.Literal.number(0))
            no_elements = exp.Array(expressions=[exp.null()])
            rows.replace(exp.Case(ifs=[exp.If(this=not_empty, true=rows.copy())], default=no_elements))
    for positions in list(tree.find_all(exp.Posexplode)):
        _number_elements(positions)
    for group in tree.find_all(exp.Group):
        for key in ("rollup", "cube"):  # WITH ROLLUP applies to all expressions before it
            if any(not clause.expressions for clause in group.args.get(key) or ()):
                group.set(key, [(exp.Rollup if key == "rollup" else exp.Cube)(expressions=group.expressions)])
                group.set("expressions", [])
    if any(map(_is_spark_only, tree.walk())):
        raise UnsupportedError
    for call in reversed(list(tree.find_all(exp.ArrayAgg, exp.ArrayUniqueAgg))):
        _rewrite_collect(call)
    for node in reversed(list(tree.walk())):
        replacement = (
            _with_type(node) or aggregate(node) or _rewrite_value(node) or number(node) or _on_duckdb(node)
        )
        if replacement is not None:
            node.replace(replacement)
    return tree


def _number_elements(node: exp.Posexplode) -> None:
    """Rewrite posexplode in a SELECT as the columns `pos` and `col`; DuckDB's own positions are BIGINT."""
    select = node.parent
    if not isinstance(select, exp.Select):
        return
    subscript = exp.Anonymous(this="generate_subscripts", expressions=[node.this, exp.Literal.number(1)])
    position = exp.cast(exp.Sub(this=subscript, expression=exp.Literal.number(1)), "int")
    columns = [exp.alias_(position, "pos"), exp.alias_(exp.Explode(this=node.this.copy()), "col")]
    index = select.expressions.index(node)
    select.set("expressions", [*select.expressions[:index], *columns, *select.expressions[index + 1 :]])


def _is_spark_only(node: exp.Expr) -> bool:
    """Whether a node is SQL that DuckDB lacks, or that means something else there."""
    if isinstance(node, exp.Pivot):  # on DuckDB counts are NULL, and names of columns differ
        return bool(node.args.get("unpivot")) or not (
            len(node.expressions) == 1
            and isinstance(node.expressions[0], (exp.Sum, exp.Max, exp.Min, exp.Avg))
        )
    if isinstance(node, exp.Window):
        return isinstance(node.this, (exp.Filter, exp.Corr))
    if isinstance(node, exp.All):
        return isinstance(node.this.unnest(), exp.Query)
    return isinstance(node, (exp.IntervalSpan, exp.JSONPathWildcard))


def _rewrite_collect(call: exp.AggFunc) -> None:
    """Let an aggregate of a list skip NULLs, and be empty, not NULL, without rows."""
    is_distinct = isinstance(call, exp.ArrayUniqueAgg) or isinstance(call.this, exp.Distinct)
    element = call.this.expressions[0] if isinstance(call.this, exp.Distinct) else call.this
    not_null = exp.not_(exp.Is(this=exp.paren(element.copy()), expression=exp.null()))
    aggregated = exp.ArrayAgg(
        this=exp.Distinct(expressions=[element.copy()]) if is_distinct else element.copy()
    )
    outermost = call.parent
    if isinstance(outermost, exp.Filter) and call.arg_key == "this":
        outermost.set("expression", exp.Where(this=exp.and_(outermost.expression.this, not_null)))
        call.replace(aggregated)
    else:
        outermost = exp.Filter(this=aggregated, expression=exp.Where(this=not_null))
        call.replace(outermost)
    while isinstance(outermost.parent, exp.Window) and outermost.arg_key == "this":
        outermost = outermost.parent
    coalesced = exp.Coalesce(this=exp.null(), expressions=[exp.Array()])
    outermost.replace(coalesced)
    coalesced.set("this", outermost)


def _with_type(node: exp.Expr) -> exp.Expr | None:
    """Rewrite an expression to which DuckDB would give another type; None: no change."""
    if isinstance(node, exp.Literal) and (replacement := _instant(node)) is not None:
        return replacement
    if isinstance(node, (exp.Add, exp.Sub)) and (replacement := _with_days(node)) is not None:
        return replacement
    joined = isinstance(node.parent, (exp.DPipe, exp.Concat)) and not _is_text(node)
    return macro("joined", node.copy()) if joined else None


def _with_days(node: exp.Add | exp.Sub) -> exp.Expr | None:
    """Let a date plus or minus whole days stay a date; DuckDB would return a timestamp. None: no change.

    Only DuckDB knows whether a column is a date, so a macro decides that.
    """
    if _is_date(node):
        return exp.cast(node.copy(), "date")
    time, days = node.this, node.expression
    if isinstance(node, exp.Add) and isinstance(time, exp.Interval):
        time, days = days, time
    if not _is_day_interval(days) or _is_time(time) or isinstance(time, (exp.Interval, exp.Literal)):
        return None
    name = "add_days" if isinstance(node, exp.Add) else "subtract_days"
    return macro(f"{name}{ending(time)}", time.copy(), days.copy())


def _is_day_interval(node: exp.Expr) -> bool:
    """Whether a node is an interval of whole days, or of longer units."""
    return isinstance(node, exp.Interval) and node.text("unit").upper().removesuffix("S") in _DAYS


def _rewrite_value(node: exp.Expr) -> exp.Expr | None:
    """Rewrite what DuckDB counts, rounds or formats differently; None: no change, or a change in place."""
    if isinstance(node, exp.Cast):
        _convert_operand(node)
    if isinstance(node, exp.Lambda) and isinstance(node.parent, (exp.Transform, exp.ArrayFilter)):
        _count_from_zero(node)
    if isinstance(node, exp.Extract):
        return _time_part(node.name, node.expression)
    if type(node) in _TIME_PARTS:
        return _time_part(_TIME_PARTS[type(node)], node.this)
    if isinstance(node, exp.TsOrDsToDate) and not node.args.get("format"):
        return exp.cast(macro("date", node.this), "date")
    if name := _AGGREGATES.get(type(node)):
        return exp.func(name, *list(node.iter_expressions())[:2])
    if isinstance(node, (exp.Ln, exp.Log)):  # on Spark NULL for 0 and negative numbers
        for number in [operand for operand in node.iter_expressions() if not _is_number(operand)]:
            number.replace(exp.func(f"{PREFIX}logged", number.copy()))
    if isinstance(node, (exp.Left, exp.Right, exp.Substring)):
        arguments = [operand for key in ("expression", "start", "length") if (operand := node.args.get(key))]
        name = f"{PREFIX}{type(node).__name__.lower()}"
        return None if all(map(_is_number, arguments)) else exp.func(name, node.this, *arguments)
    if isinstance(node, _TIME_READERS) and _DIRECTIVE.sub("", node.text("format")):
        raise UnsupportedError
    return None


def _on_duckdb(node: exp.Expr) -> exp.Expr | None:  # noqa: C901 - one line a kind
    if isinstance(
        node, exp.JSONExtractScalar
    ):  # fails for a text that is no JSON, for which Spark returns NULL
        if len(node.expression.expressions) < 2:  # the path `$`, which means the text itself
            raise UnsupportedError
        valid = macro("readable", node.this.copy())
        return exp.Case(ifs=[exp.If(this=valid, true=node.copy())])
    if isinstance(node, exp.TsOrDsAdd) and not node.args.get("unit"):
        return exp.func(f"{PREFIX}date_add", node.this, node.expression)
    if isinstance(node, exp.TimestampDiff) or (isinstance(node, exp.DateDiff) and node.args.get("unit")):
        return units_between(node.args["unit"].name, node.expression, node.this)
    if isinstance(node, (exp.RegexpLike, exp.RegexpILike)):
        return emulated("rlike", [node.this, node.expression])
    if isinstance(node, (exp.Length, exp.BitLength, exp.StrPosition)):
        return exp.cast(node.copy(), "int")
    if isinstance(node, exp.Initcap):
        return macro("initcap", node.this)
    if isinstance(node, exp.Chr):
        return emulated("chr", node.expressions)
    if isinstance(node, exp.MakeInterval) and not all(map(_is_literal, node.iter_expressions())):
        raise UnsupportedError  # sqlglot would turn it into a text
    if isinstance(node, exp.Second):  # unlike extract(SECOND …), it has no fraction
        part = exp.Anonymous(
            this="date_part", expressions=[exp.Literal.string("second"), macro("time", node.this)]
        )
        return exp.cast(part, "int")
    if isinstance(node, exp.Div):
        return _quotient(node)
    if isinstance(node, (exp.Add, exp.Mul)):
        return with_scale(node)
    if isinstance(node, exp.Sub) and not (
        _is_number(node.expression) or isinstance(node.expression, exp.Interval)
    ):
        return _difference(node)
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1:
        index = node.expressions[0]
        if isinstance(index, exp.Slice):
            raise UnsupportedError
        return None if isinstance(index, exp.Literal) and index.is_string else macro("at", node.this, index)
    if isinstance(node, exp.Replace) and not node.args.get("replacement"):
        node.set("replacement", exp.Literal.string(""))
        return None
    if isinstance(node, exp.Table) and isinstance(
        node.this, exp.Anonymous
    ):  # the function range, whose column Spark calls `id`
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier("range"))
        if not alias.columns:
            alias.set("columns", [exp.to_identifier("id")])
        node.set("alias", alias)
        return None
    if isinstance(node, exp.Any) and not isinstance(node.parent, exp.Binary):
        return exp.func("bool_or", node.this.unnest())
    return _by_name(node) if isinstance(node, exp.Anonymous) else None


def _quotient(node: exp.Div) -> exp.Expr:
    """Rewrite a division: on Spark an integer divided by a decimal literal is a DECIMAL, rounded half up."""
    divisor, operand = node.expression, without_sign(node.this)
    if isinstance(operand, exp.Literal) or not (
        isinstance(divisor, exp.Literal) and not divisor.is_string and _DECIMAL.fullmatch(divisor.name)
    ):
        return macro("divide", node.this, node.expression)
    number = Decimal(divisor.name)
    unscaled = int(divisor.name.replace(".", ""))
    fraction_digits = -int(number.as_tuple().exponent)
    digits = max(len(str(unscaled)), fraction_digits)
    scale = max(6, digits + 1)
    precision = _BIGINT_DIGITS + fraction_digits + scale
    if not unscaled or precision > _MAX_DIGITS:  # Spark rounds to fewer digits
        return macro("divide", node.this, node.expression)
    return macro(
        "by_decimal",
        node.this,
        divisor,
        exp.Literal.number(unscaled),
        exp.Literal.number(10 ** (scale + fraction_digits)),
        exp.Literal.string(f"e-{scale}"),
        exp.cast(exp.null(), f"decimal({precision}, {scale})"),
    )


def _difference(node: exp.Sub) -> exp.Expr | None:
    """Rewrite a difference, which on Spark is an interval if both sides are dates. A macro decides by their
    types, which it sees unless they are aggregates."""
    if _is_date(node.this) and _is_date(node.expression):
        days = exp.Sub(this=node.this.copy(), expression=node.expression.copy())
        return exp.func("to_days", exp.cast(days, "int"))
    if node.find(*_ANY_TYPE) or any(call.name in ARG_MAX_MIN for call in node.find_all(exp.Anonymous)):
        return macro("apart", node.this, node.expression)
    if node.find(exp.AggFunc, exp.Window) or not all(map(ending, node.find_all(exp.Column))):
        return None
    return with_scale(node, macro("minus", node.this, node.expression))


def _convert_operand(node: exp.Cast) -> None:
    """Convert the operand of a cast, so that it truncates numbers, does not round them, and leaves times
    without an offset."""
    if node.to.is_type(_TYPES.BINARY):
        node.set("this", exp.Anonymous(this="encode", expressions=[node.this.copy()]))
    prefix = "try_" if isinstance(node, exp.TryCast) else ""
    operand = node.this.this if isinstance(node.this, exp.Neg) else node.this
    if node.to.is_type(*_INTEGERS) and not (isinstance(operand, exp.Literal) and operand.name.isdigit()):
        node.set("this", exp.func(f"{PREFIX}whole{ending(node.this)}", node.this.copy()))
    elif node.to.is_type(*_TEXTS):
        if not _is_text(node.this):
            node.set("this", macro("text", node.this.copy()))
    elif _is_plain_time(node.this):  # both engines read it the same way
        return
    elif node.to.is_type(_TYPES.DATE):
        node.set("this", macro(f"{prefix}date", node.this.copy()))
    elif node.to.is_type(*_INSTANTS, _TYPES.TIMESTAMPNTZ):
        node.set("this", macro(f"{prefix}time", node.this.copy()))


def _is_plain_time(node: exp.Expr) -> bool:
    """Whether a node is a text literal with a date, or a date and time, that exists in the calendar."""
    if not (isinstance(node, exp.Literal) and node.is_string and _PLAIN_TIME.fullmatch(node.name)):
        return False
    try:
        datetime.fromisoformat(node.name[: len("0000-00-00 00:00:00")])
    except ValueError:
        return False
    return True


def _count_from_zero(node: exp.Lambda) -> None:
    """Let the second parameter of a lambda, the element's index, count from 0; on DuckDB it counts from 1."""
    index_name = node.expressions[1].name if len(node.expressions) == 2 else None
    for name in list(node.this.find_all(exp.Identifier)) if index_name else []:
        if (
            name.name == index_name
            and not isinstance(name.parent, _NAMING)
            and not (isinstance(name.parent, exp.PropertyEQ) and name.arg_key == "this")
        ):
            index_from_0 = exp.Sub(this=name.copy(), expression=exp.Literal.number(1))
            name.replace(exp.cast(index_from_0, "int"))


def _time_part(unit: str, time: exp.Expr) -> exp.Expr:
    """Return an expression for a part of a time, an INT as on Spark. Raises UnsupportedError for a part that
    DuckDB lacks."""
    unit = unit.upper()
    if unit in _SECONDS:
        return macro("seconds", time)
    if unit in ("DOW", "DAYOFWEEK"):
        return macro("dayofweek", time)
    if unit not in _UNITS:
        raise UnsupportedError
    instant = time.this if isinstance(time, exp.TsOrDsToDate) else time
    instant = instant if _is_date(instant) or _is_time(instant) else macro("time", instant)
    part = exp.Anonymous(this="date_part", expressions=[exp.Literal.string(_UNITS[unit]), instant.copy()])
    return exp.cast(part, "int")


def _formatted(time: exp.Expr, pattern: exp.Expr) -> exp.Expr:
    """Return an expression that formats a time. Raises UnsupportedError for a format that DuckDB lacks."""

    def directive(match: re.Match[str]) -> str:
        if quoted := match["quoted"]:
            return quoted.replace("''", "'").replace("%", "%%")
        if match["quote"] or match["other"] == "%":
            return "'" if match["quote"] else "%%"
        if (letters := match["letters"]) not in _FORMATS:
            raise UnsupportedError
        return _FORMATS[letters]

    if not isinstance(pattern, exp.Literal):
        raise UnsupportedError
    return exp.func("strftime", time, exp.Literal.string(_FORMAT.sub(directive, pattern.name)))


def is_explode(view: exp.Lateral) -> bool:
    """Whether a LATERAL VIEW makes a row of each element of a list, without its position."""
    return type(view.this) is exp.Explode


def _instant(node: exp.Literal) -> exp.Expr | None:
    """Rewrite a text literal with a time and an offset or zone that is compared with a time; None: no change.
    DuckDB would ignore the offset."""
    comparison = node.parent
    if not node.is_string or not _INSTANT.match(node.name) or not isinstance(comparison, _COMPARISONS):
        return None
    operand = comparison.args.get("expression") if node.arg_key == "this" else comparison.this
    # The rewrite uses the operand twice, so it must not be a comparison itself.
    if operand is None or isinstance(operand, exp.Literal) or operand.find(*_COMPARISONS):
        return None
    if (
        isinstance(operand, exp.Column)
        and re.search("(^|_)time$", operand.name.lower())
        and node.name[:4].isdigit()
    ):
        return exp.cast(node.copy(), "timestamptz")
    return exp.func(f"{PREFIX}instant{ending(operand)}", operand.copy(), node.copy())


def _is_number(node: exp.Expr) -> bool:
    """Whether a node is a number literal above 0."""
    return isinstance(node, exp.Literal) and not node.is_string and float(node.name) > 0


def _is_literal(node: exp.Expr) -> bool:
    """Whether a node is a literal, also with a minus sign."""
    return isinstance(node.this if isinstance(node, exp.Neg) else node, exp.Literal)


def _is_time(node: exp.Expr) -> bool:
    """Whether an expression is an instant, as far as the syntax tells."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() == "now"
    return isinstance(node, exp.CurrentTimestamp) or (
        isinstance(node, exp.Cast) and node.to.is_type(*_INSTANTS)
    )


def _is_text(node: exp.Expr) -> bool:
    """Whether an expression is a text, as far as the syntax tells."""
    return isinstance(node, (exp.RawString, exp.DPipe, exp.Concat)) or (
        (isinstance(node, exp.Literal) and node.is_string)
        or (isinstance(node, exp.Cast) and node.to.is_type(*_TEXTS))
    )


def _is_date(node: exp.Expr) -> bool:
    """Whether an expression is a date, or a date plus or minus whole days, as far as the syntax tells."""
    if isinstance(node, exp.Paren):
        return _is_date(node.this)
    if isinstance(node, (exp.Add, exp.Sub)):
        pairs = [(node.this, node.expression), (node.expression, node.this)]
        return any(_is_day_interval(interval) and _is_date(date) for date, interval in pairs)
    if isinstance(node, (exp.Max, exp.Min)):
        return _is_date(node.this)
    if isinstance(node, exp.Anonymous):
        return node.name.lower().removeprefix(PREFIX) in _DATES_BY_NAME
    return isinstance(node, _DATES) or (isinstance(node, exp.Cast) and node.to.is_type(_TYPES.DATE))


def _by_name(node: exp.Anonymous) -> exp.Expr | None:
    name, arguments = node.name.lower(), node.expressions
    if name in ("datediff", "date_diff") and len(arguments) == 3:
        return units_between(arguments[0].name, *arguments[1:])
    if name in ("date_add", "dateadd") and len(arguments) == 3:
        added = exp.Interval(this=exp.paren(arguments[1]), unit=exp.var(arguments[0].name))
        return exp.paren(exp.Add(this=macro("time", arguments[2]), expression=added))
    if (replacement := emulated(name, arguments)) is not None or (
        replacement := _time_by_name(name, arguments)
    ) is not None:
        return replacement
    name = {"lcase": "lower", "ucase": "upper", "dateadd": "date_add"}.get(name, name)
    if name == "to_json" and len(arguments) > 1:
        raise UnsupportedError
    if f"{PREFIX}{name}" in _MACRO_NAMES:
        node.set("this", f"{PREFIX}{name}")
        return None
    if name in ("any", "some", "every") and len(arguments) == 1:
        return exp.func("bool_and" if name == "every" else "bool_or", *arguments)
    if name in ("exists", "forall") and len(arguments) == 2:
        # Where the condition is NULL, the element may or may not meet it; `array_contains` heeds that.
        contains_call = exp.func(
            f"{PREFIX}array_contains", exp.func("list_transform", *arguments), exp.convert(name == "exists")
        )
        return contains_call if name == "exists" else exp.paren(exp.not_(contains_call))
    if name in ("bigint", "tinyint", "smallint") and len(arguments) == 1:
        _convert_operand(replacement := exp.cast(arguments[0], name))
        return replacement
    if name == "isnull" and len(arguments) == 1:
        return exp.Paren(this=exp.Is(this=arguments[0], expression=exp.Null()))
    if name in ("percentile_cont", "percentile_disc") and isinstance(node.parent, exp.WithinGroup):
        return (exp.PercentileCont if name == "percentile_cont" else exp.PercentileDisc)(this=arguments[0])
    return None


def _time_by_name(name: str, arguments: list[exp.Expr]) -> exp.Expr | None:
    if name == "date_format" and len(arguments) == 2:
        return _formatted(macro("time", arguments[0]), arguments[1])
    if name == "from_unixtime" and arguments:
        pattern = arguments[1] if len(arguments) == 2 else exp.Literal.string("yyyy-MM-dd HH:mm:ss")
        _convert_operand(seconds := exp.cast(arguments[0].copy(), "bigint"))
        return _formatted(exp.func("to_timestamp", seconds), pattern)
    if name in ("date_part", "datepart") and len(arguments) == 2:
        return _time_part(arguments[0].name, arguments[1])
    return None
