-- One row per record of a schema registry in a committed backup: what the record says, decoded.
-- log_time: log_ts, in UTC
SELECT s.*, CASE WHEN s.log_ts >= 0 THEN timestamp_millis(s.log_ts) END AS log_time
FROM raw_schemas AS s
JOIN raw_backups AS b ON b.backup_id = s.backup_id
WHERE b.state IN ('complete', 'out_of_sync')
