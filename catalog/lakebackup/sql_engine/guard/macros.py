"""Spark's functions that DuckDB lacks, or means otherwise, as macros of DuckDB: name, parameters, body.

DuckDB chooses by type where the types are known: of an element of a list they are, of an aggregate not yet.
"""

from __future__ import annotations

import re

# In front of names that DuckDB itself uses for something else.
OTHER = "spark_"
#: What a macro fails with where a value is one that only Spark can answer for.
FOR_SPARK = "runs on Spark only"

_MACROS = r"""
    array_repeat(x, n) AS list_transform(range(n), lambda spark_i: x)
    spark_array_contains(a, x) AS CASE WHEN list_contains(a, x) THEN true
        WHEN list_position(a, NULL) IS NULL THEN list_contains(a, x) END
    spark_array_distinct(a) AS list_filter(a, lambda spark_x, spark_i: list_position(a, spark_x) = spark_i)
    spark_array_except(a, b) AS CASE WHEN b IS NOT NULL THEN
        list_filter(spark_array_distinct(a), lambda spark_x: list_position(b, spark_x) IS NULL) END
    spark_array_intersect(a, b) AS CASE WHEN b IS NOT NULL THEN
        list_filter(spark_array_distinct(a), lambda spark_x: list_position(b, spark_x) IS NOT NULL) END
    spark_array_position(a, x) AS CASE WHEN a IS NOT NULL AND x IS NOT NULL THEN
        coalesce(list_position(a, x), 0) END
    spark_array_remove(a, x) AS CASE WHEN x IS NOT NULL THEN
        list_filter(a, lambda spark_x: spark_x IS DISTINCT FROM x) END
    array_union(a, b) AS spark_array_distinct(list_concat(a, b))
    arrays_overlap(a, b) AS CASE WHEN list_has_any(a, b) OR len(a) = 0 OR len(b) = 0 OR
        (list_position(a, NULL) IS NULL AND list_position(b, NULL) IS NULL) THEN list_has_any(a, b) END
    bit_get(x, i) AS (x >> i) & 1
    bround(x) AS round_even(x, 0), (x, n) AS round_even(x, n)
    btrim(x) AS trim(x), (x, y) AS trim(x, y)
    current_timezone() AS 'UTC'
    spark_date_add(d, n) AS CAST(d AS DATE) + CAST(n AS INTEGER)
    spark_datediff(a, b) AS datediff('day', CAST(b AS DATE), CAST(a AS DATE))
    spark_date_diff(a, b) AS datediff('day', CAST(b AS DATE), CAST(a AS DATE))
    to_utc_timestamp(x, z) AS timezone('UTC', timezone(z, CAST(x AS TIMESTAMP)))
    spark_date_sub(d, n) AS CAST(d AS DATE) - CAST(n AS INTEGER)
    date_from_unix_date(n) AS DATE '1970-01-01' + CAST(n AS INTEGER)
    spark_dayname(x) AS strftime(CAST(x AS TIMESTAMP), '%a')
    spark_dayofweek(x) AS isodow(CAST(x AS TIMESTAMP)) % 7 + 1
    e() AS exp(1)
    expm1(x) AS exp(x) - 1
    find_in_set(x, y) AS coalesce(list_position(string_split(y, ','), x), 0)
    format_number(x, n) AS format('{:,.' || n || 'f}', CAST(x AS DOUBLE))
    format_string(x, a) AS printf(x, a), (x, a, b) AS printf(x, a, b), (x, a, b, c) AS printf(x, a, b, c)
    from_utc_timestamp(x, z) AS timezone(z, timezone('UTC', CAST(x AS TIMESTAMP)))
    get(a, i) AS CASE WHEN i >= 0 THEN a[i + 1] END
    hypot(x, y) AS sqrt(x * x + y * y)
    spark_instant_of(x TIMESTAMP, y) AS CAST(y AS TIMESTAMPTZ), (x TIMESTAMPTZ, y) AS CAST(y AS TIMESTAMPTZ),
        (x VARCHAR, y) AS y, (x DATE, y) AS CAST(left(y, 10) AS DATE)
    spark_instant(x, y) AS list_transform([x], lambda spark_x: spark_instant_of(spark_x, y))[1]
    isnotnull(x) AS x IS NOT NULL
    spark_left(x, n) AS left(x, CASE WHEN n < 0 THEN 0 ELSE n END)
    localtimestamp() AS CAST(now() AS TIMESTAMP)
    log1p(x) AS ln(CASE WHEN x > -1 THEN 1 + x END)
    spark_logged(x) AS CASE WHEN x > 0 THEN x END
    map_contains_key(m, k) AS list_contains(map_keys(m), k)
    mask(x) AS regexp_replace(regexp_replace(regexp_replace(x, '[A-Z]', 'X', 'g'), '[a-z]', 'x', 'g'),
        '[0-9]', 'n', 'g')
    spark_monthname(x) AS strftime(CAST(x AS TIMESTAMP), '%b')
    nanvl(x, y) AS CASE WHEN isnan(x) THEN y ELSE x END
    negative(x) AS -x
    nullifzero(x) AS nullif(x, 0)
    octet_length(x) AS strlen(x)
    pmod(x, y) AS ((x % y) + y) % y
    positive(x) AS x
    regexp(x, y) AS regexp_matches(x, y)
    regexp_substr(x, y) AS CASE WHEN regexp_matches(x, y) THEN regexp_extract(x, y) END
    spark_right(x, n) AS right(x, CASE WHEN n < 0 THEN 0 ELSE n END)
    rint(x) AS CAST(round_even(x, 0) AS DOUBLE)
    spark_seconds(x) AS CAST(date_part('microsecond', x) / 1000000 AS DECIMAL(8, 6))
    spark_step(a, b) AS CASE WHEN a <= b THEN 1 ELSE -1 END
    spark_sequence_of(a BIGINT, b) AS generate_series(a, b, spark_step(a, b)), (a DATE, b) AS
        CAST(generate_series(a, b, to_days(spark_step(a, b))) AS DATE[]), (a TIMESTAMP, b) AS
        generate_series(a, b, to_days(spark_step(a, b))), (a TIMESTAMPTZ, b) AS
        generate_series(a, b, to_days(spark_step(a, b))),
        (a DATE, b, s) AS CAST(generate_series(a, b, s) AS DATE[]), (a, b, s) AS generate_series(a, b, s)
    spark_sequence(a, b) AS list_transform([a], lambda spark_x: spark_sequence_of(spark_x, b))[1],
        (a, b, s) AS list_transform([a], lambda spark_x: spark_sequence_of(spark_x, b, s))[1]
    spark_skewness(x) AS CASE WHEN count(x) > 2 THEN
        skewness(x) * (count(x) - 2) / sqrt(count(x) * (count(x) - 1)) WHEN var_pop(x) > 0 THEN 0.0 END
    std(x) AS stddev(x)
    spark_substring(x, p) AS substring(x, CASE p WHEN 0 THEN 1 ELSE p END), (x, p, n) AS substring(x,
        CASE p WHEN 0 THEN 1 ELSE p END, CASE WHEN n < 0 THEN 0 ELSE n END)
    substring_index(x, d, n) AS array_to_string(CASE WHEN n > 0 THEN string_split(x, d)[1:n] ELSE
        string_split(x, d)[n:] END, d)
    timestamp_millis(x) AS epoch_ms(x)
    timestamp_micros(x) AS make_timestamp(x)
    timestamp_seconds(x) AS CAST(to_timestamp(x) AS TIMESTAMP)
    spark_to_json(x) AS CAST(CASE WHEN typeof(x) LIKE 'STRUCT%' THEN json_merge_patch('{}', to_json(x)) ELSE
        to_json(x) END AS VARCHAR)
    to_unix_timestamp(x) AS CAST(floor(epoch(CAST(x AS TIMESTAMP))) AS BIGINT)
    spark_trunc(d, u) AS CAST(date_trunc(CASE upper(u) WHEN 'MM' THEN 'month' WHEN 'MON' THEN 'month' WHEN
        'YY' THEN 'year' WHEN 'YYYY' THEN 'year' ELSE u END, CAST(d AS DATE)) AS DATE)
    try_add(x, y) AS TRY(x + y)
    try_avg(x) AS avg(x)
    try_multiply(x, y) AS TRY(x * y)
    try_subtract(x, y) AS TRY(x - y)
    try_to_timestamp(x) AS TRY_CAST(x AS TIMESTAMP)
    unbase64(x) AS from_base64(x)
    unix_seconds(x) AS CAST(floor(epoch(CAST(x AS TIMESTAMP))) AS BIGINT)
    unix_timestamp() AS CAST(floor(epoch(now())) AS BIGINT), (x) AS CAST(floor(epoch(CAST(x AS
        TIMESTAMP))) AS BIGINT)
    spark_url_encode(x) AS replace(system.main.url_encode(x), '%20', '+')
    spark_uuid() AS CAST(gen_random_uuid() AS VARCHAR)
    spark_weekday(x) AS isodow(CAST(x AS TIMESTAMP)) - 1
    spark_whole_of(x DOUBLE) AS trunc(x), (x FLOAT) AS trunc(x), (x DECIMAL(38, 18)) AS trunc(x),
        (x VARCHAR) AS CASE WHEN regexp_full_match(x, '\s*[-+]?\d*[.eE_][-+.eE_\d]*\s*')
            THEN x || ' is no whole number' ELSE x END,
        (x BIGINT) AS x, (x HUGEINT) AS x, (x BOOLEAN) AS x, (x DATE) AS x, (x BLOB) AS x,
        (x INTERVAL) AS x, (x TIMESTAMP) AS floor(epoch(x)), (x TIMESTAMPTZ) AS floor(epoch(x))
    spark_whole(x) AS list_transform([x], lambda spark_x: spark_whole_of(spark_x))[1]
    width_bucket(x, a, b, n) AS CASE WHEN x < a THEN 0 WHEN x >= b THEN n + 1 ELSE CAST(floor((x - a)
        / (b - a) * n) AS INTEGER) + 1 END
    zeroifnull(x) AS coalesce(x, 0)
"""
MACROS = tuple(re.split(r"\n    (?=\w)", _MACROS.strip()))
#: Those in the catalog's own SQL.
OF_CATALOG = tuple(macro for macro in MACROS if macro.startswith(("timestamp_millis(", "timestamp_micros(")))
