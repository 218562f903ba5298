-- 26e686ad48e49045 raw_backups
SELECT
  b.backup_id,
  b.number,
  b.end_ts,
  b.source_kind
FROM raw_backups AS b
WHERE
  b.source = $source
ORDER BY
  b.number DESC
LIMIT 1
