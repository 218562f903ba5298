"""The syntax, options, types and functions that a person's SQL may use. Names of syntax and options are
sqlglot's.

Spark runs only the functions that are listed here. DuckDB is locked: it reaches no file, no network and no
setting, and its time and memory are limited. So it may call all functions except the refused ones.
"""

from __future__ import annotations

import re

_SPARK = """
    any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor bool_and
    bool_or collect_list collect_set corr count count_if covar_pop covar_samp first kurtosis last listagg
    max max_by mean median min min_by mode percentile percentile_approx percentile_cont percentile_disc
    regr_count regr_intercept regr_r2 regr_slope skewness std stddev stddev_pop stddev_samp string_agg sum
    try_avg try_sum var_pop var_samp variance any every some

    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
    grouping grouping_id

    add_months convert_timezone curdate current_date current_timestamp current_timezone date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff day dayname dayofmonth
    dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day localtimestamp make_date
    make_interval make_timestamp minute month monthname months_between next_day now quarter second
    timestamp_micros timestamp_millis timestamp_seconds timestampadd timestampdiff to_date to_timestamp
    to_unix_timestamp to_utc_timestamp trunc try_to_timestamp unix_date unix_micros unix_millis
    unix_seconds unix_timestamp weekday weekofyear year

    ascii base64 bit_length btrim char char_length character_length chr concat concat_ws contains crc32
    elt endswith find_in_set format_number format_string initcap instr lcase left len length levenshtein
    locate lower lpad ltrim luhn_check mask md5 octet_length overlay parse_url position printf repeat
    replace reverse right rpad rtrim sha sha1 sha2 soundex space split split_part startswith substr
    substring substring_index to_char to_number translate trim ucase unbase64 unhex upper url_decode
    url_encode

    ilike like regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like
    regexp_replace regexp_substr rlike

    from_json get_json_object json_array_length json_object_keys to_json

    aggregate array array_append array_compact array_contains array_distinct array_except array_insert
    array_intersect array_join array_max array_min array_position array_prepend array_remove array_repeat
    array_size array_sort array_union arrays_overlap arrays_zip cardinality element_at exists
    explode explode_outer inline inline_outer posexplode_outer stack
    filter flatten forall get map map_concat map_contains_key map_entries map_filter
    map_from_arrays map_from_entries map_keys map_values named_struct posexplode range
    reduce sequence size slice sort_array str_to_map struct transform transform_keys transform_values
    try_element_at zip_with

    abs acos acosh asin asinh atan atan2 atanh bin bit_count bit_get bround cbrt ceil ceiling conv cos
    cosh cot degrees e exp expm1 factorial floor greatest hash hex hypot least ln log log10 log1p log2 mod
    negative pi pmod positive pow power radians rand random rint round shiftleft shiftright sign signum
    sin sinh sqrt tan tanh try_add try_divide try_multiply try_subtract width_bucket xxhash64

    case cast coalesce decode equal_null if ifnull isnan isnotnull isnull nanvl nullif nullifzero nvl nvl2
    try_cast typeof uuid zeroifnull
"""
#: Functions that a SELECT may call on Spark, by Spark's names.
SPARK = frozenset(_SPARK.split())

_ONLY_SPARK = """
    array_insert arrays_zip conv crc32 elt explode_outer from_json grouping_id hash inline
    inline_outer luhn_check map_concat map_filter mask overlay parse_url
    posexplode_outer regexp_instr soundex stack unbase64 unhex url_decode str_to_map to_char
    to_number transform_keys transform_values
    try_sum typeof xxhash64 zip_with
"""
#: Those of them that DuckDB lacks, or that mean something else there.
ONLY_SPARK = frozenset(_ONLY_SPARK.split())

_REFUSED = """
    current_setting getenv getvariable set_config query query_table which_secret glob sniff_csv nextval
    currval setval setseed write_log add_parquet_key sleep_ms pg_sleep parse_duckdb_log_message checkpoint
    force_checkpoint summary seq_scan truncate_duckdb_logs in_search_path json_contains
    json_execute_serialized_sql
    json_serialize_sql json_deserialize_sql json_serialize_plan test_all_types test_vector_types
    repeat_row cast_to_type make_type get_type replace_type current_user session_user user current_role
    current_catalog current_database current_schema current_schemas current_query current_query_id
    current_connection_id current_transaction_id txid_current version get_block_size user_agent platform
    sql_keywords invoke reflect java_method try_reflect input_file_name input_file_block_start
    input_file_block_length spark_partition_id monotonically_increasing_id raise_error error assert_true
    aes_decrypt aes_encrypt try_aes_decrypt from_avro to_avro from_protobuf to_protobuf from_csv to_csv
    schema_of_avro schema_of_csv schema_of_json schema_of_xml from_xml to_xml variant_explode
    variant_explode_outer session_window window window_time json_tuple ai_query http_get http_post
    http_request secret eval read_text col_description obj_description shobj_description create_sort_key
    vector_type stats columns table identifier has_any_column_privilege collate collations
"""
_REFUSED_KINDS = re.compile(
    r"duckdb_.*|pragma_.*|read_.*|.*_scan(_.*)?|parquet_.*|pg_.*|has_.*_privilege|__.*|inet_.*|.*external_resource.*"
    r"|(en|dis)able_.*|python_.*|icu_.*|xpath.*|st_.*|.*aggregate_state|copy_.*|import_.*|.*postgres.*|.*mysql.*|.*sqlite.*"
)


def refused(function: str) -> bool:
    """Whether no engine may run a function, because it reads files, settings or the session, or changes
    something."""
    return function in _REFUSED_NAMES or _REFUSED_KINDS.fullmatch(function) is not None


_REFUSED_NAMES = frozenset(_REFUSED.split())

_WORDS = """
    all and as between by case cross distinct else except exclude exists filter from group having in
    intersect interval is join lambda lateral limit not offset on or order over partition pivot
    unpivot qualify
    rollup cube select sets struct then union unnest using values when where with within end
    bigint boolean decimal double float int smallint string text timestamp tinyint varchar date try_cast
    array map sets like ilike rlike any
"""
#: Words before a parenthesis that are no calls of functions.
WORDS = frozenset(_WORDS.split()) | {"grouping sets"}

#: Functions that are called without parentheses.
UNPARENTHESIZED = frozenset(
    {"current_user", "session_user", "user", "current_role", "current_catalog", "current_schema"}
)

#: Functions that may stand in FROM.
ROWS = frozenset({"range"})

#: Functions with an argument that says how much they make. A number above MOST is refused.
SIZES = frozenset({"repeat", "space", "lpad", "rpad", "leftpad", "array_repeat", "sequence"})
MOST = 1_000_000
_BY_ARGUMENTS = {
    range(1, 2): "char chr",
    range(1, 3): "ceil floor to_date to_timestamp try_to_timestamp",
    range(1, 1000): "format_string printf",
    range(2, 3): """
        array_contains date_trunc format_number next_day regexp regexp_count regexp_like regexp_substr
        rlike trunc
    """,
    range(2, 4): "locate regexp_extract regexp_extract_all split",
    range(3, 4): "split_part substring_index",
}
#: Functions whose arguments the translation to DuckDB takes apart -> how many arguments they have on Spark.
ARGUMENTS = {name: counts for counts, functions in _BY_ARGUMENTS.items() for name in functions.split()}

_SYNTAX = """
    Select Union Intersect Except Subquery With CTE TableAlias Table From Join Where Group Having Qualify
    Order Ordered Limit Offset Distinct Alias Paren Tuple Column Dot Identifier Star Literal
    RawString HexString Boolean Null Var DataType DataTypeParam Interval Window WindowSpec
    WithinGroup Filter Exists In Between Is Like ILike Escape Any All IgnoreNulls RespectNulls Lambda
    Bracket PropertyEQ Lateral Values Pivot PivotAlias Rollup Cube GroupingSets JSONPath JSONPathRoot
    JSONPathKey JSONPathSubscript JSONPathWildcard IntervalSpan And Or Not EQ NEQ NullSafeEQ
    NullSafeNEQ GT GTE LT LTE Neg Add Sub Mul
    Div IntDiv Mod DPipe BitwiseAnd BitwiseOr BitwiseXor BitwiseNot BitwiseLeftShift BitwiseRightShift
"""
SYNTAX = frozenset(_SYNTAX.split())

# Class -> its options that may be set; "*" is for classes without an entry. Functions may have all options:
# only their names and arguments can do harm.
OPTIONS = {
    kind: frozenset(options.split())
    for kind, options in {
        "*": "this expression expressions",
        "Select": "with expressions from joins laterals where group having qualify windows order limit "
        "offset distinct",
        "Union": "with this expression distinct order limit offset",
        "Intersect": "with this expression distinct order limit offset",
        "Except": "with this expression distinct order limit offset",
        "Subquery": "this alias pivots",
        "With": "expressions",
        "CTE": "this alias",
        "TableAlias": "this columns",
        "Table": "this alias pivots",
        "Join": "this on using side kind",
        "Lateral": "this view outer alias",
        "Values": "expressions alias",
        "PivotAlias": "this alias",
        "Pivot": "expressions fields alias columns pivot_column_naming unpivot include_nulls",
        "Group": "expressions all rollup cube grouping_sets",
        "Distinct": "expressions",
        "Ordered": "this desc nulls_first",
        "Alias": "this alias",
        "Star": "except replace",
        "Column": "this table",
        "Identifier": "this quoted",
        "Literal": "this is_string",
        "Interval": "this unit",
        "Window": "this partition_by order spec over alias",
        "WindowSpec": "kind start start_side end end_side",
        "In": "this expressions query field",
        "ILike": "this expression negate",
        "Like": "this expression negate",
        "Between": "this low high",
        "Div": "this expression typed safe",
        "DataType": "this expressions nested",
        "Bracket": "this expressions offset safe",
        "JSONPathKey": "this",
        "JSONPathSubscript": "this",
        "DPipe": "this expression safe",
    }.items()
}

JOIN_KINDS = frozenset({"", "INNER", "OUTER", "CROSS", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI"})

_UNITS = """
    MICROSECOND MILLISECOND SECOND MINUTE HOUR DAY WEEK MONTH QUARTER YEAR MM MON YYYY YY DAYOFWEEK
    DAYOFYEAR DOW DOY EPOCH ISODOW ISOYEAR
"""
UNITS = frozenset(_UNITS.split())

_TYPES = """
    BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE DECIMAL TEXT VARCHAR DATE TIMESTAMP TIMESTAMPTZ
    TIMESTAMPNTZ BINARY ARRAY STRUCT MAP INTERVAL
"""
TYPES = frozenset(_TYPES.split())

#: Refused options, as error messages name them.
OPTION_WORDS = {
    "db": "a database before a name",
    "kind": "this word",
    "method": "this kind of join",
    "hint": "a hint",
    "hints": "a hint",
    "sample": "TABLESAMPLE",
    "locks": "FOR UPDATE or FOR SHARE",
    "when": "AS OF",
    "version": "AS OF",
}
#: Refused syntax, as error messages name it, where the class has a name that people do not know.
SYNTAX_WORDS = {
    "ColumnDef": "a field in the type STRUCT",
    "Parameter": "a parameter",
    "Placeholder": "a parameter",
    "Kwarg": "an argument by its name",
    "QueryTransform": "TRANSFORM with USING",
    "National": "the N before a text",
    "JSONPathRecursive": "'..' in a path",
    "JSONPathSelector": "a condition in a path",
    "PivotAny": "ANY in PIVOT",
}
