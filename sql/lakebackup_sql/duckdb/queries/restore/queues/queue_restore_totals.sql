-- e4a5d626196c4218 selected
SELECT
  f.scope,
  COUNT(*) AS files,
  CAST(SUM(f.bytes) AS BIGINT) AS bytes,
  CAST(SUM(f.entries) AS BIGINT) AS entries,
  MIN(f.min_ts) AS min_ts
FROM selected AS f
GROUP BY
  f.scope
ORDER BY
  f.scope NULLS FIRST
