-- 89de4ffba4638329 log_flushes
SELECT
  MIN(b.ts_domain) AS ts_domain,
  MIN(b.start_ts) AS start_ts,
  MAX(b.end_ts) AS end_ts,
  MAX(b.floor_ts) AS floor_ts
FROM log_flushes AS b
WHERE
  b.source = $source
HAVING
  COUNT(*) > 0
