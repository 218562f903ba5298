-- The stores of the log task :source: from which ts the next flush continues in the region that is furthest behind. The
-- checkpoint holds for every region, also for one without events.
SELECT r.store, MIN(GREATEST(r.resolved_ts, COALESCE(c.ts, r.resolved_ts))) AS next_backup_ts, COUNT(*) AS regions
FROM log_regions AS r
CROSS JOIN (
  SELECT MAX(end_ts) AS ts FROM backups WHERE source = :source AND kind = 'log' AND state = 'complete'
) AS c
WHERE r.source = :source AND NOT r.closed
GROUP BY r.store
ORDER BY LENGTH(r.store), r.store
