"""Spark's SQL as both engines run it: what sqlglot would translate with another meaning is written here.

Of some functions sqlglot's own tree says less than the text, so they stay calls by name. On DuckDB they are
macros.
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

from lakebackup.sql_engine.guard.aggregates import CHOICES, aggregate
from lakebackup.sql_engine.guard.arithmetic import COMPARED, number, with_scale, without_sign
from lakebackup.sql_engine.guard.calls import NAMES, ending, macro, units_between
from lakebackup.sql_engine.guard.calls import call as emulated
from lakebackup.sql_engine.guard.macros import MACROS, OTHER

_BY_NAME_TEXT = """
    DATE_ADD DATEDIFF DATE_DIFF TO_UTC_TIMESTAMP SOUNDEX TO_CHAR PARSE_URL TO_NUMBER ARRAY_DISTINCT
    DATE_SUB DATE_FROM_UNIX_DATE DAYOFWEEK DAY_OF_WEEK DAYNAME MONTHNAME TRUNC UNIX_SECONDS
    UNIX_TIMESTAMP TO_UNIX_TIMESTAMP ANY SOME EVERY EXISTS LOCALTIMESTAMP FORMAT_STRING PERCENTILE_CONT
    PERCENTILE_DISC URL_ENCODE MAP_CONTAINS_KEY BIT_GET GETBIT TRY_ADD TRY_SUBTRACT TRY_MULTIPLY
    FROM_UTC_TIMESTAMP OCTET_LENGTH FROM_JSON TYPEOF UUID UNBASE64 UNHEX
    ARRAY_CONTAINS ARRAY_EXCEPT ARRAY_INTERSECT ARRAY_POSITION ARRAY_REMOVE SEQUENCE TO_JSON DATE_FORMAT
    FROM_UNIXTIME ADD_MONTHS MONTHS_BETWEEN LAST_DAY ARRAY_SIZE ARRAY_UNION ELEMENT_AT TRY_ELEMENT_AT
    FLATTEN SLICE DATEADD UNIX_MILLIS TIMESTAMP_SECONDS
    LOWER LCASE UPPER UCASE INITCAP REVERSE
"""
_BY_NAME = frozenset(_BY_NAME_TEXT.split()) | NAMES

_NAMED = (exp.Alias, exp.Aliases, exp.Column, exp.Dot)
#: Functions that make several columns or name them.
_SEVERAL = (exp.UDTF, exp.Explode, exp.Inline, exp.Columns)
_LONGEST_NAME = 60
_COMPARED = (*COMPARED, exp.Between, exp.In)
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
_DIGITS_OF_BIGINT = 20  # of its decimal on Spark
_MOST_DIGITS = 38
_DAYS = frozenset({"DAY", "WEEK", "MONTH", "QUARTER", "YEAR"})
_TYPES = exp.DataType.Type
_WHOLE = (_TYPES.TINYINT, _TYPES.SMALLINT, _TYPES.INT, _TYPES.BIGINT)
_TEXTS = (_TYPES.TEXT, _TYPES.VARCHAR)
_INSTANTS = (_TYPES.TIMESTAMP, _TYPES.TIMESTAMPTZ)
_UNITS_TEXT = """
    YEAR=year Y=year YEARS=year YR=year YRS=year YEAROFWEEK=isoyear QUARTER=quarter QTR=quarter
    MONTH=month MON=month MONS=month MONTHS=month WEEK=week W=week WEEKS=week DAY=day D=day DAYS=day DOY=doy
    DAYOFWEEK_ISO=isodow DOW_ISO=isodow HOUR=hour H=hour HOURS=hour HR=hour HRS=hour
    MINUTE=minute M=minute MIN=minute MINS=minute MINUTES=minute
"""
# Parts of a time, by what Spark calls them, as DuckDB does.
_UNITS = dict(pair.split("=") for pair in _UNITS_TEXT.split())
_PARTS: dict[type[exp.Expr], str] = {
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
_READ_BY = (exp.StrToTime, exp.StrToDate, exp.TsOrDsToDate)
# A text in quotes, a quote, letters of one kind, and what else has a meaning.
_FORMAT = re.compile(
    r"'(?P<quoted>(?:[^']|'')+)'|(?P<quote>'')|(?P<letters>([A-Za-z])\4*)|(?P<other>['\[\]{}#%])"
)
# What DuckDB takes for what it is where a time is read; the rest it would take for plain text.
_READ = re.compile(r"%-?[A-Za-z](?:strict)?|[^A-Za-z']")
_AGGREGATES: dict[type[exp.Expr], str] = {
    exp.ApproxQuantile: "quantile_disc",
    exp.Quantile: "quantile_cont",
    exp.Skewness: f"{OTHER}skewness",
    exp.Kurtosis: "kurtosis_pop",
}
# What may be a date as well as a number.
_OF_ANY_TYPE = (
    *(exp.Max, exp.Min, exp.AnyValue, exp.Mode),
    *(exp.First, exp.Last, exp.FirstValue, exp.LastValue, exp.NthValue, exp.Lag, exp.Lead, exp.Subquery),
)
_OTHERS = frozenset(macro.partition("(")[0] for macro in MACROS)


class Asked(Spark):
    """Spark's dialect for what people write."""

    class Parser(SparkParser):
        def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
            """Of expressions, not of columns alone."""
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

        FUNCTIONS = {name: made for name, made in SparkParser.FUNCTIONS.items() if name not in _BY_NAME}  # noqa: RUF012


def without_limit_all(tree: exp.Expr) -> None:
    """Take out LIMIT ALL, which limits nothing."""
    for limit in list(tree.find_all(exp.Limit)):
        if isinstance(limit.expression, exp.Var) and limit.expression.name.upper() == "ALL":
            limit.pop()


def named(tree: exp.Expr) -> None:
    """Give the columns that have no name one made of their own words: sum_bytes for sum(bytes).

    Each engine would invent another. A name that the text has already would change what that means, so it
    gets an underscore.
    """
    written = {name.name.lower() for name in tree.find_all(exp.Identifier)}
    for select in list(tree.find_all(exp.Select)):
        taken = set(written)
        for one in select.expressions:
            if isinstance(one, _NAMED) or one.is_star or one.find(*_SEVERAL):
                continue
            words = re.sub(r"\W+", "_", one.sql(dialect=Asked, comments=False).lower(), flags=re.ASCII)
            name = words[:_LONGEST_NAME].strip("_") or "value"
            name = f"_{name}" if name[0].isdigit() else name
            while name in taken:
                name += "_"
            taken.add(name)
            one.replace(exp.alias_(one.copy(), name))


def for_spark(tree: exp.Expr) -> exp.Expr:
    """A copy of the tree without QUALIFY, which Spark does not know; a unit of time stays a word."""
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
        shown = {one.alias_or_name for one in select.expressions}
        whole = eliminate_qualify(select.copy())
        inner = whole.find(exp.Subquery)
        helpers = (
            [one.alias for one in inner.this.expressions if one.alias and one.alias not in shown]
            if inner
            else []
        )
        for star in whole.expressions:
            if isinstance(star, exp.Star):
                star.set("except_", [exp.to_identifier(name) for name in helpers])
        if select is tree:
            return whole
        select.replace(whole)
    return tree


def for_duckdb(tree: exp.Expr) -> exp.Expr:
    """A copy of the tree with the same meaning on DuckDB."""
    tree = tree.copy()
    for view in tree.find_all(exp.Lateral):
        if view.args.get("outer") and is_explode(view):  # DuckDB leaves out rows without elements
            rows = view.this.this
            some = exp.GT(this=exp.func("len", rows.copy()), expression=exp.Literal.number(0))
            none = exp.Array(expressions=[exp.null()])
            rows.replace(exp.Case(ifs=[exp.If(this=some, true=rows.copy())], default=none))
    for positions in list(tree.find_all(exp.Posexplode)):
        _number_elements(positions)
    for group in tree.find_all(exp.Group):
        for key in ("rollup", "cube"):  # WITH ROLLUP is of all that stands before
            if any(not one.expressions for one in group.args.get(key) or ()):
                group.set(key, [(exp.Rollup if key == "rollup" else exp.Cube)(expressions=group.expressions)])
                group.set("expressions", [])
    if any(map(_is_of_spark, tree.walk())):
        raise UnsupportedError
    for call in reversed(list(tree.find_all(exp.ArrayAgg, exp.ArrayUniqueAgg))):
        _collect(call)
    for node in reversed(list(tree.walk())):
        made = _with_type(node) or aggregate(node) or _counted(node) or number(node) or _on_duckdb(node)
        if made is not None:
            node.replace(made)
    return tree


def _number_elements(node: exp.Posexplode) -> None:
    """In a SELECT it makes the columns `pos` and `col`; DuckDB's numbers are BIGINT."""
    select = node.parent
    if not isinstance(select, exp.Select):
        return
    subscript = exp.Anonymous(this="generate_subscripts", expressions=[node.this, exp.Literal.number(1)])
    position = exp.cast(exp.Sub(this=subscript, expression=exp.Literal.number(1)), "int")
    columns = [exp.alias_(position, "pos"), exp.alias_(exp.Explode(this=node.this.copy()), "col")]
    index = select.expressions.index(node)
    select.set("expressions", [*select.expressions[:index], *columns, *select.expressions[index + 1 :]])


def _is_of_spark(node: exp.Expr) -> bool:
    """Whether it is SQL that DuckDB has not, or means otherwise."""
    if isinstance(node, exp.Pivot):  # counts are NULL there, and names of columns differ
        return bool(node.args.get("unpivot")) or not (
            len(node.expressions) == 1
            and isinstance(node.expressions[0], (exp.Sum, exp.Max, exp.Min, exp.Avg))
        )
    if isinstance(node, exp.Window):
        return isinstance(node.this, (exp.Filter, exp.Corr))
    if isinstance(node, exp.All):
        return isinstance(node.this.unnest(), exp.Query)
    return isinstance(node, (exp.IntervalSpan, exp.JSONPathWildcard))


def _collect(call: exp.AggFunc) -> None:
    """A list of what is not NULL, which is empty without rows: on DuckDB it would be NULL."""
    once = isinstance(call, exp.ArrayUniqueAgg) or isinstance(call.this, exp.Distinct)
    element = call.this.expressions[0] if isinstance(call.this, exp.Distinct) else call.this
    known = exp.not_(exp.Is(this=exp.paren(element.copy()), expression=exp.null()))
    made = exp.ArrayAgg(this=exp.Distinct(expressions=[element.copy()]) if once else element.copy())
    whole = call.parent
    if isinstance(whole, exp.Filter) and call.arg_key == "this":
        whole.set("expression", exp.Where(this=exp.and_(whole.expression.this, known)))
        call.replace(made)
    else:
        whole = exp.Filter(this=made, expression=exp.Where(this=known))
        call.replace(whole)
    while isinstance(whole.parent, exp.Window) and whole.arg_key == "this":
        whole = whole.parent
    found = exp.Coalesce(this=exp.null(), expressions=[exp.Array()])
    whole.replace(found)
    found.set("this", whole)


def _with_type(node: exp.Expr) -> exp.Expr | None:
    """What DuckDB would take for something of another type."""
    if isinstance(node, exp.Literal) and (made := _instant(node)) is not None:
        return made
    if isinstance(node, (exp.Add, exp.Sub)) and (made := _with_days(node)) is not None:
        return made
    joined = isinstance(node.parent, (exp.DPipe, exp.Concat)) and not _is_text(node)
    return macro("joined", node.copy()) if joined else None


def _with_days(node: exp.Add | exp.Sub) -> exp.Expr | None:
    """A date and whole days, of which DuckDB makes a timestamp.

    Of a column DuckDB alone knows whether it is a date.
    """
    if _is_date(node):
        return exp.cast(node.copy(), "date")
    time, days = node.this, node.expression
    if isinstance(node, exp.Add) and isinstance(time, exp.Interval):
        time, days = days, time
    if not _is_of_days(days) or _is_time(time) or isinstance(time, (exp.Interval, exp.Literal)):
        return None
    name = "add_days" if isinstance(node, exp.Add) else "subtract_days"
    return macro(f"{name}{ending(time)}", time.copy(), days.copy())


def _is_of_days(node: exp.Expr) -> bool:
    """Whether it is an interval of whole days, weeks or months."""
    return isinstance(node, exp.Interval) and node.text("unit").upper().removesuffix("S") in _DAYS


def _counted(node: exp.Expr) -> exp.Expr | None:
    """What DuckDB counts, rounds or writes otherwise."""
    if isinstance(node, exp.Cast):
        _cut(node)
    if isinstance(node, exp.Lambda) and isinstance(node.parent, (exp.Transform, exp.ArrayFilter)):
        _count_from_zero(node)
    if isinstance(node, exp.Extract):
        return _part(node.name, node.expression)
    if type(node) in _PARTS:
        return _part(_PARTS[type(node)], node.this)
    if isinstance(node, exp.TsOrDsToDate) and not node.args.get("format"):
        return exp.cast(macro("date", node.this), "date")
    if name := _AGGREGATES.get(type(node)):
        return exp.func(name, *list(node.iter_expressions())[:2])
    if isinstance(node, (exp.Ln, exp.Log)):  # of 0 and less it is NULL on Spark
        for number in [one for one in node.iter_expressions() if not _is_number(one)]:
            number.replace(exp.func(f"{OTHER}logged", number.copy()))
    if isinstance(node, (exp.Left, exp.Right, exp.Substring)):
        given = [one for key in ("expression", "start", "length") if (one := node.args.get(key))]
        name = f"{OTHER}{type(node).__name__.lower()}"
        return None if all(map(_is_number, given)) else exp.func(name, node.this, *given)
    if isinstance(node, _READ_BY) and _READ.sub("", node.text("format")):
        raise UnsupportedError
    return None


def _on_duckdb(node: exp.Expr) -> exp.Expr | None:  # noqa: C901 - one line a kind
    if isinstance(
        node, exp.JSONExtractScalar
    ):  # which fails where Spark gives NULL for a text that is no JSON
        if len(node.expression.expressions) < 2:  # the text itself
            raise UnsupportedError
        valid = macro("readable", node.this.copy())
        return exp.Case(ifs=[exp.If(this=valid, true=node.copy())])
    if isinstance(node, exp.TsOrDsAdd) and not node.args.get("unit"):
        return exp.func(f"{OTHER}date_add", node.this, node.expression)
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
    if isinstance(node, exp.MakeInterval) and not all(map(_is_written, node.iter_expressions())):
        raise UnsupportedError  # it becomes a text
    if isinstance(node, exp.Second):  # extract(SECOND …) has a fraction, second(…) has none
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
    ):  # range, whose column is id on Spark
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier("range"))
        if not alias.columns:
            alias.set("columns", [exp.to_identifier("id")])
        node.set("alias", alias)
        return None
    if isinstance(node, exp.Any) and not isinstance(node.parent, exp.Binary):
        return exp.func("bool_or", node.this.unnest())
    return _by_name(node) if isinstance(node, exp.Anonymous) else None


def _quotient(node: exp.Div) -> exp.Expr:
    """A whole number divided by a decimal that is written out is a decimal on Spark, rounded half up."""
    divisor, operand = node.expression, without_sign(node.this)
    if isinstance(operand, exp.Literal) or not (
        isinstance(divisor, exp.Literal) and not divisor.is_string and _DECIMAL.fullmatch(divisor.name)
    ):
        return macro("divide", node.this, node.expression)
    number = Decimal(divisor.name)
    unscaled = int(divisor.name.replace(".", ""))
    places = -int(number.as_tuple().exponent)
    digits = max(len(str(unscaled)), places)
    scale = max(6, digits + 1)
    precision = _DIGITS_OF_BIGINT + places + scale
    if not unscaled or precision > _MOST_DIGITS:  # which Spark rounds to fewer digits
        return macro("divide", node.this, node.expression)
    return macro(
        "by_decimal",
        node.this,
        divisor,
        exp.Literal.number(unscaled),
        exp.Literal.number(10 ** (scale + places)),
        exp.Literal.string(f"e-{scale}"),
        exp.cast(exp.null(), f"decimal({precision}, {scale})"),
    )


def _difference(node: exp.Sub) -> exp.Expr | None:
    """Of two dates it is a span of time. A macro sees the types of what is no aggregate."""
    if _is_date(node.this) and _is_date(node.expression):
        days = exp.Sub(this=node.this.copy(), expression=node.expression.copy())
        return exp.func("to_days", exp.cast(days, "int"))
    if node.find(*_OF_ANY_TYPE) or any(call.name in CHOICES for call in node.find_all(exp.Anonymous)):
        return macro("apart", node.this, node.expression)
    if node.find(exp.AggFunc, exp.Window) or not all(map(ending, node.find_all(exp.Column))):
        return None
    return with_scale(node, macro("minus", node.this, node.expression))


def _cut(node: exp.Cast) -> None:
    """A number is cut, not rounded, and a time has no offset."""
    if node.to.is_type(_TYPES.BINARY):
        node.set("this", exp.Anonymous(this="encode", expressions=[node.this.copy()]))
    tried = "try_" if isinstance(node, exp.TryCast) else ""
    operand = node.this.this if isinstance(node.this, exp.Neg) else node.this
    if node.to.is_type(*_WHOLE) and not (isinstance(operand, exp.Literal) and operand.name.isdigit()):
        node.set("this", exp.func(f"{OTHER}whole{ending(node.this)}", node.this.copy()))
    elif node.to.is_type(*_TEXTS):
        if not _is_text(node.this):
            node.set("this", macro("text", node.this.copy()))
    elif _is_plain_time(node.this):  # both engines read it alike
        return
    elif node.to.is_type(_TYPES.DATE):
        node.set("this", macro(f"{tried}date", node.this.copy()))
    elif node.to.is_type(*_INSTANTS, _TYPES.TIMESTAMPNTZ):
        node.set("this", macro(f"{tried}time", node.this.copy()))


def _is_plain_time(node: exp.Expr) -> bool:
    """Whether it is a text written out, of a date or of a date and a time, that is one in the calendar."""
    if not (isinstance(node, exp.Literal) and node.is_string and _PLAIN_TIME.fullmatch(node.name)):
        return False
    try:
        datetime.fromisoformat(node.name[: len("0000-00-00 00:00:00")])
    except ValueError:
        return False
    return True


def _count_from_zero(node: exp.Lambda) -> None:
    """The second parameter is an element's place, which DuckDB counts from 1."""
    place = node.expressions[1].name if len(node.expressions) == 2 else None
    for name in list(node.this.find_all(exp.Identifier)) if place else []:
        if (
            name.name == place
            and not isinstance(name.parent, _NAMED)
            and not (isinstance(name.parent, exp.PropertyEQ) and name.arg_key == "this")
        ):
            place_from_0 = exp.Sub(this=name.copy(), expression=exp.Literal.number(1))
            name.replace(exp.cast(place_from_0, "int"))


def _part(unit: str, time: exp.Expr) -> exp.Expr:
    """A part of a time, which is an INT on Spark. Raises UnsupportedError for one that DuckDB has not."""
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
    """A time as text. Raises UnsupportedError for what DuckDB cannot write."""

    def written(found: re.Match[str]) -> str:
        if quoted := found["quoted"]:
            return quoted.replace("''", "'").replace("%", "%%")
        if found["quote"] or found["other"] == "%":
            return "'" if found["quote"] else "%%"
        if (letters := found["letters"]) not in _FORMATS:
            raise UnsupportedError
        return _FORMATS[letters]

    if not isinstance(pattern, exp.Literal):
        raise UnsupportedError
    return exp.func("strftime", time, exp.Literal.string(_FORMAT.sub(written, pattern.name)))


def is_explode(view: exp.Lateral) -> bool:
    """Whether it makes a row of each element of a list, and no more of it."""
    return type(view.this) is exp.Explode


def _instant(node: exp.Literal) -> exp.Expr | None:
    """A text with a time and an offset or a zone, compared with a time: DuckDB would leave the offset out."""
    whole = node.parent
    if not node.is_string or not _INSTANT.match(node.name) or not isinstance(whole, _COMPARED):
        return None
    other = whole.args.get("expression") if node.arg_key == "this" else whole.this
    if other is None or isinstance(other, exp.Literal) or other.find(*_COMPARED):  # it is written twice
        return None
    if (
        isinstance(other, exp.Column)
        and re.search("(^|_)time$", other.name.lower())
        and node.name[:4].isdigit()
    ):
        return exp.cast(node.copy(), "timestamptz")
    return exp.func(f"{OTHER}instant{ending(other)}", other.copy(), node.copy())


def _is_number(node: exp.Expr) -> bool:
    """Whether it is a number above 0 that is written out."""
    return isinstance(node, exp.Literal) and not node.is_string and float(node.name) > 0


def _is_written(node: exp.Expr) -> bool:
    """Whether it is a number that is written out."""
    return isinstance(node.this if isinstance(node, exp.Neg) else node, exp.Literal)


def _is_time(node: exp.Expr) -> bool:
    """Whether it is an instant, as far as the text tells."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() == "now"
    return isinstance(node, exp.CurrentTimestamp) or (
        isinstance(node, exp.Cast) and node.to.is_type(*_INSTANTS)
    )


def _is_text(node: exp.Expr) -> bool:
    """Whether it is a text, as far as the text tells."""
    return isinstance(node, (exp.RawString, exp.DPipe, exp.Concat)) or (
        (isinstance(node, exp.Literal) and node.is_string)
        or (isinstance(node, exp.Cast) and node.to.is_type(*_TEXTS))
    )


def _is_date(node: exp.Expr) -> bool:
    """Whether it is a date, or one and whole days, as far as the text tells."""
    if isinstance(node, exp.Paren):
        return _is_date(node.this)
    if isinstance(node, (exp.Add, exp.Sub)):
        pairs = [(node.this, node.expression), (node.expression, node.this)]
        return any(_is_of_days(interval) and _is_date(date) for date, interval in pairs)
    if isinstance(node, (exp.Max, exp.Min)):
        return _is_date(node.this)
    if isinstance(node, exp.Anonymous):
        return node.name.lower().removeprefix(OTHER) in _DATES_BY_NAME
    return isinstance(node, _DATES) or (isinstance(node, exp.Cast) and node.to.is_type(_TYPES.DATE))


def _by_name(node: exp.Anonymous) -> exp.Expr | None:
    name, given = node.name.lower(), node.expressions
    if name in ("datediff", "date_diff") and len(given) == 3:
        return units_between(given[0].name, *given[1:])
    if name in ("date_add", "dateadd") and len(given) == 3:
        added = exp.Interval(this=exp.paren(given[1]), unit=exp.var(given[0].name))
        return exp.paren(exp.Add(this=macro("time", given[2]), expression=added))
    if (made := emulated(name, given)) is not None or (made := _time_by_name(name, given)) is not None:
        return made
    name = {"lcase": "lower", "ucase": "upper", "dateadd": "date_add"}.get(name, name)
    if name == "to_json" and len(given) > 1:
        raise UnsupportedError
    if f"{OTHER}{name}" in _OTHERS:
        node.set("this", f"{OTHER}{name}")
        return None
    if name in ("any", "some", "every") and len(given) == 1:
        return exp.func("bool_and" if name == "every" else "bool_or", *given)
    if name in ("exists", "forall") and len(given) == 2:
        # Of elements that are NULL it is not known whether they are it.
        found = exp.func(
            f"{OTHER}array_contains", exp.func("list_transform", *given), exp.convert(name == "exists")
        )
        return found if name == "exists" else exp.paren(exp.not_(found))
    if name in ("bigint", "tinyint", "smallint") and len(given) == 1:
        _cut(made := exp.cast(given[0], name))
        return made
    if name == "isnull" and len(given) == 1:
        return exp.Paren(this=exp.Is(this=given[0], expression=exp.Null()))
    if name in ("percentile_cont", "percentile_disc") and isinstance(node.parent, exp.WithinGroup):
        return (exp.PercentileCont if name == "percentile_cont" else exp.PercentileDisc)(this=given[0])
    return None


def _time_by_name(name: str, given: list[exp.Expr]) -> exp.Expr | None:
    if name == "date_format" and len(given) == 2:
        return _formatted(macro("time", given[0]), given[1])
    if name == "from_unixtime" and given:
        pattern = given[1] if len(given) == 2 else exp.Literal.string("yyyy-MM-dd HH:mm:ss")
        _cut(seconds := exp.cast(given[0].copy(), "bigint"))
        return _formatted(exp.func("to_timestamp", seconds), pattern)
    if name in ("date_part", "datepart") and len(given) == 2:
        return _part(given[0].name, given[1])
    return None
