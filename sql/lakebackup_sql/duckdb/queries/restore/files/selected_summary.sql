-- 28dc907cb6a716c3 selected
SELECT
  f.scope,
  f.epoch,
  f.region,
  COUNT(*) AS files,
  CAST(SUM(f.bytes) AS BIGINT) AS bytes,
  CAST(SUM(f.raw_bytes) AS BIGINT) AS raw_bytes,
  CAST(SUM(f.entries) AS BIGINT) AS entries,
  MIN(f.start_position) AS start_position,
  MAX(f.end_position) AS end_position,
  MIN(f.min_ts) AS min_ts,
  MAX(f.max_ts) AS max_ts
FROM selected AS f
GROUP BY
  f.scope,
  f.epoch,
  f.region
ORDER BY
  f.scope NULLS FIRST,
  f.epoch NULLS FIRST,
  f.region NULLS FIRST
