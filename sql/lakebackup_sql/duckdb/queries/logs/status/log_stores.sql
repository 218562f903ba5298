-- b8f8f71d6e73d4c2 backups log_regions
SELECT
  r.store,
  MIN(GREATEST(r.resolved_ts, COALESCE(c.ts, r.resolved_ts))) AS next_backup_ts,
  COUNT(*) AS regions
FROM log_regions AS r
CROSS JOIN (
  SELECT
    MAX(end_ts) AS ts
  FROM backups
  WHERE
    source = $source AND kind = 'log' AND state = 'complete'
) AS c
WHERE
  r.source = $source AND NOT r.closed
GROUP BY
  r.store
ORDER BY
  LENGTH(r.store) NULLS FIRST,
  r.store NULLS FIRST
