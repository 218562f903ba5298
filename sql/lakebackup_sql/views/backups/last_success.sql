-- One row per source and kind of backup: the newest backup that can be restored, and how long ago it ended. Backups
-- from the future do not count.
-- age_ms: time from the end of the backup to now, in ms
SELECT
  b.source, b.kind, b.backup_id, b.number, b.level, b.base, b.end_ts, b.end_time, b.started_at, b.finished_at,
  b.started_time, b.finished_time,
  (SELECT now_ms FROM clock) - CAST(FLOOR(b.finished_at / 1000) AS BIGINT) AS age_ms,
  b.files, b.bytes, b.entries
FROM (
  SELECT g.*, ROW_NUMBER() OVER (PARTITION BY g.source, g.kind ORDER BY g.place DESC, g.number DESC) AS nth
  FROM backups AS g
  LEFT ANTI JOIN unreached_logs AS u ON g.backup_id = u.backup_id
  LEFT ANTI JOIN future_backups AS v ON g.backup_id = v.backup_id
  WHERE g.state = 'complete' AND g.intact
) AS b
WHERE b.nth = 1
