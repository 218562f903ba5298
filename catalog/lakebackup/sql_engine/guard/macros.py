"""Spark's functions that DuckDB lacks, or means otherwise, as macros of DuckDB: name, parameters, body."""

from __future__ import annotations

import re

# In front of names that DuckDB itself uses for something else.
OTHER = "spark_"

_MACROS = r"""
    array_repeat(x, n) AS list_transform(range(n), lambda i: x)
    spark_array_distinct(a) AS list_filter(a, lambda x, i: list_position(a, x) = i)
    array_union(a, b) AS spark_array_distinct(list_concat(a, b))
    arrays_overlap(a, b) AS list_has_any(a, b)
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
    isnotnull(x) AS x IS NOT NULL
    localtimestamp() AS CAST(now() AS TIMESTAMP)
    log1p(x) AS ln(1 + x)
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
    rint(x) AS CAST(round_even(x, 0) AS DOUBLE)
    std(x) AS stddev(x)
    substring_index(x, d, n) AS array_to_string(CASE WHEN n > 0 THEN string_split(x, d)[1:n] ELSE
        string_split(x, d)[n:] END, d)
    timestamp_millis(x) AS epoch_ms(x)
    timestamp_micros(x) AS make_timestamp(x)
    timestamp_seconds(x) AS CAST(to_timestamp(x) AS TIMESTAMP)
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
    width_bucket(x, a, b, n) AS CASE WHEN x < a THEN 0 WHEN x >= b THEN n + 1 ELSE CAST(floor((x - a)
        / (b - a) * n) AS INTEGER) + 1 END
    zeroifnull(x) AS coalesce(x, 0)
"""
MACROS = tuple(re.split(r"\n    (?=\w)", _MACROS.strip()))
#: Those in the catalog's own SQL.
OF_CATALOG = tuple(macro for macro in MACROS if macro.startswith(("timestamp_millis(", "timestamp_micros(")))
