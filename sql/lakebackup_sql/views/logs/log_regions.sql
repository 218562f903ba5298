-- One row per region of a change feed: how far the region has been read. The row comes from the newest committed backup
-- that recorded the region.
-- resolved_time: resolved_ts, in UTC; null: its unit is neither ms nor tso
SELECT
  r.source, r.region, r.store, r.resolved_ts, r.closed, r.successors, r.backup_id, r.number,
  timestamp_millis(r.resolved_ts DIV CASE r.ts_domain WHEN 'ms' THEN 1 WHEN 'tso' THEN 262144 END) AS resolved_time
FROM (
  SELECT
    l.*, b.ts_domain,
    ROW_NUMBER() OVER (PARTITION BY l.source, l.region ORDER BY l.number DESC) AS nth
  FROM raw_log_regions AS l
  JOIN raw_backups AS b ON l.backup_id = b.backup_id
  WHERE b.state <> 'unconfirmed'
) AS r
WHERE r.nth = 1
