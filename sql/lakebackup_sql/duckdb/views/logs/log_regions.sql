-- 34a9d5edcdf53639 raw_backups raw_log_regions
SELECT
  r.source,
  r.region,
  r.store,
  r.resolved_ts,
  r.closed,
  r.successors,
  r.backup_id,
  r.number,
  TIMESTAMP_MILLIS(r.resolved_ts // CASE r.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS resolved_time
FROM (
  SELECT
    l.*,
    b.ts_domain,
    ROW_NUMBER() OVER (PARTITION BY l.source, l.region ORDER BY l.number DESC) AS nth
  FROM raw_log_regions AS l
  JOIN raw_backups AS b
    ON l.backup_id = b.backup_id
  WHERE
    b.state <> 'unconfirmed'
) AS r
WHERE
  r.nth = 1
