-- d843b5a1b14dfb76 backups clock future_backups unreached_logs
SELECT
  b.source,
  b.kind,
  b.backup_id,
  b.number,
  b.level,
  b.base,
  b.end_ts,
  b.end_time,
  b.started_at,
  b.finished_at,
  b.started_time,
  b.finished_time,
  (
    SELECT
      now_ms
    FROM clock
  ) - TRY_CAST(FLOOR(b.finished_at / NULLIF(1000, 0)) AS BIGINT) AS age_ms,
  b.files,
  b.bytes,
  b.entries
FROM (
  SELECT
    g.*,
    ROW_NUMBER() OVER (PARTITION BY g.source, g.kind ORDER BY g.place DESC, g.number DESC) AS nth
  FROM backups AS g
  ANTI JOIN unreached_logs AS u
    ON g.backup_id = u.backup_id
  ANTI JOIN future_backups AS v
    ON g.backup_id = v.backup_id
  WHERE
    g.state = 'complete' AND g.intact
) AS b
WHERE
  b.nth = 1
