-- The engine's own files that travel with backup :backup_id of its queues. outcome: what verify last found, when it is
-- not whole.
SELECT
  f.role, f.destination, f.path, f.bytes, f.sha256, c.outcome
FROM files AS f
LEFT JOIN faults AS c
  ON f.destination = c.destination
  AND f.path = c.path
WHERE f.source = :source
  AND f.backup_id = :backup_id
  AND f.role IN ('config', 'schema')
  AND f.format = 'file'
ORDER BY f.role, f.path
