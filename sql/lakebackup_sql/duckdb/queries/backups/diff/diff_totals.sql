-- 5ae5f2d4c4d2b61f changes
SELECT
  change,
  COUNT(*) AS files,
  TRY_CAST(COALESCE(SUM(bytes), 0) AS BIGINT) AS bytes,
  TRY_CAST(COALESCE(SUM(old_bytes), 0) AS BIGINT) AS old_bytes,
  TRY_CAST(COALESCE(SUM(entries), 0) AS BIGINT) AS entries,
  TRY_CAST(COALESCE(SUM(old_entries), 0) AS BIGINT) AS old_entries
FROM changes
GROUP BY
  change
ORDER BY
  change NULLS FIRST
