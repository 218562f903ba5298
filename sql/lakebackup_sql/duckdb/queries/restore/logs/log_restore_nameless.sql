-- c21cda5994cfee5a files log_tables
SELECT
  COUNT(DISTINCT f.scope) AS tables
FROM files AS f
ANTI JOIN (
  SELECT
    TRY_CAST(t.table_id AS TEXT) AS scope
  FROM log_tables AS t
  WHERE
    t.source = $source AND t.from_ts <= $end_ts
) AS n
  ON f.scope = n.scope
WHERE
  f.source = $source
  AND f.format = 'log-arrow-1'
  AND f.role = 'data'
  AND f.op = 'put'
  AND f.cf = 'write'
  AND f.max_ts > $start_ts
  AND f.min_ts <= $end_ts
