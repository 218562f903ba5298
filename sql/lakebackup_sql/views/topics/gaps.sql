-- One row per range of positions that no backup holds: which records are lost, and why. Committed backups recorded
-- these ranges, including backups that were deleted since.
-- reason: purged (no longer in the topic), recreated (the topic was recreated), skipped (a person left a message out)
-- from_time: from_ts, in UTC
-- to_time: to_ts, in UTC
SELECT
  g.*,
  timestamp_millis(CASE WHEN b.ts_domain = 'tso' THEN g.from_ts DIV 262144 ELSE g.from_ts END) AS from_time,
  timestamp_millis(CASE WHEN b.ts_domain = 'tso' THEN g.to_ts DIV 262144 ELSE g.to_ts END) AS to_time
FROM raw_gaps AS g
JOIN raw_backups AS b ON b.backup_id = g.backup_id
WHERE b.state IN ('complete', 'out_of_sync', 'deleted')
