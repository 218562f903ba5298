-- 4f1173da35dcfb6b raw_backups
SELECT
  MAX(b.finished_at) AS finished_at
FROM raw_backups AS b
WHERE
  b.source = $source
