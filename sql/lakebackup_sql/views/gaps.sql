-- Records that no backup holds, as committed backups noticed them, also ones that were deleted since.
-- from_time: from_ts, in UTC
-- to_time: to_ts, in UTC
SELECT g.*, timestamp_millis(g.from_ts) AS from_time, timestamp_millis(g.to_ts) AS to_time
FROM raw_gaps AS g
JOIN raw_backups AS b ON b.backup_id = g.backup_id
WHERE b.state IN ('complete', 'out_of_sync', 'deleted')
