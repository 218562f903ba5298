-- 669c618db77b6b6a raw_backups raw_positions
SELECT
  p.*,
  TIMESTAMP_MILLIS(p.ts) AS time,
  TIMESTAMP_MILLIS(CASE WHEN p.open_since >= 0 THEN p.open_since END) AS open_since_time
FROM raw_positions AS p
JOIN raw_backups AS b
  ON b.backup_id = p.backup_id
WHERE
  b.state IN ('complete', 'out_of_sync')
