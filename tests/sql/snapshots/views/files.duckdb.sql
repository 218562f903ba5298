SELECT
  f.*,
  CASE WHEN f.ts_domain = 'ms' AND f.min_ts >= 0 THEN TIMESTAMP_MILLIS(f.min_ts) END AS min_time,
  CASE WHEN f.ts_domain = 'ms' AND f.max_ts >= 0 THEN TIMESTAMP_MILLIS(f.max_ts) END AS max_time,
  CASE
    WHEN f.ts_domain = 'ms' AND f.min_begin_ts >= 0
    THEN TIMESTAMP_MILLIS(f.min_begin_ts)
  END AS min_begin_time,
  CASE
    WHEN f.ts_domain = 'ms' AND f.resolved_ts >= 0
    THEN TIMESTAMP_MILLIS(f.resolved_ts)
  END AS resolved_time
FROM raw_files AS f
JOIN raw_backups AS b
  ON b.backup_id = f.backup_id
ANTI JOIN raw_removals AS r
  ON r.destination = f.destination AND r.path = f.path
WHERE
  b.state IN ('complete', 'out_of_sync')
  OR (
    b.state = 'deleted' AND b.source_kind = 'snapshot'
  )
