-- e16d1b77e7ab2beb raw_backups raw_positions
SELECT
  p.*,
  TIMESTAMP_MILLIS(p.ts) AS time
FROM raw_positions AS p
JOIN raw_backups AS b
  ON b.backup_id = p.backup_id
WHERE
  b.state IN ('complete', 'out_of_sync')
