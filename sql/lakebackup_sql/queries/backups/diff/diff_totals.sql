-- What the differences of two backups (relation changes, rows of diff_files) add up to.
SELECT
  change,
  COUNT(*) AS files,
  CAST(COALESCE(SUM(bytes), 0) AS BIGINT) AS bytes,
  CAST(COALESCE(SUM(old_bytes), 0) AS BIGINT) AS old_bytes,
  CAST(COALESCE(SUM(entries), 0) AS BIGINT) AS entries,
  CAST(COALESCE(SUM(old_entries), 0) AS BIGINT) AS old_entries
FROM changes
GROUP BY change
ORDER BY change
