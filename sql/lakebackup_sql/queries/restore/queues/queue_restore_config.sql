-- The engine's own files for a restore: the schema history that travels with backup :backup_id of its queues, and the
-- configuration of backup :config_id. outcome: what verify last found, when one is not whole.
SELECT f.role, f.destination, f.path, f.bytes, f.sha256, f.source, f.backup_id, f.key_id, c.outcome
FROM files AS f
LEFT JOIN faults AS c ON f.destination = c.destination AND f.path = c.path
WHERE f.source = :source
  AND ((f.role = 'schema' AND f.backup_id = :backup_id) OR (f.role = 'config' AND f.backup_id = :config_id))
  AND f.format = 'file'
ORDER BY f.role, f.path
