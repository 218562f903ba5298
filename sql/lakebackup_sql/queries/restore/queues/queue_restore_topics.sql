-- The queues of backup :backup_id as they were.
SELECT s.scope, s.epoch, s.regions, s.replication, s.settings
FROM scopes AS s
WHERE s.source = :source
  AND s.backup_id = :backup_id
ORDER BY s.scope
