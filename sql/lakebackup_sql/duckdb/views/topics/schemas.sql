-- c76a40a85902d909 raw_backups raw_schemas
SELECT
  s.*,
  CASE WHEN s.log_ts >= 0 THEN TIMESTAMP_MILLIS(s.log_ts) END AS log_time
FROM raw_schemas AS s
JOIN raw_backups AS b
  ON b.backup_id = s.backup_id
WHERE
  b.state IN ('complete', 'out_of_sync')
