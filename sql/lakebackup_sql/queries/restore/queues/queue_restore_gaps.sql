-- What queues of :source had lost, before it was backed up, around the time :to_ts (ms).
SELECT DISTINCT g.scope, g.region, g.reason, g.from_position, g.to_position, g.from_ts, g.to_ts
FROM gaps AS g
JOIN backups AS b ON g.backup_id = b.backup_id
WHERE g.source = :source
  AND b.source_kind = 'queues'
  AND g.from_ts < CAST(:to_ts AS BIGINT)
  AND CAST(:to_ts AS BIGINT) < g.to_ts
ORDER BY g.scope, g.region, g.from_position
