-- The backups whose ids are in :backup_ids (separated by commas; empty: all), with what their sidecars must say; of
-- own_backups alone.
SELECT b.destination, b.source, b.backup_id, b.source_kind, b.end_ts, b.digest
FROM own_backups AS b
WHERE b.state IN ('complete', 'out_of_sync')
  AND (:backup_ids = '' OR ARRAY_CONTAINS(SPLIT(:backup_ids, ','), b.backup_id))
