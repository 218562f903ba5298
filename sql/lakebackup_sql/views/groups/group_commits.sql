-- One row per record of `__consumer_offsets` in a committed backup: what the record says, decoded.
-- commit_time: commit_ts, in UTC
-- expire_time: expire_ts, in UTC
-- log_time: log_ts, in UTC
SELECT
  c.*,
  CASE WHEN c.commit_ts >= 0 THEN timestamp_millis(c.commit_ts) END AS commit_time,
  CASE WHEN c.expire_ts >= 0 THEN timestamp_millis(c.expire_ts) END AS expire_time,
  CASE WHEN c.log_ts >= 0 THEN timestamp_millis(c.log_ts) END AS log_time
FROM raw_group_commits AS c
JOIN raw_backups AS b ON b.backup_id = c.backup_id
WHERE b.state IN ('complete', 'out_of_sync')
