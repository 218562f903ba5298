-- The topics that the backups :a and :b hold, and the place of each in its history.
SELECT t.scope, t.backup_id, t.source, t.epoch, t.base, t.generation, t.number
FROM chain_points AS t
WHERE t.backup_id IN (:a, :b)
ORDER BY t.scope, t.number
