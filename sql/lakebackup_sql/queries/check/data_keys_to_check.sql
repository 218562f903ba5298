-- The data keys of the backups whose ids are in :backup_ids (separated by commas; empty: all), where their objects lie,
-- and how many can open each; of own_backups alone.
SELECT b.destination, k.source, k.backup_id, k.key_id, COUNT(*) AS recipients
FROM data_keys AS k
JOIN own_backups AS b ON k.backup_id = b.backup_id
WHERE b.state IN ('complete', 'out_of_sync')
  AND (:backup_ids = '' OR ARRAY_CONTAINS(SPLIT(:backup_ids, ','), k.backup_id))
GROUP BY b.destination, k.source, k.backup_id, k.key_id
ORDER BY b.destination, k.source, k.backup_id, k.key_id
