-- The stores of the log task :source: from which ts the next flush goes on in the region that is furthest behind.
SELECT store, MIN(resolved_ts) AS next_backup_ts, COUNT(*) AS regions
FROM log_regions
WHERE source = :source AND NOT closed
GROUP BY store
ORDER BY LENGTH(store), store
