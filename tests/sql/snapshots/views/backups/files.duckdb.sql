SELECT
  f.*,
  CASE
    WHEN f.min_ts < 0
    THEN NULL
    WHEN f.ts_domain = 'ms'
    THEN TIMESTAMP_MILLIS(f.min_ts)
    WHEN f.ts_domain = 'tso'
    THEN TIMESTAMP_MILLIS(f.min_ts // 262144)
  END AS min_time,
  CASE
    WHEN f.max_ts < 0
    THEN NULL
    WHEN f.ts_domain = 'ms'
    THEN TIMESTAMP_MILLIS(f.max_ts)
    WHEN f.ts_domain = 'tso'
    THEN TIMESTAMP_MILLIS(f.max_ts // 262144)
  END AS max_time,
  CASE
    WHEN f.min_begin_ts < 0
    THEN NULL
    WHEN f.ts_domain = 'ms'
    THEN TIMESTAMP_MILLIS(f.min_begin_ts)
    WHEN f.ts_domain = 'tso'
    THEN TIMESTAMP_MILLIS(f.min_begin_ts // 262144)
  END AS min_begin_time,
  CASE
    WHEN f.resolved_ts < 0
    THEN NULL
    WHEN f.ts_domain = 'ms'
    THEN TIMESTAMP_MILLIS(f.resolved_ts)
    WHEN f.ts_domain = 'tso'
    THEN TIMESTAMP_MILLIS(f.resolved_ts // 262144)
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
