-- c09e0d425015bb57 raw_backups raw_gaps
SELECT
  g.*,
  TIMESTAMP_MILLIS(CASE WHEN b.ts_domain = 'tso' THEN g.from_ts // 262144 ELSE g.from_ts END) AS from_time,
  TIMESTAMP_MILLIS(CASE WHEN b.ts_domain = 'tso' THEN g.to_ts // 262144 ELSE g.to_ts END) AS to_time
FROM raw_gaps AS g
JOIN raw_backups AS b
  ON b.backup_id = g.backup_id
WHERE
  b.state IN ('complete', 'out_of_sync', 'deleted')
