SELECT
  g.*,
  TIMESTAMP_MILLIS(g.from_ts) AS from_time,
  TIMESTAMP_MILLIS(g.to_ts) AS to_time
FROM raw_gaps AS g
JOIN raw_backups AS b
  ON b.backup_id = g.backup_id
WHERE
  b.state IN ('complete', 'out_of_sync', 'deleted')
