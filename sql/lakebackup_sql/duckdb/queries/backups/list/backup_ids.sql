-- 9e6336cf3db5bba7 raw_backups
SELECT
  b.backup_id
FROM raw_backups AS b
ORDER BY
  b.backup_id NULLS FIRST
