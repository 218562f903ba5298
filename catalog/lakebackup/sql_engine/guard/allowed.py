"""What a person's SELECT may be made of. Names are sqlglot's classes and options unless noted otherwise."""

from __future__ import annotations

# Spark's name of a function -> the class it is parsed to. Every one was run on both engines; none reads a
# file, the environment or the session, and none makes much out of little (no repeat, sequence, explode).
FUNCTIONS = {
    # of many rows
    "any_value": "AnyValue",
    "approx_count_distinct": "ApproxDistinct",
    "avg": "Avg",
    "bool_and": "LogicalAnd",
    "bool_or": "LogicalOr",
    "count": "Count",
    "count_if": "CountIf",
    "max": "Max",
    "max_by": "ArgMax",
    "median": "Median",
    "min": "Min",
    "min_by": "ArgMin",
    "stddev": "Stddev",
    "sum": "Sum",
    # of a window
    "dense_rank": "DenseRank",
    "first_value": "FirstValue",
    "lag": "Lag",
    "last_value": "LastValue",
    "lead": "Lead",
    "ntile": "Ntile",
    "rank": "Rank",
    "row_number": "RowNumber",
    # of one row
    "abs": "Abs",
    "case": "Case",
    "cast": "Cast",
    "ceil": "Ceil",
    "coalesce": "Coalesce",
    "concat": "Concat",
    "contains": "Contains",
    "current_date": "CurrentDate",
    "current_timestamp": "CurrentTimestamp",
    "date_trunc": "TimestampTrunc",
    "endswith": "EndsWith",
    "extract": "Extract",
    "floor": "Floor",
    "get_json_object": "JSONExtractScalar",
    "greatest": "Greatest",
    "if": "If",
    "least": "Least",
    "left": "Left",
    "length": "Length",
    "lower": "Lower",
    "nullif": "Nullif",
    "replace": "Replace",
    "right": "Right",
    "rlike": "RegexpLike",
    "round": "Round",
    "sign": "Sign",
    "split_part": "SplitPart",
    "startswith": "StartsWith",
    "substring": "Substring",
    "unix_micros": "UnixMicros",
    "unix_millis": "UnixMillis",
    "trim": "Trim",
    "try_cast": "TryCast",
    "upper": "Upper",
}

_SYNTAX = """
    Select Union Intersect Except Subquery With CTE TableAlias Table From Join Where Group Having
    Order Ordered Limit Offset Distinct Alias Paren Column Identifier Star Literal Boolean
    Null Var DataType DataTypeParam Interval Window WindowSpec Filter Exists In Between Is Like
    JSONPath JSONPathRoot JSONPathKey JSONPathSubscript
    ILike And Or Not EQ NEQ NullSafeEQ GT GTE LT LTE Neg Add Sub Mul Div IntDiv Mod DPipe
"""
SYNTAX = frozenset(_SYNTAX.split())

# The options of each class that may be set; "*" is for the others.
OPTIONS = {
    kind: frozenset(options.split())
    for kind, options in {
        "*": "this expression expressions",
        "Select": "with expressions from joins where group having order limit offset distinct",
        "Union": "with this expression distinct order limit offset",
        "Intersect": "with this expression distinct order limit offset",
        "Except": "with this expression distinct order limit offset",
        "Subquery": "this alias",
        "With": "expressions",
        "CTE": "this alias",
        "TableAlias": "this columns",
        "Table": "this alias",
        "Join": "this on using side kind",
        "Group": "expressions all",
        "Distinct": "expressions",
        "Ordered": "this desc nulls_first",
        "Alias": "this alias",
        "Column": "this table",
        "Identifier": "this quoted",
        "Literal": "this is_string",
        "Interval": "this unit",
        "Window": "this partition_by order spec over",
        "WindowSpec": "kind start start_side end end_side",
        "In": "this expressions query",
        "Between": "this low high",
        "Div": "this expression typed safe",
        "Cast": "this to",
        "TryCast": "this to safe",
        "Case": "this ifs default",
        "If": "this true false",
        "Coalesce": "this expressions",
        "Concat": "expressions safe coalesce",
        "Count": "this expressions big_int",
        "Ceil": "this",
        "Floor": "this",
        "Greatest": "this expressions ignore_nulls",
        "Least": "this expressions ignore_nulls",
        "JSONPathKey": "this",
        "JSONPathSubscript": "this",
        "Lag": "this offset default",
        "Lead": "this offset default",
        "Round": "this decimals",
        "SplitPart": "this delimiter part_index",
        "Substring": "this start length",
        "TimestampTrunc": "this unit",
        "DPipe": "this expression safe",
        "Replace": "this expression replacement",
        "Max": "this expressions",
        "Min": "this expressions",
    }.items()
}

JOIN_KINDS = frozenset({"", "INNER", "OUTER", "CROSS", "LEFT", "RIGHT", "FULL"})

UNITS = frozenset(
    {"MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"}
)

_TYPES = """
    BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL TEXT VARCHAR DATE TIMESTAMP TIMESTAMPTZ
    TIMESTAMPNTZ
"""
TYPES = frozenset(_TYPES.split())
