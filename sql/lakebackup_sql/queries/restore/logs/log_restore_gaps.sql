-- Events that the feed of :source had deleted before they were captured, at times in (:start_ts, :end_ts].
SELECT g.scope, g.region, g.from_position, g.to_position, g.reason, g.from_ts, g.to_ts
FROM gaps AS g
JOIN backups AS b ON g.backup_id = b.backup_id
WHERE g.source = :source
  AND b.state = 'complete'
  AND g.from_ts < :end_ts
  AND g.to_ts > :start_ts
ORDER BY g.from_ts, g.scope, g.region
LIMIT 100
