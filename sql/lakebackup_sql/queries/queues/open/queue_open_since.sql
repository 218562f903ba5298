-- Of each partition of the queues of :source, the end of the last backup of a state before :tid: no message before it
-- has that tid or a greater one.
SELECT p.scope, p.epoch, p.region, MAX(p.end_position) AS end_position
FROM raw_positions AS p
JOIN raw_queue_points AS q ON p.backup_id = q.backup_id
WHERE p.source = :source
  AND q.source = :source
  AND q.last_tid < CAST(:tid AS BIGINT)
GROUP BY p.scope, p.epoch, p.region
ORDER BY p.scope, p.epoch, CAST(p.region AS BIGINT)
