-- One row per committed backup and region: which positions of the region the backup covers. The range is
-- [start_position, end_position).
-- time: ts, in UTC
-- open_since_time: open_since, in UTC
SELECT
  p.*,
  timestamp_millis(p.ts) AS time,
  timestamp_millis(CASE WHEN p.open_since >= 0 THEN p.open_since END) AS open_since_time
FROM raw_positions AS p
JOIN raw_backups AS b ON b.backup_id = p.backup_id
WHERE b.state IN ('complete', 'out_of_sync')
