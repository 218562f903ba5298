-- 3fa4f57cfdde7358 selected
SELECT
  f.cf,
  COUNT(*) AS files,
  COUNT(DISTINCT f.scope) AS tables,
  CAST(SUM(f.bytes) AS BIGINT) AS bytes,
  CAST(SUM(f.raw_bytes) AS BIGINT) AS raw_bytes,
  CAST(SUM(f.entries) AS BIGINT) AS entries,
  MIN(f.min_begin_ts) AS begin_ts,
  COUNT(CASE WHEN f.start_key = '' THEN 1 END) AS whole_tables,
  COUNT(f.key_id) AS encrypted
FROM selected AS f
GROUP BY
  f.cf
ORDER BY
  f.cf NULLS FIRST
