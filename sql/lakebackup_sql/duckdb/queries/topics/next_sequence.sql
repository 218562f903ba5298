-- 5a28b3cfc04a4fdb raw_files
SELECT
  scope,
  epoch,
  region,
  MAX(TRY_CAST(REGEXP_EXTRACT(path, '-([0-9]+)[.]data$', 1) AS BIGINT)) + 1 AS next_sequence,
  ARG_MAX(raw_bytes, added_in) AS raw_bytes,
  ARG_MAX(entries, added_in) AS entries
FROM raw_files
WHERE
  source = $source
  AND role = 'data'
  AND added_in >= $since
  AND (
    TRY_CAST($scopes AS TEXT) IS NULL
    OR ARRAY_CONTAINS(STR_SPLIT_REGEX($scopes, ','), scope)
  )
GROUP BY
  scope,
  epoch,
  region
ORDER BY
  scope NULLS FIRST,
  epoch NULLS FIRST,
  TRY_CAST(region AS BIGINT) NULLS FIRST
