-- 51ed1b63bf42d3ee raw_backups raw_group_commits
SELECT
  c.*,
  CASE WHEN c.commit_ts >= 0 THEN TIMESTAMP_MILLIS(c.commit_ts) END AS commit_time,
  CASE WHEN c.expire_ts >= 0 THEN TIMESTAMP_MILLIS(c.expire_ts) END AS expire_time,
  CASE WHEN c.log_ts >= 0 THEN TIMESTAMP_MILLIS(c.log_ts) END AS log_time
FROM raw_group_commits AS c
JOIN raw_backups AS b
  ON b.backup_id = c.backup_id
WHERE
  b.state IN ('complete', 'out_of_sync')
