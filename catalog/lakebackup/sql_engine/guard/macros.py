"""Spark's functions that DuckDB lacks, or that mean something else there, as macros of DuckDB.

A macro has a name, parameters and a body. It may have several forms for parameters of different types. DuckDB
chooses a form when it knows the types of the arguments: it knows that of an element of a list, but not yet
that of an aggregate. A parameter that a body uses several times is marked `once`, so that its argument is
bound only once.
"""

# ruff: noqa: E501 - patterns stay in one line

from __future__ import annotations

import re

# The prefix of macros whose names DuckDB uses itself, with another meaning.
PREFIX = "spark_"
#: The message with which a macro fails when only Spark has the right answer for a value.
FOR_SPARK = "runs on Spark only"

_MACROS = r"""
    array_repeat(x, n) AS list_transform(range(n), lambda spark_i: x)
    spark_array_contains(a once, x once) AS CASE WHEN spark_fails(typeof(x) = '"NULL"', 'runs on Spark only') THEN NULL
        WHEN list_contains(a, x) THEN true
        WHEN list_position(a, NULL) IS NULL THEN list_contains(a, x) END
    spark_array_distinct(a once) AS CASE WHEN spark_fails(typeof(a) IN ('DOUBLE[]', 'FLOAT[]'), 'runs on Spark only') THEN NULL ELSE list_filter(a, lambda spark_x, spark_i: list_position(a, spark_x) = spark_i) END
    spark_array_except(a once, b once) AS CASE WHEN b IS NOT NULL THEN
        list_filter(spark_array_distinct(a), lambda spark_x: list_position(b, spark_x) IS NULL) END
    spark_array_intersect(a once, b once) AS CASE WHEN b IS NOT NULL THEN
        list_filter(spark_array_distinct(a), lambda spark_x: list_position(b, spark_x) IS NOT NULL) END
    spark_array_position(a once, x once) AS CASE WHEN a IS NOT NULL AND x IS NOT NULL THEN
        CAST(coalesce(list_position(a, x), 0) AS BIGINT) END
    spark_add_months(d, n) AS CAST(CAST(spark_date(d) AS TIMESTAMP) + to_months(CAST(n AS INTEGER)) AS DATE)
    spark_array_join(a, d) AS array_to_string(list_transform(list_filter(a, lambda spark_x: spark_x IS NOT
        NULL), lambda spark_x: spark_text_of(spark_x)), d),
        (a, d, n) AS array_to_string(list_transform(a, lambda spark_x: coalesce(spark_text_of(spark_x), n)), d)
    spark_array_size(a) AS CAST(len(a) AS INTEGER)
    spark_array_union(a once, b once) AS CASE WHEN a IS NOT NULL AND b IS NOT NULL THEN
        spark_array_distinct(list_concat(a, b)) END
    spark_at(c, k VARCHAR) AS c[k], (c, k) AS CASE WHEN spark_fails(k < 0 OR k >= len(c), 'The index '
        || k || ' is out of bounds. The array has ' || len(c) || ' elements.') THEN NULL ELSE c[k + 1] END
    spark_array_remove(a once, x once) AS CASE WHEN x IS NOT NULL THEN
        list_filter(a, lambda spark_x: spark_x IS DISTINCT FROM x) END
    arrays_overlap(a once, b once) AS CASE WHEN list_has_any(a, b) OR len(a) = 0 OR len(b) = 0 OR
        (list_position(a, NULL) IS NULL AND list_position(b, NULL) IS NULL) THEN list_has_any(a, b) END
    spark_beside_text(x once) AS spark_beside_text_of(x)
    spark_beside_text_of(x BIGINT) AS CASE WHEN spark_fails(true, 'runs on Spark only') THEN NULL ELSE x END,
        (x HUGEINT) AS CASE WHEN spark_fails(true, 'runs on Spark only') THEN NULL ELSE x END,
        (x DOUBLE) AS x, (x VARCHAR) AS x, (x) AS x
    spark_beside_whole(x once) AS spark_beside_whole_of(x)
    spark_beside_whole_of(x VARCHAR) AS CAST(spark_whole_of(x) AS BIGINT), (x BOOLEAN) AS CASE WHEN
        spark_fails(true, 'runs on Spark only') THEN NULL ELSE CAST(x AS INTEGER) END, (x INTEGER) AS x, (x BIGINT) AS x, (x) AS x
    spark_beside_point(x once) AS spark_beside_point_of(x)
    spark_beside_point_of(x VARCHAR) AS CAST(x AS DOUBLE), (x BOOLEAN) AS CASE WHEN
        spark_fails(true, 'runs on Spark only') THEN NULL ELSE CAST(x AS INTEGER) END, (x INTEGER) AS x, (x BIGINT) AS x, (x) AS x
    spark_beside(x VARCHAR, y VARCHAR) AS x, (x VARCHAR, y INTEGER) AS CAST(spark_whole_of(x) AS BIGINT),
        (x VARCHAR, y BIGINT) AS CAST(spark_whole_of(x) AS BIGINT),
        (x VARCHAR, y HUGEINT) AS CAST(spark_whole_of(x) AS BIGINT), (x VARCHAR, y DOUBLE) AS CAST(x AS DOUBLE),
        (x VARCHAR, y DATE) AS spark_date(x), (x VARCHAR, y TIMESTAMP) AS spark_time(x),
        (x VARCHAR, y TIMESTAMPTZ) AS CAST(spark_time(x) AS TIMESTAMPTZ),
        (x BOOLEAN, y BIGINT) AS CASE WHEN spark_fails(true, 'runs on Spark only') THEN NULL ELSE CAST(x AS INTEGER) END,
        (x BOOLEAN, y DOUBLE) AS CASE WHEN spark_fails(true, 'runs on Spark only') THEN NULL ELSE CAST(x AS INTEGER) END,
        (x, y) AS x
    spark_bit_count(x) AS CAST(bit_count(CAST(x AS BIGINT)) AS INTEGER)
    bit_get(x once, i once) AS CASE WHEN spark_fails(i < 0 OR i >= CASE typeof(x) WHEN 'TINYINT' THEN 8 WHEN 'SMALLINT' THEN 16
        WHEN 'INTEGER' THEN 32 ELSE 64 END, 'The position is not one of the number''s bits.') THEN NULL
        ELSE CAST((x >> i) & 1 AS TINYINT) END
    bround(x) AS round_even(x, 0), (x, n) AS spark_even(x, n)
    btrim(x) AS trim(x), (x, y) AS trim(x, y)
    spark_corr(x, y) AS CASE WHEN spark_fails(var_pop(x) = 0 AND regr_count(x, y) > 1 OR var_pop(y) = 0 AND regr_count(x, y) > 1,
        'runs on Spark only') THEN NULL WHEN regr_count(x, y) > 1 THEN corr(x, y) END
    convert_timezone(y, x) AS timezone(spark_zone(y), timezone('UTC', spark_time(x))),
        (z, y, x) AS timezone(spark_zone(y), timezone(spark_zone(z), spark_time(x)))
    current_timezone() AS 'UTC'
    spark_zone(z) AS left(z, 99)
    spark_date_add(d, n) AS spark_date(d) + CAST(n AS INTEGER)
    spark_datediff(a, b) AS CAST(datediff('day', spark_date(b), spark_date(a)) AS INTEGER)
    spark_date_diff(a, b) AS CAST(datediff('day', spark_date(b), spark_date(a)) AS INTEGER)
    to_utc_timestamp(x, z) AS timezone('UTC', timezone(spark_zone(z), spark_time(x)))
    spark_date_sub(d, n) AS spark_date(d) - CAST(n AS INTEGER)
    date_from_unix_date(n) AS DATE '1970-01-01' + CAST(n AS INTEGER)
    spark_dayname(x) AS strftime(spark_time(x), '%a')
    spark_dayofweek(x) AS CAST(isodow(spark_time(x)) % 7 + 1 AS INTEGER)
    spark_text_date(x once) AS CASE
        WHEN spark_fails(regexp_matches(x, '^\s*(?i:epoch|now|today|tomorrow|yesterday)\b'), 'runs on Spark only') THEN NULL
        WHEN regexp_full_match(x, '\s*\d{4}-\d{1,2}-\d{1,2}([T ].*)?\s*') THEN
            TRY_CAST(regexp_extract(x, '\d{4}-\d{1,2}-\d{1,2}') AS DATE)
        WHEN regexp_full_match(x, '\s*\d{4}(-\d{1,2})?\s*') THEN
            TRY_CAST(trim(x) || CASE WHEN contains(x, '-') THEN '-01' ELSE '-01-01' END AS DATE) END
    spark_try_date_of(x VARCHAR) AS spark_text_date(x), (x) AS coalesce(TRY_CAST(x AS DATE),
        CASE WHEN spark_fails(x IS NOT NULL, 'runs on Spark only') THEN NULL END)
    spark_try_date(x once) AS spark_try_date_of(x)
    spark_date(x once) AS coalesce(spark_try_date_of(x), CASE WHEN spark_fails(x IS NOT NULL, CAST(x AS VARCHAR) ||
        ' is no date.') THEN NULL END)
    spark_text_time(x once) AS CASE
        WHEN regexp_full_match(x, '\s*\d{4}(-\d{1,2}(-\d{1,2}[T ]?)?)?\s*') THEN
            CAST(spark_text_date(rtrim(x, 'T ')) AS TIMESTAMP)
        WHEN regexp_full_match(x, '\s*[-0-9]*[T ]\d{1,2}:\d{1,2}\s*') THEN TRY_CAST(trim(x) || ':00' AS TIMESTAMP)
        WHEN regexp_full_match(x, '\s*\d{4}-\d{1,2}-\d{1,2}[T ]\d{1,2}:\d{1,2}:\d{1,2}([.]\d{1,6})?\s*') THEN
            TRY_CAST(trim(x) AS TIMESTAMP)
        WHEN regexp_full_match(x, '\s*\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.]\d{1,6})?(Z|[+-]\d\d:\d\d)\s*') THEN
            CAST(TRY_CAST(trim(x) AS TIMESTAMPTZ) AS TIMESTAMP)
        WHEN spark_fails(regexp_matches(x, '^\s*(?i:epoch|now|today|tomorrow|yesterday)\b') OR regexp_matches(x, '\d:\d') AND NOT regexp_full_match(x,
            '\s*\d{4}-\d{1,2}-\d{1,2}[T ]\d{1,2}:\d{1,2}(:\d{1,2}([.]\d{1,6})?(Z|[+-]\d\d:\d\d)?)?\s*'),
            'runs on Spark only') THEN NULL END
    spark_try_time_of(x VARCHAR) AS spark_text_time(x), (x) AS coalesce(TRY_CAST(x AS TIMESTAMP),
        CASE WHEN spark_fails(x IS NOT NULL, 'runs on Spark only') THEN NULL END)
    spark_try_time(x once) AS spark_try_time_of(x)
    spark_time(x once) AS coalesce(spark_try_time_of(x), CASE WHEN spark_fails(x IS NOT NULL, CAST(x AS VARCHAR) ||
        ' is no time.') THEN NULL END)
    spark_date_trunc(u, t) AS CAST(date_trunc(u, spark_time(t)) AS TIMESTAMP)
    spark_fails(c, m) AS CAST(CASE WHEN c THEN m END AS BOOLEAN)
    e() AS exp(1)
    spark_element_at(c, k VARCHAR) AS c[k], (c, k) AS CASE WHEN spark_fails(typeof(c) NOT LIKE 'MAP%' AND (k =
        0 OR abs(k) > cardinality(c)), 'The index ' || k || ' is out of bounds. The array has ' ||
        cardinality(c) || ' elements.') THEN NULL ELSE c[k] END
    spark_try_element_at(c, k VARCHAR) AS c[k], (c, k) AS CASE WHEN spark_fails(typeof(c) NOT LIKE
        'MAP%' AND k = 0, 'The index 0 is invalid.') THEN NULL ELSE c[k] END
    spark_ceil(x once) AS spark_ceil_of(x)
    spark_ceil_of(x BIGINT) AS x, (x HUGEINT) AS x, (x DECIMAL(38, 18)) AS ceil(x), (x DOUBLE) AS spark_to_long(ceil(x))
    spark_floored(x once) AS spark_floored_of(x)
    spark_floored_of(x BIGINT) AS x, (x HUGEINT) AS x, (x DECIMAL(38, 18)) AS floor(x), (x DOUBLE) AS spark_to_long(floor(x))
    spark_to_long(x once) AS CASE WHEN isnan(x) THEN 0 WHEN x >= 9.2233720368547758e18 THEN 9223372036854775807
        WHEN x <= -9.2233720368547758e18 THEN CAST('-9223372036854775808' AS BIGINT) ELSE CAST(x AS BIGINT) END
    spark_digits(x once) AS spark_digits_of(x)
    spark_digits_of(x BIGINT) AS x, (x HUGEINT) AS x, (x VARCHAR) AS x, (x BOOLEAN) AS x, (x) AS CASE
        WHEN typeof(x) NOT IN ('DOUBLE', 'FLOAT') THEN CAST(x AS VARCHAR)
        WHEN isfinite(CAST(x AS DOUBLE)) THEN CAST(CAST(x AS DOUBLE) AS VARCHAR) END
    spark_dividend(x once) AS spark_dividend_of(x)
    spark_dividend_of(x BIGINT) AS x, (x HUGEINT) AS x, (x DOUBLE) AS CASE WHEN spark_fails(true, 'runs on Spark only') THEN NULL
        ELSE 0 END
    expm1(x once) AS CASE WHEN abs(x) < 1 THEN 2 * exp(x / 2) * sinh(x / 2) ELSE exp(x) - 1 END
    spark_factorial(x once) AS CAST(factorial(CASE WHEN x BETWEEN 0 AND 20 THEN CAST(x AS INTEGER) END) AS BIGINT)
    spark_flatten(a once) AS CASE WHEN list_position(a, NULL) IS NULL THEN flatten(a) END
    find_in_set(x once, y once) AS CASE WHEN x IS NOT NULL AND y IS NOT NULL THEN
        coalesce(list_position(string_split(y, ','), x), 0) END
    spark_format_number(x once, n) AS CASE WHEN spark_fails(n < 0 OR NOT isfinite(CAST(x AS DOUBLE)) OR
        typeof(x) LIKE 'DECIMAL%' OR abs(CAST(x AS DOUBLE)) > 9e15, 'runs on Spark only') THEN NULL
        ELSE format('{:,.' || n || 'f}', CAST(x AS DOUBLE)) END
    from_utc_timestamp(x, z) AS timezone(spark_zone(z), timezone('UTC', spark_time(x)))
    get(a, i once) AS CASE WHEN i >= 0 THEN a[i + 1] END
    hypot(x once, y once) AS sqrt(x * x + y * y)
    spark_full_date(y once) AS CASE WHEN spark_fails(regexp_matches(y, '^\d{1,3}-'), 'runs on Spark only') THEN NULL
        WHEN strlen(y) < 8 THEN y || '-01' ELSE y END
    spark_instant_of(x TIMESTAMP, y) AS CAST(spark_full_date(y) AS TIMESTAMPTZ),
        (x TIMESTAMPTZ, y) AS CAST(spark_full_date(y) AS TIMESTAMPTZ),
        (x VARCHAR, y) AS y, (x DATE, y) AS CAST(left(spark_full_date(y), 10) AS DATE)
    spark_instant(x, y) AS list_transform([x], lambda spark_x: spark_instant_of(spark_x, y))[1]
    isnotnull(x) AS x IS NOT NULL
    spark_initcap(x once) AS CASE WHEN spark_fails(strlen(x) > length(x), 'runs on Spark only') THEN NULL ELSE array_to_string(
        list_transform(string_split(lower(x), ' '), lambda spark_x: upper(spark_x[1]) || spark_x[2:]), ' ') END
    spark_json_length(x once) AS CASE WHEN json_valid(x) AND json_type(x) = 'ARRAY' THEN
        CAST(json_array_length(x) AS INTEGER) END
    spark_json_keys(x once) AS CASE WHEN json_valid(x) AND json_type(x) = 'OBJECT' THEN json_keys(x) END
    spark_readable(x once) AS CASE WHEN spark_fails(NOT json_valid(x) AND regexp_matches(x, '^\s*[\[{]'),
        'runs on Spark only') THEN NULL ELSE json_valid(x) END
    spark_last_day(d) AS last_day(spark_date(d))
    spark_left(x, n once) AS left(x, CASE WHEN n < 0 THEN 0 ELSE n END)
    localtimestamp() AS CAST(now() AS TIMESTAMP)
    log1p(x once) AS CASE WHEN abs(x) < 0.5 THEN 2 * atanh(x / (2 + x)) ELSE ln(CASE WHEN x > -1 THEN 1 + x END) END
    spark_isnan(x) AS coalesce(isnan(x), false)
    spark_long_of(x INTEGER) AS CAST(x AS BIGINT), (x) AS x
    spark_mod(x once, y once) AS CASE WHEN spark_fails(y = 0 AND x IS NOT NULL, 'Division by zero.') THEN NULL ELSE x % y END
    spark_round(x once, n) AS spark_round_of(x, n)
    spark_round_of(x BIGINT, n) AS round(x, n), (x HUGEINT, n) AS round(x, n), (x) AS x, (x, n) AS cast_to_type(CASE
        WHEN spark_fails(typeof(x) = 'FLOAT', 'runs on Spark only') THEN NULL
        WHEN typeof(x) <> 'DOUBLE' THEN CAST(round(x, n) AS VARCHAR) WHEN abs(CAST(x AS DOUBLE)) < 1e15
        THEN CAST(round(CAST(CAST(x AS VARCHAR) AS DECIMAL(38, 22)), n) AS VARCHAR) ELSE CAST(x AS VARCHAR) END, round(x, n))
    spark_even(x once, n) AS CASE WHEN spark_fails(n > 0 AND typeof(x) IN ('DOUBLE', 'FLOAT'), 'runs on Spark only') THEN NULL
        ELSE round_even(x, n) END
    spark_shiftleft(x once, n) AS spark_shiftleft_of(x, n)
    spark_shiftleft_of(x INTEGER, n) AS spark_wrapped(CAST(x AS BIGINT) * (CAST(1 AS BIGINT) << (n & 31))),
        (x BIGINT, n) AS spark_wrapped_long(x * (CAST(1 AS HUGEINT) << (n & 63)))
    spark_wrapped(x once) AS CAST(((x + 2147483648) & 4294967295) - 2147483648 AS INTEGER)
    spark_wrapped_long(x once) AS CAST(((x + 9223372036854775808) & 18446744073709551615) - 9223372036854775808 AS BIGINT)
    spark_shiftright(x once, n) AS spark_shiftright_of(x, n)
    spark_shiftright_of(x INTEGER, n) AS x >> (n & 31), (x BIGINT, n) AS x >> (n & 63)
    spark_sign(x once) AS CASE WHEN isnan(CAST(x AS DOUBLE)) THEN CAST(x AS DOUBLE)
        ELSE CAST(sign(spark_no_decimal(x)) AS DOUBLE) END
    spark_try_divide(x once, y once) AS CASE WHEN spark_fails(typeof(x) LIKE 'DECIMAL%' AND typeof(y) NOT IN ('DOUBLE', 'FLOAT') OR
        typeof(y) LIKE 'DECIMAL%' AND typeof(x) NOT IN ('DOUBLE', 'FLOAT'), 'runs on Spark only') THEN NULL
        WHEN y <> 0 THEN x / y END
    spark_wide(x) AS CASE WHEN spark_fails(typeof(x) LIKE 'DECIMAL(38,%', 'runs on Spark only') THEN NULL ELSE x END
    spark_logged(x once) AS CASE WHEN x > 0 THEN x END
    spark_levenshtein(x once, y once) AS CASE WHEN spark_fails(strlen(x) > length(x) OR strlen(y) > length(y),
        'runs on Spark only') OR spark_fails(length(x) > 100000000 // (length(y) + 1), 'levenshtein() of texts that are too long: '
        || length(x) || ' and ' || length(y) || ' characters.') THEN NULL
        ELSE CAST(levenshtein(left(x, 100000000 // (length(y) + 1)), y) AS INTEGER) END
    spark_lower(x once) AS CASE WHEN strlen(x) = length(x) THEN lower(x)
        WHEN spark_fails(regexp_matches(x, 'İ|Σ[^\p{L}\s]|[^\p{L}\s]Σ'), 'runs on Spark only') THEN NULL
        ELSE lower(regexp_replace(x, '(\p{L})Σ(\s|$)', '\1ς\2', 'g')) END
    spark_units(a once, b once, m once) AS CASE WHEN m > 0 AND spark_in_month(b) < spark_in_month(a) THEN m - 1
        WHEN m < 0 AND spark_in_month(b) > spark_in_month(a) THEN m + 1 ELSE m END
    spark_in_month(t once) AS epoch_us(t) - epoch_us(date_trunc('month', t))
    spark_months(a once, b once) AS spark_units(spark_time(a), spark_time(b),
        datediff('month', spark_time(a), spark_time(b)))
    spark_months_exact(a once, b once) AS CASE WHEN day(a) = day(b) OR (CAST(a AS DATE) = last_day(a) AND CAST(b AS
        DATE) = last_day(b)) THEN CAST(datediff('month', b, a) AS DOUBLE) ELSE datediff('month', b, a) +
        (floor(spark_in_month(a) / 1000000) - floor(spark_in_month(b) / 1000000)) / 2678400 END
    spark_months_between(a, b) AS floor(spark_months_exact(spark_time(a), spark_time(b)) * 1e8 + 0.5e0) / 1e8,
        (a, b, r) AS CASE WHEN r THEN floor(spark_months_exact(spark_time(a), spark_time(b)) * 1e8 + 0.5e0) / 1e8
        ELSE spark_months_exact(spark_time(a), spark_time(b)) END
    spark_apart(x once, y once) AS spark_minus(x, y)
    spark_minus(x DATE, y DATE) AS to_days(CAST(x - y AS INTEGER)), (x, y) AS x - y
    spark_no_decimal(x once) AS CASE WHEN spark_fails(typeof(x) LIKE 'DECIMAL%', 'runs on Spark only') THEN NULL
        ELSE x END
    spark_divide(x once, y once) AS CASE WHEN spark_fails(typeof(x) LIKE 'DECIMAL%' AND typeof(y) NOT IN ('DOUBLE', 'FLOAT') OR
        typeof(y) LIKE 'DECIMAL%' AND typeof(x) NOT IN ('DOUBLE', 'FLOAT'), 'runs on Spark only') THEN NULL
        WHEN spark_fails(y = 0 AND x IS NOT NULL, 'Division by zero.') THEN NULL ELSE x / y END
    spark_by_decimal(x once, y, b, f, e, t) AS spark_by_decimal_of(x, y, b, f, e, t)
    spark_by_decimal_of(x INTEGER, y, b, f, e, t) AS spark_decimal(x, b, f, e, t),
        (x BIGINT, y, b, f, e, t) AS spark_decimal(x, b, f, e, t),
        (x HUGEINT, y, b, f, e, t) AS spark_decimal(x, b, f, e, t), (x, y, b, f, e, t) AS spark_divide(x, y)
    spark_decimal(x once, b, f, e, t) AS cast_to_type(sign(x) * ((2 * abs(CAST(x AS HUGEINT)) * f + b) // (2 * b)) || e, t)
    spark_add_days(x once, i) AS spark_add_days_of(x, i)
    spark_add_days_of(x DATE, i) AS CAST(x + i AS DATE), (x, i) AS x + i
    spark_subtract_days(x once, i) AS spark_subtract_days_of(x, i)
    spark_subtract_days_of(x DATE, i) AS CAST(x - i AS DATE), (x, i) AS x - i
    map_contains_key(m, k) AS list_contains(map_keys(m), k)
    spark_monthname(x) AS strftime(spark_time(x), '%b')
    spark_next_day(d once, n) AS spark_date(d) + CAST((n - isodow(spark_date(d)) + 6) % 7 + 1 AS INTEGER)
    spark_number(a once) AS CASE a WHEN 'nan' THEN 'NaN' WHEN 'inf' THEN 'Infinity' ELSE CASE
        WHEN contains(a, 'e') THEN split_part(a, 'e', 1) || CASE WHEN contains(split_part(a, 'e', 1), '.')
            THEN 'E' ELSE '.0E' END || CAST(split_part(a, 'e', 2) AS INTEGER)
        WHEN strpos(a, '.') > 8 THEN spark_scientific(rtrim(regexp_replace(a, '[.]0?$|[.]', ''), '0'),
            strpos(a, '.') - 2)
        WHEN regexp_matches(a, '^0[.]000*[1-9]') THEN spark_scientific(ltrim(a, '0.'),
            strlen(ltrim(a, '0.')) + 1 - strlen(a))
        ELSE a END END
    spark_scientific(d once, n) AS d[1] || '.' || coalesce(nullif(d[2:], ''), '0') || 'E' || n
    spark_double_text(s once) AS CASE WHEN s[1] = '-' THEN '-' ELSE '' END || spark_number(ltrim(s, '-'))
    spark_is_special(t once) AS t NOT IN ('INTEGER[]', 'BIGINT[]') AND (t LIKE '%[]' OR t LIKE '%(%' AND t NOT LIKE
        'DECIMAL%' OR t IN ('BLOB', 'INTERVAL'))
    spark_text(x once) AS spark_text_of(x)
    spark_text_of(x VARCHAR) AS x, (x) AS CASE WHEN typeof(x) IN ('DOUBLE', 'FLOAT') THEN spark_double_text(CAST(x AS VARCHAR))
        WHEN typeof(x) = 'TIMESTAMP WITH TIME ZONE' THEN regexp_replace(CAST(x AS VARCHAR), '[+]00$', '')
        WHEN typeof(x) IN ('INTEGER[]', 'BIGINT[]') THEN replace(CAST(x AS VARCHAR), 'NULL', 'null')
        WHEN spark_fails(x IS NOT NULL AND spark_is_special(typeof(x)), 'runs on Spark only') THEN NULL
        ELSE CAST(x AS VARCHAR) END
    nanvl(x once, y) AS CASE WHEN isnan(x) THEN y ELSE x END
    negative(x) AS -x
    nullifzero(x) AS nullif(x, 0)
    octet_length(x) AS CAST(strlen(x) AS INTEGER)
    pmod(x once, y once) AS CASE WHEN spark_fails(y = 0 AND x IS NOT NULL, 'Division by zero.') THEN NULL
        WHEN x % y < 0 THEN (x % y + y) % y ELSE x % y END
    positive(x) AS x
    spark_text_parsed(x once, r, f) AS CASE WHEN regexp_full_match(x, r) THEN try_strptime(x, f) END
    spark_try_parsed_of(x VARCHAR, r, f) AS spark_text_parsed(x, r, f), (x, r, f) AS TRY_CAST(x AS TIMESTAMP)
    spark_try_parsed(x once, r, f) AS spark_try_parsed_of(x, r, f)
    spark_parsed(x once, r, f) AS coalesce(spark_try_parsed_of(x, r, f), CASE WHEN spark_fails(x IS NOT NULL,
        CAST(x AS VARCHAR) || ' does not have the format of the time.') THEN NULL END)
    spark_one_line(x once) AS CASE WHEN spark_fails(regexp_matches(x, '[\n\r\x{85}\x{2028}\x{2029}]\z'),
        'runs on Spark only') THEN NULL ELSE x END
    spark_joined(x once) AS spark_joined_of(x)
    spark_joined_of(x VARCHAR) AS x, (x) AS CASE WHEN spark_fails(typeof(x) LIKE '%[]' OR typeof(x) = 'BLOB', 'runs on Spark only') THEN NULL
        ELSE spark_text_of(x) END
    spark_reverse(x VARCHAR) AS CASE WHEN strlen(x) = length(x) THEN reverse(x) WHEN
        spark_fails(strlen(x) > length(x), 'runs on Spark only') THEN NULL END, (x) AS list_reverse(x)
    spark_right(x, n once) AS right(x, CASE WHEN n < 0 THEN 0 ELSE n END)
    rint(x) AS CAST(round_even(x, 0) AS DOUBLE)
    spark_slice(a once, s once, n once) AS CASE WHEN spark_fails(s = 0 OR n < 0, 'slice starts at no element, or has a negative length.') THEN NULL
        WHEN s > len(a) OR -s > len(a) THEN a[1:0] WHEN s < 0 THEN a[len(a) + s + 1:len(a) + s + n]
        ELSE a[s:s + n - 1] END
    spark_seconds(x) AS CAST(date_part('microsecond', spark_time(x)) / 1000000 AS DECIMAL(8, 6))
    spark_step(a, b) AS CASE WHEN a <= b THEN 1 ELSE -1 END
    spark_boundaries(a, b, s, r) AS CASE WHEN spark_fails(a <> b AND (s = 0 OR (s > 0) <> (b > a)), 'The boundaries and the step of sequence do not agree.')
        THEN NULL ELSE r END
    spark_sequence_of(a INTEGER, b) AS CAST(generate_series(a, b, spark_step(a, b)) AS INTEGER[]), (a BIGINT, b) AS generate_series(a, b, spark_step(a, b)), (a DATE, b) AS
        CAST(generate_series(a, b, to_days(spark_step(a, b))) AS DATE[]), (a TIMESTAMP, b) AS
        generate_series(a, b, to_days(spark_step(a, b))), (a TIMESTAMPTZ, b) AS
        generate_series(a, b, to_days(spark_step(a, b))),
        (a INTEGER, b, s) AS spark_boundaries(a, b, s, CAST(generate_series(a, b, s) AS INTEGER[])),
        (a BIGINT, b, s) AS spark_boundaries(a, b, s, generate_series(a, b, s)),
        (a DATE, b, s) AS CAST(generate_series(a, b, s) AS DATE[]), (a, b, s) AS generate_series(a, b, s)
    spark_sequence(a, b) AS list_transform([a], lambda spark_x: spark_sequence_of(spark_x, b))[1],
        (a, b, s) AS list_transform([a], lambda spark_x: spark_sequence_of(spark_x, b, s))[1]
    spark_skewness(x) AS CASE WHEN count(x) > 2 THEN
        skewness(x) * (count(x) - 2) / sqrt(count(x) * (count(x) - 1)) WHEN var_pop(x) > 0 THEN 0.0 END
    std(x) AS stddev(x)
    spark_substring(x, p) AS substring(x, CASE p WHEN 0 THEN 1 ELSE p END), (x, p, n) AS substring(x,
        CASE p WHEN 0 THEN 1 ELSE p END, CASE WHEN n < 0 THEN 0 ELSE n END)
    substring_index(x once, d, n once) AS array_to_string(CASE WHEN n > 0 THEN string_split(x, d)[1:n] ELSE
        string_split(x, d)[n:] END, d)
    timestamp_millis(x) AS epoch_ms(x)
    timestamp_micros(x) AS make_timestamp(x)
    spark_timestamp_seconds(x once) AS spark_timestamp_seconds_of(x)
    spark_timestamp_seconds_of(x BIGINT) AS make_timestamp(x * 1000000), (x FLOAT) AS spark_of_double(x),
        (x DOUBLE) AS spark_of_double(x), (x DECIMAL(38, 18)) AS CASE WHEN spark_fails(x * 1000000 <> trunc(x * 1000000),
        'runs on Spark only') THEN NULL ELSE make_timestamp(CAST(x * 1000000 AS BIGINT)) END
    spark_of_double(x once) AS CASE WHEN spark_fails(abs(x) > 9e12 AND isfinite(x), 'runs on Spark only') THEN NULL
        WHEN isfinite(x) THEN make_timestamp(CAST(trunc(CAST(x AS DOUBLE) * 1e6) AS BIGINT)) END
    spark_to_json(x once) AS CAST(CASE WHEN spark_fails(regexp_matches(typeof(x), 'TIME|DECIMAL|BLOB|DOUBLE|FLOAT|INTERVAL|DATE|MAP.*STRUCT|STRUCT.*(MAP|[[])'),
        'runs on Spark only') THEN NULL WHEN typeof(x) LIKE 'STRUCT%' THEN json_merge_patch('{}', to_json(x)) ELSE
        to_json(x) END AS VARCHAR)
    spark_text_alone(x once) AS spark_text_alone_of(x)
    spark_text_alone_of(x VARCHAR) AS x, (x) AS CASE WHEN spark_fails(x IS NOT NULL, 'runs on Spark only') THEN NULL ELSE x END
    spark_no_text(x once) AS spark_no_text_of(x)
    spark_no_text_of(x VARCHAR) AS CASE WHEN spark_fails(x IS NOT NULL, 'runs on Spark only') THEN NULL ELSE x END, (x) AS x
    spark_total(x once) AS spark_total_of(x)
    spark_total_of(x HUGEINT) AS CAST(x AS BIGINT), (x) AS x
    spark_trunc(d, u) AS CAST(date_trunc(u, spark_date(d)) AS DATE)
    try_add(x once, y once) AS CASE WHEN spark_fails(typeof(x + y) LIKE 'DECIMAL(38,%', 'runs on Spark only') THEN NULL
        ELSE TRY(x + y) END
    try_avg(x) AS avg(spark_no_decimal(x))
    try_multiply(x once, y once) AS CASE WHEN spark_fails(typeof(x * y) LIKE 'DECIMAL(38,%', 'runs on Spark only') THEN NULL
        ELSE TRY(x * y) END
    try_subtract(x once, y once) AS CASE WHEN spark_fails(typeof(x - y) LIKE 'DECIMAL(38,%', 'runs on Spark only') THEN NULL
        ELSE TRY(x - y) END
    unix_seconds(x) AS spark_floor(epoch_us(spark_time(x)), 1000000)
    spark_epoch_seconds(x) AS epoch_us(x) // 1000000
    spark_unix_millis(x) AS spark_floor(epoch_us(spark_time(x)), 1000)
    spark_floor(x once, n) AS (x - (x % n + n) % n) // n
    unix_timestamp() AS CAST(floor(epoch(now())) AS BIGINT)
    spark_url_encode(x) AS replace(system.main.url_encode(x), '%20', '+')
    spark_uuid() AS CAST(gen_random_uuid() AS VARCHAR)
    spark_weekday(x) AS CAST(isodow(spark_time(x)) - 1 AS INTEGER)
    spark_upper(x once) AS CASE WHEN strlen(x) = length(x) THEN upper(x) WHEN spark_fails(regexp_matches(x,
        '[\x{149}\x{1F0}\x{390}\x{3B0}\x{587}\x{1E96}-\x{1E9A}\x{1F50}-\x{1FFC}\x{FB00}-\x{FB17}]'), 'runs on Spark only')
        THEN NULL ELSE upper(replace(x, 'ß', 'SS')) END
    spark_whole_number(x once) AS CASE WHEN spark_fails(typeof(x) NOT IN ('TINYINT', 'SMALLINT', 'INTEGER', 'BIGINT', 'HUGEINT'), 'runs on Spark only') THEN NULL ELSE x END
    spark_whole_of(x DOUBLE) AS trunc(x), (x FLOAT) AS trunc(x), (x DECIMAL(38, 18)) AS trunc(x),
        (x VARCHAR) AS CASE WHEN regexp_full_match(x, '\s*[-+]?(\d*[.eE_][-+.eE_\d]*|0[xXbB]\w+)\s*')
            THEN x || ' is no whole number' ELSE x END,
        (x BIGINT) AS x, (x HUGEINT) AS x, (x BOOLEAN) AS x, (x BLOB) AS x,
        (x DATE) AS CASE WHEN spark_fails(true, 'A date is no number.') THEN NULL ELSE 0 END,
        (x INTERVAL) AS x, (x TIMESTAMP) AS floor(epoch(x)), (x TIMESTAMPTZ) AS floor(epoch(x))
    spark_whole(x) AS list_transform([x], lambda spark_x: spark_whole_of(spark_x))[1]
    width_bucket(x once, a once, b once, n once) AS CASE WHEN spark_fails(a >= b OR n <= 0, 'runs on Spark only')
        THEN NULL WHEN isnan(CAST(x AS DOUBLE)) THEN NULL WHEN x < a THEN 0 WHEN x >= b THEN CAST(n AS BIGINT) + 1
        ELSE CAST(floor((x - a) / (b - a) * n) AS BIGINT) + 1 END
    zeroifnull(x) AS coalesce(x, 0)
"""
_PARAMETERS = re.compile(r"\((?P<parameters>[^()]*\bonce\b[^()]*)\) AS ")
_WORD = re.compile(r"'(?:[^']|'')*'|(?<![.\w])\w+")


def _bound_once(macro: str) -> str:
    """Rewrite a macro so that the arguments of parameters marked `once` are bound once, however often they
    are used.

    DuckDB replaces each use of a parameter by the argument's text and binds each copy. With nested macros it
    would bind an argument thousands of times. But it binds an argument of a lambda once. So the new body is a
    lambda over a list with one element: the argument, or a struct of several. Arguments stand outside of the
    lambda: so they cannot be confused with its parameter, and may be aggregates or subqueries.
    """
    head = _PARAMETERS.search(macro)
    if head is None:
        return macro
    parameters = head["parameters"].split(", ")
    names = [parameter.removesuffix(" once") for parameter in parameters if parameter.endswith(" once")]
    element = f"{macro.partition('(')[0].removeprefix(PREFIX)}_arguments"
    if len(names) == 1:
        argument, replacements = names[0], {names[0]: element}
    else:
        argument = "{" + ", ".join(f"'{name}': {name}" for name in names) + "}"
        replacements = {name: f"{element}['{name}']" for name in names}
    body = _WORD.sub(lambda word: replacements.get(word[0], word[0]), macro[head.end() :])
    signature = ", ".join(parameter.removesuffix(" once") for parameter in parameters)
    return (
        f"{macro[: head.start()]}({signature}) AS list_transform([{argument}], lambda {element}: {body})[1]"
    )


MACROS = tuple(_bound_once(macro) for macro in re.split(r"\n    (?=\w)", _MACROS.strip()))
#: The macros that the catalog's own SQL uses.
OF_CATALOG = tuple(macro for macro in MACROS if macro.startswith(("timestamp_millis(", "timestamp_micros(")))
_BY_NAME = {macro.partition("(")[0]: macro for macro in MACROS}


def needed_macros(text: str, existing: set[str]) -> list[str]:
    """Return the macros that a text in DuckDB's SQL uses, and those that these use, in the order to create
    them.

    Macros whose names are in `existing` are left out; the names of the others are added to it.
    """
    names = [name for name in re.findall(r"\w+", text.lower()) if name in _BY_NAME and name not in existing]
    macros: list[str] = []
    for name in dict.fromkeys(names):
        if name not in existing:
            existing.add(name)
            macros += [*needed_macros(_BY_NAME[name].partition(" AS ")[2], existing), _BY_NAME[name]]
    return macros


def all_macros() -> list[str]:
    """Return all macros, each after those that it uses."""
    return needed_macros(" ".join(_BY_NAME), set())
