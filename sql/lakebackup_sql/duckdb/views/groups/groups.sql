-- 9d6a351acb558860 raw_backups raw_groups
SELECT
  g.*,
  TIMESTAMP_MILLIS(g.ts) AS time
FROM raw_groups AS g
JOIN raw_backups AS b
  ON b.backup_id = g.backup_id
WHERE
  b.state IN ('complete', 'out_of_sync')
