-- The backups of snapshots that the fulls of queues depend on whose ids are in :backup_ids (separated by commas).
SELECT DISTINCT p.snapshot_id
FROM raw_queue_points AS p
WHERE p.snapshot_id IS NOT NULL
  AND ARRAY_CONTAINS(SPLIT(:backup_ids, ','), p.backup_id)
ORDER BY p.snapshot_id
