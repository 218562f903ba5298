-- The data keys of the backups whose ids are in :backup_ids (separated by commas; empty: all), where their objects lie,
-- how many can open each, and when it was wrapped for them; of own_backups alone. Of a snapshot, those are the keys of
-- all objects that its files lie in, whichever backup wrote them.
SELECT b.destination, k.source, k.backup_id, k.key_id, COUNT(*) AS recipients, MAX(k.wrapped_at) AS wrapped_at
FROM data_keys AS k
JOIN own_backups AS b ON k.backup_id = b.backup_id
LEFT JOIN (
  SELECT DISTINCT s.key_id
  FROM snapshot_files AS s
  JOIN backups AS h ON s.source = h.source AND s.added_in <= h.number AND COALESCE(h.number < s.gone_in, TRUE)
  WHERE ARRAY_CONTAINS(SPLIT(:backup_ids, ','), h.backup_id)
) AS w ON k.key_id = w.key_id
WHERE b.state <> 'unconfirmed'
  AND (:backup_ids = '' OR w.key_id IS NOT NULL OR ARRAY_CONTAINS(SPLIT(:backup_ids, ','), k.backup_id))
GROUP BY b.destination, k.source, k.backup_id, k.key_id
ORDER BY b.destination, k.source, k.backup_id, k.key_id
